//! `sample_touch`: a full `sync` of one primary, as a sample of an operation for tests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, JobFields, JobSubject, Operation, primary};
use crate::job::{JobError, Primary};

/// A `sample_touch` job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchJob {
    /// The primary.
    pub primary: Primary,
}

/// Fields of a `sample_touch` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "sample_touch")]
pub(super) struct TouchFields {
    /// The primary's table.
    table: String,
    /// The primary's PartitionKey.
    pk: String,
    /// The primary's RowKey.
    rk: String,
}

impl JobFields for TouchFields {
    const OP: &'static str = "sample_touch";
    const EFFECT: Effect = Effect::Derives;
    const IS_SAMPLE: bool = true;
    type Job = TouchJob;

    fn job(self) -> Result<Self::Job, JobError> {
        Ok(TouchJob {
            primary: primary(Self::OP, self.table, self.pk, self.rk)?,
        })
    }
}

impl Operation for TouchJob {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Primary(&self.primary.table, &self.primary.key)
    }
}
