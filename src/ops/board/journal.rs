//! The most recent jobs.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;

use crate::telemetry::trail::Step;
use crate::worker::{Delivered, Ending};

/// Most jobs that are kept.
const KEPT: usize = 1_000;

/// Recent jobs, oldest first, each with a number that only rises.
#[derive(Debug, Default)]
pub(super) struct Journal {
    jobs: VecDeque<(u64, Delivered)>,
    next: u64,
}

/// Which jobs are meant.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// A part of the primary's table, PartitionKey or RowKey, of the message's id or of the client's, in any case.
    pub text: String,
    /// Only those that ended so.
    pub ending: Option<Ending>,
    /// Only those older than the one with this number.
    pub before: Option<u64>,
}

/// One delivery that ended.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "job")]
pub struct JobRecord {
    /// Its number among all deliveries since the program started: where the next page begins.
    pub number: u64,
    /// When it ended (RFC 3339).
    pub at: String,
    /// The queue, or its shard.
    pub queue: String,
    /// The operation; `unknown` where it could not be read.
    pub op: &'static str,
    /// The primary's table, where one was named.
    pub table: Option<String>,
    /// The primary's PartitionKey.
    pub pk: Option<String>,
    /// The primary's RowKey.
    pub rk: Option<String>,
    /// How many primaries the message named: more than one where it is about many.
    pub primaries: usize,
    /// How it ended: `done`, `skipped`, `retried`, `poisoned` or `lost`.
    pub ending: &'static str,
    /// The same, finer: the label `outcome` of the metric `evenkeel_jobs_total`.
    pub outcome: &'static str,
    /// How often the message had been got.
    pub deliveries: u32,
    /// From received to settled, in seconds.
    pub took_seconds: f64,
    /// From enqueued to converged, in seconds; only of jobs that ended well.
    pub lag_seconds: Option<f64>,
    /// Changes to items, in order; at most 64 of them.
    pub changes: Vec<JournalItem>,
    /// How many changes there were in all.
    pub changed: usize,
    /// Its requests to the stores, in order; at most 40 of them.
    pub steps: Vec<StepRecord>,
    /// How many requests there were in all. A run that several jobs share counts with the one that ran.
    pub requests: u32,
    /// The step that failed, where it did not end well.
    pub step: Option<String>,
    /// Why it did not end well, or was skipped.
    pub error: Option<String>,
    /// The message's id.
    pub message_id: String,
    /// The client's own name for the job.
    pub id: Option<String>,
    /// The client's W3C trace context.
    pub traceparent: Option<String>,
}

impl JobRecord {
    /// Its entity, where it is about one: table, PartitionKey and RowKey.
    pub fn key(&self) -> Option<[&str; 3]> {
        Some([self.table.as_deref()?, self.pk.as_deref()?, self.rk.as_deref()?])
    }
}

/// One request to a store.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "step")]
pub struct StepRecord {
    /// The storage operation, as in metrics.
    pub op: &'static str,
    /// The table, queue or container.
    pub on: String,
    /// `ok`, `cancelled`, or the class of the error.
    pub answer: &'static str,
    /// The HTTP status of an error, where there was one.
    pub status: Option<u16>,
    /// How long it took, in seconds.
    pub took_seconds: f64,
}

/// A change to one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "change", rename = "Change")]
pub struct JournalItem {
    /// The item's view.
    pub view: String,
    /// `create`, `update` or `delete`.
    pub action: &'static str,
}

impl Journal {
    pub(super) fn add(&mut self, delivery: Delivered) {
        if self.jobs.len() == KEPT {
            self.jobs.pop_front();
        }
        self.jobs.push_back((self.next, delivery));
        self.next += 1;
    }

    /// The newest of those that are meant, newest first.
    pub(super) fn find(&self, filter: &JobFilter, most: usize) -> Vec<JobRecord> {
        let text = filter.text.to_lowercase();
        let before = filter.before.unwrap_or(u64::MAX);
        let meant = self.jobs.iter().rev().filter(|(number, job)| {
            *number < before && filter.ending.is_none_or(|ending| ending == job.ending) && (text.is_empty() || mentions(job, &text))
        });
        meant.take(most).map(|(number, job)| record(*number, job)).collect()
    }
}

fn mentions(job: &Delivered, text: &str) -> bool {
    let primary = job.primary.iter().flat_map(|primary| [primary.table.as_str(), primary.key.pk.as_str(), primary.key.rk.as_str()]);
    primary.chain([job.message_id.as_str()]).chain(job.id.as_deref()).any(|part| part.to_lowercase().contains(text))
}

fn record(number: u64, job: &Delivered) -> JobRecord {
    let primary = job.primary.as_ref();
    JobRecord {
        number,
        at: job.at.to_string(),
        queue: job.queue.to_string(),
        op: job.op,
        table: primary.map(|primary| primary.table.to_string()),
        pk: primary.map(|primary| primary.key.pk.as_str().to_owned()),
        rk: primary.map(|primary| primary.key.rk.as_str().to_owned()),
        primaries: job.jobs,
        ending: job.ending.name(),
        outcome: job.outcome,
        deliveries: job.deliveries,
        took_seconds: job.took.as_secs_f64(),
        lag_seconds: job.lag.map(|lag| lag.as_secs_f64()),
        changes: job.changes.iter().map(|change| JournalItem { view: change.view.to_string(), action: change.action.name() }).collect(),
        changed: job.changed,
        steps: job.trail.steps.iter().map(step).collect(),
        requests: job.trail.requests,
        step: job.step.clone(),
        error: job.error.clone(),
        message_id: job.message_id.clone(),
        id: job.id.clone(),
        traceparent: job.traceparent.clone(),
    }
}

fn step(step: &Step) -> StepRecord {
    let Step { op, ref on, answer, status, took } = *step;
    StepRecord { op, on: on.clone(), answer, status, took_seconds: took.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::delivered;
    use super::*;

    #[test]
    fn only_the_newest_are_kept_and_they_come_newest_first() {
        let mut journal = Journal::default();
        for number in 0..KEPT + 5 {
            journal.add(delivered(&format!("m{number}"), Ending::Done));
        }
        let all = journal.find(&JobFilter::default(), usize::MAX);
        assert_eq!((all.len(), all[0].number, all[KEPT - 1].number), (KEPT, 1_004, 5));
        let page = journal.find(&JobFilter { before: Some(all[9].number), ..JobFilter::default() }, 10);
        assert_eq!((page.len(), page[0].number), (10, 994));
    }

    #[test]
    fn jobs_are_found_by_a_part_of_their_key_or_id_in_any_case_and_by_how_they_ended() {
        let mut journal = Journal::default();
        journal.add(delivered("m1", Ending::Done));
        journal.add(delivered("m2", Ending::Poisoned));
        let found = |text: &str, ending| {
            let filter = JobFilter { text: text.to_owned(), ending, before: None };
            journal.find(&filter, 10).into_iter().map(|job| job.message_id).collect::<Vec<_>>()
        };
        assert_eq!(found("EMPLOY", None), ["m2", "m1"]);
        assert_eq!(found("M1", None), ["m1"]);
        assert_eq!(found("sales", Some(Ending::Poisoned)), ["m2"]);
        assert!(found("nowhere", None).is_empty());
    }
}
