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
use evenkeel_model::job::TransientFailures;
use evenkeel_model::settings::Backoff;

/// How a delivery ended.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// The run gave an answer, its own or that of the run it was folded into.
    Ran(Arc<Ran>),
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

impl End {
    /// The run's answer, where it gave one.
    pub(crate) fn ran(&self) -> Option<&Ran> {
        if let Self::Ran(ran) = self {
            Some(ran.as_ref())
        } else {
            None
        }
    }

    /// How the run ended, where it ended well.
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        match self.ran()? {
            Ran::Finished(outcome) => Some(outcome),
            Ran::Failed(..) => None,
        }
    }

    /// The views with items out of step because the run failed.
    pub(crate) fn views(&self) -> &[ViewName] {
        match self.ran() {
            Some(Ran::Failed(failure, _)) => &failure.views,
            Some(Ran::Finished(_)) | None => &[],
        }
    }
}

/// A run's answer.
#[derive(Debug, Clone)]
pub(crate) enum Ran {
    /// It ended well.
    Finished(Outcome),
    /// It failed, after these changes to items.
    Failed(Arc<Failure>, Summary),
}

impl Ran {
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
    LeaseOver,
    /// An earlier run may not have come to its end, and this one could not be noted before it began.
    Untraced,
    /// Too many jobs wait for the same turn.
    Crowded,
}

/// The other inputs of the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs {
    /// How often the message was got, this time included.
    pub(crate) deliveries: u32,
    /// Of these, how many count, this time included.
    pub(crate) attempts: u32,
    /// Transient failures without progress in between, this delivery's included if it is one.
    pub(crate) failing: TransientFailures,
    /// How long it has been failing so, by the queue's clock.
    pub(crate) failing_for: Duration,
    /// Until it expires, by the queue's clock; `None` for never.
    pub(crate) ttl: Option<Duration>,
    /// Whether a store refuses as a whole. Only looked at after a timeout.
    pub(crate) stores: Health,
    /// A random number from 0 up to 1.
    pub(crate) unit: f64,
}

impl Inputs {
    /// Whether the message is gone by then.
    pub(crate) const fn expires_within(&self, time: Duration) -> bool {
        matches!(self.ttl, Some(ttl) if ttl.as_nanos() <= time.as_nanos())
    }
}

/// Whether the stores answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// They do.
    Answer,
    /// At least one refuses as a whole.
    Refuse,
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
    pub(crate) failing: Option<TransientFailures>,
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
    Failed(TransientFailures),
}

