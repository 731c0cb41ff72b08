//! Databases as sinks: a row for each primary in a table with typed columns.
//!
//! ```text
//!   Sink ─▶ SqlSink          batches, answers for each row, schemas of tables
//!              │ statement   the SQL that all databases have in common (pure)
//!              ▼
//!           Database         one file each: postgres, sqlite
//! ```
//!
//! A row has two columns of evenkeel's own: `ek_key`, the primary key, and `ek_version`. A write is conditional on the version: an older
//! one changes nothing, and is told so (`Precondition`). A delete leaves its version in the table `evenkeel_tombstones` for a day, so that
//! an older insert that arrives afterwards finds it. Why no interleaving of two transactions gets around this is in `statement`.
//!
//! A transaction that failed before its commit was sent has changed nothing: those errors are transient or permanent. Only a commit
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

/// A database of PostgreSQL. It is asked for nothing yet.
#[cfg(feature = "postgres")]
pub fn postgres(
    sink: &AccountName,
    settings: evenkeel_model::settings::PostgresSettings,
) -> Arc<dyn Sink> {
    Arc::new(sink::SqlSink::new(sink, postgres::Postgres::new(settings)))
}

/// A database in a file of SQLite. It is asked for nothing yet.
#[cfg(feature = "sqlite")]
pub fn sqlite(sink: &AccountName, path: std::path::PathBuf) -> Arc<dyn Sink> {
    Arc::new(sink::SqlSink::new(sink, sqlite::Sqlite::new(path)))
}
