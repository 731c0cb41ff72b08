//! `delete_where`: deletes the primaries of a table that satisfy a condition. [`Sweep`] is the job type of `delete_where` and of
//! `archive_where`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    ArchiveJob, DeleteJob, Effect, Job, JobFields, JobSubject, Operation, WalkProgress, table, when,
};
use crate::cursor::JobCursor;
use crate::job::{JobError, Primary};
use crate::sweep::{PER_SECOND, RangeFields, Sweep, SweepAction, SweepCursor};
use crate::{EntityKey, TableName};

/// Fields of a `delete_where` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "delete_where")]
pub(super) struct DeleteWhereFields {
    /// The table.
    table: String,
    /// Only entities in this range of keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<RangeFields>,
    /// Only entities that satisfy this condition, such as `Ended < now - 90d`. `now` is the time at which the message was enqueued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    /// Every entity of the table. Required if there is neither `range` nor `when`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    all: bool,
    /// Maximum number of entities per second, 1 to 10,000; default 500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    per_second: Option<u32>,
    /// Progress, written by workers.
    #[serde(default, deserialize_with = "crate::cursor::read")]
    cursor: SweepCursor,
}

impl JobFields for DeleteWhereFields {
    const OP: &'static str = "delete_where";
    const EFFECT: Effect = Effect::Deletes;
    type Job = Sweep;

    fn job(self) -> Result<Self::Job, JobError> {
        let action = SweepAction::Delete(table(Self::OP, self.table)?);
        let (when, pace) = (
            when(Self::OP, self.when)?,
            self.per_second.unwrap_or(PER_SECOND),
        );
        let sweep = Sweep::new(action, self.range, when, self.all, pace)
            .map_err(|problem| JobError::field(Self::OP, problem))?;
        Ok(Sweep {
            cursor: self.cursor,
            ..sweep
        })
    }
}

impl Sweep {
    /// Returns the job for one entity of the swept table.
    pub fn job_of(&self, table: &TableName, key: EntityKey) -> Job {
        let (if_match, when) = (None, self.when.clone());
        match &self.action {
            SweepAction::Delete(_) => {
                let primary = Primary {
                    table: table.clone(),
                    key,
                };
                Job::Delete(DeleteJob {
                    primary,
                    if_match,
                    when,
                    newer_by: None,
                })
            }
            SweepAction::Archive(archive) => Job::Archive(ArchiveJob {
                archive: archive.clone(),
                key,
                if_match,
                when,
            }),
        }
    }
}

impl Operation for Sweep {
    fn subject(&self) -> JobSubject<'_> {
        match &self.action {
            SweepAction::Delete(table) => JobSubject::Table(table),
            SweepAction::Archive(archive) => JobSubject::Source(archive),
        }
    }

    fn cursor_mut(&mut self) -> Option<&mut dyn JobCursor> {
        Some(&mut self.cursor)
    }

    fn walk_progress(&self, cursor: &Value) -> Option<WalkProgress> {
        let SweepCursor { seen, failed, .. } = SweepCursor::deserialize(cursor).ok()?;
        Some(WalkProgress {
            of: self.action.to_string(),
            primaries: seen,
            failed,
            wrong: None,
        })
    }
}
