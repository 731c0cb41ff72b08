//! Properties that a view keeps on another owner's entity, and their owner.
//!
//! `ek_owner_<view>` = `{"source": [table, pk, rk], "token": …, "set": [names]}`. It names the properties that were set, so that they can
//! be taken away again under any later declaration of the view.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Nonsense;
use crate::entity::{RESERVED_PREFIX, valid_property_name};
use crate::item::OWNER_PREFIX;
use crate::job::Primary;
use crate::{ETag, EdmValue, Entity, EntityKey, Site, TableName, ViewName};

/// Properties that a view has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// The primary that they come from.
    pub primary: Primary,
    /// Their token.
    pub token: ETag,
    /// Their names.
    pub names: Vec<String>,
    /// They are kept on a range of entities: this one has them by a claim, and no footprint lists them.
    pub by_claim: bool,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    source: (TableName, String, String),
    token: ETag,
    set: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    by_claim: bool,
}

/// The owner property: names the owner of the properties that a view keeps on an entity.
pub fn owner_property(view: &ViewName) -> String {
    format!("{OWNER_PREFIX}{view}")
}

impl Owned {
    /// The properties that a view has set on an entity; `None` where it has set none.
    pub fn read(site: &Site, entity: &Entity, view: &ViewName) -> Result<Option<Self>, Nonsense> {
        let name = owner_property(view);
        let wrong = |problem: String| Nonsense {
            site: site.clone(),
            problem: format!("{name} {problem}"),
        };
        let text = match entity.get(&name) {
            None => return Ok(None),
            Some(EdmValue::String(text)) => text,
            Some(other) => return Err(wrong(format!("is an {}", other.type_name()))),
        };
        let wire: Wire = serde_json::from_str(text)
            .map_err(|error| wrong(format!("does not say whose it is: {error}")))?;
        if let Some(name) = wire
            .set
            .iter()
            .find(|name| !valid_property_name(name) || name.starts_with(RESERVED_PREFIX))
        {
            return Err(wrong(format!("names the property {name:?}")));
        }
        let (table, pk, rk) = wire.source;
        let key = EntityKey::new(pk, rk).map_err(|error| wrong(error.to_string()))?;
        Ok(Some(Self {
            primary: Primary { table, key },
            token: wire.token,
            names: wire.set,
            by_claim: wire.by_claim,
        }))
    }

    /// The entity's values under their names.
    pub fn said(&self, entity: &Entity) -> BTreeMap<String, EdmValue> {
        self.names
            .iter()
            .filter_map(|name| Some((name.clone(), entity.get(name)?.clone())))
            .collect()
    }

    /// Sets properties on an entity, and names their owner.
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
            by_claim,
        } = self;
        let source = (
            primary.table,
            primary.key.pk.as_str().to_owned(),
            primary.key.rk.as_str().to_owned(),
        );
        let wire = Wire {
            source,
            token,
            set: names,
            by_claim,
        };
        // Texts always serialise.
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

    /// Takes them away, but for those that another view has set too: a property may pass from one view to another.
    pub(super) fn remove(&self, entity: &mut Entity, view: &ViewName) {
        entity.properties.remove(&owner_property(view));
        let of_others: BTreeSet<String> = wires(entity).flat_map(|(_, wire)| wire.set).collect();
        for name in self.names.iter().filter(|name| !of_others.contains(*name)) {
            entity.properties.remove(name);
        }
    }
}

/// The owner properties of an entity, as far as they can be read.
fn wires(entity: &Entity) -> impl Iterator<Item = (&str, Wire)> {
    let owned = entity
        .properties
        .iter()
        .filter(|(name, _)| name.starts_with(OWNER_PREFIX));
    owned.filter_map(|(name, value)| {
        Some((
            name.as_str(),
            serde_json::from_str::<Wire>(value.as_str()?).ok()?,
        ))
    })
}

/// An entity on its way to a place, without the properties of others, and the primaries whose syncs set them anew.
/// (Claims need none: they are read at the place.)
#[must_use]
pub fn disowned(mut entity: Entity) -> (Entity, BTreeSet<Primary>) {
    let owned: Vec<(String, Wire)> = wires(&entity)
        .map(|(name, wire)| (name.to_owned(), wire))
        .collect();
    let mut owners = BTreeSet::new();
    for (
        owner,
        Wire {
            source: (table, pk, rk),
            set,
            by_claim,
            ..
        },
    ) in owned
    {
        entity
            .properties
            .retain(|name, _| *name != owner && !set.contains(name));
        owners.extend(
            EntityKey::new(pk, rk)
                .ok()
                .filter(|_| !by_claim)
                .map(|key| Primary { table, key }),
        );
    }
    (entity, owners)
}

/// Keeps properties that views have set on the stored entity, in the one that replaces it: they belong to the views,
/// and not to the writer.
#[must_use]
pub fn carried_over(stored: &Entity, mut entity: Entity) -> Entity {
    for (name, value) in stored
        .properties
        .iter()
        .filter(|(name, _)| name.starts_with(OWNER_PREFIX))
    {
        let set = value
            .as_str()
            .and_then(|text| serde_json::from_str::<Wire>(text).ok())
            .map(|wire| wire.set)
            .unwrap_or_default();
        entity.properties.insert(name.clone(), value.clone());
        for name in set {
            if let Some(value) = stored.get(&name) {
                entity.properties.insert(name, value.clone());
            }
        }
    }
    entity
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(name: &str) -> ViewName {
        ViewName::new(name).unwrap()
    }

    fn owned(names: &[&str]) -> (Owned, BTreeMap<String, EdmValue>) {
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
            Owned {
                primary,
                token: ETag::token(1),
                names,
                by_claim: false,
            },
            values,
        )
    }

    #[test]
    fn a_property_that_another_view_has_set_too_goes_with_the_last_of_them() {
        let department =
            Entity::new(EntityKey::new("Sales", "department").unwrap()).with("Name", "Sales");
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
            of_first.remove(&mut entity, &view(first));
            assert_eq!(
                (entity.text("ManagerName"), entity.get("ManagerPhone")),
                (Some("Ada"), None),
                "{first}"
            );
            of_second.remove(&mut entity, &view(second));
            assert_eq!(entity, department, "{second}");
        }
    }
}
