//! A bound that is one text for texts and another for moments.

use super::term::TermOp;

/// A moment as a bound, not spelled as in keys: `2026-11-20T15:00:00Z` instead of
/// `2026-11-20T15:00:00.0000000Z`. Text in a key that looks like a moment is compared with the
/// moment, any other text with the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MomentBound {
    pub(super) op: TermOp,
    /// As the term spells it.
    pub(super) text: String,
    /// As keys spell it. All moments have the same length there.
    pub(super) moment: String,
}

impl MomentBound {
    /// The bound of the range that contains all matching rows. Both texts are ASCII, which every
    /// store sorts alike.
    pub(super) fn outer(&self) -> &str {
        let (first, last) = if self.text < self.moment {
            (&self.text, &self.moment)
        } else {
            (&self.moment, &self.text)
        };
        if self.op == TermOp::Less { last } else { first }
    }

    /// Whether a key's text, from the field on, is on the right side of the bound.
    pub(super) fn holds(&self, text: &str) -> bool {
        let bound = if self.is_moment(text) {
            &self.moment
        } else {
            &self.text
        };
        if self.op == TermOp::Less {
            text < bound.as_str()
        } else {
            text >= bound.as_str()
        }
    }

    /// Whether a text begins like a moment in keys: digits where the bound has digits, and
    /// otherwise the same characters.
    fn is_moment(&self, text: &str) -> bool {
        let alike = |(wanted, found): (u8, u8)| {
            if wanted.is_ascii_digit() {
                found.is_ascii_digit()
            } else {
                wanted == found
            }
        };
        text.len() >= self.moment.len() && self.moment.bytes().zip(text.bytes()).all(alike)
    }
}
