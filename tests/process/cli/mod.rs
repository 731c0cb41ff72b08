//! The built program on the embedded store, as users see it.
#![expect(
    clippy::unwrap_used,
    reason = "an unexpected answer of the program fails the test"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "the program runs in real time, and so does what waits for it"
)]

mod api;
mod audit;
mod backfill;
mod browser;
mod daemon;
mod database;
mod demonstration;
mod dependencies;
mod doctor;
mod endings;
mod generated;
mod interrupted;
mod jobs;
mod logs;
mod lookup;
mod many;
mod migrations;
mod missing;
mod pages;
mod place;
mod poison;
mod prometheus;
mod reload;
mod searching;
mod stale;
mod strangers;
mod tables;
mod tokens;
mod traces;
mod wrong_folder;
