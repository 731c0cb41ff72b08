//! Creating tables ahead, and queueing the drop of those whose time is over.

use std::sync::Arc;
use std::time::Duration;

use super::plan::plan;
use crate::catalog::{Catalog, Retention};
use crate::model::{AccountName, QueueName, TableName, body};
use crate::ports::stores::UnknownAccount;
use crate::ports::{Clock, StoreError, Stores, Ttl, all_tables};
use crate::settings::QueueSettings;

/// The operation of the jobs that it queues.
const DROP: &str = "drop_table";

/// Sees to the tables of every retention.
pub struct Keeper {
    catalog: Arc<Catalog>,
    stores: Stores,
    clock: Arc<dyn Clock>,
    /// Where drops are queued: the account and the queue.
    queue: Option<(AccountName, QueueName)>,
}

/// Why the tables of a retention could not be seen to.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// A store.
    #[error("{doing}")]
    Store {
        /// What was being done.
        doing: String,
        /// Why it failed.
        #[source]
        source: StoreError,
    },
    /// An account that is not configured.
    #[error(transparent)]
    Account(#[from] UnknownAccount),
    /// No queue carries the jobs that drop tables.
    #[error("{0} tables of [retention.{1}] are over, and no declared queue carries drop_table jobs (its `allow`)")]
    NoQueue(usize, crate::model::ViewName),
}

impl Keeper {
    /// A keeper; drops go to the first queue that carries them.
    pub fn new(catalog: Arc<Catalog>, stores: Stores, clock: Arc<dyn Clock>, queues: &[QueueSettings]) -> Self {
        let carries = |queue: &&QueueSettings| queue.allow.as_ref().is_none_or(|allow| allow.contains(DROP));
        let queue = queues.iter().find(carries);
        let queue = queue.and_then(|queue| Some((queue.account.clone(), queue.shard_names().into_iter().next()?)));
        Self { catalog, stores, clock, queue }
    }

    /// Sees to the tables of every retention once. One that fails does not hold up the others; the first failure is told.
    pub async fn tend(&self) -> Result<(), KeeperError> {
        let mut first = Ok(());
        for retention in self.catalog.retentions.values() {
            let ended = self.tend_one(retention).await;
            first = first.and(ended);
        }
        first
    }

    async fn tend_one(&self, retention: &Retention) -> Result<(), KeeperError> {
        let there = self.tables(retention).await?;
        let plan = plan(retention, &there, self.clock.now());
        let tables = &self.stores.account(&retention.account)?.tables;
        for table in plan.create {
            let created = tables.create_table(&table).await;
            created.map_err(|source| KeeperError::Store {
                doing: format!("creating the table {table} of [retention.{}]", retention.name),
                source,
            })?;
            tracing::info!(%table, retention = %retention.name, "table created ahead");
        }
        let Some((account, queue)) = &self.queue else {
            return if plan.drop.is_empty() { Ok(()) } else { Err(KeeperError::NoQueue(plan.drop.len(), retention.name.clone())) };
        };
        let queues = &self.stores.account(account)?.queues;
        for table in plan.drop {
            let job = serde_json::json!({"op": DROP, "table": table, "id": format!("retention {}", retention.name)});
            let put = queues.put(queue, &body::encode(&job.to_string()), Duration::ZERO, Ttl::Never).await;
            put.map_err(|source| KeeperError::Store { doing: format!("queueing the drop of {table} on {queue}"), source })?;
            tracing::info!(%table, retention = %retention.name, %queue, "table is over: its drop is queued");
        }
        Ok(())
    }

    /// The tables of this pattern that are there.
    async fn tables(&self, retention: &Retention) -> Result<Vec<TableName>, KeeperError> {
        let tables = &self.stores.account(&retention.account)?.tables;
        let there = all_tables(tables.as_ref()).await;
        let there =
            there.map_err(|source| KeeperError::Store { doing: format!("listing tables for [retention.{}]", retention.name), source })?;
        Ok(there.into_iter().filter(|table| retention.tables.period(table).is_some()).collect())
    }
}
