//! Decides how a message is settled after a delivery, from the outcome of the run and its
//! circumstances. Pure.
//!
//! | outcome | settlement | counts as an attempt |
//! |---|---|---|
//! | done, skipped | delete | – |
//! | a part of the job is done (`Advanced`) | release with the progress in the message, visible at once | no |
//! | permanent failure | poison | – |
//! | the message was rejected: undecodable, unknown or not allowed | poison | – |
//! | transient failure | release with a growing delay; poison (exhausted) if the job has failed for long enough and often enough | no |
//! | a request was withheld, outdated catalog | release with a growing delay | no |
//! | the worker drains, or the job of a batch was not started | release, visible at once | no |
//! | the lease has expired | release with a growing delay | no |
//! | the run could not be recorded | release with a growing delay | no |
//! | too many jobs wait for the key | release with the delay of a first retry | no |
//! | timeout while a store refuses all requests | release with a growing delay | no |
//! | panic, or any other timeout | release with a growing delay; poison (exhausted) after the last attempt | yes |
//! | earlier deliveries have used up the attempts | poison (exhausted) | – |
//! | the lease was lost | none, because another receiver has the message | yes, if the message records that a run began |
//!
//! A message that would expire before a worker sees it again is poisoned (expired) instead of
//! released.
//!
//! A run that hangs cannot be distinguished from a slow run, and each occupies a slot until the
//! timeout. If timeouts did not count as attempts, a job that hangs would be retried until its
//! message expires. A timeout while a store refuses all requests does not count, because the store
//! is the cause.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::poison::Reason;
use evenkeel_engine::{Failure, FailureClass, Outcome, Summary};
use evenkeel_model::ViewName;
use evenkeel_model::job::TransientFailures;
use evenkeel_model::settings::Backoff;

#[derive(Debug, Clone)]
pub(crate) enum RunOutcome {
    Returned(Arc<RunResult>),
    /// The message is not a job that this queue accepts.
    Rejected(Rejection),
    /// This many attempts were used up before this delivery.
    Exhausted(u32),
    Panicked(String),
    TimedOut(Duration),
    Interrupted(Interruption),
    LeaseLost,
}

impl RunOutcome {
    pub(crate) fn ran(&self) -> Option<&RunResult> {
        if let Self::Returned(ran) = self {
            Some(ran.as_ref())
        } else {
            None
        }
    }

