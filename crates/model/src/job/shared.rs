//! The fields that all jobs of a batch share.
//!
//! The shared fields are checked once. Each job has a copy of the shared fields, and so has the poison message of each failed job. Fields
//! that no job reads are therefore dropped, and the size of the others is limited.

use serde_json::{Map, Value};

use super::JobError;
use super::batch::SubjectList;

/// Names of the fields that all operations have.
const ENVELOPE: [&str; 4] = ["v", "op", "id", "traceparent"];
/// Maximum bytes of the shared fields as JSON: twice the longest condition.
const SHARED_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct SharedFields {
    pub(super) fields: Map<String, Value>,
    /// Names of dropped fields, which no job of the operation reads.
    pub(super) unknown: Vec<String>,
}

impl SharedFields {
    /// Splits the fields of a message, without its list, into used and unknown fields. `known` are the field names of the operation.
    pub(super) fn of(list: SubjectList, known: &[&str], mut fields: Map<String, Value>) -> Self {
        fields.remove("ek");
        let is_read = |name: &str| {
            (known.contains(&name) || ENVELOPE.contains(&name))
                && !list.excluded().any(|other| other == name)
        };
        let unknown: Vec<String> = fields
            .keys()
            .filter(|name| !is_read(name))
            .cloned()
            .collect();
        fields.retain(|name, _| is_read(name));
        Self { fields, unknown }
    }

    /// Refuses shared fields that are too large. This check comes after validation, so that other errors are reported first.
    pub(super) fn check(&self, op: &'static str) -> Result<(), JobError> {
        let bytes = serde_json::to_vec(&self.fields).map_or(0, |json| json.len());
        if bytes <= SHARED_BYTES {
            return Ok(());
        }
        let problem = format!(
            "the fields without the list have {bytes} bytes; at most {SHARED_BYTES} are allowed"
        );
        Err(JobError::field(op, problem))
    }

    /// Returns the message of a single job.
    pub(super) fn single(&self, list: SubjectList, item: &Value) -> Map<String, Value> {
        let mut object = self.fields.clone();
        list.fill(&mut object, item);
        object
    }
}
