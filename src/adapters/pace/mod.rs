//! Pace: requests to a partition that throttles are withheld, at no cost to other partitions.
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

mod holds;
mod pacer;

pub use pacer::{LANE_HELD, Pace};
