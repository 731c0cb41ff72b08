//! Large entities: properties that lie in blobs, with pointers in their place.
//!
//! A primary derives the blobs that it points to. Which of its values go out into blobs is decided when it
//! is written, here too, so that writing and deriving agree on the values of a primary.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::derive::{DeriveError, Deriving};
use crate::catalog::LargeEntity;
use crate::job::Primary;
use crate::large::{self, Pointer, ValueFolder};
use crate::{EdmValue, Entity, limits};

/// The blobs of a primary, each once. Regardless of the view's present declaration: they are its own as long as it
/// points to them.
pub(super) fn blobs(of: &Deriving<'_>) -> Result<BTreeSet<Pointer>, Box<DeriveError>> {
    owned(of.primary, &ValueFolder::of(of.primary), of.entity)
}

/// The blobs that an entity points to and that lie in its folder, each once.
pub(super) fn owned(
    primary: &Primary,
    folder: &ValueFolder,
    entity: &Entity,
) -> Result<BTreeSet<Pointer>, Box<DeriveError>> {
    large::known_pointers(entity).map_err(|source| DeriveError::Pointer {
        primary: primary.clone(),
        source,
    })?;
    Ok(large::pointers(folder, entity)
        .map(|(_, pointer)| pointer)
        .collect())
}

/// The properties of an entity with values in blobs: those with a pointer in the row.
pub(super) fn in_blobs(entity: &Entity) -> BTreeSet<&str> {
    entity
        .user_properties()
        .filter(|(_, value)| Pointer::of(value).is_some())
        .map(|(name, _)| name.as_str())
        .collect()
}

/// The properties of an entity with values that lie in blobs, or that might: no pointer is longer.
pub(super) fn may_go(entity: &Entity) -> BTreeSet<&str> {
    let may = |value: &EdmValue| {
        Pointer::of(value).is_some()
            || content_len(value).is_some_and(|bytes| bytes > POINTER_BYTES)
    };
    entity
        .user_properties()
        .filter(|(_, value)| may(value))
        .map(|(name, _)| name.as_str())
        .collect()
}

/// A value is too large for its row, and nothing could be computed from a pointer in its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "property {0:?} is too large for a row, and cannot be moved to a blob because a view, rule or archive computes from it"
)]
pub struct ComputedFrom(pub String);

/// The properties of an entity with values that are to lie in blobs: those declared, above the threshold, and those that would
/// break a limit of the service. `room` is how large the entity may be, in bytes. Never the value of a property of
/// evenkeel's own, nor one that views or rules compute from (`computed`).
///
/// Only values that the writer has `brought`, as long as it fits: a value that was there before is in the entity alone, and
/// once a pointer has taken its place, a redelivery could not bring it again.
///
/// # Errors
///
/// A value that has to go, and must not.
pub fn outgoing(
    large: &LargeEntity,
    entity: &Entity,
    room: usize,
    computed: &BTreeSet<String>,
    brought: impl Fn(&str) -> bool,
) -> Result<Vec<String>, ComputedFrom> {
    let mut entity = entity.clone();
    let mut names: Vec<String> = Vec::new();
    for (name, value) in entity.user_properties().filter(|(name, _)| brought(name)) {
        let stays = computed.contains(name);
        if stays && breaks_a_limit(value) {
            return Err(ComputedFrom(name.clone()));
        }
        let declared = large.properties.contains(name)
            && content_len(value).is_some_and(|bytes| bytes as u64 > large.threshold);
        if !stays && (declared || breaks_a_limit(value)) {
            names.push(name.clone());
        }
    }
    for name in &names {
        entity.properties.insert(name.clone(), stand_in());
    }
    // The largest go first, as long as going makes the entity smaller.
    for all in [false, true] {
        while entity.size() > room {
            let may_go = entity
                .user_properties()
                .filter(|(name, _)| (all || brought(name)) && !computed.contains(*name));
            let sizes =
                may_go.filter_map(|(name, value)| Some((content_len(value)?, name.clone())));
            let Some((size, name)) = sizes.max() else {
                break;
            };
            if size <= POINTER_BYTES {
                break;
            }
            entity.properties.insert(name.clone(), stand_in());
            names.push(name);
        }
    }
    Ok(names)
}

/// More than a pointer takes: 1,024 of a name, 63 of a container, a hash and the words around them.
const POINTER_BYTES: usize = 1_280;

/// As long as a pointer at most, and none itself.
fn stand_in() -> EdmValue {
    EdmValue::String("x".repeat(POINTER_BYTES))
}

/// The bytes of a value's content, where it can lie in a blob.
fn content_len(value: &EdmValue) -> Option<usize> {
    match value {
        EdmValue::String(_) if Pointer::of(value).is_some() => None,
        EdmValue::String(text) => Some(text.len()),
        EdmValue::Binary(bytes) => Some(bytes.len()),
        _ => None,
    }
}

