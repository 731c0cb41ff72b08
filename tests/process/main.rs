//! The built program, started as a process: its command line, workers with real stores, and processes that are killed.
//!
//! `.config/nextest.toml` configures which tests run when.

#[path = "../support/mod.rs"]
mod support;

mod chaos;
mod cli;
mod end_to_end;
mod smoke;
