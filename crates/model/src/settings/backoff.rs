//! Backoff: how long a loop waits before it tries again.
//!
//! Jobs and storage requests use a configured [`Backoff`]. Loops of the program use a [`WaitPolicy`]. Both types are
//! plain values, and callers pass the random number. The exponential policy of the crate `backoff` is not used, because
//! it reads the system clock and a global random generator. The drivers of that crate accept a [`WaitSequence`].

use std::time::Duration;

/// An exponential wait: n-th wait = min(min + rand(0.8, 1.2) · base · (2^n − 1), max).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Shortest wait.
    pub min: Duration,
    /// The wait that is multiplied by 2^n − 1.
    pub base: Duration,
    /// Longest wait.
    pub max: Duration,
}

/// How one storage request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    waits: RequestWaits,
    attempts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestWaits {
    Growing(Backoff),
    /// One wait after each attempt except the last. Unused places are zero.
    Listed([Duration; MAX_LISTED_WAITS]),
}

/// Maximum number of waits in a listed policy.
pub const MAX_LISTED_WAITS: usize = 8;

/// A wait that grows by a factor: n-th wait = rand(1 − jitter, 1 + jitter) · min(initial · factor^(n − 1), max).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaitPolicy {
    /// The first wait.
    pub initial: Duration,
    /// The ratio of each wait to the one before.
    pub factor: u32,
    /// The longest wait, before jitter.
    pub max: Duration,
    /// Largest share by which a wait is shortened or lengthened. Jitter lets loops that start
    /// together drift apart.
    pub jitter: f64,
}

/// The waits of one loop, in order.
pub struct WaitSequence<U> {
    policy: WaitPolicy,
    unit: U,
    made: u32,
    most: u32,
}

impl Backoff {
    /// The n-th wait (n from 1). `unit` is a random number from 0 up to 1.
    pub fn wait(&self, n: u32, unit: f64) -> Duration {
        let growth = 2_f64.powi(i32::try_from(n.min(62)).unwrap_or(62)) - 1.0;
        let seconds =
            self.min.as_secs_f64() + (0.8 + 0.4 * unit) * self.base.as_secs_f64() * growth;
        Duration::from_secs_f64(seconds.min(self.max.as_secs_f64()))
    }
}

impl RetryPolicy {
    /// Creates a policy of waits that grow. `attempts` includes the first attempt.
    pub const fn growing(backoff: Backoff, attempts: u32) -> Self {
        Self {
            waits: RequestWaits::Growing(backoff),
            attempts,
        }
    }

    /// Creates a policy with one attempt more than waits: n-th wait = rand(0.8, 1.2) · listed.
    /// Returns `None` for more than [`MAX_LISTED_WAITS`] waits.
    pub fn listed(waits: &[Duration]) -> Option<Self> {
        let mut places = [Duration::ZERO; MAX_LISTED_WAITS];
        places.get_mut(..waits.len())?.copy_from_slice(waits);
        Some(Self {
            waits: RequestWaits::Listed(places),
            attempts: u32::try_from(waits.len()).ok()?.checked_add(1)?,
        })
    }

    /// Maximum number of attempts, including the first.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The n-th wait (n from 1). `unit` is a random number from 0 up to 1.
    pub fn wait(&self, n: u32, unit: f64) -> Duration {
        match &self.waits {
            RequestWaits::Growing(backoff) => backoff.wait(n, unit),
            RequestWaits::Listed(waits) => {
                let at = usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
                waits
                    .get(at)
                    .copied()
                    .unwrap_or_default()
                    .mul_f64(0.8 + 0.4 * unit)
            }
        }
    }

    /// The longest wait, without the jitter of listed waits. A longer `Retry-After` ends the
    /// request.
    pub fn longest(&self) -> Duration {
        match &self.waits {
            RequestWaits::Growing(backoff) => backoff.max,
            RequestWaits::Listed(waits) => waits.iter().copied().max().unwrap_or_default(),
        }
    }

    /// The sum of all waits at their longest.
    pub fn longest_sum(&self) -> Duration {
        (1..self.attempts)
            .map(|n| self.wait(n, 1.0))
            .fold(Duration::ZERO, Duration::saturating_add)
    }
}

impl WaitPolicy {
    /// Creates a policy that starts with `initial` and doubles up to `max`, with 20 % jitter.
    pub const fn doubling(initial: Duration, max: Duration) -> Self {
        Self {
            initial,
            factor: 2,
            max,
            jitter: 0.2,
        }
    }

    /// The n-th wait (n from 1), before jitter.
    pub fn unjittered(&self, n: u32) -> Duration {
        self.initial
            .saturating_mul(self.factor.saturating_pow(n.saturating_sub(1)))
            .min(self.max)
    }

    /// The n-th wait (n from 1). `unit` is a random number from 0 up to 1.
    pub fn wait(&self, n: u32, unit: f64) -> Duration {
        self.unjittered(n)
            .mul_f64(1.0 - self.jitter + 2.0 * self.jitter * unit)
    }

    /// Returns the waits of one loop. `unit` returns random numbers from 0 up to 1.
    pub const fn waits<U: Fn() -> f64>(self, unit: U) -> WaitSequence<U> {
        WaitSequence {
            policy: self,
            unit,
            made: 0,
            most: u32::MAX,
        }
    }
}

