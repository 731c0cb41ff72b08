//! The program as it is built, started as a process: its command line, whole lives of workers and stores, and kills.
//!
//! Each module says what it is about. `.config/nextest.toml` says which tests run when.

#[path = "../support/mod.rs"]
mod support;

mod chaos;
mod cli;
mod end_to_end;
mod smoke;
