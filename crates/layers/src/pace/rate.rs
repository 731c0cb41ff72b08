//! The rate of one scope: it starts low, drops by a share if the service is busy, and recovers along a cubic.
//!
//! ```text
//!   rate                             ╱  beyond the plateau: ever faster, so that new capacity is found soon
//!    │         503              ╱──╱
//!    │        ╱│        ╱──────╱        plateau: flat near the rate that was throttled
//!    │      ╱  │     ╱                  decrease: a 503, or a tripled latency, takes a share of the sent rate
//!    │ ──╱     │ ╱                      slow start: doubles each second until the first 503
//!    └─────────────────────── time
//! ```
//!
//! The cubic is that of TCP (RFC 9438), with a constant relative to the ceiling. Workers that share an account do not know of
//! each other, but together they approach the account's limit slowly. The worker with the larger share recovers later, so the
//! shares become equal.
//!
//! The rate grows only while requests wait for it, because an idle scope is no evidence of capacity.

use std::time::Duration;

const WINDOW: Duration = Duration::from_millis(250);
/// Maximum burst, as a time: requests pass without a wait while they are ahead of the rate by no more than this.
const BURST: Duration = Duration::from_millis(100);
/// Time in which a rate at the ceiling recovers from a 503, in seconds. Only time in which requests wait counts. A lower rate
/// recovers sooner, by the cube root of its share of the ceiling.
const RECOVERY_SECONDS: f64 = 8.0;
/// Share of the sent rate that remains after a 503.
const AFTER_REFUSAL: f64 = 0.7;
/// Share of the sent rate that remains after slow answers.
const AFTER_SLOWNESS: f64 = 0.9;
/// Minimum share of the rate that remains after one decrease. A scope that has sent far less than its rate is hardly the cause
/// of a 503, so the decrease is limited.
const MIN_REMAINDER: f64 = 0.5;
/// Minimum rate as a share of the ceiling, so that requests still show when the service recovers.
const MIN_SHARE: f64 = 0.01;
const BACKGROUND_SHARE: f64 = 0.1;
/// Answers are slow if the recent latency exceeds the usual latency times `SLOW_FACTOR`, and also exceeds `SLOW_MIN_SECONDS`.
const SLOW_FACTOR: f64 = 3.0;
const SLOW_MIN_SECONDS: f64 = 0.025;
const MIN_ANSWERS: u32 = 64;

#[derive(Debug, Clone)]
pub(super) struct PacedRate {
    ceiling: f64,
    /// Weight per second.
    rate: f64,
    /// Growth since the last decrease; `None` during the slow start.
    growth: Option<Growth>,
    /// Time at which everything admitted so far has been sent.
    booked: Duration,
    /// The same for background work, which has a share of the rate.
    booked_background: Duration,
    window: RateWindow,
    /// Rates of the last window in weight per second: all requests (`sent`), and live work (`live`).
    sent: f64,
    live: f64,
    eased: Option<Duration>,
    latency: Latency,
}

#[derive(Debug, Clone, Copy, Default)]
struct RateWindow {
    since: Duration,
    sent: f64,
    live: f64,
    waited: bool,
}

/// Recent and usual latency, in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Latency {
    lately: f64,
    usually: f64,
    seen: u32,
}

impl Latency {
    /// Records an answer. Returns whether answers have become slow.
    fn add(&mut self, took: f64) -> bool {
        self.seen = self.seen.saturating_add(1);
        let share = |least: f64| (1.0 / f64::from(self.seen)).max(least);
        self.lately += (took - self.lately) * share(1.0 / 32.0);
        self.usually += (took - self.usually) * share(1.0 / 1_024.0);
        self.seen > MIN_ANSWERS
            && self.lately > SLOW_MIN_SECONDS
            && self.lately > SLOW_FACTOR * self.usually
    }
}

/// A cubic in time that is flat at the throttled rate.
#[derive(Debug, Clone, Copy)]
struct Growth {
    plateau: f64,
    /// Seconds until the plateau. Time in which no request waits does not count. Negative beyond the plateau.
    left: f64,
}

