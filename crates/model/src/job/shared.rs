//! The fields that all jobs of a message about many primaries share.
//!
//! They are read once, and refused once: each job has a copy of them, and where it fails so has its poison message. So what no job reads is
//! left out, and the rest is short.

use serde_json::{Map, Value};

use super::JobError;
use super::batch::SubjectList;

/// Fields beside those of the operation.
const ENVELOPE: [&str; 4] = ["v", "op", "id", "traceparent"];
/// Most bytes of these fields, as JSON: the longest condition, twice.
const SHARED_BYTES: usize = 16 * 1024;

/// The fields of every job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SharedFields {
    pub(super) fields: Map<String, Value>,
    /// Names of fields that no job of the operation reads, and that are left out.
    pub(super) unknown: Vec<String>,
}

impl SharedFields {
    /// Of what a message has beside its list, and of the fields that its operation knows.
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

    /// Refuses what is long, after what is wrong.
    pub(super) fn check(&self, op: &'static str) -> Result<(), JobError> {
        let bytes = serde_json::to_vec(&self.fields).map_or(0, |json| json.len());
        if bytes <= SHARED_BYTES {
            return Ok(());
        }
        let problem = format!(
            "the fields of every job have {bytes} bytes beside the list of primaries; at most {SHARED_BYTES} are allowed"
        );
        Err(JobError::field(op, problem))
    }

    /// The message of the job of one item, alone.
    pub(super) fn single(&self, list: SubjectList, item: &Value) -> Map<String, Value> {
        let mut object = self.fields.clone();
        list.fill(&mut object, item);
        object
    }
}
