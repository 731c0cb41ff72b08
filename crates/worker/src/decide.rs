//! The settlement of a message after a delivery: a plain function of the end of the run and the situation. Pure.
//!
//! | ended | settlement | counts as an attempt |
//! |---|---|---|
//! | done, skipped | delete | – |
//! | advanced | release with its progress in the message, visible at once | no |
//! | permanent, undecodable | poison | – |
//! | transient | release with a growing delay; after failing for long enough, often enough: poison (exhausted) | no |
//! | a request was withheld, outdated catalog | release with a growing delay | no |
//! | drain | release, visible at once | no |
//! | lease over | release with a growing delay | no |
//! | the run could not be noted | release with a growing delay | no |
//! | too many wait before it | release with the first delay | no |
//! | timeout | release with a growing delay; after the last attempt: poison (exhausted) | yes, unless a store refuses |
//! | panic | the same | yes |
//! | attempts used up before running (crashes) | poison (exhausted) | – |
//! | lease lost | nothing: another receiver has it | yes, the service counted it |
//!
//! A timeout counts because a run that hangs cannot be told from one that is slow, and each holds a slot for
//! its whole length: written off, a job that never ends would come back until its age gives it up. While a
//! store refuses as a whole, though, it is the store that was slow.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::poison::Reason;
use evenkeel_engine::{Failure, FailureClass, Outcome, Summary};
use evenkeel_model::ViewName;
use evenkeel_model::job::Failing;
use evenkeel_model::planted::{Bug, planted};
use evenkeel_model::settings::Backoff;

/// How a delivery ended.
#[derive(Debug, Clone)]
pub(crate) enum RunOutcome {
    /// The run gave an answer, its own or that of the run it was folded into.
    Returned(Arc<RunResult>),
    /// The message is no job that this queue may carry.
    Rejected(Rejection),
    /// So many attempts were used up before this delivery.
    Exhausted(u32),
    /// The run panicked, with this message.
    Panicked(String),
    /// The run took longer than this.
    TimedOut(Duration),
    /// The worker stopped working on it.
    Interrupted(Interruption),
    /// The receipt is void.
    LeaseLost,
}

impl RunOutcome {
    /// The run's answer, where it gave one.
    pub(crate) fn ran(&self) -> Option<&RunResult> {
        if let Self::Returned(ran) = self {
            Some(ran.as_ref())
        } else {
            None
        }
    }

    /// How the run ended, where it ended well.
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        match self.ran()? {
            RunResult::Finished(outcome) => Some(outcome),
            RunResult::Failed(..) => None,
        }
    }

    /// The views with items out of step because the run failed.
    pub(crate) fn views(&self) -> &[ViewName] {
        match self.ran() {
            Some(RunResult::Failed(failure, _)) => &failure.views,
            Some(RunResult::Finished(_)) | None => &[],
        }
    }
}

/// A run's answer.
#[derive(Debug, Clone)]
pub(crate) enum RunResult {
    /// It ended well.
    Finished(Outcome),
    /// It failed, after these changes to items.
    Failed(Arc<Failure>, Summary),
}

impl RunResult {
    /// Changes made by the run.
    pub(crate) const fn summary(&self) -> &Summary {
        match self {
            Self::Finished(outcome) => outcome.summary(),
            Self::Failed(_, summary) => summary,
        }
    }

    /// The same to write on.
    pub(crate) const fn summary_mut(&mut self) -> &mut Summary {
        match self {
            Self::Finished(outcome) => outcome.summary_mut(),
            Self::Failed(_, summary) => summary,
        }
    }
}

/// Why a message is not run at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: Reason,
    pub(crate) step: &'static str,
    pub(crate) error: String,
}

/// Why the worker stopped working on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The program is shutting down.
    Drain,
    /// The lease could not be renewed.
    LeaseExpired,
    /// An earlier run may not have come to its end, and this one could not be noted before it began.
    NotRecorded,
    /// Too many jobs wait for the same turn.
    QueueFull,
}

/// The other inputs of the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecisionInput {
    /// How often the message was got, this time included.
    pub(crate) deliveries: u32,
    /// Of these, how many count, this time included.
    pub(crate) attempts: u32,
    /// Transient failures without progress in between, this delivery's included if it is one.
    pub(crate) failing: Failing,
    /// How long it has been failing so, by the queue's clock.
    pub(crate) failing_for: Duration,
    /// Until it expires, by the queue's clock; `None` for never.
    pub(crate) ttl: Option<Duration>,
    /// Whether a store refuses as a whole. Only looked at after a timeout.
    pub(crate) stores: Health,
    /// A random number from 0 up to 1.
    pub(crate) unit: f64,
}

