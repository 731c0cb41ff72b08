//! Ports of time and randomness. Nothing else in the program reads a clock or draws a random number, so tests can control both.
//!
//! Waiting needs no port: `tokio::time::sleep` follows the runtime's clock, which tests can pause.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

pub trait Clock: Send + Sync {
    /// The wall clock, which may be wrong and may jump. Use it for displayed times, and for ages compared with the services' clocks.
    fn now(&self) -> Timestamp;

    /// Time since a fixed moment, which never goes back. Use it for durations and deadlines.
    fn monotonic(&self) -> Duration;
}

/// A deadline by the wall clock and by the monotonic clock, whichever comes first: the monotonic clock may stop while the machine is
/// suspended, and the wall clock may be set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    wall: Timestamp,
    steady: Duration,
}

impl Deadline {
    /// A deadline `wait` after a moment, which is given by both clocks.
    pub fn after(wall: Timestamp, steady: Duration, wait: Duration) -> Self {
        let by_wall = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
        Self {
            wall: wall.saturating_add(by_wall).unwrap_or(Timestamp::MAX),
            steady: steady.saturating_add(wait),
        }
    }

    pub fn is_over(self, clock: &dyn Clock) -> bool {
        clock.now() >= self.wall || clock.monotonic() >= self.steady
    }
}

/// Random numbers. Tests use a seed.
pub trait Rng: Send + Sync {
    fn next_u64(&self) -> u64;

    /// A number from 0 (inclusive) to 1 (exclusive).
    fn unit(&self) -> f64 {
        // The upper 53 bits fill the fraction of a double exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        let fraction = (self.next_u64() >> 11) as f64;
        fraction / 9_007_199_254_740_992.0
    }

    /// A number from `low` (inclusive) to `high` (exclusive).
    fn between(&self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// Shortens or lengthens a wait by up to a fifth, so that waits that start together do not end together.
    fn jittered(&self, wait: Duration) -> Duration {
        wait.mul_f64(self.between(0.8, 1.2))
    }
}
