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

pub use data_keys::{DataKeyError, DataKeys, KEYS, key_id, table};
pub use format::{DataKey, PREFIX, SealedPlace, UnsealError, is_sealed};
pub use message::{PlainEntity, plain_entities};

use crate::model::job::Primary;
use crate::model::{EdmValue, Entity};

/// Seals the marked properties of an entity, as far as it has them. Those that are sealed already have to open.
pub fn seal_entity<'p>(
    key: &DataKey,
    home: &Primary,
    marked: impl Iterator<Item = &'p String>,
    entity: &mut Entity,
) -> Result<(), UnsealError> {
    for property in marked {
        let place = SealedPlace { home, property };
        match entity.properties.get_mut(property) {
            Some(value) if is_sealed(value) => drop(key.open(place, value.as_str().unwrap_or_default())?),
            Some(value) => *value = EdmValue::String(key.seal(place, value)),
            None => {}
        }
    }
    Ok(())
}
