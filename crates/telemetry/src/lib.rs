//! Metrics, traces, and the requests of one job.
//!
//! [`names`] is the contract with dashboards and alerts: every metric, label and unit in one file. [`describe`](describe::describe) passes
//! the descriptions to the recorder; the functions beside it set gauges and counters to zero at the start, so that a dashboard shows 0
//! and not a gap. A [`trail`] follows one job through the layers that send its requests; [`traces`] sends spans where that is configured.
//!
//! ```text
//!   worker ── opens a trail ──▶ layers ── a step for each request ──▶ the journal of ops
//!      └───── metrics, by their names ──────────────────────────────▶ the recorder of ops
//! ```
//!
//! Invariant: no data of users in a label.
//!
//! It may name `model` alone. The log itself is set up in `ops`, which also changes its level.

pub mod describe;
pub mod latency;
pub mod names;
#[cfg(feature = "otlp")]
pub mod traces;
#[cfg(not(feature = "otlp"))]
#[path = "no_traces.rs"]
pub mod traces;
pub mod trail;

pub use describe::{
    announce_account, announce_program, announce_queue, announce_start, announce_view, describe,
};
