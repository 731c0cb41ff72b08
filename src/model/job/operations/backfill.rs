//! `backfill`: a sync of every primary of a table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JobFields, table, view};
use crate::model::backfill::{Backfill, BackfillCursor, BackfillScope};
use crate::model::job::{Job, JobError};

/// Fields of a `backfill` job: a table or a view.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "backfill")]
pub(super) struct BackfillFields {
    /// The table of the primaries to bring in step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    /// The view; the primaries of its source are brought in step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<String>,
    /// How far it has come; written by workers.
    #[serde(default)]
    cursor: BackfillCursor,
}

impl JobFields for BackfillFields {
    const OP: &'static str = "backfill";

    fn job(self) -> Result<Job, JobError> {
        let scope = match (self.table, self.view) {
            (Some(name), None) => BackfillScope::Table(table(Self::OP, name)?),
            (None, Some(name)) => BackfillScope::View(view(Self::OP, name)?),
            _ => return Err(JobError::Field { op: Self::OP, problem: "exactly one of \"table\" and \"view\" is needed".to_owned() }),
        };
        Ok(Job::Backfill(Backfill { scope, cursor: self.cursor }))
    }
}
