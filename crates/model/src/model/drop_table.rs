//! A `drop_table` job: which table, and how far its archiving has come.

use super::TableName;
use super::cursor::cursor;

/// A `drop_table` job: one table by date is archived, where its retention says so, and dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropTable {
    /// The table.
    pub table: TableName,
    /// How far its archiving has come.
    pub cursor: DropTableCursor,
}

cursor! {
    /// How far the archiving of a table has come. A client sends none; a worker writes it into the message.
    pub struct DropTableCursor {
        /// Files written so far.
        #[serde(default)]
        pub files: u64,
        /// Rows in them.
        #[serde(default)]
        pub rows: u64,
        /// Complete archives of the table that this job has found behind it: each has a folder of its own.
        #[serde(default, skip_serializing_if = "is_none_yet")]
        pub complete: u32,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_none_yet(complete: &u32) -> bool {
    *complete == 0
}
