//! A `backfill` job: its scope, and its progress.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cursor::cursor;
use super::{TableName, ViewName};

/// A `backfill` job: a full `sync` of every primary of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backfill {
    /// The primaries to sync.
    pub scope: BackfillScope,
    /// Progress of the job.
    pub cursor: BackfillCursor,
}

/// Scope of a `backfill`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackfillScope {
    /// Every primary of a table.
    Table(TableName),
    /// Every primary of a view's source.
    View(ViewName),
}

impl fmt::Display for BackfillScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => write!(f, "the table {table}"),
            Self::View(view) => write!(f, "the view {view}"),
        }
    }
}

cursor! {
    /// Progress of a `backfill`. Clients send none; a worker writes it into the message.
    pub struct BackfillCursor {
        /// The part in progress.
        pub part: BackfillPart,
        /// Primaries synced so far.
        pub done: u64,
        /// Primaries that could not be synced; a `sync` job was queued for each.
        pub failed: u64,
        /// Items inserted so far.
        pub created: u64,
        /// Items replaced so far.
        pub updated: u64,
        /// Items deleted so far.
        pub deleted: u64,
        /// Keys held by rows or blobs that evenkeel did not write, by view. No job is queued for them.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub taken: BTreeMap<String, TakenKeys>,
    }
}

/// Maximum length of an example, in characters. The message needs room for one example per view.
const EXAMPLE: usize = 400;

impl BackfillCursor {
    /// Counts a key that is held by something that evenkeel did not write.
    pub fn count_taken(&mut self, view: &ViewName, what: &str) {
        let taken = self.taken.entry(view.to_string()).or_default();
        if taken.items == 0 {
            taken.example = what.chars().take(EXAMPLE).collect();
        }
        taken.items += 1;
    }

    /// Returns the number of items of all views that were not written because their key is taken.
    pub fn total_taken(&self) -> u64 {
        self.taken.values().map(|taken| taken.items).sum()
    }
}

/// Keys of one view's items that are held by rows or blobs that evenkeel did not write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakenKeys {
    /// Number of items that were not written.
    pub items: u64,
    /// Description of one of them.
    pub example: String,
}

/// Parts of a `backfill`, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackfillPart {
    /// The rows of the table.
    #[default]
    Primaries,
    /// The footprints of primaries that are gone.
    Footprints,
}
