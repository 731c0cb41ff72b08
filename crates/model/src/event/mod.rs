//! Events of others as jobs: a message in the schema of Event Grid or of CloudEvents 1.0, mapped as the configuration declares.
//!
//! ```text
//!   {"specversion": "1.0", "id": …, "type": …, "data": {…}}     a mapping: when, and a job with templates
//!        │ of (envelope checked)                                        │ parsed and tried once, at the start
//!        ▼                                                              ▼
//!      Event ──── the one mapping whose `when` holds ──▶ {"op": "sync", "table": …, "pk": "Sales", "id": …} ──▶ decoded as any job
//! ```
//!
//! - An event becomes one job about one entity, or none: no mapping takes it, or two do.
//! - The operation, the tables and the archive are the mapping's own. An event fills keys and property values, nothing else.
//! - The job's `id` is the event's: an event that is delivered twice is one job sent twice.
//! - What cannot be read is not absent: an event whose data a mapping needs and evenkeel cannot read becomes no job.
//! - The job is decoded, checked and allowed as if a client had sent it.

mod data;
mod envelope;
mod mapping;
#[cfg(test)]
mod tests;

pub use envelope::{EventError, EventValue, ForeignEvent, Schema, check_path};
pub use mapping::{EventMapping, EventMappings, MappedJob, MappingError};
