//! Large entities: the values of some properties are in blobs, and the row contains pointers
//! instead.
//!
//! A primary derives the blobs to which it points. This file also decides which values are moved to
//! blobs when a primary is written, so that writing and deriving agree.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::derive::{DeriveError, ViewContext};
use crate::catalog::LargeEntity;
use crate::job::Primary;
use crate::large::{self, Pointer, ValueFolder};
use crate::{EdmValue, Entity, limits};

/// The blobs of a primary. A blob belongs to the primary as long as the primary points to it, even
/// if the view no longer declares the property.
pub(super) fn blobs(context: &ViewContext<'_>) -> Result<BTreeSet<Pointer>, Box<DeriveError>> {
    owned(
        context.primary,
        &ValueFolder::of(context.primary),
        context.entity,
    )
}

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

/// The properties that hold pointers instead of values.
pub(super) fn in_blobs(entity: &Entity) -> BTreeSet<&str> {
    entity
        .user_properties()
        .filter(|(_, value)| Pointer::of(value).is_some())
        .map(|(name, _)| name.as_str())
        .collect()
}

/// The properties with values that are in blobs, or that may be moved to blobs because they are
/// longer than any pointer.
pub(super) fn may_move_to_blob(entity: &Entity) -> BTreeSet<&str> {
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

/// The value of a property exceeds a limit of the service, but cannot be moved to a blob because a
/// view, rule or archive computes from the property.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "property {0:?} is too large for a row, and cannot be moved to a blob because a view, rule or archive computes from it"
)]
pub struct ComputedPropertyError(pub String);

/// The properties whose values are moved to blobs:
///
/// - declared properties with values above the threshold,
/// - properties with values above a limit of the service,
/// - the properties with the largest values, if the entity has more than `room` bytes.
///
/// Evenkeel's own properties stay in the row, and so do the properties from which views, rules or
/// archives compute (`computed`).
///
/// A value that the writer has not `brought` is moved only if the entity does not fit otherwise.
/// Such a value exists only in the row. If a pointer has replaced it, a redelivered job cannot
/// supply the value again.
///
/// # Errors
///
/// A value that exceeds a limit of the service belongs to a property in `computed`.
pub fn outgoing(
    large: &LargeEntity,
    entity: &Entity,
    room: usize,
    computed: &BTreeSet<String>,
    brought: impl Fn(&str) -> bool,
) -> Result<Vec<String>, ComputedPropertyError> {
    let mut entity = entity.clone();
    let mut names: Vec<String> = Vec::new();
    for (name, value) in entity.user_properties().filter(|(name, _)| brought(name)) {
        let stays = computed.contains(name);
        if stays && breaks_a_limit(value) {
            return Err(ComputedPropertyError(name.clone()));
        }
        let declared = large.properties.contains(name)
            && content_len(value).is_some_and(|bytes| bytes as u64 > large.threshold);
        if !stays && (declared || breaks_a_limit(value)) {
            names.push(name.clone());
        }
    }
    for name in &names {
        entity.properties.insert(name.clone(), placeholder());
    }
    // The largest values are moved first, as long as a move makes the entity smaller.
    for all in [false, true] {
        while entity.size() > room {
            let may_move_to_blob = entity
                .user_properties()
                .filter(|(name, _)| (all || brought(name)) && !computed.contains(*name));
            let sizes = may_move_to_blob
                .filter_map(|(name, value)| Some((content_len(value)?, name.clone())));
            let Some((size, name)) = sizes.max() else {
                break;
            };
            if size <= POINTER_BYTES {
                break;
            }
            entity.properties.insert(name.clone(), placeholder());
            names.push(name);
        }
    }
    Ok(names)
}

/// An upper bound of a pointer's length in bytes: 1,024 for the blob's name, 63 for the container,
/// and the rest for the hash and the JSON syntax.
const POINTER_BYTES: usize = 1_280;

/// A placeholder that is at least as long as any pointer, but is not a pointer.
fn placeholder() -> EdmValue {
    EdmValue::String("x".repeat(POINTER_BYTES))
}

/// The length of a value's content in bytes; `None` if the value cannot be moved to a blob.
fn content_len(value: &EdmValue) -> Option<usize> {
    match value {
        EdmValue::String(_) if Pointer::of(value).is_some() => None,
        EdmValue::String(text) => Some(text.len()),
        EdmValue::Binary(bytes) => Some(bytes.len()),
        _ => None,
    }
}

/// The content of a value's blob. `None` if the value is a pointer, or neither a string nor binary.
pub fn content(value: EdmValue) -> Option<Bytes> {
    content_len(&value)?;
    match value {
        EdmValue::String(text) => Some(text.into()),
        EdmValue::Binary(bytes) => Some(bytes.into()),
        _ => None,
    }
}

/// The content type of a value's blob. Readers derive the type of the value from the content type.
pub const fn content_type(value: &EdmValue) -> &'static str {
    match value {
        EdmValue::String(_) => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn breaks_a_limit(value: &EdmValue) -> bool {
    match value {
        // A UTF-16 unit takes at least one byte of UTF-8. If the number of bytes is within the
        // limit, so is the number of units.
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
    fn values_that_are_computed_from_stay_or_are_refused() {
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
            "the entity does not fit, and the check of its limits reports that"
        );
        assert_eq!(
            outgoing(&small.with("Tags", "x".repeat(32_769)), ROOM),
            Err(ComputedPropertyError("Tags".to_owned()))
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
    fn values_over_a_limit_go_out_whether_declared_or_not() {
        let entity = entity()
            .with("A", "x".repeat(32_769))
            .with("B", EdmValue::Binary(vec![0; 65_537]))
            .with("C", "한".repeat(32_768))
            .with("ek_x", "x".repeat(40_000));
        assert_eq!(outgoing(&view(&[], 1), &entity, ROOM, |_| true), ["A", "B"]);
    }

    #[test]
    fn earlier_values_stay_as_long_as_the_entity_fits() {
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
            entity.with(name.clone(), placeholder())
        });
        assert!(left.check().is_ok());
        assert!(outgoing(&view(&[], 1), &large, usize::MAX, |_| true).is_empty());
    }
}
