//! An exhaustive search over every interleaving of three workers and a client that sends two messages, in a world of a few rows. Workers
//! crash, leases end without the worker's knowledge, answers are lost, and requests arrive late.
//!
//! ```text
//!   script ─▶ search: depth first, each state once; checks the invariant after every step, and derived data at every end
//!                │ a step: the client, a worker's request, a fault, a late arrival, time passes
//!                ▼
//!              runs: the next request of the real code, given all earlier answers ──▶ recorder ◀── Engine, polled by hand
//! ```
//!
//! # What is real
//!
//! [`Engine::execute`](evenkeel_engine::Engine) is the real code, with everything that it does for a job or a recheck. During a run the
//! clock stands still, and no request depends on a random number. The next request of a run therefore depends only on the answers that the
//! run got. Each sequence of answers is executed once, from the beginning, and the result is remembered. The worker around the engine is
//! simulated: the search delivers, hides, shows and deletes messages as the service would, and may end a lease at any moment.
//!
//! # What is counted
//!
//! An execution is one step from one state, such as a request, a fault, or a step of the client. A state that was visited before is not
//! continued. States are identified by a 64-bit hash. For n states, the probability of a collision is about n² / 2⁶⁵, which is one in
//! 370,000 for ten million states. The number of complete interleavings, from the first step to the last, is counted as well.
//!
//! # Time
//!
//! Time stands still while a worker has a run. When no worker has a run, half an hour (an era) may pass. Rechecks that were queued before
//! then become visible. Late requests that have not arrived are dropped, because the service refuses requests that are more than 15 minutes
//! old.

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
