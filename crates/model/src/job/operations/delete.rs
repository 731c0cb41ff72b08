//! `delete`: deletes a primary.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Effect, JobFields, JobSubject, Operation, etag, primary, when};
use crate::condition::TimedCondition;
use crate::job::{JobError, Listing, Primary};
use crate::{ETag, EdmValue, odata};

/// A `delete` job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteJob {
    /// The primary.
    pub primary: Primary,
    /// The ETag that the primary must have.
    pub if_match: Option<ETag>,
    /// The condition that the primary must satisfy.
    pub when: Option<TimedCondition>,
    /// One property, and the value that it has for this deletion. The deletion is skipped if the stored value is greater.
    pub newer_by: Option<(String, EdmValue)>,
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
    /// Delete only while the primary satisfies this condition, such as `Ended < now - 90d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    /// One property with the value that it has for this deletion, typed as in an entity. The job is skipped if the stored value is greater.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newer_by: Option<Map<String, Value>>,
}

impl JobFields for DeleteFields {
    const OP: &'static str = "delete";
    const EFFECT: Effect = Effect::Deletes;
    const LISTING: Option<Listing> = Some(Listing::Keys);
    type Job = DeleteJob;

    fn job(self) -> Result<Self::Job, JobError> {
        let primary = primary(Self::OP, self.table, self.pk, self.rk)?;
        let newer_by = self.newer_by.map(newer_by).transpose()?;
        Ok(DeleteJob {
            primary,
            if_match: etag(Self::OP, self.if_match)?,
            when: when(Self::OP, self.when)?,
            newer_by,
        })
    }
}

fn newer_by(json: Map<String, Value>) -> Result<(String, EdmValue), JobError> {
    let wrong = |problem: &dyn std::fmt::Display| {
        JobError::field(DeleteFields::OP, format_args!("\"newer_by\": {problem}"))
    };
    let mut values = odata::decode_properties(json).map_err(|error| wrong(&error))?;
    match (values.pop_first(), values.is_empty()) {
        (Some(value), true) => Ok(value),
        _ => Err(wrong(
            &"expected one property with a value, such as {\"Version\": 18}",
        )),
    }
}

impl Operation for DeleteJob {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Primary(&self.primary.table, &self.primary.key)
    }
}
