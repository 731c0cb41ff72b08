//! The exhaustive search: every interleaving of three workers, two messages and a client in a world of a few rows, with crashes,
//! leases lost unnoticed, requests without an answer, and late requests.
//!
//! ```text
//!   script ─▶ search: depth first over states ──▶ every state once; checked after every step, judged at every end
//!                │ a step: the client, a worker's request, a fault, a late arrival, time passes
//!                ▼
//!              runs: the next request of the real code, given all earlier answers ──▶ recorder ◀── Engine, polled by hand
//! ```
//!
//! # What is real
//!
//! [`Engine::execute`](evenkeel_engine::Engine), with everything that it does for a job or a recheck. While a run is executed, no
//! clock moves and no random number is drawn, so that its next request depends only on the answers that it got. Each sequence of
//! answers is therefore run once from the beginning, and the result is remembered. The worker around the engine is not real: a message
//! is delivered, hidden, shown and deleted as the service would do it, and a lease may end at any moment.
//!
//! # What is counted
//!
//! An execution is one step out of one state: an executed request, a fault, a step of the client. States that were visited before are
//! not continued. They are recognized by a 64-bit hash: with n states, the probability that two of them share a hash is about n² / 2⁶⁵,
//! one in two million for ten million states. The number of complete interleavings, from the first step to the last, is counted, too.
//!
//! # Time
//!
//! Time stands still while a worker has a run. When no worker has one, half an hour may pass. Then requests that have not arrived are
//! refused, and rechecks that were queued before become visible.

mod recorder;
mod runs;
mod script;
mod search;
mod state;
mod tiny;

#[cfg(test)]
mod tests;

pub use script::{Script, scripts};
pub use search::{SearchReport, explore};

use jiff::{SignedDuration, Timestamp};

fn moment(era: u8) -> Timestamp {
    let start = Timestamp::from_second(1_795_000_000).unwrap_or_default();
    start
        .saturating_add(SignedDuration::from_mins(30 * i64::from(era)))
        .unwrap_or(start)
}
