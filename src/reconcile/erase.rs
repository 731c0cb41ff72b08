//! `erase`: a primary goes with everything that is kept of it.
//!
//! ```text
//!   the primary and its items     as by `delete`, with a look at every item that its footprint lists
//!   its copies in archives        rows and documents, with their own items and values; those of archived tables in turn
//!   the primary once more         a `restore` may have come between
//!   its data key                  where its table encrypts: the rest in logs and backups is noise from then on; at its version
//!                                 before the first look: one drawn or renewed later is that of an entity put anew
//! ```
//!
//! Each step may be repeated: a delivery that comes again finds the rest. An entity that was written after the job was sent is left alone
//! with all that belongs to it, as by `delete`, and so is the data key. The worker discards poison messages about the entity.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{Change, Commit};
use super::document::is_anothers;
use super::engine::Engine;
use super::entity_place::EntityPlace;
use super::execute::{Action, Delivery, Failure, Outcome, Summary};
use super::jobs::RunJob;
use super::put::refuse_derived;
use super::since::is_written_since;
use super::waiting::RunSummary;
use crate::catalog::{ArchiveTarget, TableRef};
use crate::model::job::{EraseJob, Looks, Primary};
use crate::model::{AccountName, ViewName};

/// Result of an erasure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Erasure {
    /// Removed, by account.
    pub removed: BTreeMap<AccountName, Removed>,
    /// Archives that are logs. Their lines stay: encrypted values in them are noise now, everything else is as it was.
    pub logs: BTreeSet<ViewName>,
    /// Why the entity was left alone, in words.
    pub skipped: Option<String>,
    /// Changes made to items.
    pub summary: Summary,
}

/// Things removed in one account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Removed {
    /// Rows and documents of the entity: the primary, archived ones.
    pub entities: u32,
    /// Items that views had derived from them.
    pub items: u32,
    /// Data keys.
    pub data_keys: u32,
}

impl RunJob for EraseJob {
    async fn run(&self, engine: &Engine, delivery: &Delivery) -> Result<Outcome, Failure> {
        let mut erasure = Erasure::default();
        let ended = engine.erase(&self.primary, delivery, &mut erasure).await;
        let Erasure { removed, logs, skipped, summary } = erasure;
        let said = if ended.is_ok() && skipped.is_none() { "entity erased" } else { "entity erased in part" };
        for (account, Removed { entities, items, data_keys }) in &removed {
            tracing::warn!(entity = %self.primary, %account, entities, items, data_keys, "{said}");
        }
        ended?;
        if let Some(reason) = skipped {
            return Ok(Outcome::Skipped { reason, summary });
        }
        for archive in &logs {
            tracing::warn!(entity = %self.primary, %archive, "erased entity: its lines in a log stay");
        }
        Ok(Outcome::Done(summary))
    }
}

impl Engine {
    /// Removes a primary with everything that is kept of it. `erasure` holds the removals so far, also after a failure or a drop.
    pub async fn erase(&self, primary: &Primary, delivery: &Delivery, erasure: &mut Erasure) -> Result<(), Failure> {
        self.refuse_view_tables(&primary.table)?;
        let source = self.table(&primary.table)?.clone();
        let home = Primary { table: source.table.clone(), key: primary.key.clone() };
        let mut changes = RunSummary::default();
        let data_key = self.data_key_version(&source, &home).await?;
        let (mut tables, mut seen) = (vec![source.clone()], BTreeSet::new());
        while let Some(table) = tables.pop() {
            if !seen.insert(table.clone()) {
                continue;
            }
            if table == source {
                self.take_out(erasure, &mut changes, &source.account, self.row(&home, delivery)?, &home, delivery).await?;
            }
            for archive in self.catalog.archives.values().filter(|archive| archive.source == table) {
                let account = match &archive.target {
                    ArchiveTarget::Log(_) => {
                        erasure.logs.insert(archive.name.clone());
                        continue;
                    }
                    ArchiveTarget::Table(target) => {
                        tables.push(target.clone());
                        &target.account
                    }
                    ArchiveTarget::Blob(target) => &target.account,
                    ArchiveTarget::File(_) => &archive.source.account,
                };
                if erasure.skipped.is_none() {
                    let kept = EntityPlace::in_archive(self, archive, &home.key, delivery)?;
                    match self.take_out(erasure, &mut changes, account, kept, &home, delivery).await {
                        Err(failure) if is_anothers(&failure) => {
                            tracing::warn!(entity = %home, archive = %archive.name, "another archive's document lies in the place of its own: it stays");
                        }
                        ended => ended?,
                    }
                }
            }
        }
        self.take_out(erasure, &mut changes, &source.account, self.row(&home, delivery)?, &home, delivery).await?;
        if erasure.skipped.is_none()
            && let Some(version) = data_key
            && self.erase_data_key(&source, &home, version).await?
        {
            erasure.removed.entry(source.account).or_default().data_keys += 1;
        }
        erasure.summary = changes.take();
        Ok(())
    }

    fn row<'e>(&'e self, primary: &Primary, delivery: &'e Delivery) -> Result<EntityPlace<'e>, Failure> {
        let mut reconciler = self.pass(primary, delivery)?;
        reconciler.pass.looks = Looks::Everything;
        Ok(EntityPlace::Row(reconciler))
    }

    /// Deletes an entity where it is kept, and the items derived from it there.
    async fn take_out(
        &self,
        erasure: &mut Erasure,
        changes: &mut RunSummary,
        account: &AccountName,
        mut kept: EntityPlace<'_>,
        home: &Primary,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        if erasure.skipped.is_some() {
            return Ok(());
        }
        let ended = self.delete_kept(erasure, account, &mut kept, home, delivery).await;
        if let Some(summary) = kept.into_summary() {
            for change in summary.changes.iter().filter(|change| change.action == Action::Delete) {
                erasure.removed.entry(change.account.clone()).or_default().items += 1;
            }
            changes.0.add(summary);
        }
        ended
    }

    async fn delete_kept(
        &self,
        erasure: &mut Erasure,
        account: &AccountName,
        kept: &mut EntityPlace<'_>,
        home: &Primary,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        let table = TableRef { account: account.clone(), table: kept.primary().map_or(&home.table, |primary| &primary.table).clone() };
        let apart = self.clocks_apart(delivery, &table);
        kept.read_leftovers();
        loop {
            kept.next_round().await?;
            let found = kept.observe().await?;
            refuse_derived(&found, kept.primary().unwrap_or(home))?;
            let Some(row) = &found.row else {
                match kept.delete_leftovers(&found).await? {
                    Commit::Lost | Commit::Unanswered => continue,
                    Commit::Committed => erasure.removed.entry(account.clone()).or_default().entities += 1,
                    Commit::Closed => {}
                }
                kept.settle_from(&found).await?;
                break;
            };
            if is_written_since(row, delivery, apart)? {
                kept.settle_from(&found).await?;
                let reason = "the entity was written after this job was enqueued, and may be another one; a new job erases it";
                erasure.skipped = Some(reason.to_owned());
                break;
            }
            let committed = kept.commit(&found, &Change::Delete(home.key.clone(), row.etag.clone())).await?;
            if matches!(committed, Commit::Lost | Commit::Unanswered) {
                continue;
            }
            erasure.removed.entry(account.clone()).or_default().entities += 1;
            if committed == Commit::Committed {
                kept.settle().await?;
            }
            break;
        }
        Ok(())
    }
}
