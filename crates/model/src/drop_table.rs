//! A `drop_table` job: its table, and the progress of archiving it.

use super::TableName;
use super::cursor::cursor;
use super::job::is_zero;

/// A `drop_table` job: archives one dated table if the retention requires an archive, and drops the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropTable {
    /// The table.
    pub table: TableName,
    /// Progress of archiving.
    pub cursor: DropTableCursor,
}

cursor! {
    /// Progress of archiving a table. Clients send none; a worker writes it into the message.
    pub struct DropTableCursor {
        /// Files written so far.
        pub files: u64,
        /// Rows in them.
        pub rows: u64,
        /// Number of the folder that receives the rows. Folders with lower numbers hold rows of dropped tables of the same name.
        #[serde(skip_serializing_if = "is_zero")]
        pub folder: u32,
    }
}
