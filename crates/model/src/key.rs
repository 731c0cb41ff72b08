//! Partition and row keys.

use std::cmp::Ordering;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits;
use super::quoted::Quoted;

/// A partition key or a row key: any text that both Azure and Azurite accept, the empty string included.
///
/// At most 512 UTF-16 units and 1,024 UTF-8 bytes; without `/ \ # ?`, control characters and the two
/// noncharacters that XML cannot carry. Tab, CR and LF would otherwise be dropped silently from request
/// URLs and the write would hit another row. Keys compare bytewise, as the embedded store compares them; the service has another
/// [order](service_order) of rare characters.
#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Key(String);

/// Why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A character that Azure forbids in keys.
    #[error(
        "the key {} contains {found:?}, which Azure Table storage forbids in keys",
        Quoted(key)
    )]
    Forbidden {
        /// The whole text.
        key: String,
        /// The first forbidden character.
        found: char,
    },
    /// Over the length limit.
    #[error(
        "the key starting {start:?} has {units} UTF-16 units and {bytes} bytes; at most 512 and 1,024 are allowed"
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

/// Whether Azure forbids this character in a partition or row key.
pub const fn forbidden_in_key(c: char) -> bool {
    matches!(c, '/' | '\\' | '#' | '?' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}')
}

impl Key {
    /// Checks a text and makes it a key.
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

    /// Whether it is the empty text, which comes before every other key.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How the service orders two texts of keys: by UTF-16 code units, in which characters beyond U+FFFF come before U+E000.
pub fn service_order(one: &str, other: &str) -> Ordering {
    one.encode_utf16().cmp(other.encode_utf16())
}

/// Whether a text of a key comes before another in every store: in the service, and bytewise.
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

/// The address of an entity inside its table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct EntityKey {
    /// The partition key.
    pub pk: Key,
    /// The row key.
    pub rk: Key,
}

impl EntityKey {
    /// Checks both texts and makes them an address.
    pub fn new(pk: impl Into<String>, rk: impl Into<String>) -> Result<Self, KeyError> {
        Ok(Self {
            pk: Key::new(pk)?,
            rk: Key::new(rk)?,
        })
    }

    /// Whether its row comes before another one in every store: in the service, and bytewise.
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

/// For people: what is long is cut in its middle, since an error names keys at each of its steps. [`Debug`](fmt::Debug) is whole.
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
    fn a_key_comes_before_another_in_every_store_or_in_one_alone() {
        assert!(
            sorts_before_everywhere("a", "\u{20bb7}")
                && sorts_before_everywhere("\u{d7a3}", "\u{ff21}")
                && !sorts_before_everywhere("a", "a")
        );
        // U+20BB7 begins with the unit D842.
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
