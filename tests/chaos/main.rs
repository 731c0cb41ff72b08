//! Processes that are killed at any moment, and networks that fail at any request.
//!
//! `kills`: workers and submitters are killed with SIGKILL while they work, on the embedded store and on Azurite, and
//! afterwards every job that was acknowledged is accounted for. `transport`: every operation of the Azure adapter
//! meets every fault that a network knows. `databases`: a database is killed while workers write into it. `webhooks`: receiver
//! and workers fail while events are sent.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that meets an unexpected error has failed")]
#![expect(clippy::print_stdout, reason = "the accounts are for people")]

mod accounts;
mod databases;
mod kills;
#[allow(dead_code, reason = "shared with tests/end_to_end, which uses all of it")]
#[path = "../end_to_end/site.rs"]
mod site;
#[path = "../support/mod.rs"]
mod support;
mod transport;
mod webhooks;
#[allow(dead_code, reason = "shared with tests/end_to_end, which uses all of it")]
#[path = "../end_to_end/worker.rs"]
mod worker;
