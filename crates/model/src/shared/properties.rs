//! Properties that a view sets on another owner's entity, and the record of their owner.
//!
//! `ek_owner_<view>` = `{"v": 1, "source": {"table": …, "pk": …, "rk": …}, "token": …, "set": [names]}`. The field `set` names the
//! properties that were set, so that they can be removed under any later definition of the view.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::UnreadableDocument;
use crate::entity::{RESERVED_PREFIX, valid_property_name};
use crate::item::OWNER_PREFIX;
use crate::job::Primary;
use crate::stored::{self, FormatError, FormatVersion};
use crate::{ETag, EdmValue, Entity, Site, ViewName};

/// Properties that a view has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedProperties {
    /// The primary that the properties come from.
    pub primary: Primary,
    /// The token of the properties.
    pub token: ETag,
    /// The names of the properties.
    pub names: Vec<String>,
    /// Whether the properties come from a range overlay. No footprint lists such properties.
    pub by_range: bool,
}

/// Format version of an owner property.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    v: FormatVersion<VERSION>,
    source: Primary,
    token: ETag,
    set: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    by_range: bool,
}

/// Returns the name of the property that records the owner of the properties that a view sets.
pub fn owner_property(view: &ViewName) -> String {
    format!("{OWNER_PREFIX}{view}")
}

impl OwnedProperties {
    /// The properties that a view has set on an entity; `None` if it has set none.
    pub fn read(
        site: &Site,
        entity: &Entity,
        view: &ViewName,
    ) -> Result<Option<Self>, UnreadableDocument> {
        let name = owner_property(view);
        let wrong = |problem: String| UnreadableDocument::Edited {
            site: site.clone(),
            problem: format!("{name} {problem}"),
        };
        let text = match entity.get(&name) {
            None => return Ok(None),
            Some(EdmValue::String(text)) => text,
            Some(other) => return Err(wrong(format!("is of type {}", other.type_name()))),
        };
        let wire =
            owner(&name, text).map_err(|error| UnreadableDocument::of(site.clone(), &error))?;
        if let Some(name) = wire
            .set
            .iter()
            .find(|name| !valid_property_name(name) || name.starts_with(RESERVED_PREFIX))
        {
            return Err(wrong(format!("names the invalid property {name:?}")));
        }
        Ok(Some(Self {
            primary: wire.source,
            token: wire.token,
            names: wire.set,
            by_range: wire.by_range,
        }))
    }

    /// Returns the values of the properties on the entity, by name.
    pub fn values(&self, entity: &Entity) -> BTreeMap<String, EdmValue> {
        self.names
            .iter()
            .filter_map(|name| Some((name.clone(), entity.get(name)?.clone())))
            .collect()
    }

    /// Sets the properties and their owner on an entity.
    pub(super) fn write(
        self,
        entity: &mut Entity,
        view: &ViewName,
        values: &BTreeMap<String, EdmValue>,
    ) {
        let Self {
            primary,
            token,
            names,
            by_range,
        } = self;
        let wire = Wire {
            v: FormatVersion,
            source: primary,
            token,
            set: names,
            by_range,
        };
        // Serialising texts cannot fail.
        let text = serde_json::to_string(&wire).unwrap_or_default();
        entity
            .properties
            .insert(owner_property(view), EdmValue::String(text));
        entity.properties.extend(
            values
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
    }

    /// Removes the properties. A property stays if another view has set it too, because it may have passed from this view to the other
    /// view.
    pub(super) fn remove(
        &self,
        site: &Site,
        entity: &mut Entity,
        view: &ViewName,
    ) -> Result<(), UnreadableDocument> {
        let others = owners(entity).filter(|(name, _)| *name != owner_property(view));
        let of_others: BTreeSet<String> = others
            .map(|(_, read)| read.map(|wire| wire.set))
            .filter(|read| !matches!(read, Err(FormatError::Malformed { .. })))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| UnreadableDocument::of(site.clone(), &error))?
            .into_iter()
            .flatten()
            .collect();
        entity.properties.remove(&owner_property(view));
        for name in self.names.iter().filter(|name| !of_others.contains(*name)) {
            entity.properties.remove(name);
        }
        Ok(())
    }
}

fn owner(name: &str, text: &str) -> Result<Wire, FormatError> {
    stored::read(text, VERSION, || name.to_owned())
}

/// The owner properties of an entity.
fn owners(entity: &Entity) -> impl Iterator<Item = (&str, Result<Wire, FormatError>)> {
    let owned = entity
        .properties
        .iter()
        .filter(|(name, _)| name.starts_with(OWNER_PREFIX));
    owned.map(|(name, value)| {
        let text = value.as_str().unwrap_or_default();
        (name.as_str(), owner(name, text))
    })
}

