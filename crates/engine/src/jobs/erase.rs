//! `erase`: deletes a primary and everything that is stored of it.
//!
//! ```text
//!   the primary and its items     like a `delete` job, but it reads every item that the footprint lists
//!   its copies in archives        rows and documents, with their items and values. If the table of a copy has an
//!                                 archive, too, the copy in that archive is also deleted
//!   the primary again             a `restore` may have brought it back meanwhile
//!   its data key                  if its table has encrypted properties. Afterwards, nobody can decrypt its values in
//!                                 logs and backups
//! ```
//!
//! The data key is deleted at the version that it had before the primary was first read, because a key that is created
//! or renewed later belongs to a new entity.
//!
//! Each step may be repeated, because a redelivery finds what is left. An entity that was written after the job was
//! sent is kept, with everything that belongs to it, including the data key. This job does not discard poison messages
//! about the entity; the worker does.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::env::Env;
use crate::env::waiting::RunSummary;
use crate::execute::{Action, Delivery, Failure, Outcome, Summary};
use crate::items::document::is_anothers;
use crate::jobs::RunJob;
use crate::jobs::checks::refuse_derived;
use crate::jobs::context::JobContext;
use crate::jobs::relocation::target::{self, RestoreSource};
use crate::jobs::since::{DatedRow, is_written_since};
use crate::jobs::values_left::ValuesLeft;
use crate::protocol::change::{Change, Commit};
use crate::protocol::queueing;
use evenkeel_model::catalog::{ArchiveTarget, TableRef};
use evenkeel_model::job::{EraseJob, Primary};
use evenkeel_model::{AccountName, ViewName};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Erasure {
    pub removed: BTreeMap<AccountName, Removed>,
    /// Archives that are logs. Their lines stay. Encrypted values in them can no longer be decrypted, and everything
    /// else is unchanged.
    pub logs: BTreeSet<ViewName>,
    /// Deleted primaries whose large values are still stored. A recheck will delete the values. Until then, a request
    /// of an earlier, interrupted job may still bring back a row that points to them.
    pub left: BTreeMap<Primary, ValuesLeft>,
    /// Until this time, footprints and rechecks contain the key of the entity, and keys that views made of its values.
    pub rechecks_until: Option<Timestamp>,
    pub skipped: Option<String>,
    pub summary: Summary,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Removed {
    pub entities: u32,
    pub items: u32,
    pub data_keys: u32,
}

impl Erasure {
    /// Time until which large values stay; `None` if there are none.
    pub fn until(&self) -> Option<Timestamp> {
        self.left.values().map(|left| left.until).max()
    }
}

impl RunJob for EraseJob {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let mut erasure = Erasure::default();
        let ended = erase(cx, &self.primary, delivery, &mut erasure).await;
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
        let extent = if whole { "erased" } else { "partly erased" };
        for (
            account,
            Removed {
                entities,
                items,
                data_keys,
            },
        ) in &removed
        {
            tracing::warn!(entity = %self.primary, %account, entities, items, data_keys, "{extent} {}", self.primary);
        }
        ended?;
        if let Some(reason) = skipped {
            return Ok(Outcome::Skipped { reason, summary });
        }
        for (of, ValuesLeft { until, values }) in &left {
            tracing::warn!(
                entity = %self.primary, %of, %until, values,
                "kept large values of {of}: an earlier job was interrupted; a recheck deletes the values by {until}"
            );
        }
        for archive in &logs {
            tracing::warn!(entity = %self.primary, %archive, "erased {}, but its lines in log archive {archive} stay", self.primary);
        }
        Ok(Outcome::Done(summary))
    }
}

/// Erases a primary and everything that is stored of it. `erasure` has the removals so far, even after a failure or if
/// the future is dropped.
pub(crate) async fn erase(
    cx: &JobContext,
    primary: &Primary,
    delivery: &Delivery,
    erasure: &mut Erasure,
) -> Result<(), Failure> {
    cx.env.refuse_view_tables(&primary.table)?;
    let source = cx.env.table(&primary.table)?.clone();
    let home = Primary {
        table: source.table.clone(),
        key: primary.key.clone(),
    };
    let mut changes = RunSummary::default();
    let data_key = cx.encryption().data_key_version(&source, &home).await?;
    let (mut tables, mut seen) = (vec![source.clone()], BTreeSet::new());
    while let Some(table) = tables.pop() {
        if !seen.insert(table.clone()) {
            continue;
        }
        if table == source {
            delete_primary(cx, erasure, &mut changes, &source.account, &home, delivery).await?;
        }
        for archive in cx
            .env
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
                && let Some(mut kept) =
                    target::restore_source(&cx.env, archive, &home.key, delivery)?
            {
                match delete_copy(
                    cx,
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
                        tracing::warn!(entity = %home, archive = %archive.name, "kept the document of {home} in archive {}: it belongs to another archive", archive.name);
                    }
                    ended => ended?,
                }
            }
        }
    }
    delete_primary(cx, erasure, &mut changes, &source.account, &home, delivery).await?;
    if erasure.skipped.is_none()
        && let Some(version) = data_key
        && cx
            .encryption()
            .erase_data_key(&source, &home, version)
            .await?
    {
        erasure.removed.entry(source.account).or_default().data_keys += 1;
    }
    erasure.summary = changes.take();
    erasure.rechecks_until = rechecks_until(&cx.env, &seen, erasure.until());
    Ok(())
}

/// Returns the time until which rechecks contain keys of the erased entity and of its items. `tables` are the tables
/// from which the entity was erased. `until` is the time until which large values stay.
fn rechecks_until(
    env: &Env,
    tables: &BTreeSet<TableRef>,
    until: Option<Timestamp>,
) -> Option<Timestamp> {
    let later = |from: Timestamp, by| {
        from.saturating_add(SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX))
    };
    let ends = match until {
        // The recheck that deletes the values writes a tombstone, which stays for some time.
        Some(until) => later(until, queueing::tombstone_stays(env.recheck_after)),
        None if tables.iter().any(|table| env.catalog.has_views(table)) => later(
            env.clock.now(),
            queueing::second_look_after(env.recheck_after),
        ),
        None => return None,
    };
    ends.ok()
}
async fn delete_primary(
    cx: &JobContext,
    erasure: &mut Erasure,
    changes: &mut RunSummary,
    account: &AccountName,
    home: &Primary,
    delivery: &Delivery,
) -> Result<(), Failure> {
    let mut kept = target::primary(&cx.env, home, delivery)?;
    delete_copy(cx, erasure, changes, account, kept.as_mut(), home, delivery).await
}
async fn delete_copy(
    cx: &JobContext,
    erasure: &mut Erasure,
    changes: &mut RunSummary,
    account: &AccountName,
    kept: &mut dyn RestoreSource,
    home: &Primary,
    delivery: &Delivery,
) -> Result<(), Failure> {
    if erasure.skipped.is_some() {
        return Ok(());
    }
    let mut ended = delete_entity(cx, erasure, account, kept, home, delivery).await;
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

async fn delete_entity(
    cx: &JobContext,
    erasure: &mut Erasure,
    account: &AccountName,
    kept: &mut dyn RestoreSource,
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
    let skew = cx.env.clocks_apart(delivery, &table);
    kept.read_leftovers();
    loop {
        kept.next_round().await?;
        let found = kept.observe().await?;
        refuse_derived(&found, kept.primary().unwrap_or(home))?;
        let Some(row) = found.row() else {
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
        if is_written_since(DatedRow { row, skew }, delivery)? {
            kept.settle_from(&found).await?;
            let reason = "the entity was written after this job was enqueued, so it may be another entity. Send a new job to erase it";
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
