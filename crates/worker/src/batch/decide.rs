//! Decides how many jobs of a message a delivery may run, and how a batch is settled after the
//! outcomes of its jobs. Pure.
//!
//! A job is *final* if it is done or skipped, or if its poison message was put.
//!
//! | after the delivery | settlement of the message |
//! |---|---|
//! | the lease was lost | none, because another receiver has the message |
//! | all jobs are final | delete |
//! | some jobs are final | release the remaining jobs, those that were not started first; no attempt is charged |
//! | no job is final, and only some jobs were started | likewise, unless a started job counts as an attempt (panic, timeout) or is given up |
//! | any other case | release the message unchanged; an attempt is charged if a started job counts as one |
//!
//! The message is released with the shortest delay of the remaining jobs. The delay is zero if jobs
//! that were not started come first.

use std::time::Duration;

use serde_json::Map;
use tracing::field::{DisplayValue, display};

use crate::attempts::Deliveries;
use crate::decide::{
    Attempt, DecisionInput, JobProgress, Limits, PoisonVerdict, RunOutcome, RunResult, Settlement,
    decide, describe,
};
use crate::deliver::JobCounts;
use evenkeel_engine::{Outcome, Summary};
use evenkeel_model::job::Batch;
use evenkeel_model::quoted::Quoted;

#[derive(Debug, Clone)]
pub(crate) struct JobOutcome {
    pub(crate) at: usize,
    pub(crate) end: RunOutcome,
}

/// How many jobs of a message this delivery may run. A single job is a batch of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunLimit {
    All,
    /// Only the first jobs may run, because an earlier run of more jobs was cut off.
    First(usize),
    /// No job may run, because this many attempts of the first job crashed, panicked or timed out.
    Exhausted(u32),
}

