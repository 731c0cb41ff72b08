//! Implements the table port with a layer around it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::{Layer, Layered, Op, Request, Target};
use crate::retry::{EarlierAttempts, Unanswered};
use evenkeel_model::{ETag, EntityKey, Key, Row, TableName};
use evenkeel_storage::{Page, Query, Service, StoreError, TableOperation, TablePage, TableStore};

#[async_trait]
impl<L: Layer> TableStore for Layered<dyn TableStore, L> {
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError> {
        let request = Request::of_entities(Op::GetEntity, Target::Entity(table, key), 1);
        self.layer
            .call(request, || self.inner.get(table, key, select))
            .await
    }

    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        let earlier = EarlierAttempts::default();
        let request =
            Request::of_entities(Op::of(operation), Target::Entity(table, operation.key()), 1)
                .if_unanswered(Unanswered::of_table_operation(operation))
                .after(&earlier);
        let applied = self
            .layer
            .call(request, || self.inner.apply(table, operation))
            .await;
        earlier.applied(applied)
    }

    async fn transact(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        let request = Request::of_entities(
            Op::Transact,
            Target::Partition(table, Cow::Borrowed(pk)),
            operations.len(),
        );
        self.layer
            .call(request, || self.inner.transact(table, pk, operations))
            .await
    }

    async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError> {
        let found = AtomicUsize::new(0);
        let request = Request::query(table, query.filter.as_ref()).finding(&found);
        let page = || async {
            let page = self.inner.query(table, query).await?;
            found.store(page.rows.len(), Ordering::Relaxed);
            Ok(page)
        };
        self.layer.call(request, page).await
    }

    async fn create_table(&self, table: &TableName) -> Result<bool, StoreError> {
        let request = Request::new(Op::CreateTable, Target::Table(table));
        self.change(request, || self.inner.create_table(table))
            .await
    }

    async fn delete_table(&self, table: &TableName) -> Result<bool, StoreError> {
        let request = Request::new(Op::DeleteTable, Target::Table(table));
        self.change(request, || self.inner.delete_table(table))
            .await
    }

    async fn list_tables(&self, continuation: Option<&str>) -> Result<TablePage, StoreError> {
        let request = Request::new(Op::ListTables, Target::Service(Service::Table));
        self.layer
            .call(request, || self.inner.list_tables(continuation))
            .await
    }
}
