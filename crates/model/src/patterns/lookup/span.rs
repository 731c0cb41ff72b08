//! Spans of keys, and key ranges, which consist of a span of partition keys and a span of row keys.

use super::moment_bound::MomentBound;
use super::prefix::Prefix;
use crate::key::forbidden_in_key;
use crate::{AccountName, Comparison, EntityKey, Filter, Key};

/// A span of partition keys or of row keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Span {
    /// One key.
    Exactly(Key),
    /// The keys from `from` to `before`, excluding `before`. An absent end is open.
    Between {
        /// The first key.
        from: Option<Key>,
        /// The key after the last one.
        before: Option<Key>,
    },
}

impl Span {
    /// The span of all keys.
    pub const ALL: Self = Self::Between {
        from: None,
        before: None,
    };

    /// Whether the span contains every key.
    pub const fn is_all(&self) -> bool {
        matches!(
            self,
            Self::Between {
                from: None,
                before: None
            }
        )
    }

    /// The comparisons of the span, joined with `and`; `None` for all keys.
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

/// One range of a lookup: a single row, rows of one partition, or rows of a range of partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The account to query.
    pub account: AccountName,
    /// The partitions.
    pub partitions: Span,
    /// The rows in each partition.
    pub rows: Span,
    pub(super) partition_check: KeyCheck,
    pub(super) row_check: KeyCheck,
    /// Whether the range is one of several ranges that differ only in a bucket.
    pub(super) is_bucket: bool,
}

/// Checks that every key of a range must pass, in addition to the bounds of the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyCheck {
    /// The prefix of the key.
    pub(super) prefix: Prefix,
    /// The byte position in the key at which the text for the comparison with `moments` begins.
    pub(super) at: usize,
    pub(super) moments: Vec<MomentBound>,
    /// The text of the key before the position `at`, without the buckets in that text.
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
    /// The key, if the range is a single row. Such a range is read with Get Entity instead of a
    /// query.
    pub fn point(&self) -> Option<EntityKey> {
        match (&self.partitions, &self.rows) {
            (Span::Exactly(pk), Span::Exactly(rk)) => Some(EntityKey {
                pk: pk.clone(),
                rk: rk.clone(),
            }),
            (Span::Exactly(_) | Span::Between { .. }, _) => None,
        }
    }

    /// The filter of the query: comparisons of PartitionKey and RowKey, joined with `and`. `None`
    /// for the whole table.
    pub fn filter(&self) -> Option<Filter> {
        both(
            self.partitions.filter("PartitionKey"),
            self.rows.filter("RowKey"),
        )
    }

    /// Whether a key that passed the [filter](Self::filter) belongs to the lookup. The filter may
    /// pass other keys for three reasons: the end of a prefix is approximate, other texts sort
    /// between the spellings of a prefix, or a bound differs between moments and texts. All other
    /// bounds are checked only by the store, because stores differ in their order of keys.
    pub fn accepts(&self, key: &EntityKey) -> bool {
        self.partition_check.holds(key.pk.as_str()) && self.row_check.holds(key.rk.as_str())
    }

    /// A key of the range with its buckets removed, so that keys that differ only in a bucket
    /// become equal. `None` if every bucket is known.
    pub fn without_buckets(&self, key: &EntityKey) -> Option<EntityKey> {
        let [pk, rk] = [(&self.partition_check, &key.pk), (&self.row_check, &key.rk)]
            .map(|(check, key)| check.without_buckets(key.as_str()));
        if self.is_bucket {
            EntityKey::new(pk?, rk?).ok()
        } else {
            None
        }
    }

    /// Whether the range is one of several ranges that differ only in a bucket.
    pub const fn is_bucket(&self) -> bool {
        self.is_bucket
    }

    /// The sort key by which the rows of several ranges are merged. The sort key lacks the part in
    /// which the ranges differ, so that buckets do not affect the order. The rows of one range are
    /// already in this order.
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

/// The nearest possible key that sorts after every key with this prefix. `None` if there is none.
///
/// The last character is replaced by the next character that is legal in keys. From U+D800 on, the
/// orders of the service (UTF-16) and the embedded store (UTF-8) differ, so the new character is
/// below U+D800. If there is no such character, an earlier character is replaced instead, and the
/// range then includes some keys without the prefix.
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
