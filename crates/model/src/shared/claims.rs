//! Applying the claims on a partition to an entity.

use super::UnreadableDocument;
use super::properties::OwnedProperties;
use crate::catalog::TableRef;
use crate::claim::Claim;
use crate::job::Primary;
use crate::{ETag, Entity, EntityKey, Member, Site, ViewName, odata};

/// An entity after the claims on it were applied.
#[derive(Debug, Clone, PartialEq)]
pub struct OverlaidEntity {
    /// The entity with its new properties and a new token.
    pub entity: Entity,
    /// Whether the new entity differs from the stored one, apart from the token.
    pub differs: bool,
    /// The key of the entity whose claim applies; `None` if no claim applies.
    pub of: Option<EntityKey>,
    /// The other entities with claims on this entity. Their claims do not apply.
    pub others: Vec<EntityKey>,
}

/// Parses the members of a list as claims.
pub fn claims(site: &Site, members: &[Member]) -> Result<Vec<Claim>, UnreadableDocument> {
    let read =
        |member| Claim::of(member).map_err(|error| UnreadableDocument::of(site.clone(), &error));
    members.iter().map(read).collect()
}

/// Applies the claims of a view with this source to an entity. If several claims cover the entity, only one of them applies: the claim of
/// the primary from which the entity already has its properties, or else the claim of the primary with the smallest key.
pub fn receive(
    site: &Site,
    entity: &Entity,
    view: &ViewName,
    source: &TableRef,
    claims: &[Claim],
    token: &ETag,
) -> Result<OverlaidEntity, UnreadableDocument> {
    let had = OwnedProperties::read(site, entity, view)?;
    let mine: Vec<&Claim> = claims
        .iter()
        .filter(|claim| claim.is_about(&entity.key, source))
        .collect();
    let holder = had
        .as_ref()
        .filter(|had| had.by_claim && had.primary.table == source.table);
    let holds = |claim: &&&Claim| holder.is_some_and(|had| had.primary.key == claim.one);
    let first = || mine.iter().min_by_key(|claim| &claim.one);
    let chosen = mine.iter().find(holds).or_else(first).copied();
    let mut others: Vec<EntityKey> = mine.iter().map(|claim| claim.one.clone()).collect();
    others.retain(|one| chosen.is_some_and(|chosen| chosen.one != *one));
    let mut becomes = entity.clone();
    let Some(claim) = chosen else {
        // Only properties that a claim set are removed here. An earlier definition of the view may have set properties without a claim.
        let gone = had.filter(|had| had.by_claim);
        if let Some(had) = &gone {
            had.remove(site, &mut becomes, view)?;
        }
        return Ok(OverlaidEntity {
            entity: becomes,
            differs: gone.is_some(),
            of: None,
            others,
        });
    };
    let primary = Primary {
        table: source.table.clone(),
        key: claim.one.clone(),
    };
    let differs = had.as_ref().is_none_or(|had| {
        !had.by_claim
            || had.primary != primary
            || !odata::same_properties(&had.values(entity), &claim.values)
    });
    if let Some(had) = &had {
        had.remove(site, &mut becomes, view)?;
    }
    let names = claim.values.keys().cloned().collect();
    OwnedProperties {
        primary,
        token: token.clone(),
        names,
        by_claim: true,
    }
    .write(&mut becomes, view, &claim.values);
    Ok(OverlaidEntity {
        entity: becomes,
        differs,
        of: Some(claim.one.clone()),
        others,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Reach;
    use crate::{AccountName, Key, TableName};

    fn claim(rk: &str, from: &str, values: &[(&str, f64)]) -> Claim {
        let reach = Reach {
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
        Claim {
            one: EntityKey::new("Sales", rk).unwrap(),
            reach,
            values,
        }
    }

    fn received(entity: &Entity, claims: &[Claim], token: u64) -> OverlaidEntity {
        let source = TableRef {
            account: AccountName::main(),
            table: TableName::new("Departments").unwrap(),
        };
        let site = Site::Row {
            table: TableName::new("Employees").unwrap(),
            key: entity.key.clone(),
        };
        receive(
            &site,
            entity,
            &ViewName::new("names").unwrap(),
            &source,
            claims,
            &ETag::token(token),
        )
        .unwrap()
    }

    #[test]
    fn an_entity_gets_the_properties_of_a_claim_and_loses_them_with_it() {
        let entity = Entity::new(EntityKey::new("Sales", "7").unwrap()).with("Own", 1);
        let none = received(&entity, &[claim("x", "8", &[("A", 1.0)])], 1);
        assert_eq!(
            (none.differs, none.of.as_ref(), &none.entity),
            (false, None, &entity),
            "it is not in the range"
        );
        let first = received(
            &entity,
            &[claim("x", "", &[("A", f64::NAN), ("B", 2.0)])],
            2,
        );
        assert!(first.differs && first.entity.get("B") == Some(&2.0.into()));
        let again = received(
            &first.entity,
            &[claim("x", "", &[("A", f64::NAN), ("B", 2.0)])],
            3,
        );
        assert!(
            !again.differs && again.entity != first.entity,
            "the same, at a new token"
        );
        let fewer = received(&again.entity, &[claim("x", "", &[("A", 1.0)])], 4);
        assert!(fewer.differs && fewer.entity.get("B").is_none());
        let gone = received(&fewer.entity, &[], 5);
        assert_eq!((gone.differs, gone.entity), (true, entity));
    }

    #[test]
    fn of_two_claims_the_one_that_applies_already_is_kept() {
        let entity = Entity::new(EntityKey::new("Sales", "7").unwrap());
        let (a, b) = (
            claim("a", "", &[("A", 1.0)]),
            claim("b", "5", &[("A", 2.0)]),
        );
        let of_b = received(&entity, std::slice::from_ref(&b), 1);
        assert_eq!((of_b.of.as_ref(), of_b.others.len()), (Some(&b.one), 0));
        let kept = received(&of_b.entity, &[a.clone(), b.clone()], 2);
        assert_eq!(
            (kept.of.as_ref(), kept.others.as_slice(), kept.differs),
            (Some(&b.one), std::slice::from_ref(&a.one), false)
        );
        let first = received(&entity, &[a.clone(), b], 3);
        assert_eq!(first.of.as_ref(), Some(&a.one));
        let taken_over = received(&of_b.entity, std::slice::from_ref(&a), 4);
        assert!(taken_over.differs && taken_over.entity.get("A") == Some(&1.0.into()));
    }
}
