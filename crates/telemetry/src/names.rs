//! The contract of metric names and labels, in one place.
//!
//! A name here is never changed or reused; more may be added. Units are in the names. Labels take their
//! values from configuration, from closed sets and from HTTP statuses, never from data: a key or a message id
//! in a label would make a time series per entity.

use metrics::Unit;

/// The queue's name, or its shard's.
pub const QUEUE: &str = "queue";
/// The operation: a job's `op`, or a storage operation (`insert_entity`, `get_messages`). Jobs that cannot be
/// decoded are `unknown`.
pub const OP: &str = "op";
/// How it ended. Jobs: `done`, `skipped`; poisoned: `permanent`, `exhausted`, `undecodable`, `expired`; released for
/// another try: `transient`, `timeout`, `panic`, `interrupted` (drain, or a lease that could not be renewed);
/// `lost`: another receiver has the message; `advanced`: part of a walk or a batch. Primaries of batches: `done`, `skipped`,
/// `poisoned`, `retried`, `lost`. Renewals: `renewed`, `lost`, `failed`.
pub const OUTCOME: &str = "outcome";
/// Why a message was poisoned: one of [`POISON_REASONS`].
pub const REASON: &str = "reason";
/// The class of a storage error (`throttled`, `refused`, `transient`, `ambiguous`).
pub const CLASS: &str = "class";
/// The account, as the configuration names it.
pub const ACCOUNT: &str = "account";
/// `table`, `queue`, `blob` or `search`.
pub const SERVICE: &str = "service";
/// [`OK`]; else the HTTP status of the answer (`503`), or the error's class where there was no answer
/// (`refused`), or [`CANCELLED`].
pub const STATUS: &str = "status";
/// A value of [`STATUS`]: the service executed the request.
pub const OK: &str = "ok";
/// A value of [`STATUS`]: the caller did not wait for the answer (a job's timeout, a drain).
pub const CANCELLED: &str = "cancelled";
/// The view's name.
pub const VIEW: &str = "view";
/// The program's version.
pub const VERSION: &str = "version";
/// `create`, `update` or `delete`.
pub const ACTION: &str = "action";

/// A share of the memory of jobs: `messages`, `rows` (large primaries), `bodies` (staged entities, pages of rows), `values` (large values on their
/// way) or `documents` (lists in blobs, archived documents).
pub const SHARE: &str = "share";

/// The values of [`REASON`].
pub const POISON_REASONS: [&str; 4] = ["exhausted", "permanent", "undecodable", "expired"];

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// A distribution.
    Histogram(Buckets),
}

/// Buckets of a histogram, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buckets {
    /// A storage request.
    Request,
    /// A run.
    Run,
    /// From an event until everything is in step.
    Wait,
}

impl Buckets {
    /// The upper bounds.
    pub const fn seconds(self) -> &'static [f64] {
        match self {
            // A cached point read takes milliseconds, and nothing waits longer than 30 s (the services' own limit for a query).
            Self::Request => &[
                0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
            ],
            // A few requests, up to the job timeout of ten minutes.
            Self::Run => &[
                0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
                600.0,
            ],
            // From at once up to the six hours after which a job is given up.
            Self::Wait => &[
                0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
                3_600.0, 21_600.0,
            ],
        }
    }
}

/// What a metric reports before its first event. An increase can only be seen from a zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Nothing: it appears with its first value.
    Absent,
    /// Zero for each account, queue or view that its only label names; for the program, if it has no label.
    Zero,
    /// Zero for each of these values of its second label.
    ZeroFor(&'static [&'static str]),
}

/// One metric of the contract.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// Its unit.
    pub unit: Unit,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it reports before its first event.
    pub start: Start,
    /// Its description, for people.
    pub description: &'static str,
}

