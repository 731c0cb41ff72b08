//! `move`: gives a primary another key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JobFields, primary};
use crate::model::job::{Job, JobError};

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
    /// Its PartitionKey afterwards.
    to_pk: String,
    /// Its RowKey afterwards.
    to_rk: String,
    /// Its table afterwards; the same where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to_table: Option<String>,
}

impl JobFields for MoveFields {
    const OP: &'static str = "move";

    fn job(self) -> Result<Job, JobError> {
        let from = primary(Self::OP, self.table, self.pk, self.rk)?;
        let to_table = self.to_table.unwrap_or_else(|| from.table.to_string());
        let to = primary(Self::OP, to_table, self.to_pk, self.to_rk)?;
        if from == to {
            return Err(JobError::Field { op: Self::OP, problem: format!("{from} would be moved to where it is") });
        }
        Ok(Job::Move { primary: from, to })
    }
}
