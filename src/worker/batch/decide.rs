//! The settlement of a batch: a plain function of the ends of its jobs. Pure.
//!
//! | of its jobs | the message |
//! |---|---|
//! | all ended for good | deleted, once those that come to nothing are on the poison queue |
//! | some ended for good | comes again with the others alone; no attempt is charged |
//! | some were not begun, and no other failed | the same, at once |
//! | none ended for good | as of a single job: the one that counts most decides |

use std::time::Duration;

use serde_json::Map;

use crate::model::job::Batch;
use crate::planted::{Bug, planted};
use crate::reconcile::{Outcome, Summary};
use crate::worker::attempts::Deliveries;
use crate::worker::decide::{Attempt, End, Inputs, JobProgress, Limits, PoisonVerdict, Ran, Settlement, decide};
use crate::worker::deliver::JobsEnded;

/// The end of one job of a batch.
#[derive(Debug, Clone)]
pub(crate) struct JobEnd {
    /// Its place in the batch.
    pub(crate) at: usize,
    pub(crate) end: End,
}

/// How many jobs of a batch a delivery may run.
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
    /// Of a batch of so many jobs.
    pub(crate) fn of(jobs: usize, deliveries: &Deliveries, most: u32) -> Self {
        let base = deliveries.at_once().map_or(jobs, |noted| jobs.min(noted as usize)).max(1);
        let halvings = usize::BITS - (base - 1).leading_zeros();
        let attempts = deliveries.attempts();
        if attempts > most + halvings {
            return Self::UsedUp(attempts.saturating_sub(1));
        }
        let width = base.checked_shr(attempts.saturating_sub(1)).unwrap_or(0).max(1);
        if width >= jobs { Self::All } else { Self::First(width) }
    }

    /// The number of jobs, of so many.
    pub(crate) fn jobs(self, all: usize) -> usize {
        match self {
            Self::All => all,
            Self::First(jobs) => jobs.min(all),
            Self::UsedUp(_) => all.min(1),
        }
    }

    /// How many are run at once the next time: twice as many, or all.
    fn next(self) -> Option<u32> {
        match self {
            Self::First(jobs) => u32::try_from(jobs.saturating_mul(2)).ok(),
            Self::All | Self::UsedUp(_) => None,
        }
    }
}

/// A job that comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    at: usize,
    delay: Duration,
    attempt: Attempt,
}

/// What becomes of the jobs of a batch.
#[derive(Debug)]
pub(crate) struct BatchDecision {
    /// Jobs that are done.
    pub(crate) done: usize,
    /// Jobs that had nothing to do.
    pub(crate) skipped: usize,
    /// Those that go to the poison queue.
    pub(crate) poisoned: Vec<(usize, PoisonVerdict)>,
    left: Vec<Left>,
    /// Those that were not begun: from this place on.
    unbegun: usize,
    tries: Tries,
    /// Whether another receiver has the message.
    lost: bool,
}

impl BatchDecision {
    /// By the ends of the jobs that were begun: the first ones of the batch.
    pub(crate) fn of(ends: &[JobEnd], tries: Tries, situation: &Inputs, limits: &Limits) -> Self {
        let (mut done, mut skipped, mut lost) = (0, 0, false);
        let (mut poisoned, mut left) = (Vec::new(), Vec::new());
        for JobEnd { at, end } in ends {
            match decide(end, situation, limits) {
                Settlement::Delete if matches!(end.outcome(), Some(Outcome::Skipped { .. })) => skipped += 1,
                Settlement::Delete => done += 1,
                Settlement::Release { delay, attempt } => left.push(Left { at: *at, delay, attempt }),
                Settlement::Advance(_) => left.push(Left { at: *at, delay: Duration::ZERO, attempt: Attempt::WrittenOff }),
                Settlement::Poison(verdict) => poisoned.push((*at, verdict)),
                Settlement::Abandon => lost = true,
            }
        }
        Self { done, skipped, poisoned, left, unbegun: ends.len(), tries, lost }
    }

    /// Jobs with a poison message that could not be put: they come again after this.
    pub(crate) fn come_again(&mut self, not_put: &[usize], delay: Duration) {
        let (kept, again): (Vec<_>, Vec<_>) = std::mem::take(&mut self.poisoned).into_iter().partition(|(at, _)| !not_put.contains(at));
        self.left.extend(again.into_iter().map(|(at, verdict)| Left { at, delay, attempt: verdict.attempt }));
        self.poisoned = kept;
    }

    /// How many jobs ended, by their ends.
    pub(crate) fn jobs(&self, batch: &Batch) -> JobsEnded {
        let (poisoned, left) = (self.poisoned.len(), self.left.len() + batch.len() - self.unbegun);
        JobsEnded { done: self.done, skipped: self.skipped, poisoned, left }
    }

    /// The settlement of the message, its poison messages put.
    pub(crate) fn settlement(&self, batch: &Batch) -> Settlement {
        if self.lost {
            return Settlement::Abandon;
        }
        let mut again: Vec<usize> = self.left.iter().map(|left| left.at).chain(self.unbegun..batch.len()).collect();
        again.sort_unstable();
        if again.is_empty() || (planted(Bug::BatchDeletedWithAFailedJob) && self.done > 0) {
            return Settlement::Delete;
        }
        if planted(Bug::JobDroppedFromTheRest) && again.len() > 1 {
            again.pop();
        }
        let delay = self.left.iter().map(|left| left.delay).min().unwrap_or_default();
        let unbegun = self.unbegun < batch.len();
        let ended = self.done + self.skipped + self.poisoned.len();
        if ended > 0 || (unbegun && self.left.is_empty() && self.unbegun > 0) {
            let delay = if unbegun { Duration::ZERO } else { delay };
            let at_once = self.tries.next().filter(|next| (*next as usize) < again.len());
            return Settlement::Advance(JobProgress { fields: batch.only(again), delay, at_once });
        }
        let worst = self.left.iter().map(|left| left.attempt).max_by_key(|attempt| weight(*attempt));
        // One that was interrupted before any job of it was begun is no job's fault.
        let attempt = worst.unwrap_or(Attempt::WrittenOff);
        Settlement::Release { delay, attempt }
    }

    /// The end that says most about the delivery: a failure where there is one, else the changes of all jobs.
    pub(crate) fn telling(&self, ends: &[JobEnd]) -> End {
        let of = |at: usize| ends.iter().find(|end| end.at == at).map(|end| end.end.clone());
        let failed = self.poisoned.first().map(|(at, _)| *at).or_else(|| self.left.first().map(|left| left.at));
        if let Some(failed) = failed.and_then(of) {
            return failed;
        }
        let mut summary = Summary::default();
        for outcome in ends.iter().filter_map(|end| end.end.outcome()) {
            summary.changes.extend(outcome.summary().changes.iter().cloned());
            summary.extra_rounds += outcome.summary().extra_rounds;
        }
        let outcome = if self.unbegun == 0 { Outcome::Advanced { fields: Map::new(), summary } } else { Outcome::Done(summary) };
        End::Ran(std::sync::Arc::new(Ran::Finished(outcome)))
    }
}

const fn weight(attempt: Attempt) -> u8 {
    match attempt {
        Attempt::WrittenOff => 0,
        Attempt::Failed(_) => 1,
        Attempt::Counts => 2,
    }
}
