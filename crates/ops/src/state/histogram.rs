//! A distribution of durations in constant memory.

use std::time::Duration;

/// The first bound, in milliseconds. Each bound is √2 times the bound before it, so a quantile is at most 42% too high.
const FIRST_MS: f64 = 1.0;
/// Number of buckets. The largest bound is 2^25 ms, over nine hours. A job is poisoned after six hours.
const BUCKETS: usize = 51;

/// Number of durations between each two bounds.
#[derive(Debug, Clone, Default)]
pub(super) struct DurationHistogram(Option<Box<[u32; BUCKETS]>>);

impl DurationHistogram {
    pub(super) fn add(&mut self, lag: Duration) {
        let counts = self.0.get_or_insert_with(|| Box::new([0; BUCKETS]));
        let steps = (lag.as_secs_f64() * 1_000.0 / FIRST_MS).max(1.0).log2() * 2.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 0, and bounded below"
        )]
        let bucket = (steps.ceil() as usize).min(BUCKETS - 1);
        counts[bucket] = counts[bucket].saturating_add(1);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let Some(other) = &other.0 else { return };
        let counts = self.0.get_or_insert_with(|| Box::new([0; BUCKETS]));
        for (count, more) in counts.iter_mut().zip(other.iter()) {
            *count = count.saturating_add(*more);
        }
    }

    /// Returns the upper bound of a quantile, in seconds; `None` if there are no values.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let counts = self.0.as_ref()?;
        let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        #[expect(clippy::cast_precision_loss, reason = "fewer than 2^52 jobs")]
        let wanted = (total as f64) * share;
        let mut below = 0.0;
        for (bucket, count) in counts.iter().enumerate() {
            below += f64::from(*count);
            if below >= wanted && *count > 0 {
                #[expect(clippy::cast_precision_loss, reason = "fewer than 51 buckets")]
                return Some(FIRST_MS * (bucket as f64 / 2.0).exp2() / 1_000.0);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_never_too_low_and_at_most_one_bucket_too_high() {
        let mut lags = DurationHistogram::default();
        assert_eq!(lags.quantile(0.5), None);
        for ms in 1..=1_000 {
            lags.add(Duration::from_millis(ms));
        }
        for (share, truth) in [(0.5, 0.5), (0.99, 0.99)] {
            let found = lags.quantile(share).unwrap();
            assert!(
                found >= truth && found <= truth * 1.4143,
                "{share}: {found}"
            );
        }
    }

    #[test]
    fn extreme_durations_are_counted_and_histograms_merge() {
        let (mut long, mut short) = (DurationHistogram::default(), DurationHistogram::default());
        long.add(Duration::from_secs(10_000_000));
        short.add(Duration::ZERO);
        short.add(Duration::ZERO);
        long.merge(&short);
        assert_eq!(long.quantile(0.5), Some(0.001));
        assert!(long.quantile(1.0).unwrap() > 30_000.0);
    }
}
