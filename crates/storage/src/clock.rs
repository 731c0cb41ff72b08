//! Time and chance. Nothing else in the program reads a clock or draws a random number, so that a test
//! can give both.
//!
//! Waiting is not here: `tokio::time::sleep` follows the runtime's clock, which tests pause.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Wall clock, monotonic clock and sleep.
pub trait Clock: Send + Sync {
    /// The wall clock, which may be wrong and may jump: for displayed times and for ages that are compared
    /// with the services' clocks.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment, never going back: for durations and deadlines.
    fn monotonic(&self) -> Duration;
}

/// The end of a time, by the wall and by the steady clock, whichever is over first: the steady one may stand while the machine is suspended, the
/// wall clock may be set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    wall: Timestamp,
    steady: Duration,
}

impl Deadline {
    /// So long after a moment, as both clocks have it.
    pub fn after(wall: Timestamp, steady: Duration, wait: Duration) -> Self {
        let by_wall = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
        Self {
            wall: wall.saturating_add(by_wall).unwrap_or(Timestamp::MAX),
            steady: steady.saturating_add(wait),
        }
    }

    /// Whether the time is over.
    pub fn is_over(self, clock: &dyn Clock) -> bool {
        clock.now() >= self.wall || clock.monotonic() >= self.steady
    }
}

/// Random numbers, from a seed in tests.
pub trait Chance: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;

    /// A number from 0 up to, not including, 1.
    fn unit(&self) -> f64 {
        // The 53 upper bits fill a double's fraction exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        let fraction = (self.next_u64() >> 11) as f64;
        fraction / 9_007_199_254_740_992.0
    }

    /// A number from `low` up to, not including, `high`.
    fn between(&self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// A wait up to a fifth shorter or longer, so that waits that began together do not end together.
    fn jittered(&self, wait: Duration) -> Duration {
        wait.mul_f64(self.between(0.8, 1.2))
    }
}
