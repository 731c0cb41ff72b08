//! The most recent jobs.

use std::collections::VecDeque;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use evenkeel_model::cause;
use evenkeel_telemetry::trail::Step;
use evenkeel_worker::{Delivered, EndedKey, Ending};

/// Most jobs that are kept.
const KEPT: usize = 1_000;

/// Recent jobs, oldest first, each with a number that only rises.
#[derive(Debug, Clone, Default)]
pub(super) struct Journal {
    jobs: VecDeque<(u64, Arc<Delivered>)>,
    next: u64,
}

/// Which jobs are meant.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// A part of the table, PartitionKey or RowKey of a primary, of the message's id or of the client's, in any case.
    pub text: String,
    /// Only those that ended so.
    pub ending: Option<Ending>,
    /// Only those older than the one with this number.
    pub before: Option<u64>,
    /// Only the one with this number, with all of its keys.
    pub number: Option<u64>,
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
    /// The table of the primary, or of all primaries, where one was named.
    pub table: Option<String>,
    /// The primary's PartitionKey, where it is one.
    pub pk: Option<String>,
    /// The primary's RowKey.
    pub rk: Option<String>,
    /// How many primaries the message named: more than one where it is about many.
    pub primaries: usize,
    /// Their keys, where they are many, each with the ending of its job: those of a search first, then those that did not end well.
    /// At most 20 of each job in a list of jobs, and as many as fit into 16 KiB of one that is asked for by its number.
    pub keys: Vec<KeyRecord>,
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
    /// Why it did not end well, or was skipped; the step and the outcome alone where the token may not see contents.
    pub error: Option<String>,
    /// The message's id.
    pub message_id: String,
    /// The client's own name for the job.
    pub id: Option<String>,
    /// The client's W3C trace context.
    pub traceparent: Option<String>,
}

impl JobRecord {
    /// For who may not see contents: an error is the step and the outcome, since its words may be made of what is stored.
    #[must_use]
    pub fn without_contents(mut self) -> Self {
        let step = self.step.map(|step| cause::step(&step).to_owned());
        self.error = self
            .error
            .map(|_| cause::in_short(step.as_deref().unwrap_or_default(), self.outcome));
        for key in &mut self.keys {
            key.error = key.error.take().map(|_| key.ending.to_owned());
        }
        self.step = step;
        self
    }

    /// Its entity, where it is about one: table, PartitionKey and RowKey.
    pub fn key(&self) -> Option<[&str; 3]> {
        Some([
            self.table.as_deref()?,
            self.pk.as_deref()?,
            self.rk.as_deref()?,
        ])
    }
}

/// One primary of a message about many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "key")]
pub struct KeyRecord {
    /// The PartitionKey.
    pub pk: String,
    /// The RowKey.
    pub rk: String,
    /// How its job ended in this delivery: `done`, `skipped`, `retried` (left for the next delivery), `poisoned` or `lost`.
    pub ending: &'static str,
    /// Why it did not end well, or was skipped, in short.
    pub error: Option<String>,
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
        self.jobs.push_back((self.next, Arc::new(delivery)));
        self.next += 1;
    }

    /// The newest of those that are meant, newest first, each with so many keys at most.
    pub(super) fn find(&self, filter: &JobFilter, most: usize, keys: usize) -> Vec<JobRecord> {
        let text = filter.text.to_lowercase();
        let before = filter.before.unwrap_or(u64::MAX);
        let keys = if filter.number.is_some() {
            usize::MAX
        } else {
            keys
        };
        let meant = self.jobs.iter().rev().filter(|(number, job)| {
            *number < before
                && filter.number.is_none_or(|meant| meant == *number)
                && filter.ending.is_none_or(|ending| ending == job.ending)
                && (text.is_empty() || mentions(job, &text))
        });
        meant
            .take(most)
            .map(|(number, job)| record(*number, job, &text, keys))
            .collect()
    }
}

fn mentions(job: &Delivered, text: &str) -> bool {
    let primary = job.primary.iter().flat_map(|primary| {
        [
            primary.table.as_str(),
            primary.key.pk.as_str(),
            primary.key.rk.as_str(),
        ]
    });
    let mut named = primary
        .chain([job.message_id.as_str()])
        .chain(job.id.as_deref());
    named.any(|part| part.to_lowercase().contains(text)) || job.keys.mention(text)
}

/// The keys of a batch, those that a text is a part of first.
fn keys(job: &Delivered, text: &str, most: usize) -> Vec<KeyRecord> {
    let found = |key: &EndedKey<'_>| {
        [key.pk, key.rk]
            .iter()
            .any(|part| part.to_lowercase().contains(text))
    };
    let (found, others): (Vec<_>, Vec<_>) = job.keys.iter().partition(found);
    let key = |EndedKey {
                   pk,
                   rk,
                   ending,
                   error,
               }| KeyRecord {
        pk: String::from(pk),
        rk: String::from(rk),
        ending: Ending::name(ending),
        error: error.map(str::to_owned),
    };
    found
        .into_iter()
        .chain(others)
        .take(most)
        .map(key)
        .collect()
}

