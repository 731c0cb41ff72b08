//! Decides which range queries can be trusted, by the kinds of characters in their filters.
//!
//! A key that a complete range does not return counts as absent. A service that misreads a filter may answer 200 without
//! rows, so an empty answer is trusted only after a range of the same shape has returned a row. Plain letters and digits
//! need no proof.

use evenkeel_model::Key;

/// The kinds of characters in the literals of a filter, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shape(u8);

const KINDS: [&str; 7] = [
    "an empty text",
    "apostrophes",
    "percent signs",
    "blanks",
    "other ASCII characters",
    "letters beyond ASCII",
    "characters beyond U+FFFF",
];

impl Shape {
    pub(super) fn of<'k>(texts: impl IntoIterator<Item = &'k Key>) -> Self {
        let bits = texts.into_iter().map(|key| match key.as_str() {
            "" => 1,
            text => text.chars().fold(0, |bits, c| bits | kind(c)),
        });
        Self(bits.fold(0, |all, bits| all | bits))
    }

    fn is_plain(self) -> bool {
        self.0 == 0
    }

    fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of the kinds, for a log line.
    pub(super) fn kinds(self) -> String {
        let names = KINDS
            .iter()
            .enumerate()
            .filter(|(bit, _)| self.0 & (1 << bit) != 0)
            .map(|(_, name)| *name);
        names.collect::<Vec<_>>().join(", ")
    }
}

fn kind(c: char) -> u8 {
    match c {
        '\'' => 1 << 1,
        '%' => 1 << 2,
        ' ' => 1 << 3,
        c if c.is_ascii_alphanumeric() || "-_.~:|@=+,;!*".contains(c) => 0,
        c if c.is_ascii() => 1 << 4,
        '\u{80}'..='\u{ffff}' => 1 << 5,
        _ => 1 << 6,
    }
}

/// Results of earlier ranges. Its size is bounded by the number of shapes.
#[derive(Debug, Default)]
pub(super) struct Trust {
    proven: Vec<Shape>,
    refuted: Vec<Shape>,
}

impl Trust {
    pub(super) fn allows(&self, shape: Shape) -> bool {
        !self.refuted.iter().any(|refuted| shape.includes(*refuted))
    }

    /// Whether an empty answer to a range of this shape proves that its keys are absent.
    pub(super) fn believes(&self, shape: Shape) -> bool {
        shape.is_plain() || self.proven.iter().any(|proven| proven.includes(shape))
    }

    pub(super) fn prove(&mut self, shape: Shape) {
        if !self.believes(shape) {
            self.proven.push(shape);
        }
    }

    /// Records that a range of this shape returned nothing although one of its rows exists. No such range is sent again.
    pub(super) fn refute(&mut self, shape: Shape) {
        if self.allows(shape) {
            self.refuted.push(shape);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(texts: &[&str]) -> Shape {
        let keys: Vec<Key> = texts.iter().map(|text| Key::new(*text).unwrap()).collect();
        Shape::of(&keys)
    }

    #[test]
    fn plain_keys_need_no_proof() {
        let trust = Trust::default();
        for plain in ["000017", "ada.king@contoso.com", "Employees~Sales", "a|b"] {
            assert!(trust.believes(shape(&[plain])), "{plain}");
        }
        for other in [
            "",
            "O'Brien",
            "a b",
            "Müller",
            "%2F",
            "a&b",
            "부서",
            "\u{1f600}",
        ] {
            assert!(
                !trust.believes(shape(&[other])) && trust.allows(shape(&[other])),
                "{other}"
            );
        }
    }

    #[test]
    fn a_proof_covers_the_shapes_within_it_and_a_refutation_those_around_it() {
        let mut trust = Trust::default();
        trust.prove(shape(&["dept 001", "Müller"]));
        assert!(trust.believes(shape(&["a b"])) && trust.believes(shape(&["Größe"])));
        assert!(!trust.believes(shape(&["O'Brien"])));
        trust.refute(shape(&["O'Brien"]));
        assert!(!trust.allows(shape(&["O'Brien", "a b"])) && trust.allows(shape(&["a b"])));
        assert_eq!(
            shape(&["O'Brien", "", "😀"]).kinds(),
            "an empty text, apostrophes, characters beyond U+FFFF"
        );
    }
}
