use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use metrics::{Counter, Histogram, counter, gauge, histogram};

use super::consumer::QueueConsumer;
use super::poison::Reason;
use evenkeel_engine::{Action, Summary};
use evenkeel_model::{QueueName, ViewName};
use evenkeel_telemetry::names;

fn label(queue: &QueueName) -> String {
    queue.as_str().to_owned()
}

pub(crate) fn in_flight(queue: &QueueName) -> metrics::Gauge {
    gauge!(names::JOBS_IN_FLIGHT, names::QUEUE => label(queue))
}

pub(crate) fn concurrency(queue: &QueueName) -> metrics::Gauge {
    gauge!(names::CONCURRENCY, names::QUEUE => label(queue))
}

/// Counters of one queue's deliveries. They are kept here, because otherwise each delivery would
/// look up three counters.
#[derive(Default)]
pub(crate) struct QueueCounters {
    jobs: Mutex<Vec<JobCounters>>,
    lag: OnceLock<Histogram>,
    keys: Mutex<Vec<(&'static str, &'static str, Counter)>>,
}

struct JobCounters {
    op: &'static str,
    outcome: &'static str,
    ended: Counter,
    took: Histogram,
}

pub(crate) fn job(
    consumer: &QueueConsumer,
    op: &'static str,
    outcome: &'static str,
    took: Duration,
) {
    let mut jobs = consumer
        .counters
        .jobs
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let at = jobs.iter().position(|job| job.op == op && job.outcome == outcome).unwrap_or_else(|| {
        jobs.push(JobCounters {
            op,
            outcome,
            ended: counter!(names::JOBS_TOTAL, names::QUEUE => label(&consumer.queue), names::OP => op, names::OUTCOME => outcome),
            took: histogram!(names::JOB_DURATION, names::QUEUE => label(&consumer.queue), names::OP => op),
        });
        jobs.len() - 1
    });
    jobs[at].ended.increment(1);
    jobs[at].took.record(took.as_secs_f64());
}

/// Counts keys: one for a single job, one for each job of a batch.
pub(crate) fn keys(
    consumer: &QueueConsumer,
    op: &'static str,
    ended: impl IntoIterator<Item = (&'static str, usize)>,
) {
    let mut keys = consumer
        .counters
        .keys
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for (outcome, ended) in ended.into_iter().filter(|(_, ended)| *ended > 0) {
        let at = keys.iter().position(|known| (known.0, known.1) == (op, outcome)).unwrap_or_else(|| {
            let counter = counter!(names::KEYS_TOTAL, names::QUEUE => label(&consumer.queue), names::OP => op, names::OUTCOME => outcome);
            keys.push((op, outcome, counter));
            keys.len() - 1
        });
        keys[at].2.increment(ended as u64);
    }
}

/// `lag` is the time from enqueuing to convergence.
pub(crate) fn lag(consumer: &QueueConsumer, lag: Duration) {
    consumer
        .counters
        .lag
        .get_or_init(|| histogram!(names::LAG, names::QUEUE => label(&consumer.queue)))
        .record(lag.as_secs_f64());
}

#[derive(Default)]
pub(crate) struct ItemCounters(Mutex<BTreeMap<ViewName, ViewCounters>>);

struct ViewCounters {
    changes: [Counter; 3],
    found_after: Histogram,
}

impl ViewCounters {
    fn of(view: &ViewName) -> Self {
        let name = || view.as_str().to_owned();
        let change = |action: Action| counter!(names::ITEMS_TOTAL, names::VIEW => name(), names::ACTION => action.name());
        Self {
            changes: [Action::Create, Action::Update, Action::Delete].map(change),
            found_after: histogram!(names::WRITE_TO_FOUND, names::VIEW => name()),
        }
    }
}

impl ItemCounters {
    pub(crate) fn changed(&self, summary: &Summary) {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, change) in summary.changes.iter().enumerate() {
            if !views.contains_key(&change.view) {
                views.insert(change.view.clone(), ViewCounters::of(&change.view));
            }
            let Some(counters) = views.get(&change.view) else {
                continue;
            };
            counters.changes[change.action as usize].increment(1);
            if let Some(after) = summary.found_after
                && !summary.changes[..at]
                    .iter()
                    .any(|earlier| earlier.view == change.view)
            {
                counters.found_after.record(after.as_secs_f64());
            }
        }
    }
}

pub(crate) fn view_failures(views: &[ViewName]) {
    for view in views {
        counter!(names::VIEW_FAILURES_TOTAL, names::VIEW => view.as_str().to_owned()).increment(1);
    }
}

pub(crate) fn renewal(consumer: &QueueConsumer, outcome: &'static str) {
    counter!(names::LEASE_RENEWALS_TOTAL, names::QUEUE => label(&consumer.queue), names::OUTCOME => outcome).increment(1);
}

pub(crate) fn poisoned(consumer: &QueueConsumer, reason: Reason) {
    counter!(names::POISONED_TOTAL, names::QUEUE => label(&consumer.queue), names::REASON => reason.name()).increment(1);
}

pub(crate) fn retry(op: &'static str, class: &'static str) {
    counter!(names::RETRIES_TOTAL, names::OP => op, names::CLASS => class).increment(1);
}

pub(crate) fn polled(queue: &QueueName, at: jiff::Timestamp) {
    gauge!(names::LAST_POLL_TIMESTAMP, names::QUEUE => label(queue))
        .set(at.as_duration().as_secs_f64());
}

/// Counts a poll whose answer was lost. The service has hidden its messages and counted a delivery
/// of each.
pub(crate) fn unanswered_poll(consumer: &QueueConsumer) {
    counter!(names::UNANSWERED_POLLS_TOTAL, names::QUEUE => label(&consumer.queue)).increment(1);
}

pub(crate) fn backlog(queue: &QueueName, messages: u64, oldest: Duration) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a queue of 2^53 messages does not exist"
    )]
    gauge!(names::QUEUE_MESSAGES, names::QUEUE => label(queue)).set(messages as f64);
    gauge!(names::QUEUE_OLDEST_AGE, names::QUEUE => label(queue)).set(oldest.as_secs_f64());
}

pub(crate) fn unknown_fields(consumer: &QueueConsumer, fields: usize) {
    if fields > 0 {
        counter!(names::UNKNOWN_FIELDS_TOTAL, names::QUEUE => label(&consumer.queue))
            .increment(fields as u64);
    }
}

pub(crate) fn coalesced(consumer: &QueueConsumer) {
    counter!(names::JOBS_COALESCED_TOTAL, names::QUEUE => label(&consumer.queue)).increment(1);
}
