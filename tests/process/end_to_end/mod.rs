//! The built program, started as a process, on the embedded store and on Azurite. The official SDKs for Python and
//! Node.js send some of the jobs.
//!
//! Each test has its own [`site`](site::Site): a folder with a configuration, and a store that nobody else uses. It
//! checks what users see: rows, queues, poison messages, exit codes and texts. [`oracle`] computes the expected derived
//! data, and shares no code with the program.
//!
//! Tests wait for a state (a backlog that shrinks, a process that ends), and not for a time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed setup fails the test"
)]

mod authority;
mod oracle;
mod retention;
pub(crate) mod sdk;
mod signatures;
mod signing_in;
pub(crate) mod site;
pub(crate) mod worker;

mod accounts;
mod archiving;
mod bad_input;
mod batches;
mod certifying;
mod crashes;
mod demonstration;
mod doctor;
mod draining;
mod elsewhere;
mod encryption;
mod erasing;
mod events;
mod everything;
mod exposure;
mod forms;
mod guide;
mod indexing;
mod joining;
mod outage;
mod racing;
mod rotating;
mod samples;
mod spreading;
mod staging;
mod stressing;
mod submitting;
mod sweeps;
mod throttling;
mod waiting;
mod webhooks;
