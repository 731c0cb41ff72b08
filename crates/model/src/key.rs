//! Partition and row keys.

use std::cmp::Ordering;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits;
use super::quoted::Quoted;

/// A partition key or a row key: a text that both Azure and Azurite accept, possibly empty.
///
/// It has at most 512 UTF-16 units and 1,024 UTF-8 bytes, and no `/ \ # ?`, no control characters, and neither of the two noncharacters
/// that XML cannot hold. Tab, CR and LF would otherwise be dropped silently from request URLs, and the write would change another row.
/// Keys compare bytewise, as in the embedded store. The [order](service_order) of the service differs for rare characters.
#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Key(String);

/// Reasons why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text has a character that Azure forbids in keys.
    #[error(
        "key {} contains {found:?}, which Azure Table storage forbids",
        Quoted(key)
    )]
    Forbidden {
        /// The text.
        key: String,
        /// The first forbidden character.
        found: char,
    },
    /// The text is too long.
    #[error(
        "key {start:?}… has {units} UTF-16 units and {bytes} bytes; at most 512 and 1,024 are allowed"
    )]
    TooLong {
        /// The first 32 characters.
        start: String,
        /// Length in UTF-16 units.
        units: usize,
        /// Length in UTF-8 bytes.
        bytes: usize,
    },
}

/// Whether Azure forbids a character in keys.
pub const fn forbidden_in_key(c: char) -> bool {
    matches!(c, '/' | '\\' | '#' | '?' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
}

impl Key {
    /// Checks the text of a key.
    pub fn new(text: impl Into<String>) -> Result<Self, KeyError> {
        let text = text.into();
        let units = text.encode_utf16().count();
        if units > limits::KEY_UTF16_UNITS || text.len() > limits::KEY_UTF8_BYTES {
            return Err(KeyError::TooLong {
                start: text.chars().take(32).collect(),
                units,
                bytes: text.len(),
            });
        }
        match text.chars().find(|c| forbidden_in_key(*c)) {
            Some(found) => Err(KeyError::Forbidden { key: text, found }),
            None => Ok(Self(text)),
        }
    }

    /// Whether the key is the empty text, which sorts first.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Compares keys as the service does: by UTF-16 code units, so characters beyond U+FFFF sort before U+E000.
pub fn service_order(one: &str, other: &str) -> Ordering {
    one.encode_utf16().cmp(other.encode_utf16())
}

/// Whether one key sorts before another both in the service and bytewise.
pub fn sorts_before_everywhere(one: &str, other: &str) -> bool {
    one < other && service_order(one, other).is_lt()
}

impl TryFrom<String> for Key {
    type Error = KeyError;
    fn try_from(text: String) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

impl TryFrom<&str> for Key {
    type Error = KeyError;
    fn try_from(text: &str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The address of an entity in its table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct EntityKey {
    /// The partition key.
    pub pk: Key,
    /// The row key.
    pub rk: Key,
}

impl EntityKey {
    /// Checks the texts of both keys.
    pub fn new(pk: impl Into<String>, rk: impl Into<String>) -> Result<Self, KeyError> {
        Ok(Self {
            pk: Key::new(pk)?,
            rk: Key::new(rk)?,
        })
    }

    /// Whether the row of this key sorts before the row of another key, both in the service and bytewise.
    pub fn sorts_before_everywhere(&self, other: &Self) -> bool {
        let pks = service_order(self.pk.as_str(), other.pk.as_str());
        let in_service = pks.then_with(|| service_order(self.rk.as_str(), other.rk.as_str()));
        self < other && in_service.is_lt()
    }
}

impl fmt::Debug for EntityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:?}, {:?})", self.pk, self.rk)
    }
}

/// Shortens long keys in the middle, because an error chain may repeat the key at each level. [`Debug`](fmt::Debug) writes long keys whole.
impl fmt::Display for EntityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "({}, {})",
            Quoted(self.pk.as_str()),
            Quoted(self.rk.as_str())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_key_and_unusual_characters_are_legal() {
        for text in ["", "O'Brien", "100%", "a b", "한글", "😀", "a+b&c=d;e,f"] {
            assert_eq!(Key::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn forbidden_characters_are_named() {
        for found in [
            '/', '\\', '#', '?', '\t', '\n', '\r', '\u{0}', '\u{7f}', '\u{9f}', '\u{fffe}',
        ] {
            let key = format!("a{found}b");
            assert_eq!(
                Key::new(key.clone()),
                Err(KeyError::Forbidden { key, found })
            );
        }
    }

    #[test]
    fn a_key_sorts_before_another_in_every_store_or_only_in_one() {
        assert!(
            sorts_before_everywhere("a", "\u{20bb7}")
                && sorts_before_everywhere("\u{d7a3}", "\u{ff21}")
                && !sorts_before_everywhere("a", "a")
        );
        // U+20BB7 starts with the unit D842.
        assert!(service_order("\u{20bb7}", "\u{ff21}").is_lt() && "\u{ff21}" < "\u{20bb7}");
        assert!(
            !sorts_before_everywhere("\u{20bb7}", "\u{ff21}")
                && !sorts_before_everywhere("\u{ff21}", "\u{20bb7}")
        );
        let key = |pk: &str, rk: &str| EntityKey::new(pk, rk).unwrap();
        assert!(
            key("a", "\u{ff21}").sorts_before_everywhere(&key("b", "\u{20bb7}"))
                && key("a", "a").sorts_before_everywhere(&key("a", "b"))
        );
        assert!(
            !key("a", "\u{ff21}").sorts_before_everywhere(&key("a", "\u{20bb7}"))
                && !key("b", "a").sorts_before_everywhere(&key("a", "b"))
        );
    }

    #[test]
    fn length_is_bounded_in_units_and_in_bytes() {
        assert!(Key::new("a".repeat(512)).is_ok());
        assert!(Key::new("a".repeat(513)).is_err());
        assert!(Key::new("한".repeat(341)).is_ok());
        assert!(Key::new("한".repeat(342)).is_err());
        assert!(Key::new("😀".repeat(256)).is_ok());
        assert!(Key::new("😀".repeat(257)).is_err());
    }
}
