//! Terms of a lookup: values, bounds or prefixes of properties, such as `LastName=Kim`,
//! `Hired>=2026-01-01T00:00:00Z`, `Email^=a`, `Zip="07000"`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::spelling;
use crate::EdmValue;
use crate::condition::quoted_text;
use crate::entity::{in_property_name, valid_property_name};

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
    /// The text of the operator in a term.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::AtLeast => ">=",
            Self::Less => "<",
            Self::Prefix => "^=",
        }
    }
}

/// A restriction of one property of the primary. `PartitionKey` and `RowKey` count as properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The name of the property.
    pub property: String,
    /// How the property is restricted.
    pub op: TermOp,
    /// The value as text, without quotes. It may be empty only if the property is `PartitionKey` or
    /// `RowKey`.
    pub value: String,
    /// What the text stands for.
    pub meaning: Meaning,
}

/// What the text of a term stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// The text, and each value of another type that the text spells: a number, a moment, a GUID or
    /// a Boolean.
    Spelled,
    /// Only the text, because the value was in quotes.
    Text,
    /// One of these texts. The term's `value` is the first of these texts.
    OneOf(Vec<String>),
}

pub(super) type Values<'a> = BTreeMap<&'a str, EdmValue>;

/// All combinations of these choices with the values of another property.
pub(super) fn with_each<'a>(
    choices: &[Values<'a>],
    property: &'a str,
    values: &[EdmValue],
) -> Vec<Values<'a>> {
    let mut all = Vec::with_capacity(choices.len() * values.len());
    for choice in choices {
        all.extend(values.iter().map(|value| {
            let mut choice = choice.clone();
            choice.insert(property, value.clone());
            choice
        }));
    }
    all
}

/// The error for a text that is not a term.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a term: {problem}; expected Property=value, Property>=value, Property<value or Property^=prefix"
)]
pub struct TermError {
    /// The text.
    pub text: String,
    /// The problem.
    pub problem: String,
}

impl Term {
    /// The values for which the term stands; the text comes first. Keys contain no types, so an
    /// unquoted text stands for every value that it spells.
    pub fn values(&self) -> Vec<EdmValue> {
        match &self.meaning {
            Meaning::OneOf(texts) => texts
                .iter()
                .map(|text| EdmValue::from(text.as_str()))
                .collect(),
            Meaning::Spelled if !self.is_text() => spelling::values(&self.value),
            Meaning::Spelled | Meaning::Text => vec![EdmValue::from(self.value.as_str())],
        }
    }

    /// Whether the value can only be a text, because it was quoted or the property is
    /// `PartitionKey` or `RowKey`.
    pub(super) fn is_text(&self) -> bool {
        self.meaning != Meaning::Spelled
            || matches!(self.property.as_str(), "PartitionKey" | "RowKey")
    }
}

impl FromStr for Term {
    type Err = TermError;

    fn from_str(text: &str) -> Result<Self, TermError> {
        let error = |problem: &str| {
            Err(TermError {
                text: text.to_owned(),
                problem: problem.to_owned(),
            })
        };
        let Some(at) = text.find(|c: char| !in_property_name(c)) else {
            return error("there is no operator");
        };
        let (property, rest) = text.split_at(at);
        if !is_key(property) && !valid_property_name(property) {
            return error("it does not begin with a property name");
        }
        // `<=` and `>` are mistakes. Without this check, `N<=5` would be read as `N<` with the
        // value `=5`.
        if rest.starts_with("<=") || (rest.starts_with('>') && !rest.starts_with(">=")) {
            return error("ranges are half-open");
        }
        let operators = [TermOp::AtLeast, TermOp::Prefix, TermOp::Less, TermOp::Equal];
        let Some((op, value)) = operators
            .into_iter()
            .find_map(|op| Some((op, rest.strip_prefix(op.text())?)))
        else {
            return error("the operator is unknown");
        };
        let (value, meaning) = if value.starts_with('"') {
            match quoted_text(value) {
                Ok(value) => (value, Meaning::Text),
                Err(problem) => return error(&problem),
            }
        } else {
            (value.to_owned(), Meaning::Spelled)
        };
        if value.is_empty() && !is_key(property) {
            return error("the value is empty, and a view has no rows without a value");
        }
        Ok(Self {
            property: property.to_owned(),
            op,
            value,
            meaning,
        })
    }
}

/// Whether the property is `PartitionKey` or `RowKey`, whose value may be empty.
fn is_key(property: &str) -> bool {
    matches!(property, "PartitionKey" | "RowKey")
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            property,
            op,
            value,
            meaning,
        } = self;
        match meaning {
            Meaning::Spelled | Meaning::OneOf(_) => write!(f, "{property}{}{value}", op.text()),
            Meaning::Text => write!(f, "{property}{}{value:?}", op.text()),
        }
    }
}
