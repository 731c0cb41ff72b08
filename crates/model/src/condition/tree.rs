//! The parsed condition.

use std::collections::BTreeSet;
use std::fmt;

use crate::{Comparison, EdmValue};

/// A parsed condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub(super) text: String,
    pub(super) root: Expr,
}

/// A part of a condition. `and` and `or` are flat lists, so only parentheses and `not` add depth.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Not(Box<Expr>),
    Compare {
        property: String,
        op: Comparison,
        value: EdmValue,
    },
    In {
        property: String,
        values: Vec<EdmValue>,
    },
    Exists {
        property: String,
    },
    StartsWith {
        property: String,
        prefix: String,
    },
}

impl Condition {
    /// The names of the properties used, including `PartitionKey` and `RowKey`.
    pub fn properties(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.root.collect(|_| true, &mut names);
        names
    }

    /// Returns a prefix that the text of a property must have to satisfy the condition. Each test is considered by itself, and the longest
    /// prefix that one of them requires is returned.
    pub fn beginning(&self, property: &str) -> Option<&str> {
        let tests = match &self.root {
            Expr::All(nodes) => nodes.as_slice(),
            one => std::slice::from_ref(one),
        };
        let beginnings = tests
            .iter()
            .filter(|test| test.property() == Some(property))
            .filter_map(|test| match test {
                Expr::StartsWith { prefix, .. } => Some(prefix.as_str()),
                Expr::Compare {
                    op: Comparison::Equal,
                    value,
                    ..
                } => value.as_str(),
                _ => None,
            });
        beginnings.max_by_key(|beginning| beginning.len())
    }

    /// Returns each compared property with each value that the property is compared with.
    pub fn operands(&self) -> Vec<(&str, EdmValue)> {
        let mut operands = Vec::new();
        self.root.operands(&mut operands);
        operands
    }

    /// The names of the properties whose texts are compared. Other tests (existence, emptiness, numbers) give the same result for every
    /// long text.
    pub fn compared(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.root.collect(Expr::compares_text, &mut names);
        names
    }
}

impl Expr {
    /// Whether the test may give different results for two non-empty texts.
    pub(super) fn compares_text(&self) -> bool {
        let may_differ = |value: &EdmValue| match value {
            EdmValue::String(text) => !text.is_empty(),
            EdmValue::Binary(_) => true,
            _ => false,
        };
        match self {
            Self::Compare { value, .. } => may_differ(value),
            Self::In { values, .. } => values.iter().any(may_differ),
            Self::StartsWith { prefix, .. } => !prefix.is_empty(),
            Self::All(_) | Self::Any(_) | Self::Not(_) | Self::Exists { .. } => false,
        }
    }

    /// The property of a single test; `None` for a combination of tests.
    pub(super) fn property(&self) -> Option<&str> {
        match self {
            Self::All(_) | Self::Any(_) | Self::Not(_) => None,
            Self::Compare { property, .. }
            | Self::In { property, .. }
            | Self::Exists { property }
            | Self::StartsWith { property, .. } => Some(property),
        }
    }

    fn operands<'a>(&'a self, operands: &mut Vec<(&'a str, EdmValue)>) {
        match self {
            Self::All(nodes) | Self::Any(nodes) => {
                for node in nodes {
                    node.operands(operands);
                }
            }
            Self::Not(node) => node.operands(operands),
            Self::Compare {
                property, value, ..
            } => operands.push((property, value.clone())),
            Self::In { property, values } => operands.extend(
                values
                    .iter()
                    .map(|value| (property.as_str(), value.clone())),
            ),
            Self::StartsWith { property, prefix } => {
                operands.push((property, prefix.as_str().into()));
            }
            Self::Exists { .. } => {}
        }
    }

    fn collect<'a>(&'a self, wanted: fn(&Self) -> bool, names: &mut BTreeSet<&'a str>) {
        match self {
            Self::All(nodes) | Self::Any(nodes) => {
                for node in nodes {
                    node.collect(wanted, names);
                }
            }
            Self::Not(node) => node.collect(wanted, names),
            Self::Compare { .. }
            | Self::In { .. }
            | Self::Exists { .. }
            | Self::StartsWith { .. } => {
                names.extend(self.property().filter(|_| wanted(self)));
            }
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