/// Refuses an entity with an owner property of an unknown version, because it is unknown which properties a view has set. An unreadable
/// owner property is accepted and names no properties.
fn known_owners(entity: &Entity) -> Result<(), FormatError> {
    match owners(entity).find_map(|(_, read)| read.err().filter(FormatError::is_of_version)) {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// Prepares an entity that is being relocated: removes the properties that views have set, and returns the primaries of these properties.
/// Syncs of the primaries set the properties again at the new location. Properties of range overlays need no sync, because range overlays are read at the
/// new location.
pub fn without_view_properties(entity: Entity) -> Result<(Entity, BTreeSet<Primary>), FormatError> {
    known_owners(&entity)?;
    Ok(split(entity))
}

/// Removes the properties that views have set, for comparisons. Properties with an unreadable owner stay.
#[must_use]
pub fn own(entity: Entity) -> Entity {
    split(entity).0
}

fn split(mut entity: Entity) -> (Entity, BTreeSet<Primary>) {
    let owned: Vec<(String, Wire)> = owners(&entity)
        .filter_map(|(name, read)| Some((name.to_owned(), read.ok()?)))
        .collect();
    let mut primaries = BTreeSet::new();
    for (owner, wire) in owned {
        entity
            .properties
            .retain(|name, _| *name != owner && !wire.set.contains(name));
        primaries.extend((!wire.by_range).then_some(wire.source));
    }
    (entity, primaries)
}

/// Copies the properties that views have set on the stored entity to the entity that replaces it. These properties belong to the views, not
/// to the writer.
pub fn keep_view_properties(stored: &Entity, mut entity: Entity) -> Result<Entity, FormatError> {
    known_owners(stored)?;
    for (owner, read) in owners(stored) {
        let set = read.map(|wire| wire.set).unwrap_or_default();
        for name in set.into_iter().chain([owner.to_owned()]) {
            if let Some(value) = stored.get(&name) {
                entity.properties.insert(name, value.clone());
            }
        }
    }
    Ok(entity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntityKey, TableName};

    fn view(name: &str) -> ViewName {
        ViewName::new(name).unwrap()
    }

    fn owned(names: &[&str]) -> (OwnedProperties, BTreeMap<String, EdmValue>) {
        let primary = Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new("Sales", "7").unwrap(),
        };
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let values = names
            .iter()
            .map(|name| (name.clone(), EdmValue::from("Ada")))
            .collect();
        (
            OwnedProperties {
                primary,
                token: ETag::token(1),
                names,
                by_range: false,
            },
            values,
        )
    }

    fn department() -> (Entity, Site) {
        let key = EntityKey::new("Sales", "department").unwrap();
        let site = Site::Row {
            table: TableName::new("Departments").unwrap(),
            key: key.clone(),
        };
        (Entity::new(key).with("Name", "Sales"), site)
    }

    const WRITTEN: &str = r#"{"v":1,"source":{"table":"Employees","pk":"Sales","rk":"7"},"token":"1","set":["ManagerName"]}"#;

    #[test]
    fn an_owner_is_read_as_it_was_written() {
        let (mut entity, site) = department();
        let (mut owned, values) = owned(&["ManagerName"]);
        owned.token = ETag::new("1").unwrap();
        owned.clone().write(&mut entity, &view("manager"), &values);
        assert_eq!(entity.text("ek_owner_manager"), Some(WRITTEN));
        assert_eq!(
            OwnedProperties::read(&site, &entity, &view("manager")),
            Ok(Some(owned))
        );
    }

    /// A program that removes or keeps the properties of views must know which properties these are.
    #[test]
    fn an_owner_of_a_newer_version_is_refused_and_one_that_is_nonsense_owns_nothing() {
        let (entity, site) = department();
        let with = |text: &str| {
            entity
                .clone()
                .with("ManagerName", "Ada")
                .with("ek_owner_manager", text)
        };
        let newer = with(&WRITTEN.replacen(r#""v":1"#, r#""v":2"#, 1));
        let mut cleared = newer.clone();
        let (of_other, _) = owned(&["ManagerName"]);
        let errors = [
            OwnedProperties::read(&site, &newer, &view("manager"))
                .unwrap_err()
                .to_string(),
            of_other
                .remove(&site, &mut cleared, &view("other"))
                .unwrap_err()
                .to_string(),
            without_view_properties(newer.clone())
                .unwrap_err()
                .to_string(),
            keep_view_properties(&newer, entity.clone())
                .unwrap_err()
                .to_string(),
        ];
        for error in errors {
            assert!(
                error.contains("ek_owner_manager has format version 2")
                    && error.contains("Update this program"),
                "{error}"
            );
        }
        assert_eq!(cleared, newer);
        let nonsense = with("?");
        assert!(OwnedProperties::read(&site, &nonsense, &view("manager")).is_err());
        assert_eq!(
            without_view_properties(nonsense.clone()),
            Ok((nonsense, BTreeSet::new()))
        );
    }

    #[test]
    fn a_property_set_by_two_views_is_removed_with_the_last_of_them() {
        let (department, site) = department();
        for (first, second) in [("former", "later"), ("later", "former")] {
            let mut entity = department.clone();
            let both = [
                (first, owned(&["ManagerName", "ManagerPhone"])),
                (second, owned(&["ManagerName"])),
            ];
            for (name, (one, values)) in &both {
                one.clone().write(&mut entity, &view(name), values);
            }
            let [(_, (of_first, _)), (_, (of_second, _))] = both;
            of_first.remove(&site, &mut entity, &view(first)).unwrap();
            assert_eq!(
                (entity.text("ManagerName"), entity.get("ManagerPhone")),
                (Some("Ada"), None),
                "{first}"
            );
            of_second.remove(&site, &mut entity, &view(second)).unwrap();
            assert_eq!(entity, department, "{second}");
        }
    }
}
