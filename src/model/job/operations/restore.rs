//! `restore`: moves a primary back out of its archive.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JobFields, key, view};
use crate::model::job::{Job, JobError};

/// Fields of a `restore` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "restore")]
pub(super) struct RestoreFields {
    /// The archive, as the catalog names it.
    archive: String,
    /// The primary's PartitionKey.
    pk: String,
    /// The primary's RowKey.
    rk: String,
}

impl JobFields for RestoreFields {
    const OP: &'static str = "restore";

    fn job(self) -> Result<Job, JobError> {
        Ok(Job::Restore { archive: view(Self::OP, self.archive)?, key: key(Self::OP, self.pk, self.rk)? })
    }
}
