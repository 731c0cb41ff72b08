//! SQL statements for all kinds of databases.
//!
//! A batch is written in one transaction, with the isolation level READ COMMITTED or a stricter one. The steps:
//!
//! 1. `upsert` writes every row with its version, even if the row is to be deleted. A row with a newer version does not change.
//! 2. `entomb` writes a tombstone with the version of each row that is to be deleted.
//! 3. `bury` deletes every row of the batch that has a tombstone of the row's version or of a newer version.
//!
//! Two transactions with the same key meet in step 1 at the unique index, where the second waits until the first has ended. If
//! the first was a newer delete, step 3 of the second finds the tombstone, because a statement sees everything that was
//! committed before the statement began. If the first was an older insert and the second is the delete, step 1 of the second
//! finds the row.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use evenkeel_model::SinkDocument;
pub(super) use evenkeel_model::sink::{ROW_KEY as KEY, ROW_VERSION as VERSION, TOMBSTONES};
use evenkeel_storage::Fields;

/// Maximum difference between the versions of two writes of one row that may meet: a day, in milliseconds. A version that is
/// further ahead was not written by evenkeel and is ignored.
const APART_MS: i64 = 86_400_000;

#[derive(Debug, Clone)]
pub(super) struct TableSchema {
    /// Consists of letters, digits and underscores.
    pub(super) name: String,
    /// All columns with their types, including `ek_key` and `ek_version`.
    pub(super) columns: Fields,
}

#[derive(Debug, Clone)]
pub(super) struct SqlRow {
    pub(super) key: String,
    pub(super) version: i64,
    pub(super) document: Option<SinkDocument>,
}

impl TableSchema {
    /// The columns of the view, without `ek_key` and `ek_version`.
    pub(super) fn own(&self) -> impl Iterator<Item = (&str, &str)> {
        self.columns
            .iter()
            .map(|(name, kind)| (name.as_str(), kind.as_str()))
            .filter(|(name, _)| *name != KEY && *name != VERSION)
    }

    /// Writes rows from a source (`VALUES (…)`, `SELECT …`) that gives the key, the version and these columns. Returns the keys
    /// written.
    pub(super) fn upsert(&self, columns: &BTreeSet<&str>, source: &str) -> String {
        let (mut into, mut set) = (
            format!("{KEY}, {VERSION}"),
            format!("{VERSION} = excluded.{VERSION}"),
        );
        for column in columns {
            // Writing to a string cannot fail.
            let _ = write!(into, ", {0}", quoted(column));
            let _ = write!(set, ", {0} = excluded.{0}", quoted(column));
        }
        format!(
            "INSERT INTO {} AS present ({into}) {source} ON CONFLICT ({KEY}) DO UPDATE SET {set} \
             WHERE present.{VERSION} <= excluded.{VERSION} OR present.{VERSION} > excluded.{VERSION} + {APART_MS} RETURNING {KEY}",
            quoted(&self.name)
        )
    }

    /// Stores the versions of deleted rows. The source gives the collection, key and version of each.
    pub(super) fn entomb(source: &str) -> String {
        format!(
            "INSERT INTO {TOMBSTONES} AS present (collection, key, version) {source} ON CONFLICT (collection, key) DO UPDATE \
             SET version = excluded.version WHERE present.version < excluded.version OR present.version > excluded.version + {APART_MS}"
        )
    }

    /// Deletes the rows under these keys (`= ?1`, `= ANY ($1)`) that have a tombstone. Returns their keys.
    pub(super) fn bury(&self, keys: &str) -> String {
        let Self { name, .. } = self;
        let table = quoted(name);
        format!(
            "DELETE FROM {table} WHERE {KEY} {keys} AND EXISTS (SELECT 1 FROM {TOMBSTONES} AS gone WHERE gone.collection = '{name}' \
             AND gone.key = {table}.{KEY} AND gone.version >= {table}.{VERSION} AND gone.version <= {table}.{VERSION} + {APART_MS}) \
             RETURNING {KEY}"
        )
    }

    /// Deletes tombstones that no older write can meet any more.
    pub(super) fn purge(now: i64) -> String {
        format!(
            "DELETE FROM {TOMBSTONES} WHERE version < {} OR version > {}",
            now.saturating_sub(APART_MS),
            now.saturating_add(APART_MS)
        )
    }
}

/// Column names, each after a comma.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.fold(String::new(), |list, name| list + ", " + &quoted(name))
}

/// Creates a table with these columns, and the table of tombstones.
pub(super) fn create(table: &str, columns: &BTreeMap<String, String>) -> Vec<String> {
    let columns = columns.iter().fold(String::new(), |list, (name, kind)| {
        list + ", " + &quoted(name) + " " + kind
    });
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {} ({KEY} TEXT NOT NULL PRIMARY KEY, {VERSION} BIGINT NOT NULL{columns})",
            quoted(table)
        ),
        tombstones(),
    ]
}

pub(super) fn add(table: &str, columns: &BTreeMap<String, String>) -> Vec<String> {
    let add = |(name, kind): (&String, &String)| {
        format!(
            "ALTER TABLE {} ADD COLUMN {} {kind}",
            quoted(table),
            quoted(name)
        )
    };
    columns.iter().map(add).chain([tombstones()]).collect()
}

pub(super) fn tombstones() -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {TOMBSTONES} (collection TEXT NOT NULL, key TEXT NOT NULL, version BIGINT NOT NULL, \
         PRIMARY KEY (collection, key))"
    )
}

/// Adds the version column to the table of tombstones. Existing tombstones get version 0 and have no effect.
pub(super) fn version_tombstones() -> String {
    format!("ALTER TABLE {TOMBSTONES} ADD COLUMN version BIGINT NOT NULL DEFAULT 0")
}

/// Quotes an identifier. Configured names are validated, but a name read from the database may contain a quote.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
