//! The values of evenkeel: what a catalog declares, what a job asks for, what a store is asked.
//!
//! No room of this crate waits, reads a clock or reaches outside the process; [`ports`] describe the outside as traits.
//!
//! ```text
//!   model ◀── settings                 values: keys, properties, templates, conditions, jobs
//!     ▲─────── catalog ◀── patterns    views and archives; one file per kind derives its items
//!     ▲           ▲─────── shared      documents that several primaries share
//!     ▲─────── ports ◀──── wide        tables, queues, blobs, files and sinks; entities over several rows
//!                    ◀──── sealing     encrypted properties and their keys
//! ```

pub mod catalog;
pub mod model;
pub mod patterns;
pub mod planted;
pub mod ports;
pub mod sealing;
pub mod settings;
pub mod shared;
pub mod wide;
