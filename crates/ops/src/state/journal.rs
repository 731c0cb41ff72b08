use std::collections::VecDeque;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use evenkeel_model::cause;
use evenkeel_telemetry::job_trace::Step;
use evenkeel_worker::{DeliveryReport, DeliveryStatus, KeyOutcome};

/// Maximum number of jobs in the journal.
const KEPT: usize = 1_000;

/// Recent jobs, the oldest first. Their numbers ascend.
#[derive(Debug, Clone, Default)]
pub(super) struct Journal {
    jobs: VecDeque<(u64, Arc<DeliveryReport>)>,
    next: u64,
}

#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Text that must be in the primary's table, PartitionKey or RowKey, in the message's id, or in the client's id for
    /// the job. The comparison ignores case.
    pub text: String,
    pub ending: Option<DeliveryStatus>,
    /// Selects only jobs older than the job with this number.
    pub before: Option<u64>,
    /// Selects only the job with this number, and returns all its keys.
    pub number: Option<u64>,
}

/// One completed delivery.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "job")]
pub struct JobRecord {
    /// Its number among all deliveries since the program started. Use it as `before` to get the next page.
    pub number: u64,
    /// When it ended (RFC 3339).
    pub at: String,
    /// The queue, or its shard.
    pub queue: String,
    /// The operation; `unknown` if it could not be read.
    pub op: &'static str,
    /// Table of the primary or primaries, if there is one.
    pub table: Option<String>,
    /// PartitionKey of the primary, if there is exactly one.
    pub pk: Option<String>,
    /// RowKey of the primary, if there is exactly one.
    pub rk: Option<String>,
    /// Number of primaries in the message, more than one for a batch.
    pub primaries: usize,
    /// The keys of a batch with the outcome of each: those that match a search first, then those that failed. In a list
    /// of jobs, each job has at most 20 keys. A single job that is requested by its number has as many as fit into 16
    /// KiB.
    pub keys: Vec<KeyRecord>,
    /// The outcome: `done`, `skipped`, `retried`, `poisoned` or `lost`.
    pub ending: &'static str,
    /// The detailed outcome, as in the label `outcome` of the metric `evenkeel_jobs_total`.
    pub outcome: &'static str,
    /// How often the message was received.
    pub deliveries: u32,
    /// Time from received to settled, in seconds.
    pub took_seconds: f64,
    /// Time from enqueued to converged, in seconds; only for jobs that succeeded.
    pub lag_seconds: Option<f64>,
    /// Changes to items, in order; at most 64.
    pub changes: Vec<JournalItem>,
    /// Number of all changes.
    pub changed: usize,
    /// Storage requests, in order; at most 40.
    pub steps: Vec<StepRecord>,
    /// Number of all storage requests. If several jobs shared a run, its requests count only for the job that ran.
    pub requests: u32,
    /// The step that failed, if one did.
    pub step: Option<String>,
    /// Why it failed or was skipped. Without the right to see contents, only the step and the outcome.
    pub error: Option<String>,
    /// Id of the message.
    pub message_id: String,
    /// The client's id for the job.
    pub id: Option<String>,
    /// W3C trace context of the client.
    pub traceparent: Option<String>,
}

impl JobRecord {
    /// Reduces each error to the step and the outcome, because the error's text may contain stored data.
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

    /// Returns the table, PartitionKey and RowKey of a job about one entity.
    pub fn key(&self) -> Option<[&str; 3]> {
        Some([
            self.table.as_deref()?,
            self.pk.as_deref()?,
            self.rk.as_deref()?,
        ])
    }
}

/// One primary of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "key")]
pub struct KeyRecord {
    /// The PartitionKey.
    pub pk: String,
    /// The RowKey.
    pub rk: String,
    /// Outcome of its job in this delivery: `done`, `skipped`, `retried` (left for the next delivery), `poisoned` or
    /// `lost`.
    pub ending: &'static str,
    /// Why it failed or was skipped, in short.
    pub error: Option<String>,
}

/// One storage request.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "step")]
pub struct StepRecord {
    /// The storage operation, as in metrics.
    pub op: &'static str,
    /// The table, queue or container.
    pub target: String,
    /// `ok`, `cancelled`, or the class of the error.
    pub answer: &'static str,
    /// HTTP status of an error, if there was an answer.
    pub status: Option<u16>,
    /// Duration, in seconds.
    pub took_seconds: f64,
}

