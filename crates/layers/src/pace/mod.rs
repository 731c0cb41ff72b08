//! Pace: each partition, queue, blob and account is asked as fast as it answers, and one that throttles is left alone, at no cost to
//! others.
//!
//! # Rates
//!
//! An account with ceilings (`[pace]`) is asked within them, in the units of its service: a transaction of 100 is 100 entities, a query the
//! rows that it found, a Get the messages that it got. Each scope starts slowly, gains while requests wait for it, and loses a share at a 503
//! or where answers become slow (`rate`). A request waits in place for its scopes; waiting requests of a partition are grouped meanwhile.
//!
//! Above the groups, where the job of each request is known, new jobs of a partition that is behind are sent away until their turn, so that
//! they hold no slots of others (`crowd`), and walks over whole tables have the rest.
//!
//! # Holds
//!
//! A store throttles by partition (of a table; a queue; a container). When one answers 503 or 429, further
//! requests in its [`ThrottleScope`](super::layer::ThrottleScope) fail at once, unsent, with the class `Throttled` and the time
//! that remains; so a job that needs the partition is released with a delay instead of holding its slot
//! through retries, while jobs of other partitions run on.
//!
//! ```text
//!             503                        the time is over
//!   free ───────────▶ held ───────────────────────────────▶ one probe under way
//!    ▲                 ▲  requests fail unsent                 │   others still fail unsent
//!    │                 └────────── 503: twice as long ─────────┤
//!    └────────────────────────── any other answer ─────────────┘
//! ```
//!
//! Held 100 ms at first, doubling to 15 s, spread by ±20%, and never shorter than the `Retry-After` that the
//! service sent. A probe that gets no answer holds the scope as long again; one with a dropped caller, or without an
//! answer after a second, frees the place for the next.

mod crowd;
mod holds;
mod pacer;
mod rate;
mod rates;

pub use pacer::{LANE_HELD, Pace, PaceEntrance};
pub use rates::PacedScope;
