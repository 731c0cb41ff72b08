//! Maps an answer of a receiver to an error class.

use evenkeel_azure::http::{HttpAnswer, HttpFault, printable};
use evenkeel_storage::ErrorClass;

/// Maximum length of the part of an error body that is shown, in characters.
const MESSAGE_CHARS: usize = 200;

pub(super) fn refused(answer: &HttpAnswer) -> ErrorClass {
    let retry_after = answer.retry_after();
    match answer.status {
        401 | 403 => ErrorClass::Unauthorised,
        413 => ErrorClass::TooLarge,
        // Not executed: the receiver timed out waiting for the event (408), or is not ready (425). A proxy may answer 408 although
        // the receiver got the event. Then the event is sent twice, which receivers must expect of every event.
        408 | 425 => ErrorClass::Transient { retry_after },
        429 | 503 => ErrorClass::Throttled { retry_after },
        // The receiver may have processed the event before it failed.
        500..=599 => ErrorClass::Ambiguous,
        _ => ErrorClass::Permanent,
    }
}

pub(super) const fn faulted(fault: &HttpFault) -> ErrorClass {
    fault.class(ErrorClass::Ambiguous)
}

/// The status and the beginning of the body, as a message.
pub(super) fn message(answer: &HttpAnswer) -> String {
    let body = printable(&String::from_utf8_lossy(&answer.body), MESSAGE_CHARS);
    let status = answer.status;
    match (status, body.trim()) {
        (300..=399, _) => format!(
            "the receiver answered {status}, and redirects are not followed. Configure the address of the target"
        ),
        (_, "") => format!("the receiver answered {status}"),
        (_, body) => format!("the receiver answered {status}: {body}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use reqwest::header::{HeaderMap, HeaderValue};

    fn answer(status: u16, wait: Option<&'static str>, body: &'static str) -> HttpAnswer {
        let headers: HeaderMap = wait
            .map(|wait| {
                (
                    "retry-after".parse().unwrap(),
                    HeaderValue::from_static(wait),
                )
            })
            .into_iter()
            .collect();
        HttpAnswer {
            status,
            headers,
            body: body.into(),
        }
    }

    #[test]
    fn each_status_has_its_class() {
        let transient = ErrorClass::Transient { retry_after: None };
        let table = [
            (302, ErrorClass::Permanent),
            (400, ErrorClass::Permanent),
            (401, ErrorClass::Unauthorised),
            (404, ErrorClass::Permanent),
            (408, transient),
            (425, transient),
            (410, ErrorClass::Permanent),
            (413, ErrorClass::TooLarge),
            (500, ErrorClass::Ambiguous),
            (504, ErrorClass::Ambiguous),
        ];
        for (status, class) in table {
            assert_eq!(refused(&answer(status, None, "")), class, "{status}");
        }
        for status in [429, 503] {
            let wait = Some(Duration::from_secs(7));
            assert_eq!(
                refused(&answer(status, Some("7"), "")),
                ErrorClass::Throttled { retry_after: wait }
            );
            let longest = Some(Duration::from_mins(10));
            for endless in ["18446744073709551615", "31536000"] {
                assert_eq!(
                    refused(&answer(status, Some(endless), "")),
                    ErrorClass::Throttled {
                        retry_after: longest
                    }
                );
            }
        }
        assert_eq!(
            faulted(&HttpFault::Lost(String::new())),
            ErrorClass::Ambiguous
        );
        assert_eq!(
            faulted(&HttpFault::Refused(String::new())),
            ErrorClass::Refused
        );
    }

    #[test]
    fn the_message_contains_the_beginning_of_the_body() {
        assert_eq!(
            message(&answer(410, None, "gone\nfor good")),
            "the receiver answered 410: gone for good"
        );
        assert_eq!(
            message(&answer(404, None, " ")),
            "the receiver answered 404"
        );
        assert!(message(&answer(302, None, "x")).contains("redirects are not followed"));
        let long: &'static str = "x".repeat(5_000).leak();
        assert!(message(&answer(400, None, long)).len() < 300);
    }
}
