//! `delete`: deletes a primary.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JobFields, etag, primary};
use crate::model::job::{Job, JobError};

/// Fields of a `delete` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "delete")]
pub(super) struct DeleteFields {
    /// The primary's table.
    table: String,
    /// The primary's PartitionKey.
    pk: String,
    /// The primary's RowKey.
    rk: String,
    /// Delete only at this ETag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    if_match: Option<String>,
}

impl JobFields for DeleteFields {
    const OP: &'static str = "delete";

    fn job(self) -> Result<Job, JobError> {
        let primary = primary(Self::OP, self.table, self.pk, self.rk)?;
        Ok(Job::Delete { primary, if_match: etag(Self::OP, self.if_match)? })
    }
}
