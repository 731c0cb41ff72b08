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

use jiff::{SignedDuration, Timestamp};

use super::change::{Change, Commit};
use super::document::is_anothers;
use super::engine::Engine;
use super::execute::{Action, Delivery, Failure, Outcome, Summary};
use super::failure::storage;
use super::jobs::RunJob;
use super::put::refuse_derived;
use super::queueing;
use super::scope::Scope;
use super::since::is_written_since;
use super::target::{self, Kept};
use super::waiting::RunSummary;
use evenkeel_model::catalog::{ArchiveTarget, Shelf, TableRef};
use evenkeel_model::job::{EraseJob, Primary};
use evenkeel_model::{AccountName, ViewName};
use evenkeel_storage::{ErrorClass, Missing, all_blobs};

/// Large values of an erased entity that are still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuesLeft {
    /// By when a second look deletes them, if a worker runs then.
    pub until: Timestamp,
    /// How many there are; `None` if that cannot be told.
    pub values: Option<u64>,
}

/// Result of an erasure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Erasure {
    /// Removed, by account.
    pub removed: BTreeMap<AccountName, Removed>,
    /// Archives that are logs. Their lines stay: encrypted values in them are noise now, everything else is as it was.
    pub logs: BTreeSet<ViewName>,
    /// Large values that stay until a second look, by the primary that they belong to: a request of an earlier, disturbed job may still
    /// bring back a row that points to them.
    pub left: BTreeMap<Primary, ValuesLeft>,
    /// Until when footprints and second looks have its key, and keys that views made of its values.
    pub second_looks: Option<Timestamp>,
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

impl Erasure {
    /// Until when large values stay; `None` if there are none.
    pub fn until(&self) -> Option<Timestamp> {
        self.left.values().map(|left| left.until).max()
    }
}

impl RunJob for EraseJob {
    async fn run(&self, engine: &Engine, delivery: &Delivery) -> Result<Outcome, Failure> {
        let mut erasure = Erasure::default();
        let ended = engine.erase(&self.primary, delivery, &mut erasure).await;
        let until = erasure.until();
        let Erasure {
            removed,
            logs,
            skipped,
            summary,
            left,
            ..
        } = erasure;
        let whole = ended.is_ok() && skipped.is_none() && until.is_none();
        let said = if whole {
            "entity erased"
        } else {
            "entity erased in part"
        };
        for (
            account,
            Removed {
                entities,
                items,
                data_keys,
            },
        ) in &removed
        {
            tracing::warn!(entity = %self.primary, %account, entities, items, data_keys, "{said}");
        }
        ended?;
        if let Some(reason) = skipped {
            return Ok(Outcome::Skipped { reason, summary });
        }
        for (of, ValuesLeft { until, values }) in &left {
            tracing::warn!(
                entity = %self.primary, %of, %until, values,
                "entity is being erased: large values stay until a second look, since an earlier job was disturbed"
            );
        }
        for archive in &logs {
            tracing::warn!(entity = %self.primary, %archive, "erased entity: its lines in a log stay");
        }
        Ok(Outcome::Done(summary))
    }
}

impl Engine {
    /// Removes a primary with everything that is kept of it. `erasure` holds the removals so far, also after a failure or a drop.
    pub async fn erase(
        &self,
        primary: &Primary,
        delivery: &Delivery,
        erasure: &mut Erasure,
    ) -> Result<(), Failure> {
        self.refuse_view_tables(&primary.table)?;
        let source = self.table(&primary.table)?.clone();
        let home = Primary {
            table: source.table.clone(),
            key: primary.key.clone(),
        };
        let mut changes = RunSummary::default();
        let data_key = self.data_key_version(&source, &home).await?;
        let (mut tables, mut seen) = (vec![source.clone()], BTreeSet::new());
        while let Some(table) = tables.pop() {
            if !seen.insert(table.clone()) {
                continue;
            }
            if table == source {
                self.take_out(
                    erasure,
                    &mut changes,
                    &source.account,
                    target::primary(self, &home, delivery)?.as_mut(),
                    &home,
                    delivery,
                )
                .await?;
            }
            for archive in self
                .catalog
                .archives
                .values()
                .filter(|archive| archive.source == table)
            {
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
                if erasure.skipped.is_none()
                    && let Some(mut kept) = target::kept_in(self, archive, &home.key, delivery)?
                {
                    match self
                        .take_out(
                            erasure,
                            &mut changes,
                            account,
                            kept.as_mut(),
                            &home,
                            delivery,
                        )
                        .await
                    {
                        Err(failure) if is_anothers(&failure) => {
                            tracing::warn!(entity = %home, archive = %archive.name, "another archive's document lies in the place of its own: it stays");
                        }
                        ended => ended?,
                    }
                }
            }
        }
        self.take_out(
            erasure,
            &mut changes,
            &source.account,
            target::primary(self, &home, delivery)?.as_mut(),
            &home,
            delivery,
        )
        .await?;
        if erasure.skipped.is_none()
            && let Some(version) = data_key
            && self.erase_data_key(&source, &home, version).await?
        {
            erasure.removed.entry(source.account).or_default().data_keys += 1;
        }
        erasure.summary = changes.take();
        erasure.second_looks = self.second_looks(&seen, erasure.until());
        Ok(())
    }

