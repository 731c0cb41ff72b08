//! Lets the workers of a store observe each other. Each worker regularly writes a row to the table
//! EvenkeelMigrations, and reports which other workers are silent. All times are from the table
//! service, so the workers' clocks do not matter.
//!
//! The rows only serve reports to operators. If a worker cannot write its row, it works as usual.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use super::AppParts;
use crate::cli::Context;
use crate::cli::doctor::WorkerOverview;
use evenkeel_model::names::MIGRATIONS;
use evenkeel_model::{
    AccountName, EdmDateTime, EdmValue, Entity, EntityKey, Filter, Key, Row, TableName, cause,
};
use evenkeel_ops::state::{OpsState, SilentWorker};
use evenkeel_storage::{
    ErrorClass, IfMatch, Query, StoreError, TableOperation, TableStore, all_rows,
};

const PARTITION: &str = "worker";
/// Time at which a worker first wrote its row, by the table service's clock. The service returns
/// this time as the Timestamp of the first write, so only later writes set the property.
const STARTED: &str = "Started";
/// Interval between writes of the row, with jitter.
const EVERY: Duration = Duration::from_secs(30);
/// A worker is silent if its row is older than the observer's row by more than this time. It has
/// then missed three writes, so it hangs or is gone.
const SILENT: SignedDuration = SignedDuration::from_secs(120);
/// A row that is older than this is deleted. By then, all other workers have reported that the
/// worker of the row is silent.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Clone, PartialEq, Eq)]
struct WorkerRow {
    key: EntityKey,
    seen: Timestamp,
    started: Timestamp,
}

/// This worker's row, and the table with the rows of all workers.
struct Fleet<'a> {
    tables: &'a dyn TableStore,
    table: TableName,
    partition: Key,
    own: EntityKey,
}

/// Maximum time that a stopping worker takes to delete its row.
const FAREWELL: Duration = Duration::from_secs(2);

/// Writes this worker's row and reads the rows of all other workers until `end` is cancelled, then
/// deletes this worker's row.
pub(super) async fn keep(
    parts: &AppParts,
    name: &str,
    ops_state: Option<&OpsState>,
    end: &CancellationToken,
) {
    let Some(fleet) = Fleet::of(&parts.context, name) else {
        return;
    };
    end.run_until_cancelled(fleet.watch(parts, ops_state)).await;
    // If the row cannot be deleted, it does no harm.
    let _ = tokio::time::timeout(FAREWELL, fleet.leave()).await;
}

pub(super) async fn seen(context: &Context) -> anyhow::Result<WorkerOverview> {
    let Some(fleet) = Fleet::of(context, "none") else {
        return Ok(WorkerOverview::default());
    };
    let rows = match fleet.rows().await {
        Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => Vec::new(),
        rows => rows?,
    };
    let clocks = &context.stores.account(&AccountName::main())?.clocks;
    let (silent, forgotten) = classify(
        clocks.tables_now().unwrap_or_else(|| context.clock.now()),
        &rows,
    );
    Ok(WorkerOverview {
        running: rows.len() - silent.len() - forgotten.len(),
        silent,
    })
}

impl<'a> Fleet<'a> {
    fn of(context: &'a Context, name: &str) -> Option<Self> {
        let account = context.stores.account(&AccountName::main()).ok()?;
        Some(Self {
            tables: account.tables.as_ref(),
            table: TableName::new(MIGRATIONS).ok()?,
            partition: Key::new(PARTITION).ok()?,
            own: EntityKey::new(PARTITION, name).ok()?,
        })
    }

    /// Periodically writes this worker's row and reads the rows of all other workers. Never
    /// returns.
    async fn watch(&self, parts: &AppParts, ops_state: Option<&OpsState>) {
        let mut started = None;
        loop {
            match self.beat(started).await {
                Ok(rows) => {
                    started = rows
                        .iter()
                        .find(|row| row.key == self.own)
                        .map(|row| row.started);
                    let (silent, forgotten) = judge(&self.own, &rows);
                    self.forget(&forgotten).await;
                    if let Some(ops_state) = ops_state {
                        ops_state.set_silent_workers(silent);
                    }
                }
                // If the store does not answer, its circuit breaker reports that.
                Err(error) => tracing::debug!(
                    error = cause::chain(&error),
                    "could not update this worker's row in {} or read the rows of other workers",
                    self.table
                ),
            }
            tokio::time::sleep(parts.rng.jittered(EVERY)).await;
        }
    }