impl<U: Fn() -> f64> WaitSequence<U> {
    /// Limits the number of waits, for a driver of the crate `backoff`.
    #[must_use]
    pub fn at_most(self, most: u32) -> Self {
        Self { most, ..self }
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        self.made = self.made.saturating_add(1);
        self.policy.wait(self.made, (self.unit)())
    }
}

impl<U: Fn() -> f64> backoff::backoff::Backoff for WaitSequence<U> {
    fn next_backoff(&mut self) -> Option<Duration> {
        (self.made < self.most).then(|| self.next_wait())
    }

    fn reset(&mut self) {
        self.made = 0;
    }
}

#[cfg(test)]
mod tests {
    use ::backoff::backoff::Backoff as _;

    use super::*;

    const POLICY: WaitPolicy =
        WaitPolicy::doubling(Duration::from_millis(250), Duration::from_secs(30));

    #[test]
    fn waits_double_up_to_their_maximum_and_never_vanish() {
        let backoff = Backoff {
            min: Duration::from_secs(2),
            base: Duration::from_secs(2),
            max: Duration::from_mins(10),
        };
        assert_eq!(backoff.wait(1, 0.5), Duration::from_secs(4));
        assert_eq!(backoff.wait(2, 0.5), Duration::from_secs(8));
        assert_eq!(backoff.wait(3, 0.5), Duration::from_secs(16));
        assert!(backoff.wait(1, 0.0) >= backoff.min);
        assert_eq!(backoff.wait(4_000_000_000, 0.9), Duration::from_mins(10));
    }

    #[test]
    fn the_storage_clients_waits_stay_between_3_and_90_seconds() {
        // Azure's guidance on retries lists these values for the exponential retry of the storage
        // client libraries: a shortest wait of 3 s, a back-off difference of 30 s (our `base`), and
        // a longest wait of 90 s.
        let backoff = Backoff {
            min: Duration::from_secs(3),
            base: Duration::from_secs(30),
            max: Duration::from_secs(90),
        };
        for n in 1..10 {
            for unit in [0.0, 0.5, 0.999] {
                let wait = backoff.wait(n, unit);
                assert!((3.0..=90.0).contains(&wait.as_secs_f64()), "{n}: {wait:?}");
            }
        }
        assert_eq!(backoff.wait(1, 0.5), Duration::from_secs(33));
    }

    #[test]
    fn listed_waits_follow_in_order_with_a_fifth_of_jitter() {
        let listed = [2, 4, 10, 30].map(Duration::from_secs);
        let policy = RetryPolicy::listed(&listed).unwrap();
        assert_eq!(policy.attempts(), 5);
        assert_eq!([1, 2, 3, 4].map(|n| policy.wait(n, 0.5)), listed);
        assert_eq!(
            [1, 2, 3, 4].map(|n| policy.wait(n, 0.0).as_millis()),
            [1_600, 3_200, 8_000, 24_000]
        );
        assert_eq!(policy.longest(), Duration::from_secs(30));
        assert_eq!(policy.longest_sum().as_millis(), 55_200);
        assert_eq!(policy.wait(u32::MAX, 0.5), Duration::ZERO);
    }

    #[test]
    fn a_list_has_eight_waits_at_most_and_need_not_grow() {
        let second = Duration::from_secs(1);
        assert_eq!(RetryPolicy::listed(&[second; 9]), None);
        let full = RetryPolicy::listed(&[second; 8]).unwrap();
        assert_eq!((full.attempts(), full.wait(8, 0.5)), (9, second));
        let falling = RetryPolicy::listed(&[3 * second, second]).unwrap();
        assert_eq!(
            (falling.longest(), falling.wait(2, 0.5)),
            (3 * second, second)
        );
    }

    #[test]
    fn a_wait_policy_starts_at_its_first_wait_and_multiplies_up_to_its_longest() {
        let mut waits = POLICY.waits(|| 0.5);
        let millis: Vec<_> = (0..9).map(|_| waits.next_wait().as_millis()).collect();
        assert_eq!(
            millis,
            [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
        );
        assert_eq!(POLICY.unjittered(u32::MAX), POLICY.max);
        let threefold = WaitPolicy {
            factor: 3,
            ..POLICY
        };
        assert_eq!(
            [1, 2, 3].map(|n| threefold.unjittered(n).as_millis()),
            [250, 750, 2_250]
        );
        let fixed = WaitPolicy {
            factor: 1,
            ..POLICY
        };
        assert_eq!(fixed.unjittered(1_000), POLICY.initial);
    }

    #[test]
    fn jitter_applies_to_the_longest_wait_too() {
        assert_eq!(POLICY.wait(1, 0.0), Duration::from_millis(200));
        assert_eq!(POLICY.wait(100, 0.0), Duration::from_secs(24));
        assert!((35.9..36.0).contains(&POLICY.wait(100, 0.999_9).as_secs_f64()));
        let exact = WaitPolicy {
            jitter: 0.0,
            ..POLICY
        };
        assert_eq!(
            [0.0, 0.9].map(|unit| exact.wait(2, unit)),
            [Duration::from_millis(500); 2]
        );
    }

    #[test]
    fn a_driver_gets_limited_waits_and_starts_over_after_a_reset() {
        let mut waits = POLICY.waits(|| 0.5).at_most(2);
        let millis = |wait: Option<Duration>| wait.map(|wait| wait.as_millis());
        assert_eq!(
            [(); 3].map(|()| millis(waits.next_backoff())),
            [Some(250), Some(500), None]
        );
        waits.reset();
        assert_eq!(millis(waits.next_backoff()), Some(250));
    }
}
