//! Limits the request rate of each partition, queue, blob and account. If a scope throttles, requests to this scope are paused,
//! and other scopes are not affected.
//!
//! # Rates
//!
//! An account with ceilings (`[pace]`) stays within them. Requests count in the units of their service: a transaction as the
//! number of its entities, a query as the number of rows that it returned, and Get Messages as the number of messages that it
//! received. The rate of a scope starts low and grows while requests wait for it. It drops when the service answers 503 or
//! becomes slow (`rate`). A request waits in place for its scopes, and waiting requests of one partition are combined meanwhile.
//!
//! The entrance lies above `group`, where the job of each request is known. It delays new jobs of an overloaded partition so
//! that they do not occupy slots (`crowd`), and scans of whole tables get the rest of the rate.
//!
//! # Holds
//!
//! Azure Storage throttles by scope: a partition of a table, a queue, or a container. After a 503 or 429, further requests
//! in the same [`ThrottleScope`](super::layer::ThrottleScope) fail at once, unsent, with the class `Throttled` and the
//! remaining time. A job that needs the scope is then released with a delay instead of occupying its slot with retries, and
//! jobs of other partitions continue.
//!
//! ```text
//!             503                        the time is over
//!   free ───────────▶ held ───────────────────────────────▶ one probe under way
//!    ▲                 ▲  requests fail unsent                 │   others still fail unsent
//!    │                 └────────── 503: twice as long ─────────┤
//!    └────────────────────────── any other answer ─────────────┘
//! ```
//!
//! The first hold takes 100 ms. Holds double up to 15 s, are randomised by ±20%, and are never shorter than the `Retry-After`
//! of the service. If a probe ends without an answer, the scope is held again, for the same time as before. If the caller of a
//! probe is dropped, another probe may start at once. If a probe has no answer after one second, another probe may start, too.

mod crowd;
mod holds;
mod pacer;
mod rate;
mod rates;

pub use pacer::{Pace, PaceEntrance, SCOPE_HELD};
pub use rates::PacedScope;
