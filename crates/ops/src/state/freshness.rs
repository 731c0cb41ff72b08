//! Measures for one hour how long it took after each write until everything derived from it could be found.

use std::collections::VecDeque;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::histogram::DurationHistogram;
use super::{RECENT, SLOTS};

/// Target for the time from a write of a primary until everything derived from it is in step.
const GOAL: Duration = Duration::from_secs(5);

/// The measures of one hour, by slots.
#[derive(Debug, Default)]
pub(super) struct FoundSeries(VecDeque<FoundSlot>);

#[derive(Debug, Default)]
struct FoundSlot {
    number: u64,
    after: DurationHistogram,
    in_time: u64,
    late: u64,
}

/// Time from a write of a primary until everything derived from it was in step.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "freshness")]
pub struct Freshness {
    /// Target time, in seconds.
    pub goal_seconds: f64,
    /// Number of writes for which this time was measured in the last hour.
    pub found: u64,
    /// Share of the measured writes that took longer than the target; null if there were none.
    pub late: Option<f64>,
    /// Median of the last five minutes, in seconds; null if there were none.
    pub p50_seconds: Option<f64>,
    /// 99th percentile of the last five minutes, in seconds.
    pub p99_seconds: Option<f64>,
}

impl FoundSeries {
    pub(super) fn found(&mut self, number: u64, after: Duration) {
        if self.0.back().is_none_or(|last| last.number < number) {
            self.0.push_back(FoundSlot {
                number,
                ..FoundSlot::default()
            });
        }
        while self
            .0
            .front()
            .is_some_and(|first| first.number + SLOTS as u64 <= number)
        {
            self.0.pop_front();
        }
        if let Some(slot) = self.0.back_mut() {
            slot.after.add(after);
            *(if after <= GOAL {
                &mut slot.in_time
            } else {
                &mut slot.late
            }) += 1;
        }
    }

    pub(super) fn now(&self, number: u64) -> Freshness {
        let since = |slots: u64| {
            self.0
                .iter()
                .filter(move |slot| slot.number + slots > number)
        };
        let mut recent = DurationHistogram::default();
        since(5 * RECENT).for_each(|slot| recent.merge(&slot.after));
        let (in_time, late) = since(SLOTS as u64).fold((0, 0), |sum, slot| {
            (sum.0 + slot.in_time, sum.1 + slot.late)
        });
        let found: u64 = in_time + late;
        #[expect(clippy::cast_precision_loss, reason = "the writes of an hour")]
        let late = (found > 0).then(|| late as f64 / found as f64);
        Freshness {
            goal_seconds: GOAL.as_secs_f64(),
            found,
            late,
            p50_seconds: recent.quantile(0.5),
            p99_seconds: recent.quantile(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_an_hour_and_quantiles_of_five_minutes() {
        let mut series = FoundSeries::default();
        assert_eq!(series.now(0).late, None);
        series.found(0, Duration::from_secs(7));
        for number in 0..3 {
            series.found(100 + number, Duration::from_millis(100));
        }
        let now = series.now(105);
        assert_eq!((now.found, now.late), (4, Some(0.25)));
        assert!(now.p99_seconds.unwrap() < 0.2, "{now:?}");
        let later = series.now(370);
        assert_eq!((later.found, later.p50_seconds), (3, None));
        series.found(1_000, GOAL);
        assert_eq!((series.0.len(), series.now(1_000).late), (1, Some(0.0)));
    }
}
