//! Implements the table port with retries.

use async_trait::async_trait;

use super::Retry;
use super::rules::Unanswered;
use crate::layer::Op;
use evenkeel_model::{ETag, EntityKey, Key, Row, TableName};
use evenkeel_storage::{Page, Query, StoreError, TableOperation, TablePage, TableStore};

#[async_trait]
impl TableStore for Retry<dyn TableStore> {
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError> {
        self.request(Op::GetEntity, || self.inner.get(table, key, select))
            .await
            .result
    }

    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        let rule = Unanswered::of_table_operation(operation);
        let ended = self
            .attempts(Op::of(operation), rule, || {
                self.inner.apply(table, operation)
            })
            .await;
        match ended.result {
            // Only a deletion at an ETag ends here after an unanswered attempt.
            Err(error) if ended.unanswered && error.is_missing_item() => Ok(None),
            result => result,
        }
    }

    async fn transact(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        self.request(Op::Transact, || self.inner.transact(table, pk, operations))
            .await
            .result
    }

    async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError> {
        self.request(Op::QueryEntities, || self.inner.query(table, query))
            .await
            .result
    }

    async fn create_table(&self, table: &TableName) -> Result<bool, StoreError> {
        self.request(Op::CreateTable, || self.inner.create_table(table))
            .await
            .done()
    }

    async fn delete_table(&self, table: &TableName) -> Result<bool, StoreError> {
        self.request(Op::DeleteTable, || self.inner.delete_table(table))
            .await
            .done()
    }

    async fn list_tables(&self, continuation: Option<&str>) -> Result<TablePage, StoreError> {
        self.request(Op::ListTables, || self.inner.list_tables(continuation))
            .await
            .result
    }
}
