//! How long to wait between the attempts of one request.

use std::time::Duration;

use crate::settings::RetryPolicy;

/// The waits between the attempts of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// Growing by the formula of [`Backoff::wait`](crate::settings::Backoff::wait).
    Exponential(RetryPolicy),
    /// These, one after the other, then no more.
    Steps(Vec<Duration>),
}

impl Schedule {
    /// The n-th wait (n from 1), for a random number from 0 up to 1. `None` where there is no n-th.
    pub fn wait(&self, n: u32, unit: f64) -> Option<Duration> {
        match self {
            Self::Exponential(policy) => Some(policy.backoff.wait(n, unit)),
            Self::Steps(steps) => steps.get(usize::try_from(n).ok()?.checked_sub(1)?).copied(),
        }
    }

    /// Most attempts, the first included.
    pub fn attempts(&self) -> u32 {
        match self {
            Self::Exponential(policy) => policy.attempts,
            Self::Steps(steps) => u32::try_from(steps.len()).unwrap_or(u32::MAX).saturating_add(1),
        }
    }

    /// The longest wait.
    pub fn longest(&self) -> Duration {
        match self {
            Self::Exponential(policy) => policy.backoff.max,
            Self::Steps(steps) => steps.iter().max().copied().unwrap_or_default(),
        }
    }
}

impl From<RetryPolicy> for Schedule {
    fn from(policy: RetryPolicy) -> Self {
        Self::Exponential(policy)
    }
}

impl From<&RetryPolicy> for Schedule {
    fn from(policy: &RetryPolicy) -> Self {
        Self::Exponential(*policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Backoff;

    #[test]
    fn the_steps_come_one_after_the_other_and_then_stop() {
        // The example of Azure's guidance on transient faults.
        let schedule = Schedule::Steps([2, 4, 10, 30].map(Duration::from_secs).to_vec());
        let waits: Vec<_> = (0..=5).map(|n| schedule.wait(n, 0.5).map(|wait| wait.as_secs())).collect();
        assert_eq!(waits, [None, Some(2), Some(4), Some(10), Some(30), None]);
        assert_eq!((schedule.attempts(), schedule.longest()), (5, Duration::from_secs(30)));
    }

    #[test]
    fn the_storage_clients_waits_stay_between_3_and_90_seconds() {
        // The exponential retry of the storage client libraries as Azure's guidance on retries lists it: a difference of 30 s, between 3 s
        // and 90 s, three repetitions.
        let backoff = Backoff { min: Duration::from_secs(3), base: Duration::from_secs(30), max: Duration::from_secs(90) };
        let schedule = Schedule::Exponential(RetryPolicy { backoff, attempts: 4 });
        for n in 1..10 {
            for unit in [0.0, 0.5, 0.999] {
                let wait = schedule.wait(n, unit).unwrap();
                assert!((3.0..=90.0).contains(&wait.as_secs_f64()), "{n}: {wait:?}");
            }
        }
        assert_eq!(schedule.wait(1, 0.5), Some(Duration::from_secs(33)));
    }
}
