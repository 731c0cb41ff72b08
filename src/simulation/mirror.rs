//! The invariant, checked after every single operation: every derived item that exists is listed in its owner's
//! footprint or queued for a recheck.
//!
//! A mirror of what is derived, listed and queued is kept from the changes that the world tells of, so that a
//! check only looks at what an operation has touched.

use std::collections::{BTreeMap, BTreeSet};

use super::items::{Address, Held, Item, held, listed, primary_of};
use super::ledger::poison;
use crate::adapters::sim::{Change, Execution};
use crate::reconcile::Recheck;
use crate::reconcile::footprint::FOOTPRINTS;

/// The table of derived rows that are primaries of a further view.
const CHAINED: &str = "Managers";

/// What is derived, listed and queued.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// Derived items, and the primaries that own them.
    owners: BTreeMap<Item, Address>,
    /// What each primary's footprint lists.
    listed: BTreeMap<Address, BTreeMap<Item, bool>>,
    /// Rechecks that are queued, or poisoned and waiting for a person, by queue and message.
    queued: BTreeMap<(String, String), (Address, Vec<Item>)>,
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
                    // Of a derived row that has views of its own: its footprint names the version before, until its next sync.
                    if execution.late && table.as_str() == CHAINED {
                        self.overwritten_late.insert((table.to_string(), key.clone()));
                    }
                    let row_of = |item: &Item| item.0 == table.as_str() && item.1 == *key;
                    self.owners.retain(|item, _| !row_of(item));
                    let held = row.as_ref().map_or_else(|| Ok(Vec::new()), |row| held(table.as_str(), &row.entity))?;
                    for Held { item, owner, .. } in held {
                        self.owners.insert(item.clone(), owner);
                        suspects.insert(item);
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
            let items = recheck.items.into_iter().filter_map(|item| {
                let part = item.part.as_ref().and_then(|part| serde_json::to_string(part).ok()).unwrap_or_default();
                let (table, key) = item.site.row()?;
                Some((table.to_string(), key.clone(), part))
            });
            let items = items.collect();
            let primary = (recheck.primary.table.to_string(), recheck.primary.key);
            self.queued.insert((queue.to_owned(), id.to_owned()), (primary, items));
        }
    }

    fn check(&self, item: &Item) -> Result<(), String> {
        let Some(owner) = self.owners.get(item) else { return Ok(()) };
        let listed = self.listed.get(owner).is_some_and(|items| items.contains_key(item));
        let queued = || self.queued.values().any(|(primary, items)| primary == owner && items.contains(item));
        if listed || queued() {
            return Ok(());
        }
        Err(format!(
            "invariant: the item {}{} {} exists, and its owner {}{} neither lists it nor is it queued for a recheck",
            item.0, item.1, item.2, owner.0, owner.1
        ))
    }
}