impl Growth {
    /// Starts at `eased`, a rate reduced from `from`.
    fn new(eased: f64, from: f64, ceiling: f64) -> Self {
        let plateau = from.max(eased);
        Self {
            plateau,
            left: ((plateau - eased) / steepness(ceiling)).cbrt(),
        }
    }

    /// Advances by these seconds and returns the rate.
    fn after(&mut self, seconds: f64, ceiling: f64) -> f64 {
        self.left -= seconds;
        steepness(ceiling).mul_add(-self.left.powi(3), self.plateau)
    }
}

fn steepness(ceiling: f64) -> f64 {
    (1.0 - AFTER_REFUSAL) * ceiling / RECOVERY_SECONDS.powi(3)
}

impl PacedRate {
    pub(super) fn new(ceiling: f64, start: f64, now: Duration) -> Self {
        Self {
            ceiling,
            rate: start.clamp(ceiling * MIN_SHARE, ceiling),
            growth: None,
            booked: now,
            booked_background: now,
            window: RateWindow {
                since: now,
                ..RateWindow::default()
            },
            sent: 0.0,
            live: 0.0,
            eased: None,
            latency: Latency::default(),
        }
    }

    /// The current limit, in weight per second.
    pub(super) const fn per_second(&self) -> f64 {
        self.rate
    }

    /// Expected limit in weight per second: the ceiling until the service has been busy.
    pub(super) const fn expected(&self) -> f64 {
        if self.growth.is_none() {
            self.ceiling
        } else {
            self.rate
        }
    }

    pub(super) fn wait(&self, now: Duration) -> Duration {
        self.booked.saturating_sub(now + BURST)
    }

    pub(super) fn book(&mut self, weight: f64, wait: Duration, now: Duration) {
        self.measure(now);
        self.window.waited |= !wait.is_zero();
        self.charge(weight, now);
    }

    /// Charges the weight that a request had beyond its booking.
    pub(super) fn charge(&mut self, weight: f64, now: Duration) {
        self.window.sent += weight;
        self.booked = self.booked.max(now) + Duration::from_secs_f64(weight / self.rate);
    }

    pub(super) fn note_live(&mut self, weight: f64, now: Duration) {
        self.measure(now);
        self.window.live += weight;
    }

    /// Returns how long background work has to wait. It gets the part of the rate that live work leaves, but at least
    /// [`BACKGROUND_SHARE`].
    pub(super) fn wait_behind(&mut self, weight: f64, now: Duration) -> Duration {
        self.measure(now);
        let begins = now.max(self.booked_background);
        let part = (self.rate - self.live).max(self.rate * BACKGROUND_SHARE);
        self.booked_background = begins + Duration::from_secs_f64(weight / part);
        begins.saturating_sub(now)
    }

    pub(super) fn refused(&mut self, now: Duration) {
        self.ease(AFTER_REFUSAL, WINDOW, now);
    }

    pub(super) fn answered(&mut self, took: Duration, now: Duration) {
        if self.latency.add(took.as_secs_f64()) {
            self.ease(AFTER_SLOWNESS, 4 * WINDOW, now);
        }
    }

    /// Reduces the rate to a share of the sent rate. A burst of failures within `again_after` reduces it once.
    fn ease(&mut self, share: f64, again_after: Duration, now: Duration) {
        self.measure(now);
        if self.eased.is_some_and(|eased| now < eased + again_after) {
            return;
        }
        let (elapsed, sent) = (now.saturating_sub(self.window.since), self.window.sent);
        let lately = if elapsed > WINDOW / 4 {
            self.sent.max(sent / elapsed.as_secs_f64())
        } else {
            self.sent
        };
        let from = if lately > 0.0 {
            lately.min(self.rate)
        } else {
            self.rate
        };
        self.rate = (from * share)
            .max(self.rate * MIN_REMAINDER)
            .max(self.ceiling * MIN_SHARE);
        (self.growth, self.eased) = (Some(Growth::new(self.rate, from, self.ceiling)), Some(now));
    }

