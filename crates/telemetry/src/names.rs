//! The contract of metric names and labels.
//!
//! Metrics may be added, but a name is never changed or reused after a release. Units are part of the names. Label
//! values come from the configuration, from closed sets and from HTTP statuses, never from data: a key or message id in
//! a label would create a time series per entity.

use metrics::Unit;

/// Name of the queue or shard.
pub const QUEUE: &str = "queue";
/// A job's `op`, or a storage operation (`insert_entity`, `get_messages`). It is `unknown` for jobs that cannot be
/// decoded.
pub const OP: &str = "op";
/// Jobs: `done`, `skipped`; poisoned: `permanent`, `exhausted`, `undecodable`, `expired`; released for another attempt:
/// `transient`, `timeout`, `panic`, `interrupted` (drain, or a lease that could not be renewed); `lost`: another
/// receiver has the message; `advanced`: part of a walk or a batch. Primaries of batches: `done`, `skipped`,
/// `poisoned`, `retried`, `lost`. Renewals: `renewed`, `lost`, `failed`.
pub const OUTCOME: &str = "outcome";
/// Why a message was poisoned: one of [`POISON_REASONS`].
pub const REASON: &str = "reason";
/// Class of a storage error (`throttled`, `refused`, `transient`, `ambiguous`).
pub const CLASS: &str = "class";
/// Name of the account in the configuration.
pub const ACCOUNT: &str = "account";
/// `table`, `queue`, `blob` or `search`.
pub const SERVICE: &str = "service";
/// [`OK`], [`CANCELLED`], the HTTP status of an error (`503`), or the error's class if there was no answer (`refused`).
pub const STATUS: &str = "status";
/// Value of [`STATUS`] for a successful request.
pub const OK: &str = "ok";
/// Value of [`STATUS`] if the caller stopped waiting for the answer (a job's timeout, a drain).
pub const CANCELLED: &str = "cancelled";
/// Name of the view.
pub const VIEW: &str = "view";
pub const VERSION: &str = "version";
/// `create`, `update` or `delete`.
pub const ACTION: &str = "action";

/// Share of the memory budget: `messages`, `rows` (large primaries), `bodies` (staged entities, pages of rows),
/// `values` (large values in transfer) or `documents` (lists in blobs, archived documents).
pub const SHARE: &str = "share";

pub const POISON_REASONS: [&str; 4] = ["exhausted", "permanent", "undecodable", "expired"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    Counter,
    Gauge,
    Histogram(Buckets),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buckets {
    Request,
    Run,
    /// Time from an event until everything is in step.
    Wait,
}

impl Buckets {
    pub const fn seconds(self) -> &'static [f64] {
        match self {
            // A cached point read takes milliseconds, and no request waits longer than 30 s (the services' limit for a
            // query).
            Self::Request => &[
                0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
            ],
            // From the time of a few requests up to the job timeout, which is ten minutes.
            Self::Run => &[
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
                600.0,
            ],
            // Up to six hours, after which a job is poisoned.
            Self::Wait => &[
                0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
                3_600.0, 21_600.0,
            ],
        }
    }
}

/// What a metric reports before its first event. Prometheus sees the first increase only if the series began at zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialValue {
    /// Nothing.
    Absent,
    /// Zero. If the metric has one label (account, queue or view), each value of the label gets a zero.
    Zero,
    /// Zero for each of these values of the metric's second label.
    ZeroFor(&'static [&'static str]),
}

#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricType,
    pub unit: Unit,
    pub labels: &'static [&'static str],
    pub start: InitialValue,
    /// Help text.
    pub description: &'static str,
}

/// Declares a constant per metric and lists all of them in [`METRICS`], so that every metric has a description.
macro_rules! metrics {
    ($($description:literal $constant:ident = $name:literal [$($label:ident),*], $kind:expr, $unit:ident, $start:expr;)*) => {
        $(
            #[doc = $description]
            pub const $constant: &str = $name;
        )*

        /// Every metric, in the order of the documentation.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $constant,
            kind: $kind,
            unit: Unit::$unit,
            labels: &[$($label),*],
            start: $start,
            description: $description,
        }),*];
    };
}

