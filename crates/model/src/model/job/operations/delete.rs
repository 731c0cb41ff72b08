//! `delete`: deletes a primary.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, JobFields, JobSubject, Operation, etag, primary, when};
use crate::model::ETag;
use crate::model::condition::TimedCondition;
use crate::model::job::{JobError, Listing, Primary};

/// A `delete` job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteJob {
    /// The primary.
    pub primary: Primary,
    /// Only at this ETag.
    pub if_match: Option<ETag>,
    /// Only while it satisfies this condition.
    pub when: Option<TimedCondition>,
}

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
    /// Delete only while it satisfies this condition, such as `Ended < now - 90d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<String>,
}

impl JobFields for DeleteFields {
    const OP: &'static str = "delete";
    const EFFECT: Effect = Effect::Deletes;
    const LISTING: Option<Listing> = Some(Listing::Keys);
    type Job = DeleteJob;

    fn job(self) -> Result<Self::Job, JobError> {
        let primary = primary(Self::OP, self.table, self.pk, self.rk)?;
        Ok(DeleteJob { primary, if_match: etag(Self::OP, self.if_match)?, when: when(Self::OP, self.when)? })
    }
}

impl Operation for DeleteJob {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Primary(&self.primary.table, &self.primary.key)
    }
}
