//! Databases as sinks: each primary is a row in a table with typed columns.
//!
//! ```text
//!   Sink ─▶ SqlSink          batches, results of single rows, table schemas
//!              │ statement   the SQL that all databases share
//!              ▼
//!           Database         implemented by postgres and sqlite
//! ```
//!
//! A row has two columns of its own, `ek_key` (the primary key) and `ek_version`. A write is conditional on the version: an older
//! one changes nothing and fails with `Precondition`. A delete keeps its version in the table `evenkeel_tombstones` for a day, so
//! that an older insert that arrives later finds it. `statement` explains why no interleaving of two transactions breaks this.
//!
//! A transaction that fails before its commit is sent has changed nothing, so its error is transient or permanent. Only a commit
//! without an answer is ambiguous.

mod database;
#[cfg(feature = "postgres")]
mod postgres;
mod sink;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;

use std::sync::Arc;

use evenkeel_model::AccountName;
use evenkeel_storage::Sink;

/// A PostgreSQL database. Nothing is sent yet.
#[cfg(feature = "postgres")]
pub fn postgres(
    sink: &AccountName,
    settings: evenkeel_model::settings::PostgresSettings,
) -> Arc<dyn Sink> {
    Arc::new(sink::SqlSink::new(sink, postgres::Postgres::new(settings)))
}

/// A SQLite database file. It is not opened yet.
#[cfg(feature = "sqlite")]
pub fn sqlite(sink: &AccountName, path: std::path::PathBuf) -> Arc<dyn Sink> {
    Arc::new(sink::SqlSink::new(sink, sqlite::Sqlite::new(path)))
}
