//! evenkeel: eventual consistency for Azure Storage.
//!
//! Derived data (archives, secondary indexes, copies) is declared; a small message on a queue says that an
//! entity changed or should be moved; the worker brings every copy back in step with its primary.
//!
//! Dependencies point one way: [`model`] knows nothing; [`ports`] describe the outside in terms of
//! the model; `patterns`, `shared` and `reconcile` decide; `worker` drives; `adapters` do I/O; only `app` sees all.

pub mod adapters;
pub mod app;
pub mod cli;
mod combine;
pub mod migrations;
pub mod ops;
pub mod reconcile;
pub mod retention;
pub mod rollout;
pub mod telemetry;
pub mod worker;

pub use evenkeel_client as client;
pub use evenkeel_config as config;
pub use evenkeel_model::{
    catalog, model, patterns, planted, ports, sealing, settings, shared, wide,
};
