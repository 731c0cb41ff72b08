//! Tables with grouped requests: themselves the same port.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::answer::{Answered, Paid};
use super::batching::Batching;
use super::reads::{PendingRead, Reads};
use super::writes::{PendingWrite, Writes};
use crate::layer::Op;
use evenkeel_model::{AccountName, ETag, EntityKey, Key, Row, TableName};
use evenkeel_storage::check;
use evenkeel_storage::{
    Clock, ErrorClass, Page, Query, Resource, Service, StoreError, Subject, TableOperation,
    TablePage, TableStore,
};
use evenkeel_telemetry::trail::{self, Bill, Step};
use evenkeel_telemetry::{names, traces};

/// The tables of an account, with requests to one partition grouped.
pub struct Grouped {
    account: AccountName,
    clock: Arc<dyn Clock>,
    inner: Arc<dyn TableStore>,
    writes: Arc<Batching<Writes>>,
    reads: Arc<Batching<Reads>>,
}

impl Grouped {
    /// Groups the requests to an account's tables. Used inside one runtime.
    pub fn new(account: &AccountName, inner: Arc<dyn TableStore>, clock: Arc<dyn Clock>) -> Self {
        Self {
            account: account.clone(),
            clock,
            writes: Batching::new(Writes {
                store: Arc::clone(&inner),
            }),
            reads: Batching::new(Reads::new(Arc::clone(&inner))),
            inner,
        }
    }

    /// Waits for an answer, and notes it on the trail of the job that asked: the request is sent by another task.
    async fn answered<T>(
        &self,
        op: Op,
        table: &TableName,
        answered: oneshot::Receiver<Answered<T>>,
        what: impl FnOnce() -> Resource,
    ) -> Result<T, StoreError> {
        let start = self.clock.monotonic();
        // The caller's own span: the task that sends knows of none.
        let span = traces::request(
            self.account.as_str(),
            Service::Table.name(),
            op.label(),
            table.as_str(),
        );
        let Answered { result, paid } =
            answered.instrument(span.clone()).await.unwrap_or_else(|_| {
                // Its batch panicked, or the runtime is going away.
                let subject = Subject {
                    account: self.account.clone(),
                    resource: what(),
                };
                let message = "the request was given up before it was answered";
                Answered {
                    result: Err(StoreError::new(
                        ErrorClass::Ambiguous,
                        op.operation(),
                        subject,
                        message,
                    )),
                    paid: Paid::Here,
                }
            });
        let step = || Step {
            op: op.label(),
            on: table.to_string(),
            answer: result
                .as_ref()
                .map_or_else(|error| error.class.name(), |_| names::OK),
            status: result.as_ref().err().and_then(|error| error.status),
            took: self.clock.monotonic().saturating_sub(start),
        };
        traces::answered(
            &span,
            result
                .as_ref()
                .map_or_else(|error| error.class.name(), |_| names::OK),
            result.as_ref().err().and_then(|error| error.status),
        );
        match paid {
            Paid::Here => trail::note(Bill::Table, step),
            Paid::Elsewhere => trail::share(step),
        }
        result
    }

    /// How many partitions are remembered: for tests.
    #[cfg(test)]
    pub(super) fn queues_in_use(&self) -> usize {
        self.writes.queues_in_use() + self.reads.queues_in_use()
    }
}

#[async_trait]
impl TableStore for Grouped {
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError> {
        let place = (table.clone(), key.pk.clone());
        let gathers = select.is_none() && self.reads.executor().density().is_dense(&place);
        if !gathers {
            return self.inner.get(table, key, select).await;
        }
        let (answer, answered) = oneshot::channel();
        self.reads.join(
            place,
            PendingRead {
                rk: key.rk.clone(),
                answer,
            },
        );
        self.answered(Op::GetEntity, table, answered, || {
            Resource::Entity(table.clone(), key.clone())
        })
        .await
    }

    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        // An operation that breaks a limit is refused by the store itself, unsent, and must not keep others waiting.
        let Ok(bytes) = check::bytes_in_transaction(operation) else {
            return self.inner.apply(table, operation).await;
        };
        let (answer, answered) = oneshot::channel();
        self.writes.join(
            (table.clone(), operation.key().pk.clone()),
            PendingWrite::One {
                operation: operation.clone(),
                bytes,
                answer,
            },
        );
        self.answered(Op::of(operation), table, answered, || {
            Resource::Entity(table.clone(), operation.key().clone())
        })
        .await
    }

    async fn transact(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        if check::transaction(pk, operations).is_err() {
            return self.inner.transact(table, pk, operations).await;
        }
        let (answer, answered) = oneshot::channel();
        self.writes.join(
            (table.clone(), pk.clone()),
            PendingWrite::Whole {
                operations: operations.to_vec(),
                answer,
            },
        );
        self.answered(Op::Transact, table, answered, || {
            Resource::Partition(table.clone(), pk.clone())
        })
        .await
    }

    async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError> {
        self.inner.query(table, query).await
    }

    async fn create_table(&self, table: &TableName) -> Result<bool, StoreError> {
        self.inner.create_table(table).await
    }

    async fn delete_table(&self, table: &TableName) -> Result<bool, StoreError> {
        self.inner.delete_table(table).await
    }

    async fn list_tables(&self, continuation: Option<&str>) -> Result<TablePage, StoreError> {
        self.inner.list_tables(continuation).await
    }
}