impl DecisionInput {
    /// Whether the message is gone by then.
    pub(crate) const fn expires_within(&self, time: Duration) -> bool {
        matches!(self.ttl, Some(ttl) if ttl.as_nanos() <= time.as_nanos())
    }
}

/// Whether the stores answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// They do.
    Available,
    /// At least one refuses as a whole.
    Refusing,
}

/// The settings that the decision hangs on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_dequeue_count: u32,
    pub(crate) retry_delay: Backoff,
    pub(crate) give_up_after: Duration,
}

/// Settlement of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// It is done.
    Delete,
    /// It is tried again after this.
    Release {
        /// How long it stays hidden.
        delay: Duration,
        /// Whether this delivery counts.
        attempt: Attempt,
    },
    /// It goes on from the progress that it has now.
    Advance(JobProgress),
    /// It goes to the poison queue.
    Poison(PoisonVerdict),
    /// Nothing may be done with it any more.
    Abandon,
}

/// The progress of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobProgress {
    /// Fields that the message is to carry from now on.
    pub(crate) fields: Map<String, Value>,
    /// How long it stays hidden.
    pub(crate) delay: Duration,
    /// Of a batch: how many of its jobs run at once from now on, where that is not all.
    pub(crate) at_once: Option<u32>,
    /// Of a batch: its transient failures, where no job of it ended.
    pub(crate) failing: Option<Failing>,
}

impl From<Map<String, Value>> for JobProgress {
    fn from(fields: Map<String, Value>) -> Self {
        Self {
            fields,
            delay: Duration::ZERO,
            at_once: None,
            failing: None,
        }
    }
}

/// Whether a delivery counts towards `max_dequeue_count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It does.
    Counts,
    /// It ended in order and without being the job's fault: it is written off.
    WrittenOff,
    /// The same, and its failure is noted.
    Failed(Failing),
}

impl Attempt {
    /// The failures that are noted.
    pub(crate) const fn failing(self) -> Option<Failing> {
        match self {
            Self::Failed(failing) => Some(failing),
            Self::Counts | Self::WrittenOff => None,
        }
    }
}

/// Why a message goes to the poison queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoisonVerdict {
    pub(crate) reason: Reason,
    pub(crate) step: String,
    pub(crate) error: String,
    /// How the delivery counts where the poison queue cannot be reached and the message comes again.
    pub(crate) attempt: Attempt,
}

/// So long a message may be visible before a worker asks for it: twice the default `poll.max`. One that expires meanwhile is lost.
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
                FailureClass::Transient { .. } if planted(Bug::TransientIsPoison) => {
                    return poison(Reason::Permanent, end, "");
                }
                FailureClass::Transient { .. }
                    if planted(Bug::GivenUpByCount)
                        && input.deliveries > limits.max_dequeue_count =>
                {
                    return poison(Reason::Exhausted, end, "");
                }
                FailureClass::Permanent => return poison(Reason::Permanent, end, ""),
                FailureClass::Transient { .. } if gives_up(input, limits) => {
                    let DecisionInput {
                        failing,
                        failing_for,
                        ..
                    } = input;
                    let before = format!(
                        "given up after {} failed tries in {}: ",
                        failing.runs,
                        whole(*failing_for)
                    );
                    return poison(Reason::Exhausted, end, &before);
                }
                FailureClass::Transient { retry_after } => {
                    // Since its last progress: a walk of many parts is not punished for its length.
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
        RunOutcome::Panicked(_) if planted(Bug::PanicsWrittenOff) => written_off(delay_growing),
        RunOutcome::Panicked(_) | RunOutcome::TimedOut(_)
            if input.attempts >= limits.max_dequeue_count =>
        {
            return poison(
                Reason::Exhausted,
                end,
                &format!("given up after {} attempts: ", input.attempts),
            );
        }
        RunOutcome::Panicked(_) | RunOutcome::TimedOut(_) => Settlement::Release {
            delay: delay_growing,
            attempt: Attempt::Counts,
        },
        RunOutcome::Interrupted(Interruption::Drain) => written_off(Duration::ZERO),
        RunOutcome::Interrupted(Interruption::LeaseExpired | Interruption::NotRecorded) => {
            written_off(delay_growing)
        }
        // It waits for others, which may be many: its own deliveries say nothing about how long.
        RunOutcome::Interrupted(Interruption::QueueFull) => {
            written_off(limits.retry_delay.wait(1, input.unit))
        }
        RunOutcome::LeaseLost => return Settlement::Abandon,
    };
    unless_it_expires(settlement, end, input)
}

