//! A `drop_table` job: which table, and how far its archiving has come.

use super::TableName;
use super::cursor::cursor;
use super::job::is_zero;

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
        pub files: u64,
        /// Rows in them.
        pub rows: u64,
        /// Number of the rows' folder: earlier ones have other rows than the table.
        #[serde(skip_serializing_if = "is_zero")]
        pub folder: u32,
    }
}
