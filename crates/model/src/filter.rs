//! Query filters: a tree of typed comparisons, written as OData text or evaluated in memory.
//!
//! As on the service, a missing property matches nothing, not even `ne`, and values of different types never match. No query of evenkeel
//! has an `or` over keys, because the service answers it by a partition scan.

use std::cmp::Ordering;
use std::fmt;

use super::{EdmValue, EntityKey, Row};

/// An operator of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `eq`
    Equal,
    /// `ne`
    NotEqual,
    /// `lt`
    Less,
    /// `le`
    LessOrEqual,
    /// `gt`
    Greater,
    /// `ge`
    GreaterOrEqual,
}

impl Comparison {
    /// The operator in OData.
    pub const fn odata(self) -> &'static str {
        match self {
            Self::Equal => "eq",
            Self::NotEqual => "ne",
            Self::Less => "lt",
            Self::LessOrEqual => "le",
            Self::Greater => "gt",
            Self::GreaterOrEqual => "ge",
        }
    }

    /// Whether an ordering satisfies the operator.
    pub const fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// A condition on the rows of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// `property op value`. `PartitionKey` and `RowKey` are string properties here.
    Compare {
        /// The property's name.
        property: String,
        /// The operator.
        op: Comparison,
        /// The value, with its type.
        value: EdmValue,
    },
    /// Both conditions hold.
    And(Box<Filter>, Box<Filter>),
    /// At least one condition holds.
    Or(Box<Filter>, Box<Filter>),
    /// The condition does not hold.
    Not(Box<Filter>),
}

impl Filter {
    /// Compares a property with a value.
    pub fn compare(
        property: impl Into<String>,
        op: Comparison,
        value: impl Into<EdmValue>,
    ) -> Self {
        Self::Compare {
            property: property.into(),
            op,
            value: value.into(),
        }
    }

    /// Matches the rows of one partition.
    pub fn partition(pk: &super::Key) -> Self {
        Self::compare("PartitionKey", Comparison::Equal, pk.as_str())
    }

    /// Matches one row.
    pub fn point(key: &EntityKey) -> Self {
        Self::partition(&key.pk).and(Self::compare("RowKey", Comparison::Equal, key.rk.as_str()))
    }

    /// Requires both conditions.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::And(Box::new(self), Box::new(other))
    }

    /// Requires at least one of the conditions.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::Or(Box::new(self), Box::new(other))
    }

    /// Negates the condition. As on the service, the negation of a comparison with a missing property is true.
    #[must_use]
    pub fn negated(self) -> Self {
        Self::Not(Box::new(self))
    }

    /// Returns the partition of all rows that can match, if the filter requires a certain PartitionKey.
    pub fn one_partition(&self) -> Option<super::Key> {
        match self {
            Self::Compare {
                property,
                op: Comparison::Equal,
                value: EdmValue::String(pk),
            } if property == "PartitionKey" => super::Key::new(pk.as_str()).ok(),
            Self::And(left, right) => left.one_partition().or_else(|| right.one_partition()),
            Self::Compare { .. } | Self::Or(..) | Self::Not(_) => None,
        }
    }

    /// Whether a row satisfies the condition.
    pub fn matches(&self, row: &Row) -> bool {
        match self {
            Self::And(a, b) => a.matches(row) && b.matches(row),
            Self::Or(a, b) => a.matches(row) || b.matches(row),
            Self::Not(a) => !a.matches(row),
            Self::Compare {
                property,
                op,
                value,
            } => match property.as_str() {
                "PartitionKey" => {
                    compare_text(row.entity.key.pk.as_str(), value).is_some_and(|o| op.holds(o))
                }
                "RowKey" => {
                    compare_text(row.entity.key.rk.as_str(), value).is_some_and(|o| op.holds(o))
                }
                "Timestamp" => match (row.timestamp, value) {
                    (Some(found), EdmValue::DateTime(wanted)) => op.holds(found.cmp(wanted)),
                    _ => false,
                },
                name => row
                    .entity
                    .get(name)
                    .and_then(|found| compare_values(found, value))
                    .is_some_and(|o| op.holds(o)),
            },
        }
    }
}

fn compare_text(found: &str, wanted: &EdmValue) -> Option<Ordering> {
    wanted.as_str().map(|wanted| found.cmp(wanted))
}

/// Compares two values of one type. Returns `None` for different types and for NaN.
pub fn compare_values(found: &EdmValue, wanted: &EdmValue) -> Option<Ordering> {
    match (found, wanted) {
        (EdmValue::String(a), EdmValue::String(b)) => Some(a.cmp(b)),
        (EdmValue::Bool(a), EdmValue::Bool(b)) => Some(a.cmp(b)),
        (EdmValue::Int32(a), EdmValue::Int32(b)) => Some(a.cmp(b)),
        (EdmValue::Int64(a), EdmValue::Int64(b)) => Some(a.cmp(b)),
        (EdmValue::Double(a), EdmValue::Double(b)) => a.partial_cmp(b),
        (EdmValue::DateTime(a), EdmValue::DateTime(b)) => Some(a.cmp(b)),
        (EdmValue::Guid(a), EdmValue::Guid(b)) => Some(a.cmp(b)),
        (EdmValue::Binary(a), EdmValue::Binary(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// Writes the OData text of `$filter`.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::And(a, b) => write!(f, "({a} and {b})"),
            Self::Or(a, b) => write!(f, "({a} or {b})"),
            Self::Not(a) => write!(f, "not ({a})"),
            Self::Compare {
                property,
                op,
                value,
            } => {
                write!(f, "{property} {} ", op.odata())?;
                match value {
                    EdmValue::String(text) => write!(f, "'{}'", text.replace('\'', "''")),
                    EdmValue::Bool(truth) => write!(f, "{truth}"),
                    EdmValue::Int32(number) => write!(f, "{number}"),
                    EdmValue::Int64(number) => write!(f, "{number}L"),
                    EdmValue::Double(number) => write!(f, "{number:?}"),
                    EdmValue::DateTime(moment) => write!(f, "datetime'{moment}'"),
                    EdmValue::Guid(guid) => write!(f, "guid'{guid}'"),
                    EdmValue::Binary(bytes) => write!(f, "X'{}'", hex::encode(bytes)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ETag, Entity};

    fn row() -> Row {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap())
            .with("N", 5)
            .with("S", "O'Brien");
        Row {
            entity,
            etag: ETag::new("1").unwrap(),
            timestamp: None,
        }
    }

    #[test]
    fn quotes_are_doubled_and_types_written() {
        let filter = Filter::compare("S", Comparison::Equal, "O'Brien")
            .and(Filter::compare("N", Comparison::Less, 5_i64).negated());
        assert_eq!(filter.to_string(), "(S eq 'O''Brien' and not (N lt 5L))");
    }

    #[test]
    fn a_missing_property_matches_nothing() {
        assert!(!Filter::compare("X", Comparison::NotEqual, 5).matches(&row()));
        assert!(
            Filter::compare("X", Comparison::NotEqual, 5)
                .negated()
                .matches(&row())
        );
        assert!(Filter::compare("N", Comparison::GreaterOrEqual, 5).matches(&row()));
        assert!(!Filter::compare("N", Comparison::Equal, 5_i64).matches(&row()));
        assert!(Filter::point(&row().entity.key).matches(&row()));
    }
}
