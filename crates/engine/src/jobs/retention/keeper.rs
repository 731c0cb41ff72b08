//! Creates tables ahead, and queues the drop of those past their retention.

use std::sync::Arc;
use std::time::Duration;

use crate::jobs::retention::plan::{RetentionPlan, There, plan};
use crate::jobs::retention::turns::{QueuedTurn, TimedJob, Timetable, TurnTime};
use evenkeel_model::catalog::{Catalog, Retention, TableRef};
use evenkeel_model::settings::{QueueSettings, WaitPolicy};
use evenkeel_model::{CatalogOwner, TableName};
use evenkeel_storage::stores::UnknownAccount;
use evenkeel_storage::{Clock, StoreError, Stores, all_tables};

/// The operation of the jobs that it queues.
const DROP: &str = "drop_table";
/// The partition of the rows that say when each drop was queued.
const DROPS: &str = "drop";
/// How long after the drop of a table was queued it is queued again, where the table is there still: what ends one that was given up
/// half-way, and ever more seldom, since one that fails for good leaves a poison message each time. First with the next look of any worker
/// after that.
const AGAIN: WaitPolicy = WaitPolicy::doubling(Duration::from_mins(45), Duration::from_hours(24));

/// Maintains the tables of every retention.
pub struct Keeper<'c> {
    catalog: &'c Catalog,
    timetable: Timetable<'c>,
}

/// Why the tables of a retention could not be seen to.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// A store.
    #[error("{doing}")]
    Store {
        /// The step that failed.
        doing: String,
        /// Why it failed.
        #[source]
        source: StoreError,
    },
    /// An account that is not configured.
    #[error(transparent)]
    Account(#[from] UnknownAccount),
    /// No queue carries the jobs that drop tables.
    #[error(
        "{0} tables of [retention.{1}] are over, and no declared queue carries drop_table jobs of them (`allow`, `tables`)"
    )]
    NoQueue(usize, evenkeel_model::ViewName),
    /// No queue carries the job of a rule.
    #[error(
        "[rules.{0}] is due, and no declared queue carries {1} jobs of its table (`allow`, `tables`)"
    )]
    NoCarrier(evenkeel_model::ViewName, &'static str),
}

impl KeeperError {
    /// How long to wait for the name of a table that is still being deleted; `None` where it is something else.
    pub fn slow_subject_wait(&self) -> Option<Duration> {
        match self {
            Self::Store { source, .. } => source.class.slow_subject_wait(),
            Self::Account(_) | Self::NoQueue(..) | Self::NoCarrier(..) => None,
        }
    }
}

impl<'c> Keeper<'c> {
    /// A keeper; drops go to the first queue that carries them. The catalog's generations tell which views are gone.
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

    /// Maintains the tables of every retention once, and queues the drops that are due, or all. One that fails does not hold up the others;
    /// the first failure is returned.
    pub async fn tend(&self, time: TurnTime) -> Result<(), KeeperError> {
        let mut there = There::new();
        let mut first = Ok(());
        for retention in self.catalog.retentions.values() {
            let ended = match self.planned(retention, &mut there).await {
                Ok(plan) => self.carry_out(retention, &plan, time).await,
                Err(error) => Err(error),
            };
            first = first.and(ended);
        }
        first
    }

    /// The changes to the tables of a retention. Tables are listed once for each account and kept in `there`.
    pub async fn planned(
        &self,
        retention: &Retention,
        there: &mut There,
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
            if !there.contains_key(account) {
                let tables = all_tables(stores.account(account)?.tables.as_ref()).await;
                let doing = || format!("listing tables for [retention.{}]", retention.name);
                there.insert(
                    account.clone(),
                    tables.map_err(|source| KeeperError::Store {
                        doing: doing(),
                        source,
                    })?,
                );
            }
        }
        Ok(plan(retention, &followers, there, self.timetable.now()))
    }

    /// Creates the tables of a plan, and queues the drop of the others: of those whose turn it is, or of all.
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
                    tracing::info!(%table, retention = %retention.name, %queue, "table is over: its drop is queued");
                }
                Ok(None) => {}
                Err(error) => first = first.and(Err(error)),
            }
        }
        let now = self.timetable.now();
        for (name, row) in rows {
            // It has nothing left to drop. One of another retention's is not told by this plan.
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

    /// Creates a table, and before it the tables that follow it: a job could do nothing where those are missing.
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
                        "the service still deletes the table that had this name: it is created when that is over"
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
            tracing::info!(%table, retention = %retention.name, "table created ahead");
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
