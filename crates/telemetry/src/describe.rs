//! Describes all metrics to the recorder, and sets them to zero at the start.

use jiff::Timestamp;
use metrics::{Label, counter, describe_counter, describe_gauge, describe_histogram, gauge};

use super::names::{self, InitialValue, METRICS, Metric, MetricType};

/// Registers the description and unit of every metric. Call it once, after the recorder is installed and before
/// anything is counted.
pub fn describe() {
    for metric in METRICS {
        match metric.kind {
            MetricType::Counter => describe_counter!(metric.name, metric.unit, metric.description),
            MetricType::Gauge => describe_gauge!(metric.name, metric.unit, metric.description),
            MetricType::Histogram(_) => {
                describe_histogram!(metric.name, metric.unit, metric.description);
            }
        }
    }
}

/// Reports the version of the program, and that it is not ready yet.
pub fn announce_program() {
    gauge!(names::BUILD_INFO, names::VERSION => env!("CARGO_PKG_VERSION")).set(1.0);
    announce(None);
}

/// Reports when the program started. `process_start_time_seconds` is not a substitute, since it needs `/proc/stat`,
/// which a service may not be allowed to read.
pub fn announce_start(at: Timestamp) {
    gauge!(names::START_TIMESTAMP).set(at.as_duration().as_secs_f64());
}

/// Sets an account's metrics to zero.
pub fn announce_account(account: &str) {
    announce(Some((names::ACCOUNT, account)));
}

/// Sets a queue's metrics to zero, including its number of panics in jobs with these `ops`. Its other job counters
/// appear with the first job of each `op`, since most of the possible combinations never occur.
pub fn announce_queue(queue: &str, ops: &[&'static str]) {
    announce(Some((names::QUEUE, queue)));
    for op in ops {
        counter!(names::JOBS_TOTAL, names::QUEUE => queue.to_owned(), names::OP => *op, names::OUTCOME => "panic").absolute(0);
    }
}

/// Sets a view's metrics to zero.
pub fn announce_view(view: &str) {
    announce(Some((names::VIEW, view)));
}

/// If `subject` is a label, sets the metrics to zero that have it as their first label. If `subject` is `None`, sets the metrics
/// without labels to zero.
fn announce(subject: Option<(&'static str, &str)>) {
    for metric in METRICS {
        if metric.labels.first().copied() != subject.map(|(label, _)| label) {
            continue;
        }
        let labels: Vec<Label> = subject
            .map(|(label, value)| Label::new(label, value.to_owned()))
            .into_iter()
            .collect();
        match metric.start {
            InitialValue::Absent => {}
            InitialValue::Zero => zero(metric, labels),
            InitialValue::ZeroFor(values) => {
                for value in values {
                    let second = metric.labels.get(1).map(|label| Label::new(*label, *value));
                    zero(metric, labels.iter().cloned().chain(second).collect());
                }
            }
        }
    }
}

fn zero(metric: &Metric, labels: Vec<Label>) {
    match metric.kind {
        // An account or queue may be announced again, which must not reset its counters.
        MetricType::Counter => counter!(metric.name, labels).increment(0),
        MetricType::Gauge => gauge!(metric.name, labels).set(0.0),
        // A histogram has no zero value.
        MetricType::Histogram(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn a_zero_is_reported_for_all_labels_of_its_metric_or_for_none() {
        for metric in METRICS {
            let labels = match metric.start {
                InitialValue::Absent => continue,
                InitialValue::Zero => metric.labels.len(),
                InitialValue::ZeroFor(values) => {
                    assert!(!values.is_empty(), "{}", metric.name);
                    metric.labels.len() - 1
                }
            };
            let subject = metric.labels.first();
            let known = [names::ACCOUNT, names::QUEUE, names::VIEW];
            assert!(
                labels == usize::from(subject.is_some())
                    && subject.is_none_or(|label| known.contains(label))
                    && !matches!(metric.kind, MetricType::Histogram(_)),
                "{}: nobody announces its zero",
                metric.name
            );
        }
    }

    #[test]
    fn a_queue_and_a_view_report_zero_before_anything_happened() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            describe();
            announce_start(Timestamp::from_second(1_795_000_000).unwrap());
            announce_queue("evenkeel-jobs", &["sync", "put"]);
            announce_view("employees_by_email");
            announce_account("main");
            announce_program();
        });
        let text = recorder.handle().render();
        for line in [
            "# HELP evenkeel_jobs_in_flight Jobs running now",
            "# TYPE evenkeel_jobs_in_flight gauge",
            "evenkeel_jobs_in_flight{queue=\"evenkeel-jobs\"} 0",
            "evenkeel_start_timestamp_seconds 1795000000",
            "evenkeel_queue_oldest_age_seconds{queue=\"evenkeel-jobs\"} 0",
            "evenkeel_poisoned_total{queue=\"evenkeel-jobs\",reason=\"exhausted\"} 0",
            "evenkeel_unknown_fields_total{queue=\"evenkeel-jobs\"} 0",
            "evenkeel_jobs_total{queue=\"evenkeel-jobs\",op=\"put\",outcome=\"panic\"} 0",
            "evenkeel_lease_renewals_total{queue=\"evenkeel-jobs\",outcome=\"lost\"} 0",
            "evenkeel_items_total{view=\"employees_by_email\",action=\"create\"} 0",
            "evenkeel_throttled_scopes{account=\"main\"} 0",
            "evenkeel_ready 0",
            "evenkeel_drift_items{view=\"employees_by_email\"} 0",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line:?} is not in\n{text}"
            );
        }
    }
}
