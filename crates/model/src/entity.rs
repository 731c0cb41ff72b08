//! Entities.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{ETag, EdmDateTime, EdmValue, EntityKey, limits, odata, quoted};

/// Prefix of the property names that evenkeel reserves. Reserved properties are never copied into a view, and `restore` removes them.
pub const RESERVED_PREFIX: &str = "ek_";

/// A key and its properties, as written by a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// The key of the entity in its table.
    pub key: EntityKey,
    /// The properties by name, without PartitionKey, RowKey and Timestamp.
    pub properties: BTreeMap<String, EdmValue>,
}

/// An entity as the store returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Key and properties.
    pub entity: Entity,
    /// The ETag of the version that was read.
    pub etag: ETag,
    /// Time of the last write by the service's clock; absent if a projection left it out.
    pub timestamp: Option<EdmDateTime>,
}

fn own_note(own: usize) -> String {
    if own == 0 {
        String::new()
    } else {
        format!(", {own} of them added by evenkeel (ek_…)")
    }
}

/// Reasons why an entity cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntityError {
    /// A property name is not a C# identifier, or is that of a system property.
    #[error(
        "{0:?} is not a property name. Expected {PROPERTY_NAME_RULE}, at most 255 UTF-16 units, and not PartitionKey, RowKey or Timestamp"
    )]
    PropertyName(String),
    /// The entity has more than 252 properties.
    #[error("the entity has {all} properties{}; at most 252 are allowed", own_note(*.own))]
    TooManyProperties {
        /// Number of all properties.
        all: usize,
        /// Number of properties that evenkeel added.
        own: usize,
    },
    /// The value of a property is larger than 64 KiB.
    #[error("property {name:?} has {size} {unit}; at most {limit} are allowed")]
    ValueTooLarge {
        /// The property.
        name: String,
        /// Size of the value.
        size: usize,
        /// Unit of the count.
        unit: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A text contains a character that XML or the service cannot hold.
    #[error(
        "property {name:?} contains the character U+{code:04X}, which Azure Storage cannot store"
    )]
    Character {
        /// The property.
        name: String,
        /// Code point of the character.
        code: u32,
    },
    /// The entity is larger than 1 MiB.
    #[error("the entity has {bytes} bytes {counted}; at most 1,048,576 (1 MiB) are allowed")]
    TooLarge {
        /// Size of the entity.
        bytes: usize,
        /// How the bytes are counted.
        counted: &'static str,
    },
}

impl Entity {
    /// An entity without properties.
    pub const fn new(key: EntityKey) -> Self {
        Self {
            key,
            properties: BTreeMap::new(),
        }
    }

    /// Adds or replaces a property.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<EdmValue>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// The value of a property.
    pub fn get(&self, name: &str) -> Option<&EdmValue> {
        self.properties.get(name)
    }

