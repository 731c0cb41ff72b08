//! The metrics recorder.

use metrics::SetRecorderError;
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use evenkeel_telemetry::names::{Buckets, METRICS, MetricType};
use evenkeel_telemetry::{announce_program, describe};

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A histogram is declared without buckets, which is a bug.
    #[error("could not build the metrics recorder")]
    Build(#[from] BuildError),
    #[error("a metrics recorder is already installed")]
    Already(#[from] SetRecorderError<PrometheusRecorder>),
}

/// Installs the metrics recorder of the process and describes every metric. Call this once, before anything is counted,
/// and only if a [`Server`](super::Server) will run, because the server regularly reduces the recorder's memory.
pub fn install() -> Result<PrometheusHandle, InstallError> {
    let recorder = recorder()?;
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    describe();
    announce_program();
    Ok(handle)
}

pub(super) fn recorder() -> Result<PrometheusRecorder, BuildError> {
    // Histograms that other libraries may record get the buckets for requests.
    let mut builder = PrometheusBuilder::new().set_buckets(Buckets::Request.seconds())?;
    for metric in METRICS {
        if let MetricType::Histogram(buckets) = metric.kind {
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
                .filter(|metric| matches!(metric.kind, MetricType::Histogram(_)))
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
