//! Finds how many messages of a queue, and how many jobs of its batches, may be in flight. Pure.
//!
//! ```text
//!  start ── more jobs a second ──▶ double the limit
//!  climb ── more jobs a second ──▶ raise it again, by half
//!    └───── only longer runs ────▶ back to the limit before, rest there ── later ──▶ climb again
//!  any ──── throttled, or much slower at the same limit ──▶ three quarters of it
//! ```
//!
//! The first climbs work like TCP's slow start: each doubles the limit, until the rate stops
//! growing. Their windows are shorter and therefore less exact. Later windows correct the errors.
//!
//! While a queue has a backlog, the number of jobs in flight equals the limit. By Little's law,
//! this number is the rate times the length of a run. So a higher limit brings either a higher rate
//! or longer runs, and it is enough to measure which of the two happens. A window in which the
//! limit was not reached proves nothing, so the limit stays.

use std::time::Duration;

/// Lower bound of the limit. With fewer jobs in flight, a change of the rate could not be measured.
/// The bound holds even if a store throttles, because requests to its busy partitions are paced
/// separately.
pub(crate) const FLOOR: usize = 16;
pub(crate) const START: usize = 64;
/// Upper bound of the limit. Azure's target for a queue is 2,000 messages a second. If a job takes
/// a quarter of a second, 500 jobs are in flight at this rate.
pub(crate) const CEILING: usize = 512;
/// Memory estimate of one job: several copies of its message and of a small entity.
const JOB_BYTES: u64 = 256 << 10;
/// Limits for the jobs of batches. The lower bound is one transaction of a hundred jobs. The upper
/// bound is ten such transactions. Even an account that answers in 10 ms is kept busy by them.
pub(crate) const BATCH_START: usize = 256;
const BATCH_FLOOR: usize = 100;
const BATCH_CEILING: usize = 1_024;
/// Memory estimate of one job of a batch. The jobs share a message.
const BATCHED_JOB_BYTES: u64 = 128 << 10;

