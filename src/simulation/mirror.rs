//! The invariant, checked after every single operation: every derived item that exists is listed in its owner's
//! footprint or queued for a recheck.
//!
//! A mirror of what is derived, listed and queued is kept from the changes that the world tells of, so that a
//! check only looks at what an operation has touched.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::poison;
use crate::adapters::sim::{Change, Execution};
use crate::model::{Entity, EntityKey};
use crate::reconcile::Recheck;
use crate::reconcile::footprint::FOOTPRINTS;

/// A row: its table and key.
pub(super) type Address = (String, EntityKey);

/// An item as a footprint spells it: view, generation, account, table, pk, rk, ETag, changing.
type Listed = (String, u32, String, String, String, String, Option<String>, u8);

/// What is derived, listed and queued.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// Derived rows, and the primaries that own them.
    owners: BTreeMap<Address, Address>,
    /// What each primary's footprint lists.
    listed: BTreeMap<Address, BTreeSet<Address>>,
    /// Rechecks that are queued, or poisoned and waiting for a person, by queue and message.
    queued: BTreeMap<(String, String), (Address, Vec<Address>)>,
    /// Primaries whose footprint was last written by a request that its sender had given up.
    pub(super) overwritten_late: BTreeSet<Address>,
}

impl Mirror {
    /// Takes in the changes of one operation. What is derived and neither listed nor queued any more, in words.
    pub(super) fn take_in(&mut self, execution: &Execution<'_>) -> Result<(), String> {
        let mut suspects = BTreeSet::new();
        for change in execution.changes {
            match change {
                Change::Row { table, key, row } if table.as_str() == FOOTPRINTS => {
                    let primary = primary_of(key);
                    suspects.extend(self.owners.iter().filter(|(_, owner)| **owner == primary).map(|(item, _)| item.clone()));
                    if execution.late {
                        self.overwritten_late.insert(primary.clone())
                    } else {
                        self.overwritten_late.remove(&primary)
                    };
                    match row {
                        Some(row) => self.listed.insert(primary, listed(&row.entity)?),
                        None => self.listed.remove(&primary),
                    };
                }
                Change::Row { table, key, row } => {
                    let item = (table.to_string(), key.clone());
                    match row.as_ref().and_then(|row| owner(&row.entity)) {
                        Some(owner) => {
                            self.owners.insert(item.clone(), owner);
                            suspects.insert(item);
                        }
                        None => drop(self.owners.remove(&item)),
                    }
                }
                Change::Put { queue, id, text } if queue.as_str().ends_with("-recheck") => self.queue(queue.as_str(), id, text),
                Change::Put { queue, id, text } if queue.as_str().ends_with("-poison") => {
                    let poison = poison(text)?;
                    if poison.queue.ends_with("-recheck") {
                        self.queue(queue.as_str(), id, &poison.body);
                    }
                }
                Change::Deleted { queue, id } | Change::Expired { queue, id } => {
                    if let Some((_, items)) = self.queued.remove(&(queue.to_string(), id.clone())) {
                        suspects.extend(items);
                    }
                }
                Change::Put { .. } | Change::Got { .. } | Change::Updated { .. } => {}
            }
        }
        for item in suspects {
            self.check(&item)?;
        }
        Ok(())
    }

    fn queue(&mut self, queue: &str, id: &str, text: &str) {
        // What is no recheck is judged where messages are.
        if let Ok(recheck) = Recheck::decode(text) {
            let items = recheck.items.into_iter().map(|item| (item.table.to_string(), item.key)).collect();
            let primary = (recheck.primary.table.to_string(), recheck.primary.key);
            self.queued.insert((queue.to_owned(), id.to_owned()), (primary, items));
        }
    }

    fn check(&self, item: &Address) -> Result<(), String> {
        let Some(owner) = self.owners.get(item) else { return Ok(()) };
        let listed = self.listed.get(owner).is_some_and(|items| items.contains(item));
        let queued = || self.queued.values().any(|(primary, items)| primary == owner && items.contains(item));
        if listed || queued() {
            return Ok(());
        }
        Err(format!(
            "invariant: the item {}{} exists, and its owner {}{} neither lists it nor is it queued for a recheck",
            item.0, item.1, owner.0, owner.1
        ))
    }
}

/// The primary whose footprint lies under this key. No partition key here is so long that it is hashed.
pub(super) fn primary_of(key: &EntityKey) -> Address {
    let (table, pk) = key.pk.as_str().split_once('~').unwrap_or_default();
    let key = EntityKey::new(pk, key.rk.as_str()).unwrap_or_else(|_| key.clone());
    (table.to_owned(), key)
}

/// The items that a footprint lists.
pub(super) fn listed(footprint: &Entity) -> Result<BTreeSet<Address>, String> {
    let items: Vec<Listed> = footprint
        .text("Items")
        .and_then(|items| serde_json::from_str(items).ok())
        .ok_or_else(|| format!("the footprint {} cannot be read", footprint.key))?;
    items
        .into_iter()
        .map(|(_, _, _, table, pk, rk, _, _)| EntityKey::new(pk, rk).map(|key| (table, key)).map_err(|error| error.to_string()))
        .collect()
}

/// The owner that a derived row names.
pub(super) fn owner(entity: &Entity) -> Option<Address> {
    entity.text("ek_view")?;
    let (table, pk, rk): (String, String, String) = serde_json::from_str(entity.text("ek_source")?).ok()?;
    Some((table, EntityKey::new(pk, rk).ok()?))
}
