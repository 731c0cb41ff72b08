//! Conditions: which primaries a view applies to (`when = "IsManager == true"`).

use std::fmt;

use super::Entity;

/// A parsed condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    text: String,
}

/// Why a text is not a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConditionError {
    /// What is wrong.
    pub message: String,
}

impl Condition {
    /// Parses a condition.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        Err(ConditionError { message: format!("conditions cannot be parsed yet: {text:?}") })
    }

    /// Whether an entity satisfies it. A comparison with a missing property is false.
    pub fn holds(&self, _entity: &Entity) -> bool {
        false
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
