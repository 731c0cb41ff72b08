//! A bound that is one text to texts, and another to moments.

use super::term::TermOp;

/// A moment as a bound, in another spelling than that of keys: `2026-11-20T15:00:00Z`, where keys have `2026-11-20T15:00:00.0000000Z`.
/// A text in a key that begins as the moments in keys do is compared as a moment, any other as a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MomentBound {
    pub(super) op: TermOp,
    /// As the term spells it.
    pub(super) text: String,
    /// As keys do, in as many characters as every moment.
    pub(super) moment: String,
}

impl MomentBound {
    /// The bound of a range that has all that may hold. Both are ASCII, which sorts alike in every store.
    pub(super) fn outer(&self) -> &str {
        let (first, last) = if self.text < self.moment {
            (&self.text, &self.moment)
        } else {
            (&self.moment, &self.text)
        };
        if self.op == TermOp::Less { last } else { first }
    }

    /// Whether the text from the field on is on the right side of the bound.
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

    /// Whether a text begins with a moment in the form of keys: digits where the bound has digits, and all else alike.
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
