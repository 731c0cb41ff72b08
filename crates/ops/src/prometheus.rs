//! The recorder behind the metrics.

use metrics::SetRecorderError;
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use evenkeel_telemetry::names::{Buckets, METRICS, Type};
use evenkeel_telemetry::{announce_program, describe};

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
    // Other libraries' histograms, if there are any, are about requests too.
    let mut builder = PrometheusBuilder::new().set_buckets(Buckets::Request.seconds())?;
    for metric in METRICS {
        if let Type::Histogram(buckets) = metric.kind {
            let name = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(name, buckets.seconds())?;
        }
    }
    Ok(builder.build_recorder())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_histogram_has_buckets_in_seconds_and_a_description() {
        let recorder = recorder().unwrap();
        metrics::with_local_recorder(&recorder, || {
            describe();
            for metric in METRICS
                .iter()
                .filter(|metric| matches!(metric.kind, Type::Histogram(_)))
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
