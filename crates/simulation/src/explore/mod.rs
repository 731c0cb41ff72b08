//! The exhaustive search: every interleaving of three workers, two messages and a client, with crashes, leases lost
//! unnoticed, requests without an answer and requests that arrive late, in a world of a handful of rows.
//!
//! ```text
//!   script ─▶ search: depth first over states ──▶ every state once; checked after every step, judged at every end
//!                │ a step: the client, a worker's request, a fault, a late arrival, time passes
//!                ▼
//!              runs: what the real code asks next, given all that it was answered ──▶ recorder ◀── Engine, polled by hand
//! ```
//!
//! # What is real
//!
//! [`Engine::execute`](evenkeel_engine::Engine), with everything that it does for a job or a second look. A run is a
//! function of the answers that it gets (no clock moves and no chance is drawn while it runs), so that what it asks
//! next is found once for each sequence of answers, by running it from its beginning with exactly these, and is then
//! remembered. Not real: the worker around it. A message is delivered, hidden, shown and deleted as the service
//! does; leases end at any moment.
//!
//! # What is counted
//!
//! One execution is one step out of one state: a request carried out, a fault, a step of the client. States that were
//! met before are not gone on from again, recognised by a hash of 64 bits: with n states, the chance that two of
//! them share one is about n² / 2⁶⁵, one in two million for ten million states. The number of whole interleavings,
//! from the first step to the last, that these steps make up is counted beside.
//!
//! # Time
//!
//! Time stands still while anybody works. When nobody does, half an hour may pass: requests that have not arrived are
//! refused from then on, and second looks that were queued before become visible.

mod recorder;
mod runs;
mod script;
mod search;
mod state;
mod tiny;

#[cfg(test)]
mod tests;

pub use script::{Script, scripts};
pub use search::{Explored, explore};

use jiff::{SignedDuration, Timestamp};

/// When an era begins: each is half an hour after the one before.
fn moment(era: u8) -> Timestamp {
    let start = Timestamp::from_second(1_795_000_000).unwrap_or_default();
    start
        .saturating_add(SignedDuration::from_mins(30 * i64::from(era)))
        .unwrap_or(start)
}
