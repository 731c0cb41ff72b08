//! Applies the range overlays on a partition to an entity.

use super::UnreadableDocument;
use super::properties::OwnedProperties;
use crate::catalog::TableRef;
use crate::job::Primary;
use crate::range_overlay::RangeOverlay;
use crate::{ETag, Entity, EntityKey, Member, Site, ViewName, odata};

/// An entity to which the range overlays of a view are applied.
#[derive(Debug, Clone, PartialEq)]
pub struct OverlaidEntity {
    /// The entity with its new properties and a new token.
    pub entity: Entity,
    /// Whether the new entity differs from the stored one, apart from the token.
    pub differs: bool,
    /// The owner of the range overlay that applies; `None` if no overlay applies.
    pub owner: Option<EntityKey>,
    /// The owners of the other range overlays that cover this entity. Their overlays do not apply.
    pub other_owners: Vec<EntityKey>,
}

/// Parses the members of a list as range overlays.
pub fn parse_range_overlays(
    site: &Site,
    members: &[Member],
) -> Result<Vec<RangeOverlay>, UnreadableDocument> {
    let parse = |member| {
        RangeOverlay::from_member(member)
            .map_err(|error| UnreadableDocument::of(site.clone(), &error))
    };
    members.iter().map(parse).collect()
}

/// Applies the range overlays of a view with this source to an entity. If several cover the entity, the overlay that set its present
/// properties applies, or else the overlay of the owner with the smallest key.
pub fn apply_range_overlays(
    site: &Site,
    entity: &Entity,
    view: &ViewName,
    source: &TableRef,
    overlays: &[RangeOverlay],
    token: &ETag,
) -> Result<OverlaidEntity, UnreadableDocument> {
    let present = OwnedProperties::read(site, entity, view)?;
    let covering: Vec<&RangeOverlay> = overlays
        .iter()
        .filter(|overlay| overlay.applies_to(&entity.key, source))
        .collect();
    let present_owner = present
        .as_ref()
        .filter(|present| present.by_range && present.primary.table == source.table)
        .map(|present| &present.primary.key);
    let applied = covering
        .iter()
        .find(|overlay| present_owner == Some(&overlay.owner))
        .or_else(|| covering.iter().min_by_key(|overlay| &overlay.owner))
        .copied();
    let mut other_owners: Vec<EntityKey> = covering
        .iter()
        .map(|overlay| overlay.owner.clone())
        .collect();
    other_owners.retain(|owner| applied.is_some_and(|applied| applied.owner != *owner));
    let mut becomes = entity.clone();
    let Some(overlay) = applied else {
        // An earlier definition with `targets = "one"` may have set properties. A pass over their primary removes them, not this function.
        let removed = present.filter(|present| present.by_range);
        if let Some(removed) = &removed {
            removed.remove(site, &mut becomes, view)?;
        }
        return Ok(OverlaidEntity {
            entity: becomes,
            differs: removed.is_some(),
            owner: None,
            other_owners,
        });
    };
    let primary = Primary {
        table: source.table.clone(),
        key: overlay.owner.clone(),
    };
    let differs = present.as_ref().is_none_or(|present| {
        !present.by_range
            || present.primary != primary
            || !odata::same_properties(&present.values(entity), &overlay.values)
    });
    if let Some(present) = &present {
        present.remove(site, &mut becomes, view)?;
    }
    let names = overlay.values.keys().cloned().collect();
    OwnedProperties {
        primary,
        token: token.clone(),
        names,
        by_range: true,
    }
    .write(&mut becomes, view, &overlay.values);
    Ok(OverlaidEntity {
        entity: becomes,
        differs,
        owner: Some(overlay.owner.clone()),
        other_owners,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_overlay::TargetRange;
    use crate::{AccountName, Key, TableName};

    fn overlay(rk: &str, from: &str, values: &[(&str, f64)]) -> RangeOverlay {
        let range = TargetRange {
            account: AccountName::main(),
            table: TableName::new("Employees").unwrap(),
            pk: Key::new("Sales").unwrap(),
            from: Key::new(from).unwrap(),
            before: None,
        };
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .collect();
        RangeOverlay {
            owner: EntityKey::new("Sales", rk).unwrap(),
            range,
            values,
        }
    }

    fn overlaid(entity: &Entity, overlays: &[RangeOverlay], token: u64) -> OverlaidEntity {
        let source = TableRef {
            account: AccountName::main(),
            table: TableName::new("Departments").unwrap(),
        };
        let site = Site::Row {
            table: TableName::new("Employees").unwrap(),
            key: entity.key.clone(),
        };
        apply_range_overlays(
            &site,
            entity,
            &ViewName::new("names").unwrap(),
            &source,
            overlays,
            &ETag::token(token),
        )
        .unwrap()
    }

    #[test]
    fn an_entity_gets_the_properties_of_an_overlay_and_loses_them_with_it() {
        let entity = Entity::new(EntityKey::new("Sales", "7").unwrap()).with("Own", 1);
        let none = overlaid(&entity, &[overlay("x", "8", &[("A", 1.0)])], 1);
        assert_eq!(
            (none.differs, none.owner.as_ref(), &none.entity),
            (false, None, &entity),
            "the entity is not in the range"
        );
        let first = overlaid(
            &entity,
            &[overlay("x", "", &[("A", f64::NAN), ("B", 2.0)])],
            2,
        );
        assert!(first.differs && first.entity.get("B") == Some(&2.0.into()));
        let again = overlaid(
            &first.entity,
            &[overlay("x", "", &[("A", f64::NAN), ("B", 2.0)])],
            3,
        );
        assert!(
            !again.differs && again.entity != first.entity,
            "the same properties must get a new token"
        );
        let fewer = overlaid(&again.entity, &[overlay("x", "", &[("A", 1.0)])], 4);
        assert!(fewer.differs && fewer.entity.get("B").is_none());
        let gone = overlaid(&fewer.entity, &[], 5);
        assert_eq!((gone.differs, gone.entity), (true, entity));
    }

    #[test]
    fn of_two_overlays_the_one_that_applies_already_is_kept() {
        let entity = Entity::new(EntityKey::new("Sales", "7").unwrap());
        let (a, b) = (
            overlay("a", "", &[("A", 1.0)]),
            overlay("b", "5", &[("A", 2.0)]),
        );
        let of_b = overlaid(&entity, std::slice::from_ref(&b), 1);
        assert_eq!(
            (of_b.owner.as_ref(), of_b.other_owners.len()),
            (Some(&b.owner), 0)
        );
        let kept = overlaid(&of_b.entity, &[a.clone(), b.clone()], 2);
        assert_eq!(
            (
                kept.owner.as_ref(),
                kept.other_owners.as_slice(),
                kept.differs
            ),
            (Some(&b.owner), std::slice::from_ref(&a.owner), false)
        );
        let first = overlaid(&entity, &[a.clone(), b], 3);
        assert_eq!(first.owner.as_ref(), Some(&a.owner));
        let taken_over = overlaid(&of_b.entity, std::slice::from_ref(&a), 4);
        assert!(taken_over.differs && taken_over.entity.get("A") == Some(&1.0.into()));
    }
}
