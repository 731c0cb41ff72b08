//! Metrics, traces, and the storage requests of a job.
//!
//! [`names`] is the contract with dashboards and alerts: every metric, label and unit in one file.
//! [`describe`](describe::describe) passes the descriptions to the recorder; the other functions of its module set
//! gauges and counters to zero at the start, so that dashboards show 0 instead of a gap. [`job_trace`] records the
//! requests of a job across layers. [`traces`] exports spans if that is configured.
//!
//! ```text
//!   worker ── opens a job trace ──▶ layers ── one step per request ──▶ the journal of ops
//!      └───── metrics, by their names ───────────────────────────────▶ the recorder of ops
//! ```
//!
//! Invariant: labels contain no user data.
//!
//! It may depend on `model` only. Logging is set up in `ops`, which also changes its level.

pub mod describe;
pub mod job_trace;
pub mod latency;
pub mod names;
#[cfg(feature = "otlp")]
pub mod traces;
#[cfg(not(feature = "otlp"))]
#[path = "no_traces.rs"]
pub mod traces;

pub use describe::{
    announce_account, announce_program, announce_queue, announce_start, announce_view, describe,
};
