//! Terms of a lookup: known values or bounds of a property, as `LastName=Kim`, `Hired>=2026-01-01T00:00:00Z`,
//! `Email^=a`.

use std::fmt;
use std::str::FromStr;

use crate::model::entity::valid_property_name;

/// How a property is restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TermOp {
    /// `=`
    Equal,
    /// `>=`
    AtLeast,
    /// `<`
    Less,
    /// `^=`, begins with
    Prefix,
}

impl TermOp {
    /// The operator as it is written.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::AtLeast => ">=",
            Self::Less => "<",
            Self::Prefix => "^=",
        }
    }
}

/// A restriction of one property of the primary; `PartitionKey` and `RowKey` are properties too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The property's name.
    pub property: String,
    /// How it is restricted.
    pub op: TermOp,
    /// The value, as text: a number in decimal, a moment in RFC 3339. Never empty.
    pub value: String,
}

/// Why a text is not a term.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a term: {problem}; expected Property=value, Property>=value, Property<value or Property^=prefix")]
pub struct TermError {
    /// The text.
    pub text: String,
    /// The problem.
    pub problem: &'static str,
}

impl FromStr for Term {
    type Err = TermError;

    fn from_str(text: &str) -> Result<Self, TermError> {
        let error = |problem| Err(TermError { text: text.to_owned(), problem });
        let Some(at) = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_') else { return error("there is no operator") };
        let (property, rest) = text.split_at(at);
        if !matches!(property, "PartitionKey" | "RowKey") && !valid_property_name(property) {
            return error("it does not begin with the name of a property");
        }
        // "<=" and ">" are written by mistake, not as a value that begins with a sign.
        if rest.starts_with("<=") || (rest.starts_with('>') && !rest.starts_with(">=")) {
            return error("ranges are half open");
        }
        let operators = [TermOp::AtLeast, TermOp::Prefix, TermOp::Less, TermOp::Equal];
        let Some((op, value)) = operators.into_iter().find_map(|op| Some((op, rest.strip_prefix(op.text())?))) else {
            return error("the operator is unknown");
        };
        if value.is_empty() {
            return error("there is no value, and rows without one are in no view");
        }
        Ok(Self { property: property.to_owned(), op, value: value.to_owned() })
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.property, self.op.text(), self.value)
    }
}
