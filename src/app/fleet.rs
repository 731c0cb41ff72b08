//! The workers of one store know of each other: each writes a row of the table EvenkeelMigrations now and then, and tells which of the
//! others have fallen silent. Times are the table service's own, so that no clock of a worker matters.
//!
//! Nothing rests on it but reports to operators: a worker that cannot write its row works as ever.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use super::AppParts;
use crate::cli::Context;
use crate::cli::doctor::WorkersSeen;
use crate::model::names::MIGRATIONS;
use crate::model::{AccountName, Entity, EntityKey, Filter, Key, TableName, cause};
use crate::ops::board::{Board, SilentWorker};
use crate::ports::{ErrorClass, IfMatch, Query, StoreError, TableOperation, TableStore, all_rows};

/// The partition of the workers' rows.
const PARTITION: &str = "worker";
/// How often a row is written, some seconds more or less.
const EVERY: Duration = Duration::from_secs(30);
/// A worker with a row older than the observer's own by this hangs, or is gone: it has missed three of its turns.
const SILENT: SignedDuration = SignedDuration::from_secs(120);
/// A row that is older than this is deleted: every other worker has reported it by then.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(1);

/// One worker's row, and where the others' are.
struct Fleet<'a> {
    tables: &'a dyn TableStore,
    table: TableName,
    partition: Key,
    own: EntityKey,
}

/// How long a worker that ends tries to say so.
const FAREWELL: Duration = Duration::from_secs(2);

/// Writes this worker's row and looks at the others' until `end`, then deletes it.
pub(super) async fn keep(parts: &AppParts, name: &str, board: Option<&Board>, end: &CancellationToken) {
    let Some(fleet) = Fleet::of(&parts.context, name) else { return };
    end.run_until_cancelled(fleet.watch(parts, board)).await;
    // A row that stays for a while does no harm.
    let _ = tokio::time::timeout(FAREWELL, fleet.leave()).await;
}

/// The workers of the store, seen by one who is none of them.
pub(super) async fn seen(context: &Context) -> anyhow::Result<WorkersSeen> {
    let Some(fleet) = Fleet::of(context, "none") else { return Ok(WorkersSeen::default()) };
    let rows = match fleet.rows().await {
        Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => Vec::new(),
        rows => rows?,
    };
    let clocks = &context.stores.account(&AccountName::main())?.clocks;
    let (silent, forgotten) = apart(clocks.tables_now().unwrap_or_else(|| context.clock.now()), rows.iter());
    Ok(WorkersSeen { well: rows.len() - silent.len() - forgotten.len(), silent })
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

    /// Periodically writes the own row and looks at the others'; never returns.
    async fn watch(&self, parts: &AppParts, board: Option<&Board>) {
        loop {
            match self.beat().await {
                Ok(rows) => {
                    let (silent, forgotten) = judge(&self.own, &rows);
                    self.forget(&forgotten).await;
                    if let Some(board) = board {
                        board.silent(silent);
                    }
                }
                // A store that does not answer is reported by its circuit breaker.
                Err(error) => tracing::debug!(error = cause::chain(&error), "other workers: cannot be looked at"),
            }
            tokio::time::sleep(parts.chance.jittered(EVERY)).await;
        }
    }

    /// Writes the own row; every row, with when it was written.
    async fn beat(&self) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        let row = Entity::new(self.own.clone()).with("Evenkeel", env!("CARGO_PKG_VERSION"));
        self.tables.apply(&self.table, &TableOperation::InsertOrReplace(row)).await?;
        self.rows().await
    }

    async fn rows(&self) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        let query = Query { filter: Some(Filter::partition(&self.partition)), ..Query::default() };
        let rows = all_rows(self.tables, &self.table, query).await?;
        Ok(rows.into_iter().filter_map(|row| Some((row.entity.key, row.timestamp?.timestamp()))).collect())
    }

    async fn forget(&self, forgotten: &[EntityKey]) {
        for key in forgotten {
            if let Err(error) = self.tables.apply(&self.table, &TableOperation::Delete(key.clone(), IfMatch::Any)).await {
                tracing::debug!(error = cause::chain(&error), "other workers: a row cannot be deleted");
            }
        }
    }

    /// Ends in order: this worker is not reported as silent.
    async fn leave(&self) {
        self.forget(std::slice::from_ref(&self.own)).await;
    }
}

/// Which workers are silent, and which rows are no longer needed, by the time of the own row. Pure.
fn judge(own: &EntityKey, rows: &[(EntityKey, Timestamp)]) -> (Vec<SilentWorker>, Vec<EntityKey>) {
    let Some((_, now)) = rows.iter().find(|(key, _)| key == own) else { return (Vec::new(), Vec::new()) };
    apart(*now, rows.iter().filter(|(key, _)| key != own))
}

/// The silent and the forgotten ones of these rows at this time.
fn apart<'r>(now: Timestamp, rows: impl Iterator<Item = &'r (EntityKey, Timestamp)>) -> (Vec<SilentWorker>, Vec<EntityKey>) {
    let (mut silent, mut forgotten) = (Vec::new(), Vec::new());
    for (key, seen) in rows {
        let age = now.duration_since(*seen);
        if age > FORGOTTEN {
            forgotten.push(key.clone());
        } else if age > SILENT {
            silent.push(SilentWorker { name: key.rk.to_string(), since: *seen });
        }
    }
    (silent, forgotten)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::adapters::sim::{NoFaults, SimWorld};
    use crate::adapters::system::SystemClock;

    #[tokio::test]
    async fn a_worker_that_hangs_is_told_of_by_the_others_and_one_that_ended_is_not() {
        let account = SimWorld::new(AccountName::main(), Arc::new(SystemClock::new()), Arc::new(NoFaults)).account();
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
            one.beat().await.unwrap();
        }
        ended.leave().await;
        let rows = well.beat().await.unwrap();
        assert_eq!(rows.iter().map(|(key, _)| key.rk.as_str()).collect::<Vec<_>>(), ["hangs", "well"]);
        assert_eq!(judge(&well.own, &rows), (Vec::new(), Vec::new()));
        let before = |key: &EntityKey, seen: Timestamp| if *key == hangs.own { seen - SignedDuration::from_mins(3) } else { seen };
        let later: Vec<_> = rows.iter().map(|(key, seen)| (key.clone(), before(key, *seen))).collect();
        let (silent, _) = judge(&well.own, &later);
        assert_eq!(silent.iter().map(|worker| worker.name.as_str()).collect::<Vec<_>>(), ["hangs"]);
        well.forget(std::slice::from_ref(&hangs.own)).await;
        assert_eq!(well.beat().await.unwrap().len(), 1);
    }

    #[test]
    fn a_worker_that_missed_its_turns_is_silent_and_an_old_row_is_forgotten() {
        let key = |name: &str| EntityKey::new(PARTITION, name).unwrap();
        let at = |seconds: i64| Timestamp::from_second(1_700_000_000 + seconds).unwrap();
        let rows = [(key("a"), at(0)), (key("b"), at(-119)), (key("c"), at(-121)), (key("d"), at(-3_601)), (key("e"), at(40))];
        let (silent, forgotten) = judge(&key("a"), &rows);
        assert_eq!(silent, [SilentWorker { name: "c".to_owned(), since: at(-121) }]);
        assert_eq!(forgotten, [key("d")]);
        assert_eq!(judge(&key("unwritten"), &rows), (Vec::new(), Vec::new()), "without a time of one's own nobody is judged");
    }
}
