//! An `audit` job: its scope, and its findings so far.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cursor::cursor;
use super::{TableName, ViewName};

/// An `audit` job: compares every item of every primary of a table with its expected state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Table of the audited primaries.
    pub table: TableName,
    /// Whether mismatches are repaired.
    pub repair: bool,
    /// Progress of the job.
    pub cursor: AuditCursor,
}

cursor! {
    /// Progress of an `audit`. Clients send none; a worker writes it into the message.
    pub struct AuditCursor {
        /// The part in progress.
        pub part: AuditPart,
        /// View whose target is in progress, while derived rows are checked.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub view: Option<String>,
        /// Account in progress, if the target is in several accounts; absent for the first account.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub account: Option<String>,
        /// Fingerprint of the views that are audited. If the views change, the audit starts again.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub views: Option<String>,
        /// Primaries checked so far, absent ones with a footprint included.
        pub primaries: u64,
        /// Derived rows checked against their owners so far.
        pub rows: u64,
        /// Items repaired so far.
        pub repaired: u64,
        /// Primaries that could not be checked or repaired; a `sync` job was queued for each.
        pub failed: u64,
        /// Wrong items found so far and not repaired, by view. Views without any are left out.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub drift: BTreeMap<String, u64>,
        /// Wrong items of `drift` that no footprint lists, by view. A backfill does not find them.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub unlisted: BTreeMap<String, u64>,
    }
}

impl AuditCursor {
    /// Returns the number of wrong items found so far and not repaired.
    pub fn drifted(&self) -> u64 {
        self.drift.values().sum()
    }

    /// Counts a wrong item of a view.
    pub fn count_drift(&mut self, view: &ViewName) {
        *self.drift.entry(view.to_string()).or_default() += 1;
    }

    /// Counts a wrong item of a view that no footprint lists.
    pub fn count_unlisted(&mut self, view: &ViewName) {
        self.count_drift(view);
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
    /// The derived rows, view by view. Each must be listed by its owner.
    Rows,
}
