//! Encrypted properties: values that are stored sealed, under a data key of their entity.
//!
//! ```text
//!   plain value ── seal ──▶ "ek1.…" in the primary ── copied as any text ──▶ copies, archives, logs, blobs
//!                   ▲                                                              │ open
//!   data key ───────┴──────────────────────────────────────────────────────────────┘
//!      ▲ unwrap
//!   EvenkeelKeys: one row for each entity, wrapped by the key-encryption key of a vault
//! ```
//!
//! A sealed value names nothing: whoever opens it says where it belongs ([`SealedPlace`]), and one that was put elsewhere is refused.

mod data_keys;
mod format;
mod message;

pub use data_keys::{DataKeyError, DataKeys, FirstKey, key_id, table};
pub use format::{DataKey, HashKey, PREFIX, SealedPlace, UnsealError, is_sealed};
pub use message::{PlainEntity, outlined, plain_entities, withheld_text, withhold};

use std::collections::BTreeMap;

use evenkeel_model::job::Primary;
use evenkeel_model::template::Template;
use evenkeel_model::{EdmValue, Entity};

/// Seals the marked properties of an entity, as far as it has them; an entity with the plain values alone. Those that are sealed already have to open.
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

/// The keyed hashes of an entity's plain values, by the properties that hold them: empty where a template has no value.
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
