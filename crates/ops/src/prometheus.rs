//! The recorder behind the metrics.

use metrics::SetRecorderError;
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use evenkeel_telemetry::{announce_program, describe, names};

/// Storage requests: a cached point read takes milliseconds, and nothing waits longer than 30 s (the services'
/// own limit for a query).
const REQUEST_SECONDS: [f64; 14] = [
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
/// Runs: a few requests each, up to the job timeout of ten minutes.
const JOB_SECONDS: [f64; 15] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0,
];
/// Lag: from at once up to the six hours after which a job is given up.
const LAG_SECONDS: [f64; 16] = [
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0,
    21_600.0,
];

/// Why the recorder could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A histogram without buckets: a bug.
    #[error("the metrics recorder cannot be built")]
    Build(#[from] BuildError),
    /// There is one already.
    #[error("a metrics recorder is installed already")]
    Already(#[from] SetRecorderError<PrometheusRecorder>),
}

/// Installs the process's recorder and describes every metric. Call once, before anything is counted, and only
/// where a [`Server`](super::Server) will run: it is the server that keeps the recorder's memory bounded.
pub fn install() -> Result<PrometheusHandle, InstallError> {
    let recorder = recorder()?;
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    describe();
    announce_program();
    Ok(handle)
}

pub(super) fn recorder() -> Result<PrometheusRecorder, BuildError> {
    let buckets = |name: &str| Matcher::Full(name.to_owned());
    Ok(PrometheusBuilder::new()
        .set_buckets(&REQUEST_SECONDS)?
        .set_buckets_for_metric(buckets(names::STORAGE_REQUEST_DURATION), &REQUEST_SECONDS)?
        .set_buckets_for_metric(buckets(names::JOB_DURATION), &JOB_SECONDS)?
        .set_buckets_for_metric(buckets(names::LAG), &LAG_SECONDS)?
        .set_buckets_for_metric(buckets(names::WRITE_TO_FOUND), &LAG_SECONDS)?
        .build_recorder())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_telemetry::names::{METRICS, Type};

    #[test]
    fn every_histogram_has_buckets_in_seconds_and_a_description() {
        let recorder = recorder().unwrap();
        metrics::with_local_recorder(&recorder, || {
            describe();
            for metric in METRICS
                .iter()
                .filter(|metric| metric.kind == Type::Histogram)
            {
                metrics::histogram!(metric.name).record(0.02);
            }
        });
        let text = recorder.handle().render();
        for (name, longest) in [
            ("evenkeel_storage_request_duration_seconds", "30"),
            ("evenkeel_job_duration_seconds", "600"),
            ("evenkeel_lag_seconds", "21600"),
            ("evenkeel_write_to_found_seconds", "21600"),
        ] {
            assert!(text.contains(&format!("# HELP {name} ")), "{text}");
            assert!(
                text.contains(&format!("{name}_bucket{{le=\"0.01\"}} 0")),
                "{text}"
            );
            assert!(
                text.contains(&format!("{name}_bucket{{le=\"0.025\"}} 1")),
                "{text}"
            );
            assert!(
                text.contains(&format!("{name}_bucket{{le=\"{longest}\"}} 1")),
                "{text}"
            );
        }
    }
}
