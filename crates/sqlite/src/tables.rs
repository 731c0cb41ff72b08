//! Table storage.

use async_trait::async_trait;

use evenkeel_model::{ETag, EntityKey, Key, Row, TableName};
use evenkeel_storage::{
    Page, Query, Resource, Service, StoreError, TableOperation, TablePage, TableStore,
};

use super::entities::{self, EncodedOperation};
use super::fault::Fault;
use super::reclaim::DroppedKind;
use super::store::EmbeddedStore;
use super::{group, query};

/// Maximum number of names on one page of a listing (the page size of the service).
const NAMES: usize = 1_000;

#[async_trait]
impl TableStore for EmbeddedStore {
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError> {
        let (name, address, select) = (table.clone(), key.clone(), select.map(<[String]>::to_vec));
        self.read(
            "Get Entity",
            || Resource::Entity(table.clone(), key.clone()),
            move |connection| {
                let id = entities::table_id(connection, &name)?;
                entities::read(connection, id, &address, select.as_deref())
            },
        )
        .await
    }

    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        let what = || Resource::Entity(table.clone(), operation.key().clone());
        let prepared = EncodedOperation::prepare(operation)
            .map_err(|fault| self.error(operation.name(), what(), fault))?;
        let name = table.clone();
        self.write(operation.name(), what, move |writing| {
            let id = entities::table_id(writing.connection, &name)?;
            prepared.execute(writing, id)
        })
        .await
    }

    async fn transact(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        const NAME: &str = "Entity Group Transaction";
        let what = || Resource::Partition(table.clone(), pk.clone());
        let prepared =
            group::prepare(pk, operations).map_err(|fault| self.error(NAME, what(), fault))?;
        let name = table.clone();
        self.write(NAME, what, move |writing| {
            let id = entities::table_id(writing.connection, &name)?;
            let execute = |(index, operation): (usize, EncodedOperation)| {
                operation
                    .execute(writing, id)
                    .map_err(|fault| fault.at(index))
            };
            prepared.into_iter().enumerate().map(execute).collect()
        })
        .await
    }

    async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError> {
        const NAME: &str = "Query Entities";
        let what = || Resource::Table(table.clone());
        let limit = query::check(query).map_err(|fault| self.error(NAME, what(), fault))?;
        let (name, query, limit) = (table.clone(), query.clone(), self.page_limit(limit));
        self.read(NAME, what, move |connection| {
            let id = entities::table_id(connection, &name)?;
            query::page(connection, id, &query, limit)
        })
        .await
    }

    async fn create_table(&self, table: &TableName) -> Result<bool, StoreError> {
        let what = || Resource::Table(table.clone());
        let sql = "INSERT INTO tables (name, canonical) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        let names = [table.to_string(), table.canonical().to_string()];
        self.create("Create Table", what, sql, names).await
    }

    async fn delete_table(&self, table: &TableName) -> Result<bool, StoreError> {
        let what = || Resource::Table(table.clone());
        let sql = "DELETE FROM tables WHERE canonical = ?1 RETURNING id";
        let name = table.canonical().to_string();
        self.delete_with_contents("Delete Table", what, DroppedKind::Table, sql, name)
            .await
    }

    async fn list_tables(&self, continuation: Option<&str>) -> Result<TablePage, StoreError> {
        let (from, limit) = (
            continuation.unwrap_or_default().to_owned(),
            self.page_limit(NAMES),
        );
        self.read(
            "Query Tables",
            || Resource::Service(Service::Table),
            move |connection| {
                let sql =
                    "SELECT canonical, name FROM tables WHERE canonical >= ?1 ORDER BY canonical";
                let mut statement = connection.prepare_cached(sql)?;
                let mut rows = statement.query([from])?;
                let mut page = TablePage {
                    tables: Vec::new(),
                    continuation: None,
                };
                while let Some(row) = rows.next()? {
                    if page.tables.len() >= limit {
                        page.continuation = Some(row.get(0)?);
                        break;
                    }
                    page.tables
                        .push(TableName::new(row.get::<_, String>(1)?).map_err(Fault::corrupt)?);
                }
                Ok(page)
            },
        )
        .await
    }
}