/// The content of a value that can lie in a blob; nothing for a value of another type, or one that does already.
pub fn content(value: EdmValue) -> Option<Bytes> {
    content_len(&value)?;
    match value {
        EdmValue::String(text) => Some(text.into()),
        EdmValue::Binary(bytes) => Some(bytes.into()),
        _ => None,
    }
}

/// The content type of a value's blob, by which a reader tells the types apart.
pub const fn content_type(value: &EdmValue) -> &'static str {
    match value {
        EdmValue::String(_) => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn breaks_a_limit(value: &EdmValue) -> bool {
    match value {
        // A UTF-16 unit takes at least one byte of UTF-8.
        EdmValue::String(text) => {
            text.len() > limits::STRING_UTF16_UNITS
                && text.encode_utf16().count() > limits::STRING_UTF16_UNITS
        }
        EdmValue::Binary(bytes) => bytes.len() > limits::BINARY_BYTES,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccountName, ContainerName, EntityKey};

    const ROOM: usize = limits::ENTITY_BYTES;

    fn view(properties: &[&str], threshold: u64) -> LargeEntity {
        let properties = properties.iter().map(|name| (*name).to_owned()).collect();
        LargeEntity {
            account: AccountName::main(),
            container: ContainerName::new("large").unwrap(),
            properties,
            threshold,
        }
    }

    fn entity() -> Entity {
        Entity::new(EntityKey::new("p", "r").unwrap())
    }

    fn outgoing(
        large: &LargeEntity,
        entity: &Entity,
        room: usize,
        brought: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        super::outgoing(large, entity, room, &BTreeSet::new(), brought).unwrap()
    }

    #[test]
    fn what_is_computed_from_stays_or_is_refused() {
        let computed = BTreeSet::from(["Tags".to_owned()]);
        let outgoing = |entity: &Entity, room| {
            super::outgoing(
                &view(&["Tags", "Photo"], 100),
                entity,
                room,
                &computed,
                |_| true,
            )
        };
        let small = entity()
            .with("Tags", "x".repeat(30_000))
            .with("Photo", "x".repeat(20_000));
        assert_eq!(outgoing(&small, ROOM), Ok(vec!["Photo".to_owned()]));
        assert_eq!(
            outgoing(&small.clone().with("Photo", "x"), 10_000),
            Ok(Vec::new()),
            "it does not fit, which its limits tell"
        );
        assert_eq!(
            outgoing(&small.with("Tags", "x".repeat(32_769)), ROOM),
            Err(ComputedFrom("Tags".to_owned()))
        );
    }

    #[test]
    fn declared_values_above_the_threshold_go_out() {
        let entity = entity()
            .with("Photo", EdmValue::Binary(vec![0; 101]))
            .with("Resume", "x".repeat(100))
            .with("Name", "x".repeat(5_000))
            .with("Age", 7);
        assert_eq!(
            outgoing(
                &view(&["Photo", "Resume", "Age"], 100),
                &entity,
                ROOM,
                |_| true
            ),
            ["Photo"]
        );
        assert!(outgoing(&view(&["Photo"], 101), &entity, ROOM, |_| true).is_empty());
    }

    #[test]
    fn what_breaks_a_limit_goes_out_whether_declared_or_not() {
        let entity = entity()
            .with("A", "x".repeat(32_769))
            .with("B", EdmValue::Binary(vec![0; 65_537]))
            .with("C", "한".repeat(32_768))
            .with("ek_x", "x".repeat(40_000));
        assert_eq!(outgoing(&view(&[], 1), &entity, ROOM, |_| true), ["A", "B"]);
    }

    #[test]
    fn what_was_there_before_stays_as_long_as_the_entity_fits() {
        let small = entity()
            .with("Photo", "x".repeat(200))
            .with("Resume", "x".repeat(200));
        let brought = |name: &str| name == "Resume";
        assert_eq!(
            outgoing(&view(&["Photo", "Resume"], 100), &small, ROOM, brought),
            ["Resume"]
        );
        let large = (0..20).fold(entity(), |entity, i| {
            entity.with(format!("P{i:02}"), "x".repeat(30_000 + i))
        });
        let names = outgoing(&view(&[], 1), &large, ROOM, |name| name == "P00");
        assert_eq!(
            names.iter().map(String::as_str).collect::<Vec<_>>(),
            ["P00", "P19", "P18"]
        );
    }

    #[test]
    fn an_entity_over_a_mebibyte_sheds_its_largest_values_until_it_fits() {
        let large = (0..20).fold(entity(), |entity, i| {
            entity.with(format!("P{i:02}"), "x".repeat(30_000 + i))
        });
        let names = outgoing(&view(&[], 1), &large, ROOM, |_| true);
        assert_eq!(
            names.iter().map(String::as_str).collect::<Vec<_>>(),
            ["P19", "P18", "P17"]
        );
        let left = names.iter().fold(large.clone(), |entity, name| {
            entity.with(name.clone(), stand_in())
        });
        assert!(left.check().is_ok());
        assert!(outgoing(&view(&[], 1), &large, usize::MAX, |_| true).is_empty());
    }
}
