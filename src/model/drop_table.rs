//! A `drop_table` job: which table, and how far its archiving has come.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TableName;

/// A `drop_table` job: one table by date is archived, where its retention says so, and dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropTable {
    /// The table.
    pub table: TableName,
    /// How far its archiving has come.
    pub cursor: DropTableCursor,
}

/// How far the archiving of a table has come. A client sends none; a worker writes it into the message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DropTableCursor {
    /// Where the next page begins: the service's continuation token, its partition key part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_pk: Option<String>,
    /// The token's row key part, which the service may leave out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_rk: Option<String>,
    /// Files written so far.
    #[serde(default)]
    pub files: u64,
    /// Rows in them.
    #[serde(default)]
    pub rows: u64,
    /// Complete archives of the table that this job has found behind it: each has a folder of its own.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub complete: u32,
    /// The worker's seal on the cursor and on the message that carries it: a cursor from any other sender is not
    /// trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_none_yet(complete: &u32) -> bool {
    *complete == 0
}
