//! `backfill`: syncs every primary of a table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Effect, JobFields, JobSubject, Operation, WalkProgress, table, view};
use crate::backfill::{Backfill, BackfillCursor, BackfillScope};
use crate::cursor::JobCursor;
use crate::job::JobError;

/// Fields of a `backfill` job: a table or a view.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "backfill")]
pub(super) struct BackfillFields {
    /// The table whose primaries are synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    /// The view whose source's primaries are synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<String>,
    /// Progress, written by workers.
    #[serde(default, deserialize_with = "crate::cursor::read")]
    cursor: BackfillCursor,
}

impl JobFields for BackfillFields {
    const OP: &'static str = "backfill";
    const EFFECT: Effect = Effect::Derives;
    type Job = Backfill;

    fn job(self) -> Result<Self::Job, JobError> {
        let scope = match (self.table, self.view) {
            (Some(name), None) => BackfillScope::Table(table(Self::OP, name)?),
            (None, Some(name)) => BackfillScope::View(view(Self::OP, name)?),
            _ => {
                return Err(JobError::field(
                    Self::OP,
                    "exactly one of \"table\" and \"view\" is required",
                ));
            }
        };
        Ok(Backfill {
            scope,
            cursor: self.cursor,
        })
    }
}

impl Operation for Backfill {
    fn subject(&self) -> JobSubject<'_> {
        match &self.scope {
            BackfillScope::Table(table) => JobSubject::Table(table),
            BackfillScope::View(view) => JobSubject::View(view),
        }
    }

    fn cursor_mut(&mut self) -> Option<&mut dyn JobCursor> {
        Some(&mut self.cursor)
    }

    fn walk_progress(&self, cursor: &Value) -> Option<WalkProgress> {
        let cursor = BackfillCursor::deserialize(cursor).ok()?;
        Some(WalkProgress {
            of: self.scope.to_string(),
            primaries: cursor.done,
            failed: cursor.failed + cursor.total_taken(),
            wrong: None,
        })
    }
}
