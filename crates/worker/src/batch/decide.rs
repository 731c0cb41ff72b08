//! The settlement of a batch: a plain function of the ends of its jobs. Pure.
//!
//! | of its jobs | the message |
//! |---|---|
//! | all ended for good | deleted, once those that come to nothing are on the poison queue |
//! | some ended for good | comes again with the others alone; no attempt is charged |
//! | some were not begun | the same, at once, those first that have waited longest |
//! | none ended for good | as of a single job: the one that counts most decides |

use std::time::Duration;

use serde_json::Map;
use tracing::field::{DisplayValue, display};

use crate::attempts::Deliveries;
use crate::decide::{
    Attempt, End, Inputs, JobProgress, Limits, PoisonVerdict, Ran, Settlement, decide, describe,
};
use crate::deliver::JobsEnded;
use evenkeel_engine::{Outcome, Summary};
use evenkeel_model::job::Batch;
use evenkeel_model::quoted::Quoted;

/// The end of one job of a message.
#[derive(Debug, Clone)]
pub(crate) struct JobEnd {
    /// Its place in the message.
    pub(crate) at: usize,
    pub(crate) end: End,
}

/// How many jobs of a message a delivery may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tries {
    /// All of them.
    All,
    /// The first ones: an earlier run of more came to no end.
    First(usize),
    /// The first one has taken the process down too often, in so many runs.
    UsedUp(u32),
}

impl Tries {
    /// Of a message of so many jobs.
    pub(crate) fn of(jobs: usize, deliveries: &Deliveries, most: u32) -> Self {
        let base = deliveries
            .at_once()
            .map_or(jobs, |noted| jobs.min(noted as usize))
            .max(1);
        let halvings = usize::BITS - (base - 1).leading_zeros();
        let attempts = deliveries.attempts();
        if deliveries.are_exhausted(most + halvings) {
            return Self::UsedUp(attempts.saturating_sub(1));
        }
        let width = base
            .checked_shr(attempts.saturating_sub(1))
            .unwrap_or(0)
            .max(1);
        if width >= jobs {
            Self::All
        } else {
            Self::First(width)
        }
    }

    /// The number of jobs, of so many.
    pub(crate) fn jobs(self, all: usize) -> usize {
        match self {
            Self::All => all,
            Self::First(jobs) => jobs.min(all),
            Self::UsedUp(_) => all.min(1),
        }
    }

    /// How many are run at once the next time: no more than came to an end, so that a message that is too much as a whole does not take
    /// the process down again and again. Or all, once the one is found that does so alone.
    fn next(self) -> Option<u32> {
        match self {
            Self::First(jobs) => u32::try_from(jobs).ok(),
            Self::All | Self::UsedUp(_) => None,
        }
    }
}

/// A job that goes to the poison queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoisonedJob {
    /// Its place in the batch.
    pub(crate) at: usize,
    pub(crate) verdict: PoisonVerdict,
}

/// A job that comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    at: usize,
    delay: Duration,
    attempt: Attempt,
}

/// The ends of the jobs of a batch.
#[derive(Debug)]
pub(crate) struct BatchDecision {
    /// Jobs that are done.
    pub(crate) done: usize,
    /// Jobs that had nothing to do.
    pub(crate) skipped: usize,
    /// Those that go to the poison queue.
    pub(crate) poisoned: Vec<PoisonedJob>,
    left: Vec<Left>,
    /// Those that were not begun: from this place on.
    unbegun: usize,
    tries: Tries,
    /// The longest wait after a delivery in which a job ended: waits grow with deliveries that bring nothing.
    first_wait: Duration,
    /// Whether another receiver has the message.
    lost: bool,
}

impl BatchDecision {
    /// By the ends of the jobs that were begun: the first ones of the batch.
    pub(crate) fn of(ends: &[JobEnd], tries: Tries, situation: &Inputs, limits: &Limits) -> Self {
        let (mut done, mut skipped, mut lost) = (0, 0, false);
        let first_wait = limits.retry_delay.wait(1, situation.unit);
        let (mut poisoned, mut left) = (Vec::new(), Vec::new());
        for JobEnd { at, end } in ends {
            match decide(end, situation, limits) {
                Settlement::Delete if matches!(end.outcome(), Some(Outcome::Skipped { .. })) => {
                    skipped += 1;
                }
                Settlement::Delete => done += 1,
                Settlement::Release { delay, attempt } => left.push(Left {
                    at: *at,
                    delay,
                    attempt,
                }),
                Settlement::Advance(_) => left.push(Left {
                    at: *at,
                    delay: Duration::ZERO,
                    attempt: Attempt::WrittenOff,
                }),
                Settlement::Poison(verdict) => poisoned.push(PoisonedJob { at: *at, verdict }),
                Settlement::Abandon => lost = true,
            }
        }
        Self {
            done,
            skipped,
            poisoned,
            left,
            unbegun: ends.len(),
            tries,
            first_wait,
            lost,
        }
    }

