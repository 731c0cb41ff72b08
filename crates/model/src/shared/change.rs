//! Changes of shared documents: many changes of their parts at once.

use std::collections::{BTreeMap, BTreeSet};

use super::list::{self, Description, List};
use super::properties::OwnedProperties;
use super::{SiteContent, UnreadableDocument};
use crate::catalog::Catalog;
use crate::item::Owner;
use crate::job::Primary;
use crate::{ETag, EdmValue, Entity, ItemAddress, Part, Site, ViewName, odata};

/// A change of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartChange {
    /// The address of the part.
    pub address: ItemAddress,
    /// The write.
    pub write: Edit,
    /// The owner and the values, if the part is a set of properties. The address of any other part contains all of its content.
    pub properties: Option<PropertyChange>,
}

/// Properties that a change sets or removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyChange {
    /// The owner of the properties.
    pub primary: Primary,
    /// The former owner, if the new owner takes the properties over.
    pub evicts: Option<Primary>,
    /// The values of the properties; empty if the change removes the properties.
    pub values: BTreeMap<String, EdmValue>,
}

impl PropertyChange {
    /// Whether properties of this owner may be replaced. A matching token does not prove the owner, because a footprint may be forged.
    fn may_replace(&self, owner: &Primary) -> bool {
        *owner == self.primary || self.evicts.as_ref() == Some(owner)
    }
}

/// A write of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Writes the part.
    Put {
        /// The token that the part must have; `None` if the part must be absent.
        over: Option<ETag>,
        /// The new token of the part.
        token: ETag,
    },
    /// Removes the part if it has this token. The change also succeeds if the part is absent.
    Drop(ETag),
}

impl Edit {
    /// The new token of the part.
    pub const fn token(&self) -> Option<&ETag> {
        match self {
            Self::Put { token, .. } => Some(token),
            Self::Drop(_) => None,
        }
    }
}

/// Outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The part is as requested.
    Done,
    /// The part has another token, or its presence is not as expected. The part must be read again.
    Lost,
}

/// The new state of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentUpdate {
    /// The document does not change.
    Unchanged,
    /// The document becomes this entity.
    Entity(Entity),
    /// The document is empty and must be deleted.
    Deleted,
}

/// Returns what a document has at the address of a part.
pub fn find(
    address: &ItemAddress,
    entity: Option<&Entity>,
) -> Result<SiteContent, UnreadableDocument> {
    let member = match &address.part {
        Some(Part::Member(member)) => member,
        Some(Part::Properties) => return find_properties(address, entity),
        None => return Ok(SiteContent::Foreign),
    };
    let Some(entity) = entity else {
        return Ok(SiteContent::Absent);
    };
    if !list::is_list_of(&address.view, entity) {
        return Ok(SiteContent::Foreign);
    }
    let list = List::read(&address.site, entity)?;
    Ok(list
        .members
        .get(member)
        .cloned()
        .map_or(SiteContent::Absent, SiteContent::Part))
}

fn find_properties(
    address: &ItemAddress,
    entity: Option<&Entity>,
) -> Result<SiteContent, UnreadableDocument> {
    let Some(entity) = entity else {
        return Ok(SiteContent::NoEntity);
    };
    let owned = OwnedProperties::read(&address.site, entity, &address.view)?;
    Ok(owned.map_or(SiteContent::Absent, |owned| {
        SiteContent::Owned(owned.primary, owned.token)
    }))
}

/// Whether the count or an aggregate value in a view's list does not match the members of the list. If so, another program has overwritten
/// the row, although the tokens of the members are unchanged.
pub fn is_outdated_list(
    catalog: &Catalog,
    site: &Site,
    view: &ViewName,
    entity: &Entity,
) -> Result<bool, UnreadableDocument> {
    if !list::is_list_of(view, entity) {
        return Ok(false);
    }
    let description = Description::for_list(catalog, site, view, Some(entity))?;
    let wanted = List::read(site, entity)?.write(entity.clone(), view, &description);
    Ok(!odata::same_properties(
        &wanted.properties,
        &entity.properties,
    ))
}