    /// Writes this worker's row with the time of its first write, and returns all rows.
    async fn beat(&self, started: Option<Timestamp>) -> Result<Vec<WorkerRow>, StoreError> {
        let mut row = Entity::new(self.own.clone()).with("Evenkeel", env!("CARGO_PKG_VERSION"));
        if let Some(started) = started.and_then(|started| EdmDateTime::from_timestamp(started).ok())
        {
            row = row.with(STARTED, EdmValue::DateTime(started));
        }
        self.tables
            .apply(&self.table, &TableOperation::InsertOrReplace(row))
            .await?;
        self.rows().await
    }

    async fn rows(&self) -> Result<Vec<WorkerRow>, StoreError> {
        let query = Query {
            filter: Some(Filter::partition(&self.partition)),
            ..Query::default()
        };
        let rows = all_rows(self.tables, &self.table, query).await?;
        let read = |row: Row| {
            let seen = row.timestamp?.timestamp();
            let started = match row.entity.get(STARTED) {
                Some(EdmValue::DateTime(started)) => started.timestamp(),
                _ => seen,
            };
            Some(WorkerRow {
                key: row.entity.key,
                seen,
                started,
            })
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }

    async fn forget(&self, forgotten: &[EntityKey]) {
        for key in forgotten {
            if let Err(error) = self
                .tables
                .apply(
                    &self.table,
                    &TableOperation::Delete(key.clone(), IfMatch::Any),
                )
                .await
            {
                tracing::debug!(
                    error = cause::chain(&error),
                    "could not delete the row {key} of another worker from {}",
                    self.table
                );
            }
        }
    }

    /// Deletes the row of this worker, so that this worker is not reported as silent.
    async fn leave(&self) {
        self.forget(std::slice::from_ref(&self.own)).await;
    }
}

fn judge(own: &EntityKey, rows: &[WorkerRow]) -> (Vec<SilentWorker>, Vec<EntityKey>) {
    rows.iter()
        .find(|row| row.key == *own)
        .map(|row| classify(row.seen, rows))
        .unwrap_or_default()
}

/// Returns the workers that are silent at `now`, and the keys of the rows that have to be deleted.
fn classify(now: Timestamp, rows: &[WorkerRow]) -> (Vec<SilentWorker>, Vec<EntityKey>) {
    let (mut silent, mut forgotten) = (Vec::new(), Vec::new());
    for row in rows {
        let age = now.duration_since(row.seen);
        if age > FORGOTTEN {
            forgotten.push(row.key.clone());
        } else if age > SILENT {
            silent.push(SilentWorker {
                name: row.key.rk.to_string(),
                since: row.seen,
                successor: None,
            });
        }
    }
    // A worker can be the successor of a silent worker if it started after that worker had fallen
    // silent. Each worker succeeds at most one silent worker. The worker that fell silent last has
    // the fewest candidates, so its successor is selected first.
    silent.sort_by_key(|worker| std::cmp::Reverse(worker.since));
    let mut beginners: Vec<&WorkerRow> = rows.iter().collect();
    beginners.sort_by_key(|row| row.started);
    for worker in &mut silent {
        worker.successor = beginners
            .pop_if(|row| row.started > worker.since)
            .map(|row| row.key.rk.to_string());
    }
    (silent, forgotten)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use evenkeel_account::{NoFaults, SimWorld};
    use evenkeel_storage::system::SystemClock;

    #[tokio::test]
    async fn a_hanging_worker_is_reported_and_a_stopped_one_is_not() {
        let account = SimWorld::new(
            AccountName::main(),
            Arc::new(SystemClock::new()),
            Arc::new(NoFaults),
        )
        .account();
        let table = TableName::new(MIGRATIONS).unwrap();
        account.tables.create_table(&table).await.unwrap();
        let fleet = |name: &str| Fleet {
            tables: account.tables.as_ref(),
            table: table.clone(),
            partition: Key::new(PARTITION).unwrap(),
            own: EntityKey::new(PARTITION, name).unwrap(),
        };
        let [well, hangs, ended] = ["well", "hangs", "ended"].map(fleet);
        for one in [&well, &hangs, &ended] {
            one.beat(None).await.unwrap();
        }
        ended.leave().await;
        let first = well
            .rows()
            .await
            .unwrap()
            .into_iter()
            .find(|row| row.key == well.own)
            .unwrap()
            .seen;
        let rows = well.beat(Some(first)).await.unwrap();
        assert_eq!(
            rows.iter()
                .map(|row| row.key.rk.as_str())
                .collect::<Vec<_>>(),
            ["hangs", "well"]
        );
        assert_eq!(rows[1].started, first, "it says when it began");
        assert_eq!(judge(&well.own, &rows), (Vec::new(), Vec::new()));
        let before = |row: &WorkerRow| {
            if row.key == hangs.own {
                row.seen - SignedDuration::from_mins(3)
            } else {
                row.seen
            }
        };
        let later: Vec<_> = rows
            .iter()
            .map(|row| WorkerRow {
                seen: before(row),
                ..row.clone()
            })
            .collect();
        let (silent, _) = judge(&well.own, &later);
        assert_eq!(
            silent
                .iter()
                .map(|worker| worker.name.as_str())
                .collect::<Vec<_>>(),
            ["hangs"]
        );
        well.forget(std::slice::from_ref(&hangs.own)).await;
        assert_eq!(well.beat(Some(first)).await.unwrap().len(), 1);
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    /// A row of a worker: name, start and last write.
    fn row(name: &str, started: i64, seen: i64) -> WorkerRow {
        WorkerRow {
            key: EntityKey::new(PARTITION, name).unwrap(),
            seen: at(seen),
            started: at(started),
        }
    }

    #[test]
    fn a_worker_that_missed_writes_is_silent_and_an_old_row_is_deleted() {
        let rows = [
            row("a", -9_000, 0),
            row("b", -9_000, -119),
            row("c", -9_000, -121),
            row("d", -9_000, -3_601),
            row("e", -9_000, 40),
        ];
        let (silent, forgotten) = judge(&rows[0].key, &rows);
        assert_eq!(
            silent,
            [SilentWorker {
                name: "c".to_owned(),
                since: at(-121),
                successor: None
            }]
        );
        assert_eq!(forgotten, [rows[3].key.clone()]);
        let unwritten = EntityKey::new(PARTITION, "unwritten").unwrap();
        assert_eq!(
            judge(&unwritten, &rows),
            (Vec::new(), Vec::new()),
            "without the time of the observer's own row, no worker counts as silent"
        );
    }

    #[test]
    fn a_worker_succeeds_one_silent_worker_that_it_started_after() {
        let successors = |rows: &[WorkerRow]| -> Vec<(String, Option<String>)> {
            judge(&rows[0].key, rows)
                .0
                .into_iter()
                .map(|worker| (worker.name, worker.successor))
                .collect()
        };
        let pair =
            |name: &str, successor: Option<&str>| (name.to_owned(), successor.map(str::to_owned));
        let own = row("own", -9_000, 0);
        assert_eq!(
            successors(&[own.clone(), row("killed", -900, -300), row("new", -280, 0)]),
            [pair("killed", Some("new"))]
        );
        assert_eq!(
            successors(&[own.clone(), row("hangs", -900, -300), row("old", -301, 0)]),
            [pair("hangs", None)]
        );
        let two = successors(&[
            own.clone(),
            row("first", -900, -400),
            row("second", -900, -300),
            row("new", -350, 0),
        ]);
        assert_eq!(two, [pair("second", None), pair("first", Some("new"))]);
        let chain = successors(&[
            own,
            row("first", -900, -600),
            row("second", -590, -300),
            row("third", -280, 0),
        ]);
        assert_eq!(
            chain,
            [pair("second", Some("third")), pair("first", Some("second"))]
        );
    }
}