    /// Jobs with a poison message that could not be put: they come again after this.
    pub(crate) fn come_again(&mut self, not_put: &[usize], delay: Duration) {
        let (kept, again): (Vec<_>, Vec<_>) = std::mem::take(&mut self.poisoned)
            .into_iter()
            .partition(|job| !not_put.contains(&job.at));
        self.left.extend(again.into_iter().map(|job| Left {
            at: job.at,
            delay,
            attempt: job.verdict.attempt,
        }));
        self.poisoned = kept;
    }

    /// How many jobs ended, by their ends.
    pub(crate) fn jobs(&self, batch: &Batch) -> JobsEnded {
        let (poisoned, left) = (
            self.poisoned.len(),
            self.left.len() + batch.len() - self.unbegun,
        );
        JobsEnded {
            done: self.done,
            skipped: self.skipped,
            poisoned,
            left,
        }
    }

    /// The settlement of the message, its poison messages put.
    pub(crate) fn settlement(&self, batch: &Batch) -> Settlement {
        if self.lost {
            return Settlement::Abandon;
        }
        let again: Vec<usize> = self.left.iter().map(|left| left.at).collect();
        let come_again = again.len() + batch.len() - self.unbegun;
        let Some(rest) = batch.rest(self.unbegun, &again) else {
            return Settlement::Delete;
        };
        let unbegun = self.unbegun < batch.len();
        let delay = self
            .left
            .iter()
            .map(|left| left.delay)
            .min()
            .unwrap_or_default();
        let ended = self.done + self.skipped + self.poisoned.len();
        let worst = self
            .left
            .iter()
            .map(|left| left.attempt)
            .max_by_key(|attempt| weight(*attempt));
        // A run that panicked or hung counts, or it would come back for ever; and one that is given up stays so until its poison message is put.
        let may_turn = worst != Some(Attempt::Counts) && !matches!(self.tries, Tries::UsedUp(_));
        if ended > 0 || (unbegun && self.unbegun > 0 && may_turn) {
            let delay = match ended {
                _ if unbegun => Duration::ZERO,
                0 => delay,
                _ => delay.min(self.first_wait),
            };
            let at_once = self
                .tries
                .next()
                .filter(|next| (*next as usize) < come_again);
            let failing = self
                .left
                .iter()
                .filter(|_| ended == 0)
                .find_map(|left| left.attempt.failing());
            return Settlement::Advance(JobProgress {
                fields: rest,
                delay,
                at_once,
                failing,
            });
        }
        // One that was interrupted before any job of it was begun is no job's fault.
        let attempt = worst.unwrap_or(Attempt::WrittenOff);
        Settlement::Release { delay, attempt }
    }

    /// A line for each job that is poisoned, and one for those that failed and come again. Where all of them do, the delivery has a line
    /// of its own.
    pub(crate) fn report(&self, batch: &Batch, ends: &[JobEnd], settlement: &Settlement) {
        for PoisonedJob { at, verdict } in &self.poisoned {
            let PoisonVerdict {
                reason,
                step,
                error,
                ..
            } = verdict;
            tracing::warn!(
                key = key(batch, *at),
                reason = reason.name(),
                step,
                error,
                "job of a batch poisoned"
            );
        }
        let failed: Vec<_> = ends
            .iter()
            .filter(|end| end.end.outcome().is_none() && !matches!(end.end, End::Interrupted(_)))
            .collect();
        let again = failed.len().saturating_sub(self.poisoned.len());
        let first = failed
            .into_iter()
            .find(|failed| self.left.iter().any(|left| left.at == failed.at));
        if let (Some(first), Settlement::Advance(_)) = (first, settlement) {
            let (step, error) = describe(&first.end);
            tracing::warn!(
                jobs = again,
                key = key(batch, first.at),
                step,
                error,
                "jobs of a batch failed, tried again later"
            );
        }
    }

