//! Text in pages and in addresses. Pure.

use std::fmt::{self, Display, Write};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::model::unprintable::is_unprintable;

/// A text for a page, between tags or in a quoted attribute: characters with a meaning in HTML are escaped, and so are
/// characters that turn the direction of writing, or are not seen.
pub(super) struct Text<T>(pub(super) T);

impl<T: Display> Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.write_str("&amp;")?,
                '<' => self.0.write_str("&lt;")?,
                '>' => self.0.write_str("&gt;")?,
                '"' => self.0.write_str("&quot;")?,
                '\'' => self.0.write_str("&#39;")?,
                '\n' => self.0.write_char('\n')?,
                hidden if is_unprintable(hidden) => self.0.write_char('\u{fffd}')?,
                other => self.0.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// A text as part of a query: all but letters and digits as %XX.
pub(super) struct Query<'a>(pub(super) &'a str);

/// All but letters, digits and RFC 3986's unreserved marks, the tilde excepted.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

impl Display for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        utf8_percent_encode(self.0, QUERY).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_a_text_wherever_it_is_put() {
        assert_eq!(Text("<script>alert('1')</script>&\"").to_string(), "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;");
        assert_eq!(Text("한\u{202e}x\u{7}\ny\u{200f}").to_string(), "한\u{fffd}x\u{fffd}\ny\u{fffd}");
        assert_eq!(Query("a b/한&=").to_string(), "a%20b%2F%ED%95%9C%26%3D");
    }
}
