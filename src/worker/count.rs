//! What the worker counts.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use super::poison::Reason;
use super::source::Source;
use crate::model::QueueName;
use crate::reconcile::Summary;

/// Names and labels, as documented for dashboards.
mod names {
    pub(super) const JOBS_TOTAL: &str = "evenkeel_jobs_total";
    pub(super) const JOB_DURATION: &str = "evenkeel_job_duration_seconds";
    pub(super) const LAG: &str = "evenkeel_lag_seconds";
    pub(super) const JOBS_IN_FLIGHT: &str = "evenkeel_jobs_in_flight";
    pub(super) const QUEUE_MESSAGES: &str = "evenkeel_queue_messages";
    pub(super) const QUEUE_OLDEST_AGE: &str = "evenkeel_queue_oldest_age_seconds";
    pub(super) const LAST_POLL_TIMESTAMP: &str = "evenkeel_last_poll_timestamp_seconds";
    pub(super) const LEASE_RENEWALS_TOTAL: &str = "evenkeel_lease_renewals_total";
    pub(super) const POISONED_TOTAL: &str = "evenkeel_poisoned_total";
    pub(super) const RETRIES_TOTAL: &str = "evenkeel_retries_total";
    pub(super) const ITEMS_TOTAL: &str = "evenkeel_items_total";
}

/// Fields in messages that no job has. Labels: queue.
const UNKNOWN_FIELDS_TOTAL: &str = "evenkeel_unknown_fields_total";
/// Jobs that shared another's run. Labels: queue.
const FOLDED_TOTAL: &str = "evenkeel_folded_total";

fn label(queue: &QueueName) -> String {
    queue.as_str().to_owned()
}

/// Gauges of a queue report zero rather than vanish.
pub(crate) fn announce(queue: &QueueName) {
    gauge!(names::JOBS_IN_FLIGHT, "queue" => label(queue)).set(0.0);
    gauge!(names::QUEUE_MESSAGES, "queue" => label(queue)).set(0.0);
    gauge!(names::QUEUE_OLDEST_AGE, "queue" => label(queue)).set(0.0);
    gauge!(names::LAST_POLL_TIMESTAMP, "queue" => label(queue)).set(0.0);
}

/// The gauge of jobs in flight, kept by the queue's board.
pub(crate) fn in_flight(queue: &QueueName) -> metrics::Gauge {
    gauge!(names::JOBS_IN_FLIGHT, "queue" => label(queue))
}

/// A delivery ended.
pub(crate) fn job(source: &Source, op: &'static str, outcome: &'static str, took: Duration) {
    counter!(names::JOBS_TOTAL, "queue" => label(&source.queue), "op" => op, "outcome" => outcome).increment(1);
    histogram!(names::JOB_DURATION, "queue" => label(&source.queue), "op" => op).record(took.as_secs_f64());
}

/// A job converged this long after it was enqueued.
pub(crate) fn lag(source: &Source, lag: Duration) {
    histogram!(names::LAG, "queue" => label(&source.queue)).record(lag.as_secs_f64());
}

/// A run changed items.
pub(crate) fn items(summary: &Summary) {
    for change in &summary.changes {
        counter!(names::ITEMS_TOTAL, "view" => change.view.as_str().to_owned(), "action" => change.action.name()).increment(1);
    }
}

/// A lease was renewed, or not.
pub(crate) fn renewal(source: &Source, outcome: &'static str) {
    counter!(names::LEASE_RENEWALS_TOTAL, "queue" => label(&source.queue), "outcome" => outcome).increment(1);
}

/// A message was poisoned.
pub(crate) fn poisoned(source: &Source, reason: Reason) {
    counter!(names::POISONED_TOTAL, "queue" => label(&source.queue), "reason" => reason.name()).increment(1);
}

/// A settlement is tried again.
pub(crate) fn retry(op: &'static str, class: &'static str) {
    counter!(names::RETRIES_TOTAL, "op" => op, "class" => class).increment(1);
}

/// A queue answered a poll.
pub(crate) fn polled(queue: &QueueName, at: jiff::Timestamp) {
    gauge!(names::LAST_POLL_TIMESTAMP, "queue" => label(queue)).set(at.as_duration().as_secs_f64());
}

/// What a queue holds.
pub(crate) fn backlog(queue: &QueueName, messages: u64, oldest: Duration) {
    #[expect(clippy::cast_precision_loss, reason = "a queue of 2^53 messages does not exist")]
    gauge!(names::QUEUE_MESSAGES, "queue" => label(queue)).set(messages as f64);
    gauge!(names::QUEUE_OLDEST_AGE, "queue" => label(queue)).set(oldest.as_secs_f64());
}

/// A message had fields that no job has.
pub(crate) fn unknown_fields(source: &Source, fields: usize) {
    if fields > 0 {
        counter!(UNKNOWN_FIELDS_TOTAL, "queue" => label(&source.queue)).increment(fields as u64);
    }
}

/// A job shared another's run.
pub(crate) fn folded(source: &Source) {
    counter!(FOLDED_TOTAL, "queue" => label(&source.queue)).increment(1);
}