/// Factors by which a climb raises the limit: at the start, and later.
const START_FACTOR: f64 = 2.0;
const CLIMB_FACTOR: f64 = 1.5;
/// Shortest window that gives a usable rate: at the start, and later.
const MIN_WINDOW: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(500));
/// A higher limit is kept if the rate has grown by at least this part of the limit's growth.
const MIN_GAIN: f64 = 0.25;
const RETREAT_FACTOR: f64 = 0.75;
/// If the rate at an unchanged limit falls below this part of the usual rate, the store is in
/// trouble.
const COLLAPSE_RATIO: f64 = 0.5;
/// If more than this part of the jobs is throttled, the store itself is at its limit. Otherwise the
/// cause may be a single hot partition.
const MAX_THROTTLED_RATIO: f64 = 0.05;
/// After a retreat, or after a climb that did not raise the rate, the limit stays for this many
/// windows. The number doubles with each such climb in a row, up to `MAX_REST`.
const REST: u32 = 8;
const MAX_REST: u32 = 128;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    pub(crate) length: Duration,
    pub(crate) ended: u64,
    /// Runs that ended because a store asked to retry later.
    pub(crate) throttled: u64,
    /// Whether messages had to wait because the limit was reached.
    pub(crate) full: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdaptiveLimit {
    limit: usize,
    floor: usize,
    ceiling: usize,
    state: LimitPhase,
    /// Smoothed number of jobs per second at this limit.
    rate: Option<f64>,
    rest: u32,
    /// Whether every climb so far was kept.
    starting: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum LimitPhase {
    Climbing {
        from: usize,
        rate: f64,
    },
    /// The limit does not change for this many windows.
    Resting(u32),
}

struct LimitRange {
    floor: usize,
    ceiling: usize,
}

impl AdaptiveLimit {
    pub(crate) fn for_messages(memory: u64) -> Self {
        Self::within(
            START,
            LimitRange {
                floor: FLOOR,
                ceiling: CEILING,
            },
            memory / JOB_BYTES,
        )
    }

    pub(crate) fn for_batches(memory: u64) -> Self {
        Self::within(
            BATCH_START,
            LimitRange {
                floor: BATCH_FLOOR,
                ceiling: BATCH_CEILING,
            },
            memory / BATCHED_JOB_BYTES,
        )
    }

    fn within(start: usize, LimitRange { floor, ceiling }: LimitRange, most: u64) -> Self {
        let ceiling = usize::try_from(most)
            .unwrap_or(usize::MAX)
            .clamp(floor, ceiling);
        Self {
            limit: start.min(ceiling),
            floor,
            ceiling,
            state: LimitPhase::Resting(1),
            rate: None,
            rest: REST,
            starting: true,
        }
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Whether a window is long enough. On average, each slot must have ended one run while
    /// `starting`, and two runs later.
    pub(crate) fn is_conclusive(&self, window: &Window) -> bool {
        let (least, times) = if self.starting {
            (MIN_WINDOW.0, 1)
        } else {
            (MIN_WINDOW.1, 2)
        };
        window.length >= least && window.ended >= times * self.limit as u64
    }

    pub(crate) fn next_limit(&mut self, window: &Window) -> usize {
        let seconds = window.length.as_secs_f64();
        if window.ended == 0 || seconds <= 0.0 {
            return self.limit;
        }
        #[expect(clippy::cast_precision_loss, reason = "runs of a second")]
        let (ended, throttled) = (window.ended as f64, window.throttled as f64);
        if throttled / ended > MAX_THROTTLED_RATIO {
            self.retreat();
            return self.limit;
        }
        if !window.full {
            // A window that did not reach the limit does not show the capacity of the store.
            self.state = LimitPhase::Resting(1);
            return self.limit;
        }
        let rate = ended / seconds;
        match self.state {
            LimitPhase::Climbing { from, rate: before } => self.judge(from, before, rate),
            LimitPhase::Resting(left) => self.rest(left, rate),
        }
        self.limit
    }

    fn judge(&mut self, from: usize, before: f64, rate: f64) {
        #[expect(clippy::cast_precision_loss, reason = "a limit is small")]
        let added = self.limit as f64 / from as f64 - 1.0;
        if rate >= before * (1.0 + MIN_GAIN * added) {
            self.rate = Some(rate);
            self.rest = REST;
            self.climb(rate);
        } else {
            self.starting = false;
            self.limit = from;
            self.rate = Some(before.max(rate));
            self.state = LimitPhase::Resting(self.rest);
            self.rest = (self.rest * 2).min(MAX_REST);
        }
    }

    fn rest(&mut self, left: u32, rate: f64) {
        if self.rate.is_some_and(|usual| rate < usual * COLLAPSE_RATIO) {
            self.retreat();
            return;
        }
        let rate = self
            .rate
            .map_or(rate, |usual| 0.75f64.mul_add(usual, 0.25 * rate));
        self.rate = Some(rate);
        if left > 1 {
            self.state = LimitPhase::Resting(left - 1);
        } else {
            self.climb(rate);
        }
    }

    fn climb(&mut self, rate: f64) {
        let from = self.limit;
        self.limit = scaled(
            from,
            if self.starting {
                START_FACTOR
            } else {
                CLIMB_FACTOR
            },
        )
        .min(self.ceiling);
        self.state = if self.limit > from {
            LimitPhase::Climbing { from, rate }
        } else {
            LimitPhase::Resting(self.rest)
        };
    }

    fn retreat(&mut self) {
        self.starting = false;
        self.limit = scaled(self.limit, RETREAT_FACTOR).max(self.floor);
        self.state = LimitPhase::Resting(REST);
        self.rest = REST;
        self.rate = None;
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a limit is small"
)]
fn scaled(limit: usize, by: f64) -> usize {
    (limit as f64 * by).round() as usize
}

#[cfg(test)]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limits and jobs are few"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEMORY: u64 = 128 << 20;

    /// A simulated store: a run takes `run` seconds while the store does at most `most` jobs per
    /// second. With more jobs in flight, runs only take longer.
    struct ModelStore {
        run: f64,
        most: f64,
        throttles: bool,
    }

    impl ModelStore {
        fn window(&self, limit: usize) -> Window {
            let wanted = limit as f64 / self.run;
            let over = wanted > self.most;
            let ended = wanted.min(self.most).round() as u64;
            let throttled = if over && self.throttles { ended / 4 } else { 0 };
            Window {
                length: Duration::from_secs(1),
                ended,
                throttled,
                full: true,
            }
        }

        fn limits(&self, controller: &mut AdaptiveLimit, windows: usize) -> Vec<usize> {
            (0..windows)
                .map(|_| controller.next_limit(&self.window(controller.limit())))
                .collect()
        }
    }

    #[test]
    fn it_climbs_while_that_brings_more_jobs_a_second() {
        // A queue takes 2,000 messages a second at most; a run takes 100 ms.
        let store = ModelStore {
            run: 0.1,
            most: 2_000.0,
            throttles: false,
        };
        let mut controller = AdaptiveLimit::for_messages(MEMORY);
        let limits = store.limits(&mut controller, 100);
        assert!(limits[4] >= 200, "within some windows: {limits:?}");
        assert!(
            limits[20..].iter().all(|limit| (200..=500).contains(limit)),
            "{limits:?}"
        );
    }

    #[test]
    fn it_doubles_from_the_start_and_climbs_by_half_once_that_brought_nothing() {
        let store = ModelStore {
            run: 0.1,
            most: 5_000.0,
            throttles: false,
        };
        assert_eq!(
            store.limits(&mut AdaptiveLimit::for_messages(MEMORY), 3),
            [128, 256, 512]
        );
        let store = ModelStore {
            run: 0.1,
            most: 1_300.0,
            throttles: false,
        };
        let limits = store.limits(&mut AdaptiveLimit::for_messages(MEMORY), 11);
        assert_eq!((&limits[..3], limits[10]), (&[128, 256, 128][..], 192));
    }

    #[test]
    fn a_window_of_the_start_may_be_shorter() {
        let mut controller = AdaptiveLimit::for_messages(MEMORY);
        let short = Window {
            length: Duration::from_millis(200),
            ended: 130,
            throttled: 0,
            full: true,
        };
        assert!(controller.is_conclusive(&short));
        assert!(!controller.is_conclusive(&Window {
            length: Duration::from_millis(100),
            ..short
        }));
        controller.retreat();
        assert!(!controller.is_conclusive(&short));
        assert!(controller.is_conclusive(&Window {
            length: Duration::from_millis(500),
            ..short
        }));
    }

    #[test]
    fn it_stays_if_more_jobs_only_make_runs_longer_and_seldom_retries() {
        let store = ModelStore {
            run: 0.1,
            most: 500.0,
            throttles: false,
        };
        let mut controller = AdaptiveLimit::for_messages(MEMORY);
        let limits = store.limits(&mut controller, 1_000);
        let tries = limits[10..].iter().filter(|limit| **limit != START).count();
        assert!(tries < 20, "{tries}");
    }

    #[test]
    fn throttling_shrinks_it_to_the_floor_at_most_and_it_grows_again_afterwards() {
        let mut controller = AdaptiveLimit::for_messages(MEMORY);
        let throttles = Window {
            length: Duration::from_secs(1),
            ended: 100,
            throttled: 50,
            full: true,
        };
        let limits: Vec<usize> = (0..12).map(|_| controller.next_limit(&throttles)).collect();
        assert_eq!(limits[..3], [48, 36, 27]);
        assert_eq!(limits.last(), Some(&FLOOR));
        let store = ModelStore {
            run: 0.1,
            most: 2_000.0,
            throttles: false,
        };
        assert!(store.limits(&mut controller, 40).last() > Some(&128));
    }

    #[test]
    fn one_hot_partition_among_many_is_not_the_store() {
        let mut controller = AdaptiveLimit::for_messages(MEMORY);
        let few = Window {
            length: Duration::from_secs(1),
            ended: 1_000,
            throttled: 40,
            full: true,
        };
        assert!(controller.next_limit(&few) >= START);
    }

    #[test]
    fn a_store_in_trouble_is_relieved() {
        let mut controller = AdaptiveLimit::for_messages(MEMORY);
        let healthy = ModelStore {
            run: 0.1,
            most: 600.0,
            throttles: false,
        };
        let before = *healthy.limits(&mut controller, 30).last().unwrap();
        let ailing = ModelStore {
            run: 0.1,
            most: 100.0,
            throttles: false,
        };
        let limits = ailing.limits(&mut controller, 2);
        assert!(limits[1] < before, "{before}, then {limits:?}");
    }

    #[test]
    fn a_queue_without_a_backlog_teaches_nothing() {
        let mut controller = AdaptiveLimit::for_messages(MEMORY);
        for ended in [0, 1, 500] {
            let calm = Window {
                length: Duration::from_secs(1),
                ended,
                throttled: 0,
                full: false,
            };
            assert_eq!(controller.next_limit(&calm), START);
        }
    }

    #[test]
    fn little_memory_keeps_it_low() {
        assert_eq!(AdaptiveLimit::for_messages(4 << 20).ceiling, FLOOR);
        assert_eq!(AdaptiveLimit::for_messages(64 << 20).ceiling, 256);
        assert_eq!(AdaptiveLimit::for_messages(1 << 40).ceiling, CEILING);
        let for_batches = |memory| {
            (
                AdaptiveLimit::for_batches(memory).limit(),
                AdaptiveLimit::for_batches(memory).ceiling,
            )
        };
        assert_eq!(
            [
                for_batches(4 << 20),
                for_batches(64 << 20),
                for_batches(MEMORY)
            ],
            [(100, 100), (256, 512), (256, 1_024)]
        );
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(memory in (1_u64 << 22)..(1 << 33), windows in proptest::collection::vec((1_u64..3_000, 0_u64..5_000, 0_u64..5_000, any::<bool>()), 0..200)) {
            let mut controller = AdaptiveLimit::for_messages(memory);
            for (millis, ended, throttled, full) in windows {
                let limit = controller.next_limit(&Window { length: Duration::from_millis(millis), ended, throttled: throttled.min(ended), full });
                prop_assert!((FLOOR..=CEILING).contains(&limit) && limit <= controller.ceiling);
            }
        }

        /// On any steady store, the limit reaches at least three fifths of the rate of the best
        /// fixed limit.
        #[test]
        fn on_a_steady_store_it_brings_about_as_much_as_the_best_number(run_ms in 5_u32..400, most in 50_u32..5_000, throttles in any::<bool>()) {
            let store = ModelStore { run: f64::from(run_ms) / 1_000.0, most: f64::from(most), throttles };
            let best = (CEILING as f64 / store.run).min(store.most);
            let mut controller = AdaptiveLimit::for_messages(MEMORY);
            let limits = store.limits(&mut controller, 400);
            let late = &limits[100..];
            let brought = late.iter().map(|limit| (*limit as f64 / store.run).min(store.most)).sum::<f64>() / late.len() as f64;
            // The test does not require more than this part. The capacity of a store that throttles
            // may be below the floor, and a climb by half may overshoot it.
            prop_assert!(brought >= best * 0.6, "{brought} of {best}: {limits:?}");
        }
    }
}
