//! A bound of a range that is spelled differently as a text and as a moment.

use super::term::TermOp;

/// A bound that is a moment, but is not spelled as keys spell moments: `2026-11-20T15:00:00Z`
/// instead of `2026-11-20T15:00:00.0000000Z`. A text in a key that looks like a moment is compared
/// with `moment`. Any other text is compared with `text`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MomentBound {
    pub(super) op: TermOp,
    /// The bound as the term spells it.
    pub(super) text: String,
    /// The bound as keys spell it. In keys, all moments have the same length.
    pub(super) moment: String,
}

impl MomentBound {
    /// The wider of the two bounds, so that the range contains all matching rows. Both texts are
    /// ASCII, which every store sorts in the same order.
    pub(super) fn outer(&self) -> &str {
        let (first, last) = if self.text < self.moment {
            (&self.text, &self.moment)
        } else {
            (&self.moment, &self.text)
        };
        if self.op == TermOp::Less { last } else { first }
    }

    /// Whether the text of a key, from the compared field on, satisfies the bound.
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

    /// Whether a text begins like a moment in keys: it has digits where `moment` has digits, and
    /// the same characters everywhere else.
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
