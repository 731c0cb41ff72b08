//! Processes that are killed at any moment, and networks that fail at any request.
//!
//! `kills`: workers and submitters are killed with SIGKILL while they work, on the embedded store and on Azurite.
//! Afterwards no acknowledged job may be lost. `transport`: every operation of the Azure adapter meets every network
//! fault. `databases`: a database is killed while workers write to it. `webhooks`: the receiver and the workers fail
//! while events are sent.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "an unexpected error fails the test"
)]
#![expect(clippy::print_stdout, reason = "the summary is for people")]

mod accounts;
mod databases;
mod kills;
mod transport;
mod webhooks;
