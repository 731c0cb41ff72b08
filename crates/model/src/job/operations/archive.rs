//! `archive`: moves a primary into its archive.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, JobFields, JobSubject, Operation, etag, key, view, when};
use crate::condition::TimedCondition;
use crate::job::{JobError, Listing};
use crate::{ETag, EntityKey, ViewName};

/// An `archive` job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveJob {
    /// The archive.
    pub archive: ViewName,
    /// The primary's key in the archive's source table.
    pub key: EntityKey,
    /// The ETag that the primary must have.
    pub if_match: Option<ETag>,
    /// The condition that the primary must satisfy.
    pub when: Option<TimedCondition>,
}

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
    /// Archive only while the primary satisfies this condition, such as `At < now - 90d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<String>,
}

impl JobFields for ArchiveFields {
    const OP: &'static str = "archive";
    const EFFECT: Effect = Effect::Writes;
    const LISTING: Option<Listing> = Some(Listing::Keys);
    type Job = ArchiveJob;

    fn job(self) -> Result<Self::Job, JobError> {
        let (archive, key) = (
            view(Self::OP, self.archive)?,
            key(Self::OP, self.pk, self.rk)?,
        );
        Ok(ArchiveJob {
            archive,
            key,
            if_match: etag(Self::OP, self.if_match)?,
            when: when(Self::OP, self.when)?,
        })
    }
}

impl Operation for ArchiveJob {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Archived(&self.archive, &self.key)
    }
}
