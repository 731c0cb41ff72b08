//! Metrics of the worker, under the names that dashboards use.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use metrics::{Counter, Histogram, counter, gauge, histogram};

use super::poison::Reason;
use super::source::Intake;
use evenkeel_engine::{Action, Summary};
use evenkeel_model::{QueueName, ViewName};
use evenkeel_telemetry::names;

fn label(queue: &QueueName) -> String {
    queue.as_str().to_owned()
}

/// The gauge of jobs in flight, kept by the queue's board.
pub(crate) fn in_flight(queue: &QueueName) -> metrics::Gauge {
    gauge!(names::JOBS_IN_FLIGHT, names::QUEUE => label(queue))
}

/// The gauge of jobs that may be in flight, kept by the queue's board.
pub(crate) fn concurrency(queue: &QueueName) -> metrics::Gauge {
    gauge!(names::CONCURRENCY, names::QUEUE => label(queue))
}

/// Counters of one queue's deliveries, each looked up once: a delivery would look up three of them.
#[derive(Default)]
pub(crate) struct QueueCounters {
    jobs: Mutex<Vec<JobCounters>>,
    lag: OnceLock<Histogram>,
    keys: Mutex<Vec<(&'static str, &'static str, Counter)>>,
}

/// Deliveries of one operation that ended in one way.
struct JobCounters {
    op: &'static str,
    outcome: &'static str,
    ended: Counter,
    took: Histogram,
}

/// A delivery ended.
pub(crate) fn job(source: &Intake, op: &'static str, outcome: &'static str, took: Duration) {
    let mut jobs = source
        .found
        .jobs
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let at = jobs.iter().position(|job| job.op == op && job.outcome == outcome).unwrap_or_else(|| {
        jobs.push(JobCounters {
            op,
            outcome,
            ended: counter!(names::JOBS_TOTAL, names::QUEUE => label(&source.queue), names::OP => op, names::OUTCOME => outcome),
            took: histogram!(names::JOB_DURATION, names::QUEUE => label(&source.queue), names::OP => op),
        });
        jobs.len() - 1
    });
    jobs[at].ended.increment(1);
    jobs[at].took.record(took.as_secs_f64());
}

/// Deliveries of jobs about single primaries ended, one each of a message about many.
pub(crate) fn keys(
    source: &Intake,
    op: &'static str,
    ended: impl IntoIterator<Item = (&'static str, usize)>,
) {
    let mut keys = source
        .found
        .keys
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for (outcome, ended) in ended.into_iter().filter(|(_, ended)| *ended > 0) {
        let at = keys.iter().position(|known| (known.0, known.1) == (op, outcome)).unwrap_or_else(|| {
            let counter = counter!(names::KEYS_TOTAL, names::QUEUE => label(&source.queue), names::OP => op, names::OUTCOME => outcome);
            keys.push((op, outcome, counter));
            keys.len() - 1
        });
        keys[at].2.increment(ended as u64);
    }
}

/// A job converged this long after it was enqueued.
pub(crate) fn lag(source: &Intake, lag: Duration) {
    source
        .found
        .lag
        .get_or_init(|| histogram!(names::LAG, names::QUEUE => label(&source.queue)))
        .record(lag.as_secs_f64());
}

/// Counters of item changes, by view.
#[derive(Default)]
pub(crate) struct Items(Mutex<BTreeMap<ViewName, ViewCounters>>);

/// Counters of one view.
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

impl Items {
    /// A run changed items.
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

/// A delivery failed and left items of these views out of step.
pub(crate) fn view_failures(views: &[ViewName]) {
    for view in views {
        counter!(names::VIEW_FAILURES_TOTAL, names::VIEW => view.as_str().to_owned()).increment(1);
    }
}

/// A lease was renewed, or not.
pub(crate) fn renewal(source: &Intake, outcome: &'static str) {
    counter!(names::LEASE_RENEWALS_TOTAL, names::QUEUE => label(&source.queue), names::OUTCOME => outcome).increment(1);
}

/// A message was poisoned.
pub(crate) fn poisoned(source: &Intake, reason: Reason) {
    counter!(names::POISONED_TOTAL, names::QUEUE => label(&source.queue), names::REASON => reason.name()).increment(1);
}

/// A settlement is tried again.
pub(crate) fn retry(op: &'static str, class: &'static str) {
    counter!(names::RETRIES_TOTAL, names::OP => op, names::CLASS => class).increment(1);
}

/// A queue answered a poll.
pub(crate) fn polled(queue: &QueueName, at: jiff::Timestamp) {
    gauge!(names::LAST_POLL_TIMESTAMP, names::QUEUE => label(queue))
        .set(at.as_duration().as_secs_f64());
}

/// The answer to a poll was lost: its messages are hidden, and were counted as delivered.
pub(crate) fn unanswered_poll(source: &Intake) {
    counter!(names::UNANSWERED_POLLS_TOTAL, names::QUEUE => label(&source.queue)).increment(1);
}

/// The backlog of a queue.
pub(crate) fn backlog(queue: &QueueName, messages: u64, oldest: Duration) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a queue of 2^53 messages does not exist"
    )]
    gauge!(names::QUEUE_MESSAGES, names::QUEUE => label(queue)).set(messages as f64);
    gauge!(names::QUEUE_OLDEST_AGE, names::QUEUE => label(queue)).set(oldest.as_secs_f64());
}

/// A message had fields that no job has.
pub(crate) fn unknown_fields(source: &Intake, fields: usize) {
    if fields > 0 {
        counter!(names::UNKNOWN_FIELDS_TOTAL, names::QUEUE => label(&source.queue))
            .increment(fields as u64);
    }
}

/// A job shared another's run.
pub(crate) fn folded(source: &Intake) {
    counter!(names::JOBS_COALESCED_TOTAL, names::QUEUE => label(&source.queue)).increment(1);
}
