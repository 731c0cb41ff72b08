//! A `backfill` job: which primaries it is about, and how far it has come.

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
        #[serde(default)]
        pub part: BackfillPart,
        /// Primaries brought in step so far.
        #[serde(default)]
        pub done: u64,
        /// Primaries that could not be; a `sync` job of each was queued instead.
        #[serde(default)]
        pub failed: u64,
    }
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
