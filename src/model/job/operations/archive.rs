//! `archive`: moves a primary into its archive.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JobFields, etag, key, view};
use crate::model::job::{Job, JobError};

/// Fields of an `archive` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "archive")]
pub(super) struct ArchiveFields {
    /// The archive, as the catalog names it.
    archive: String,
    /// The primary's PartitionKey.
    pk: String,
    /// The primary's RowKey.
    rk: String,
    /// Archive only at this ETag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    if_match: Option<String>,
}

impl JobFields for ArchiveFields {
    const OP: &'static str = "archive";

    fn job(self) -> Result<Job, JobError> {
        let (archive, key) = (view(Self::OP, self.archive)?, key(Self::OP, self.pk, self.rk)?);
        Ok(Job::Archive { archive, key, if_match: etag(Self::OP, self.if_match)? })
    }
}
