//! Changing documents: many changes of their parts at once.

use std::collections::BTreeSet;

use super::list::{self, List};
use super::{Found, Nonsense};
use crate::catalog::{Catalog, ViewKind};
use crate::model::{ETag, Entity, ItemAddress, Part, Site, ViewName};

/// A change of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which part.
    pub address: ItemAddress,
    /// What happens to it.
    pub write: Write,
}

/// What happens to a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// It is written.
    Put {
        /// Over this token; where there is none it must be absent.
        over: Option<ETag>,
        /// Its token from now on.
        token: ETag,
    },
    /// It is taken out at this token; absent is fine.
    Drop(ETag),
}

impl Write {
    /// The part's token from now on.
    pub const fn token(&self) -> Option<&ETag> {
        match self {
            Self::Put { token, .. } => Some(token),
            Self::Drop(_) => None,
        }
    }
}

/// How a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// As it was meant to.
    Done,
    /// The part is at another token, or there, or not there: look again.
    Lost,
}

/// What a document becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Becomes {
    /// Nothing changes.
    Same,
    /// This entity.
    Entity(Entity),
    /// Nothing is left in it: the row goes.
    Gone,
}

/// What lies where a part should.
pub fn find(address: &ItemAddress, entity: Option<&Entity>) -> Result<Found, Nonsense> {
    let Some(entity) = entity else { return Ok(Found::Absent) };
    if !list::is_list_of(&address.view, entity) {
        return Ok(Found::Foreign);
    }
    let list = List::read(&address.site, entity)?;
    let Some(Part::Member(member)) = &address.part else { return Ok(Found::Foreign) };
    Ok(list.members.get(member).cloned().map_or(Found::Absent, Found::Part))
}

/// Applies changes to a document, one after the other. Returns what it becomes and how each ended, in order.
pub fn change(catalog: &Catalog, site: &Site, entity: Option<&Entity>, changes: &[Change]) -> Result<(Becomes, Vec<Ended>), Nonsense> {
    let mut ended = vec![Ended::Lost; changes.len()];
    let mut current = entity.cloned();
    let views: BTreeSet<&ViewName> = changes.iter().map(|change| &change.address.view).collect();
    for view in views {
        let own = || changes.iter().enumerate().filter(|(_, change)| change.address.view == *view);
        let mut list = match &current {
            None => List::default(),
            Some(entity) if list::is_list_of(view, entity) => List::read(site, entity)?,
            // Somebody else's row: what is to be written is not, and what is to be taken out is not there.
            Some(_) => {
                own().filter(|(_, change)| matches!(change.write, Write::Drop(_))).for_each(|(at, _)| ended[at] = Ended::Done);
                continue;
            }
        };
        let before = list.clone();
        for (at, change) in own() {
            ended[at] = apply(&mut list, change);
        }
        if list == before {
            continue;
        }
        current = if list.members.is_empty() { None } else { Some(written(catalog, site, view, current.as_ref(), &list)?) };
    }
    let becomes = match current {
        None if entity.is_some() => Becomes::Gone,
        Some(current) if entity != Some(&current) => Becomes::Entity(current),
        None | Some(_) => Becomes::Same,
    };
    Ok((becomes, ended))
}

/// The entity that holds a list. What the catalog says of its view counts, or what the list says of itself where the
/// view is gone.
fn written(catalog: &Catalog, site: &Site, view: &ViewName, entity: Option<&Entity>, list: &List) -> Result<Entity, Nonsense> {
    let declared = catalog.views.get(view).and_then(|view| match &view.kind {
        ViewKind::IndexEntity(index) => Some((view.source.table.clone(), index.property.clone())),
        ViewKind::SecondaryIndex(_) => None,
    });
    let Some((source, property)) = declared.or_else(|| entity.and_then(list::description)) else {
        return Err(Nonsense { site: site.clone(), problem: format!("nothing says what view {view} lists") });
    };
    let base = entity.cloned().unwrap_or_else(|| Entity::new(site.key().clone()));
    Ok(list.write(base, view, &source, &property))
}