metrics! {
    "Completed deliveries of jobs, by outcome"
    JOBS_TOTAL = "evenkeel_jobs_total" [QUEUE, OP, OUTCOME], MetricType::Counter, Count, InitialValue::Absent;
    "Completed jobs about primaries, one per primary of a batch, by outcome"
    KEYS_TOTAL = "evenkeel_keys_total" [QUEUE, OP, OUTCOME], MetricType::Counter, Count, InitialValue::Absent;
    "Duration of a run of a job, until its message is deleted or released"
    JOB_DURATION = "evenkeel_job_duration_seconds" [QUEUE, OP], MetricType::Histogram(Buckets::Run), Seconds, InitialValue::Absent;
    "Time from enqueueing a job about one entity until everything derived from it is in step"
    LAG = "evenkeel_lag_seconds" [QUEUE], MetricType::Histogram(Buckets::Wait), Seconds, InitialValue::Absent;
    "Time from the last write of a primary until everything derived from it is in step"
    WRITE_TO_FOUND = "evenkeel_write_to_found_seconds" [VIEW], MetricType::Histogram(Buckets::Wait), Seconds, InitialValue::Absent;
    "Jobs running now"
    JOBS_IN_FLIGHT = "evenkeel_jobs_in_flight" [QUEUE], MetricType::Gauge, Count, InitialValue::Zero;
    "Maximum number of jobs running at once, all shards of a queue together"
    CONCURRENCY = "evenkeel_concurrency" [QUEUE], MetricType::Gauge, Count, InitialValue::Absent;
    "Approximate number of messages in the queue, including hidden ones"
    QUEUE_MESSAGES = "evenkeel_queue_messages" [QUEUE], MetricType::Gauge, Count, InitialValue::Zero;
    "Age of the oldest visible message, 0 if there is none"
    QUEUE_OLDEST_AGE = "evenkeel_queue_oldest_age_seconds" [QUEUE], MetricType::Gauge, Seconds, InitialValue::Zero;
    "Unix time at which the queue last answered a request for messages, 0 for never"
    LAST_POLL_TIMESTAMP = "evenkeel_last_poll_timestamp_seconds" [QUEUE], MetricType::Gauge, Seconds, InitialValue::Zero;
    "Requests for messages whose answer was lost"
    UNANSWERED_POLLS_TOTAL = "evenkeel_unanswered_polls_total" [QUEUE], MetricType::Counter, Count, InitialValue::Zero;
    "Lease renewals, by outcome"
    LEASE_RENEWALS_TOTAL = "evenkeel_lease_renewals_total" [QUEUE, OUTCOME], MetricType::Counter, Count, InitialValue::ZeroFor(&["renewed", "lost", "failed"]);
    "Messages moved to the poison queue, by reason"
    POISONED_TOTAL = "evenkeel_poisoned_total" [QUEUE, REASON], MetricType::Counter, Count, InitialValue::ZeroFor(&POISON_REASONS);
    "Sync jobs coalesced into the run of another job of the same primary"
    JOBS_COALESCED_TOTAL = "evenkeel_jobs_coalesced_total" [QUEUE], MetricType::Counter, Count, InitialValue::Absent;
    "Fields of messages that were ignored because their operation does not have them"
    UNKNOWN_FIELDS_TOTAL = "evenkeel_unknown_fields_total" [QUEUE], MetricType::Counter, Count, InitialValue::Zero;
    "Retries of storage requests, by class of the error"
    RETRIES_TOTAL = "evenkeel_retries_total" [OP, CLASS], MetricType::Counter, Count, InitialValue::Absent;
    "1 while the circuit breaker of the storage service is open, else 0"
    CIRCUIT_OPEN = "evenkeel_circuit_open" [ACCOUNT, SERVICE], MetricType::Gauge, Count, InitialValue::Absent;
    "Storage requests sent; an entity group transaction counts as one"
    STORAGE_REQUESTS_TOTAL = "evenkeel_storage_requests_total" [ACCOUNT, SERVICE, OP, STATUS], MetricType::Counter, Count, InitialValue::Absent;
    "Duration of storage requests"
    STORAGE_REQUEST_DURATION = "evenkeel_storage_request_duration_seconds" [ACCOUNT, SERVICE, OP, STATUS], MetricType::Histogram(Buckets::Request), Seconds, InitialValue::Absent;
    "Derived items created, updated or deleted"
    ITEMS_TOTAL = "evenkeel_items_total" [VIEW, ACTION], MetricType::Counter, Count, InitialValue::ZeroFor(&["create", "update", "delete"]);
    "Deliveries that failed and left items of the view out of step"
    VIEW_FAILURES_TOTAL = "evenkeel_view_failures_total" [VIEW], MetricType::Counter, Count, InitialValue::Zero;
    "Derived items that the last audit found wrong and did not repair"
    DRIFT_ITEMS = "evenkeel_drift_items" [VIEW], MetricType::Gauge, Count, InitialValue::Zero;
    "Unix time at which the last audit was completed, 0 for never"
    AUDIT_LAST_COMPLETED_TIMESTAMP = "evenkeel_audit_last_completed_timestamp_seconds" [VIEW], MetricType::Gauge, Seconds, InitialValue::Zero;
    "Messages in the poison queue"
    POISON_MESSAGES = "evenkeel_poison_messages" [QUEUE], MetricType::Gauge, Count, InitialValue::Absent;
    "Entities that table requests read or wrote, at least one per request"
    TABLE_ENTITIES_TOTAL = "evenkeel_table_entities_total" [ACCOUNT], MetricType::Counter, Count, InitialValue::Zero;
    "Partitions, queues and containers for which requests are paused because they throttle"
    THROTTLED_SCOPES = "evenkeel_throttled_scopes" [ACCOUNT], MetricType::Gauge, Count, InitialValue::Zero;
    "Current request rate limit of the account"
    PACE_REQUESTS = "evenkeel_pace_requests_per_second" [ACCOUNT], MetricType::Gauge, Count, InitialValue::Absent;
    "Entities per second (messages for a queue) of the busiest partition or queue in the last ten seconds"
    BUSIEST_PARTITION = "evenkeel_busiest_partition_entities_per_second" [ACCOUNT], MetricType::Gauge, Count, InitialValue::Zero;
    "Declared tables that do not exist"
    MISSING_TABLES = "evenkeel_missing_tables" [ACCOUNT], MetricType::Gauge, Count, InitialValue::Zero;
    "Jobs waiting for memory"
    MEMORY_WAITING = "evenkeel_memory_waiting_jobs" [SHARE], MetricType::Gauge, Count, InitialValue::Absent;
    "1 while the program is ready, else 0"
    READY = "evenkeel_ready" [], MetricType::Gauge, Count, InitialValue::Zero;
    "Unix time at which the program was started"
    START_TIMESTAMP = "evenkeel_start_timestamp_seconds" [], MetricType::Gauge, Seconds, InitialValue::Absent;
    "Always 1; the label is the version of the program"
    BUILD_INFO = "evenkeel_build_info" [VERSION], MetricType::Gauge, Count, InitialValue::Absent;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_their_units_and_no_name_is_used_twice() {
        for (position, metric) in METRICS.iter().enumerate() {
            assert!(metric.name.starts_with("evenkeel_"), "{}", metric.name);
            assert_eq!(
                metric.unit == Unit::Seconds,
                metric.name.trim_end_matches("_total").ends_with("_seconds"),
                "{}",
                metric.name
            );
            assert_eq!(
                metric.unit == Unit::Bytes,
                metric.name.trim_end_matches("_total").ends_with("_bytes"),
                "{}",
                metric.name
            );
            assert_eq!(
                metric.kind == MetricType::Counter,
                metric.name.ends_with("_total"),
                "{}",
                metric.name
            );
            assert!(
                METRICS[..position]
                    .iter()
                    .all(|other| other.name != metric.name),
                "{}",
                metric.name
            );
        }
    }
}
