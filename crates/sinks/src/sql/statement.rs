//! The SQL that databases have in common: pure.
//!
//! A write of a batch, in one transaction, READ COMMITTED or stricter:
//!
//! 1. `upsert` every row at its version, those to be deleted too. Where a newer version is there nothing happens.
//! 2. `entomb` the versions of those to be deleted.
//! 3. `bury` every row of the batch over which a tombstone of its version, or a newer one, lies.
//!
//! Two transactions on one key meet in step 1, at the unique index: the second waits there until the first is over. If the first was the
//! newer delete, its tombstone is there by the time of the second one's step 3: its statement sees all that was committed before it began.
//! If it was an older insert, its row is there by the time of the delete's step 1.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use evenkeel_model::SinkDocument;
pub(super) use evenkeel_model::sink::{ROW_KEY as KEY, ROW_VERSION as VERSION, TOMBSTONES};
use evenkeel_storage::Fields;

/// Milliseconds that two honest versions are apart, at most, while an older write may still arrive: a day. A version further ahead was not
/// written by evenkeel, and fences nothing.
const APART_MS: i64 = 86_400_000;

/// A table, by its name and its columns.
#[derive(Debug, Clone)]
pub(super) struct TableSchema {
    /// Letters, digits and underscores.
    pub(super) name: String,
    /// Its columns, those of evenkeel's own included, each with its type.
    pub(super) columns: Fields,
}

/// A row to write, or to delete.
#[derive(Debug, Clone)]
pub(super) struct SqlRow {
    pub(super) key: String,
    pub(super) version: i64,
    pub(super) document: Option<SinkDocument>,
}

impl TableSchema {
    /// The columns of the view, without evenkeel's own.
    pub(super) fn own(&self) -> impl Iterator<Item = (&str, &str)> {
        self.columns
            .iter()
            .map(|(name, kind)| (name.as_str(), kind.as_str()))
            .filter(|(name, _)| *name != KEY && *name != VERSION)
    }

    /// Writes rows from a source (`VALUES (…)`, `SELECT …`) with the key, the version and these columns. Returns the keys written.
    pub(super) fn upsert(&self, columns: &BTreeSet<&str>, source: &str) -> String {
        let (mut into, mut set) = (
            format!("{KEY}, {VERSION}"),
            format!("{VERSION} = excluded.{VERSION}"),
        );
        for column in columns {
            // Writing to a String cannot fail.
            let _ = write!(into, ", {0}", quoted(column));
            let _ = write!(set, ", {0} = excluded.{0}", quoted(column));
        }
        format!(
            "INSERT INTO {} AS present ({into}) {source} ON CONFLICT ({KEY}) DO UPDATE SET {set} \
             WHERE present.{VERSION} <= excluded.{VERSION} OR present.{VERSION} > excluded.{VERSION} + {APART_MS} RETURNING {KEY}",
            quoted(&self.name)
        )
    }

    /// Notes the versions of deleted rows, from a source with collection, key and version.
    pub(super) fn entomb(source: &str) -> String {
        format!(
            "INSERT INTO {TOMBSTONES} AS present (collection, key, version) {source} ON CONFLICT (collection, key) DO UPDATE \
             SET version = excluded.version WHERE present.version < excluded.version OR present.version > excluded.version + {APART_MS}"
        )
    }

    /// Deletes those of the rows under some keys (`= ?1`, `= ANY ($1)`) that a tombstone lies over. Returns their keys.
    pub(super) fn bury(&self, keys: &str) -> String {
        let Self { name, .. } = self;
        let table = quoted(name);
        format!(
            "DELETE FROM {table} WHERE {KEY} {keys} AND EXISTS (SELECT 1 FROM {TOMBSTONES} AS gone WHERE gone.collection = '{name}' \
             AND gone.key = {table}.{KEY} AND gone.version >= {table}.{VERSION} AND gone.version <= {table}.{VERSION} + {APART_MS}) \
             RETURNING {KEY}"
        )
    }

    /// Deletes tombstones that no write can still meet.
    pub(super) fn purge(now: i64) -> String {
        format!(
            "DELETE FROM {TOMBSTONES} WHERE version < {} OR version > {}",
            now.saturating_sub(APART_MS),
            now.saturating_add(APART_MS)
        )
    }
}

/// Names of columns, each after a comma.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.fold(String::new(), |list, name| list + ", " + &quoted(name))
}

/// Makes a table with these columns, and that of tombstones.
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

/// Adds columns to a table.
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

/// Makes the table of tombstones.
pub(super) fn tombstones() -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {TOMBSTONES} (collection TEXT NOT NULL, key TEXT NOT NULL, version BIGINT NOT NULL, \
         PRIMARY KEY (collection, key))"
    )
}

/// Adds its version to the table of tombstones. Deletes that were noted without one fence nothing.
pub(super) fn version_tombstones() -> String {
    format!("ALTER TABLE {TOMBSTONES} ADD COLUMN version BIGINT NOT NULL DEFAULT 0")
}

/// A name as an identifier. Names are checked where they are declared; a quote in one read from elsewhere is doubled.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
