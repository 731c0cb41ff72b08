use std::collections::HashMap;

use anyhow::Context as _;
use secrecy::ExposeSecret as _;

use super::run::worker_name;
use crate::cli::UsageError;
use evenkeel_model::settings::TraceSettings;
use evenkeel_telemetry::traces::{TraceOptions, Traces};

pub(super) fn begin(settings: &TraceSettings) -> anyhow::Result<Option<Traces>> {
    let Some(endpoint) = settings.endpoint.clone() else {
        return Ok(None);
    };
    let headers = settings
        .headers
        .as_ref()
        .map(|headers| headers_of(headers.expose_secret()))
        .transpose()?
        .unwrap_or_default();
    let share = f64::from(settings.sample_percent) / 100.0;
    let options = TraceOptions {
        endpoint,
        headers,
        share,
        instance: worker_name(),
    };
    Ok(Some(
        Traces::begin(options).context("could not set up [traces]")?,
    ))
}

/// Parses `name=value,name=value`. Error messages contain no value, because a value may be a
/// secret.
fn headers_of(text: &str) -> anyhow::Result<HashMap<String, String>> {
    let pairs = text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    let pair = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(UsageError::new(
            "traces.headers: expected name=value pairs, separated by commas".to_owned(),
        )
        .into()),
    };
    pairs.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs_and_an_error_does_not_contain_them() {
        let headers = headers_of("authorization=Bearer a=b, x-scope = 7 ,").unwrap();
        assert_eq!(
            (
                headers["authorization"].as_str(),
                headers["x-scope"].as_str(),
                headers.len()
            ),
            ("Bearer a=b", "7", 2)
        );
        let error = headers_of("s3cret").unwrap_err().to_string();
        assert!(
            error.contains("name=value") && !error.contains("s3cret"),
            "{error}"
        );
    }
}
