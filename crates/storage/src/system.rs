//! The machine's clock, random numbers and cores.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tokio::time::Instant;

use crate::{Clock, Rng};

/// Half the number of cores of this process (limits of control groups count), at least one.
pub fn half_of_the_cores() -> usize {
    thread::available_parallelism()
        .map_or(1, NonZero::get)
        .div_ceil(2)
}

/// The machine's clock.
///
/// Monotonic time is the time of the runtime (`tokio::time`). If a test pauses the runtime's time, monotonic time stops and jumps together
/// with all timers. The wall clock is always the machine's.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the adapter behind the Clock port"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Unpredictable random numbers: ChaCha, seeded by the operating system. Ids, and the tokens of items, are made from these numbers, so two
/// workers must never draw the same sequence.
#[derive(Debug)]
pub struct SystemRng {
    generator: Mutex<StdRng>,
}

impl SystemRng {
    pub fn new() -> Self {
        Self {
            generator: Mutex::new(StdRng::from_os_rng()),
        }
    }
}

impl Default for SystemRng {
    fn default() -> Self {
        Self::new()
    }
}

impl Rng for SystemRng {
    fn next_u64(&self) -> u64 {
        // The lock is held for one draw, which cannot panic halfway.
        self.generator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next_u64()
    }
}

/// Reproducible random numbers for tests and simulations: splitmix64, without a lock. Unsuitable for security.
#[derive(Debug)]
pub struct SeededRng {
    state: AtomicU64,
}

impl SeededRng {
    pub const fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }
}

impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        // Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014). The constants are those of the reference
        // implementation.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self
            .state
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn monotonic_time_stops_and_jumps_with_the_timers_of_the_runtime() {
        let clock = SystemClock::new();
        assert_eq!(clock.monotonic(), Duration::ZERO);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(clock.monotonic(), Duration::from_mins(10));
    }

    #[test]
    fn a_seed_gives_the_published_sequence() {
        let rng = SeededRng::new(1_234_567);
        let drawn = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn system_generators_differ_and_stay_in_range() {
        let (one, other) = (SystemRng::new(), SystemRng::new());
        assert_ne!(
            (one.next_u64(), one.next_u64()),
            (other.next_u64(), other.next_u64())
        );
        assert!((0..1_000).all(|_| (0.8..1.2).contains(&one.between(0.8, 1.2))));
    }
}
