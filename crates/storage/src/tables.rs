//! Table storage.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::StoreError;
use evenkeel_model::{ETag, Entity, EntityKey, Filter, Key, Row, TableName};

/// The tables of one account.
#[async_trait]
pub trait TableStore: Send + Sync {
    /// Reads one entity, whole or some of its properties. `None` where the row does not exist;
    /// `NotFound(Container)` where the table does not.
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError>;

    /// Executes one operation. Returns the entity's new ETag; nothing after a delete.
    ///
    /// `Conflict`: an insert met an entity. `IfMatch`: it is at another ETag. `NotFound(Item)`: a
    /// replace, merge or delete met no entity, also when it gave an ETag.
    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError>;

    /// Executes an entity group transaction: all operations or none, at most 100, of one partition, each
    /// entity once, at most 4 MiB; checked before anything is sent. Returns an ETag per operation (nothing
    /// for deletes). A failure carries the index of the operation that failed and that operation's class.
    async fn transact(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError>;

    /// Reads one page, ordered by partition key and row key. It may be short, or empty and still
    /// carry a continuation; the end is where there is none.
    async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError>;

    /// Creates a table. `false` where it exists already.
    async fn create_table(&self, table: &TableName) -> Result<bool, StoreError>;

    /// Deletes a table and all in it. `false` where it does not exist. On Azure the name cannot be used
    /// again for at least 40 s.
    async fn delete_table(&self, table: &TableName) -> Result<bool, StoreError>;

    /// Reads one page of the names of tables, from the start or from a continuation.
    async fn list_tables(&self, continuation: Option<&str>) -> Result<TablePage, StoreError>;
}

/// The names of all tables of an account.
pub async fn all_tables(store: &dyn TableStore) -> Result<BTreeSet<TableName>, StoreError> {
    let mut tables = BTreeSet::new();
    let mut continuation: Option<String> = None;
    loop {
        let page = store.list_tables(continuation.as_deref()).await?;
        tables.extend(page.tables);
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(tables);
        }
    }
}

/// Every row that a query finds, page after page from where it begins.
pub async fn all_rows(
    store: &dyn TableStore,
    table: &TableName,
    mut query: Query,
) -> Result<Vec<Row>, StoreError> {
    let mut rows = Vec::new();
    loop {
        let page = store.query(table, &query).await?;
        rows.extend(page.rows);
        query.continuation = page.continuation;
        if query.continuation.is_none() {
            return Ok(rows);
        }
    }
}

/// One write of one entity, alone or in a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum TableOperation {
    /// Insert: fails where the entity exists.
    Insert(Entity),
    /// Insert-Or-Replace, unconditional.
    InsertOrReplace(Entity),
    /// Insert-Or-Merge, unconditional.
    InsertOrMerge(Entity),
    /// Replace an existing entity.
    Replace(Entity, IfMatch),
    /// Merge into an existing entity.
    Merge(Entity, IfMatch),
    /// Delete an existing entity.
    Delete(EntityKey, IfMatch),
}

impl TableOperation {
    /// The entity's key.
    pub const fn key(&self) -> &EntityKey {
        match self {
            Self::Insert(entity)
            | Self::InsertOrReplace(entity)
            | Self::InsertOrMerge(entity)
            | Self::Replace(entity, _)
            | Self::Merge(entity, _) => &entity.key,
            Self::Delete(key, _) => key,
        }
    }

    /// The entity, where the operation carries one.
    pub const fn entity(&self) -> Option<&Entity> {
        match self {
            Self::Insert(entity)
            | Self::InsertOrReplace(entity)
            | Self::InsertOrMerge(entity)
            | Self::Replace(entity, _)
            | Self::Merge(entity, _) => Some(entity),
            Self::Delete(..) => None,
        }
    }

    /// The operation in the service's words.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Insert(_) => "Insert Entity",
            Self::InsertOrReplace(_) => "Insert Or Replace Entity",
            Self::InsertOrMerge(_) => "Insert Or Merge Entity",
            Self::Replace(..) => "Update Entity",
            Self::Merge(..) => "Merge Entity",
            Self::Delete(..) => "Delete Entity",
        }
    }
}

/// Under which condition an existing entity is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IfMatch {
    /// At this ETag only.
    Matches(ETag),
    /// Any ETag (`If-Match: *`).
    Any,
}

/// A query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// Which rows; all where absent.
    pub filter: Option<Filter>,
    /// Which properties; all where absent. Keys, ETag and Timestamp come with every row.
    pub select: Option<Vec<String>>,
    /// Most rows on this page, 1 to 1,000.
    pub top: Option<u32>,
    /// Where an earlier page ended.
    pub continuation: Option<Continuation>,
}

/// Where a page ended: opaque, to be sent back with the same filter and projection.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Continuation {
    /// `x-ms-continuation-NextPartitionKey`
    pub next_partition_key: String,
    /// `x-ms-continuation-NextRowKey`, which the service may leave out
    pub next_row_key: Option<String>,
}

impl Continuation {
    /// Where a job's cursor, which keeps it in two parts, says that a page ended.
    pub fn of_parts(
        next_partition_key: Option<&String>,
        next_row_key: Option<&String>,
    ) -> Option<Self> {
        next_partition_key.map(|next| Self {
            next_partition_key: next.clone(),
            next_row_key: next_row_key.cloned(),
        })
    }

    /// The two parts that a cursor keeps.
    pub fn into_parts(self) -> (Option<String>, Option<String>) {
        (Some(self.next_partition_key), self.next_row_key)
    }
}

/// A page of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// Where to go on; `None` at the end.
    pub continuation: Option<Continuation>,
}

/// A page of table names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePage {
    /// The names, in order.
    pub tables: Vec<TableName>,
    /// Where to go on; `None` at the end.
    pub continuation: Option<String>,
}
