//! evenkeel: eventual consistency for Azure Storage.
//!
//! Derived data (archives, secondary indexes, copies) is declared; a small message on a queue says that an
//! entity changed or should be moved; the worker brings every copy back in step with its primary.
//!
//! Here the program is put together from its crates: [`app`] is the daemon, [`cli`] its commands.

pub mod app;
pub mod cli;
