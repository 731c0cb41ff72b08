//! Events from other systems as jobs: a message in the schema of Event Grid or of CloudEvents 1.0, mapped by the configuration.
//!
//! ```text
//!   {"specversion": "1.0", "id": …, "type": …, "data": {…}}     a mapping: when, and a job with templates
//!        │ of (envelope checked)                                        │ parsed and tried once, at the start
//!        ▼                                                              ▼
//!      Event ──── the one mapping whose `when` holds ──▶ {"op": "sync", "table": …, "pk": "Sales", "id": …} ──▶ decoded as any job
//! ```
//!
//! - An event becomes one job for one entity. An event is refused if no mapping matches, or more than one.
//! - The operation, the tables and the archive come from the mapping. An event fills in keys and property values, nothing else.
//! - The job has the `id` of the event, so an event that is delivered twice becomes one job that is sent twice.
//! - Unreadable data is not absent data: an event becomes no job if its mapping needs data that evenkeel cannot read.
//! - The job is decoded, checked and allowed as if a client had sent it.

mod data;
mod envelope;
mod mapping;
#[cfg(test)]
mod tests;

pub use envelope::{EventError, EventValue, ForeignEvent, Schema, check_path};
pub use mapping::{EventMapping, EventMappings, MappedJob, MappingError};
