//! The safety invariant, checked after every operation: every derived item that exists is listed in the footprint of
//! its owner, or queued for a recheck.
//!
//! The mirror contains all existing, listed and queued items. It is updated from the observed changes, so a check reads
//! only what an operation has changed.

use std::collections::{BTreeMap, BTreeSet};

use super::archives::period_of;
use super::items::{
    Address, BlobContent, HeldItem, Item, ItemPlace, content, document_key, held, listed,
    members_of, primary_of, value_owner,
};
use super::ledger::poison;
use evenkeel_account::company::located;
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_engine::Recheck;
use evenkeel_model::settled::FOOTPRINTS;
use evenkeel_model::{EntityKey, Row, Site};
use evenkeel_storage::{Blob, FilePlace};

type QueuedRecheck = (Address, Vec<Item>);

#[derive(Debug, Default)]
pub(super) struct Mirror {
    owners: BTreeMap<Item, Address>,
    listed: BTreeMap<Address, BTreeMap<Item, bool>>,
    /// Rechecks by queue and message, including poisoned rechecks until an operator requeues them.
    queued: BTreeMap<(String, String), Vec<QueuedRecheck>>,
    /// Dated tables that were dropped with their rows. A late write may create such a table again. Its rows are not
    /// checked, because they disappear when the table is dropped again.
    dropped: BTreeSet<String>,
}

impl Mirror {
    /// Records the changes of one operation. An error names items that exist, but are no longer listed or queued.
    pub(super) fn record_changes(&mut self, execution: &Execution<'_>) -> Result<(), String> {
        let mut suspects = BTreeSet::new();
        for change in execution.changes {
            match change {
                // Records of log lines are in the same table as footprints, but are no footprints.
                ObservedChange::Row { table, key, .. }
                    if table.as_str() == FOOTPRINTS && key.pk.as_str().starts_with('~') => {}
                // Each dated table has its own table of footprints, whose name begins with `FOOTPRINTS`.
                ObservedChange::Row { table, key, row }
                    if table.as_str().starts_with(FOOTPRINTS) =>
                {
                    let primary = primary_of(key);
                    suspects.extend(
                        self.owners
                            .iter()
                            .filter(|(_, owner)| **owner == primary)
                            .map(|(item, _)| item.clone()),
                    );
                    match row {
                        Some(row) => self.listed.insert(primary, listed(&row.entity)?),
                        None => self.listed.remove(&primary),
                    };
                }
                ObservedChange::Row { table, key, row } => {
                    self.row(
                        &located(execution.account, table.as_str()),
                        key,
                        row.as_ref(),
                        &mut suspects,
                    )?;
                }
                ObservedChange::Blob {
                    container,
                    name,
                    blob,
                } => {
                    let place = ItemPlace::Blob(
                        located(execution.account, container.as_str()),
                        name.to_string(),
                    );
                    self.blob(&place, blob.as_ref(), &mut suspects)?;
                }
                ObservedChange::Put { queue, id, text } if queue.as_str().ends_with("-recheck") => {
                    self.queue(queue.as_str(), id, text);
                }
                ObservedChange::Put { queue, id, text } if queue.as_str().ends_with("-poison") => {
                    let poison = poison(text)?;
                    if poison.queue.ends_with("-recheck") {
                        self.queue(queue.as_str(), id, &poison.body);
                    }
                }
                // When some rechecks of a message are done, the message is updated to the remaining ones.
                ObservedChange::Updated { queue, id, text }
                    if queue.as_str().ends_with("-recheck") =>
                {
                    suspects.extend(self.unqueue(queue.as_str(), id));
                    self.queue(queue.as_str(), id, text);
                }
                ObservedChange::Deleted { queue, id } | ObservedChange::Expired { queue, id } => {
                    suspects.extend(self.unqueue(queue.as_str(), id));
                }
                ObservedChange::File {
                    place: FilePlace { dir, name },
                    content,
                } => {
                    let place = ItemPlace::File(dir.clone(), name.to_string());
                    let owner = value_owner("record_files", name.as_str());
                    self.alone(&place, owner.filter(|_| content.is_some()), &mut suspects);
                }
                ObservedChange::Document {
                    collection,
                    key,
                    document,
                } => {
                    let place = ItemPlace::Document(collection.to_string(), key.to_string());
                    self.alone(
                        &place,
                        document_key(key.as_str()).filter(|_| document.is_some()),
                        &mut suspects,
                    );
                }
                ObservedChange::Table {
                    table,
                    exists: false,
                } if period_of(table.as_str()).is_some() => {
                    self.dropped.insert(table.to_string());
                }
                ObservedChange::Put { .. }
                | ObservedChange::Got { .. }
                | ObservedChange::Updated { .. }
                | ObservedChange::Table { .. } => {}
            }
        }
        for item in suspects {
            self.check(&item)?;
        }
        Ok(())
    }