fn record(number: u64, job: &Delivered, text: &str, most_keys: usize) -> JobRecord {
    let primary = job.primary.as_ref();
    let keys = keys(job, text, most_keys);
    // The rest of a list may be one.
    let listed = keys.first().filter(|_| job.jobs == 1);
    JobRecord {
        number,
        at: job.at.to_string(),
        queue: job.queue.to_string(),
        op: job.op,
        table: primary
            .map(|primary| &primary.table)
            .or(job.keys.table.as_ref())
            .map(ToString::to_string),
        pk: primary
            .map(|primary| primary.key.pk.as_str().to_owned())
            .or_else(|| listed.map(|key| key.pk.clone())),
        rk: primary
            .map(|primary| primary.key.rk.as_str().to_owned())
            .or_else(|| listed.map(|key| key.rk.clone())),
        primaries: job.jobs,
        keys,
        ending: job.ending.name(),
        outcome: job.outcome,
        deliveries: job.deliveries,
        took_seconds: job.took.as_secs_f64(),
        lag_seconds: job.lag.map(|lag| lag.as_secs_f64()),
        changes: job
            .changes
            .iter()
            .map(|change| JournalItem {
                view: change.view.to_string(),
                action: change.action.name(),
            })
            .collect(),
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
    let Step {
        op,
        ref on,
        answer,
        status,
        took,
    } = *step;
    StepRecord {
        op,
        on: on.clone(),
        answer,
        status,
        took_seconds: took.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::delivered;
    use super::*;
    use evenkeel_model::TableName;
    use evenkeel_worker::EndedKeys;

    fn listing(table: &str, keys: &[EndedKey<'_>]) -> EndedKeys {
        let mut listing = EndedKeys::default();
        for key in keys {
            listing.add(*key).unwrap();
        }
        listing.table = TableName::new(table).ok();
        listing.all = keys.len();
        listing
    }

    #[test]
    fn an_error_is_the_step_and_the_outcome_for_who_may_not_see_contents() {
        let mut journal = Journal::default();
        let mut failed = delivered("m1", Ending::Poisoned);
        failed.step = Some("writing ByEmail(\"Sales\", \"kim@contoso.com\")".to_owned());
        failed.error = Some("it is taken by kim@contoso.com".to_owned());
        journal.add(failed);
        let [record] = journal
            .find(&JobFilter::default(), 1, 20)
            .try_into()
            .unwrap();
        let outcome = record.outcome;
        assert!(
            record
                .error
                .as_ref()
                .is_some_and(|error| error.contains("kim@"))
        );
        let shown = record.without_contents();
        assert_eq!(
            (shown.step.as_deref(), shown.error),
            (
                Some("writing ByEmail"),
                Some(format!("writing ByEmail: {outcome}"))
            )
        );
    }

    #[test]
    fn only_the_newest_are_kept_and_they_come_newest_first() {
        let mut journal = Journal::default();
        for number in 0..KEPT + 5 {
            journal.add(delivered(&format!("m{number}"), Ending::Done));
        }
        let all = journal.find(&JobFilter::default(), usize::MAX, 20);
        assert_eq!(
            (all.len(), all[0].number, all[KEPT - 1].number),
            (KEPT, 1_004, 5)
        );
        let page = journal.find(
            &JobFilter {
                before: Some(all[9].number),
                ..JobFilter::default()
            },
            10,
            20,
        );
        let one = journal.find(
            &JobFilter {
                number: Some(17),
                ..JobFilter::default()
            },
            10,
            20,
        );
        assert_eq!((one.len(), one[0].number), (1, 17));
        assert_eq!((page.len(), page[0].number), (10, 994));
    }

    #[test]
    fn jobs_are_found_by_a_part_of_their_key_or_id_in_any_case_and_by_how_they_ended() {
        let mut journal = Journal::default();
        journal.add(delivered("m1", Ending::Done));
        journal.add(delivered("m2", Ending::Poisoned));
        let found = |text: &str, ending| {
            let filter = JobFilter {
                text: text.to_owned(),
                ending,
                ..JobFilter::default()
            };
            journal
                .find(&filter, 10, 20)
                .into_iter()
                .map(|job| job.message_id)
                .collect::<Vec<_>>()
        };
        assert_eq!(found("EMPLOY", None), ["m2", "m1"]);
        assert_eq!(found("M1", None), ["m1"]);
        assert_eq!(found("sales", Some(Ending::Poisoned)), ["m2"]);
        assert!(found("nowhere", None).is_empty());
    }

    fn batch(keys: &[(&str, Ending)]) -> Delivered {
        let keys: Vec<_> = keys
            .iter()
            .map(|(rk, ending)| EndedKey {
                pk: "Sales",
                rk,
                ending: *ending,
                error: None,
            })
            .collect();
        let keys = listing("Employees", &keys);
        Delivered {
            primary: None,
            jobs: keys.all,
            keys,
            ..delivered("many", Ending::Done)
        }
    }

    #[test]
    fn a_message_about_many_is_found_by_each_of_its_keys_which_come_first_then() {
        let mut journal = Journal::default();
        journal.add(batch(&[
            ("A1", Ending::Poisoned),
            ("b2", Ending::Done),
            ("c3", Ending::Done),
        ]));
        let found = |text: &str, keys: usize, number: Option<u64>| {
            let filter = JobFilter {
                text: text.to_owned(),
                number,
                ..JobFilter::default()
            };
            let job = journal.find(&filter, 10, keys).pop()?;
            assert_eq!(
                (job.table.as_deref(), job.pk, job.primaries),
                (Some("Employees"), None, 3)
            );
            Some(
                job.keys
                    .into_iter()
                    .map(|key| key.rk)
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        assert_eq!(found("C3", 2, None).as_deref(), Some("c3 A1"));
        assert_eq!(found("employees", 2, None).as_deref(), Some("A1 b2"));
        assert_eq!(
            found("", 2, Some(0)).as_deref(),
            Some("A1 b2 c3"),
            "one that is asked for by its number has all"
        );
        assert_eq!((found("d4", 2, None), found("", 2, Some(1))), (None, None));
    }

    #[test]
    fn a_list_of_one_is_about_that_one() {
        let mut journal = Journal::default();
        journal.add(batch(&[("A1", Ending::Done)]));
        assert_eq!(
            journal.find(&JobFilter::default(), 10, 20)[0].key(),
            Some(["Employees", "Sales", "A1"])
        );
    }
}
