//! Column types of database tables, and the values that fit them.

use std::fmt;

use serde_json::Value;

use super::sink::FieldError;
use super::{EdmDateTime, EdmValue};

/// Maximum length of a text column, in characters.
const TEXT_CHARS: u32 = 10_485_760;
/// Ticks of 100 ns per microsecond, the resolution of timestamps in databases.
const TICKS_PER_US: i64 = 10;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// `text`, or `text(80)` for at most 80 characters.
    Text(Option<u32>),
    /// `integer`: 64 bits.
    Integer,
    /// `double`
    Double,
    /// `boolean`
    Boolean,
    /// `timestamp`: UTC with microseconds, written as a text that sorts by time.
    Timestamp,
    /// `uuid`
    Uuid,
}

impl ColumnType {
    /// Parses the name of a type.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "text" => Self::Text(None),
            "integer" => Self::Integer,
            "double" => Self::Double,
            "boolean" => Self::Boolean,
            "timestamp" => Self::Timestamp,
            "uuid" => Self::Uuid,
            other => {
                let chars = other
                    .strip_prefix("text(")
                    .and_then(|rest| rest.strip_suffix(')'))
                    .and_then(|chars| chars.parse().ok());
                let Some(chars) = chars.filter(|chars| (1..=TEXT_CHARS).contains(chars)) else {
                    return Err(format!(
                        "unknown column type {other:?}; expected text, text(80), integer, double, boolean, timestamp or uuid"
                    ));
                };
                Self::Text(Some(chars))
            }
        })
    }

    /// Converts a property's value to this type. Fails if the value does not fit. Only timestamps are truncated, to microseconds.
    pub fn value(self, value: &EdmValue) -> Result<Value, FieldError> {
        Ok(match (self, value) {
            (Self::Text(limit), EdmValue::String(text)) => {
                let chars = text.chars().count();
                if let Some(limit) = limit.filter(|limit| chars > *limit as usize) {
                    return Err(FieldError::TooLong { chars, limit });
                }
                Value::from(text.as_str())
            }
            (Self::Integer, EdmValue::Int32(number)) => Value::from(*number),
            (Self::Integer, EdmValue::Int64(number)) => Value::from(*number),
            (Self::Double, EdmValue::Int32(number)) => Value::from(f64::from(*number)),
            (Self::Double, EdmValue::Double(number)) if number.is_finite() => Value::from(*number),
            (Self::Double, EdmValue::Double(number)) => {
                return Err(FieldError::Double(number.to_string()));
            }
            (Self::Boolean, EdmValue::Bool(truth)) => Value::from(*truth),
            (Self::Timestamp, EdmValue::DateTime(moment)) => {
                let ticks = moment.ticks();
                // The result is in the range of `EdmDateTime`: the earliest moment is a whole microsecond, so truncation never goes below
                // it.
                let cut = EdmDateTime::from_ticks(ticks - ticks.rem_euclid(TICKS_PER_US))
                    .unwrap_or(*moment);
                Value::from(cut.sorting_text())
            }
            (Self::Uuid, EdmValue::Guid(guid)) => Value::from(guid.to_string()),
            (wanted, found) => {
                return Err(FieldError::Type {
                    found: found.type_name(),
                    wanted,
                });
            }
        })
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(Some(chars)) => return write!(f, "text({chars})"),
            Self::Text(None) => "text",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Boolean => "boolean",
            Self::Timestamp => "timestamp",
            Self::Uuid => "uuid",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_are_read_as_they_are_shown() {
        for name in [
            "text",
            "text(80)",
            "integer",
            "double",
            "boolean",
            "timestamp",
            "uuid",
        ] {
            assert_eq!(ColumnType::parse(name).unwrap().to_string(), name);
        }
        for bad in [
            "",
            "Text",
            "varchar(80)",
            "text(0)",
            "text(-1)",
            "text(80",
            "text(10485761)",
            "money",
        ] {
            assert!(
                ColumnType::parse(bad)
                    .unwrap_err()
                    .contains("expected text"),
                "{bad}"
            );
        }
    }

    #[test]
    fn values_fit_their_column_or_are_refused_whole() {
        let moment = |text: &str| EdmValue::from(EdmDateTime::parse(text).unwrap());
        let column = |text: &str| ColumnType::parse(text).unwrap();
        for (name, value, expected) in [
            ("text(3)", EdmValue::from("한글x"), json!("한글x")),
            ("integer", EdmValue::Int64(i64::MIN), json!(i64::MIN)),
            ("integer", EdmValue::Int32(-1), json!(-1)),
            ("double", EdmValue::Int32(2), json!(2.0)),
            (
                "timestamp",
                moment("2026-11-20T15:00:00.1234567Z"),
                json!("2026-11-20T15:00:00.1234560Z"),
            ),
            (
                "timestamp",
                moment("1601-01-01T00:00:00Z"),
                json!("1601-01-01T00:00:00.0000000Z"),
            ),
        ] {
            assert_eq!(column(name).value(&value), Ok(expected), "{name}");
        }
        assert_eq!(
            column("text(3)").value(&"abcd".into()),
            Err(FieldError::TooLong { chars: 4, limit: 3 })
        );
        assert_eq!(
            column("double").value(&EdmValue::Double(f64::INFINITY)),
            Err(FieldError::Double("inf".to_owned()))
        );
        for (name, value) in [
            ("integer", EdmValue::from("7")),
            ("text", EdmValue::Int32(7)),
            ("double", EdmValue::Int64(7)),
        ] {
            let error = column(name).value(&value).unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains(value.type_name()),
                "{error}"
            );
        }
    }
}