/// A settlement of a message that no worker may see again by then: it goes to the poison queue in place of coming again.
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
                "the message expires before its next try: ",
            )
        }
        settlement => settlement,
    }
}

/// Whether a transient failure is the last one: its job has failed for long enough, and often enough. However long it waited
/// before is no sign of anything, and a request that was withheld never gets here.
const fn gives_up(input: &DecisionInput, limits: &Limits) -> bool {
    input.failing_for.as_nanos() >= limits.give_up_after.as_nanos()
        && input.failing.runs >= limits.max_dequeue_count
}

fn poison(reason: Reason, end: &RunOutcome, before: &str) -> Settlement {
    let (step, error) = describe(end);
    let attempt = match end {
        // Such a run is not begun again: its trace stays.
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

/// The step that failed, and the reason.
pub(crate) fn describe(end: &RunOutcome) -> (String, String) {
    let (step, error) = match end {
        RunOutcome::Returned(ran) => match ran.as_ref() {
            RunResult::Finished(Outcome::Done(_)) => ("running", "done".to_owned()),
            RunResult::Finished(Outcome::Advanced { .. }) => {
                ("running", "a part is done".to_owned())
            }
            RunResult::Finished(Outcome::Skipped { reason, .. }) => ("running", reason.clone()),
            RunResult::Failed(failure, _) => return (failure.step.clone(), failure.chain()),
        },
        RunOutcome::Rejected(rejection) => (rejection.step, rejection.error.clone()),
        RunOutcome::Exhausted(1) => (
            "counting attempts",
            "a run came to no end: a crash of the worker, a panic, or a run that was cut off"
                .to_owned(),
        ),
        RunOutcome::Exhausted(runs) => (
            "counting attempts",
            format!(
                "{runs} runs came to no end: crashes of the worker, panics, or runs that were cut off"
            ),
        ),
        RunOutcome::Panicked(message) => ("running", format!("the run panicked: {message}")),
        RunOutcome::TimedOut(limit) => (
            "running",
            format!(
                "the run was cancelled after job_timeout ({})",
                whole(*limit)
            ),
        ),
        RunOutcome::Interrupted(Interruption::Drain) => {
            ("running", "the worker was shut down".to_owned())
        }
        RunOutcome::Interrupted(Interruption::LeaseExpired) => (
            "renewing the lease",
            "the lease could not be renewed in time".to_owned(),
        ),
        RunOutcome::Interrupted(Interruption::NotRecorded) => (
            "noting the run",
            "the message could not be updated before the run".to_owned(),
        ),
        RunOutcome::Interrupted(Interruption::QueueFull) => (
            "waiting for its turn",
            "too many jobs wait before it".to_owned(),
        ),
        RunOutcome::LeaseLost => (
            "renewing the lease",
            "the lease is lost: somebody else may have the message".to_owned(),
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
    const ONCE: Failing = Failing {
        since: jiff::Timestamp::UNIX_EPOCH,
        runs: 1,
    };
    const OFTEN: Failing = Failing {
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

    fn tried_again(seconds: u64, failing: Failing) -> Settlement {
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
            // A walk that has saved its progress 39 times.
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
                    failing: Failing { runs: 3, ..ONCE },
                    ..FIRST
                },
                tried_again(16, Failing { runs: 3, ..ONCE }),
            ),
            (&throttled(Some(minute)), FIRST, tried_again(60, ONCE)),
            (
                &throttled(None),
                DecisionInput {
                    failing: Failing { runs: 400, ..ONCE },
                    ..FIRST
                },
                tried_again(600, Failing { runs: 400, ..ONCE }),
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
            "given up after 5 failed tries in 25200 s: reading the primary: no"
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
            "given up after 5 attempts: the run panicked: index 7"
        );
    }
}
