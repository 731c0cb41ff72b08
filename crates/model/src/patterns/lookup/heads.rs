//! Compares ranges of keys by the known starts of their keys, to find out whether ranges overlap or
//! contain each other.

use super::range::TextBounds;

/// The known start of a partition key or row key of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyHead {
    text: String,
    rest: KeyTail,
}

/// The text that may follow the known start of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyTail {
    Nothing,
    Anything,
    Bounded,
}

/// The known start of the partition key and of the row key, for each range.
#[derive(Debug, Default)]
pub(super) struct KeyHeads(pub(super) Vec<[KeyHead; 2]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlap {
    /// No key is in the range and also in another range.
    Disjoint,
    /// All keys of the range are in another range.
    Contained,
    /// The range and another range may have some keys in common, but not all.
    Partial,
}

impl KeyHead {
    pub(super) fn new(text: &str, rest: Option<&TextBounds>) -> Self {
        let rest = match rest {
            None => KeyTail::Nothing,
            Some(bounds) if *bounds == TextBounds::default() => KeyTail::Anything,
            Some(_) => KeyTail::Bounded,
        };
        Self {
            text: text.to_owned(),
            rest,
        }
    }

    fn contains(&self, other: &Self) -> bool {
        self == other
            || (self.rest == KeyTail::Anything && other.text.starts_with(self.text.as_str()))
    }

    fn meets(&self, other: &Self) -> bool {
        self == other
            || (self.rest != KeyTail::Nothing
                && (other.text.starts_with(&self.text) || self.text.starts_with(&other.text)))
    }
}

impl KeyHeads {
    /// Compares `range` with the ranges before index `first`. After their known starts, the keys of
    /// all ranges have the same form, because the same templates render them.
    pub(super) fn overlap(&self, range: &[KeyHead; 2], first: usize) -> Overlap {
        let [partition, row] = range;
        let mut overlap = Overlap::Disjoint;
        for [other_partition, other_row] in &self.0[..first] {
            if other_partition.contains(partition) && other_row.contains(row) {
                return Overlap::Contained;
            }
            if other_partition.meets(partition) && other_row.meets(row) {
                overlap = Overlap::Partial;
            }
        }
        overlap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(partition: &str, row: &str, rest: &TextBounds) -> [KeyHead; 2] {
        [KeyHead::new(partition, None), KeyHead::new(row, Some(rest))]
    }

    #[test]
    fn contained_ranges_differ_from_overlapping_ones() {
        let (open, bounded) = (
            TextBounds::default(),
            TextBounds {
                from: Some("a".to_owned()),
                ..TextBounds::default()
            },
        );
        for (rest, partition, row, expected) in [
            (&open, "p", "50", Overlap::Contained),
            (&open, "p", "5", Overlap::Contained),
            (&open, "q", "5", Overlap::Disjoint),
            (&open, "p", "6", Overlap::Disjoint),
            // The range with the shorter start is compared with the range that it contains.
            (&open, "p", "", Overlap::Partial),
            (&bounded, "p", "50", Overlap::Partial),
            (&bounded, "p", "5", Overlap::Contained),
            (&bounded, "p", "6", Overlap::Disjoint),
        ] {
            let heads = KeyHeads(vec![range("p", "5", rest)]);
            assert_eq!(
                heads.overlap(&range(partition, row, rest), 1),
                expected,
                "{partition} {row}"
            );
        }
    }
}
