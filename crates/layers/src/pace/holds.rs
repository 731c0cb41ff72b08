//! Which scopes are held, and for how long. The caller passes in the time and random numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::layer::ThrottleScope;
use evenkeel_model::settings::WaitPolicy;

/// Lengths of the hold after each throttled probe, unless the service asks for a longer one.
const HOLD_TIMES: WaitPolicy =
    WaitPolicy::doubling(Duration::from_millis(100), Duration::from_secs(15));
/// Maximum number of scopes remembered. Each takes up to about 2 KiB (two long keys), so 20 MiB at worst.
const CAPACITY: usize = 10_000;
/// A probe without an answer makes room for another one after this time. A lost probe fails only at the request timeout. If the
/// scope stayed held until then, the leases of a whole queue would expire.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// A scope is forgotten this long after its hold ended, and then starts with the shortest hold again.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(5);

/// Time at which a probe was sent; identifies the probe within its scope.
pub(super) type ProbeTime = Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PaceAdmission {
    Free,
    /// The scope was held, and this request tests whether it is free again.
    Probe(ProbeTime),
    Held(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Answered,
    /// The scope is throttled, with the wait that the service asked for.
    Throttled(Option<Duration>),
    Unknown,
}

#[derive(Debug, Default)]
pub(super) struct ThrottleHolds {
    held: BTreeMap<ThrottleScope, ThrottleHold>,
}

#[derive(Debug, Clone, Copy)]
struct ThrottleHold {
    until: Duration,
    /// Number of consecutive holds without an answer in between: an index into [`HOLD_TIMES`].
    times: u32,
    probing: Option<ProbeTime>,
}

impl ThrottleHolds {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn held(&self, now: Duration) -> Vec<(ThrottleScope, Duration)> {
        let held = self.held.iter().filter(|(_, hold)| now < hold.until);
        held.map(|(scope, hold)| (scope.clone(), hold.until.saturating_sub(now)))
            .collect()
    }

    pub(super) fn remaining(&self, scope: &ThrottleScope, now: Duration) -> Option<Duration> {
        let hold = self.held.get(scope)?;
        if now < hold.until {
            return Some(hold.until.saturating_sub(now));
        }
        let probed = hold
            .probing
            .is_some_and(|since| now < since + PROBE_TIMEOUT);
        probed.then(|| HOLD_TIMES.unjittered(hold.times))
    }

    pub(super) fn admit(&mut self, scope: &ThrottleScope, now: Duration) -> PaceAdmission {
        if let Some(remaining) = self.remaining(scope, now) {
            return PaceAdmission::Held(remaining);
        }
        match self.held.get_mut(scope) {
            None => PaceAdmission::Free,
            Some(hold) if now >= hold.until + FORGOTTEN_AFTER => {
                self.held.remove(scope);
                PaceAdmission::Free
            }
            Some(hold) => {
                hold.probing = Some(now);
                PaceAdmission::Probe(now)
            }
        }
    }

    /// Records the result of a request. The random number `unit` (0 to 1) prevents workers from probing in step.
    pub(super) fn settle(
        &mut self,
        scope: ThrottleScope,
        probe: Option<ProbeTime>,
        verdict: Verdict,
        now: Duration,
        unit: f64,
    ) {
        let held = self.held.get(&scope).copied();
        // The result of a replaced probe is outdated, so it counts as that of an ordinary request.
        let probe = probe.is_some() && held.is_some_and(|hold| hold.probing == probe);
        let hold = match (verdict, held) {
            (Verdict::Answered, _) => {
                // The answer to a request that was sent before the hold is no evidence of recovery.
                if probe {
                    self.held.remove(&scope);
                }
                return;
            }
            (Verdict::Throttled(retry_after), Some(hold)) if !probe => {
                // The scope is held already, so this 503 does not double the hold. (64 requests in flight would double it 64
                // times.) If the service asks for a wait, a probe that was sent earlier must not end this wait, so it no longer
                // counts as a probe.
                let probing = hold.probing.filter(|_| retry_after.is_none());
                ThrottleHold {
                    until: hold.until.max(now + retry_after.unwrap_or_default()),
                    probing,
                    ..hold
                }
            }
            (Verdict::Throttled(retry_after), held) => {
                let times = held.map_or(0, |hold| hold.times).saturating_add(1);
                ThrottleHold {
                    until: now
                        + HOLD_TIMES
                            .wait(times, unit)
                            .max(retry_after.unwrap_or_default()),
                    times,
                    probing: None,
                }
            }
            (Verdict::Unknown, Some(hold)) if probe => ThrottleHold {
                until: now + HOLD_TIMES.wait(hold.times, unit),
                probing: None,
                ..hold
            },
            (Verdict::Unknown, _) => return,
        };
        if held.is_none() {
            self.make_room(now);
        }
        self.held.insert(scope, hold);
    }

    /// Makes room for another probe if the caller of this one was dropped.
    pub(super) fn abandon(&mut self, scope: &ThrottleScope, probe: ProbeTime) {
        if let Some(hold) = self
            .held
            .get_mut(scope)
            .filter(|hold| hold.probing == Some(probe))
        {
            hold.probing = None;
        }
    }

    fn make_room(&mut self, now: Duration) {
        if self.held.len() < CAPACITY {
            return;
        }
        self.held
            .retain(|_, hold| now < hold.until + FORGOTTEN_AFTER);
        if self.held.len() >= CAPACITY {
            // All remaining holds are recent. The one that ends first is dropped, because this loses least.
            if let Some(first) = self
                .held
                .iter()
                .min_by_key(|(_, hold)| hold.until)
                .map(|(scope, _)| scope.clone())
            {
                self.held.remove(&first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::QueueName;

    const BUSY: Verdict = Verdict::Throttled(None);

    fn scope(name: &str) -> ThrottleScope {
        ThrottleScope::Queue(QueueName::new(name).unwrap())
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_burst_of_refusals_holds_the_scope_once() {
        let mut holds = ThrottleHolds::default();
        for _ in 0..64 {
            holds.settle(scope("hot"), None, BUSY, ms(0), 0.5);
        }
        assert_eq!(
            holds.admit(&scope("hot"), ms(40)),
            PaceAdmission::Held(ms(60))
        );
        assert_eq!(holds.admit(&scope("calm"), ms(40)), PaceAdmission::Free);
    }

    #[test]
    fn one_probe_is_sent_after_a_hold_and_each_throttled_probe_doubles_it_up_to_15_s() {
        let mut holds = ThrottleHolds::default();
        holds.settle(scope("hot"), None, BUSY, ms(0), 0.5);
        let (mut now, mut lengths) = (ms(100), Vec::new());
        for _ in 0..9 {
            assert_eq!(holds.admit(&scope("hot"), now), PaceAdmission::Probe(now));
            assert!(
                matches!(holds.admit(&scope("hot"), now), PaceAdmission::Held(_)),
                "only one probe at a time"
            );
            holds.settle(scope("hot"), Some(now), BUSY, now, 0.5);
            let PaceAdmission::Held(hold) = holds.admit(&scope("hot"), now) else {
                panic!("not held")
            };
            lengths.push(hold.as_millis());
            now += hold;
        }
        assert_eq!(
            lengths,
            [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 15_000, 15_000]
        );
    }

    #[test]
    fn a_probe_that_succeeds_frees_the_scope_and_the_next_hold_is_short_again() {
        let mut holds = ThrottleHolds::default();
        holds.settle(
            scope("hot"),
            None,
            Verdict::Throttled(Some(ms(5_000))),
            ms(0),
            0.5,
        );
        assert_eq!(
            holds.admit(&scope("hot"), ms(4_999)),
            PaceAdmission::Held(ms(1))
        );
        assert_eq!(
            holds.admit(&scope("hot"), ms(5_000)),
            PaceAdmission::Probe(ms(5_000))
        );
        holds.settle(
            scope("hot"),
            Some(ms(5_000)),
            Verdict::Answered,
            ms(5_010),
            0.5,
        );
        assert!(holds.is_empty());
        holds.settle(scope("hot"), None, BUSY, ms(6_000), 0.5);
        assert_eq!(
            holds.admit(&scope("hot"), ms(6_000)),
            PaceAdmission::Held(ms(100))
        );
    }

    #[test]
    fn an_answer_to_a_request_sent_before_the_hold_does_not_end_it() {
        let mut holds = ThrottleHolds::default();
        holds.settle(scope("hot"), None, BUSY, ms(0), 0.5);
        holds.settle(scope("hot"), None, Verdict::Answered, ms(1), 0.5);
        assert_eq!(
            holds.admit(&scope("hot"), ms(1)),
            PaceAdmission::Held(ms(99))
        );
    }

    #[test]
    fn a_hanging_probe_makes_room_for_another_after_a_second() {
        let mut holds = ThrottleHolds::default();
        holds.settle(scope("hot"), None, BUSY, ms(0), 0.5);
        assert_eq!(
            holds.admit(&scope("hot"), ms(100)),
            PaceAdmission::Probe(ms(100))
        );
        assert_eq!(
            holds.admit(&scope("hot"), ms(1_099)),
            PaceAdmission::Held(ms(100))
        );
        assert_eq!(
            holds.admit(&scope("hot"), ms(1_100)),
            PaceAdmission::Probe(ms(1_100))
        );
        assert_eq!(
            holds.admit(&scope("hot"), ms(1_200)),
            PaceAdmission::Held(ms(100))
        );
        holds.settle(
            scope("hot"),
            Some(ms(1_100)),
            Verdict::Answered,
            ms(1_300),
            0.5,
        );
        assert_eq!(holds.admit(&scope("hot"), ms(1_300)), PaceAdmission::Free);
        // The first probe times out at last. The scope is free by now, so this result has no effect.
        holds.settle(
            scope("hot"),
            Some(ms(100)),
            Verdict::Unknown,
            ms(30_100),
            0.5,
        );
        assert_eq!(holds.admit(&scope("hot"), ms(30_100)), PaceAdmission::Free);
    }

    #[test]
    fn a_probe_sent_before_a_requested_wait_does_not_end_it() {
        let wait = Verdict::Throttled(Some(ms(60_000)));
        for (probe, answered) in [
            (Some(ms(1_100)), ms(100)),
            (Some(ms(100)), ms(1_100)),
            (None, ms(1_100)),
        ] {
            let mut holds = ThrottleHolds::default();
            holds.settle(scope("hot"), None, BUSY, ms(0), 0.5);
            assert_eq!(
                holds.admit(&scope("hot"), ms(100)),
                PaceAdmission::Probe(ms(100))
            );
            assert_eq!(
                holds.admit(&scope("hot"), ms(1_100)),
                PaceAdmission::Probe(ms(1_100))
            );
            holds.settle(scope("hot"), probe, wait, ms(1_200), 0.5);
            for verdict in [Verdict::Unknown, Verdict::Answered] {
                holds.settle(scope("hot"), Some(answered), verdict, ms(1_300), 0.5);
                holds.abandon(&scope("hot"), answered);
                assert_eq!(
                    holds.admit(&scope("hot"), ms(61_199)),
                    PaceAdmission::Held(ms(1)),
                    "{probe:?} {verdict:?}"
                );
            }
        }
    }

    #[test]
    fn an_unanswered_probe_repeats_the_hold_and_an_abandoned_one_makes_room() {
        let mut holds = ThrottleHolds::default();
        holds.settle(scope("hot"), None, BUSY, ms(0), 0.5);
        assert_eq!(
            holds.admit(&scope("hot"), ms(100)),
            PaceAdmission::Probe(ms(100))
        );
        holds.settle(scope("hot"), Some(ms(100)), Verdict::Unknown, ms(200), 0.5);
        assert_eq!(
            holds.admit(&scope("hot"), ms(200)),
            PaceAdmission::Held(ms(100))
        );
        assert_eq!(
            holds.admit(&scope("hot"), ms(300)),
            PaceAdmission::Probe(ms(300))
        );
        holds.abandon(&scope("hot"), ms(300));
        assert_eq!(
            holds.admit(&scope("hot"), ms(300)),
            PaceAdmission::Probe(ms(300))
        );
    }

    #[test]
    fn the_memory_is_bounded_and_keeps_what_is_held_longest() {
        let mut holds = ThrottleHolds::default();
        for n in 0..CAPACITY + 10 {
            holds.settle(scope(&format!("lane-{n}")), None, BUSY, ms(n as u64), 0.5);
        }
        assert_eq!(holds.held.len(), CAPACITY);
        assert!(
            holds
                .held
                .contains_key(&scope(&format!("lane-{}", CAPACITY + 9)))
        );
        let later = FORGOTTEN_AFTER + ms(1_000_000);
        holds.settle(scope("fresh"), None, BUSY, later, 0.5);
        assert_eq!(holds.held.len(), 1);
    }

    #[test]
    fn a_scope_without_requests_for_five_minutes_is_forgotten() {
        let mut holds = ThrottleHolds::default();
        holds.settle(scope("hot"), None, BUSY, ms(0), 0.5);
        assert_eq!(
            holds.admit(&scope("hot"), ms(100) + FORGOTTEN_AFTER),
            PaceAdmission::Free
        );
        assert!(holds.is_empty());
    }
}
