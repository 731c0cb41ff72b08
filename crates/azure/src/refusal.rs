//! A rejected request: status, code, message, and the requested wait.
//!
//! The code is in the header `x-ms-error-code` (queues and blobs, and tables of Azurite), in `odata.error` (tables of Azure, which
//! send no such header) or in XML. Any body can be parsed, even one from a proxy.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::transport::HttpAnswer;
use super::{http_date, xml};
use crate::http::{STORAGE_REQUEST_ID, capped_wait, printable};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Refusal {
    pub status: u16,
    pub code: Option<String>,
    pub message: Option<String>,
    /// The index at the start of a transaction's message ("3:The entity exists").
    pub index: Option<usize>,
    pub retry_after: Option<Duration>,
    /// The id that the service gave the request. Azure support asks for this id.
    pub request_id: Option<String>,
}

const MESSAGE_CHARS: usize = 300;

impl Refusal {
    pub(super) fn of(answer: &HttpAnswer) -> Self {
        Self::read(answer.status, &answer.headers, &answer.body)
    }

    pub(super) fn read(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let (body_code, message) = read_json(&text)
            .or_else(|| read_xml(&text))
            .unwrap_or_default();
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let message = message.as_deref().and_then(first_line);
        let (index, message) = match message {
            Some(message) => split_index(message),
            None => (None, None),
        };
        Self {
            status,
            code: header("x-ms-error-code")
                .and_then(clean_code)
                .or_else(|| body_code.as_deref().and_then(clean_code)),
            message,
            index,
            retry_after: retry_after(headers),
            request_id: header(STORAGE_REQUEST_ID).and_then(clean_code),
        }
    }

    /// Whether the service itself answered. It puts an id on every answer; proxies and gateways do not.
    pub(super) const fn is_of_the_service(&self) -> bool {
        self.request_id.is_some()
    }

    /// The service's code. Gateways and resource managers use codes with the same names (`ResourceNotFound`). Their codes
    /// are ignored.
    pub(super) fn service_code(&self) -> Option<&str> {
        self.code.as_deref().filter(|_| self.is_of_the_service())
    }

    pub(super) fn is(&self, code: &str) -> bool {
        self.service_code() == Some(code)
    }
}

/// Parses `{"odata.error":{"code":…,"message":{"value":…}}}`, or the same under `error`, with or without `value`.
fn read_json(text: &str) -> Option<(Option<String>, Option<String>)> {
    let json: Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).ok()?;
    let error = json.get("odata.error").or_else(|| json.get("error"))?;
    let code = error.get("code").and_then(Value::as_str).map(str::to_owned);
    let message = error.get("message");
    let message = message.and_then(|m| {
        m.as_str()
            .or_else(|| m.get("value").and_then(Value::as_str))
    });
    Some((code, message.map(str::to_owned)))
}

/// Parses `<Error><Code>…</Code><Message>…</Message></Error>`. Tables use lower-case names.
fn read_xml(text: &str) -> Option<(Option<String>, Option<String>)> {
    let code = xml::text_of(text, "Code");
    let message = xml::text_of(text, "Message");
    (code.is_some() || message.is_some()).then_some((code, message))
}

/// Accepts a code of one word. Anything else does not come from Azure Storage.
fn clean_code(code: &str) -> Option<String> {
    let valid = (1..=64).contains(&code.len())
        && code
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    valid.then(|| code.to_owned())
}

/// Azure appends `RequestId:…` and `Time:…` on separate lines.
fn first_line(message: &str) -> Option<&str> {
    message.lines().map(str::trim).find(|line| !line.is_empty())
}

fn split_index(message: &str) -> (Option<usize>, Option<String>) {
    let short = |text: &str| {
        let text = text.trim();
        (!text.is_empty()).then(|| printable(text, MESSAGE_CHARS))
    };
    match message.split_once(':') {
        Some((digits, rest))
            if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            (digits.parse().ok(), short(rest))
        }
        _ => (None, short(message)),
    }
}

/// Parses `retry-after-ms`, `x-ms-retry-after-ms`, or `Retry-After` in seconds or as a date. A date is compared with the `Date`
/// of the answer, so that this machine's clock does not matter.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    requested_wait(headers).map(capped_wait)
}

