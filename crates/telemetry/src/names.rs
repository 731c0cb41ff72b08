//! The contract of metric names and labels, in one place.
//!
//! A name here is never changed or reused; more may be added. Units are in the names. Labels take their
//! values from configuration, from closed sets and from HTTP statuses, never from data: a key or a message id
//! in a label would make a time series per entity.

use metrics::Unit;

/// Jobs that ended. Labels: [`QUEUE`], [`OP`], [`OUTCOME`].
pub const JOBS_TOTAL: &str = "evenkeel_jobs_total";
/// Deliveries of jobs that ended, a job for each primary of a batch. Labels: [`QUEUE`], [`OP`], [`OUTCOME`].
pub const KEYS_TOTAL: &str = "evenkeel_keys_total";
/// How long runs took, from start to settled. Labels: [`QUEUE`], [`OP`].
pub const JOB_DURATION: &str = "evenkeel_job_duration_seconds";
/// From enqueued to converged. Labels: [`QUEUE`].
pub const LAG: &str = "evenkeel_lag_seconds";
/// From the last write of a primary until everything derived from it was in step. Labels: [`VIEW`].
pub const WRITE_TO_FOUND: &str = "evenkeel_write_to_found_seconds";
/// Jobs being run now. Labels: [`QUEUE`].
pub const JOBS_IN_FLIGHT: &str = "evenkeel_jobs_in_flight";
/// Jobs that may be run at once, all shards of a queue together. Labels: [`QUEUE`].
pub const CONCURRENCY: &str = "evenkeel_concurrency";
/// About how many messages the queue holds, hidden ones included. Labels: [`QUEUE`].
pub const QUEUE_MESSAGES: &str = "evenkeel_queue_messages";
/// Age of the oldest visible message. Labels: [`QUEUE`].
pub const QUEUE_OLDEST_AGE: &str = "evenkeel_queue_oldest_age_seconds";
/// When the queue was last asked for messages and answered, as Unix time; 0 for never. It goes on while every slot is taken. Labels: [`QUEUE`].
pub const LAST_POLL_TIMESTAMP: &str = "evenkeel_last_poll_timestamp_seconds";
/// Requests for messages with a lost answer. Labels: [`QUEUE`].
pub const UNANSWERED_POLLS_TOTAL: &str = "evenkeel_unanswered_polls_total";
/// Leases that were renewed, or not. Labels: [`QUEUE`], [`OUTCOME`].
pub const LEASE_RENEWALS_TOTAL: &str = "evenkeel_lease_renewals_total";
/// Messages moved to the poison queue. Labels: [`QUEUE`], [`REASON`].
pub const POISONED_TOTAL: &str = "evenkeel_poisoned_total";
/// Sync jobs that shared the run of another one of their primary. Labels: [`QUEUE`].
pub const JOBS_FOLDED_TOTAL: &str = "evenkeel_jobs_folded_total";
/// Fields in messages that no job has; they are ignored. Labels: [`QUEUE`].
pub const UNKNOWN_FIELDS_TOTAL: &str = "evenkeel_unknown_fields_total";
/// Storage requests that were tried again. Labels: [`OP`], [`CLASS`].
pub const RETRIES_TOTAL: &str = "evenkeel_retries_total";
/// 1 while the service refuses as a whole, else 0. Labels: [`ACCOUNT`], [`SERVICE`].
pub const CIRCUIT_OPEN: &str = "evenkeel_circuit_open";
/// Storage requests that were sent. Labels: [`ACCOUNT`], [`SERVICE`], [`OP`], [`STATUS`].
pub const STORAGE_REQUESTS_TOTAL: &str = "evenkeel_storage_requests_total";
/// How long storage requests took. Labels: [`ACCOUNT`], [`SERVICE`], [`OP`], [`STATUS`].
pub const STORAGE_REQUEST_DURATION: &str = "evenkeel_storage_request_duration_seconds";
/// Derived items that were written or deleted. Labels: [`VIEW`], [`ACTION`].
pub const ITEMS_TOTAL: &str = "evenkeel_items_total";
/// Deliveries that failed and left items of a view out of step. Labels: [`VIEW`].
pub const VIEW_FAILURES_TOTAL: &str = "evenkeel_view_failures_total";
/// Derived items that the last audit found wrong and did not mend. Labels: [`VIEW`].
pub const DRIFT_ITEMS: &str = "evenkeel_drift_items";
/// When the last audit was completed, as Unix time; 0 for never. Labels: [`VIEW`].
pub const AUDIT_LAST_COMPLETED_TIMESTAMP: &str = "evenkeel_audit_last_completed_timestamp_seconds";

/// Messages in the poison queue of a queue as configured, copies included. Labels: [`QUEUE`].
pub const POISON_MESSAGES: &str = "evenkeel_poison_messages";
/// Partitions, queues and containers that throttle and are left alone now. Labels: [`ACCOUNT`].
pub const HELD_LANES: &str = "evenkeel_held_lanes";
/// Requests per second that the account is let have. Labels: [`ACCOUNT`].
pub const PACE_REQUESTS: &str = "evenkeel_pace_requests_per_second";
/// Entities that requests to an account's tables named or found. Labels: [`ACCOUNT`].
pub const TABLE_ENTITIES_TOTAL: &str = "evenkeel_table_entities_total";
/// Entities per second that the busiest partition, or messages that the busiest queue, was asked for in the last ten
/// seconds. Labels: [`ACCOUNT`].
pub const BUSIEST_PARTITION: &str = "evenkeel_busiest_partition_entities_per_second";
/// Declared tables that do not exist. Labels: [`ACCOUNT`].
pub const MISSING_TABLES: &str = "evenkeel_missing_tables";
/// 1 while the program does its work, else 0.
pub const READY: &str = "evenkeel_ready";
/// When the program was started, as Unix time.
pub const START_TIMESTAMP: &str = "evenkeel_start_timestamp_seconds";
/// Always 1. Labels: [`VERSION`].
pub const BUILD_INFO: &str = "evenkeel_build_info";

