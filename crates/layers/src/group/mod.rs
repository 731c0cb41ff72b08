//! Combines concurrent table requests to one partition.
//!
//! Concurrent writes of single entities become one entity group transaction, and concurrent point reads become one range
//! query. There is no timer: new requests wait while others of their partition are in flight, and are sent together when
//! one of those ends. A request without concurrent ones is sent at once and unchanged.
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
//! - Each caller gets the result that its own request would have had: its ETag, its row, or its error with the name of its
//!   own operation. If one operation makes a transaction fail, the others are sent again without it.
//! - If the outcome of a request is unknown (no answer, throttled), it is unknown for every operation in it.
//! - No two transactions in flight share a row, including transactions of callers. Writes of one row stay in order.
//! - A read is sent after its caller made it, never joined to a request that is in flight.
//! - If a caller is dropped before its write is sent, the write is withdrawn. If it is dropped later, the request
//!   continues as long as another caller waits for it.

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

pub use store::GroupedTables;
