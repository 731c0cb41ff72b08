//! The command line. Each command has its own file, with its arguments, its help and its action.
//!
//! A command gets its dependencies from a [`Context`] (settings, catalog, stores, clock) and writes
//! results to an [`Output`]. A command uses no adapter and no other clock, so a test can run it on
//! any store. Errors are `anyhow` chains. [`Exit`] maps them to exit codes, and [`advice`] maps
//! them to remedies.
//!
//! Results go to standard output, and everything else goes to standard error. With `--json`, a
//! result is one JSON value, or one JSON value per line if a command lists many.

pub mod advice;
pub mod alternatives;
pub mod args;
pub mod audit;
pub mod backfill;
#[cfg(feature = "certify")]
pub mod certify;
pub mod completions;
pub mod config;
mod consent;
pub mod context;
pub mod demo;
mod direct;
pub mod docs;
pub mod doctor;
pub mod erase;
pub mod events;
pub mod exit;
pub mod find;
pub mod get;
mod help;
pub mod keys;
pub mod logs;
pub mod lookup;
pub mod migrate;
pub mod output;
pub mod plan;
pub mod poison;
mod progress;
pub mod retention;
mod row;
pub mod run;
pub mod sas;
pub mod schema;
pub mod stress;
pub mod submit;
pub mod sweep;
mod verify;
pub mod wait;
mod wake;
mod whole_tables;

pub use args::{Cli, Command, Global};
pub(crate) use args::{Warnings, WorkerLogs};
pub use context::Context;
pub use direct::DirectAccess;
pub use exit::{AbsentStore, Exit, UsageError};
pub use output::{Format, Output, Tone};
pub use progress::ProgressDisplay;
