//! The operations of a database.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::statement::{SqlRow, TableSchema};
use evenkeel_model::ColumnType;
use evenkeel_storage::{ErrorClass, Fields};

/// A database with tables of rows.
#[async_trait]
pub(super) trait Database: Send + Sync + 'static {
    /// A column's type in its words.
    fn type_name(column: ColumnType) -> String;

    /// The columns of a table, each with its type: in the words of [`ColumnType`] where it is one of those. `None` where there is no such
    /// table.
    async fn columns(&self, table: &str) -> Result<Option<Fields>, DatabaseError>;

    /// Executes statements in one transaction.
    async fn execute(&self, statements: Vec<String>) -> Result<(), DatabaseError>;

    /// Writes rows in one transaction; whether each was written. `false` where a newer version was there.
    async fn write(
        &self,
        table: &TableSchema,
        rows: Vec<SqlRow>,
        wait: LockWait,
    ) -> Result<Vec<bool>, DatabaseError>;

    /// Reads the columns of a row that can be read.
    async fn read(
        &self,
        table: &TableSchema,
        key: &str,
    ) -> Result<Option<Map<String, Value>>, DatabaseError>;
}

/// How long a row that others hold is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockWait {
    /// As long as a request may take.
    Long,
    /// As long as an ordinary transaction takes.
    Short,
}

/// Why a transaction failed for its rows together: it is undone, and any row by itself may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contention {
    /// Others hold some of them.
    Held,
    /// They took too long: SQLite has no such limit.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    Slow,
}

/// The error of a database.
#[derive(Debug, Clone)]
pub(super) struct DatabaseError {
    pub(super) class: ErrorClass,
    /// The database's own code, where it has one.
    pub(super) code: Option<String>,
    pub(super) contention: Option<Contention>,
    /// In words, without secrets.
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

    /// Not executed, and worth another try.
    pub(super) fn transient(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Transient { retry_after: None }, message)
    }
}

/// The columns with their declarations, for a statement.
pub(super) fn declared<D: Database>(
    columns: &BTreeMap<String, ColumnType>,
) -> BTreeMap<String, String> {
    columns
        .iter()
        .map(|(name, column)| (name.clone(), D::type_name(*column)))
        .collect()
}
