//! Stored formats. Each format has a version, and a program reads only one version of a format.
//!
//! In JSON the version is the first field, `v`. On an entity it is the property [`VERSION_PROPERTY`], and in an entity as JSON the field
//! [`FORMAT_PROPERTY`]. Data of another version is refused and left unchanged, because only a newer program knows its meaning.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{EdmValue, Entity};

/// The property with the format version of an entity.
pub const VERSION_PROPERTY: &str = "Version";

/// The field with the format version of an entity as JSON, such as an archived document or a line of a log.
pub const FORMAT_PROPERTY: &str = "ek_format";

/// The format version `NUMBER` of a stored JSON value. A value with any other number is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FormatVersion<const NUMBER: u32>;

/// Stored data that this program cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The data has another version than the one that this program reads.
    #[error(
        "{thing} has format version {found}, but this program reads version {known}. Update this program, or use the one that wrote the data"
    )]
    Version {
        /// The name of the data.
        thing: String,
        /// The version found.
        found: i64,
        /// The version that this program reads.
        known: u32,
    },
    /// The data is invalid in every version.
    #[error("{thing} is not as evenkeel writes it: {problem}")]
    Malformed {
        /// The name of the data.
        thing: String,
        /// The problem.
        problem: String,
    },
}

impl FormatError {
    /// Whether the error is a wrong version.
    pub const fn is_of_version(&self) -> bool {
        matches!(self, Self::Version { .. })
    }
}

/// The version field of a JSON text.
#[derive(Deserialize)]
struct Tag {
    v: i64,
}

/// Reads a stored JSON text whose field `v` is a [`FormatVersion`]. `thing` names the data in errors.
pub fn read<T: DeserializeOwned>(
    text: &str,
    known: u32,
    thing: impl Fn() -> String,
) -> Result<T, FormatError> {
    serde_json::from_str(text).map_err(|error| match serde_json::from_str(text) {
        Ok(Tag { v: found }) if found != i64::from(known) => FormatError::Version {
            thing: thing(),
            found,
            known,
        },
        _ => FormatError::Malformed {
            thing: thing(),
            problem: error.to_string(),
        },
    })
}

/// Reads a stored JSON object whose field `v` may be absent. `thing` names the data in errors.
pub fn read_object<T: DeserializeOwned>(
    object: Map<String, Value>,
    known: u32,
    thing: impl Fn() -> String,
) -> Result<T, FormatError> {
    match object.get("v").and_then(Value::as_i64) {
        Some(found) if found != i64::from(known) => Err(FormatError::Version {
            thing: thing(),
            found,
            known,
        }),
        _ => serde_json::from_value(object.into()).map_err(|error| FormatError::Malformed {
            thing: thing(),
            problem: error.to_string(),
        }),
    }
}

/// Checks the version of an entity. `thing` names the data in errors.
pub fn check(entity: &Entity, known: u32, thing: impl Fn() -> String) -> Result<(), FormatError> {
    match entity.get(VERSION_PROPERTY) {
        Some(EdmValue::Int32(found)) if i64::from(*found) == i64::from(known) => Ok(()),
        Some(EdmValue::Int32(found)) => Err(FormatError::Version {
            thing: thing(),
            found: i64::from(*found),
            known,
        }),
        other => Err(FormatError::Malformed {
            thing: thing(),
            problem: match other {
                None => format!("{VERSION_PROPERTY} is missing"),
                Some(value) => format!("{VERSION_PROPERTY} has type {}", value.type_name()),
            },
        }),
    }
}

/// Adds the version to an entity as JSON.
pub fn tag(entity: &mut Map<String, Value>, version: u32) {
    entity.insert(FORMAT_PROPERTY.to_owned(), version.into());
}

/// Checks the version of an entity as JSON. `thing` names the data in errors.
pub fn check_tag(
    entity: &Map<String, Value>,
    known: u32,
    thing: impl Fn() -> String,
) -> Result<(), FormatError> {
    let found = entity.get(FORMAT_PROPERTY);
    match found.map(Value::as_i64) {
        Some(Some(found)) if found == i64::from(known) => Ok(()),
        Some(Some(found)) => Err(FormatError::Version {
            thing: thing(),
            found,
            known,
        }),
        other => Err(FormatError::Malformed {
            thing: thing(),
            problem: match other {
                None => format!("{FORMAT_PROPERTY} is missing"),
                Some(_) => format!("{FORMAT_PROPERTY} is not a number"),
            },
        }),
    }
}

impl<const NUMBER: u32> Serialize for FormatVersion<NUMBER> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(NUMBER)
    }
}

impl<'de, const NUMBER: u32> Deserialize<'de> for FormatVersion<NUMBER> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            found if found == NUMBER => Ok(Self),
            found => Err(D::Error::custom(format_args!(
                "\"v\" is {found}, expected {NUMBER}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityKey;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Note {
        v: FormatVersion<1>,
        text: String,
    }

    fn note(text: &str) -> Result<Note, FormatError> {
        read(text, 1, || "the note".to_owned())
    }

    #[test]
    fn a_text_of_another_version_differs_from_an_invalid_one() {
        let written = r#"{"v":1,"text":"a"}"#;
        let read = note(written).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), written);
        assert_eq!(
            note(r#"{"v":2,"texts":["a"]}"#).unwrap_err().to_string(),
            "the note has format version 2, but this program reads version 1. Update this program, or use the one that wrote the data"
        );
        for broken in [r#"{"v":1,"texts":["a"]}"#, r#"{"text":"a"}"#, "7", ""] {
            let error = note(broken).unwrap_err();
            assert!(matches!(error, FormatError::Malformed { .. }), "{error}");
        }
    }

    #[test]
    fn an_entity_of_another_version_differs_from_one_without_a_version() {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap());
        let of = |entity: Entity| check(&entity, 1, || "the row".to_owned());
        assert_eq!(of(entity.clone().with(VERSION_PROPERTY, 1)), Ok(()));
        let other = of(entity.clone().with(VERSION_PROPERTY, 2)).unwrap_err();
        assert!(
            matches!(other, FormatError::Version { found: 2, .. }),
            "{other}"
        );
        for wrong in [entity.clone(), entity.with(VERSION_PROPERTY, "1")] {
            let error = of(wrong).unwrap_err();
            assert!(matches!(error, FormatError::Malformed { .. }), "{error}");
        }
    }
}