    /// The engine's outcome, if the run succeeded.
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        match self.ran()? {
            RunResult::Finished(outcome) => Some(outcome),
            RunResult::Failed(..) => None,
        }
    }

    /// The views whose items are out of step because the run failed.
    pub(crate) fn views(&self) -> &[ViewName] {
        match self.ran() {
            Some(RunResult::Failed(failure, _)) => &failure.views,
            Some(RunResult::Finished(_)) | None => &[],
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum RunResult {
    Finished(Outcome),
    Failed(Arc<Failure>, Summary),
}

impl RunResult {
    pub(crate) const fn summary(&self) -> &Summary {
        match self {
            Self::Finished(outcome) => outcome.summary(),
            Self::Failed(_, summary) => summary,
        }
    }

    pub(crate) const fn summary_mut(&mut self) -> &mut Summary {
        match self {
            Self::Finished(outcome) => outcome.summary_mut(),
            Self::Failed(_, summary) => summary,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: Reason,
    pub(crate) step: &'static str,
    pub(crate) error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    Drain,
    /// The job was not started, because the earlier jobs of the batch have used up the time of the
    /// run.
    NotStarted,
    LeaseExpired,
    /// An earlier run may have been cut off, and this run could not be recorded before it began.
    NotRecorded,
    QueueFull,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DecisionInput {
    /// The service's dequeue count, including this delivery.
    pub(crate) deliveries: u32,
    /// How many of the deliveries count, including this one.
    pub(crate) attempts: u32,
    /// Transient failures since the last progress, including this delivery if it failed transiently.
    pub(crate) failing: TransientFailures,
    /// Time since the first failure in `failing`, by the queue's clock.
    pub(crate) failing_for: Duration,
    /// Time until the message expires, by the queue's clock; `None` if it never does.
    pub(crate) ttl: Option<Duration>,
    /// Health of the stores. It is read only after a timeout; otherwise it is `Available`.
    pub(crate) stores: Health,
    /// A random number in 0..1.
    pub(crate) unit: f64,
}

impl DecisionInput {
    pub(crate) const fn expires_within(&self, time: Duration) -> bool {
        matches!(self.ttl, Some(ttl) if ttl.as_nanos() <= time.as_nanos())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Available,
    /// At least one store refuses all requests.
    Refusing,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_dequeue_count: u32,
    pub(crate) retry_delay: Backoff,
    pub(crate) give_up_after: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settlement {
    Delete,
    Release { delay: Duration, attempt: Attempt },
    Advance(JobProgress),
    Poison(PoisonVerdict),
    Abandon,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobProgress {
    pub(crate) fields: Map<String, Value>,
    pub(crate) delay: Duration,
    /// How many jobs of a batch each later delivery may run; `None` for all.
    pub(crate) jobs_per_delivery: Option<u32>,
    /// The transient failures of a batch so far, if no job of the batch has ended. They stay
    /// recorded, so that the time until the message is given up continues.
    pub(crate) failing: Option<TransientFailures>,
}

impl From<Map<String, Value>> for JobProgress {
    fn from(fields: Map<String, Value>) -> Self {
        Self {
            fields,
            delay: Duration::ZERO,
            jobs_per_delivery: None,
            failing: None,
        }
    }
}

/// Whether a delivery counts towards `max_dequeue_count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    Counts,
    /// The delivery ended in order and was not the job's fault.
    WrittenOff,
    /// Like `WrittenOff`, but the failure is recorded in the note.
    Failed(TransientFailures),
}

impl Attempt {
    pub(crate) const fn failing(self) -> Option<TransientFailures> {
        match self {
            Self::Failed(failing) => Some(failing),
            Self::Counts | Self::WrittenOff => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoisonVerdict {
    pub(crate) reason: Reason,
    pub(crate) step: String,
    pub(crate) error: String,
    /// How the delivery counts if the poison message cannot be put and the message is released
    /// instead.
    pub(crate) attempt: Attempt,
}

/// A visible message may wait this long until a worker receives it. An idle worker polls every
/// `poll.max`, by default 1.5 s; the rest is a margin. A message that expires within this time is
/// poisoned, because it would be lost if it were released.
pub(crate) const UNSEEN: Duration = Duration::from_secs(10);

pub(crate) fn decide(end: &RunOutcome, input: &DecisionInput, limits: &Limits) -> Settlement {
    let delay_growing = limits.retry_delay.wait(input.deliveries, input.unit);
    let written_off = |delay| Settlement::Release {
        delay,
        attempt: Attempt::WrittenOff,
    };
    let settlement = match end {
        RunOutcome::Returned(ran) => match ran.as_ref() {
            RunResult::Finished(Outcome::Done(_) | Outcome::Skipped { .. }) => {
                return Settlement::Delete;
            }
            RunResult::Finished(Outcome::Advanced { fields, .. }) => {
                Settlement::Advance(fields.clone().into())
            }
            RunResult::Failed(failure, _) => match failure.class {
                FailureClass::Permanent => return poison(Reason::Permanent, end, ""),
                FailureClass::Transient { .. } if gives_up(input, limits) => {
                    let DecisionInput {
                        failing,
                        failing_for,
                        ..
                    } = input;
                    let before = format!(
                        "gave up after {} failures in {}: ",
                        failing.runs,
                        whole(*failing_for)
                    );
                    return poison(Reason::Exhausted, end, &before);
                }
                FailureClass::Transient { retry_after } => {
                    // The delay grows with the failures since the last progress, not with the
                    // deliveries. Otherwise a table walk would wait longer and longer, because each
                    // of its parts is a delivery.
                    let delay_growing = limits.retry_delay.wait(input.failing.runs, input.unit);
                    let delay = delay_growing.max(retry_after.unwrap_or_default());
                    Settlement::Release {
                        delay,
                        attempt: Attempt::Failed(input.failing),
                    }
                }
                FailureClass::Withheld { retry_after } => {
                    written_off(delay_growing.max(retry_after.unwrap_or_default()))
                }
                FailureClass::OutdatedCatalog => written_off(delay_growing),
            },
        },
        RunOutcome::Rejected(rejection) => return poison(rejection.reason, end, ""),
        RunOutcome::Exhausted(_) => return poison(Reason::Exhausted, end, ""),
        RunOutcome::TimedOut(_) if input.stores == Health::Refusing => written_off(delay_growing),
        RunOutcome::Panicked(_) | RunOutcome::TimedOut(_)
            if input.attempts >= limits.max_dequeue_count =>
        {
            return poison(
                Reason::Exhausted,
                end,
                &format!("gave up after {} attempts: ", input.attempts),
            );
        }
        RunOutcome::Panicked(_) | RunOutcome::TimedOut(_) => Settlement::Release {
            delay: delay_growing,
            attempt: Attempt::Counts,
        },
        RunOutcome::Interrupted(Interruption::Drain | Interruption::NotStarted) => {
            written_off(Duration::ZERO)
        }
        RunOutcome::Interrupted(Interruption::LeaseExpired | Interruption::NotRecorded) => {
            written_off(delay_growing)
        }
        // How long the job waits depends on the jobs before it, not on the number of its own
        // deliveries.
        RunOutcome::Interrupted(Interruption::QueueFull) => {
            written_off(limits.retry_delay.wait(1, input.unit))
        }
        RunOutcome::LeaseLost => return Settlement::Abandon,
    };
    unless_it_expires(settlement, end, input)
}

/// Poisons a message that would expire before a worker sees it again.
fn unless_it_expires(
    settlement: Settlement,
    end: &RunOutcome,
    input: &DecisionInput,
) -> Settlement {
    match settlement {
        Settlement::Release { delay, .. } | Settlement::Advance(JobProgress { delay, .. })
            if input.expires_within(delay.saturating_add(UNSEEN)) =>
        {
            poison(
                Reason::Expired,
                end,
                "the message expires before its next attempt: ",
            )
        }
        settlement => settlement,
    }
}

/// Whether a transient failure is the last one, because the job has failed for long enough and
/// often enough. Neither the time in the queue nor withheld requests count.
const fn gives_up(input: &DecisionInput, limits: &Limits) -> bool {
    input.failing_for.as_nanos() >= limits.give_up_after.as_nanos()
        && input.failing.runs >= limits.max_dequeue_count
}

fn poison(reason: Reason, end: &RunOutcome, before: &str) -> Settlement {
    let (step, error) = describe(end);
    let attempt = match end {
        // If the message has to be released instead, this run must still count as an attempt.
        RunOutcome::Panicked(_) | RunOutcome::TimedOut(_) => Attempt::Counts,
        _ => Attempt::WrittenOff,
    };
    Settlement::Poison(PoisonVerdict {
        reason,
        step,
        error: format!("{before}{error}"),
        attempt,
    })
}

/// Returns the step that failed, and the error.
pub(crate) fn describe(end: &RunOutcome) -> (String, String) {
    let (step, error) = match end {
        RunOutcome::Returned(ran) => match ran.as_ref() {
            RunResult::Finished(Outcome::Done(_)) => ("running", "done".to_owned()),
            RunResult::Finished(Outcome::Advanced { .. }) => ("running", "partly done".to_owned()),
            RunResult::Finished(Outcome::Skipped { reason, .. }) => ("running", reason.clone()),
            RunResult::Failed(failure, _) => return (failure.step.clone(), failure.chain()),
        },
        RunOutcome::Rejected(rejection) => (rejection.step, rejection.error.clone()),
        RunOutcome::Exhausted(1) => (
            "counting attempts",
            "the previous attempt crashed, panicked or was killed".to_owned(),
        ),
        RunOutcome::Exhausted(runs) => (
            "counting attempts",
            format!("{runs} attempts crashed, panicked or were killed"),
        ),
        RunOutcome::Panicked(message) => ("running", format!("the run panicked: {message}")),
        RunOutcome::TimedOut(limit) => (
            "running",
            format!("the run exceeded job_timeout ({})", whole(*limit)),
        ),
        RunOutcome::Interrupted(Interruption::Drain) => (
            "running",
            "the worker is stopping or reloading its configuration".to_owned(),
        ),
        RunOutcome::Interrupted(Interruption::NotStarted) => (
            "waiting for earlier jobs of the batch",
            "the job was not started, because the earlier jobs of the batch took too long"
                .to_owned(),
        ),
        RunOutcome::Interrupted(Interruption::LeaseExpired) => (
            "renewing the lease",
            "the lease could not be renewed in time".to_owned(),
        ),
        RunOutcome::Interrupted(Interruption::NotRecorded) => (
            "recording the run",
            "the attempt could not be recorded in the message, so the job was not started"
                .to_owned(),
        ),
        RunOutcome::Interrupted(Interruption::QueueFull) => (
            "waiting for other jobs",
            "too many jobs already wait for the same key".to_owned(),
        ),
        RunOutcome::LeaseLost => (
            "renewing the lease",
            "the lease was lost; another worker may have the message".to_owned(),
        ),
    };
    (step.to_owned(), error)
}

fn whole(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        max_dequeue_count: 5,
        retry_delay: Backoff {
            min: Duration::from_secs(2),
            base: Duration::from_secs(2),
            max: Duration::from_mins(10),
        },
        give_up_after: Duration::from_hours(6),
    };
    const ONCE: TransientFailures = TransientFailures {
        since: jiff::Timestamp::UNIX_EPOCH,
        runs: 1,
    };
    const OFTEN: TransientFailures = TransientFailures {
        since: jiff::Timestamp::UNIX_EPOCH,
        runs: 5,
    };
    const FIRST: DecisionInput = DecisionInput {
        deliveries: 1,
        attempts: 1,
        failing: ONCE,
        failing_for: Duration::ZERO,
        ttl: None,
        stores: Health::Available,
        unit: 0.5,
    };
    const OLD: DecisionInput = DecisionInput {
        failing: OFTEN,
        failing_for: Duration::from_hours(7),
        ..FIRST
    };

    fn failed(class: FailureClass) -> RunOutcome {
        let failure = Failure::new(class, "reading the primary", std::io::Error::other("no"));
        RunOutcome::Returned(Arc::new(RunResult::Failed(
            Arc::new(failure),
            Summary::default(),
        )))
    }

    fn throttled(retry_after: Option<Duration>) -> RunOutcome {
        failed(FailureClass::Transient { retry_after })
    }

    fn off(seconds: u64) -> Settlement {
        Settlement::Release {
            delay: Duration::from_secs(seconds),
            attempt: Attempt::WrittenOff,
        }
    }

    fn tried_again(seconds: u64, failing: TransientFailures) -> Settlement {
        Settlement::Release {
            delay: Duration::from_secs(seconds),
            attempt: Attempt::Failed(failing),
        }
    }

    fn counts(seconds: u64) -> Settlement {
        Settlement::Release {
            delay: Duration::from_secs(seconds),
            attempt: Attempt::Counts,
        }
    }

    fn reason(settlement: &Settlement) -> Option<Reason> {
        match settlement {
            Settlement::Poison(verdict) => Some(verdict.reason),
            Settlement::Delete
            | Settlement::Release { .. }
            | Settlement::Advance(_)
            | Settlement::Abandon => None,
        }
    }

    #[test]
    fn every_end_has_its_settlement() {
        let done = RunOutcome::Returned(Arc::new(RunResult::Finished(Outcome::Done(
            Summary::default(),
        ))));
        let skipped = RunOutcome::Returned(Arc::new(RunResult::Finished(Outcome::Skipped {
            reason: "late".to_owned(),
            summary: Summary::default(),
        })));
        let cursor = Map::from_iter([("cursor".to_owned(), Value::from(7))]);
        let advanced = RunOutcome::Returned(Arc::new(RunResult::Finished(Outcome::Advanced {
            fields: cursor.clone(),
            summary: Summary::default(),
        })));
        let minute = Duration::from_mins(1);
        let last = DecisionInput {
            deliveries: 9,
            attempts: 5,
            ..FIRST
        };
        let outage = DecisionInput {
            stores: Health::Refusing,
            ..last
        };
        for (end, input, expected) in [
            (&done, FIRST, Settlement::Delete),
            (&skipped, OLD, Settlement::Delete),
            (&advanced, last, Settlement::Advance(cursor.clone().into())),
            (&throttled(None), FIRST, tried_again(4, ONCE)),
            (
                &throttled(None),
                DecisionInput {
                    failing: ONCE,
                    ..OLD
                },
                tried_again(4, ONCE),
            ),
            (
                &throttled(None),
                DecisionInput {
                    failing_for: Duration::from_hours(5),
                    ..OLD
                },
                tried_again(64, OFTEN),
            ),
            // The job is a table walk that has saved its progress 39 times.
            (
                &throttled(None),
                DecisionInput {
                    deliveries: 40,
                    ..FIRST
                },
                tried_again(4, ONCE),
            ),
            (
                &throttled(None),
                DecisionInput {
                    failing: TransientFailures { runs: 3, ..ONCE },
                    ..FIRST
                },
                tried_again(16, TransientFailures { runs: 3, ..ONCE }),
            ),
            (&throttled(Some(minute)), FIRST, tried_again(60, ONCE)),
            (
                &throttled(None),
                DecisionInput {
                    failing: TransientFailures { runs: 400, ..ONCE },
                    ..FIRST
                },
                tried_again(600, TransientFailures { runs: 400, ..ONCE }),
            ),
            (
                &failed(FailureClass::Withheld {
                    retry_after: Some(minute),
                }),
                OLD,
                off(60),
            ),
            (&failed(FailureClass::OutdatedCatalog), OLD, off(4)),
            (&RunOutcome::Panicked("oh".to_owned()), FIRST, counts(4)),
            (&RunOutcome::TimedOut(minute), FIRST, counts(4)),
            (&RunOutcome::TimedOut(minute), outage, off(600)),
            (&RunOutcome::Interrupted(Interruption::Drain), last, off(0)),
            (
                &RunOutcome::Interrupted(Interruption::LeaseExpired),
                FIRST,
                off(4),
            ),
            (
                &RunOutcome::Interrupted(Interruption::LeaseExpired),
                last,
                off(600),
            ),
            (
                &RunOutcome::Interrupted(Interruption::NotRecorded),
                last,
                off(600),
            ),
            (
                &RunOutcome::Interrupted(Interruption::QueueFull),
                last,
                off(4),
            ),
            (&RunOutcome::LeaseLost, last, Settlement::Abandon),
        ] {
            assert_eq!(decide(end, &input, &LIMITS), expected, "{end:?}");
        }
        for (end, input, expected) in [
            (&failed(FailureClass::Permanent), FIRST, Reason::Permanent),
            (&throttled(None), OLD, Reason::Exhausted),
            (
                &RunOutcome::Panicked("oh".to_owned()),
                last,
                Reason::Exhausted,
            ),
            (&RunOutcome::TimedOut(minute), last, Reason::Exhausted),
            (&RunOutcome::Exhausted(5), last, Reason::Exhausted),
            (
                &throttled(None),
                DecisionInput {
                    ttl: Some(Duration::from_secs(4)),
                    ..FIRST
                },
                Reason::Expired,
            ),
            (
                &RunOutcome::Interrupted(Interruption::LeaseExpired),
                DecisionInput {
                    ttl: Some(Duration::ZERO),
                    ..FIRST
                },
                Reason::Expired,
            ),
            (
                &advanced,
                DecisionInput {
                    ttl: Some(Duration::from_secs(9)),
                    ..FIRST
                },
                Reason::Expired,
            ),
        ] {
            assert_eq!(
                reason(&decide(end, &input, &LIMITS)),
                Some(expected),
                "{end:?}"
            );
        }
    }

    #[test]
    fn a_message_is_given_up_with_its_last_error() {
        let Settlement::Poison(verdict) = decide(&throttled(None), &OLD, &LIMITS) else {
            panic!("not poisoned")
        };
        assert_eq!(verdict.step, "reading the primary");
        assert_eq!(
            verdict.error,
            "gave up after 5 failures in 25200 s: reading the primary: no"
        );
        let panicked = DecisionInput {
            attempts: 5,
            ..FIRST
        };
        let Settlement::Poison(verdict) = decide(
            &RunOutcome::Panicked("index 7".to_owned()),
            &panicked,
            &LIMITS,
        ) else {
            panic!("not poisoned")
        };
        assert_eq!(
            verdict.error,
            "gave up after 5 attempts: the run panicked: index 7"
        );
    }
}
