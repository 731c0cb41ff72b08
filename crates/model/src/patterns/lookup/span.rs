//! Spans of keys, and the ranges made of them.

use super::moment_bound::MomentBound;
use super::prefix::Prefix;
use crate::key::forbidden_in_key;
use crate::{AccountName, Comparison, EntityKey, Filter, Key};

/// A span of partition keys or of row keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Span {
    /// One key.
    Exactly(Key),
    /// From a key on, and before another; open where there is none.
    Between {
        /// The first key, where there is one.
        from: Option<Key>,
        /// The key behind the last, where there is one.
        before: Option<Key>,
    },
}

impl Span {
    /// Every key.
    pub const ALL: Self = Self::Between {
        from: None,
        before: None,
    };

    /// Whether every key is in it.
    pub const fn is_all(&self) -> bool {
        matches!(
            self,
            Self::Between {
                from: None,
                before: None
            }
        )
    }

    /// Its comparisons, joined with `and`.
    fn filter(&self, property: &str) -> Option<Filter> {
        let compare = |op, key: &Key| Filter::compare(property, op, key.as_str());
        match self {
            Self::Exactly(key) => Some(compare(Comparison::Equal, key)),
            Self::Between { from, before } => {
                let from = from
                    .as_ref()
                    .map(|key| compare(Comparison::GreaterOrEqual, key));
                let before = before.as_ref().map(|key| compare(Comparison::Less, key));
                both(from, before)
            }
        }
    }
}

fn both(a: Option<Filter>, b: Option<Filter>) -> Option<Filter> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.and(b)),
        (a, b) => a.or(b),
    }
}

/// One request of a lookup: a point, rows of one partition, or a range of partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The account to ask.
    pub account: AccountName,
    /// Which partitions.
    pub partitions: Span,
    /// Which of their rows.
    pub rows: Span,
    pub(super) partition_check: KeyCheck,
    pub(super) row_check: KeyCheck,
    /// It is one of several that differ in a bucket.
    pub(super) is_bucket: bool,
}

/// What every key of a range has to satisfy beside the bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyCheck {
    /// The prefix of each.
    pub(super) prefix: Prefix,
    /// Where the text begins that moments bound.
    pub(super) at: usize,
    /// These bounds.
    pub(super) moments: Vec<MomentBound>,
    /// The text before that, without its buckets.
    pub(super) bare: String,
}

impl KeyCheck {
    fn holds(&self, key: &str) -> bool {
        self.prefix.begins(key)
            && self
                .moments
                .iter()
                .all(|bound| key.get(self.at..).is_some_and(|text| bound.holds(text)))
    }

    fn without_buckets(&self, key: &str) -> Option<String> {
        Some(format!("{}{}", self.bare, key.get(self.at..)?))
    }
}

impl KeyRange {
    /// The one key, where the range is a point: to be read with Get Entity and not with a query.
    pub fn point(&self) -> Option<EntityKey> {
        match (&self.partitions, &self.rows) {
            (Span::Exactly(pk), Span::Exactly(rk)) => Some(EntityKey {
                pk: pk.clone(),
                rk: rk.clone(),
            }),
            (Span::Exactly(_) | Span::Between { .. }, _) => None,
        }
    }

    /// The query's filter: comparisons of PartitionKey and RowKey joined with `and`. `None` where it is the whole table.
    pub fn filter(&self) -> Option<Filter> {
        both(
            self.partitions.filter("PartitionKey"),
            self.rows.filter("RowKey"),
        )
    }

    /// Whether a key that the [filter](Self::filter) let through belongs to the lookup. It does not where the end of a prefix could
    /// only be described roughly, where others lie between its spellings, and where a bound is another one for moments than for texts. All
    /// other bounds are the store's to judge, which has an order of its own.
    pub fn accepts(&self, key: &EntityKey) -> bool {
        self.partition_check.holds(key.pk.as_str()) && self.row_check.holds(key.rk.as_str())
    }

    /// A key of the range without its buckets: the same for all that differ in a bucket only. `None` for a range of no unknown bucket.
    pub fn without_buckets(&self, key: &EntityKey) -> Option<EntityKey> {
        let [pk, rk] = [(&self.partition_check, &key.pk), (&self.row_check, &key.rk)]
            .map(|(check, key)| check.without_buckets(key.as_str()));
        if self.is_bucket {
            EntityKey::new(pk?, rk?).ok()
        } else {
            None
        }
    }

    /// Whether it is one of several that differ in a bucket.
    pub const fn is_bucket(&self) -> bool {
        self.is_bucket
    }

    /// The key by which the rows of several ranges are merged: the part in which the ranges do not differ, so that
    /// buckets leave no trace in the order. Rows of one range come in this order already.
    pub fn merge_key<'a>(&self, key: &'a EntityKey) -> (&'a str, &'a str) {
        let (pk, rk) = (key.pk.as_str(), key.rk.as_str());
        let pk = pk
            .strip_prefix(self.partition_check.prefix.stem())
            .unwrap_or(pk);
        let rk = rk.strip_prefix(self.row_check.prefix.stem()).unwrap_or(rk);
        match self.partitions {
            Span::Exactly(_) => ("", rk),
            Span::Between { .. } => (pk, rk),
        }
    }
}

/// A key behind every key that begins with a prefix, as near as there is one; `None` where there is none.
///
/// The last character is raised to the next that is legal in keys. Where the service's order (UTF-16) and ours
/// (UTF-8) differ, from U+D800 on, an earlier character is raised instead, which lets in keys without the prefix.
pub(in crate::patterns) fn behind(prefix: &str) -> Option<String> {
    const LAST_COMMON: char = '\u{d7fe}';
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        if last > LAST_COMMON {
            continue;
        }
        if let Some(next) = (u32::from(last) + 1..=u32::from(LAST_COMMON) + 1)
            .filter_map(char::from_u32)
            .find(|c| !forbidden_in_key(*c))
        {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}