/// A change of one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "change", rename = "Change")]
pub struct JournalItem {
    /// The item's view.
    pub view: String,
    /// `create`, `update` or `delete`.
    pub action: &'static str,
}

impl Journal {
    pub(super) fn add(&mut self, delivery: DeliveryReport) {
        if self.jobs.len() == KEPT {
            self.jobs.pop_front();
        }
        self.jobs.push_back((self.next, Arc::new(delivery)));
        self.next += 1;
    }

    /// Returns the matching jobs, the newest first. Each has at most `keys` keys.
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

fn mentions(job: &DeliveryReport, text: &str) -> bool {
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

/// Returns the keys of a batch. Those that contain the text come first.
fn keys(job: &DeliveryReport, text: &str, most: usize) -> Vec<KeyRecord> {
    let found = |key: &KeyOutcome<'_>| {
        [key.pk, key.rk]
            .iter()
            .any(|part| part.to_lowercase().contains(text))
    };
    let (found, others): (Vec<_>, Vec<_>) = job.keys.iter().partition(found);
    let key = |KeyOutcome {
                   pk,
                   rk,
                   ending,
                   error,
               }| KeyRecord {
        pk: String::from(pk),
        rk: String::from(rk),
        ending: DeliveryStatus::name(ending),
        error: error.map(str::to_owned),
    };
    found
        .into_iter()
        .chain(others)
        .take(most)
        .map(key)
        .collect()
}

fn record(number: u64, job: &DeliveryReport, text: &str, most_keys: usize) -> JobRecord {
    let primary = job.primary.as_ref();
    let keys = keys(job, text, most_keys);
    // If the message has only one job of a batch left, the key of this job is shown as the primary.
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
        steps: job.trace.steps.iter().map(step).collect(),
        requests: job.trace.requests,
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
        ref target,
        answer,
        status,
        took,
    } = *step;
    StepRecord {
        op,
        target: target.clone(),
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
    use evenkeel_worker::KeyOutcomes;

    fn listing(table: &str, keys: &[KeyOutcome<'_>]) -> KeyOutcomes {
        let mut listing = KeyOutcomes::default();
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
        let mut failed = delivered("m1", DeliveryStatus::Poisoned);
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
            journal.add(delivered(&format!("m{number}"), DeliveryStatus::Done));
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
    fn jobs_are_found_by_part_of_their_key_or_id_and_by_outcome() {
        let mut journal = Journal::default();
        journal.add(delivered("m1", DeliveryStatus::Done));
        journal.add(delivered("m2", DeliveryStatus::Poisoned));
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
        assert_eq!(found("sales", Some(DeliveryStatus::Poisoned)), ["m2"]);
        assert!(found("nowhere", None).is_empty());
    }

    fn batch(keys: &[(&str, DeliveryStatus)]) -> DeliveryReport {
        let keys: Vec<_> = keys
            .iter()
            .map(|(rk, ending)| KeyOutcome {
                pk: "Sales",
                rk,
                ending: *ending,
                error: None,
            })
            .collect();
        let keys = listing("Employees", &keys);
        DeliveryReport {
            primary: None,
            jobs: keys.all,
            keys,
            ..delivered("many", DeliveryStatus::Done)
        }
    }

    #[test]
    fn a_batch_is_found_by_each_of_its_keys_and_lists_matching_keys_first() {
        let mut journal = Journal::default();
        journal.add(batch(&[
            ("A1", DeliveryStatus::Poisoned),
            ("b2", DeliveryStatus::Done),
            ("c3", DeliveryStatus::Done),
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
            "a job that is requested by its number has all keys"
        );
        assert_eq!((found("d4", 2, None), found("", 2, Some(1))), (None, None));
    }

    #[test]
    fn a_batch_of_one_is_shown_as_a_single_job() {
        let mut journal = Journal::default();
        journal.add(batch(&[("A1", DeliveryStatus::Done)]));
        assert_eq!(
            journal.find(&JobFilter::default(), 10, 20)[0].key(),
            Some(["Employees", "Sales", "A1"])
        );
    }
}
