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

use crate::{Chance, Clock};

/// Half as many as the cores of this process (control groups count), at least one.
pub fn half_of_the_cores() -> usize {
    thread::available_parallelism()
        .map_or(1, NonZero::get)
        .div_ceil(2)
}

/// The machine's clock.
///
/// Monotonic time is the runtime's (`tokio::time`), so it stands still and jumps together with every timer
/// where a test pauses it. The wall clock is always the machine's.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock with a monotonic time that starts now.
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

/// Random numbers that cannot be guessed or repeated: ChaCha, seeded by the operating system. Items' tokens and
/// ids come from it, so two workers must never draw the same sequence.
#[derive(Debug)]
pub struct SystemChance {
    generator: Mutex<StdRng>,
}

impl SystemChance {
    /// A generator with a seed of 256 bits from the operating system.
    pub fn new() -> Self {
        Self {
            generator: Mutex::new(StdRng::from_os_rng()),
        }
    }
}

impl Default for SystemChance {
    fn default() -> Self {
        Self::new()
    }
}

impl Chance for SystemChance {
    fn next_u64(&self) -> u64 {
        // The lock is held for one draw, which cannot panic halfway.
        self.generator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next_u64()
    }
}

/// Random numbers that a seed repeats, for tests and simulations: splitmix64, without a lock.
///
/// Good enough to spread waits, far too weak to guard anything.
#[derive(Debug)]
pub struct SeededChance {
    state: AtomicU64,
}

impl SeededChance {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }
}

impl Chance for SeededChance {
    fn next_u64(&self) -> u64 {
        // Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014); the constants are the
        // reference implementation's.
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
    async fn monotonic_time_stands_still_and_jumps_with_the_runtimes_timers() {
        let clock = SystemClock::new();
        assert_eq!(clock.monotonic(), Duration::ZERO);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(clock.monotonic(), Duration::from_mins(10));
    }

    #[test]
    fn a_seed_gives_the_published_sequence() {
        let chance = SeededChance::new(1_234_567);
        let drawn = [chance.next_u64(), chance.next_u64(), chance.next_u64()];
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
    fn the_systems_numbers_differ_from_one_generator_to_the_next_and_stay_in_range() {
        let (one, other) = (SystemChance::new(), SystemChance::new());
        assert_ne!(
            (one.next_u64(), one.next_u64()),
            (other.next_u64(), other.next_u64())
        );
        assert!((0..1_000).all(|_| (0.8..1.2).contains(&one.between(0.8, 1.2))));
    }
}
