//! A paused clock, and random numbers from a seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use evenkeel_storage::{Clock, Rng};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct TestClock(Instant);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        at(self.monotonic())
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

pub(crate) fn at(monotonic: Duration) -> Timestamp {
    "2026-11-20T12:00:00Z"
        .parse::<Timestamp>()
        .unwrap()
        .checked_add(monotonic)
        .unwrap()
}

/// A SplitMix64 generator of random numbers.
pub(crate) struct Seeded(pub(crate) AtomicU64);

impl Rng for Seeded {
    fn next_u64(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

pub(crate) fn from_to(earlier: Duration, later: Duration) -> Duration {
    later
        .checked_sub(earlier)
        .expect("the moments are in order")
}
