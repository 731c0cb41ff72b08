//! The state machine of one circuit. The caller passes in the time.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::layer::{Evidence, ThrottleScope};

const FAILURES: u32 = 8;
/// Number of scopes that must throttle before throttling counts as a failure of the service.
const THROTTLED_SCOPES: usize = 3;
/// The failures must span at least this long, because one broken connection pool fails many requests at once.
const MIN_FAILURE_SPAN: Duration = Duration::from_secs(1);
/// Interval between trial requests while a circuit is open.
const TRIAL_INTERVAL: Duration = Duration::from_secs(5);
/// An open circuit without requests closes after this time. By default, a released job comes back sooner, and its request is a
/// trial.
const LAPSE_AFTER: Duration = Duration::from_mins(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// The circuit is closed, or it is open and this request is its trial.
    Sent,
    /// The circuit is open, and the next trial is due after this time.
    Withheld(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transition {
    Opened,
    Closed,
}

#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: FailureCounts,
    /// Due time of the next trial; `None` while the circuit is closed.
    next_trial: Option<Duration>,
}

#[derive(Debug, Default)]
struct FailureCounts {
    since: Option<Duration>,
    refused: u32,
    failed: u32,
    throttled: u32,
    throttled_scopes: BTreeSet<ThrottleScope>,
}

impl Breaker {
    pub(super) fn is_open(&self) -> bool {
        self.next_trial.is_some()
    }

    pub(super) fn admit(&mut self, now: Duration) -> Admission {
        match &mut self.next_trial {
            None => Admission::Sent,
            Some(next_trial) if now < *next_trial => {
                Admission::Withheld(next_trial.saturating_sub(now))
            }
            Some(next_trial) => {
                // The next trial does not wait for this one: a request without an answer fails only at its timeout.
                *next_trial = now + TRIAL_INTERVAL;
                Admission::Sent
            }
        }
    }

    /// Closes the circuit after a long time without a request, because the state of the service is unknown by then. The next
    /// failure opens it again. Returns whether it closed.
    pub(super) fn lapse(&mut self, now: Duration) -> bool {
        // Any request after `next_trial` would have been a trial and would have moved `next_trial`. So there was no request
        // since then.
        self.next_trial
            .take_if(|next_trial| now >= *next_trial + LAPSE_AFTER)
            .is_some()
    }

    /// Records the evidence of a result. `scope` is called only if the request was throttled.
    pub(super) fn record(
        &mut self,
        evidence: Evidence,
        scope: impl FnOnce() -> ThrottleScope,
        now: Duration,
    ) -> Option<Transition> {
        match evidence {
            Evidence::None => return None,
            Evidence::Answered => {
                self.failures = FailureCounts::default();
                return self.next_trial.take().map(|_| Transition::Closed);
            }
            Evidence::Refused => self.failures.refused = self.failures.refused.saturating_add(1),
            Evidence::Failed => self.failures.failed = self.failures.failed.saturating_add(1),
            Evidence::Throttled => {
                self.failures.throttled = self.failures.throttled.saturating_add(1);
                if self.failures.throttled_scopes.len() < THROTTLED_SCOPES {
                    self.failures.throttled_scopes.insert(scope());
                }
            }
        }
        let since = *self.failures.since.get_or_insert(now);
        if let Some(next_trial) = &mut self.next_trial {
            *next_trial = now + TRIAL_INTERVAL;
            return None;
        }
        if !self.failures.reach_limit(now.saturating_sub(since)) {
            return None;
        }
        self.next_trial = Some(now + TRIAL_INTERVAL);
        Some(Transition::Opened)
    }
}

impl FailureCounts {
    fn reach_limit(&self, lasted: Duration) -> bool {
        let throttled = if self.throttled_scopes.len() >= THROTTLED_SCOPES {
            self.throttled
        } else {
            0
        };
        let failures = self
            .refused
            .saturating_add(self.failed)
            .saturating_add(throttled);
        // Refused connections open the circuit at once; other failures must last.
        self.refused >= FAILURES || (failures >= FAILURES && lasted >= MIN_FAILURE_SPAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{Key, TableName};

    fn partition(n: u32) -> ThrottleScope {
        ThrottleScope::Partition(
            TableName::new("Employees").unwrap(),
            Key::new(n.to_string()).unwrap(),
        )
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Feeds the evidence repeatedly, from alternating partitions. Returns the number of results after which the circuit opened.
    fn opens_after(evidence: Evidence, partitions: u32, every: Duration, most: u32) -> Option<u32> {
        let mut breaker = Breaker::default();
        (0..most)
            .find(|n| {
                breaker.record(evidence, || partition(n % partitions), every * *n)
                    == Some(Transition::Opened)
            })
            .map(|n| n + 1)
    }

    #[test]
    fn eight_refused_connections_open_it_at_once_and_other_failures_must_last_a_second() {
        assert_eq!(opens_after(Evidence::Refused, 1, ms(0), 100), Some(8));
        assert_eq!(opens_after(Evidence::Failed, 1, ms(0), 100), None);
        assert_eq!(opens_after(Evidence::Failed, 1, ms(10), 200), Some(101));
        assert_eq!(opens_after(Evidence::Failed, 1, ms(500), 100), Some(8));
    }

    #[test]
    fn one_or_two_throttled_partitions_never_open_it_and_three_do() {
        assert_eq!(opens_after(Evidence::Throttled, 1, ms(100), 10_000), None);
        assert_eq!(opens_after(Evidence::Throttled, 2, ms(100), 10_000), None);
        assert_eq!(opens_after(Evidence::Throttled, 3, ms(500), 100), Some(8));
    }

    #[test]
    fn a_throttled_partition_beside_a_few_failures_does_not_open_it() {
        let mut breaker = Breaker::default();
        for n in 0..1_000 {
            let evidence = if n < 7 {
                Evidence::Failed
            } else {
                Evidence::Throttled
            };
            assert_eq!(breaker.record(evidence, || partition(1), ms(100 * n)), None);
        }
    }

    #[test]
    fn any_answer_resets_the_count() {
        let mut breaker = Breaker::default();
        for n in 0..100 {
            let evidence = if n % 8 == 7 {
                Evidence::Answered
            } else {
                Evidence::Failed
            };
            assert_eq!(breaker.record(evidence, || partition(1), ms(500 * n)), None);
        }
    }

    #[test]
    fn an_open_circuit_lets_one_trial_through_every_five_seconds_and_closes_on_any_answer() {
        let mut breaker = Breaker::default();
        for _ in 0..8 {
            breaker.record(Evidence::Refused, || partition(1), ms(0));
        }
        assert_eq!(breaker.admit(ms(1_000)), Admission::Withheld(ms(4_000)));
        assert_eq!(breaker.admit(ms(5_000)), Admission::Sent);
        assert_eq!(
            breaker.admit(ms(5_000)),
            Admission::Withheld(TRIAL_INTERVAL)
        );
        // The trial hangs.
        assert_eq!(breaker.admit(ms(10_000)), Admission::Sent);
        assert_eq!(
            breaker.admit(ms(10_000)),
            Admission::Withheld(TRIAL_INTERVAL)
        );
        assert_eq!(
            breaker.record(Evidence::Failed, || partition(1), ms(10_500)),
            None
        );
        assert_eq!(
            breaker.admit(ms(10_500)),
            Admission::Withheld(TRIAL_INTERVAL)
        );
        assert_eq!(breaker.admit(ms(15_500)), Admission::Sent);
        assert_eq!(
            breaker.record(Evidence::Answered, || partition(1), ms(15_600)),
            Some(Transition::Closed)
        );
        assert_eq!(breaker.admit(ms(15_600)), Admission::Sent);
    }

    #[test]
    fn an_open_circuit_without_requests_lapses_and_the_next_failure_opens_it_again() {
        let mut breaker = Breaker::default();
        assert!(!breaker.lapse(LAPSE_AFTER * 2));
        for _ in 0..8 {
            breaker.record(Evidence::Refused, || partition(1), ms(0));
        }
        assert_eq!(breaker.admit(ms(4_999)), Admission::Withheld(ms(1)));
        assert_eq!(breaker.admit(ms(9_000)), Admission::Sent);
        assert!(
            !breaker.lapse(ms(13_999) + LAPSE_AFTER),
            "a trial was sent in the meantime"
        );
        assert!(breaker.is_open());
        let later = ms(14_000) + LAPSE_AFTER;
        assert!(breaker.lapse(later));
        assert!(!breaker.is_open() && !breaker.lapse(later * 2));
        assert_eq!(breaker.admit(later), Admission::Sent);
        assert_eq!(
            breaker.record(Evidence::Failed, || partition(1), later),
            Some(Transition::Opened)
        );
        assert_eq!(
            breaker.record(Evidence::Answered, || partition(1), later),
            Some(Transition::Closed)
        );
        assert_eq!(
            breaker.record(Evidence::Failed, || partition(1), later),
            None
        );
    }

    #[test]
    fn an_unsent_request_is_no_evidence() {
        assert_eq!(opens_after(Evidence::None, 3, ms(500), 100), None);
    }
}
