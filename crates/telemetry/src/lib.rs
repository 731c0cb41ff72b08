//! Telemetry: metrics, logs, and the requests of one job to the stores.
//!
//! [`names`] is the contract with dashboards and alerts: every metric name, label and unit, in one file. Every counter
//! takes its name from there (`metrics::counter!(names::JOBS_TOTAL, …)`). [`describe`](describe::describe) passes the
//! descriptions to the recorder, and the functions beside it set gauges and counters to zero when the program starts,
//! so that a dashboard shows 0 rather than a gap and the first increase is an increase. [`logging`] sets up `tracing`,
//! once, in the program's `main`; [`traces`] sends its spans where that is configured. A [`trail`] follows one job
//! through the layers that send its requests.

pub mod describe;
pub mod latency;
pub mod names;
pub mod traces;
pub mod trail;

pub use describe::{
    announce_account, announce_program, announce_queue, announce_start, announce_view, describe,
};
