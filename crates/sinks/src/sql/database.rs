//! The operations that a database must provide.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::statement::{SqlRow, TableSchema};
use evenkeel_model::ColumnType;
use evenkeel_storage::{ErrorClass, Fields};

#[async_trait]
pub(super) trait Database: Send + Sync + 'static {
    /// The database's name of a column type.
    fn type_name(column: ColumnType) -> String;

    /// The columns of a table with their types, named as [`ColumnType`] names them if possible. `None` if the table does not
    /// exist.
    async fn columns(&self, table: &str) -> Result<Option<Fields>, DatabaseError>;

    async fn execute(&self, statements: Vec<String>) -> Result<(), DatabaseError>;

    /// Writes rows in one transaction. Returns for each row `true` if it was written and `false` if a newer version exists.
    async fn write(
        &self,
        table: &TableSchema,
        rows: Vec<SqlRow>,
        wait: LockWait,
    ) -> Result<Vec<bool>, DatabaseError>;

    /// Reads those columns of a row that have a JSON representation.
    async fn read(
        &self,
        table: &TableSchema,
        key: &str,
    ) -> Result<Option<Map<String, Value>>, DatabaseError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockWait {
    /// A write waits for a lock up to the timeout of a request.
    Long,
    /// A write waits for a lock as long as an ordinary transaction takes.
    Short,
}

/// Why a transaction failed although each of its rows may succeed alone. The transaction was rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contention {
    /// Other transactions have locked some of the rows.
    Held,
    /// The transaction took too long. SQLite has no such limit.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    Slow,
}

#[derive(Debug, Clone)]
pub(super) struct DatabaseError {
    pub(super) class: ErrorClass,
    /// The database's own error code, if it has one.
    pub(super) code: Option<String>,
    pub(super) contention: Option<Contention>,
    /// Contains no secret.
    pub(super) message: String,
}

impl DatabaseError {
    pub(super) fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            code: None,
            contention: None,
            message: message.into(),
        }
    }

    /// The error of a request that was not executed and can be repeated.
    pub(super) fn transient(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Transient { retry_after: None }, message)
    }
}

pub(super) fn declared<D: Database>(
    columns: &BTreeMap<String, ColumnType>,
) -> BTreeMap<String, String> {
    columns
        .iter()
        .map(|(name, column)| (name.clone(), D::type_name(*column)))
        .collect()
}
