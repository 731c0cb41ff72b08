//! The format of encrypted values, version 1.
//!
//! ```text
//!   "ek1." ‖ base64url( nonce ‖ AES-256-GCM(value key, nonce, plaintext, associated data) )      a string property
//!
//!   plaintext         OData JSON of the value: {"v":75000}, {"v":"7","v@odata.type":"Edm.Int64"}
//!   associated data   JSON: ["evenkeel/1", table in lower case, PartitionKey, RowKey, property]
//!   nonce             first 12 bytes of HMAC-SHA-256(nonce key, associated data ‖ 0x00 ‖ plaintext)
//!   value key         HMAC-SHA-256(data key, "evenkeel/1 value")
//!   nonce key         HMAC-SHA-256(data key, "evenkeel/1 nonce")
//!
//!   hash              hex( HMAC-SHA-256(hash key, property of the hash ‖ 0x00 ‖ text) )                         a string property
//!   hash key          HMAC-SHA-256(key of the table, "evenkeel/1 hash")
//! ```
//!
//! The nonce is derived from the encrypted content, as in a synthetic initialization vector: the same value in the same place gives the
//! same text. So a redelivered job writes the same text again, and no two values share a nonce. A reader without the key can see whether a
//! property of an entity has a value that it had before. It learns nothing about other entities, because their data keys differ.

use std::collections::BTreeMap;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde_json::{Value, json};

use evenkeel_model::KeyBytes;
use evenkeel_model::job::Primary;
use evenkeel_model::{EdmValue, odata};

/// Prefix of every encrypted value of this version.
pub const PREFIX: &str = "ek1.";
/// The version in the associated data and in the derivation of keys.
const VERSION: &str = "evenkeel/1";
const VALUE: &str = "v";

/// The place of a value. A value cannot be decrypted in another place.
#[derive(Debug, Clone, Copy)]
pub struct PropertyAddress<'a> {
    /// The entity that the value was encrypted for. Its table is the one with `encrypt`, even if the value was copied to another
    /// table.
    pub home: &'a Primary,
    pub property: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecryptError {
    /// The text is not an encrypted value of this version.
    #[error("property {property:?} of {home} is not an encrypted value, or was truncated")]
    Malformed { property: String, home: Primary },
    /// The value was changed, or belongs to another place.
    #[error(
        "cannot decrypt property {property:?} of {home} with its data key. It was changed, or encrypted for another entity or property"
    )]
    Refused { property: String, home: Primary },
}

#[derive(Debug, Clone)]
pub struct DataKey(KeyBytes);

/// The key of a table's hashes.
#[derive(Debug, Clone)]
pub struct HashKey(DataKey);

impl HashKey {
    pub(super) const fn new(key: DataKey) -> Self {
        Self(key)
    }

    /// The keyed hash of a text for the property `name`, as 64 hexadecimal digits.
    pub fn hash(&self, name: &str, text: &str) -> String {
        hex::encode(hmac::sign(
            &self.0.derived("hash"),
            &[name.as_bytes(), &[0], text.as_bytes()].concat(),
        ))
    }
}

/// Whether a value has the prefix of encrypted values. Any application may write such a text, so only decrypting it proves that it is
/// encrypted.
pub fn is_encrypted(value: &EdmValue) -> bool {
    value.as_str().is_some_and(|text| text.starts_with(PREFIX))
}

impl PropertyAddress<'_> {
    fn associated(&self) -> Vec<u8> {
        let Self {
            home: Primary { table, key },
            property,
        } = self;
        json!([
            VERSION,
            table.as_str().to_ascii_lowercase(),
            key.pk,
            key.rk,
            property
        ])
        .to_string()
        .into_bytes()
    }

    fn malformed(&self) -> DecryptError {
        DecryptError::Malformed {
            property: self.property.to_owned(),
            home: self.home.clone(),
        }
    }

    fn refused(&self) -> DecryptError {
        DecryptError::Refused {
            property: self.property.to_owned(),
            home: self.home.clone(),
        }
    }
}

impl DataKey {
    pub const fn new(bytes: KeyBytes) -> Self {
        Self(bytes)
    }

    pub const fn bytes(&self) -> &KeyBytes {
        &self.0
    }

