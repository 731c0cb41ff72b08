//! Compares ranges of keys by the texts they begin with: whether one contains another.

use super::range::TextBounds;

/// The known start of a partition key or row key of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    text: String,
    rest: Rest,
}

/// What may follow the known text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Nothing,
    Anything,
    Bounded,
}

/// The known starts of the partition keys and row keys of ranges.
#[derive(Debug, Default)]
pub(super) struct Heads(pub(super) Vec<[Head; 2]>);

/// How a range relates to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// No key is in both.
    Apart,
    /// All of its keys are in another range.
    Within,
    /// Some keys may be in both, and others in only one of them.
    Across,
}

impl Head {
    pub(super) fn new(text: &str, rest: Option<&TextBounds>) -> Self {
        let rest = match rest {
            None => Rest::Nothing,
            Some(bounds) if *bounds == TextBounds::default() => Rest::Anything,
            Some(_) => Rest::Bounded,
        };
        Self {
            text: text.to_owned(),
            rest,
        }
    }

    fn contains(&self, other: &Self) -> bool {
        self == other || (self.rest == Rest::Anything && other.text.starts_with(self.text.as_str()))
    }

    fn meets(&self, other: &Self) -> bool {
        self == other
            || (self.rest != Rest::Nothing
                && (other.text.starts_with(&self.text) || self.text.starts_with(&other.text)))
    }
}

impl Heads {
    /// Compares a range with the first ones. Their keys end alike, since the same templates made
    /// them.
    pub(super) fn beside(&self, range: &[Head; 2], first: usize) -> Beside {
        let [partition, row] = range;
        let mut beside = Beside::Apart;
        for [other_partition, other_row] in &self.0[..first] {
            if other_partition.contains(partition) && other_row.contains(row) {
                return Beside::Within;
            }
            if other_partition.meets(partition) && other_row.meets(row) {
                beside = Beside::Across;
            }
        }
        beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(partition: &str, row: &str, rest: &TextBounds) -> [Head; 2] {
        [Head::new(partition, None), Head::new(row, Some(rest))]
    }

    #[test]
    fn what_is_in_another_range_is_told_from_what_may_be() {
        let (open, bounded) = (
            TextBounds::default(),
            TextBounds {
                from: Some("a".to_owned()),
                ..TextBounds::default()
            },
        );
        for (rest, partition, row, expected) in [
            (&open, "p", "50", Beside::Within),
            (&open, "p", "5", Beside::Within),
            (&open, "q", "5", Beside::Apart),
            (&open, "p", "6", Beside::Apart),
            // The shorter one comes later.
            (&open, "p", "", Beside::Across),
            (&bounded, "p", "50", Beside::Across),
            (&bounded, "p", "5", Beside::Within),
            (&bounded, "p", "6", Beside::Apart),
        ] {
            let heads = Heads(vec![range("p", "5", rest)]);
            assert_eq!(
                heads.beside(&range(partition, row, rest), 1),
                expected,
                "{partition} {row}"
            );
        }
    }
}