    fn row(
        &mut self,
        table: &str,
        key: &EntityKey,
        row: Option<&Row>,
        suspects: &mut BTreeSet<Item>,
    ) -> Result<(), String> {
        self.forget(&ItemPlace::Row(table.to_owned(), key.clone()));
        let Some(row) = row.filter(|_| !self.dropped.contains(table)) else {
            return Ok(());
        };
        self.exist(held(table, &row.entity)?, suspects);
        Ok(())
    }

    fn blob(
        &mut self,
        place: &ItemPlace,
        blob: Option<&Blob>,
        suspects: &mut BTreeSet<Item>,
    ) -> Result<(), String> {
        self.forget(place);
        match blob.map_or(Ok(BlobContent::Other), |blob| content(place, blob))? {
            BlobContent::List(source, members) => {
                self.exist(members_of(place, (&source, ""), &members)?, suspects);
            }
            BlobContent::Value(owner) => {
                self.exist(
                    vec![HeldItem {
                        item: (place.clone(), String::new()),
                        owner,
                        says: BTreeMap::new(),
                    }],
                    suspects,
                );
            }
            BlobContent::Other => {}
        }
        Ok(())
    }

    fn alone(&mut self, place: &ItemPlace, owner: Option<Address>, suspects: &mut BTreeSet<Item>) {
        self.forget(place);
        let held = owner.map(|owner| HeldItem {
            item: (place.clone(), String::new()),
            owner,
            says: BTreeMap::new(),
        });
        self.exist(held.into_iter().collect(), suspects);
    }

    fn forget(&mut self, place: &ItemPlace) {
        self.owners.retain(|item, _| item.0 != *place);
    }

    fn exist(&mut self, held: Vec<HeldItem>, suspects: &mut BTreeSet<Item>) {
        for HeldItem { item, owner, .. } in held {
            self.owners.insert(item.clone(), owner);
            suspects.insert(item);
        }
    }

    fn queue(&mut self, queue: &str, id: &str, text: &str) {
        // A message that cannot be decoded has no items. The ledger reports it when it is poisoned.
        for recheck in Recheck::decode_all(text).unwrap_or_default() {
            let items = recheck.items.into_iter().map(|item| {
                let part = item
                    .part
                    .as_ref()
                    .and_then(|part| serde_json::to_string(part).ok())
                    .unwrap_or_default();
                let place = match item.site {
                    Site::Row { table, key } => {
                        ItemPlace::Row(located(&item.account, table.as_str()), key)
                    }
                    Site::Blob { container, name } => ItemPlace::Blob(
                        located(&item.account, container.as_str()),
                        name.to_string(),
                    ),
                    Site::File { dir, name } => ItemPlace::File(dir, name.to_string()),
                    Site::Document { collection, key } => {
                        ItemPlace::Document(collection.to_string(), key.to_string())
                    }
                };
                (place, part)
            });
            let items = items.collect();
            let primary = (recheck.primary.table.to_string(), recheck.primary.key);
            self.queued
                .entry((queue.to_owned(), id.to_owned()))
                .or_default()
                .push((primary, items));
        }
    }

    fn unqueue(&mut self, queue: &str, id: &str) -> impl Iterator<Item = Item> + use<> {
        self.queued
            .remove(&(queue.to_owned(), id.to_owned()))
            .into_iter()
            .flatten()
            .flat_map(|(_, items)| items)
    }

    fn check(&self, item: &Item) -> Result<(), String> {
        let Some(owner) = self.owners.get(item) else {
            return Ok(());
        };
        let listed = self
            .listed
            .get(owner)
            .is_some_and(|items| items.contains_key(item));
        let queued = || {
            self.queued
                .values()
                .flatten()
                .any(|(primary, items)| primary == owner && items.contains(item))
        };
        if listed || queued() {
            return Ok(());
        }
        Err(format!(
            "invariant: item {} {} exists, but is neither in the footprint of {}{} nor queued for a recheck",
            item.0, item.1, owner.0, owner.1
        ))
    }
}
