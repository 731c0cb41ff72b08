//! Attacks: forged messages and rows, sent to the real engine and the real worker's parts on a simulated account.
//!
//! What an attacker must not reach lies beside what the jobs are about: *canaries*, which are files on the real file system, blobs,
//! documents of a search service, rows of another application, rows and items of another primary. Whatever a forged record says,
//! every canary is as it was.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that meets an unexpected error has failed"
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
mod seals;
mod stage;