    /// Until when second looks have the keys of what was erased from these tables.
    fn second_looks(
        &self,
        tables: &BTreeSet<TableRef>,
        until: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let later = |from: Timestamp, by| {
            from.saturating_add(SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX))
        };
        let ends = match until {
            // The second look that deletes them leaves a tombstone of its own.
            Some(until) => later(until, queueing::tombstone_stays(self.recheck_after)),
            None if tables.iter().any(|table| self.catalog.has_views(table)) => later(
                self.clock.now(),
                queueing::second_look_after(self.recheck_after),
            ),
            None => return None,
        };
        ends.ok()
    }

    /// Large values that stay although their primary is gone, and by when they go.
    pub(super) async fn values_left(
        &self,
        scope: &Scope<'_>,
    ) -> Result<Option<ValuesLeft>, Failure> {
        let Some((_, shelf)) = self.catalog.shelf_of(scope.source) else {
            return Ok(None);
        };
        let later = |from: Timestamp, by| {
            from.saturating_add(SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX))
                .unwrap_or(from)
        };
        let now = self.clock.now();
        let read = scope.read_footprint().await?;
        let tainted = read
            .and_then(|(footprint, _)| footprint.tainted_until)
            .filter(|until| *until > now);
        let values = match (&shelf, tainted) {
            (Shelf::Blobs { account, container }, _) => {
                let blobs = all_blobs(
                    scope.target(account)?.blobs.as_ref(),
                    container,
                    scope.folder.prefix(),
                )
                .await;
                let step = || {
                    format!(
                        "looking for large values of {} in {container}",
                        scope.primary
                    )
                };
                match blobs {
                    Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
                        Some(0)
                    }
                    blobs => {
                        let blobs = blobs.map_err(|error| storage(step(), error))?;
                        Some(
                            blobs
                                .iter()
                                .filter(|blob| scope.folder.has(&blob.name))
                                .count() as u64,
                        )
                    }
                }
            }
            (Shelf::Files { .. }, Some(_)) => None,
            (Shelf::Files { .. }, None) => Some(0),
        };
        // The footprint may have gone before them.
        let until = tainted.unwrap_or_else(|| now.saturating_add(self.taint_for()).unwrap_or(now));
        let due = later(now, queueing::second_look_after(self.recheck_after))
            .max(later(until, 2 * queueing::SERVED_MARGIN));
        Ok((values != Some(0)).then_some(ValuesLeft { until: due, values }))
    }

    /// Deletes an entity where it is kept, and the items derived from it there.
    async fn take_out(
        &self,
        erasure: &mut Erasure,
        changes: &mut RunSummary,
        account: &AccountName,
        kept: &mut dyn Kept,
        home: &Primary,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        if erasure.skipped.is_some() {
            return Ok(());
        }
        let mut ended = self
            .delete_kept(erasure, account, kept, home, delivery)
            .await;
        if ended.is_ok()
            && erasure.skipped.is_none()
            && let Some(primary) = kept.primary()
        {
            match kept.values_left().await {
                Ok(Some(left)) => drop(erasure.left.insert(primary.clone(), left)),
                Ok(None) => drop(erasure.left.remove(primary)),
                Err(failure) => ended = Err(failure),
            }
        }
        let summary = kept.take_summary();
        for change in summary
            .changes
            .iter()
            .filter(|change| change.action == Action::Delete)
        {
            erasure
                .removed
                .entry(change.account.clone())
                .or_default()
                .items += 1;
        }
        changes.0.add(summary);
        ended
    }

    async fn delete_kept(
        &self,
        erasure: &mut Erasure,
        account: &AccountName,
        kept: &mut dyn Kept,
        home: &Primary,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        let table = TableRef {
            account: account.clone(),
            table: kept
                .primary()
                .map_or(&home.table, |primary| &primary.table)
                .clone(),
        };
        let apart = self.clocks_apart(delivery, &table);
        kept.read_leftovers();
        loop {
            kept.next_round().await?;
            let found = kept.observe().await?;
            refuse_derived(&found, kept.primary().unwrap_or(home))?;
            let Some(row) = &found.row else {
                match kept.delete_leftovers(&found).await? {
                    Commit::Lost | Commit::Unanswered => continue,
                    Commit::Committed => {
                        erasure.removed.entry(account.clone()).or_default().entities += 1;
                    }
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
            let committed = kept
                .commit(&found, &Change::Delete(home.key.clone(), row.etag.clone()))
                .await?;
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
