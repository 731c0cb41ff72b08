//! The built program, started as a process: its command line, complete runs of workers and stores, and kills.
//!
//! `.config/nextest.toml` configures which tests run when.

#[path = "../support/mod.rs"]
mod support;

mod chaos;
mod cli;
mod end_to_end;
mod smoke;
