//! A lock-free distribution of request durations in constant memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Four buckets for each power of two, from 16 µs to more than 90 s.
const BUCKETS: usize = 92;
/// The first bucket ends at 2^FIRST µs.
const FIRST: u32 = 4;

/// A distribution that many tasks add to concurrently.
#[derive(Debug)]
pub struct LatencyCounts([AtomicU64; BUCKETS]);

impl Default for LatencyCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// A snapshot of a distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies([u64; BUCKETS]);

impl Default for Latencies {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl LatencyCounts {
    pub fn add(&self, took: Duration) {
        self.0[bucket(took)].fetch_add(1, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> Latencies {
        Latencies(std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed)))
    }
}

impl Latencies {
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|at| {
            self.0[at].saturating_sub(earlier.0[at])
        }))
    }

    /// Returns the upper bound of a quantile, which is at most 25% too high; `None` if there are no values.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.0.iter().sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        for (at, count) in self.0.iter().enumerate() {
            below += count;
            if below >= wanted {
                return Some(bound(at));
            }
        }
        None
    }
}

/// Returns the bucket of a duration: the position of its highest bit, and the two bits after it.
fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let first = micros.checked_ilog2().unwrap_or(0);
    if first < FIRST {
        return 0;
    }
    let quarter = (micros >> (first - 2)) & 3;
    let at = u64::from(first - FIRST) * 4 + quarter + 1;
    usize::try_from(at).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket.
fn bound(at: usize) -> Duration {
    let Some(above) = at
        .checked_sub(1)
        .and_then(|above| u32::try_from(above).ok())
    else {
        return Duration::from_micros(1 << FIRST);
    };
    let (first, quarter) = (FIRST + above / 4, above % 4);
    Duration::from_micros((u64::from(quarter) + 5) << (first - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_never_too_low_and_at_most_a_quarter_too_high() {
        for micros in (1..4_000).chain((4_000..60_000_000).step_by(77_777)) {
            let reported = bound(bucket(Duration::from_micros(micros))).as_micros();
            assert!(reported >= u128::from(micros), "{micros}: {reported}");
            assert!(
                micros < 16 || reported * 4 <= u128::from(micros) * 5 + 4,
                "{micros}: {reported}"
            );
        }
    }

    #[test]
    fn the_difference_of_snapshots_contains_only_later_values() {
        let counts = LatencyCounts::default();
        assert_eq!(counts.snapshot().quantile(0.99), None);
        (0..99).for_each(|_| counts.add(Duration::from_millis(1)));
        counts.add(Duration::from_secs(400));
        let before = counts.snapshot();
        assert!(before.quantile(0.5).unwrap() < Duration::from_micros(1_300));
        assert!(before.quantile(1.0).unwrap() > Duration::from_mins(1));
        counts.add(Duration::from_millis(100));
        let since = counts.snapshot().since(&before);
        assert!(since.quantile(0.01).unwrap() >= Duration::from_millis(100));
    }
}
