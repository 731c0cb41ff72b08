//! `restore`: moves a primary back out of its archive.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, JobFields, JobSubject, Operation, key, view};
use crate::job::{JobError, Listing};
use crate::{EntityKey, ViewName};

/// A `restore` job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreJob {
    /// The archive.
    pub archive: ViewName,
    /// The primary's key.
    pub key: EntityKey,
}

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
    const EFFECT: Effect = Effect::Writes;
    const LISTING: Option<Listing> = Some(Listing::Keys);
    type Job = RestoreJob;

    fn job(self) -> Result<Self::Job, JobError> {
        Ok(RestoreJob {
            archive: view(Self::OP, self.archive)?,
            key: key(Self::OP, self.pk, self.rk)?,
        })
    }
}

impl Operation for RestoreJob {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Restored(&self.archive, &self.key)
    }
}
