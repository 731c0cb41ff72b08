//! evenkeel: eventual consistency for Azure Storage.
//!
//! Derived data (archives, secondary indexes, copies) is declared; a small message on a queue says that an
//! entity changed or should be moved; the worker brings every copy back in step with its primary.
//!
//! Dependencies point one way: [`model`] knows nothing; [`ports`] describe the outside in terms of
//! the model; `patterns`, `shared` and `reconcile` decide; `worker` drives; `adapters` do I/O; only `app` sees all.

pub mod adapters;
pub mod app;
pub mod catalog;
pub mod cli;
pub mod client;
mod combine;
pub mod config;
pub mod migrations;
pub mod model;
pub mod ops;
pub mod patterns;
mod planted;
pub mod ports;
pub mod reconcile;
pub mod retention;
mod rollout;
pub mod settings;
pub mod shared;
pub mod simulation;
pub mod telemetry;
pub mod wide;
pub mod worker;