    /// The end that says most about the delivery: a failure where there is one, with the changes of all jobs.
    pub(crate) fn telling(&self, ends: &[JobEnd]) -> End {
        let mut summary = Summary::default();
        ends.iter()
            .filter_map(|end| end.end.ran())
            .for_each(|ran| summary.add(ran.summary().clone()));
        let of = |at: usize| ends.iter().find(|end| end.at == at).map(|end| &end.end);
        let failed = self
            .poisoned
            .first()
            .map(|job| job.at)
            .or_else(|| self.left.first().map(|left| left.at));
        let ran = match failed.and_then(of) {
            Some(End::Ran(ran)) => {
                let mut ran = Ran::clone(ran);
                *ran.summary_mut() = summary;
                ran
            }
            Some(end) => return end.clone(),
            None if self.unbegun == 0 => Ran::Finished(Outcome::Advanced {
                fields: Map::new(),
                summary,
            }),
            None => Ran::Finished(Outcome::Done(summary)),
        };
        End::Ran(std::sync::Arc::new(ran))
    }
}

/// The key of a job, for the log.
fn key(batch: &Batch, at: usize) -> Option<DisplayValue<String>> {
    batch
        .key(at)
        .map(|[pk, rk]| display(format!("({}, {})", Quoted(pk), Quoted(rk))))
}