/// Makes of each entry the constant of its name, and all of [`METRICS`]: a metric that is counted is described.
macro_rules! metrics {
    ($($description:literal $constant:ident = $name:literal [$($label:ident),*], $kind:expr, $unit:ident, $start:expr;)*) => {
        $(
            #[doc = $description]
            pub const $constant: &str = $name;
        )*

        /// Every metric, in the order in which the documentation lists them.
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
    "Jobs that ended, by how they ended"
    JOBS_TOTAL = "evenkeel_jobs_total" [QUEUE, OP, OUTCOME], Type::Counter, Count, Start::Absent;
    "Jobs about primaries that ended, one for each primary of a batch"
    KEYS_TOTAL = "evenkeel_keys_total" [QUEUE, OP, OUTCOME], Type::Counter, Count, Start::Absent;
    "How long runs took, from start to settled"
    JOB_DURATION = "evenkeel_job_duration_seconds" [QUEUE, OP], Type::Histogram(Buckets::Run), Seconds, Start::Absent;
    "Time from enqueued to converged"
    LAG = "evenkeel_lag_seconds" [QUEUE], Type::Histogram(Buckets::Wait), Seconds, Start::Absent;
    "Time from the last write of a primary until everything derived from it was in step"
    WRITE_TO_FOUND = "evenkeel_write_to_found_seconds" [VIEW], Type::Histogram(Buckets::Wait), Seconds, Start::Absent;
    "Jobs being run now"
    JOBS_IN_FLIGHT = "evenkeel_jobs_in_flight" [QUEUE], Type::Gauge, Count, Start::Zero;
    "Jobs that may be run at once, all shards of a queue together"
    CONCURRENCY = "evenkeel_concurrency" [QUEUE], Type::Gauge, Count, Start::Absent;
    "About how many messages the queue holds, hidden ones included"
    QUEUE_MESSAGES = "evenkeel_queue_messages" [QUEUE], Type::Gauge, Count, Start::Zero;
    "Age of the oldest visible message, 0 where there is none"
    QUEUE_OLDEST_AGE = "evenkeel_queue_oldest_age_seconds" [QUEUE], Type::Gauge, Seconds, Start::Zero;
    "Unix time at which the queue last answered a request for messages, 0 for never"
    LAST_POLL_TIMESTAMP = "evenkeel_last_poll_timestamp_seconds" [QUEUE], Type::Gauge, Seconds, Start::Zero;
    "Requests for messages whose answer was lost"
    UNANSWERED_POLLS_TOTAL = "evenkeel_unanswered_polls_total" [QUEUE], Type::Counter, Count, Start::Zero;
    "Renewals of leases, by how they ended"
    LEASE_RENEWALS_TOTAL = "evenkeel_lease_renewals_total" [QUEUE, OUTCOME], Type::Counter, Count, Start::ZeroFor(&["renewed", "lost", "failed"]);
    "Messages moved to the poison queue, by reason"
    POISONED_TOTAL = "evenkeel_poisoned_total" [QUEUE, REASON], Type::Counter, Count, Start::ZeroFor(&POISON_REASONS);
    "Sync jobs that shared the run of another one of their primary"
    JOBS_FOLDED_TOTAL = "evenkeel_jobs_folded_total" [QUEUE], Type::Counter, Count, Start::Absent;
    "Fields in messages that no job has, and which were ignored"
    UNKNOWN_FIELDS_TOTAL = "evenkeel_unknown_fields_total" [QUEUE], Type::Counter, Count, Start::Zero;
    "Storage requests that were tried again, by what had failed"
    RETRIES_TOTAL = "evenkeel_retries_total" [OP, CLASS], Type::Counter, Count, Start::Absent;
    "1 while the storage service refuses as a whole, else 0"
    CIRCUIT_OPEN = "evenkeel_circuit_open" [ACCOUNT, SERVICE], Type::Gauge, Count, Start::Absent;
    "Storage requests that were sent; an entity group transaction is one"
    STORAGE_REQUESTS_TOTAL = "evenkeel_storage_requests_total" [ACCOUNT, SERVICE, OP, STATUS], Type::Counter, Count, Start::Absent;
    "How long storage requests took"
    STORAGE_REQUEST_DURATION = "evenkeel_storage_request_duration_seconds" [ACCOUNT, SERVICE, OP, STATUS], Type::Histogram(Buckets::Request), Seconds, Start::Absent;
    "Derived items that were written or deleted"
    ITEMS_TOTAL = "evenkeel_items_total" [VIEW, ACTION], Type::Counter, Count, Start::ZeroFor(&["create", "update", "delete"]);
    "Deliveries that failed and left items of the view out of step"
    VIEW_FAILURES_TOTAL = "evenkeel_view_failures_total" [VIEW], Type::Counter, Count, Start::Zero;
    "Derived items that the last audit found wrong and did not mend"
    DRIFT_ITEMS = "evenkeel_drift_items" [VIEW], Type::Gauge, Count, Start::Zero;
    "Unix time at which the last audit was completed, 0 for never"
    AUDIT_LAST_COMPLETED_TIMESTAMP = "evenkeel_audit_last_completed_timestamp_seconds" [VIEW], Type::Gauge, Seconds, Start::Zero;
    "Messages in the poison queue"
    POISON_MESSAGES = "evenkeel_poison_messages" [QUEUE], Type::Gauge, Count, Start::Absent;
    "Entities that requests to the account's tables named or found, at least one for each request"
    TABLE_ENTITIES_TOTAL = "evenkeel_table_entities_total" [ACCOUNT], Type::Counter, Count, Start::Zero;
    "Partitions, queues and containers that throttle and are left alone now"
    HELD_LANES = "evenkeel_held_lanes" [ACCOUNT], Type::Gauge, Count, Start::Zero;
    "Requests per second that the account is let have"
    PACE_REQUESTS = "evenkeel_pace_requests_per_second" [ACCOUNT], Type::Gauge, Count, Start::Absent;
    "Entities (of a queue: messages) per second of the busiest partition or queue in the last ten seconds"
    BUSIEST_PARTITION = "evenkeel_busiest_partition_entities_per_second" [ACCOUNT], Type::Gauge, Count, Start::Zero;
    "Declared tables that do not exist"
    MISSING_TABLES = "evenkeel_missing_tables" [ACCOUNT], Type::Gauge, Count, Start::Zero;
    "Jobs that wait for memory now"
    MEMORY_WAITING = "evenkeel_memory_waiting_jobs" [SHARE], Type::Gauge, Count, Start::Absent;
    "1 while the program does its work, else 0"
    READY = "evenkeel_ready" [], Type::Gauge, Count, Start::Zero;
    "Unix time at which the program was started"
    START_TIMESTAMP = "evenkeel_start_timestamp_seconds" [], Type::Gauge, Seconds, Start::Absent;
    "The program's version; always 1"
    BUILD_INFO = "evenkeel_build_info" [VERSION], Type::Gauge, Count, Start::Absent;
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
                metric.kind == Type::Counter,
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
