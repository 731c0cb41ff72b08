//! Encrypted properties: values that are stored sealed, with a data key of their entity.
//!
//! ```text
//!   plain value ── seal ──▶ "ek1.…" in the primary ── copied as any text ──▶ copies, archives, logs, blobs
//!                   ▲                                                              │ open
//!   data key ───────┴──────────────────────────────────────────────────────────────┘
//!      ▲ unwrap
//!   EvenkeelKeys: one row for each entity, wrapped by the key-encryption key of a vault
//! ```
//!
//! A sealed value does not name its place: the reader provides it ([`SealedPlace`]), and a value that was moved is refused.

mod data_keys;
mod format;
mod message;

pub use data_keys::{DataKeyError, DataKeys, FirstKey, key_id, table};
pub use format::{DataKey, HashKey, PREFIX, SealedPlace, UnsealError, is_sealed};
pub use message::{PlainEntity, plain_entities, redacted, withheld_text, withhold};

use std::collections::BTreeMap;

use evenkeel_model::job::Primary;
use evenkeel_model::template::Template;
use evenkeel_model::{EdmValue, Entity};

/// Seals the marked properties of an entity, and returns an entity with their plain values. Properties that are sealed already are opened,
/// which must succeed.
pub fn seal_entity<'p>(
    key: &DataKey,
    home: &Primary,
    marked: impl Iterator<Item = &'p String>,
    entity: &mut Entity,
) -> Result<Entity, UnsealError> {
    let mut plain = Entity::new(home.key.clone());
    for property in marked {
        let place = SealedPlace { home, property };
        let Some(value) = entity.properties.get_mut(property) else {
            continue;
        };
        let opened = if is_sealed(value) {
            key.open(place, value.as_str().unwrap_or_default())?
        } else {
            let sealed = EdmValue::String(key.seal(place, value));
            std::mem::replace(value, sealed)
        };
        plain.properties.insert(property.clone(), opened);
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