    /// The value of a property, or of a key by the name `PartitionKey` or `RowKey`.
    pub fn property_or_key(&self, name: &str) -> Option<Cow<'_, EdmValue>> {
        match name {
            "PartitionKey" => Some(Cow::Owned(EdmValue::from(self.key.pk.as_str()))),
            "RowKey" => Some(Cow::Owned(EdmValue::from(self.key.rk.as_str()))),
            name => self.get(name).map(Cow::Borrowed),
        }
    }

    /// The text of a string property.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(EdmValue::as_str)
    }

    /// The user's properties: all whose names do not start with `ek_`.
    pub fn user_properties(&self) -> impl Iterator<Item = (&String, &EdmValue)> {
        self.properties
            .iter()
            .filter(|(name, _)| !name.starts_with(RESERVED_PREFIX))
    }

    /// Copies the user's properties.
    pub fn to_user_properties(&self) -> BTreeMap<String, EdmValue> {
        self.user_properties()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Sets the properties of `changes` and keeps the others, as Insert-Or-Merge does.
    #[must_use]
    pub fn merged(mut self, changes: &Self) -> Self {
        self.properties.extend(
            changes
                .properties
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        self
    }

    /// Size in bytes as Azure counts it: two for each UTF-16 unit of the keys, and the sizes of the properties.
    pub fn stored_bytes(&self) -> usize {
        let units = |text: &str| 2 * text.encode_utf16().count();
        let properties: usize = self
            .properties
            .iter()
            .map(|(name, value)| stored_bytes(name, value))
            .sum();
        4 + units(self.key.pk.as_str()) + units(self.key.rk.as_str()) + properties
    }

    /// Size in bytes: the larger of the counts of Azure and Azurite.
    pub fn size(&self) -> usize {
        odata::encoded_len(self).max(self.stored_bytes())
    }

    /// Checks every limit of the service before a request is sent, by the counts of Azure and of Azurite. Returns the size in bytes as
    /// JSON.
    pub fn check(&self) -> Result<usize, EntityError> {
        if self.properties.len() > limits::PROPERTIES {
            let all = self.properties.len();
            return Err(EntityError::TooManyProperties {
                all,
                own: all - self.user_properties().count(),
            });
        }
        self.check_properties()?;
        let size = odata::encoded_len(self);
        if size > limits::ENTITY_BYTES {
            return Err(EntityError::TooLarge {
                bytes: size,
                counted: "as JSON",
            });
        }
        // By Azure's count, a text has at most twice as many bytes as in JSON, and a small property at most three times as many. So an
        // entity below a third of the limit needs no second count.
        if size > limits::ENTITY_BYTES / 3 {
            let bytes = self.stored_bytes();
            if bytes > limits::ENTITY_BYTES {
                return Err(EntityError::TooLarge {
                    bytes,
                    counted: "(Azure counts two for each character)",
                });
            }
        }
        Ok(size)
    }

    /// Checks the name, size and characters of each property.
    pub fn check_properties(&self) -> Result<(), EntityError> {
        for (name, value) in &self.properties {
            if !valid_property_name(name) {
                return Err(EntityError::PropertyName(quoted::shortened(name.clone())));
            }
            match value {
                EdmValue::String(text) => {
                    // Each UTF-16 unit takes at least one byte of UTF-8, so a short text needs no count.
                    if text.len() > limits::STRING_UTF16_UNITS {
                        let size = text.encode_utf16().count();
                        if size > limits::STRING_UTF16_UNITS {
                            return Err(EntityError::ValueTooLarge {
                                name: name.clone(),
                                size,
                                unit: "UTF-16 units",
                                limit: limits::STRING_UTF16_UNITS,
                            });
                        }
                    }
                    // U+FFFE and U+FFFF start with the byte EF, so a text without that byte and without NUL needs no decoding.
                    if text.bytes().any(|byte| matches!(byte, 0 | 0xef))
                        && let Some(c) = text
                            .chars()
                            .find(|c| matches!(c, '\u{0}' | '\u{fffe}' | '\u{ffff}'))
                    {
                        return Err(EntityError::Character {
                            name: name.clone(),
                            code: u32::from(c),
                        });
                    }
                }
                EdmValue::Binary(bytes) if bytes.len() > limits::BINARY_BYTES => {
                    return Err(EntityError::ValueTooLarge {
                        name: name.clone(),
                        size: bytes.len(),
                        unit: "bytes",
                        limit: limits::BINARY_BYTES,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Size of a property in bytes as Azure counts it: 8, two for each UTF-16 unit of the name, and the value in .NET's memory (Azure,
/// "Understanding the table service data model").
pub fn stored_bytes(name: &str, value: &EdmValue) -> usize {
    let value = match value {
        EdmValue::String(text) => 4 + 2 * text.encode_utf16().count(),
        EdmValue::Binary(bytes) => 4 + bytes.len(),
        EdmValue::Bool(_) => 1,
        EdmValue::Int32(_) => 4,
        EdmValue::Int64(_) | EdmValue::Double(_) | EdmValue::DateTime(_) => 8,
        EdmValue::Guid(_) => 16,
    };
    8 + 2 * name.encode_utf16().count() + value
}

/// The rule for property names, for errors.
pub const PROPERTY_NAME_RULE: &str =
    "letters and digits of any script and underscores, not starting with a digit";

/// Whether a character may be in a property name.
///
/// The service accepts C# identifiers: letters, digits, marks and connectors of every script. Of the invisible characters that C# accepts,
/// only the two joiners are allowed, because words of some scripts need them.
pub fn in_property_name(c: char) -> bool {
    unicode_ident::is_xid_continue(c) || matches!(c, '\u{200c}' | '\u{200d}')
}

/// Whether a property may have this name: a C# identifier of at most 255 UTF-16 units that is not a system property.
pub fn valid_property_name(name: &str) -> bool {
    let starts = |c: char| c == '_' || unicode_ident::is_xid_start(c);
    name.starts_with(starts)
        && name.chars().all(in_property_name)
        && name.encode_utf16().count() <= limits::PROPERTY_NAME_CHARS
        && !matches!(name, "PartitionKey" | "RowKey" | "Timestamp")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity() -> Entity {
        Entity::new(EntityKey::new("p", "r").unwrap())
    }

    #[test]
    fn limits_are_checked_before_anything_is_sent() {
        assert!(entity().with("Name", "x".repeat(32_768)).check().is_ok());
        assert!(matches!(
            entity().with("Name", "x".repeat(32_769)).check(),
            Err(EntityError::ValueTooLarge { .. })
        ));
        assert!(entity().with("Name", "한".repeat(32_768)).check().is_ok());
        assert!(matches!(
            entity().with("a-b", 1).check(),
            Err(EntityError::PropertyName(_))
        ));
        assert!(matches!(
            entity().with("Timestamp", 1).check(),
            Err(EntityError::PropertyName(_))
        ));
        assert!(matches!(
            entity().with("Name", "a\u{0}").check(),
            Err(EntityError::Character { code: 0, .. })
        ));
        let many = (0..253).fold(entity(), |e, i| e.with(format!("P{i}"), i));
        assert_eq!(
            many.check(),
            Err(EntityError::TooManyProperties { all: 253, own: 0 })
        );
        let error = |entity: &Entity| entity.check().unwrap_err().to_string();
        assert_eq!(
            error(&many),
            "the entity has 253 properties; at most 252 are allowed"
        );
        let marked = many.with("ek_job", "m");
        assert!(
            error(&marked)
                .starts_with("the entity has 254 properties, 1 of them added by evenkeel (ek_…); "),
            "{}",
            error(&marked)
        );
        let large = (0..40).fold(entity(), |e, i| e.with(format!("P{i}"), "x".repeat(32_000)));
        assert!(matches!(
            large.check(),
            Err(EntityError::TooLarge {
                counted: "as JSON",
                ..
            })
        ));
        let twice = (0..20).fold(entity(), |e, i| e.with(format!("P{i}"), "x".repeat(32_000)));
        assert!(
            twice
                .check()
                .unwrap_err()
                .to_string()
                .contains("(Azure counts")
        );
        let fits = (0..20).fold(entity(), |e, i| {
            e.with(format!("P{i}"), "한".repeat(16_000))
        });
        assert!(fits.check().is_ok());
    }

    #[test]
    fn property_names_are_identifiers_of_any_script() {
        let longest = "ß".repeat(255);
        for name in [
            "Name",
            "_x",
            "a1",
            "Größe",
            "이름",
            "商品名",
            "naïve",
            "имя",
            "نام\u{200c}ها",
            "x\u{301}",
            "Ⅷ",
            "𠮷",
            &longest,
        ] {
            assert!(valid_property_name(name), "{name}");
            assert!(entity().with(name, 1).check().is_ok(), "{name}");
        }
        let too_long = "ß".repeat(256);
        for name in [
            "",
            "1a",
            "a b",
            "a-b",
            "a.b",
            "€",
            "😀",
            "a\u{200b}b",
            "\u{301}x",
            "RowKey",
            &too_long,
        ] {
            assert!(!valid_property_name(name), "{name}");
        }
    }

    #[test]
    fn azure_counts_a_property_at_most_three_times() {
        let values: [EdmValue; 9] = [
            "".into(),
            "x".into(),
            "한".into(),
            1.into(),
            1_i64.into(),
            1.0.into(),
            true.into(),
            EdmValue::Binary(vec![0]),
            EdmValue::Binary(Vec::new()),
        ];
        for (name, value) in ["A", "Name"]
            .into_iter()
            .flat_map(|name| values.iter().map(move |value| (name, value)))
        {
            let (stored, json) = (stored_bytes(name, value), odata::property_len(name, value));
            assert!(stored <= 3 * json, "{name} {value:?}: {stored} of {json}");
        }
    }

    #[test]
    fn merging_keeps_properties_that_are_not_named() {
        let merged = entity()
            .with("A", 1)
            .with("B", 2)
            .merged(&entity().with("B", 3).with("C", 4));
        assert_eq!(merged, entity().with("A", 1).with("B", 3).with("C", 4));
    }
}
