//! `move`: gives a primary another key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, JobFields, JobSubject, Operation, primary};
use crate::job::{JobError, Primary};

/// A `move` job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveJob {
    /// The primary.
    pub primary: Primary,
    /// The address of the primary after the move.
    pub to: Primary,
}

/// Fields of a `move` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "move")]
pub(super) struct MoveFields {
    /// The primary's table.
    table: String,
    /// The primary's PartitionKey.
    pk: String,
    /// The primary's RowKey.
    rk: String,
    /// Its new PartitionKey.
    to_pk: String,
    /// Its new RowKey.
    to_rk: String,
    /// Its new table; absent to stay in the same table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to_table: Option<String>,
}

impl JobFields for MoveFields {
    const OP: &'static str = "move";
    const EFFECT: Effect = Effect::Writes;
    type Job = MoveJob;

    fn job(self) -> Result<Self::Job, JobError> {
        let from = primary(Self::OP, self.table, self.pk, self.rk)?;
        let to_table = self.to_table.unwrap_or_else(|| from.table.to_string());
        let to = primary(Self::OP, to_table, self.to_pk, self.to_rk)?;
        if from == to {
            return Err(JobError::field(
                Self::OP,
                format_args!("source and target of the move are the same: {from}"),
            ));
        }
        Ok(MoveJob { primary: from, to })
    }
}

impl Operation for MoveJob {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Moved(&self.primary, &self.to)
    }
}
