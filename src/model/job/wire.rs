//! The fields of each operation, as a message carries them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::PutMode;
use crate::model::audit::AuditCursor;
use crate::model::backfill::BackfillCursor;
use crate::model::drop_table::DropTableCursor;

/// Fields of a `sync` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "sync")]
pub(super) struct SyncFields {
    /// The primary's table.
    pub(super) table: String,
    /// The primary's PartitionKey.
    pub(super) pk: String,
    /// The primary's RowKey.
    pub(super) rk: String,
    /// Look at every item, also where the primary has not changed: finds and mends items that another program changed
    /// or deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) thorough: bool,
}

/// Fields of a `put` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "put")]
pub(super) struct PutFields {
    /// The primary's table.
    pub(super) table: String,
    /// The entity in OData JSON: PartitionKey, RowKey and properties, with "X@odata.type" beside Int64, Double, DateTime, Guid and Binary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) entity: Option<Map<String, Value>>,
    /// In place of "entity": a staged blob that holds it as JSON, at most 16 MiB. The job then says "pk" and "rk" as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) entity_ref: Option<StagedFields>,
    /// The primary's PartitionKey, beside "entity_ref".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pk: Option<String>,
    /// The primary's RowKey, beside "entity_ref".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rk: Option<String>,
    /// Large values that wait in staged blobs, by property.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) blobs: BTreeMap<String, StagedFields>,
    /// Whether properties that the entity does not name are removed or kept.
    #[serde(default)]
    pub(super) mode: PutMode,
    /// Apply only if the stored entity has this ETag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) if_match: Option<String>,
    /// Apply only if no entity is stored.
    #[serde(default)]
    pub(super) if_absent: bool,
    /// Apply only if this property's value is greater than the stored one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) newer_by: Option<String>,
}

/// A staged blob.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StagedFields {
    /// Where it is: "evenkeel-staging/NAME". The job deletes it when it is done.
    pub(super) blob: String,
    /// The SHA-256 of its content, in lower-case hex digits; checked where it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
}

/// Fields of a `delete` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "delete")]
pub(super) struct DeleteFields {
    /// The primary's table.
    pub(super) table: String,
    /// The primary's PartitionKey.
    pub(super) pk: String,
    /// The primary's RowKey.
    pub(super) rk: String,
    /// Delete only at this ETag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) if_match: Option<String>,
}

/// Fields of an `archive` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "archive")]
pub(super) struct ArchiveFields {
    /// The archive, as the catalog names it.
    pub(super) archive: String,
    /// The primary's PartitionKey.
    pub(super) pk: String,
    /// The primary's RowKey.
    pub(super) rk: String,
    /// Archive only at this ETag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) if_match: Option<String>,
}

/// Fields of a `restore` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "restore")]
pub(super) struct RestoreFields {
    /// The archive, as the catalog names it.
    pub(super) archive: String,
    /// The primary's PartitionKey.
    pub(super) pk: String,
    /// The primary's RowKey.
    pub(super) rk: String,
}

/// Fields of a `backfill` job: a table or a view.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "backfill")]
pub(super) struct BackfillFields {
    /// The table of the primaries to bring in step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) table: Option<String>,
    /// The view; the primaries of its source are brought in step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) view: Option<String>,
    /// How far it has come; written by workers.
    #[serde(default)]
    pub(super) cursor: BackfillCursor,
}

/// Fields of an `audit` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "audit")]
pub(super) struct AuditFields {
    /// The table of the primaries whose items are compared.
    pub(super) table: String,
    /// Mend the mismatches found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) repair: bool,
    /// How far it has come; written by workers.
    #[serde(default)]
    pub(super) cursor: AuditCursor,
}

/// Fields of a `move` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "move")]
pub(super) struct MoveFields {
    /// The primary's table.
    pub(super) table: String,
    /// The primary's PartitionKey.
    pub(super) pk: String,
    /// The primary's RowKey.
    pub(super) rk: String,
    /// Its PartitionKey afterwards.
    pub(super) to_pk: String,
    /// Its RowKey afterwards.
    pub(super) to_rk: String,
    /// Its table afterwards; the same where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) to_table: Option<String>,
}

/// Fields of a `drop_table` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "drop_table")]
pub(super) struct DropTableFields {
    /// The table: one by date, of a declared retention.
    pub(super) table: String,
    /// How far its archiving has come; written by workers.
    #[serde(default)]
    pub(super) cursor: DropTableCursor,
}
