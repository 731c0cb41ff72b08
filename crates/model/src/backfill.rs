//! A `backfill` job: which primaries it is about, and how far it has come.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cursor::cursor;
use super::{TableName, ViewName};

/// A `backfill` job: a `sync` of every primary of a table, with a look at each of its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backfill {
    /// Scope: the primaries to bring in step.
    pub scope: BackfillScope,
    /// How far it has come.
    pub cursor: BackfillCursor,
}

/// Scope of a `backfill`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackfillScope {
    /// Those of a table.
    Table(TableName),
    /// Those of a view's source.
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
    /// How far a `backfill` has come. A client sends none; a worker writes it into the message.
    pub struct BackfillCursor {
        /// The part in progress.
        pub part: BackfillPart,
        /// Primaries brought in step so far.
        pub done: u64,
        /// Primaries that could not be; a `sync` job of each was queued instead.
        pub failed: u64,
        /// Items inserted so far.
        pub created: u64,
        /// Items replaced so far.
        pub updated: u64,
        /// Items deleted so far.
        pub deleted: u64,
        /// Keys that rows or blobs have that evenkeel did not write, so far, by view: nothing was queued for their sake.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub taken: BTreeMap<String, TakenKeys>,
    }
}

/// Most characters of an example: the message that carries it has room for one of each view.
const EXAMPLE: usize = 400;

impl BackfillCursor {
    /// Notes a key that something has that evenkeel did not write.
    pub fn met_taken(&mut self, view: &ViewName, what: &str) {
        let taken = self.taken.entry(view.to_string()).or_default();
        if taken.items == 0 {
            taken.example = what.chars().take(EXAMPLE).collect();
        }
        taken.items += 1;
    }

    /// Items that were not written for that reason, of all views.
    pub fn all_taken(&self) -> u64 {
        self.taken.values().map(|taken| taken.items).sum()
    }
}

/// Keys of one view's items that rows or blobs have that evenkeel did not write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakenKeys {
    /// How many items were not written for that reason.
    pub items: u64,
    /// One of them.
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
