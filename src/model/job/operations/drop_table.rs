//! `drop_table`: drops a table by date, whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JobFields, table};
use crate::model::drop_table::{DropTable, DropTableCursor};
use crate::model::job::{Job, JobError};

/// Fields of a `drop_table` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "drop_table")]
pub(super) struct DropTableFields {
    /// The table: one by date, of a declared retention.
    table: String,
    /// How far its archiving has come; written by workers.
    #[serde(default)]
    cursor: DropTableCursor,
}

impl JobFields for DropTableFields {
    const OP: &'static str = "drop_table";

    fn job(self) -> Result<Job, JobError> {
        Ok(Job::DropTable(Box::new(DropTable { table: table(Self::OP, self.table)?, cursor: self.cursor })))
    }
}
