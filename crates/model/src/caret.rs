//! Marks the faulty place of a one-line text.

use std::fmt;
use std::ops::Range;

/// Maximum number of characters shown on either side of the place.
const CONTEXT: usize = 60;

/// A text and the faulty place in it, shown as two lines: the text, and carets under the place.
///
/// ```text
///   {Email|lowr}
///          ^^^^
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Caret<'a> {
    text: &'a str,
    start: usize,
    end: usize,
}

impl<'a> Caret<'a> {
    /// Marks a range of bytes. A range outside the text, or inside a character, is moved into it.
    pub fn new(text: &'a str, span: &Range<usize>) -> Self {
        let into = |at: usize| {
            (0..=at.min(text.len()))
                .rev()
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(0)
        };
        let start = into(span.start);
        Self {
            text,
            start,
            end: into(span.end).max(start),
        }
    }
}

impl fmt::Display for Caret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control characters such as line breaks would shift the carets.
        let show = |text: &str| {
            text.chars()
                .map(|c| if c.is_control() { '·' } else { c })
                .collect::<String>()
        };
        let before: Vec<char> = show(&self.text[..self.start]).chars().collect();
        let skipped = before.len().saturating_sub(CONTEXT);
        let before: String = before[skipped..].iter().collect();
        let place: String = show(&self.text[self.start..self.end])
            .chars()
            .take(CONTEXT)
            .collect();
        let rest = show(&self.text[self.start..]);
        let shown: String = rest.chars().take(2 * CONTEXT).collect();
        let (left, right) = (
            if skipped > 0 { "…" } else { "" },
            if shown.len() < rest.len() { "…" } else { "" },
        );
        writeln!(f, "  {left}{before}{shown}{right}")?;
        let indent = left.chars().count() + before.chars().count();
        write!(
            f,
            "  {:indent$}{}",
            "",
            "^".repeat(place.chars().count().max(1))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn carets_stand_under_the_place() {
        assert_eq!(
            Caret::new("{Email|lowr}", &(7..11)).to_string(),
            "  {Email|lowr}\n         ^^^^"
        );
        assert_eq!(
            Caret::new("{한|lowr}", &(5..9)).to_string(),
            "  {한|lowr}\n     ^^^^"
        );
        assert_eq!(
            Caret::new("a == ", &(5..5)).to_string(),
            "  a == \n       ^"
        );
        assert_eq!(Caret::new("a\nb", &(2..3)).to_string(), "  a·b\n    ^");
    }

    proptest! {
        #[test]
        fn any_range_of_any_text_is_two_lines(text in any::<String>(), start in 0_usize..300, length in 0_usize..300) {
            prop_assert_eq!(Caret::new(&text, &(start..start + length)).to_string().matches('\n').count(), 1);
        }
    }
}