    pub fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    pub fn encrypt(&self, place: PropertyAddress<'_>, value: &EdmValue) -> String {
        let (plain, associated) = (encoded(value), place.associated());
        let tag = hmac::sign(
            &self.derived("nonce"),
            &[&associated[..], &[0], &plain].concat(),
        );
        let mut nonce = [0; NONCE_LEN];
        nonce
            .iter_mut()
            .zip(tag.as_ref())
            .for_each(|(byte, tag)| *byte = *tag);
        let mut encrypted = plain;
        let done = self.value_key().and_then(|key| {
            key.seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated),
                &mut encrypted,
            )
            .ok()
        });
        // Cannot fail: the key has 32 bytes, and the value is far below the 64 GiB of AES-GCM.
        debug_assert!(done.is_some(), "AES-256-GCM with a key of 32 bytes");
        format!(
            "{PREFIX}{}",
            BASE64URL.encode([&nonce[..], &encrypted].concat())
        )
    }

    /// Decrypts a value that was encrypted for this place.
    pub fn decrypt(
        &self,
        place: PropertyAddress<'_>,
        encrypted: &str,
    ) -> Result<EdmValue, DecryptError> {
        let bytes = encrypted
            .strip_prefix(PREFIX)
            .and_then(|text| BASE64URL.decode(text).ok());
        let bytes = bytes.ok_or_else(|| place.malformed())?;
        let (nonce, encrypted) = bytes
            .split_first_chunk::<NONCE_LEN>()
            .ok_or_else(|| place.malformed())?;
        let mut encrypted = encrypted.to_vec();
        let key = self.value_key().ok_or_else(|| place.refused())?;
        let plain = key.open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            Aad::from(place.associated()),
            &mut encrypted,
        );
        let plain = plain.map_err(|_| place.refused())?;
        decoded(plain).ok_or_else(|| place.malformed())
    }

    fn value_key(&self) -> Option<LessSafeKey> {
        let derived = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, &self.0.0),
            purpose("value").as_bytes(),
        );
        UnboundKey::new(&AES_256_GCM, derived.as_ref())
            .ok()
            .map(LessSafeKey::new)
    }

    fn derived(&self, of: &str) -> hmac::Key {
        let derived = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, &self.0.0),
            purpose(of).as_bytes(),
        );
        hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
    }
}

fn purpose(of: &str) -> String {
    format!("{VERSION} {of}")
}

/// The value as JSON, with a type annotation if JSON has no such type.
fn encoded(value: &EdmValue) -> Vec<u8> {
    Value::Object(odata::encode_properties(&BTreeMap::from([(
        VALUE.to_owned(),
        value.clone(),
    )])))
    .to_string()
    .into_bytes()
}

