//! Encrypted properties: values that are stored encrypted, with a data key of their entity.
//!
//! ```text
//!   plain value ── encrypt ──▶ "ek1.…" in the primary ── copied as any text ──▶ copies, archives, logs, blobs
//!                   ▲                                                              │ decrypt
//!   data key ───────┴──────────────────────────────────────────────────────────────┘
//!      ▲ unwrap
//!   EvenkeelKeys: one row for each entity, wrapped by the key-encryption key of a vault
//! ```
//!
//! An encrypted value does not name its place: the reader provides it ([`PropertyAddress`]), and a value that was moved is refused.

mod data_keys;
mod format;
mod message;

pub use data_keys::{DataKeyError, DataKeys, FirstKey, key_id, table};
pub use format::{DataKey, DecryptError, HashKey, PREFIX, PropertyAddress, is_encrypted};
pub use message::{PlainEntity, plain_entities, redacted, withheld_text, withhold};

use std::collections::BTreeMap;

use evenkeel_model::job::Primary;
use evenkeel_model::template::Template;
use evenkeel_model::{EdmValue, Entity};

/// Encrypts the marked properties of an entity, and returns an entity with their plain values. Properties that are encrypted already are
/// decrypted, which must succeed.
pub fn encrypt_entity<'p>(
    key: &DataKey,
    home: &Primary,
    marked: impl Iterator<Item = &'p String>,
    entity: &mut Entity,
) -> Result<Entity, DecryptError> {
    let mut plain = Entity::new(home.key.clone());
    for property in marked {
        let place = PropertyAddress { home, property };
        let Some(value) = entity.properties.get_mut(property) else {
            continue;
        };
        let decrypted = if is_encrypted(value) {
            key.decrypt(place, value.as_str().unwrap_or_default())?
        } else {
            let encrypted = EdmValue::String(key.encrypt(place, value));
            std::mem::replace(value, encrypted)
        };
        plain.properties.insert(property.clone(), decrypted);
    }
    Ok(plain)
}

/// The keyed hashes of an entity's plain values, by the properties that store them. A hash is empty if its template has no value.
pub fn hashes(
    key: &HashKey,
    hashed: &BTreeMap<String, Template>,
    plain: &Entity,
) -> BTreeMap<String, EdmValue> {
    let has = |template: &Template| {
        template
            .properties()
            .iter()
            .any(|property| plain.get(property).is_some())
    };
    let hash = |(name, template): (&String, &Template)| {
        let text = template
            .render_text(plain)
            .ok()
            .flatten()
            .filter(|text| !text.is_empty());
        (
            name.clone(),
            EdmValue::String(text.map(|text| key.hash(name, &text)).unwrap_or_default()),
        )
    };
    hashed
        .iter()
        .filter(|(_, template)| has(template))
        .map(hash)
        .collect()
}
