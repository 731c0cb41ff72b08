//! Maps an answer of the service to an error class.
//!
//! Sources: "HTTP status codes (Azure AI Search)", "Documents - Index" (the status of each document).

use std::time::Duration;

use serde_json::Value;

use evenkeel_azure::http::{HttpAnswer, capped_wait, printable};
use evenkeel_storage::{ErrorClass, Missing};

const MESSAGE_CHARS: usize = 300;

/// Whether repeating a request could do harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchEffect {
    Read,
    /// Writes documents. A write without an answer may still arrive, and its error must show this.
    Write,
}

impl SearchEffect {
    pub(super) const fn unknown(self) -> ErrorClass {
        match self {
            Self::Read => ErrorClass::Transient { retry_after: None },
            Self::Write => ErrorClass::Ambiguous,
        }
    }
}

/// The class of a rejected request. A gateway's answer has no request id. It proves neither that something is absent nor that
/// nothing was executed.
pub(super) fn refused(effect: SearchEffect, answer: &HttpAnswer) -> ErrorClass {
    let retry_after = retry_after(answer);
    let named = answer.header("request-id").is_some();
    match answer.status {
        401 | 403 | 407 => ErrorClass::Unauthorised,
        404 if named => ErrorClass::NotFound(Missing::Container),
        408 | 503 if !named && effect == SearchEffect::Write => ErrorClass::Ambiguous,
        // 408: the service timed out waiting for the request. 409, 422: the index is being changed.
        408 | 409 | 422 => ErrorClass::Transient { retry_after },
        413 => ErrorClass::TooLarge,
        429 | 503 => ErrorClass::Throttled { retry_after },
        501 | 505 => ErrorClass::Permanent,
        404 | 410 | 500..=599 => effect.unknown(),
        _ => ErrorClass::Permanent,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DocumentResult {
    pub(super) key: String,
    /// The status of this document; 200 and 201 mean success.
    pub(super) status: u16,
    pub(super) message: Option<String>,
}

impl DocumentResult {
    pub(super) const fn class(&self) -> Result<(), ErrorClass> {
        match self.status {
            200..=299 => Ok(()),
            // 409: a concurrent write. 422: the index is unavailable. 429, 503: the service is busy.
            408 | 409 | 422 => Err(ErrorClass::Transient { retry_after: None }),
            429 | 503 => Err(ErrorClass::Throttled { retry_after: None }),
            413 => Err(ErrorClass::TooLarge),
            500..=599 => Err(ErrorClass::Ambiguous),
            _ => Err(ErrorClass::Permanent),
        }
    }
}

/// Parses the results of all documents. Returns `None` for an invalid body.
pub(super) fn verdicts(body: &[u8]) -> Option<Vec<DocumentResult>> {
    let json: Value = serde_json::from_slice(body).ok()?;
    let verdict = |value: &Value| {
        Some(DocumentResult {
            key: value.get("key")?.as_str()?.to_owned(),
            status: u16::try_from(value.get("statusCode")?.as_u64()?).ok()?,
            message: value
                .get("errorMessage")
                .and_then(Value::as_str)
                .and_then(short),
        })
    };
    json.get("value")?.as_array()?.iter().map(verdict).collect()
}

/// The message in `{"error":{"code":…,"message":…}}`.
pub(super) fn message(answer: &HttpAnswer) -> Option<String> {
    let json: Value = serde_json::from_slice(&answer.body).ok()?;
    json.get("error")?.get("message")?.as_str().and_then(short)
}

fn short(message: &str) -> Option<String> {
    let line = message
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())?;
    Some(printable(line, MESSAGE_CHARS))
}

/// `retry-after-ms`, or `Retry-After` in seconds.
fn retry_after(answer: &HttpAnswer) -> Option<Duration> {
    let milliseconds = answer
        .header("retry-after-ms")
        .and_then(|text| text.trim().parse().ok());
    milliseconds
        .map(|wait| capped_wait(Duration::from_millis(wait)))
        .or_else(|| answer.retry_after())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_azure::http::HttpFault;
    use reqwest::header::{HeaderMap, HeaderValue};

    fn gateway(status: u16, headers: &[(&'static str, &'static str)]) -> HttpAnswer {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| ((*name).parse().unwrap(), HeaderValue::from_static(value)))
            .collect();
        HttpAnswer {
            status,
            headers,
            body: Vec::new().into(),
        }
    }

    fn answer(status: u16, headers: &[(&'static str, &'static str)]) -> HttpAnswer {
        gateway(
            status,
            &[
                headers,
                &[("request-id", "7d6eb5c1"), ("elapsed-time", "5")],
            ]
            .concat(),
        )
    }

    #[test]
    fn only_a_write_whose_outcome_is_unknown_is_ambiguous() {
        for status in [500, 502, 504, 507] {
            assert_eq!(
                refused(SearchEffect::Write, &answer(status, &[])),
                ErrorClass::Ambiguous,
                "{status}"
            );
            assert_eq!(
                refused(SearchEffect::Read, &answer(status, &[])),
                ErrorClass::Transient { retry_after: None },
                "{status}"
            );
        }
        assert_eq!(
            HttpFault::Lost(String::new()).class(SearchEffect::Write.unknown()),
            ErrorClass::Ambiguous
        );
        assert_eq!(
            HttpFault::Refused(String::new()).class(SearchEffect::Write.unknown()),
            ErrorClass::Refused
        );
    }

    #[test]
    fn the_rest_of_the_table() {
        let expected = [
            (400, ErrorClass::Permanent),
            (401, ErrorClass::Unauthorised),
            (403, ErrorClass::Unauthorised),
            (404, ErrorClass::NotFound(Missing::Container)),
            (409, ErrorClass::Transient { retry_after: None }),
            (413, ErrorClass::TooLarge),
            (302, ErrorClass::Permanent),
        ];
        for (status, class) in expected {
            assert_eq!(
                refused(SearchEffect::Write, &answer(status, &[])),
                class,
                "{status}"
            );
        }
        let busy = |wait| ErrorClass::Throttled {
            retry_after: Some(wait),
        };
        assert_eq!(
            refused(SearchEffect::Write, &answer(503, &[("retry-after", "7")])),
            busy(Duration::from_secs(7))
        );
        assert_eq!(
            refused(
                SearchEffect::Write,
                &answer(429, &[("retry-after-ms", "50")])
            ),
            busy(Duration::from_millis(50))
        );
    }

    #[test]
    fn a_gateway_that_answers_for_the_service_proves_nothing() {
        let transient = ErrorClass::Transient { retry_after: None };
        for status in [404, 410] {
            assert_eq!(
                refused(SearchEffect::Read, &gateway(status, &[])),
                transient,
                "{status}"
            );
        }
        for status in [404, 408, 410, 503] {
            assert_eq!(
                refused(
                    SearchEffect::Write,
                    &gateway(status, &[("retry-after", "7")])
                ),
                ErrorClass::Ambiguous,
                "{status}"
            );
        }
        let busy = ErrorClass::Throttled {
            retry_after: Some(Duration::from_secs(7)),
        };
        assert_eq!(
            refused(SearchEffect::Read, &gateway(503, &[("retry-after", "7")])),
            busy
        );
    }

    #[test]
    fn each_document_has_a_verdict_of_its_own() {
        let body = br#"{"value":[{"key":"a","status":true,"errorMessage":null,"statusCode":201},
            {"key":"b","status":false,"errorMessage":"no such field\nand more","statusCode":400}]}"#;
        let found = verdicts(body).unwrap();
        assert_eq!(found[0].class(), Ok(()));
        assert_eq!(
            (found[1].class(), found[1].message.as_deref()),
            (Err(ErrorClass::Permanent), Some("no such field"))
        );
        let class = |status| {
            DocumentResult {
                key: String::new(),
                status,
                message: None,
            }
            .class()
        };
        assert_eq!(class(409), Err(ErrorClass::Transient { retry_after: None }));
        assert_eq!(class(503), Err(ErrorClass::Throttled { retry_after: None }));
        assert_eq!(class(500), Err(ErrorClass::Ambiguous));
        for unreadable in [
            &b""[..],
            b"[]",
            b"{\"value\":[{}]}",
            b"{\"value\":[{\"key\":\"a\",\"statusCode\":70000}]}",
        ] {
            assert_eq!(verdicts(unreadable), None);
        }
    }
}
