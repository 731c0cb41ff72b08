//! Tests in this process: the engine, parts of the worker, the adapters, and the documentation.
//!
//! `.config/nextest.toml` configures which tests run when.

#[path = "../support/mod.rs"]
mod support;

mod azure_stub;
mod contract;
mod corpora;
mod documentation;
mod formats;
mod hostile;
mod pacing;
mod patterns;
mod planted;
mod protocol;
mod seeds;
