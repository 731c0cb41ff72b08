//! The functions of `traces` without effect, for programs built without the feature `otlp`.

use std::collections::HashMap;

use tracing::Span;
use tracing_subscriber::layer::Identity;

#[derive(Debug, Clone)]
pub struct TraceOptions {
    pub endpoint: String,
    pub headers: HashMap<String, String>,
    pub share: f64,
    pub instance: String,
}

/// No value exists, because spans cannot be exported.
#[derive(Debug)]
pub enum Traces {}

#[derive(Debug, thiserror::Error)]
#[error("traces.endpoint is set, but this program was built without the feature \"otlp\"")]
pub struct NotBuilt;

impl Traces {
    /// Always fails.
    pub fn begin(_: TraceOptions) -> Result<Self, NotBuilt> {
        Err(NotBuilt)
    }

    pub fn layer(&self) -> Identity {
        match *self {}
    }
}

pub const fn enabled() -> bool {
    false
}

pub const fn set_parent(_: &Span, _: Option<&str>) {}

pub const fn record_outcome(_: &'static str, _: Option<&str>) {}

pub const fn request_span(_: &str, _: &'static str, _: &'static str, _: &str) -> Span {
    Span::none()
}

pub const fn record_answer(_: &Span, _: &'static str, _: Option<u16>) {}