/// Jobs that wait for memory now. Labels: [`SHARE`].
pub const MEMORY_WAITING: &str = "evenkeel_memory_waiting_jobs";

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
    Histogram,
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
    /// Its description, for people.
    pub description: &'static str,
}

const fn metric(
    kind: Type,
    unit: Unit,
    name: &'static str,
    labels: &'static [&'static str],
    description: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        unit,
        labels,
        description,
    }
}

/// Every metric, in the order in which the documentation lists them.
pub const METRICS: [Metric; 33] = [
    metric(
        Type::Counter,
        Unit::Count,
        JOBS_TOTAL,
        &[QUEUE, OP, OUTCOME],
        "Jobs that ended, by how they ended",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        KEYS_TOTAL,
        &[QUEUE, OP, OUTCOME],
        "Jobs about primaries that ended, one for each primary of a batch",
    ),
    metric(
        Type::Histogram,
        Unit::Seconds,
        JOB_DURATION,
        &[QUEUE, OP],
        "How long runs took, from start to settled",
    ),
    metric(
        Type::Histogram,
        Unit::Seconds,
        LAG,
        &[QUEUE],
        "Time from enqueued to converged",
    ),
    metric(
        Type::Histogram,
        Unit::Seconds,
        WRITE_TO_FOUND,
        &[VIEW],
        "Time from the last write of a primary until everything derived from it was in step",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        JOBS_IN_FLIGHT,
        &[QUEUE],
        "Jobs being run now",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        CONCURRENCY,
        &[QUEUE],
        "Jobs that may be run at once, all shards of a queue together",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        QUEUE_MESSAGES,
        &[QUEUE],
        "About how many messages the queue holds, hidden ones included",
    ),
    metric(
        Type::Gauge,
        Unit::Seconds,
        QUEUE_OLDEST_AGE,
        &[QUEUE],
        "Age of the oldest visible message, 0 where there is none",
    ),
    metric(
        Type::Gauge,
        Unit::Seconds,
        LAST_POLL_TIMESTAMP,
        &[QUEUE],
        "Unix time at which the queue last answered a request for messages, 0 for never",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        UNANSWERED_POLLS_TOTAL,
        &[QUEUE],
        "Requests for messages whose answer was lost",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        LEASE_RENEWALS_TOTAL,
        &[QUEUE, OUTCOME],
        "Renewals of leases, by how they ended",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        POISONED_TOTAL,
        &[QUEUE, REASON],
        "Messages moved to the poison queue, by reason",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        JOBS_FOLDED_TOTAL,
        &[QUEUE],
        "Sync jobs that shared the run of another one of their primary",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        UNKNOWN_FIELDS_TOTAL,
        &[QUEUE],
        "Fields in messages that no job has, and which were ignored",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        RETRIES_TOTAL,
        &[OP, CLASS],
        "Storage requests that were tried again, by what had failed",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        CIRCUIT_OPEN,
        &[ACCOUNT, SERVICE],
        "1 while the storage service refuses as a whole, else 0",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        STORAGE_REQUESTS_TOTAL,
        &[ACCOUNT, SERVICE, OP, STATUS],
        "Storage requests that were sent; an entity group transaction is one",
    ),
    metric(
        Type::Histogram,
        Unit::Seconds,
        STORAGE_REQUEST_DURATION,
        &[ACCOUNT, SERVICE, OP, STATUS],
        "How long storage requests took",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        ITEMS_TOTAL,
        &[VIEW, ACTION],
        "Derived items that were written or deleted",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        VIEW_FAILURES_TOTAL,
        &[VIEW],
        "Deliveries that failed and left items of the view out of step",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        DRIFT_ITEMS,
        &[VIEW],
        "Derived items that the last audit found wrong and did not mend",
    ),
    metric(
        Type::Gauge,
        Unit::Seconds,
        AUDIT_LAST_COMPLETED_TIMESTAMP,
        &[VIEW],
        "Unix time at which the last audit was completed, 0 for never",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        POISON_MESSAGES,
        &[QUEUE],
        "Messages in the poison queue",
    ),
    metric(
        Type::Counter,
        Unit::Count,
        TABLE_ENTITIES_TOTAL,
        &[ACCOUNT],
        "Entities that requests to the account's tables named or found, at least one for each request",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        HELD_LANES,
        &[ACCOUNT],
        "Partitions, queues and containers that throttle and are left alone now",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        PACE_REQUESTS,
        &[ACCOUNT],
        "Requests per second that the account is let have",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        BUSIEST_PARTITION,
        &[ACCOUNT],
        "Entities (of a queue: messages) per second of the busiest partition or queue in the last ten seconds",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        MISSING_TABLES,
        &[ACCOUNT],
        "Declared tables that do not exist",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        MEMORY_WAITING,
        &[SHARE],
        "Jobs that wait for memory now",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        READY,
        &[],
        "1 while the program does its work, else 0",
    ),
    metric(
        Type::Gauge,
        Unit::Seconds,
        START_TIMESTAMP,
        &[],
        "Unix time at which the program was started",
    ),
    metric(
        Type::Gauge,
        Unit::Count,
        BUILD_INFO,
        &[VERSION],
        "The program's version; always 1",
    ),
];

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
