//! `sync`: brings the items of a primary in step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JobFields, primary};
use crate::model::job::{Job, JobError, Looks};

/// Fields of a `sync` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "sync")]
pub(super) struct SyncFields {
    /// The primary's table.
    table: String,
    /// The primary's PartitionKey.
    pk: String,
    /// The primary's RowKey.
    rk: String,
    /// Look at every item, also where the primary has not changed: finds and mends items that another program changed
    /// or deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    thorough: bool,
}

impl JobFields for SyncFields {
    const OP: &'static str = "sync";

    fn job(self) -> Result<Job, JobError> {
        let looks = if self.thorough { Looks::Everything } else { Looks::Doubtful };
        Ok(Job::Sync { primary: primary(Self::OP, self.table, self.pk, self.rk)?, looks })
    }
}
