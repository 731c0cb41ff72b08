//! Plans the scan of a table: derives ranges of keys from a filter.
//!
//! Only the conjuncts at the top of the filter bound the scan. A conjunct that a range does not express exactly is evaluated for each row.

use std::ops::Bound;

use evenkeel_model::{Comparison, Filter};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBounds {
    pub lower: Bound<String>,
    pub upper: Bound<String>,
}

/// The part of a table to scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanRange {
    /// No row can satisfy the filter.
    Nothing,
    /// Rows of one partition.
    Partition(String, KeyBounds),
    /// All rows of some partitions.
    Partitions(KeyBounds),
}

impl KeyBounds {
    const ALL: Self = Self {
        lower: Bound::Unbounded,
        upper: Bound::Unbounded,
    };

    /// Narrows the range to the keys that satisfy a comparison. Returns whether the comparison can be expressed as a range.
    fn narrow(&mut self, op: Comparison, value: &str) -> bool {
        let value = value.to_owned();
        match op {
            Comparison::Equal => {
                self.raise(Bound::Included(value.clone()));
                self.reduce(Bound::Included(value));
            }
            Comparison::Greater => self.raise(Bound::Excluded(value)),
            Comparison::GreaterOrEqual => self.raise(Bound::Included(value)),
            Comparison::Less => self.reduce(Bound::Excluded(value)),
            Comparison::LessOrEqual => self.reduce(Bound::Included(value)),
            Comparison::NotEqual => return false,
        }
        true
    }

    /// Applies the stricter of two lower bounds.
    pub fn raise(&mut self, lower: Bound<String>) {
        let stricter = match (&self.lower, &lower) {
            (_, Bound::Unbounded) => false,
            (Bound::Unbounded, _) => true,
            (Bound::Included(old), Bound::Included(new))
            | (Bound::Excluded(old), Bound::Included(new) | Bound::Excluded(new)) => new > old,
            (Bound::Included(old), Bound::Excluded(new)) => new >= old,
        };
        if stricter {
            self.lower = lower;
        }
    }

    /// Applies the stricter of two upper bounds.
    fn reduce(&mut self, upper: Bound<String>) {
        let stricter = match (&self.upper, &upper) {
            (_, Bound::Unbounded) => false,
            (Bound::Unbounded, _) => true,
            (Bound::Included(old), Bound::Included(new))
            | (Bound::Excluded(old), Bound::Included(new) | Bound::Excluded(new)) => new < old,
            (Bound::Included(old), Bound::Excluded(new)) => new <= old,
        };
        if stricter {
            self.upper = upper;
        }
    }

    fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
        }
    }

    /// The key of a range with a single key.
    fn single(&self) -> Option<&str> {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) if lower == upper => Some(lower),
            _ => None,
        }
    }
}

/// Splits a filter into a range of keys and a rest that is evaluated for each row.
pub fn plan(filter: Option<&Filter>) -> (ScanRange, Option<Filter>) {
    let mut conjuncts = Vec::new();
    if let Some(filter) = filter {
        gather(filter, &mut conjuncts);
    }
    let (mut partitions, mut rows) = (KeyBounds::ALL, KeyBounds::ALL);
    let mut of_rows = Vec::new();
    let mut left = Vec::new();
    for conjunct in conjuncts {
        let on = |name: &str| match conjunct {
            Filter::Compare {
                property,
                op,
                value,
            } if property == name => value.as_str().map(|value| (*op, value)),
            _ => None,
        };
        if let Some((op, value)) = on("PartitionKey")
            && partitions.narrow(op, value)
        {
            continue;
        }
        if let Some((op, value)) = on("RowKey")
            && rows.narrow(op, value)
        {
            of_rows.push(conjunct);
            continue;
        }
        left.push(conjunct);
    }
    if partitions.is_empty() || rows.is_empty() {
        return (ScanRange::Nothing, None);
    }
    let range = if let Some(pk) = partitions.single() {
        ScanRange::Partition(pk.to_owned(), rows)
    } else {
        // A range of row keys does not bound a scan over several partitions.
        left.extend(of_rows);
        ScanRange::Partitions(partitions)
    };
    (range, left.into_iter().cloned().reduce(Filter::and))
}

fn gather<'a>(filter: &'a Filter, conjuncts: &mut Vec<&'a Filter>) {
    match filter {
        Filter::And(a, b) => {
            gather(a, conjuncts);
            gather(b, conjuncts);
        }
        Filter::Compare { .. } | Filter::Or(..) | Filter::Not(_) => conjuncts.push(filter),
    }
}

