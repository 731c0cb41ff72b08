//! `audit`: compares every item of a table's primaries with its expected state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Effect, JobFields, JobSubject, Operation, WalkProgress, table};
use crate::audit::{Audit, AuditCursor};
use crate::cursor::JobCursor;
use crate::job::JobError;

/// Fields of an `audit` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "audit")]
pub(super) struct AuditFields {
    /// The table of the primaries whose items are compared.
    table: String,
    /// Repair the mismatches found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    repair: bool,
    /// Progress, written by workers.
    #[serde(default, deserialize_with = "crate::cursor::read")]
    cursor: AuditCursor,
}

impl JobFields for AuditFields {
    const OP: &'static str = "audit";
    const EFFECT: Effect = Effect::Derives;
    type Job = Audit;

    fn job(self) -> Result<Self::Job, JobError> {
        Ok(Audit {
            table: table(Self::OP, self.table)?,
            repair: self.repair,
            cursor: self.cursor,
        })
    }
}

impl Operation for Audit {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Table(&self.table)
    }

    fn cursor_mut(&mut self) -> Option<&mut dyn JobCursor> {
        Some(&mut self.cursor)
    }

    fn walk_progress(&self, cursor: &Value) -> Option<WalkProgress> {
        let cursor = AuditCursor::deserialize(cursor).ok()?;
        let of = format!("the table {}", self.table);
        Some(WalkProgress {
            of,
            primaries: cursor.primaries,
            failed: cursor.failed,
            wrong: Some(cursor.drifted()),
        })
    }
}