impl Attempt {
    /// The failures that are noted.
    pub(crate) const fn failing(self) -> Option<TransientFailures> {
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

pub(crate) fn decide(end: &End, situation: &Inputs, limits: &Limits) -> Settlement {
    let growing = limits
        .retry_delay
        .wait(situation.deliveries, situation.unit);
    let written_off = |delay| Settlement::Release {
        delay,
        attempt: Attempt::WrittenOff,
    };
    let settlement = match end {
        End::Ran(ran) => match ran.as_ref() {
            Ran::Finished(Outcome::Done(_) | Outcome::Skipped { .. }) => return Settlement::Delete,
            Ran::Finished(Outcome::Advanced { fields, .. }) => {
                Settlement::Advance(fields.clone().into())
            }
            Ran::Failed(failure, _) => match failure.class {
                FailureClass::Permanent => return poison(Reason::Permanent, end, ""),
                FailureClass::Transient { .. } if gives_up(situation, limits) => {
                    let Inputs {
                        failing,
                        failing_for,
                        ..
                    } = situation;
                    let before = format!(
                        "given up after {} failed tries in {}: ",
                        failing.runs,
                        whole(*failing_for)
                    );
                    return poison(Reason::Exhausted, end, &before);
                }
                FailureClass::Transient { retry_after } => {
                    // Since its last progress: a walk of many parts is not punished for its length.
                    let growing = limits
                        .retry_delay
                        .wait(situation.failing.runs, situation.unit);
                    let delay = growing.max(retry_after.unwrap_or_default());
                    Settlement::Release {
                        delay,
                        attempt: Attempt::Failed(situation.failing),
                    }
                }
                FailureClass::Withheld { retry_after } => {
                    written_off(growing.max(retry_after.unwrap_or_default()))
                }
                FailureClass::OutdatedCatalog => written_off(growing),
            },
        },
        End::Rejected(rejection) => return poison(rejection.reason, end, ""),
        End::Exhausted(_) => return poison(Reason::Exhausted, end, ""),
        End::TimedOut(_) if situation.stores == Health::Refuse => written_off(growing),
        End::Panicked(_) | End::TimedOut(_) if situation.attempts >= limits.max_dequeue_count => {
            return poison(
                Reason::Exhausted,
                end,
                &format!("given up after {} attempts: ", situation.attempts),
            );
        }
        End::Panicked(_) | End::TimedOut(_) => Settlement::Release {
            delay: growing,
            attempt: Attempt::Counts,
        },
        End::Interrupted(Interruption::Drain) => written_off(Duration::ZERO),
        End::Interrupted(Interruption::LeaseOver | Interruption::Untraced) => written_off(growing),
        // It waits for others, which may be many: its own deliveries say nothing about how long.
        End::Interrupted(Interruption::Crowded) => {
            written_off(limits.retry_delay.wait(1, situation.unit))
        }
        End::LeaseLost => return Settlement::Abandon,
    };
    unless_it_expires(settlement, end, situation)
}

/// A settlement of a message that no worker may see again by then: it goes to the poison queue in place of coming again.
fn unless_it_expires(settlement: Settlement, end: &End, situation: &Inputs) -> Settlement {
    match settlement {
        Settlement::Release { delay, .. } | Settlement::Advance(JobProgress { delay, .. })
            if situation.expires_within(delay.saturating_add(UNSEEN)) =>
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
const fn gives_up(situation: &Inputs, limits: &Limits) -> bool {
    situation.failing_for.as_nanos() >= limits.give_up_after.as_nanos()
        && situation.failing.runs >= limits.max_dequeue_count
}

fn poison(reason: Reason, end: &End, before: &str) -> Settlement {
    let (step, error) = describe(end);
    let attempt = match end {
        // Such a run is not begun again: its trace stays.
        End::Panicked(_) | End::TimedOut(_) => Attempt::Counts,
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
pub(crate) fn describe(end: &End) -> (String, String) {
    let (step, error) = match end {
        End::Ran(ran) => match ran.as_ref() {
            Ran::Finished(Outcome::Done(_)) => ("running", "done".to_owned()),
            Ran::Finished(Outcome::Advanced { .. }) => ("running", "a part is done".to_owned()),
            Ran::Finished(Outcome::Skipped { reason, .. }) => ("running", reason.clone()),
            Ran::Failed(failure, _) => return (failure.step.clone(), failure.chain()),
        },
        End::Rejected(rejection) => (rejection.step, rejection.error.clone()),
        End::Exhausted(1) => (
            "counting attempts",
            "a run came to no end: a crash of the worker, a panic, or a run that was cut off"
                .to_owned(),
        ),
        End::Exhausted(runs) => (
            "counting attempts",
            format!(
                "{runs} runs came to no end: crashes of the worker, panics, or runs that were cut off"
            ),
        ),
        End::Panicked(message) => ("running", format!("the run panicked: {message}")),
        End::TimedOut(limit) => (
            "running",
            format!(
                "the run was cancelled after job_timeout ({})",
                whole(*limit)
            ),
        ),
        End::Interrupted(Interruption::Drain) => ("running", "the worker was shut down".to_owned()),
        End::Interrupted(Interruption::LeaseOver) => (
            "renewing the lease",
            "the lease could not be renewed in time".to_owned(),
        ),
        End::Interrupted(Interruption::Untraced) => (
            "noting the run",
            "the message could not be updated before the run".to_owned(),
        ),
        End::Interrupted(Interruption::Crowded) => (
            "waiting for its turn",
            "too many jobs wait before it".to_owned(),
        ),
        End::LeaseLost => (
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
    const ONCE: TransientFailures = TransientFailures {
        since: jiff::Timestamp::UNIX_EPOCH,
        runs: 1,
    };
    const OFTEN: TransientFailures = TransientFailures {
        since: jiff::Timestamp::UNIX_EPOCH,
        runs: 5,
    };
    const FIRST: Inputs = Inputs {
        deliveries: 1,
        attempts: 1,
        failing: ONCE,
        failing_for: Duration::ZERO,
        ttl: None,
        stores: Health::Answer,
        unit: 0.5,
    };
    const OLD: Inputs = Inputs {
        failing: OFTEN,
        failing_for: Duration::from_hours(7),
        ..FIRST
    };

    fn failed(class: FailureClass) -> End {
        let failure = Failure::new(class, "reading the primary", std::io::Error::other("no"));
        End::Ran(Arc::new(Ran::Failed(Arc::new(failure), Summary::default())))
    }

    fn throttled(retry_after: Option<Duration>) -> End {
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
        let done = End::Ran(Arc::new(Ran::Finished(Outcome::Done(Summary::default()))));
        let skipped = End::Ran(Arc::new(Ran::Finished(Outcome::Skipped {
            reason: "late".to_owned(),
            summary: Summary::default(),
        })));
        let cursor = Map::from_iter([("cursor".to_owned(), Value::from(7))]);
        let advanced = End::Ran(Arc::new(Ran::Finished(Outcome::Advanced {
            fields: cursor.clone(),
            summary: Summary::default(),
        })));
        let minute = Duration::from_mins(1);
        let last = Inputs {
            deliveries: 9,
            attempts: 5,
            ..FIRST
        };
        let outage = Inputs {
            stores: Health::Refuse,
            ..last
        };
        for (end, situation, expected) in [
            (&done, FIRST, Settlement::Delete),
            (&skipped, OLD, Settlement::Delete),
            (&advanced, last, Settlement::Advance(cursor.clone().into())),
            (&throttled(None), FIRST, tried_again(4, ONCE)),
            (
                &throttled(None),
                Inputs {
                    failing: ONCE,
                    ..OLD
                },
                tried_again(4, ONCE),
            ),
            (
                &throttled(None),
                Inputs {
                    failing_for: Duration::from_hours(5),
                    ..OLD
                },
                tried_again(64, OFTEN),
            ),
            // A walk that has saved its progress 39 times.
            (
                &throttled(None),
                Inputs {
                    deliveries: 40,
                    ..FIRST
                },
                tried_again(4, ONCE),
            ),
            (
                &throttled(None),
                Inputs {
                    failing: TransientFailures { runs: 3, ..ONCE },
                    ..FIRST
                },
                tried_again(16, TransientFailures { runs: 3, ..ONCE }),
            ),
            (&throttled(Some(minute)), FIRST, tried_again(60, ONCE)),
            (
                &throttled(None),
                Inputs {
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
            (&End::Panicked("oh".to_owned()), FIRST, counts(4)),
            (&End::TimedOut(minute), FIRST, counts(4)),
            (&End::TimedOut(minute), outage, off(600)),
            (&End::Interrupted(Interruption::Drain), last, off(0)),
            (&End::Interrupted(Interruption::LeaseOver), FIRST, off(4)),
            (&End::Interrupted(Interruption::LeaseOver), last, off(600)),
            (&End::Interrupted(Interruption::Untraced), last, off(600)),
            (&End::Interrupted(Interruption::Crowded), last, off(4)),
            (&End::LeaseLost, last, Settlement::Abandon),
        ] {
            assert_eq!(decide(end, &situation, &LIMITS), expected, "{end:?}");
        }
        for (end, situation, expected) in [
            (&failed(FailureClass::Permanent), FIRST, Reason::Permanent),
            (&throttled(None), OLD, Reason::Exhausted),
            (&End::Panicked("oh".to_owned()), last, Reason::Exhausted),
            (&End::TimedOut(minute), last, Reason::Exhausted),
            (&End::Exhausted(5), last, Reason::Exhausted),
            (
                &throttled(None),
                Inputs {
                    ttl: Some(Duration::from_secs(4)),
                    ..FIRST
                },
                Reason::Expired,
            ),
            (
                &End::Interrupted(Interruption::LeaseOver),
                Inputs {
                    ttl: Some(Duration::ZERO),
                    ..FIRST
                },
                Reason::Expired,
            ),
            (
                &advanced,
                Inputs {
                    ttl: Some(Duration::from_secs(9)),
                    ..FIRST
                },
                Reason::Expired,
            ),
        ] {
            assert_eq!(
                reason(&decide(end, &situation, &LIMITS)),
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
        let panicked = Inputs {
            attempts: 5,
            ..FIRST
        };
        let Settlement::Poison(verdict) =
            decide(&End::Panicked("index 7".to_owned()), &panicked, &LIMITS)
        else {
            panic!("not poisoned")
        };
        assert_eq!(
            verdict.error,
            "given up after 5 attempts: the run panicked: index 7"
        );
    }
}