/// The number of comparisons in a filter.
pub fn comparisons(filter: &Filter) -> usize {
    match filter {
        Filter::And(a, b) | Filter::Or(a, b) => comparisons(a) + comparisons(b),
        Filter::Not(a) => comparisons(a),
        Filter::Compare { .. } => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    use evenkeel_model::{ETag, Entity, EntityKey, Row};
    use proptest::prelude::*;

    fn pk(op: Comparison, text: &str) -> Filter {
        Filter::compare("PartitionKey", op, text)
    }

    fn rk(op: Comparison, text: &str) -> Filter {
        Filter::compare("RowKey", op, text)
    }

    fn text(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn a_partition_with_a_range_of_rows_is_scanned_exactly() {
        let filter = pk(Equal, "p")
            .and(rk(Greater, "a").and(rk(LessOrEqual, "c")))
            .and(rk(GreaterOrEqual, "a"));
        let rows = KeyBounds {
            lower: Bound::Excluded(text("a")),
            upper: Bound::Included(text("c")),
        };
        assert_eq!(
            plan(Some(&filter)),
            (ScanRange::Partition(text("p"), rows), None)
        );
    }

    #[test]
    fn conditions_that_are_no_range_are_evaluated_for_each_row() {
        let either = rk(Equal, "a").or(rk(Equal, "b"));
        let filter = pk(Equal, "p").and(either.clone()).and(rk(NotEqual, "c"));
        let (range, left) = plan(Some(&filter));
        assert_eq!(range, ScanRange::Partition(text("p"), KeyBounds::ALL));
        assert_eq!(left, Some(either.and(rk(NotEqual, "c"))));
        assert_eq!(
            plan(Some(&Filter::compare("PartitionKey", Equal, 5))).0,
            ScanRange::Partitions(KeyBounds::ALL)
        );
        assert_eq!(plan(None), (ScanRange::Partitions(KeyBounds::ALL), None));
    }

    #[test]
    fn across_partitions_row_keys_are_evaluated_for_each_row() {
        let (range, left) = plan(Some(
            &pk(GreaterOrEqual, "a")
                .and(pk(Less, "c"))
                .and(rk(Equal, "r")),
        ));
        assert_eq!(
            range,
            ScanRange::Partitions(KeyBounds {
                lower: Bound::Included(text("a")),
                upper: Bound::Excluded(text("c"))
            })
        );
        assert_eq!(left, Some(rk(Equal, "r")));
    }

    #[test]
    fn contradictions_scan_nothing() {
        for filter in [
            pk(Equal, "p").and(pk(Equal, "q")),
            pk(Greater, "p").and(pk(Equal, "p")),
            pk(Equal, "p").and(rk(Greater, "b")).and(rk(Less, "b")),
            pk(Equal, "p")
                .and(rk(GreaterOrEqual, "b"))
                .and(rk(Less, "b")),
        ] {
            assert_eq!(plan(Some(&filter)).0, ScanRange::Nothing, "{filter}");
        }
    }

    fn filters() -> impl Strategy<Value = Filter> {
        let op = prop::sample::select(vec![
            Equal,
            NotEqual,
            Less,
            LessOrEqual,
            Greater,
            GreaterOrEqual,
        ]);
        let leaf = (
            prop::sample::select(vec!["PartitionKey", "RowKey", "P"]),
            op,
            "[ab]{0,2}",
        )
            .prop_map(|(name, op, value)| Filter::compare(name, op, value));
        leaf.prop_recursive(4, 12, 2, |inner| {
            prop_oneof![
                4 => (inner.clone(), inner.clone()).prop_map(|(a, b)| a.and(b)),
                1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| a.or(b)),
                1 => inner.prop_map(Filter::negated),
            ]
        })
    }

    fn contains(range: &ScanRange, row: &Row) -> bool {
        let inside = |bounds: &KeyBounds, key: &str| {
            let range: (Bound<&str>, Bound<&str>) = (
                bounds.lower.as_ref().map(String::as_str),
                bounds.upper.as_ref().map(String::as_str),
            );
            std::ops::RangeBounds::<str>::contains(&range, key)
        };
        let key = &row.entity.key;
        match range {
            ScanRange::Nothing => false,
            ScanRange::Partition(pk, rows) => {
                key.pk.as_str() == pk && inside(rows, key.rk.as_str())
            }
            ScanRange::Partitions(partitions) => inside(partitions, key.pk.as_str()),
        }
    }

    proptest! {
        #[test]
        fn range_and_rest_together_are_equivalent_to_the_filter(filter in filters(), pk in "[ab]{0,2}", rk in "[ab]{0,2}", p in "[ab]{0,2}") {
            let entity = Entity::new(EntityKey::new(pk, rk).unwrap()).with("P", p);
            let row = Row { entity, etag: ETag::new("x").unwrap(), timestamp: None };
            let (range, left) = plan(Some(&filter));
            let planned = contains(&range, &row) && left.is_none_or(|left| left.matches(&row));
            prop_assert_eq!(planned, filter.matches(&row));
        }
    }
}
