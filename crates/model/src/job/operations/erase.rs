//! `erase`: removes a primary with everything that is stored about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, JobFields, JobSubject, Operation, primary};
use crate::job::{JobError, Primary};

/// An `erase` job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EraseJob {
    /// The primary.
    pub primary: Primary,
}

/// Fields of an `erase` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "erase")]
pub(super) struct EraseFields {
    /// The primary's table.
    table: String,
    /// The primary's PartitionKey.
    pk: String,
    /// The primary's RowKey.
    rk: String,
}

impl JobFields for EraseFields {
    const OP: &'static str = "erase";
    const EFFECT: Effect = Effect::Deletes;
    type Job = EraseJob;

    fn job(self) -> Result<Self::Job, JobError> {
        Ok(EraseJob {
            primary: primary(Self::OP, self.table, self.pk, self.rk)?,
        })
    }
}

impl Operation for EraseJob {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Primary(&self.primary.table, &self.primary.key)
    }

    fn erases(&self) -> Option<&Primary> {
        Some(&self.primary)
    }
}