fn requested_wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    if let Some(ms) = text("retry-after-ms")
        .or_else(|| text("x-ms-retry-after-ms"))
        .and_then(|ms| ms.parse().ok())
    {
        return Some(Duration::from_millis(ms));
    }
    let value = text("retry-after")?;
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let (then, now): (Timestamp, Timestamp) =
        (http_date::parse(value)?, http_date::parse(text("date")?)?);
    Some(Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.insert(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn tables_of_azure_send_their_code_in_the_body_alone() {
        let body = br#"{"odata.error":{"code":"TableNotFound","message":{"lang":"en-US","value":"The table specified does not exist.\nRequestId:1\nTime:2"}}}"#;
        let refusal = Refusal::read(404, &HeaderMap::new(), body);
        assert_eq!(refusal.code.as_deref(), Some("TableNotFound"));
        assert_eq!(
            refusal.message.as_deref(),
            Some("The table specified does not exist.")
        );
    }

    #[test]
    fn xml_is_read_in_both_spellings_and_behind_a_byte_order_mark() {
        for body in [
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>QueueNotFound</Code><Message>m\nRequestId:1</Message></Error>",
            "<error xmlns=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\"><code>QueueNotFound</code><message xml:lang=\"en-US\">m</message></error>",
        ] {
            let refusal = Refusal::read(404, &HeaderMap::new(), body.as_bytes());
            assert_eq!(
                (refusal.code.as_deref(), refusal.message.as_deref()),
                (Some("QueueNotFound"), Some("m"))
            );
        }
    }

    #[test]
    fn a_transaction_names_the_operation_that_failed() {
        let body = br#"{"odata.error":{"code":"EntityAlreadyExists","message":{"lang":"en-US","value":"3:The specified entity already exists.\nRequestId:x"}}}"#;
        let refusal = Refusal::read(409, &HeaderMap::new(), body);
        assert_eq!(refusal.index, Some(3));
        assert_eq!(
            refusal.message.as_deref(),
            Some("The specified entity already exists.")
        );
    }

    #[test]
    fn any_body_gives_a_refusal() {
        for body in [
            &b""[..],
            b"<html>Bad Gateway",
            b"{",
            b"{\"odata.error\":5}",
            b"\xff\xfe",
            b"<Code>",
            b"<a>&unknown;</a>",
        ] {
            let refusal = Refusal::read(502, &HeaderMap::new(), body);
            assert_eq!((refusal.status, refusal.code), (502, None));
        }
    }

    #[test]
    fn the_requested_wait_is_read_in_every_form() {
        let wait = |pairs: &[(&'static str, &'static str)]| {
            Refusal::read(503, &headers(pairs), b"").retry_after
        };
        assert_eq!(wait(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(
            wait(&[("x-ms-retry-after-ms", "1500")]),
            Some(Duration::from_millis(1500))
        );
        assert_eq!(
            wait(&[
                ("retry-after", "Fri, 20 Nov 2026 15:00:09 GMT"),
                ("date", "Fri, 20 Nov 2026 15:00:00 GMT")
            ]),
            Some(Duration::from_secs(9))
        );
        assert_eq!(
            wait(&[
                ("retry-after", "Fri, 20 Nov 2026 15:00:00 GMT"),
                ("date", "Fri, 20 Nov 2026 15:00:09 GMT")
            ]),
            Some(Duration::ZERO)
        );
        let longest = Some(Duration::from_mins(10));
        for endless in ["18446744073709551615", "31536000"] {
            assert_eq!(
                (
                    wait(&[("retry-after", endless)]),
                    wait(&[("retry-after-ms", endless)])
                ),
                (
                    longest,
                    longest.map(|most| most.min(Duration::from_millis(endless.parse().unwrap())))
                )
            );
        }
        assert_eq!(
            wait(&[
                ("retry-after", "Thu, 31 Dec 2099 23:59:59 GMT"),
                ("date", "Fri, 20 Nov 2026 15:00:00 GMT")
            ]),
            longest
        );
        assert_eq!(wait(&[("retry-after", "soon")]), None);
        assert_eq!(wait(&[]), None);
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_it_panic(status in 100_u16..1000, body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = Refusal::read(status, &HeaderMap::new(), &body);
        }
    }
}
