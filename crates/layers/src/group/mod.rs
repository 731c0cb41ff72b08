//! Group: concurrent requests to one partition are sent as one.
//!
//! Concurrent writes of single entities become one entity group transaction, concurrent point reads one range. There is
//! no timer: while requests of a partition are in flight, new ones gather, and are sent together when one of them ends.
//! Where one request at a time is asked for, nothing waits and nothing changes.
//!
//! ```text
//!   callers ──▶ queue (one per partition) ──▶ batch (a task) ──▶ one request, or one each ──▶ an answer for each
//!                 │ 2 in flight for writes,      │ taken when all ready ran                       │
//!                 │ 4 for reads: then wait       │ up to 100, each row once                       │
//!                 └──────────────◀───────────────┴──────────────── ended: the next may start ◀─────┘
//! ```
//!
//! Invariants:
//!
//! - Each caller gets the result that a request of its own would have had: its ETag, its row, or its error, under the name of
//!   its own operation. A transaction that is refused because of one operation goes again without it.
//! - A request of unknown outcome (no answer, throttled) leaves everything in it with an unknown outcome: all are told.
//! - No two transactions in flight share a row, also where they are callers' own. Writes of one row stay in order.
//! - A read is sent after it was asked for.
//! - A caller dropped before its write was sent withdraws it. One dropped later leaves it in a request
//!   that is in flight, as ever; a request without a waiting caller is dropped.

mod answer;
mod batching;
mod density;
mod queue;
mod reads;
mod shape;
mod store;
mod verdict;
mod writes;

#[cfg(test)]
mod tests;

pub use store::Grouped;