/// Applies changes to a document one after the other. Returns the new state of the document, and the outcomes in the order of the changes.
pub fn change(
    catalog: &Catalog,
    site: &Site,
    entity: Option<&Entity>,
    changes: &[PartChange],
) -> Result<(DocumentUpdate, Vec<ChangeOutcome>), UnreadableDocument> {
    let mut ended = vec![ChangeOutcome::Lost; changes.len()];
    let mut current = entity.cloned();
    let views: BTreeSet<&ViewName> = changes.iter().map(|change| &change.address.view).collect();
    for view in views {
        let own: Vec<(usize, &PartChange)> = changes
            .iter()
            .enumerate()
            .filter(|(_, change)| change.address.view == *view)
            .collect();
        let (members, properties): (Vec<_>, Vec<_>) = own
            .into_iter()
            .partition(|(_, change)| matches!(change.address.part, Some(Part::Member(_))));
        change_list(catalog, site, view, &mut current, &members, &mut ended)?;
        for (at, change) in properties {
            ended[at] = change_properties(site, current.as_mut(), change)?;
        }
    }
    let becomes = match current {
        None if entity.is_some() => DocumentUpdate::Deleted,
        Some(current) if entity != Some(&current) => DocumentUpdate::Entity(current),
        None | Some(_) => DocumentUpdate::Unchanged,
    };
    Ok((becomes, ended))
}

fn change_list(
    catalog: &Catalog,
    site: &Site,
    view: &ViewName,
    current: &mut Option<Entity>,
    changes: &[(usize, &PartChange)],
    ended: &mut [ChangeOutcome],
) -> Result<(), UnreadableDocument> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut list = match current {
        None => List::default(),
        Some(entity) if list::is_list_of(view, entity) => List::read(site, entity)?,
        // The row belongs to another owner, so members to drop are absent, and members to put cannot be written.
        Some(_) => {
            let drops = changes
                .iter()
                .filter(|(_, change)| matches!(change.write, Edit::Drop(_)));
            drops.for_each(|(at, _)| ended[*at] = ChangeOutcome::Done);
            return Ok(());
        }
    };
    let before = list.clone();
    for (at, change) in changes {
        ended[*at] = apply(&mut list, change);
    }
    if list == before {
        return Ok(());
    }
    *current = if list.members.is_empty() {
        None
    } else {
        Some(written(catalog, site, view, current.as_ref(), &list)?)
    };
    Ok(())
}

/// Returns the entity with the list written to it.
fn written(
    catalog: &Catalog,
    site: &Site,
    view: &ViewName,
    entity: Option<&Entity>,
    list: &List,
) -> Result<Entity, UnreadableDocument> {
    let description = Description::for_list(catalog, site, view, entity)?;
    let fresh = || site.row().map(|(_, key)| Entity::new(key.clone()));
    let Some(base) = entity.cloned().or_else(fresh) else {
        return Err(UnreadableDocument::Edited {
            site: site.clone(),
            problem: "not a row".to_owned(),
        });
    };
    Ok(list.write(base, view, &description))
}

fn change_properties(
    site: &Site,
    entity: Option<&mut Entity>,
    change: &PartChange,
) -> Result<ChangeOutcome, UnreadableDocument> {
    let view = &change.address.view;
    let Some(entity) = entity else {
        // There is no entity, so properties to drop are absent, and properties to put cannot be written.
        return Ok(if matches!(change.write, Edit::Drop(_)) {
            ChangeOutcome::Done
        } else {
            ChangeOutcome::Lost
        });
    };
    let there = OwnedProperties::read(site, entity, view)?;
    let token = there.as_ref().map(|owned| &owned.token);
    match (&change.write, &change.properties) {
        // The row is a copy. Its view rewrites copies as a whole, so the properties would be lost.
        (Edit::Put { .. }, _) if there.is_none() && Owner::of(entity).is_some() => {
            Ok(ChangeOutcome::Lost)
        }
        (Edit::Put { over, token: new }, Some(properties))
            if over.as_ref() == token
                && there
                    .as_ref()
                    .is_none_or(|there| properties.may_replace(&there.primary)) =>
        {
            if let Some(there) = &there {
                there.remove(site, entity, view)?;
            }
            let names = properties.values.keys().cloned().collect();
            OwnedProperties {
                primary: properties.primary.clone(),
                token: new.clone(),
                names,
                by_range: false,
            }
            .write(entity, view, &properties.values);
            Ok(ChangeOutcome::Done)
        }
        (Edit::Drop(at), properties) => match &there {
            Some(owned)
                if owned.token == *at
                    && properties
                        .as_ref()
                        .is_none_or(|properties| properties.may_replace(&owned.primary)) =>
            {
                owned.remove(site, entity, view)?;
                Ok(ChangeOutcome::Done)
            }
            Some(_) => Ok(ChangeOutcome::Lost),
            None => Ok(ChangeOutcome::Done),
        },
        (Edit::Put { .. }, _) => Ok(ChangeOutcome::Lost),
    }
}

