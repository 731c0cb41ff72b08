//! The exhaustive search: every interleaving of three workers, two messages and a client in a world of a few rows, with crashes, leases that
//! end without the worker's knowledge, requests without an answer, and late requests.
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
//! [`Engine::execute`](evenkeel_engine::Engine) is real, with everything that it does for a job or a recheck. During a run no clock moves and
//! no random number is drawn, so the next request of a run depends only on the answers that the run got. Each sequence of answers is
//! therefore executed once from the beginning, and the result is remembered. The worker around the engine is not real: the search delivers,
//! hides, shows and deletes a message as the service would, and may end a lease at any moment.
//!
//! # What is counted
//!
//! An execution is one step from one state: a request that is executed, a fault, or a step of the client. A state that was visited before is
//! not continued. States are recognized by a 64-bit hash. With n states, the probability that two of them have the same hash is about
//! n² / 2⁶⁵, one in 370,000 for ten million states. The number of complete interleavings, from the first step to the last, is counted, too.
//!
//! # Time
//!
//! Time stands still while a worker has a run. When no worker has a run, half an hour may pass (an era). Requests that have not arrived by
//! then are refused, and rechecks that were queued before become visible.

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