fn apply(list: &mut List, change: &Change) -> Ended {
    let Some(Part::Member(member)) = &change.address.part else { return Ended::Lost };
    let there = list.members.get(member);
    match &change.write {
        Write::Put { over, token } if over.as_ref() == there => {
            list.members.insert(member.clone(), token.clone());
            Ended::Done
        }
        Write::Drop(at) if Some(at) == there => {
            list.members.remove(member);
            Ended::Done
        }
        Write::Drop(_) if there.is_none() => Ended::Done,
        Write::Put { .. } | Write::Drop(_) => Ended::Lost,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::catalog::{IndexEntity, OnConflict, TableRef, View};
    use crate::model::template::Template;
    use crate::model::{AccountName, EdmValue, EntityKey, Member, TableName};
    use proptest::prelude::*;

    fn catalog() -> Catalog {
        let table = |name: &str| TableRef { account: AccountName::main(), table: TableName::new(name).unwrap() };
        let kind = ViewKind::IndexEntity(IndexEntity {
            target: table("Lists"),
            partition_key: Template::parse("p").unwrap(),
            row_key: Template::parse("{LastName}").unwrap(),
            member: vec![Template::parse_text("{PartitionKey}").unwrap(), Template::parse_text("{RowKey}").unwrap()],
            property: "Employees".to_owned(),
        });
        let name = view();
        let view = View { name: name.clone(), source: table("Employees"), when: None, kind, on_conflict: OnConflict::Reject };
        Catalog { views: BTreeMap::from([(name, Arc::new(view))]), ..Catalog::default() }
    }

    fn view() -> ViewName {
        ViewName::new("by_last_name").unwrap()
    }

    fn key() -> EntityKey {
        EntityKey::new("p", "King").unwrap()
    }

    fn site() -> Site {
        Site::Row { table: TableName::new("Lists").unwrap(), key: key() }
    }

    fn address(rk: &str) -> ItemAddress {
        let part = Some(Part::Member(Member(vec!["Sales".to_owned(), rk.to_owned()])));
        ItemAddress { view: view(), account: AccountName::main(), site: site(), part }
    }

    fn put(rk: &str, over: Option<u64>, token: u64) -> Change {
        Change { address: address(rk), write: Write::Put { over: over.map(ETag::token), token: ETag::token(token) } }
    }

    fn drop_of(rk: &str, at: u64) -> Change {
        Change { address: address(rk), write: Write::Drop(ETag::token(at)) }
    }

    fn changed(entity: Option<&Entity>, changes: &[Change]) -> (Becomes, Vec<Ended>) {
        change(&catalog(), &site(), entity, changes).unwrap()
    }

    fn entity_of(becomes: Becomes) -> Entity {
        match becomes {
            Becomes::Entity(entity) => entity,
            other => panic!("no entity: {other:?}"),
        }
    }

    #[test]
    fn the_first_member_makes_the_list_and_the_last_one_takes_it_along() {
        let (becomes, ended) = changed(None, &[put("7", None, 1)]);
        let entity = entity_of(becomes);
        assert_eq!(ended, [Ended::Done]);
        assert_eq!(entity.text("Employees"), Some(r#"[["Sales","7"]]"#));
        assert_eq!((entity.text("ek_view"), entity.text("ek_source")), (Some("by_last_name"), Some(r#"["Employees"]"#)));
        assert_eq!(entity.get("ek_count"), Some(&1_i64.into()));
        assert_eq!(find(&address("7"), Some(&entity)), Ok(Found::Part(ETag::token(1))));
        assert_eq!(find(&address("8"), Some(&entity)), Ok(Found::Absent));
        assert_eq!(changed(Some(&entity), &[drop_of("7", 1)]), (Becomes::Gone, vec![Ended::Done]));
    }

    #[test]
    fn members_are_sorted_and_hold_any_text() {
        let changes = [put("한", None, 1), put("a,b\"c\\", None, 2), put("10", None, 3), put("9 ", None, 4), put("9", None, 5)];
        let entity = entity_of(changed(None, &changes).0);
        assert_eq!(entity.text("Employees"), Some(r#"[["Sales","10"],["Sales","9"],["Sales","9 "],["Sales","a,b\"c\\"],["Sales","한"]]"#));
    }

    #[test]
    fn a_change_that_expects_another_token_is_lost_and_the_others_are_not() {
        let entity = entity_of(changed(None, &[put("7", None, 1), put("8", None, 2)]).0);
        let changes =
            [put("7", None, 3), put("7", Some(9), 3), drop_of("8", 9), put("6", Some(1), 3), drop_of("6", 1), put("8", Some(2), 4)];
        let (becomes, ended) = changed(Some(&entity), &changes);
        assert_eq!(ended, [Ended::Lost, Ended::Lost, Ended::Lost, Ended::Lost, Ended::Done, Ended::Done]);
        let list = List::read(&site(), &entity_of(becomes)).unwrap();
        assert_eq!(list.members.values().cloned().collect::<Vec<_>>(), [ETag::token(1), ETag::token(4)]);
    }

    #[test]
    fn a_change_that_changes_nothing_writes_nothing() {
        let entity = entity_of(changed(None, &[put("7", None, 1)]).0);
        assert_eq!(changed(Some(&entity), &[drop_of("8", 1), put("7", None, 2)]).0, Becomes::Same);
        assert_eq!(changed(None, &[drop_of("8", 1)]), (Becomes::Same, vec![Ended::Done]));
        assert_eq!(changed(None, &[put("8", None, 1), drop_of("8", 1)]).0, Becomes::Same);
    }

    #[test]
    fn what_was_edited_by_hand_is_refused_and_not_guessed() {
        let entity = entity_of(changed(None, &[put("7", None, 1), put("8", None, 2)]).0);
        let broken = [
            entity.clone().with("Employees", "7,8"),
            entity.clone().with("Employees", r#"[["Sales","8"],["Sales","7"]]"#),
            entity.clone().with("Employees", r#"[["Sales","7"],["Sales","7"]]"#),
            entity.clone().with("Employees", r#"[["Sales","7"]]"#),
            entity.clone().with("Employees", 7),
            entity.clone().with("ek_tokens", r#"["x"]"#),
            entity.clone().with("ek_count", 2),
            entity.clone().with("ek_count", 3_i64),
            entity.clone().with("ek_list", "Nowhere"),
        ];
        for broken in broken {
            assert!(find(&address("7"), Some(&broken)).is_err(), "{broken:?}");
            assert!(change(&catalog(), &site(), Some(&broken), &[put("9", None, 3)]).is_err());
        }
    }

    #[test]
    fn somebody_elses_row_is_not_touched() {
        let foreign = Entity::new(key()).with("Employees", "mine");
        assert_eq!(find(&address("7"), Some(&foreign)), Ok(Found::Foreign));
        let (becomes, ended) = changed(Some(&foreign), &[put("7", None, 1), drop_of("7", 1)]);
        assert_eq!((becomes, ended), (Becomes::Same, vec![Ended::Lost, Ended::Done]));
    }

    #[test]
    fn what_others_keep_in_the_entity_stays_and_a_renamed_property_moves_the_list() {
        let mut entity = entity_of(changed(None, &[put("7", None, 1)]).0).with("Note", "mine");
        let list = entity.properties.remove("Employees").unwrap();
        entity = entity.with("People", list).with("ek_list", "People");
        let entity = entity_of(changed(Some(&entity), &[put("8", None, 2)]).0);
        assert_eq!(entity.text("Note"), Some("mine"));
        assert_eq!(entity.text("Employees"), Some(r#"[["Sales","7"],["Sales","8"]]"#));
        assert_eq!(entity.get("People"), None);
    }

    #[test]
    fn members_of_a_view_that_is_gone_can_be_taken_out() {
        let entity = entity_of(changed(None, &[put("7", None, 1), put("8", None, 2)]).0);
        let (becomes, _) = change(&Catalog::default(), &site(), Some(&entity), &[drop_of("7", 1)]).unwrap();
        assert_eq!(entity_of(becomes).text("Employees"), Some(r#"[["Sales","8"]]"#));
    }

    proptest! {
        #[test]
        fn any_sequence_of_changes_leaves_what_a_map_would(steps in proptest::collection::vec((0..6_u8, 0..3_u8, any::<bool>()), 0..60)) {
            let (mut entity, mut map): (Option<Entity>, BTreeMap<u8, u64>) = (None, BTreeMap::new());
            for (step, (member, kind, right)) in steps.into_iter().enumerate() {
                let (rk, token, there) = (format!("{member}\"한"), step as u64 + 1, map.get(&member).copied());
                let guess = if right { there } else { Some(1_000) };
                let one = match (kind, guess) {
                    (0, _) => put(&rk, None, token),
                    (1, guess) => put(&rk, guess, token),
                    (_, guess) => drop_of(&rk, guess.unwrap_or(1_000)),
                };
                let expected = match &one.write {
                    Write::Put { over, .. } if *over == there.map(ETag::token) => { map.insert(member, token); Ended::Done }
                    Write::Drop(at) if Some(at.clone()) == there.map(ETag::token) => { map.remove(&member); Ended::Done }
                    Write::Drop(_) if there.is_none() => Ended::Done,
                    _ => Ended::Lost,
                };
                let (becomes, ended) = changed(entity.as_ref(), &[one]);
                prop_assert_eq!(ended, vec![expected]);
                match becomes { Becomes::Same => {} Becomes::Entity(new) => entity = Some(new), Becomes::Gone => entity = None }
                let list = entity.as_ref().map(|entity| List::read(&site(), entity).unwrap()).unwrap_or_default();
                let found: Vec<(String, ETag)> = list.members.into_iter().map(|(member, token)| (member.0[1].clone(), token)).collect();
                let wanted: Vec<(String, ETag)> = map.iter().map(|(member, token)| (format!("{member}\"한"), ETag::token(*token))).collect();
                prop_assert_eq!(found, wanted);
                prop_assert!(entity.as_ref().is_none_or(|entity| matches!(entity.get("ek_count"), Some(EdmValue::Int64(_)))));
            }
        }
    }
}
