//! EDM values: the types and values of an entity's properties.

use jiff::Timestamp;
use uuid::Uuid;

use super::EdmDateTime;

/// The value of a property, with its type on the service.
///
/// There is no null, because Azure never stores null and an absent property means the same.
#[derive(Debug, Clone)]
pub enum EdmValue {
    /// `Edm.String`, at most 32,768 UTF-16 units.
    String(String),
    /// `Edm.Boolean`.
    Bool(bool),
    /// `Edm.Int32`.
    Int32(i32),
    /// `Edm.Int64`.
    Int64(i64),
    /// `Edm.Double`, NaN and the infinities included.
    Double(f64),
    /// `Edm.DateTime`.
    DateTime(EdmDateTime),
    /// `Edm.Guid`.
    Guid(Uuid),
    /// `Edm.Binary`, at most 65,536 bytes.
    Binary(Vec<u8>),
}

impl EdmValue {
    /// Converts a time from a clock. A time outside 1601 to 9999 becomes a text, so that a wrong clock shows in the row instead of failing
    /// the write.
    pub fn moment(at: Timestamp) -> Self {
        EdmDateTime::from_timestamp(at)
            .map_or_else(|_| Self::String(at.to_string()), Self::DateTime)
    }

    /// The name of the type in OData.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) => "Edm.String",
            Self::Bool(_) => "Edm.Boolean",
            Self::Int32(_) => "Edm.Int32",
            Self::Int64(_) => "Edm.Int64",
            Self::Double(_) => "Edm.Double",
            Self::DateTime(_) => "Edm.DateTime",
            Self::Guid(_) => "Edm.Guid",
            Self::Binary(_) => "Edm.Binary",
        }
    }

    /// The text of a string value.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }
}

/// Values are equal if their type and bits are equal. A NaN equals itself, and 0.0 differs from -0.0, so a value counts as unchanged
/// exactly if a reader of the service sees no difference.
impl PartialEq for EdmValue {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int32(a), Self::Int32(b)) => a == b,
            (Self::Int64(a), Self::Int64(b)) => a == b,
            (Self::Double(a), Self::Double(b)) => {
                a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
            }
            (Self::DateTime(a), Self::DateTime(b)) => a == b,
            (Self::Guid(a), Self::Guid(b)) => a == b,
            (Self::Binary(a), Self::Binary(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for EdmValue {}

impl From<&str> for EdmValue {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for EdmValue {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<i32> for EdmValue {
    fn from(number: i32) -> Self {
        Self::Int32(number)
    }
}

impl From<i64> for EdmValue {
    fn from(number: i64) -> Self {
        Self::Int64(number)
    }
}

impl From<f64> for EdmValue {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

impl From<bool> for EdmValue {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<EdmDateTime> for EdmValue {
    fn from(moment: EdmDateTime) -> Self {
        Self::DateTime(moment)
    }
}
