//! A simulated account with a recorder of its table requests, which checks that no two requests in flight write one row.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use crate::group::GroupedTables;
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo, SimWorld};
use evenkeel_model::{AccountName, ETag, Entity, EntityKey, Key, Row, TableName};
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Page, Query, StoreError, TableOperation, TablePage, TableStore};

pub(super) const LATENCY: Duration = Duration::from_millis(10);

pub(super) const SLOW: FaultDecision = FaultDecision::AnswerLate {
    answers: LATENCY,
    timeout: Duration::from_mins(1),
};

struct By<F>(F);

#[async_trait]
impl<F: Fn(&OperationInfo) -> FaultDecision + Send + Sync> FaultPolicy for By<F> {
    async fn before(&self, operation: &OperationInfo) -> FaultDecision {
        (self.0)(operation)
    }
}

/// The requests sent, in the form `Insert Entity` or `Entity Group Transaction of 3`.
#[derive(Default)]
struct Sent {
    lines: Vec<String>,
    writing: BTreeSet<EntityKey>,
    twice: Option<EntityKey>,
}

struct Watched {
    inner: Arc<dyn TableStore>,
    sent: Arc<Mutex<Sent>>,
    /// Whether queries with a doubled apostrophe in their filter return no rows.
    misreads_apostrophes: bool,
}

struct Writing<'a>(&'a Watched, Vec<EntityKey>);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut sent = self.0.sent.lock().unwrap();
        for key in &self.1 {
            sent.writing.remove(key);
        }
    }
}

impl Watched {
    fn note(&self, line: String) {
        self.sent.lock().unwrap().lines.push(line);
    }

    fn writing<'a>(&self, operations: impl Iterator<Item = &'a TableOperation>) -> Writing<'_> {
        let keys: Vec<EntityKey> = operations
            .map(|operation| operation.key().clone())
            .collect();
        for key in &keys {
            let mut sent = self.sent.lock().unwrap();
            if !sent.writing.insert(key.clone()) {
                sent.twice = Some(key.clone());
            }
        }
        Writing(self, keys)
    }
}

#[async_trait]
impl TableStore for Watched {
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError> {
        self.note("Get Entity".to_owned());
        self.inner.get(table, key, select).await
    }
    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        let _writing = self.writing(std::iter::once(operation));
        self.note(operation.name().to_owned());
        self.inner.apply(table, operation).await
    }
    async fn transact(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        let _writing = self.writing(operations.iter());
        self.note(format!("Transaction of {}", operations.len()));
        self.inner.transact(table, pk, operations).await
    }
    async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError> {
        self.note(format!("Query of {}", query.top.unwrap_or(0)));
        if self.misreads_apostrophes
            && query
                .filter
                .as_ref()
                .is_some_and(|filter| filter.to_string().contains("''"))
        {
            return Ok(Page {
                rows: Vec::new(),
                continuation: None,
            });
        }
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

pub(super) struct Stage {
    pub(super) tables: Arc<GroupedTables>,
    pub(super) world: SimWorld,
    sent: Arc<Mutex<Sent>>,
}

impl Stage {
    /// Every request takes [`LATENCY`].
    pub(super) async fn calm() -> Self {
        Self::with(|_| SLOW).await
    }

    pub(super) async fn with(
        faults: impl Fn(&OperationInfo) -> FaultDecision + Send + Sync + 'static,
    ) -> Self {
        Self::before(faults, false).await
    }

    /// Answers queries with a quoted apostrophe by 200 without rows.
    pub(super) async fn misreading() -> Self {
        Self::before(|_| SLOW, true).await
    }

    async fn before(
        faults: impl Fn(&OperationInfo) -> FaultDecision + Send + Sync + 'static,
        misreads_apostrophes: bool,
    ) -> Self {
        let account = AccountName::main();
        let fair = SimWorld::new(
            account.clone(),
            Arc::new(SystemClock::new()),
            Arc::new(evenkeel_account::NoFaults),
        );
        fair.account().tables.create_table(&table()).await.unwrap();
        let world = fair.for_caller(1, Arc::new(By(faults)));
        let sent = Arc::<Mutex<Sent>>::default();
        let watched = Watched {
            inner: Arc::new(world),
            sent: Arc::clone(&sent),
            misreads_apostrophes,
        };
        Self {
            tables: Arc::new(GroupedTables::new(
                &account,
                Arc::new(watched),
                Arc::new(SystemClock::new()),
            )),
            world: fair,
            sent,
        }
    }

    /// The requests sent since the last call.
    pub(super) fn sent(&self) -> Vec<String> {
        let mut sent = self.sent.lock().unwrap();
        assert_eq!(sent.twice, None, "two requests in flight wrote one row");
        std::mem::take(&mut sent.lines)
    }

    pub(super) async fn apply(
        &self,
        operation: TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        self.tables.apply(&table(), &operation).await
    }

    pub(super) async fn get(&self, rk: &str) -> Result<Option<Row>, StoreError> {
        self.tables.get(&table(), &key(rk), None).await
    }

    /// Inserts rows without the decorator.
    pub(super) async fn have(&self, rows: impl IntoIterator<Item = String>) {
        for rk in rows {
            self.world
                .account()
                .tables
                .apply(&table(), &insert(&rk))
                .await
                .unwrap();
        }
    }

    pub(super) fn rows(&self) -> Vec<String> {
        self.world
            .rows(&table())
            .into_iter()
            .map(|row| row.entity.key.rk.to_string())
            .collect()
    }
}

pub(super) fn table() -> TableName {
    TableName::new("Employees").unwrap()
}

pub(super) fn key(rk: &str) -> EntityKey {
    EntityKey::new("Sales", rk).unwrap()
}

pub(super) fn insert(rk: &str) -> TableOperation {
    TableOperation::Insert(Entity::new(key(rk)).with("Name", rk))
}

pub(super) fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("r{n:02}")).collect()
}
