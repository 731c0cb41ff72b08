//! Attacks: forged messages and rows, sent to the real engine and the real parts of the worker on a simulated account.
//!
//! *Canaries* are things that an attacker must not reach: files on the real file system, blobs, search documents, rows of another
//! application, and rows and items of another primary. Whatever a forged record contains, every canary must be unchanged.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "an unexpected error fails the test"
)]

mod daemon;
mod derived;
mod documents;
mod files;
mod forged;
mod items;
mod memory;
mod poison;
mod records;
mod signatures;
mod stage;