    fn measure(&mut self, now: Duration) {
        let length = now.saturating_sub(self.window.since);
        if length < WINDOW {
            return;
        }
        let seconds = length.as_secs_f64();
        let RateWindow {
            sent, live, waited, ..
        } = self.window;
        (self.sent, self.live) = (sent / seconds, live / seconds);
        if waited {
            // No measurement happens while idle, so the window may be much longer than `WINDOW`.
            let seconds = seconds.min(1.0);
            let grown = match &mut self.growth {
                None => self.rate * seconds.exp2(),
                Some(growth) => growth.after(seconds, self.ceiling),
            };
            self.rate = grown.min(self.ceiling);
        }
        self.window = RateWindow {
            since: now,
            ..RateWindow::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Sends requests as fast as admitted to a service of this capacity. Returns the weight sent and the requests throttled per second.
    fn played(
        rate: &mut PacedRate,
        seconds: u64,
        weight: f64,
        takes: impl Fn(u64) -> f64,
    ) -> Vec<(f64, u32)> {
        let (mut now, mut level, mut seen) = (Duration::ZERO, 0.0_f64, Vec::new());
        while now < Duration::from_secs(seconds) {
            let wait = rate.wait(now);
            rate.book(weight, wait, now);
            let went = now + wait;
            let capacity = takes(went.as_secs());
            level = ((went.saturating_sub(now))
                .as_secs_f64()
                .mul_add(capacity, level))
            .min(capacity * 0.25);
            // Requests arrive every 0.1 ms, so some always wait.
            now = went + Duration::from_micros(100);
            level = Duration::from_micros(100)
                .as_secs_f64()
                .mul_add(capacity, level);
            seen.resize(usize::try_from(went.as_secs()).unwrap() + 1, (0.0, 0));
            let second = seen.last_mut().unwrap();
            if level >= 1.0 {
                level -= weight;
                second.0 += weight;
            } else {
                second.1 += 1;
                rate.refused(now);
            }
        }
        seen
    }

    #[test]
    fn it_starts_at_a_tenth_doubles_each_second_and_ends_at_the_ceiling() {
        let mut rate = PacedRate::new(2_000.0, 200.0, Duration::ZERO);
        let sent: Vec<f64> = played(&mut rate, 8, 1.0, |_| 1e9)
            .into_iter()
            .map(|(sent, _)| sent)
            .collect();
        assert!(
            sent[0] < 350.0
                && sent[1] < 700.0
                && sent[6] > 1_950.0
                && sent.iter().all(|sent| *sent < 2_250.0),
            "{sent:?}"
        );
    }

    #[test]
    fn a_transaction_of_a_hundred_is_a_hundred() {
        let mut rate = PacedRate::new(2_000.0, 2_000.0, Duration::ZERO);
        let sent = played(&mut rate, 3, 100.0, |_| 1e9);
        assert!(
            sent[1..3]
                .iter()
                .all(|(sent, _)| (1_900.0..=2_100.0).contains(sent)),
            "{sent:?}"
        );
        rate.charge(4_000.0, Duration::from_secs(4));
        assert_eq!(
            rate.wait(Duration::from_secs(4)),
            ms(1_900),
            "a scan that returned the rows of two seconds delays what follows"
        );
    }

    #[test]
    fn a_burst_of_refusals_reduces_the_rate_once_and_an_idle_rate_does_not_grow() {
        let mut rate = PacedRate::new(2_000.0, 2_000.0, Duration::ZERO);
        (0..64).for_each(|_| rate.refused(ms(10)));
        assert!((rate.per_second() - 1_400.0).abs() < 1e-6);
        rate.book(1.0, Duration::ZERO, Duration::from_hours(1));
        assert!(
            (rate.per_second() - 1_400.0).abs() < 1e-6,
            "no request waited for the rate"
        );
    }

    #[test]
    fn answers_that_become_slow_reduce_the_rate_and_constantly_slow_ones_do_not() {
        let mut rate = PacedRate::new(2_000.0, 2_000.0, Duration::ZERO);
        (0..1_000).for_each(|n| rate.answered(ms(60), ms(n)));
        assert!((rate.per_second() - 2_000.0).abs() < 1e-6);
        (1_000..1_200).for_each(|n| rate.answered(ms(400), ms(n)));
        assert!(rate.per_second() < 1_900.0);
    }

    #[test]
    fn background_work_has_what_live_work_leaves_and_never_less_than_a_tenth() {
        for (live, least, most) in [
            (0_u32, 1_900, 2_010),
            (1_000, 900, 1_100),
            (2_000, 190, 210),
        ] {
            let mut rate = PacedRate::new(2_000.0, 2_000.0, Duration::ZERO);
            let (mut due, mut sent) = (None, [0_u32; 4]);
            for tick in 0..4_000_u16 {
                let now = ms(u64::from(tick));
                rate.note_live(f64::from(live) / 1_000.0, now);
                rate.book(f64::from(live) / 1_000.0, Duration::ZERO, now);
                while due.is_none_or(|due| due <= now) {
                    sent[usize::from(tick / 1_000)] += u32::from(due.is_some());
                    due = Some(now + rate.wait_behind(1.0, now));
                }
            }
            assert!(
                sent[1..].iter().all(|sent| (least..=most).contains(sent)),
                "{live}: {sent:?}"
            );
        }
    }

    /// Several workers send to one service of capacity `takes` as fast as they admit. Returns what each sent and how much was throttled after `start`.
    fn shared(workers: usize, takes: f64, start: Duration, end: Duration) -> Vec<(f64, f64)> {
        let mut rates = vec![PacedRate::new(2_000.0, 200.0, Duration::ZERO); workers];
        let (mut due, mut seen) = (vec![Duration::ZERO; workers], vec![(0.0, 0.0); workers]);
        let (mut level, mut at) = (0.0_f64, Duration::ZERO);
        loop {
            let (worker, now) = due
                .iter()
                .copied()
                .enumerate()
                .min_by_key(|(_, due)| *due)
                .unwrap();
            if now > end {
                return seen;
            }
            level = (now.saturating_sub(at).as_secs_f64().mul_add(takes, level)).min(takes * 0.25);
            at = now;
            let taken = level >= 1.0;
            if taken {
                level -= 1.0;
            } else {
                rates[worker].refused(now);
            }
            if now > start {
                *(if taken {
                    &mut seen[worker].0
                } else {
                    &mut seen[worker].1
                }) += 1.0;
            }
            let wait = rates[worker].wait(now);
            rates[worker].book(1.0, wait, now);
            due[worker] = now + wait.max(Duration::from_micros(100));
        }
    }

    #[test]
    fn workers_converge_to_equal_shares_with_few_refusals() {
        for (workers, at_most) in [(2, 0.002), (4, 0.002), (16, 0.005), (64, 0.03)] {
            let seen = shared(
                workers,
                2_000.0,
                Duration::from_secs(20),
                Duration::from_mins(2),
            );
            let (sent, refused) = seen
                .iter()
                .fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
            let squares: f64 = seen.iter().map(|(sent, _)| sent * sent).sum();
            #[expect(clippy::cast_precision_loss)]
            let fair = sent * sent / (squares * workers as f64);
            assert!(sent > 0.85 * 200_000.0, "{workers} workers: {sent} sent");
            assert!(
                refused < at_most * sent,
                "{workers} workers: {refused} refused"
            );
            assert!(fair > 0.9, "{workers} workers: {fair}");
        }
    }

    proptest! {
        #[test]
        fn the_rate_approaches_any_capacity_with_few_refusals(takes in 100.0_f64..4_000.0, weight in 1_u32..20) {
            let mut rate = PacedRate::new(2_000.0, 200.0, Duration::ZERO);
            let seen = played(&mut rate, 60, f64::from(weight), |_| takes);
            let (sent, refused) = seen[20..].iter().fold((0.0, 0), |all, second| (all.0 + second.0, all.1 + second.1));
            let most = takes.min(2_000.0) * 40.0;
            prop_assert!(sent > 0.7 * most, "{sent} of {most}");
            let requests = sent / f64::from(weight) + f64::from(refused);
            prop_assert!(f64::from(refused) < 0.02 * requests + 60.0, "{refused} of {requests} refused");
        }
    }
}
