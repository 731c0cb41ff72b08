//! Descriptions for the recorder, and zeros where nothing has happened yet.

use jiff::Timestamp;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};

use super::names::{self, METRICS, Type};

/// Registers the description and unit of every metric. Call once, after the recorder is installed and before
/// anything is counted.
pub fn describe() {
    for metric in METRICS {
        match metric.kind {
            Type::Counter => describe_counter!(metric.name, metric.unit, metric.description),
            Type::Gauge => describe_gauge!(metric.name, metric.unit, metric.description),
            Type::Histogram => describe_histogram!(metric.name, metric.unit, metric.description),
        }
    }
}

/// Says which program this is, and that it is not at work yet.
pub fn announce_program() {
    gauge!(names::BUILD_INFO, names::VERSION => env!("CARGO_PKG_VERSION")).set(1.0);
    gauge!(names::READY).set(0.0);
}

/// Says when this program was started. `process_start_time_seconds` needs `/proc/stat`, which a service may not see.
pub fn announce_start(at: Timestamp) {
    gauge!(names::START_TIMESTAMP).set(at.as_duration().as_secs_f64());
}

/// Makes an account's gauges report zero until something happens.
pub fn announce_account(account: &str) {
    for name in [
        names::HELD_LANES,
        names::BUSIEST_PARTITION,
        names::MISSING_TABLES,
    ] {
        gauge!(name, names::ACCOUNT => account.to_owned()).set(0.0);
    }
    counter!(names::TABLE_ENTITIES_TOTAL, names::ACCOUNT => account.to_owned()).increment(0);
}

/// Makes a queue's gauges and the counters behind alerts (poison, renewals, panics of these operations, unknown fields) report zero until
/// something happens: an increase is seen from zero alone. (Other counters of jobs appear with the first job of each `op`: the full
/// cross product would be mostly noise.)
pub fn announce_queue(queue: &str, ops: &[&'static str]) {
    for name in [
        names::JOBS_IN_FLIGHT,
        names::QUEUE_MESSAGES,
        names::QUEUE_OLDEST_AGE,
        names::LAST_POLL_TIMESTAMP,
    ] {
        gauge!(name, names::QUEUE => queue.to_owned()).set(0.0);
    }
    for reason in names::POISON_REASONS {
        counter!(names::POISONED_TOTAL, names::QUEUE => queue.to_owned(), names::REASON => reason)
            .absolute(0);
    }
    for name in [names::UNANSWERED_POLLS_TOTAL, names::UNKNOWN_FIELDS_TOTAL] {
        counter!(name, names::QUEUE => queue.to_owned()).absolute(0);
    }
    for op in ops {
        counter!(names::JOBS_TOTAL, names::QUEUE => queue.to_owned(), names::OP => *op, names::OUTCOME => "panic").absolute(0);
    }
    for outcome in ["renewed", "lost", "failed"] {
        counter!(names::LEASE_RENEWALS_TOTAL, names::QUEUE => queue.to_owned(), names::OUTCOME => outcome).absolute(0);
    }
}

/// Makes a view's gauges and item counters report zero until something happens.
pub fn announce_view(view: &str) {
    for name in [names::DRIFT_ITEMS, names::AUDIT_LAST_COMPLETED_TIMESTAMP] {
        gauge!(name, names::VIEW => view.to_owned()).set(0.0);
    }
    counter!(names::VIEW_FAILURES_TOTAL, names::VIEW => view.to_owned()).absolute(0);
    for action in ["create", "update", "delete"] {
        counter!(names::ITEMS_TOTAL, names::VIEW => view.to_owned(), names::ACTION => action)
            .absolute(0);
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn a_queue_and_a_view_report_zero_before_anything_happened() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            describe();
            announce_start(Timestamp::from_second(1_795_000_000).unwrap());
            announce_queue("evenkeel-jobs", &["sync", "put"]);
            announce_view("employees_by_email");
        });
        let text = recorder.handle().render();
        for line in [
            "# HELP evenkeel_jobs_in_flight Jobs being run now",
            "# TYPE evenkeel_jobs_in_flight gauge",
            "evenkeel_jobs_in_flight{queue=\"evenkeel-jobs\"} 0",
            "evenkeel_start_timestamp_seconds 1795000000",
            "evenkeel_queue_oldest_age_seconds{queue=\"evenkeel-jobs\"} 0",
            "evenkeel_poisoned_total{queue=\"evenkeel-jobs\",reason=\"exhausted\"} 0",
            "evenkeel_unknown_fields_total{queue=\"evenkeel-jobs\"} 0",
            "evenkeel_jobs_total{queue=\"evenkeel-jobs\",op=\"put\",outcome=\"panic\"} 0",
            "evenkeel_drift_items{view=\"employees_by_email\"} 0",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line:?} is not in\n{text}"
            );
        }
    }
}
