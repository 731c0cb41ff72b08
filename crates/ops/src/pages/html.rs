//! Escapes text in templates. Pure.

use std::borrow::Cow;
use std::fmt::{self, Write};

use askama::filters::{Escaper, Html};

use evenkeel_model::unprintable::is_unprintable;

/// The escaper of all templates (`askama.toml`). In addition to askama's HTML escaper, it replaces invisible characters
/// and characters that change the direction of text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visible;

impl Escaper for Visible {
    fn write_escaped_str<W: Write>(&self, dest: W, text: &str) -> fmt::Result {
        let hidden = |character| character != '\n' && is_unprintable(character);
        let seen = if text.contains(hidden) {
            Cow::Owned(text.replace(hidden, "\u{fffd}"))
        } else {
            Cow::Borrowed(text)
        };
        Html.write_escaped_str(dest, &seen)
    }
}

#[cfg(test)]
mod tests {
    use askama::Template;

    #[derive(Template)]
    #[template(
        source = "<a title=\"{{ text }}\" href=\"/?a={{ text|urlencode_strict }}\">{{ text }}</a>",
        ext = "html"
    )]
    struct Anchor<'a> {
        text: &'a str,
    }

    #[test]
    fn text_is_escaped_in_every_context() {
        let text = "<script>alert('1')</script>&\"";
        let escaped = "&#60;script&#62;alert(&#39;1&#39;)&#60;/script&#62;&#38;&#34;";
        let part = "%3Cscript%3Ealert%28%271%27%29%3C%2Fscript%3E%26%22";
        assert_eq!(
            Anchor { text }.to_string(),
            format!("<a title=\"{escaped}\" href=\"/?a={part}\">{escaped}</a>")
        );
        let seen = Anchor {
            text: "한\u{202e}x\u{7}\ny\u{200f}",
        }
        .to_string();
        assert!(
            seen.ends_with(">한\u{fffd}x\u{fffd}\ny\u{fffd}</a>"),
            "{seen}"
        );
    }
}
