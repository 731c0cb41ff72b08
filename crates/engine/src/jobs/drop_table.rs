//! `drop_table`: drops a dated table and the tables that its views write to, each by one request. If the retention
//! archives rows, every row is written to a file first.
//!
//! ```text
//!   write the rows to files        if archive_to is set
//!   drop the tables of its views   one by one
//!   drop its footprints            when the items that they list are dropped
//!   delete its audit results
//!   drop the table itself          last: as long as the table exists, workers queue this job again
//! ```
//!
//! Each step may be repeated, and skips what is already deleted. So if a run stops anywhere, another run can complete
//! the job.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, json};

use crate::execute::{Delivery, Failure, Outcome, Summary};
use crate::failure::{permanent, storage};
use crate::jobs::RunJob;
use crate::jobs::audit_records;
use crate::jobs::context::JobContext;
use crate::jobs::table_archive::{self, ArchiveProgress};
use evenkeel_model::TableName;
use evenkeel_model::catalog::{Retention, TableRef};
use evenkeel_model::drop_table::DropTable;
use evenkeel_model::item::{SOURCE_PROPERTY, VIEW_PROPERTY, is_derived_within};
use evenkeel_storage::{ErrorClass, Missing, Query};

/// A job that is sent at most this long before the end of the retention is skipped without an error, because the clock
/// of a worker, or of the sender, may be ahead of the queue service's clock.
const TOLERANCE: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("table {table} must be kept until {until}, but this job was enqueued at {enqueued}")]
struct RetentionNotOver {
    table: TableName,
    until: Timestamp,
    enqueued: Timestamp,
}

/// Whether the retention of a table was over when the queue service accepted the job. No worker's clock is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DropDecision {
    Expired,
    /// The job was sent shortly before the end of the retention, because the sender's clock is ahead. The sender will
    /// queue another job.
    AlmostExpired,
    KeptUntil(Timestamp),
}

fn judge(retention: &Retention, table: &TableName, enqueued: Timestamp) -> DropDecision {
    match retention.kept_until(table) {
        Some(until) if until <= enqueued => DropDecision::Expired,
        Some(until) if until <= enqueued.saturating_add(TOLERANCE).unwrap_or(Timestamp::MAX) => {
            DropDecision::AlmostExpired
        }
        until => DropDecision::KeptUntil(until.unwrap_or(Timestamp::MAX)),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("table {0} matches no [retention] pattern, and only such tables can be dropped")]
struct NotDated(TableName);

impl RunJob for DropTable {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let not_dated = || {
            permanent(
                "finding the retention of the table",
                NotDated(self.table.clone()),
            )
        };
        let table = cx
            .env
            .catalog
            .dated_table(&self.table)
            .ok_or_else(not_dated)?;
        let retention = cx
            .env
            .catalog
            .retention_of(&table.table)
            .ok_or_else(not_dated)?;
        let skipped = |reason: String| Outcome::Skipped {
            reason,
            summary: Summary::default(),
        };
        let enqueued = delivery.stamp.enqueued;
        match judge(retention, &table.table, enqueued) {
            DropDecision::Expired => {}
            DropDecision::AlmostExpired => {
                return Ok(skipped(format!(
                    "by the queue service's clock, this job was enqueued at {enqueued}, before table {table} expired"
                )));
            }
            DropDecision::KeptUntil(until) => {
                let table = table.table.clone();
                return Err(permanent(
                    "checking the retention of the table",
                    RetentionNotOver {
                        table,
                        until,
                        enqueued,
                    },
                ));
            }
        }
        let mut archived = true;
        if let Some(to) = &retention.archive_to {
            match table_archive::part(&cx.env, table, to, delivery, self.cursor.clone()).await? {
                ArchiveProgress::Complete(cursor) => {
                    tracing::info!(%table, rows = cursor.rows, files = cursor.files, "archived {} rows of table {table}", cursor.rows);
                }
                ArchiveProgress::Partial(cursor) => {
                    let fields = Map::from_iter([("cursor".to_owned(), json!(cursor))]);
                    return Ok(Outcome::Advanced {
                        fields,
                        summary: Summary::default(),
                    });
                }
                // The table does not exist, but its followers may, so they are dropped. The table itself is not
                // dropped, because somebody may have created it again since, and no run has archived its new rows.
                ArchiveProgress::NoTable => archived = false,
                ArchiveProgress::ClaimedByOther => {
                    return Ok(skipped(format!(
                        "another job is archiving table {table}, and will drop it"
                    )));
                }
            }
        }
        let followers = drop_followers(cx, table, retention).await?;
        let dropped = archived && drop_one(cx, table).await?;
        if dropped || followers > 0 {
            tracing::info!(%table, followers, "dropped table {table}");
            Ok(Outcome::Done(Summary::default()))
        } else {
            Ok(skipped(format!("table {table} does not exist")))
        }
    }
}

async fn drop_followers(
    cx: &JobContext,
    table: &TableRef,
    retention: &Retention,
) -> Result<u32, Failure> {
    let Some((begins, _)) = retention.tables.period(&table.table) else {
        return Ok(0);
    };
    let followers = cx.env.catalog.followers(retention);
    let mut dropped = 0;
    for tables in followers.targets.iter().chain(&followers.former) {
        let target = tables.at(begins);
        if followers.former.contains(tables) && cx.env.stores.account(&target.account).is_err() {
            tracing::warn!(%target, "kept table {target} of a deleted view: its account {} is not configured", target.account);
            continue;
        }
        if followers.former.contains(tables) && !is_derived(cx, table, &target).await? {
            tracing::warn!(%target, "kept table {target}: it is recorded as derived from {table}, but has rows that are not derived from it");
            continue;
        }
        dropped += u32::from(drop_one(cx, &target).await?);
    }
    if let Some(footprints) = followers.footprints {
        dropped += u32::from(drop_one(cx, &footprints.at(begins)).await?);
        audit_records::forget(&cx.env, table).await?;
    }
    Ok(dropped)
}

/// Whether the first rows of a table are derived from `from`. This is checked because the record of the followers may
/// be forged.
async fn is_derived(cx: &JobContext, from: &TableRef, target: &TableRef) -> Result<bool, Failure> {
    let mut query = Query {
        select: Some([SOURCE_PROPERTY, VIEW_PROPERTY].map(str::to_owned).to_vec()),
        ..Query::default()
    };
    loop {
        let page = match cx
            .env
            .account(target)?
            .tables
            .query(&target.table, &query)
            .await
        {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
                return Ok(true);
            }
            page => page.map_err(|error| storage(format!("reading table {target}"), error))?,
        };
        if !page.rows.is_empty() || page.continuation.is_none() {
            return Ok(page
                .rows
                .iter()
                .all(|row| is_derived_within(&from.table, &row.entity)));
        }
        query.continuation = page.continuation;
    }
}

async fn drop_one(cx: &JobContext, table: &TableRef) -> Result<bool, Failure> {
    let dropped = cx
        .env
        .account(table)?
        .tables
        .delete_table(&table.table)
        .await;
    dropped.map_err(|error| storage(format!("dropping the table {table}"), error))
}
