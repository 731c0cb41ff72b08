//! The digest of the content that a job wrote. The job's stamp contains it. This module is pure: it makes no requests
//! and reads no clock.
//!
//! When a client merges properties into the entity, the stamp of the job stays. Its digest then shows that the content
//! is no longer what the job wrote. Suppose that a `delete` job was enqueued after the job, but before the job wrote
//! the content. If the content is still as the job wrote it, the `delete` job deletes it. Any other content may be
//! newer than the `delete` job.

use std::collections::BTreeMap;

use crate::protocol::change::Change;
use evenkeel_model::job::Stamp;
use evenkeel_model::shared;
use evenkeel_model::{Entity, odata};

/// Length of a digest in bytes. Two different contents have the same digest with a probability of 1 in 2^64.
const BYTES: usize = 8;

/// Digest of an entity's own content: all properties except those of evenkeel and those that views have set.
fn digest(entity: &Entity) -> String {
    let mut own = shared::own(entity.clone());
    own.properties.retain(|name, _| !name.starts_with("ek_"));
    hex::encode(&odata::digest(&own.properties)[..BYTES])
}

/// Adds the digest of the resulting content to the stamp of a change.
pub(crate) fn vouched(change: Change) -> Change {
    let stamp = change
        .result()
        .and_then(|result| Stamp::with_content(result, &digest(result)));
    match stamp {
        Some(stamp) => change.with_texts(&BTreeMap::from([(Stamp::PROPERTY.to_owned(), stamp)])),
        None => change,
    }
}

/// Whether the content is still what the stamping job wrote. `true` if the stamp has no digest.
pub(crate) fn is_as_left(entity: &Entity) -> bool {
    Stamp::content_on(entity).is_none_or(|left| left == digest(entity))
}

/// Whether two entities have the same content, apart from properties of evenkeel and those that views have set. Large
/// values are compared by their pointers, which contain a hash.
pub(crate) fn is_same(one: &Entity, other: &Entity) -> bool {
    let own = |entity: &Entity| shared::own(entity.clone()).to_user_properties();
    odata::same_properties(&own(one), &own(other))
}

pub(crate) fn is_proved(entity: &Entity) -> bool {
    Stamp::content_on(entity).is_some() && is_as_left(entity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::EntityKey;

    #[test]
    fn a_digest_detects_merges_of_clients_and_ignores_properties_of_evenkeel() {
        let stamp = Stamp {
            message_id: "m".to_owned(),
            enqueued: jiff::Timestamp::UNIX_EPOCH,
            job: None,
        };
        let entity = Entity::new(EntityKey::new("p", "r").unwrap())
            .with("Name", "Ada")
            .with("Age", 36);
        assert!(
            is_as_left(&stamp.on(entity.clone())),
            "a stamp without a digest counts as unchanged"
        );
        let Change::Insert(left) = vouched(Change::Insert(stamp.on(entity.clone()))) else {
            unreachable!()
        };
        let owner = r#"{"v":1,"source":{"table":"Departments","pk":"Sales","rk":"d"},"token":"t","set":["Department"],"by_range":true}"#;
        let set = left
            .clone()
            .with("Department", "Sales")
            .with("ek_owner_department", owner);
        for same in [left.clone(), left.clone().with("ek_rows", 2), set] {
            assert!(is_as_left(&same), "{same:?}");
        }
        for other in [
            left.clone().with("Nick", "Addie"),
            left.clone().with("Age", 37),
            left.clone().with("Age", "36"),
        ] {
            assert!(!is_as_left(&other), "{other:?}");
        }
        // The digest of a merge covers all properties of the entity, not only the changed ones.
        let etag = evenkeel_model::ETag::new("e1").unwrap();
        let changes = stamp.on(Entity::new(entity.key.clone()).with("Age", 37));
        let change = vouched(Change::Merge {
            merged: left.merged(&changes),
            changes,
            etag,
        });
        assert_eq!(change.sent().unwrap().properties.len(), 2);
        assert!(is_as_left(change.result().unwrap()));
    }
}