fn decoded(plain: &[u8]) -> Option<EdmValue> {
    let Value::Object(object) = serde_json::from_slice(plain).ok()? else {
        return None;
    };
    odata::decode_properties(object).ok()?.remove(VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{EdmDateTime, EntityKey, TableName};
    use proptest::prelude::*;

    fn home(pk: &str, rk: &str) -> Primary {
        Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new(pk, rk).unwrap(),
        }
    }

    fn key() -> DataKey {
        DataKey::new(KeyBytes(std::array::from_fn(|at| {
            u8::try_from(at).unwrap()
        })))
    }

    /// The vectors of docs/encryption.md, which are also used by its samples in Python and Node.js.
    #[test]
    fn the_documented_vectors_hold() {
        let vectors: Value =
            serde_json::from_str(include_str!("../../../../docs/encryption.vectors.json")).unwrap();
        let bytes = |text: &Value| hex::decode(text.as_str().unwrap()).unwrap();
        for vector in vectors["values"].as_array().unwrap() {
            let text = |name: &str| vector[name].as_str().unwrap();
            let key = DataKey::new(KeyBytes(bytes(&vector["data_key"]).try_into().unwrap()));
            let home = Primary {
                table: TableName::new(text("table")).unwrap(),
                key: EntityKey::new(text("pk"), text("rk")).unwrap(),
            };
            let place = PropertyAddress {
                home: &home,
                property: text("property"),
            };
            let value = decoded(vector["plaintext"].as_str().unwrap().as_bytes()).unwrap();
            assert_eq!(key.encrypt(place, &value), text("encrypted"));
            assert_eq!(key.decrypt(place, text("encrypted")), Ok(value));
        }
        for vector in vectors["hashes"].as_array().unwrap() {
            let text = |name: &str| vector[name].as_str().unwrap();
            let key = HashKey::new(DataKey::new(KeyBytes(
                bytes(&vector["table_key"]).try_into().unwrap(),
            )));
            assert_eq!(key.hash(text("property"), text("text")), text("hash"));
        }
    }

    #[test]
    fn every_type_comes_back_as_it_was() {
        let home = home("Sales", "000223");
        let place = PropertyAddress {
            home: &home,
            property: "Salary",
        };
        let values = [
            EdmValue::from("한😀 text"),
            EdmValue::from(75_000),
            EdmValue::from(9_007_199_254_740_993_i64),
            EdmValue::Double(f64::NAN),
            EdmValue::Double(3.0),
            EdmValue::from(true),
            EdmValue::Guid(uuid::Uuid::from_u128(7)),
            EdmValue::Binary(vec![0, 255]),
            EdmValue::from(EdmDateTime::parse("2026-11-20T15:00:00.5Z").unwrap()),
        ];
        for value in values {
            let encrypted = key().encrypt(place, &value);
            assert!(is_encrypted(&EdmValue::from(encrypted.as_str())));
            assert_eq!(key().decrypt(place, &encrypted), Ok(value.clone()));
            assert_eq!(
                key().encrypt(place, &value),
                encrypted,
                "the same value in the same place is the same text"
            );
        }
    }

    #[test]
    fn a_value_is_decrypted_only_in_its_own_place() {
        let (own, other) = (home("Sales", "000223"), home("Sales", "000224"));
        let encrypted = key().encrypt(
            PropertyAddress {
                home: &own,
                property: "Salary",
            },
            &EdmValue::from(75_000),
        );
        let moved = Primary {
            table: TableName::new("Bosses").unwrap(),
            ..own.clone()
        };
        for place in [
            PropertyAddress {
                home: &other,
                property: "Salary",
            },
            PropertyAddress {
                home: &moved,
                property: "Salary",
            },
            PropertyAddress {
                home: &own,
                property: "Ssn",
            },
        ] {
            assert!(matches!(
                key().decrypt(place, &encrypted),
                Err(DecryptError::Refused { .. })
            ));
        }
        let spelled = Primary {
            table: TableName::new("EMPLOYEES").unwrap(),
            ..own.clone()
        };
        assert!(
            key()
                .decrypt(
                    PropertyAddress {
                        home: &spelled,
                        property: "Salary"
                    },
                    &encrypted
                )
                .is_ok(),
            "the letter case of a table name does not matter"
        );
        let another = DataKey::new(KeyBytes([7; 32]));
        assert!(matches!(
            another.decrypt(
                PropertyAddress {
                    home: &own,
                    property: "Salary"
                },
                &encrypted
            ),
            Err(DecryptError::Refused { .. })
        ));
    }

    proptest! {
        #[test]
        fn a_changed_encrypted_value_is_not_decrypted(text in ".{0,40}", at in any::<prop::sample::Index>(), flip in 1_u8..=255, cut in any::<prop::sample::Index>()) {
            let home = home("p", "r");
            let place = PropertyAddress { home: &home, property: "P" };
            let encrypted = key().encrypt(place, &EdmValue::from(text.as_str()));
            let mut bytes = BASE64URL.decode(encrypted.strip_prefix(PREFIX).unwrap()).unwrap();
            let length = cut.index(bytes.len());
            let truncated = format!("{PREFIX}{}", BASE64URL.encode(&bytes[..length]));
            prop_assert!(key().decrypt(place, &truncated).is_err());
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let changed = format!("{PREFIX}{}", BASE64URL.encode(bytes));
            prop_assert!(key().decrypt(place, &changed).is_err());
        }

        #[test]
        fn decrypting_any_text_does_not_panic(text in ".{0,80}") {
            let home = home("p", "r");
            let place = PropertyAddress { home: &home, property: "P" };
            prop_assert!(key().decrypt(place, &text).is_err());
            let prefixed = format!("{PREFIX}{text}");
            prop_assert!(key().decrypt(place, &prefixed).is_err());
        }
    }
}
