//! `audit`: a comparison of every item of a table's primaries with its expected state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{JobFields, table};
use crate::model::audit::{Audit, AuditCursor};
use crate::model::job::{Job, JobError};

/// Fields of an `audit` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "audit")]
pub(super) struct AuditFields {
    /// The table of the primaries whose items are compared.
    table: String,
    /// Mend the mismatches found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    repair: bool,
    /// How far it has come; written by workers.
    #[serde(default)]
    cursor: AuditCursor,
}

impl JobFields for AuditFields {
    const OP: &'static str = "audit";

    fn job(self) -> Result<Job, JobError> {
        Ok(Job::Audit(Audit { table: table(Self::OP, self.table)?, repair: self.repair, cursor: self.cursor }))
    }
}
