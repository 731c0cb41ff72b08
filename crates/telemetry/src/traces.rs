//! Exports a span for each job and for each of its storage requests. The span of a job continues the trace that its
//! message names.
//!
//! A separate thread sends spans in batches over HTTP (OTLP, protobuf) if `[traces] endpoint` is set. Otherwise a job
//! only pays for checking a flag.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::trace::{
    SpanContext, SpanId, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::{Level, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::registry::LookupSpan;

/// Whether spans are created.
static ENABLED: AtomicBool = AtomicBool::new(false);
/// Timeout of an export, also of the last one when the program ends.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct TraceOptions {
    /// The complete URL, such as `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: String,
    /// HTTP headers. They may contain a secret.
    pub headers: HashMap<String, String>,
    /// Share of the traces started here that are exported, from 0 to 1. The sampling decision of a client has
    /// precedence.
    pub share: f64,
    /// Identifies this process.
    pub instance: String,
}

/// Exports spans until it is dropped. The drop flushes the remaining ones, for at most five seconds.
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts the export. It does not connect yet.
    pub fn begin(options: TraceOptions) -> Result<Self, ExporterBuildError> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(options.endpoint)
            .with_headers(options.headers)
            .with_timeout(TIMEOUT)
            .build()?;
        let resource = Resource::builder()
            .with_service_name("evenkeel")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", options.instance))
            .build();
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(options.share)));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(sampler)
            .with_resource(resource)
            .build();
        ENABLED.store(true, Ordering::Relaxed);
        Ok(Self(provider))
    }

    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let own = filter_fn(|metadata| {
            metadata.is_span()
                && metadata.target().starts_with("evenkeel")
                && *metadata.level() <= Level::DEBUG
        })
        .with_max_level_hint(LevelFilter::DEBUG);
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("evenkeel"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(own)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        ENABLED.store(false, Ordering::Relaxed);
        if let Err(error) = self.0.shutdown_with_timeout(TIMEOUT) {
            tracing::warn!(%error, "could not export the last spans: {error}");
        }
    }
}

pub fn enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Makes the trace in a message (W3C `traceparent`) the parent of a job's span. An invalid one is ignored.
pub fn set_parent(span: &Span, traceparent: Option<&str>) {
    if enabled()
        && let Some(parent) = traceparent.and_then(parse)
    {
        // This fails only if the span is disabled. Such a span needs no parent.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// Records the outcome of the current job.
pub fn record_outcome(outcome: &'static str, error: Option<&str>) {
    if !enabled() {
        return;
    }
    let span = Span::current();
    span.set_attribute("evenkeel.outcome", outcome);
    if let Some(error) = error {
        span.set_status(Status::error(error.to_owned()));
    }
}

/// Creates the span of a storage request. There is none outside a job, so that polling creates no traces.
pub fn request_span(account: &str, service: &'static str, op: &'static str, on: &str) -> Span {
    if !enabled() || Span::current().is_none() {
        return Span::none();
    }
    tracing::debug_span!(
        target: "evenkeel::storage",
        "request",
        otel.name = format!("{op} {on}"),
        otel.kind = "client",
        account,
        service,
        op,
        on,
    )
}

/// Records the answer to a request.
pub fn record_answer(span: &Span, answer: &'static str, status: Option<u16>) {
    if span.is_none() {
        return;
    }
    span.set_attribute("evenkeel.answer", answer);
    if let Some(status) = status {
        span.set_attribute("http.response.status_code", i64::from(status));
    }
}

/// Parses a W3C trace context: `00-<32 hex digits>-<16>-<2>`.
fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.trim().split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let lower = |text: &str, length| {
        text.len() == length
            && text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    // Later versions may have more parts; version 255 is invalid.
    if !lower(version, 2)
        || version == "ff"
        || (version == "00" && parts.next().is_some())
        || !lower(flags, 2)
        || !lower(trace, 32)
        || !lower(span, 16)
    {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()? & 1);
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        flags,
        true,
        TraceState::default(),
    );
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_w3c_trace_context_is_parsed() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = parse(good).unwrap();
        assert_eq!(
            (context.trace_id().to_string(), context.is_sampled()),
            ("4bf92f3577b34da6a3ce929d0e0e4736".to_owned(), true)
        );
        assert!(!parse(&good.replace("-01", "-00")).unwrap().is_sampled());
        assert!(
            parse(&format!("cc{}-more", &good[2..])).is_some(),
            "a later version"
        );
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-한",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn no_span_is_created_without_an_exporter() {
        assert!(!enabled() && request_span("main", "table", "get_entity", "T").is_none());
        record_outcome("done", None);
    }
}