const fn weight(attempt: Attempt) -> u8 {
    match attempt {
        Attempt::WrittenOff => 0,
        Attempt::Failed(_) => 1,
        Attempt::Counts => 2,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::decide::Health;
    use evenkeel_engine::{Failure, FailureClass};
    use evenkeel_model::job::{Note, TransientFailures};
    use evenkeel_model::settings::Backoff;

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
    const FIRST: Inputs = Inputs {
        deliveries: 1,
        attempts: 1,
        failing: ONCE,
        failing_for: Duration::ZERO,
        ttl: None,
        stores: Health::Answer,
        unit: 0.5,
    };

    fn deliveries(count: u32, begun: u32, at_once: Option<u32>) -> Deliveries {
        Deliveries::new(
            "m1",
            count,
            Some(Note {
                id: "m1".to_owned(),
                begun,
                at_once,
                ..Note::default()
            }),
        )
    }

    fn batch(jobs: usize) -> Batch {
        let rks: Vec<String> = (0..jobs).map(|at| at.to_string()).collect();
        let mut message = json!({"op": "sync", "table": "Employees", "pk": "p", "rks": rks});
        Batch::of(message.as_object_mut().unwrap())
            .unwrap()
            .unwrap()
    }

    fn done() -> End {
        End::Ran(Arc::new(Ran::Finished(Outcome::Done(Summary::default()))))
    }

    fn failed(class: FailureClass) -> End {
        let failure = Failure::new(class, "reading the primary", std::io::Error::other("no"));
        End::Ran(Arc::new(Ran::Failed(Arc::new(failure), Summary::default())))
    }

    fn settled(jobs: usize, ends: impl IntoIterator<Item = End>, tries: Tries) -> Settlement {
        let ends: Vec<JobEnd> = ends
            .into_iter()
            .enumerate()
            .map(|(at, end)| JobEnd { at, end })
            .collect();
        BatchDecision::of(&ends, tries, &FIRST, &LIMITS).settlement(&batch(jobs))
    }

    #[test]
    fn after_runs_that_never_ended_half_of_the_jobs_are_run_and_half_of_those() {
        for (jobs, count, expected) in [
            (100, 1, Tries::All),
            (100, 2, Tries::First(50)),
            (100, 4, Tries::First(12)),
            (100, 8, Tries::First(1)),
            (100, 12, Tries::First(1)),
            (100, 13, Tries::UsedUp(12)),
            (1, 5, Tries::All),
            (1, 6, Tries::UsedUp(5)),
        ] {
            assert_eq!(
                Tries::of(jobs, &deliveries(count, count, None), 5),
                expected,
                "{jobs} jobs, delivery {count}"
            );
        }
        assert_eq!(
            Tries::of(100, &deliveries(1, 0, Some(25)), 5),
            Tries::First(25)
        );
        assert_eq!(Tries::of(10, &deliveries(1, 0, Some(25)), 5), Tries::All);
    }

    #[test]
    fn after_a_run_that_ends_no_more_are_run_than_in_it() {
        let Settlement::Advance(progress) = settled(100, vec![done(); 12], Tries::First(12)) else {
            panic!("no progress")
        };
        assert_eq!(
            (
                progress.at_once,
                progress.fields["rks"].as_array().unwrap().len()
            ),
            (Some(12), 88)
        );
        let Settlement::Advance(progress) = settled(30, vec![done(); 16], Tries::First(16)) else {
            panic!("no progress")
        };
        assert_eq!(progress.at_once, None, "the rest is less than that");
        // A message that is too much for the process takes it down as often as it takes to find that out, and no more.
        let (mut left, mut note, mut crashes) = (1_000, deliveries(1, 0, None), 0);
        while left > 0 {
            let tries = Tries::of(left, &note, 5);
            let run = tries.jobs(left);
            if run > 130 {
                crashes += 1;
                note = deliveries(crashes + 1, crashes, note.at_once());
                continue;
            }
            let Settlement::Advance(JobProgress { at_once, .. }) =
                settled(left, vec![done(); run], tries)
            else {
                break;
            };
            (left, note) = (left - run, deliveries(1, 0, at_once));
        }
        assert_eq!(crashes, 3, "1,000, 500, 250");
    }

    #[test]
    fn a_delivery_that_brought_something_is_followed_by_a_short_wait_however_many_there_were() {
        let withheld = || failed(FailureClass::Withheld { retry_after: None });
        let ends = [done(), withheld()]
            .into_iter()
            .enumerate()
            .map(|(at, end)| JobEnd { at, end })
            .collect::<Vec<_>>();
        let nothing = [JobEnd {
            at: 0,
            end: withheld(),
        }];
        let situation = Inputs {
            deliveries: 9,
            ..FIRST
        };
        let Settlement::Advance(progress) =
            BatchDecision::of(&ends, Tries::All, &situation, &LIMITS).settlement(&batch(2))
        else {
            panic!("no progress")
        };
        assert_eq!(progress.delay, Duration::from_secs(4));
        let Settlement::Release { delay, .. } =
            BatchDecision::of(&nothing, Tries::All, &situation, &LIMITS).settlement(&batch(1))
        else {
            panic!("progress")
        };
        assert_eq!(delay, Duration::from_mins(10));
    }

    #[test]
    fn jobs_that_fail_do_not_keep_those_waiting_that_were_not_begun() {
        let transient = failed(FailureClass::Transient { retry_after: None });
        let Settlement::Advance(progress) = settled(4, vec![transient; 2], Tries::First(2)) else {
            panic!("no progress")
        };
        assert_eq!(
            (progress.fields["rks"].clone(), progress.delay),
            (json!(["2", "3", "0", "1"]), Duration::ZERO)
        );
        assert_eq!(
            progress.failing,
            Some(ONCE),
            "nothing has ended, so that the time to give up goes on"
        );
    }

    #[test]
    fn a_job_that_is_given_up_waits_for_the_poison_queue_and_is_not_run_meanwhile() {
        let ends = [JobEnd {
            at: 0,
            end: End::Exhausted(12),
        }];
        let mut decision = BatchDecision::of(&ends, Tries::UsedUp(12), &FIRST, &LIMITS);
        decision.come_again(&[0], Duration::from_secs(9));
        let released = Settlement::Release {
            delay: Duration::from_secs(9),
            attempt: Attempt::WrittenOff,
        };
        assert_eq!(decision.settlement(&batch(3)), released);
        let used_up = Deliveries::new("m1", 13, Some(deliveries(12, 12, None).written_off()));
        assert!(
            matches!(Tries::of(3, &used_up, 5), Tries::UsedUp(_)),
            "{used_up:?}"
        );
    }

    #[test]
    fn where_no_job_ended_the_one_that_counts_most_decides() {
        let transient = || failed(FailureClass::Transient { retry_after: None });
        let withheld = || failed(FailureClass::Withheld { retry_after: None });
        let panicked = || End::Panicked("oh".to_owned());
        let released = |attempt| Settlement::Release {
            delay: Duration::from_secs(4),
            attempt,
        };
        assert_eq!(
            settled(2, [withheld(), withheld()], Tries::All),
            released(Attempt::WrittenOff)
        );
        assert_eq!(
            settled(2, [withheld(), transient()], Tries::All),
            released(Attempt::Failed(ONCE))
        );
        assert_eq!(
            settled(3, [withheld(), panicked(), transient()], Tries::All),
            released(Attempt::Counts)
        );
        assert_eq!(
            settled(2, [], Tries::All),
            Settlement::Release {
                delay: Duration::ZERO,
                attempt: Attempt::WrittenOff
            }
        );
        assert_eq!(
            settled(2, [done(), End::LeaseLost], Tries::All),
            Settlement::Abandon
        );
        assert_eq!(
            settled(2, [done(), failed(FailureClass::Permanent)], Tries::All),
            Settlement::Delete,
            "once it is on the poison queue"
        );
    }
}
