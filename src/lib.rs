//! evenkeel: eventual consistency for Azure Storage.
//!
//! Derived data (archives, secondary indexes, copies) is declared in a catalog. A small message on a queue names an
//! entity that changed or should be moved, and the worker brings every copy back in step with its primary.
//!
//! This crate composes the program. [`app`] contains the daemon, and [`cli`] contains the commands.

pub mod app;
pub mod cli;