/// Applies a change of one member.
pub(super) fn apply(list: &mut List, change: &PartChange) -> ChangeOutcome {
    let Some(member) = change.address.member() else {
        return ChangeOutcome::Lost;
    };
    let there = list.members.get(member);
    match &change.write {
        Edit::Put { over, token } if over.as_ref() == there => {
            list.members.insert(member.clone(), token.clone());
            ChangeOutcome::Done
        }
        Edit::Drop(at) if Some(at) == there => {
            list.members.remove(member);
            ChangeOutcome::Done
        }
        Edit::Drop(_) if there.is_none() => ChangeOutcome::Done,
        Edit::Put { .. } | Edit::Drop(_) => ChangeOutcome::Lost,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::catalog::{Aggregate, IndexEntity, OnConflict, TableRef, View, ViewKind};
    use crate::template::Template;
    use crate::{AccountName, EntityKey, Member, TableName};
    use proptest::prelude::*;

    fn catalog() -> Catalog {
        let table = |name: &str| TableRef {
            account: AccountName::main(),
            table: TableName::new(name).unwrap(),
        };
        let kind = ViewKind::IndexEntity(IndexEntity {
            target: table("Lists").into(),
            partition_key: Template::parse("p").unwrap(),
            row_key: Template::parse("{LastName}").unwrap(),
            member: vec![
                Template::parse_text("{PartitionKey}").unwrap(),
                Template::parse_text("{RowKey}").unwrap(),
            ],
            property: "Employees".to_owned(),
        });
        let name = view();
        let view = View {
            name: name.clone(),
            source: table("Employees"),
            when: None,
            kind,
            on_conflict: OnConflict::Reject,
        };
        Catalog {
            views: BTreeMap::from([(name, Arc::new(view))]),
            ..Catalog::default()
        }
    }

    fn view() -> ViewName {
        ViewName::new("by_last_name").unwrap()
    }

    fn key() -> EntityKey {
        EntityKey::new("p", "King").unwrap()
    }

    fn site() -> Site {
        Site::Row {
            table: TableName::new("Lists").unwrap(),
            key: key(),
        }
    }

    fn address(rk: &str) -> ItemAddress {
        let part = Some(Part::Member(Member(vec![
            "Sales".to_owned(),
            rk.to_owned(),
        ])));
        ItemAddress {
            view: view(),
            account: AccountName::main(),
            site: site(),
            part,
        }
    }

    fn put(rk: &str, over: Option<u64>, token: u64) -> PartChange {
        PartChange {
            address: address(rk),
            write: Edit::Put {
                over: over.map(ETag::token),
                token: ETag::token(token),
            },
            properties: None,
        }
    }

    fn drop_of(rk: &str, at: u64) -> PartChange {
        PartChange {
            address: address(rk),
            write: Edit::Drop(ETag::token(at)),
            properties: None,
        }
    }

    fn changed(
        entity: Option<&Entity>,
        changes: &[PartChange],
    ) -> (DocumentUpdate, Vec<ChangeOutcome>) {
        change(&catalog(), &site(), entity, changes).unwrap()
    }

    fn entity_of(becomes: DocumentUpdate) -> Entity {
        match becomes {
            DocumentUpdate::Entity(entity) => entity,
            other => panic!("no entity: {other:?}"),
        }
    }

    #[test]
    fn the_first_member_creates_the_list_and_the_last_one_deletes_it() {
        let (becomes, ended) = changed(None, &[put("7", None, 1)]);
        let entity = entity_of(becomes);
        assert_eq!(ended, [ChangeOutcome::Done]);
        assert_eq!(entity.text("Employees"), Some(r#"[["Sales","7"]]"#));
        assert_eq!(
            (entity.text("ek_view"), entity.text("ek_source")),
            (Some("by_last_name"), Some(r#"["Employees"]"#))
        );
        assert_eq!(entity.get("ek_count"), Some(&1_i64.into()));
        assert_eq!(
            find(&address("7"), Some(&entity)),
            Ok(SiteContent::Part(ETag::token(1)))
        );
        assert_eq!(find(&address("8"), Some(&entity)), Ok(SiteContent::Absent));
        assert_eq!(
            changed(Some(&entity), &[drop_of("7", 1)]),
            (DocumentUpdate::Deleted, vec![ChangeOutcome::Done])
        );
    }

    #[test]
    fn members_are_sorted_and_can_contain_any_text() {
        let changes = [
            put("한", None, 1),
            put("a,b\"c\\", None, 2),
            put("10", None, 3),
            put("9 ", None, 4),
            put("9", None, 5),
        ];
        let entity = entity_of(changed(None, &changes).0);
        assert_eq!(
            entity.text("Employees"),
            Some(
                r#"[["Sales","10"],["Sales","9"],["Sales","9 "],["Sales","a,b\"c\\"],["Sales","한"]]"#
            )
        );
    }

    #[test]
    fn a_change_that_expects_another_token_is_lost_and_the_others_are_not() {
        let entity = entity_of(changed(None, &[put("7", None, 1), put("8", None, 2)]).0);
        let changes = [
            put("7", None, 3),
            put("7", Some(9), 3),
            drop_of("8", 9),
            put("6", Some(1), 3),
            drop_of("6", 1),
            put("8", Some(2), 4),
        ];
        let (becomes, ended) = changed(Some(&entity), &changes);
        assert_eq!(
            ended,
            [
                ChangeOutcome::Lost,
                ChangeOutcome::Lost,
                ChangeOutcome::Lost,
                ChangeOutcome::Lost,
                ChangeOutcome::Done,
                ChangeOutcome::Done
            ]
        );
        let list = List::read(&site(), &entity_of(becomes)).unwrap();
        assert_eq!(
            list.members.values().cloned().collect::<Vec<_>>(),
            [ETag::token(1), ETag::token(4)]
        );
    }

    #[test]
    fn a_change_that_changes_nothing_writes_nothing() {
        let entity = entity_of(changed(None, &[put("7", None, 1)]).0);
        assert_eq!(
            changed(Some(&entity), &[drop_of("8", 1), put("7", None, 2)]).0,
            DocumentUpdate::Unchanged
        );
        assert_eq!(
            changed(None, &[drop_of("8", 1)]),
            (DocumentUpdate::Unchanged, vec![ChangeOutcome::Done])
        );
        assert_eq!(
            changed(None, &[put("8", None, 1), drop_of("8", 1)]).0,
            DocumentUpdate::Unchanged
        );
    }

    #[test]
    fn a_document_that_was_edited_by_hand_is_refused() {
        let entity = entity_of(changed(None, &[put("7", None, 1), put("8", None, 2)]).0);
        let broken = [
            entity.clone().with("Employees", "7,8"),
            entity
                .clone()
                .with("Employees", r#"[["Sales","8"],["Sales","7"]]"#),
            entity
                .clone()
                .with("Employees", r#"[["Sales","7"],["Sales","7"]]"#),
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
    fn a_row_of_another_owner_is_not_touched() {
        let foreign = Entity::new(key()).with("Employees", "mine");
        assert_eq!(
            find(&address("7"), Some(&foreign)),
            Ok(SiteContent::Foreign)
        );
        let (becomes, ended) = changed(Some(&foreign), &[put("7", None, 1), drop_of("7", 1)]);
        assert_eq!(
            (becomes, ended),
            (
                DocumentUpdate::Unchanged,
                vec![ChangeOutcome::Lost, ChangeOutcome::Done]
            )
        );
    }

    #[test]
    fn other_properties_of_the_entity_stay_and_a_renamed_property_moves_the_list() {
        let mut entity = entity_of(changed(None, &[put("7", None, 1)]).0).with("Note", "mine");
        let list = entity.properties.remove("Employees").unwrap();
        entity = entity.with("People", list).with("ek_list", "People");
        let entity = entity_of(changed(Some(&entity), &[put("8", None, 2)]).0);
        assert_eq!(entity.text("Note"), Some("mine"));
        assert_eq!(
            entity.text("Employees"),
            Some(r#"[["Sales","7"],["Sales","8"]]"#)
        );
        assert_eq!(entity.get("People"), None);
    }

    #[test]
    fn members_of_a_removed_view_can_be_dropped() {
        let entity = entity_of(changed(None, &[put("7", None, 1), put("8", None, 2)]).0);
        let (becomes, _) = change(
            &Catalog::default(),
            &site(),
            Some(&entity),
            &[drop_of("7", 1)],
        )
        .unwrap();
        assert_eq!(
            entity_of(becomes).text("Employees"),
            Some(r#"[["Sales","8"]]"#)
        );
    }

    fn group() -> Catalog {
        let table = |name: &str| TableRef {
            account: AccountName::main(),
            table: TableName::new(name).unwrap(),
        };
        let set = [
            ("Headcount", "count()"),
            ("Payroll", "sum(Salary)"),
            ("Least", "min(Salary)"),
        ];
        let kind = ViewKind::Aggregate(Aggregate {
            target: table("Lists").into(),
            partition_key: Template::parse("p").unwrap(),
            row_key: Template::parse("{PartitionKey}").unwrap(),
            set: set
                .map(|(name, measure)| (name.to_owned(), measure.parse().unwrap()))
                .into(),
        });
        let view = View {
            name: view(),
            source: table("Employees"),
            when: None,
            kind,
            on_conflict: OnConflict::Reject,
        };
        Catalog {
            views: BTreeMap::from([(view.name.clone(), Arc::new(view))]),
            ..Catalog::default()
        }
    }

    fn contribution(rk: &str, salary: Option<i64>) -> ItemAddress {
        let texts = ["Sales".to_owned(), rk.to_owned()]
            .into_iter()
            .chain(salary.map(|salary| format!("Salary=i{salary}")));
        ItemAddress {
            part: Some(Part::Member(Member(texts.collect()))),
            ..address(rk)
        }
    }

    #[test]
    fn measures_are_computed_from_the_present_members() {
        let put = |rk, salary, token| PartChange {
            address: contribution(rk, salary),
            write: Edit::Put {
                over: None,
                token: ETag::token(token),
            },
            properties: None,
        };
        let (becomes, _) = change(
            &group(),
            &site(),
            None,
            &[
                put("7", Some(100), 1),
                put("8", Some(20), 2),
                put("9", None, 3),
            ],
        )
        .unwrap();
        let entity = entity_of(becomes);
        let measure = |entity: &Entity, name: &str| entity.get(name).cloned();
        assert_eq!(measure(&entity, "Headcount"), Some(3_i64.into()));
        assert_eq!(
            (measure(&entity, "Payroll"), measure(&entity, "Least")),
            (Some(120_i64.into()), Some(20_i64.into()))
        );

        let drop_of = |rk, salary, at| PartChange {
            address: contribution(rk, salary),
            write: Edit::Drop(ETag::token(at)),
            properties: None,
        };
        let changes = [drop_of("7", Some(100), 1), drop_of("8", Some(20), 2)];
        for catalog in [group(), Catalog::default()] {
            let (becomes, _) = change(&catalog, &site(), Some(&entity), &changes).unwrap();
            let entity = entity_of(becomes);
            assert_eq!(
                measure(&entity, "Headcount"),
                Some(1_i64.into()),
                "also if the view is gone"
            );
            assert_eq!(
                (measure(&entity, "Payroll"), measure(&entity, "Least")),
                (Some(0_i64.into()), None)
            );
        }
    }

    fn owned(name: &str) -> ItemAddress {
        ItemAddress {
            view: ViewName::new(name).unwrap(),
            part: Some(Part::Properties),
            ..address("")
        }
    }

    fn employee(rk: &str) -> Primary {
        Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new("Sales", rk).unwrap(),
        }
    }

    fn property_change(rk: &str, values: &[(&str, &str)]) -> PropertyChange {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), EdmValue::from(*value)))
            .collect();
        PropertyChange {
            primary: employee(rk),
            evicts: None,
            values,
        }
    }

    fn set(
        name: &str,
        rk: &str,
        over: Option<u64>,
        token: u64,
        values: &[(&str, &str)],
    ) -> PartChange {
        let write = Edit::Put {
            over: over.map(ETag::token),
            token: ETag::token(token),
        };
        PartChange {
            address: owned(name),
            write,
            properties: Some(property_change(rk, values)),
        }
    }

    #[test]
    fn properties_are_set_and_removed_and_those_of_others_stay() {
        let row = Entity::new(key()).with("Name", "Sales");
        let changes = [
            set(
                "manager",
                "7",
                None,
                1,
                &[("ManagerName", "Ada"), ("ManagerPhone", "1")],
            ),
            set("deputy", "8", None, 2, &[("Deputy", "Eve")]),
        ];
        let both = entity_of(changed(Some(&row), &changes).0);
        assert_eq!(
            (
                both.text("ManagerName"),
                both.text("Deputy"),
                both.text("Name")
            ),
            (Some("Ada"), Some("Eve"), Some("Sales"))
        );
        let Ok(SiteContent::Owned(primary, token)) = find(&owned("manager"), Some(&both)) else {
            panic!("not found")
        };
        assert_eq!((primary.key.rk.as_str(), token), ("7", ETag::token(1)));
        assert_eq!(find(&owned("other"), Some(&both)), Ok(SiteContent::Absent));

        let (becomes, ended) = changed(
            Some(&both),
            &[set("manager", "7", Some(1), 3, &[("ManagerName", "Grace")])],
        );
        let renamed = entity_of(becomes);
        assert_eq!(
            (
                ended,
                renamed.text("ManagerName"),
                renamed.get("ManagerPhone")
            ),
            (vec![ChangeOutcome::Done], Some("Grace"), None)
        );
        let (becomes, ended) = changed(
            Some(&renamed),
            &[
                set("manager", "9", None, 4, &[("ManagerName", "Eve")]),
                set("manager", "9", Some(1), 4, &[]),
            ],
        );
        assert_eq!(
            (becomes, ended),
            (
                DocumentUpdate::Unchanged,
                vec![ChangeOutcome::Lost, ChangeOutcome::Lost]
            )
        );

        let drop_of = |name, at| PartChange {
            address: owned(name),
            write: Edit::Drop(ETag::token(at)),
            properties: None,
        };
        let (becomes, ended) = changed(
            Some(&renamed),
            &[
                drop_of("manager", 3),
                drop_of("deputy", 2),
                drop_of("deputy", 2),
            ],
        );
        assert_eq!(
            (becomes, ended),
            (DocumentUpdate::Entity(row), vec![ChangeOutcome::Done; 3])
        );
    }

    #[test]
    fn properties_of_another_owner_are_replaced_only_by_a_takeover_from_that_owner() {
        let row = Entity::new(key()).with("Name", "Sales");
        let stored = entity_of(
            changed(
                Some(&row),
                &[set("manager", "7", None, 1, &[("ManagerName", "Ada")])],
            )
            .0,
        );
        let by_eve = |from: Option<&str>| {
            let change = set("manager", "8", Some(1), 2, &[("ManagerName", "Eve")]);
            let properties = PropertyChange {
                evicts: from.map(employee),
                ..property_change("8", &[("ManagerName", "Eve")])
            };
            changed(
                Some(&stored),
                &[PartChange {
                    properties: Some(properties),
                    ..change
                }],
            )
        };
        for from in [None, Some("9")] {
            assert_eq!(
                by_eve(from),
                (DocumentUpdate::Unchanged, vec![ChangeOutcome::Lost]),
                "{from:?}"
            );
        }
        let (becomes, ended) = by_eve(Some("7"));
        assert_eq!(
            (ended, entity_of(becomes).text("ManagerName")),
            (vec![ChangeOutcome::Done], Some("Eve"))
        );
    }

    #[test]
    fn setting_properties_does_not_create_an_entity() {
        assert_eq!(find(&owned("manager"), None), Ok(SiteContent::NoEntity));
        let drop_of = PartChange {
            address: owned("manager"),
            write: Edit::Drop(ETag::token(1)),
            properties: None,
        };
        let (becomes, ended) = changed(
            None,
            &[
                set("manager", "7", None, 1, &[("ManagerName", "Ada")]),
                drop_of,
            ],
        );
        assert_eq!(
            (becomes, ended),
            (
                DocumentUpdate::Unchanged,
                vec![ChangeOutcome::Lost, ChangeOutcome::Done]
            )
        );
    }

    #[test]
    fn properties_with_an_unreadable_owner_are_left_alone() {
        for owner in [
            "{}",
            "Ada",
            r#"{"v":1,"source":{"table":"Employees","pk":"Sales","rk":"7"},"token":"x","set":["ek_view"]}"#,
        ] {
            let row = Entity::new(key()).with("ek_owner_manager", owner);
            assert!(find(&owned("manager"), Some(&row)).is_err(), "{owner}");
            assert!(
                change(
                    &catalog(),
                    &site(),
                    Some(&row),
                    &[set("manager", "7", None, 1, &[])]
                )
                .is_err()
            );
        }
    }

    #[test]
    fn a_replacement_keeps_properties_that_views_have_set() {
        let row = Entity::new(key()).with("Name", "Sales");
        let stored = entity_of(
            changed(
                Some(&row),
                &[set("manager", "7", None, 1, &[("ManagerName", "Ada")])],
            )
            .0,
        );
        let new = crate::shared::keep_view_properties(
            &stored,
            Entity::new(key())
                .with("Name", "Sales and more")
                .with("ManagerName", "nobody"),
        )
        .unwrap();
        assert_eq!(
            (new.text("Name"), new.text("ManagerName")),
            (Some("Sales and more"), Some("Ada"))
        );
        assert!(matches!(
            find(&owned("manager"), Some(&new)),
            Ok(SiteContent::Owned(..))
        ));
    }

    proptest! {
        #[test]
        fn sequences_of_changes_have_the_same_result_as_on_a_map(steps in proptest::collection::vec((0..6_u8, 0..3_u8, any::<bool>()), 0..60)) {
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
                    Edit::Put { over, .. } if *over == there.map(ETag::token) => { map.insert(member, token); ChangeOutcome::Done }
                    Edit::Drop(at) if Some(at.clone()) == there.map(ETag::token) => { map.remove(&member); ChangeOutcome::Done }
                    Edit::Drop(_) if there.is_none() => ChangeOutcome::Done,
                    _ => ChangeOutcome::Lost,
                };
                let (becomes, ended) = changed(entity.as_ref(), &[one]);
                prop_assert_eq!(ended, vec![expected]);
                match becomes { DocumentUpdate::Unchanged => {} DocumentUpdate::Entity(new) => entity = Some(new), DocumentUpdate::Deleted => entity = None }
                let list = entity.as_ref().map(|entity| List::read(&site(), entity).unwrap()).unwrap_or_default();
                let found: Vec<(String, ETag)> = list.members.into_iter().map(|(member, token)| (member.0[1].clone(), token)).collect();
                let wanted: Vec<(String, ETag)> = map.iter().map(|(member, token)| (format!("{member}\"한"), ETag::token(*token))).collect();
                prop_assert_eq!(found, wanted);
                prop_assert!(entity.as_ref().is_none_or(|entity| matches!(entity.get("ek_count"), Some(EdmValue::Int64(_)))));
            }
        }
    }
}
