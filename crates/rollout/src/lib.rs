//! The catalog that a running worker works by: taken up at the start, exchanged when it grows, given up when another one is recorded.
//!
//! ```text
//!   prepare ─▶ the record that the catalog is ─▶ Current: the engine in force ◀── grow: SIGHUP brings a larger catalog
//!                                                  │  lease                  ◀── watch: looks at the record, adopts one that fits
//!                                                  ▼
//!                                    receive_by: the worker runs while its catalog is the recorded one, drains otherwise
//! ```
//!
//! A command that walks over whole tables has a hold of its own, and ends where another catalog is recorded.
//!
//! Invariant: a run is acknowledged only under a record that was looked at after the run began or shortly before, else its message is released.
//!
//! It may name `worker`, `engine`, `storage`, `model` and `telemetry`.

mod current;
mod growth;
mod hold;
mod lease;
pub mod migrations;
mod prepare;
mod serve;
mod watch;

pub use current::Current;
pub use growth::grow;
pub use hold::RecordHold;
pub use prepare::{OnRecord, persistently, prepare};
pub use serve::receive_by;
pub use watch::{Means, Watch};
