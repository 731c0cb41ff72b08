//! `drop_table`: drops a dated table as a whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, JobFields, JobSubject, Operation, table};
use crate::cursor::JobCursor;
use crate::drop_table::{DropTable, DropTableCursor};
use crate::job::JobError;

/// Fields of a `drop_table` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "drop_table")]
pub(super) struct DropTableFields {
    /// The dated table. A declared retention must cover it.
    table: String,
    /// Progress of archiving, written by workers.
    #[serde(default, deserialize_with = "crate::cursor::read")]
    cursor: DropTableCursor,
}

impl JobFields for DropTableFields {
    const OP: &'static str = "drop_table";
    const EFFECT: Effect = Effect::Drops;
    type Job = DropTable;

    fn job(self) -> Result<Self::Job, JobError> {
        Ok(DropTable {
            table: table(Self::OP, self.table)?,
            cursor: self.cursor,
        })
    }
}

impl Operation for DropTable {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::DatedTable(&self.table)
    }

    fn cursor_mut(&mut self) -> Option<&mut dyn JobCursor> {
        Some(&mut self.cursor)
    }
}
