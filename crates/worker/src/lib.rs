//! The worker: receives messages from queues and runs their jobs until each job is done, given up or released for
//! a later delivery.
//!
//! ```text
//!  queue ─ Get ≤ free slots ─▶ receive ─ a task per message ─▶ deliver ─▶ settle
//!              ▲                  │                              │  decode:  message → work
//!    backoff, circuit, drain      └ slots                        │  key:     one run per primary, syncs coalesced
//!                                                                │  run:     under the lease, renewed at half
//!                                                                └  decide:  outcome → settlement (pure)
//! ```
//!
//! Invariants:
//!
//! * A message is deleted only after its work succeeded, or after its poison message was put.
//! * Nothing is written for a message after its lease, and never with an outdated pop receipt.
//! * Only a run that began counts as an attempt; a delivery alone does not. An outage, throttling, a
//!   shutdown or a lost answer poisons nothing. Only crashes, panics and runs that never end count.
//! * A job that fails transiently is given up only after it has failed often enough, for long enough.
//! * No error of a store ends the worker.
//!
//! The worker does not depend on the protocol by which the work writes to the stores. It calls
//! [`Execute`](evenkeel_engine::Execute), and work that it drops half-way is safe to run again.
//!
//! This crate may depend on `engine`, `storage`, `model` and `telemetry` only.

mod adaptive_limit;
mod attempts;
mod backlog;
mod batch;
mod circuit;
mod concurrency_controller;
mod consumer;
mod context;
mod decide;
mod decode;
mod deliver;
mod delivery;
mod doorbell;
mod drain;
mod erasure;
mod idle;
mod job_metrics;
mod job_runs;
mod key_outcomes;
mod keyed_queue;
mod lease;
mod note;
mod observer;
mod ordered_watch;
pub mod poison;
mod poll_backoff;
mod progress;
mod quarantine;
mod queue_time;
mod receive;
mod schedule;
mod settle;
mod slots;
mod status;
mod tuning;
mod unsettled;
mod weight;
mod worker;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use consumer::QueueKind;
pub use context::{PrimaryResolver, RunReport};
pub use doorbell::Doorbell;
pub use erasure::{PoisonScope, QueueDiscards, discard_about};
pub use idle::Rechecks;
pub use key_outcomes::{KeyOutcome, KeyOutcomes};
pub use observer::{DeliveryReport, DeliveryStatus, Observer};
pub use status::{Backlog, LastError, QueueStatus, ReceiverState, StatusBoard, WorkerStatus};
pub use tuning::{ReloadableSettings, Tuning};
pub use worker::{Mode, Worker, WorkerError, WorkerParts};
