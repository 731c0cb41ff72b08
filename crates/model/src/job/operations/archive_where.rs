//! `archive_where`: moves the primaries that satisfy a condition into their archive.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, JobFields, view, when};
use crate::job::JobError;
use crate::sweep::{PER_SECOND, RangeFields, Sweep, SweepAction, SweepCursor};

/// Fields of an `archive_where` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "archive_where")]
pub(super) struct ArchiveWhereFields {
    /// The archive, as the catalog names it.
    archive: String,
    /// Only entities in this range of keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<RangeFields>,
    /// Only entities that satisfy this condition, such as `At < now - 90d`. `now` is the time at which the message was enqueued.
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

impl JobFields for ArchiveWhereFields {
    const OP: &'static str = "archive_where";
    const EFFECT: Effect = Effect::Writes;
    type Job = Sweep;

    fn job(self) -> Result<Self::Job, JobError> {
        let action = SweepAction::Archive(view(Self::OP, self.archive)?);
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
