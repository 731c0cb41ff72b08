//! Creates dated tables ahead, and queues the drop of expired ones.

use std::sync::Arc;
use std::time::Duration;

use crate::jobs::retention::plan::{ExistingTables, RetentionPlan, plan};
use crate::jobs::retention::turns::{QueuedTurn, TimedJob, Timetable, TurnTime};
use evenkeel_model::catalog::{Catalog, Retention, TableRef};
use evenkeel_model::settings::{QueueSettings, WaitPolicy};
use evenkeel_model::{CatalogOwner, TableName};
use evenkeel_storage::stores::UnknownAccount;
use evenkeel_storage::{Clock, StoreError, Stores, all_tables};

const DROP: &str = "drop_table";
/// Partition of the rows that record when each drop was queued.
const DROPS: &str = "drop";
/// Waits between two drop jobs for the same table. If the table still exists after the wait, the earlier drop may have
/// been given up half-way, and the new job completes it. The waits grow, because a drop that always fails leaves a
/// poison message each time.
const AGAIN: WaitPolicy = WaitPolicy::doubling(Duration::from_mins(45), Duration::from_hours(24));

pub struct Keeper<'c> {
    pub(super) catalog: &'c Catalog,
    pub(super) timetable: Timetable<'c>,
}

#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    #[error("{doing}")]
    Store {
        doing: String,
        #[source]
        source: StoreError,
    },
    #[error(transparent)]
    Account(#[from] UnknownAccount),
    #[error(
        "{0} tables of [retention.{1}] have expired, but no declared queue accepts drop_table jobs for them (`allow`, `tables`)"
    )]
    NoQueue(usize, evenkeel_model::ViewName),
    #[error(
        "[rules.{0}] is due, but no declared queue accepts {1} jobs for its table (`allow`, `tables`)"
    )]
    NoCarrier(evenkeel_model::ViewName, &'static str),
}

impl KeeperError {
    /// Time to wait if the service is still deleting a table of this name; `None` for any other error.
    pub fn slow_subject_wait(&self) -> Option<Duration> {
        match self {
            Self::Store { source, .. } => source.class.slow_subject_wait(),
            Self::Account(_) | Self::NoQueue(..) | Self::NoCarrier(..) => None,
        }
    }
}

impl<'c> Keeper<'c> {
    /// Each job is sent to the first queue that accepts it. `catalog` must have the recorded generations. Only they
    /// show which tables belong to deleted views.
    pub fn new(
        catalog: &'c Catalog,
        stores: Stores,
        clock: Arc<dyn Clock>,
        queues: &'c [QueueSettings],
        owner: CatalogOwner,
    ) -> Self {
        Self {
            catalog,
            timetable: Timetable::new(stores, clock, queues, owner),
        }
    }

    /// Maintains the tables of every retention once, and queues the drops that are due, or all drops if `time` is
    /// `TurnTime::Now`. If one retention fails, the others are still maintained, and the first failure is returned.
    pub async fn tend(&self, time: TurnTime) -> Result<(), KeeperError> {
        let mut existing = ExistingTables::new();
        let mut first = Ok(());
        for retention in self.catalog.retentions.values() {
            let ended = match self.planned(retention, &mut existing).await {
                Ok(plan) => self.carry_out(retention, &plan, time).await,
                Err(error) => Err(error),
            };
            first = first.and(ended);
        }
        first
    }

    /// Returns the tables to create and to drop for a retention. The tables of each account are listed once, and cached
    /// in `existing`.
    pub async fn planned(
        &self,
        retention: &Retention,
        existing: &mut ExistingTables,
    ) -> Result<RetentionPlan, KeeperError> {
        let followers = self.catalog.followers(retention);
        let stores = self.timetable.stores();
        let former = followers
            .former
            .iter()
            .map(|former| &former.account)
            .filter(|account| stores.account(account).is_ok());
        for account in followers
            .required()
            .map(|follower| &follower.account)
            .chain(former)
            .chain([&retention.account])
        {
            if !existing.contains_key(account) {
                let tables = all_tables(stores.account(account)?.tables.as_ref()).await;
                let doing = || format!("listing tables for [retention.{}]", retention.name);
                existing.insert(
                    account.clone(),
                    tables.map_err(|source| KeeperError::Store {
                        doing: doing(),
                        source,
                    })?,
                );
            }
        }
        Ok(plan(retention, &followers, existing, self.timetable.now()))
    }

    /// Creates the tables of a plan, and queues the drops that are due, or all drops if `time` is `TurnTime::Now`.
    pub async fn carry_out(
        &self,
        retention: &Retention,
        plan: &RetentionPlan,
        time: TurnTime,
    ) -> Result<(), KeeperError> {
        let mut created = Ok(());
        for tables in &plan.create {
            let ended = self.create(retention, tables).await;
            created = created.and(ended);
        }
        created.and(self.queue_drops(retention, plan, time).await)
    }

    async fn queue_drops(
        &self,
        retention: &Retention,
        plan: &RetentionPlan,
        time: TurnTime,
    ) -> Result<(), KeeperError> {
        let mut rows = self.timetable.rows(DROPS).await?;
        let (mut first, mut left) = (Ok(()), 0);
        for table in &plan.drop {
            let found = rows.remove(table.as_str());
            let Some((account, queue)) = self.timetable.carrier(DROP, &[table]) else {
                left += 1;
                continue;
            };
            let job = timed(table);
            let Some(due) = self.timetable.due(&job, found, time) else {
                continue;
            };
            match self.timetable.send(&job, due, account, queue).await {
                Ok(Some(QueuedTurn { queue, .. })) => {
                    tracing::info!(%table, retention = %retention.name, %queue, "queued the drop of expired table {table}");
                }
                Ok(None) => {}
                Err(error) => first = first.and(Err(error)),
            }
        }
        let now = self.timetable.now();
        for (name, row) in rows {
            // The table is gone, so its row is no longer needed. The rows of other retentions' tables are kept, because
            // this plan does not cover those tables.
            if TableName::new(name).is_ok_and(|table| retention.is_expired(&table, now)) {
                self.timetable.forget(row).await?;
            }
        }
        first.and(if left == 0 {
            Ok(())
        } else {
            Err(KeeperError::NoQueue(left, retention.name.clone()))
        })
    }

    /// Creates the followers of a table before the table, because jobs on the table need them.
    async fn create(&self, retention: &Retention, tables: &[TableRef]) -> Result<(), KeeperError> {
        for table in tables {
            if let Err(source) = self
                .timetable
                .stores()
                .account(&table.account)?
                .tables
                .create_table(&table.table)
                .await
            {
                if let Some(wait) = source.class.slow_subject_wait() {
                    tracing::warn!(
                        %table, retention = %retention.name, wait_seconds = wait.as_secs(),
                        "could not create table {table}: the service is still deleting a table of this name; retrying later"
                    );
                }
                return Err(KeeperError::Store {
                    doing: format!(
                        "creating the table {table} of [retention.{}]",
                        retention.name
                    ),
                    source,
                });
            }
            tracing::info!(%table, retention = %retention.name, "created table {table} ahead of its date");
        }
        Ok(())
    }
}

fn timed(table: &TableName) -> TimedJob<'_> {
    TimedJob {
        kind: DROPS,
        name: table.as_str(),
        subject: format!("the drop of {table}"),
        message: serde_json::json!({"op": DROP, "table": table}),
        waits: AGAIN,
    }
}
