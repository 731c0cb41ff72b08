//! An `audit` job: its scope, and its findings so far.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cursor::cursor;
use super::{TableName, ViewName};

/// An `audit` job: every item of every primary of a table is compared with its expected state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Table of the audited primaries.
    pub table: TableName,
    /// Whether mismatches are mended.
    pub repair: bool,
    /// How far it has come.
    pub cursor: AuditCursor,
}

cursor! {
    /// How far an `audit` has come. A client sends none; a worker writes it into the message.
    pub struct AuditCursor {
        /// The part in progress.
        pub part: AuditPart,
        /// Of the derived rows: the view of the target in progress.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub view: Option<String>,
        /// Of a target in several accounts: the one in progress; the first where absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub account: Option<String>,
        /// Fingerprint of the views compared so far: with others the audit begins anew.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub views: Option<String>,
        /// Primaries looked at so far, absent ones with a footprint included.
        pub primaries: u64,
        /// Derived rows checked against their owners so far.
        pub rows: u64,
        /// Items mended so far.
        pub repaired: u64,
        /// Primaries that could not be looked at or mended; a `sync` job of each was queued instead.
        pub failed: u64,
        /// Items found wrong so far and not mended, by view; views without any are left out.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub drift: BTreeMap<String, u64>,
        /// Those of them that no footprint lists, which a backfill does not find, by view.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub unlisted: BTreeMap<String, u64>,
    }
}

impl AuditCursor {
    /// Items found wrong so far and not mended.
    pub fn drifted(&self) -> u64 {
        self.drift.values().sum()
    }

    /// One more item of a view was found wrong.
    pub fn found(&mut self, view: &ViewName) {
        *self.drift.entry(view.to_string()).or_default() += 1;
    }

    /// One more item of a view was found wrong that no footprint lists.
    pub fn found_unlisted(&mut self, view: &ViewName) {
        self.found(view);
        *self.unlisted.entry(view.to_string()).or_default() += 1;
    }
}

/// Parts of an `audit`, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditPart {
    /// The rows of the table.
    #[default]
    Primaries,
    /// The footprints of primaries that are gone.
    Footprints,
    /// The derived rows, view by view: each is to be listed by its owner.
    Rows,
}
