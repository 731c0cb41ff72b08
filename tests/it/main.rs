//! Everything that is tested in this process: the engine, the worker's parts, the adapters and what the documentation says.
//!
//! Each module says what it is about. `.config/nextest.toml` says which tests run when.

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