impl RunLimit {
    pub(crate) fn of(jobs: usize, deliveries: &Deliveries, most: u32) -> Self {
        let base = deliveries
            .jobs_per_delivery()
            .map_or(jobs, |noted| jobs.min(noted as usize))
            .max(1);
        let halvings = usize::BITS - (base - 1).leading_zeros();
        let attempts = deliveries.attempts();
        if deliveries.is_exhausted(most + halvings) {
            return Self::Exhausted(attempts.saturating_sub(1));
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

    pub(crate) fn jobs(self, all: usize) -> usize {
        match self {
            Self::All => all,
            Self::First(jobs) => jobs.min(all),
            Self::Exhausted(_) => all.min(1),
        }
    }

    /// How many jobs the next delivery may run; `None` for all jobs. If an earlier run of more jobs
    /// was cut off, the number does not grow again, because a larger run might crash the process
    /// again. `Exhausted` means that the job that crashes the process was found. The next delivery
    /// runs all other jobs.
    fn next(self) -> Option<u32> {
        match self {
            Self::First(jobs) => u32::try_from(jobs).ok(),
            Self::All | Self::Exhausted(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoisonedJob {
    pub(crate) at: usize,
    pub(crate) verdict: PoisonVerdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RetriedJob {
    at: usize,
    delay: Duration,
    attempt: Attempt,
}

#[derive(Debug)]
pub(crate) struct BatchDecision {
    pub(crate) done: usize,
    pub(crate) skipped: usize,
    pub(crate) poisoned: Vec<PoisonedJob>,
    left: Vec<RetriedJob>,
    /// Number of jobs that have an outcome. They are the first jobs of the batch.
    started: usize,
    run_limit: RunLimit,
    /// The delay of a first retry. If at least one job ended in this delivery, no delay is longer.
    /// Delays grow only with deliveries that make no progress.
    first_wait: Duration,
    lost: bool,
}

impl BatchDecision {
    /// `ends` holds the outcomes of the jobs that were started, which are the first jobs of the
    /// batch. If the message would expire before its next delivery, `ends` has an outcome for every
    /// job.
    pub(crate) fn of(
        ends: &[JobOutcome],
        run_limit: RunLimit,
        input: &DecisionInput,
        limits: &Limits,
    ) -> Self {
        let (mut done, mut skipped, mut lost) = (0, 0, false);
        let first_wait = limits.retry_delay.wait(1, input.unit);
        let (mut poisoned, mut left) = (Vec::new(), Vec::new());
        for JobOutcome { at, end } in ends {
            match decide(end, input, limits) {
                Settlement::Delete if matches!(end.outcome(), Some(Outcome::Skipped { .. })) => {
                    skipped += 1;
                }
                Settlement::Delete => done += 1,
                Settlement::Release { delay, attempt } => left.push(RetriedJob {
                    at: *at,
                    delay,
                    attempt,
                }),
                Settlement::Advance(_) => left.push(RetriedJob {
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
            started: ends.len(),
            run_limit,
            first_wait,
            lost,
        }
    }

    /// Jobs whose poison message could not be put are retried after `delay`.
    pub(crate) fn retry_unpoisoned(&mut self, not_put: &[usize], delay: Duration) {
        let (kept, again): (Vec<_>, Vec<_>) = std::mem::take(&mut self.poisoned)
            .into_iter()
            .partition(|job| !not_put.contains(&job.at));
        self.left.extend(again.into_iter().map(|job| RetriedJob {
            at: job.at,
            delay,
            attempt: job.verdict.attempt,
        }));
        self.poisoned = kept;
    }

    pub(crate) fn jobs(&self, batch: &Batch) -> JobCounts {
        let (poisoned, left) = (
            self.poisoned.len(),
            self.left.len() + batch.len() - self.started,
        );
        JobCounts {
            done: self.done,
            skipped: self.skipped,
            poisoned,
            left,
        }
    }

    pub(crate) fn settlement(&self, batch: &Batch) -> Settlement {
        if self.lost {
            return Settlement::Abandon;
        }
        let again: Vec<usize> = self.left.iter().map(|left| left.at).collect();
        let remaining = again.len() + batch.len() - self.started;
        let Some(rest) = batch.rest(self.started, &again) else {
            return Settlement::Delete;
        };
        let not_started = self.started < batch.len();
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
        // The message must be released unchanged in two cases. A run that panicked or timed out
        // must count as an attempt, or it would be retried for ever. A job that is given up must
        // stay first in the batch until its poison message is put.
        let may_turn =
            worst != Some(Attempt::Counts) && !matches!(self.run_limit, RunLimit::Exhausted(_));
        if ended > 0 || (not_started && self.started > 0 && may_turn) {
            let delay = if not_started {
                Duration::ZERO
            } else {
                delay.min(self.first_wait)
            };
            let jobs_per_delivery = self
                .run_limit
                .next()
                .filter(|next| (*next as usize) < remaining);
            let failing = self
                .left
                .iter()
                .filter(|_| ended == 0)
                .find_map(|left| left.attempt.failing());
            return Settlement::Advance(JobProgress {
                fields: rest,
                delay,
                jobs_per_delivery,
                failing,
            });
        }
        // If a delivery was interrupted before any job started, no job is at fault.
        let attempt = worst.unwrap_or(Attempt::WrittenOff);
        Settlement::Release { delay, attempt }
    }

    /// Logs each poisoned job, and one line for the failed jobs that are retried. If all jobs are
    /// retried, nothing is logged here, because the log line of the delivery is enough.
    pub(crate) fn report(&self, batch: &Batch, ends: &[JobOutcome], settlement: &Settlement) {
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
                "moved a job of a batch to the poison queue"
            );
        }
        let failed: Vec<_> = ends
            .iter()
            .filter(|end| {
                end.end.outcome().is_none() && !matches!(end.end, RunOutcome::Interrupted(_))
            })
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
                "{again} jobs of a batch failed and will be retried; key, step and error are those of the first"
            );
        }
    }

    /// The outcome that stands for the whole delivery, with the changes of all jobs. If a job
    /// failed, the outcome is a failure.
    pub(crate) fn overall_outcome(&self, ends: &[JobOutcome]) -> RunOutcome {
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
            Some(RunOutcome::Returned(ran)) => {
                let mut ran = RunResult::clone(ran);
                *ran.summary_mut() = summary;
                ran
            }
            Some(end) => return end.clone(),
            None if self.started == 0 => RunResult::Finished(Outcome::Advanced {
                fields: Map::new(),
                summary,
            }),
            None => RunResult::Finished(Outcome::Done(summary)),
        };
        RunOutcome::Returned(std::sync::Arc::new(ran))
    }
}

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
    const FIRST: DecisionInput = DecisionInput {
        deliveries: 1,
        attempts: 1,
        failing: ONCE,
        failing_for: Duration::ZERO,
        ttl: None,
        stores: Health::Available,
        unit: 0.5,
    };

    fn deliveries(count: u32, begun: u32, jobs_per_delivery: Option<u32>) -> Deliveries {
        Deliveries::new(
            "m1",
            count,
            Some(Note {
                id: "m1".to_owned(),
                begun,
                at_once: jobs_per_delivery,
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

    fn done() -> RunOutcome {
        RunOutcome::Returned(Arc::new(RunResult::Finished(Outcome::Done(
            Summary::default(),
        ))))
    }

    fn failed(class: FailureClass) -> RunOutcome {
        let failure = Failure::new(class, "reading the primary", std::io::Error::other("no"));
        RunOutcome::Returned(Arc::new(RunResult::Failed(
            Arc::new(failure),
            Summary::default(),
        )))
    }

    fn settled(
        jobs: usize,
        ends: impl IntoIterator<Item = RunOutcome>,
        run_limit: RunLimit,
    ) -> Settlement {
        let ends: Vec<JobOutcome> = ends
            .into_iter()
            .enumerate()
            .map(|(at, end)| JobOutcome { at, end })
            .collect();
        BatchDecision::of(&ends, run_limit, &FIRST, &LIMITS).settlement(&batch(jobs))
    }

    #[test]
    fn after_runs_that_were_cut_off_half_of_the_jobs_run_then_a_quarter() {
        for (jobs, count, expected) in [
            (100, 1, RunLimit::All),
            (100, 2, RunLimit::First(50)),
            (100, 4, RunLimit::First(12)),
            (100, 8, RunLimit::First(1)),
            (100, 12, RunLimit::First(1)),
            (100, 13, RunLimit::Exhausted(12)),
            (1, 5, RunLimit::All),
            (1, 6, RunLimit::Exhausted(5)),
        ] {
            assert_eq!(
                RunLimit::of(jobs, &deliveries(count, count, None), 5),
                expected,
                "{jobs} jobs, delivery {count}"
            );
        }
        assert_eq!(
            RunLimit::of(100, &deliveries(1, 0, Some(25)), 5),
            RunLimit::First(25)
        );
        assert_eq!(
            RunLimit::of(10, &deliveries(1, 0, Some(25)), 5),
            RunLimit::All
        );
    }

    #[test]
    fn after_a_limited_run_the_next_delivery_runs_no_more_jobs() {
        let Settlement::Advance(progress) = settled(100, vec![done(); 12], RunLimit::First(12))
        else {
            panic!("no progress")
        };
        assert_eq!(
            (
                progress.jobs_per_delivery,
                progress.fields["rks"].as_array().unwrap().len()
            ),
            (Some(12), 88)
        );
        let Settlement::Advance(progress) = settled(30, vec![done(); 16], RunLimit::First(16))
        else {
            panic!("no progress")
        };
        assert_eq!(
            progress.jobs_per_delivery, None,
            "fewer jobs remain than the limit allows"
        );
        // Halving finds, with as few crashes as possible, how many jobs the process can run at
        // once.
        let (mut left, mut note, mut crashes) = (1_000, deliveries(1, 0, None), 0);
        while left > 0 {
            let run_limit = RunLimit::of(left, &note, 5);
            let run = run_limit.jobs(left);
            if run > 130 {
                crashes += 1;
                note = deliveries(crashes + 1, crashes, note.jobs_per_delivery());
                continue;
            }
            let Settlement::Advance(JobProgress {
                jobs_per_delivery, ..
            }) = settled(left, vec![done(); run], run_limit)
            else {
                break;
            };
            (left, note) = (left - run, deliveries(1, 0, jobs_per_delivery));
        }
        assert_eq!(crashes, 3, "1,000, 500, 250");
    }

    #[test]
    fn a_delivery_with_progress_is_followed_by_a_short_wait() {
        let withheld = || failed(FailureClass::Withheld { retry_after: None });
        let ends = [done(), withheld()]
            .into_iter()
            .enumerate()
            .map(|(at, end)| JobOutcome { at, end })
            .collect::<Vec<_>>();
        let nothing = [JobOutcome {
            at: 0,
            end: withheld(),
        }];
        let input = DecisionInput {
            deliveries: 9,
            ..FIRST
        };
        let Settlement::Advance(progress) =
            BatchDecision::of(&ends, RunLimit::All, &input, &LIMITS).settlement(&batch(2))
        else {
            panic!("no progress")
        };
        assert_eq!(progress.delay, Duration::from_secs(4));
        let Settlement::Release { delay, .. } =
            BatchDecision::of(&nothing, RunLimit::All, &input, &LIMITS).settlement(&batch(1))
        else {
            panic!("progress")
        };
        assert_eq!(delay, Duration::from_mins(10));
    }

    #[test]
    fn failed_jobs_do_not_delay_those_that_were_not_started() {
        let transient = failed(FailureClass::Transient { retry_after: None });
        let Settlement::Advance(progress) = settled(4, vec![transient; 2], RunLimit::First(2))
        else {
            panic!("no progress")
        };
        assert_eq!(
            (progress.fields["rks"].clone(), progress.delay),
            (json!(["2", "3", "0", "1"]), Duration::ZERO)
        );
        assert_eq!(
            progress.failing,
            Some(ONCE),
            "no job has ended, so the time until the message is given up continues"
        );
    }

    #[test]
    fn a_job_that_is_given_up_waits_for_the_poison_queue_and_is_not_run_meanwhile() {
        let ends = [JobOutcome {
            at: 0,
            end: RunOutcome::Exhausted(12),
        }];
        let mut decision = BatchDecision::of(&ends, RunLimit::Exhausted(12), &FIRST, &LIMITS);
        decision.retry_unpoisoned(&[0], Duration::from_secs(9));
        let released = Settlement::Release {
            delay: Duration::from_secs(9),
            attempt: Attempt::WrittenOff,
        };
        assert_eq!(decision.settlement(&batch(3)), released);
        let used_up = Deliveries::new("m1", 13, Some(deliveries(12, 12, None).written_off()));
        assert!(
            matches!(RunLimit::of(3, &used_up, 5), RunLimit::Exhausted(_)),
            "{used_up:?}"
        );
    }

    #[test]
    fn if_no_job_ended_the_outcome_of_greatest_weight_decides() {
        let transient = || failed(FailureClass::Transient { retry_after: None });
        let withheld = || failed(FailureClass::Withheld { retry_after: None });
        let panicked = || RunOutcome::Panicked("oh".to_owned());
        let released = |attempt| Settlement::Release {
            delay: Duration::from_secs(4),
            attempt,
        };
        assert_eq!(
            settled(2, [withheld(), withheld()], RunLimit::All),
            released(Attempt::WrittenOff)
        );
        assert_eq!(
            settled(2, [withheld(), transient()], RunLimit::All),
            released(Attempt::Failed(ONCE))
        );
        assert_eq!(
            settled(3, [withheld(), panicked(), transient()], RunLimit::All),
            released(Attempt::Counts)
        );
        assert_eq!(
            settled(2, [], RunLimit::All),
            Settlement::Release {
                delay: Duration::ZERO,
                attempt: Attempt::WrittenOff
            }
        );
        assert_eq!(
            settled(2, [done(), RunOutcome::LeaseLost], RunLimit::All),
            Settlement::Abandon
        );
        assert_eq!(
            settled(2, [done(), failed(FailureClass::Permanent)], RunLimit::All),
            Settlement::Delete,
            "deleted, because the failed job has a poison message"
        );
    }
}
