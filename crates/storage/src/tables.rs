use std::collections::BTreeSet;

use async_trait::async_trait;

use super::StoreError;
use evenkeel_model::{ETag, Entity, EntityKey, Filter, Key, Row, TableName};

/// The tables of one account.
#[async_trait]
pub trait TableStore: Send + Sync {
    /// Reads an entity, or some of its properties. `None` if the row does not exist, `NotFound(Container)` if the table does not.
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError>;

    /// Executes one operation. Returns the new ETag, or `None` after a delete.
    ///
    /// Errors: `Conflict` if an insert meets an entity, `Precondition` if the entity has another ETag, and `NotFound(Item)` if a replace,
    /// merge or delete meets no entity, with or without an ETag.
    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError>;

    /// Executes an entity group transaction: all operations or none. It may have at most 100 operations and 4 MiB, in one partition, with
    /// each entity once; this is checked before anything is sent.
    /// Returns an ETag per operation, `None` for deletes. An error has the index and the class of the operation that failed.
    async fn transact(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError>;

    /// Reads one page, sorted by partition key and row key. A page may be short or even empty and still have a continuation; only a page
    /// without one is the last.
    async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError>;

    /// Returns `false` if the table exists already.
    async fn create_table(&self, table: &TableName) -> Result<bool, StoreError>;

    /// Deletes a table with its rows. Returns `false` if it does not exist. On Azure the name cannot be used again for at least 40 s.
    async fn delete_table(&self, table: &TableName) -> Result<bool, StoreError>;

    /// Lists one page of the tables' names, from the start or from a continuation.
    async fn list_tables(&self, continuation: Option<&str>) -> Result<TablePage, StoreError>;
}

/// Lists all tables of an account.
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

/// Reads all pages of a query.
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

/// A write of one entity, alone or in a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum TableOperation {
    /// Fails if the entity exists.
    Insert(Entity),
    /// Unconditional.
    InsertOrReplace(Entity),
    /// Unconditional.
    InsertOrMerge(Entity),
    Replace(Entity, IfMatch),
    Merge(Entity, IfMatch),
    Delete(EntityKey, IfMatch),
}

impl TableOperation {
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

    /// The entity to write, if any.
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

    /// The name of the operation on the service.
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

/// The condition for an existing entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IfMatch {
    /// The entity must have this ETag.
    Matches(ETag),
    /// Any ETag (`If-Match: *`).
    Any,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// `None` for all rows.
    pub filter: Option<Filter>,
    /// `None` for all properties. Keys, ETag and Timestamp come with every row.
    pub select: Option<Vec<String>>,
    /// Maximum rows on this page, 1 to 1,000.
    pub top: Option<u32>,
    /// The end of the page before.
    pub continuation: Option<Continuation>,
}

/// The end of a page. It is opaque, and must be sent back with the same filter and projection.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Continuation {
    /// `x-ms-continuation-NextPartitionKey`
    pub next_partition_key: String,
    /// `x-ms-continuation-NextRowKey`, which the service may leave out
    pub next_row_key: Option<String>,
}

impl Continuation {
    /// Restores a continuation from a job's cursor, which stores it in two parts.
    pub fn of_parts(
        next_partition_key: Option<&String>,
        next_row_key: Option<&String>,
    ) -> Option<Self> {
        next_partition_key.map(|next| Self {
            next_partition_key: next.clone(),
            next_row_key: next_row_key.cloned(),
        })
    }

    /// The two parts that a cursor stores.
    pub fn into_parts(self) -> (Option<String>, Option<String>) {
        (Some(self.next_partition_key), self.next_row_key)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub rows: Vec<Row>,
    /// The start of the next page; `None` on the last one.
    pub continuation: Option<Continuation>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePage {
    pub tables: Vec<TableName>,
    /// The start of the next page; `None` on the last one.
    pub continuation: Option<String>,
}
