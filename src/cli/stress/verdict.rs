//! Judges a partition key by a measured load. Pure.

use serde::Serialize;

use evenkeel_ops::state::{TARGET, buckets, grouped};

/// Target of entities per second for all tables of a standard account (Azure: Table storage
/// targets).
const ACCOUNT_TARGET: f64 = 20_000.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StressVerdict {
    Throttled,
    /// The load of the hottest partition exceeds the target.
    TooCoarse,
    /// At the application's peak, the hottest partition stays below the target.
    Fits,
    /// At the measured load, the hottest partition stays below the target. A higher load may exceed
    /// it.
    BelowTarget,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct JudgedLoad {
    /// Share of the requests that go to the hottest partition.
    pub(super) hottest_share: f64,
    pub(super) entities_per_second: f64,
    pub(super) hottest_per_second: f64,
    pub(super) throttled: u64,
    /// The application's peak load in entities per second, if known.
    pub(super) peak: Option<f64>,
}

impl JudgedLoad {
    /// Entities per second in the hottest partition. If the application's peak is known, they are
    /// computed for the peak, otherwise they are as measured.
    fn hottest(&self) -> f64 {
        self.peak
            .map_or(self.hottest_per_second, |peak| peak * self.hottest_share)
    }

    /// Entities per second at which the hottest partition or the account reaches its target.
    pub(super) fn capacity(&self) -> f64 {
        (TARGET / self.hottest_share).min(ACCOUNT_TARGET)
    }

    pub(super) fn verdict(&self) -> StressVerdict {
        match self.peak {
            _ if self.throttled > 0 => StressVerdict::Throttled,
            _ if self.hottest() > TARGET => StressVerdict::TooCoarse,
            Some(_) => StressVerdict::Fits,
            None => StressVerdict::BelowTarget,
        }
    }

    pub(super) fn advice(&self) -> String {
        let (hottest, target) = (per_second(self.hottest()), per_second(TARGET));
        let at = self.peak.map_or_else(
            || "at this load".to_owned(),
            |peak| format!("at a peak of {}", per_second(peak)),
        );
        match self.verdict() {
            StressVerdict::Throttled if self.hottest_per_second < TARGET / 2.0 => format!(
                "throttled at {} in the hottest partition, far below its target of {target}. The account is at its limit, or the service is still moving partitions. Run the test again for longer.",
                per_second(self.hottest_per_second)
            ),
            StressVerdict::Throttled => format!(
                "too coarse: the service throttles at {} in the hottest partition. {}",
                per_second(self.hottest_per_second),
                self.remedy()
            ),
            StressVerdict::TooCoarse => {
                format!(
                    "too coarse: {hottest} in the hottest partition {at}, over the target of {target}. {}",
                    self.remedy()
                )
            }
            StressVerdict::Fits => {
                format!("fits: {hottest} in the hottest partition {at}; the target is {target}.")
            }
            StressVerdict::BelowTarget => {
                format!(
                    "below the target {at}: {hottest} in the hottest partition; the target is {target}. Add --peak to judge it by your own load."
                )
            }
        }
    }

    fn remedy(&self) -> String {
        // A throttled partition may serve less than its target. The number of buckets is then
        // computed from the target.
        let buckets = buckets(self.hottest().max(TARGET));
        format!("Divide it, for example with {{RowKey|bucket:{buckets}}} at the end of the key.")
    }
}

fn per_second(rate: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate, not negative"
    )]
    let whole = rate.round() as u64;
    format!("{} entities/s", grouped(whole))
}

/// Compares the second of two loads with the first.
pub(super) fn comparison(
    first: &str,
    one: &JudgedLoad,
    second: &str,
    other: &JudgedLoad,
) -> String {
    let times = |a: f64, b: f64| {
        if b > 0.0 {
            format!("{:.1} times", a / b)
        } else {
            "more than".to_owned()
        }
    };
    format!(
        "{second} reached {} the rate of {first}. Within Azure's targets, {second} can serve {} and {first} can serve {}.",
        times(other.entities_per_second, one.entities_per_second),
        per_second(other.capacity()),
        per_second(one.capacity())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        hottest_share: f64,
        entities_per_second: f64,
        throttled: u64,
        peak: Option<f64>,
    ) -> JudgedLoad {
        JudgedLoad {
            hottest_share,
            entities_per_second,
            hottest_per_second: entities_per_second * hottest_share,
            throttled,
            peak,
        }
    }

    #[test]
    fn a_key_is_judged_by_its_hottest_partition() {
        use StressVerdict::{BelowTarget, Fits, Throttled, TooCoarse};
        for (load, verdict, words) in [
            (
                load(1.0, 800.0, 0, None),
                BelowTarget,
                "800 entities/s in the hottest partition; the target is 2,000",
            ),
            (load(1.0, 2_400.0, 0, None), TooCoarse, "{RowKey|bucket:4}"),
            (load(0.1, 9_000.0, 0, None), BelowTarget, "900 entities/s"),
            (
                load(1.0, 2_000.0, 31, None),
                Throttled,
                "the service throttles at 2,000",
            ),
            (
                load(0.01, 20_000.0, 9, None),
                Throttled,
                "The account is at its limit",
            ),
            // The verdict is about the application's peak, not about the load that this machine
            // could send.
            (
                load(1.0, 2_400.0, 0, Some(1_500.0)),
                Fits,
                "1,500 entities/s",
            ),
            (
                load(0.5, 300.0, 0, Some(9_000.0)),
                TooCoarse,
                "4,500 entities/s in the hottest partition at a peak of 9,000 entities/s",
            ),
            (load(0.1, 300.0, 0, Some(9_000.0)), Fits, "900 entities/s"),
        ] {
            assert_eq!(load.verdict(), verdict, "{load:?}");
            assert!(load.advice().contains(words), "{load:?}: {}", load.advice());
        }
    }

    #[test]
    fn the_capacity_of_a_key_is_limited_by_its_hottest_partition_and_the_account() {
        for (share, capacity) in [(1.0, 2_000.0), (0.4, 5_000.0), (0.001, 20_000.0)] {
            assert!(
                (load(share, 1.0, 0, None).capacity() - capacity).abs() < 1e-6,
                "{share}"
            );
        }
    }

    #[test]
    fn two_keys_are_compared_by_rate_and_capacity() {
        let text = comparison(
            "{Department}",
            &load(0.75, 1_000.0, 0, None),
            "{RowKey}",
            &load(0.01, 3_400.0, 0, None),
        );
        assert_eq!(
            text,
            "{RowKey} reached 3.4 times the rate of {Department}. Within Azure's targets, {RowKey} can serve 20,000 entities/s and {Department} can serve 2,667 entities/s."
        );
    }
}
