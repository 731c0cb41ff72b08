//! Entity group transactions in HTTP: changes to the request, and parsing of the answer.
//!
//! The status is always 202. A successful answer contains a part for each operation. A failed one contains a single part,
//! with the status of the failed operation and its index at the start of the message.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::http::STORAGE_REQUEST_ID;
use super::refusal::Refusal;
use super::transport::HttpAnswer;

struct BatchPart<'a> {
    status: u16,
    headers: &'a str,
    body: &'a str,
}

impl<'a> BatchPart<'a> {
    /// Returns `None` for a truncated part.
    fn read(text: &'a str) -> Option<Self> {
        let (status, rest) = text[text.find("HTTP/1.")?..].split_once('\n')?;
        let status = status.split_whitespace().nth(1)?.parse().ok()?;
        let lines = rest
            .split_inclusive('\n')
            .take_while(|line| !line.trim().is_empty());
        let (headers, body) = rest.split_at(lines.map(str::len).sum());
        Some(Self {
            status,
            headers,
            body: body.trim(),
        })
    }

    fn headers(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.headers
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim(), value.trim()))
    }

    fn etag(&self) -> Option<String> {
        self.headers()
            .find(|(name, _)| name.eq_ignore_ascii_case("etag"))
            .map(|(_, value)| value.to_owned())
    }

    fn refusal(&self) -> Refusal {
        let header = |(name, value): (&str, &str)| {
            Some((
                name.parse::<HeaderName>().ok()?,
                value.parse::<HeaderValue>().ok()?,
            ))
        };
        let headers: HeaderMap = self.headers().filter_map(header).collect();
        Refusal::read(self.status, &headers, self.body.as_bytes())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    /// Everything was executed. Contains the ETag of each operation, if its answer has one.
    Done(Vec<Option<String>>),
    /// Nothing was executed, because of this refusal of one operation.
    Failed(Refusal),
    /// The answer does not match a transaction of this length.
    Unreadable,
}

/// Adds a header to each insert, so that the service does not return the entity. Outside transactions, the client library adds
/// this header itself. A line of the JSON bodies begins with a brace, so it cannot look like a request line.
pub(super) fn without_content(body: &str) -> String {
    let mut amended = String::with_capacity(body.len() + 64);
    for line in body.split_inclusive('\n') {
        amended.push_str(line);
        if line.starts_with("POST ") && line.trim_end().ends_with(" HTTP/1.1") {
            amended.push_str("Prefer: return-no-content\n");
        }
    }
    amended
}

pub(super) fn outcome(answer: &HttpAnswer, count: usize) -> BatchOutcome {
    let body = String::from_utf8_lossy(&answer.body);
    let Some(parts) = parts(&body) else {
        return BatchOutcome::Unreadable;
    };
    if let Some((at, failed)) = parts
        .iter()
        .enumerate()
        .find(|(_, part)| !(200..300).contains(&part.status))
    {
        let mut refusal = failed.refusal();
        if refusal.request_id.is_none() {
            refusal.request_id = answer.header(STORAGE_REQUEST_ID).map(str::to_owned);
        }
        // If the message has no index, the position of the failed part is used. It is the index of the operation only if
        // every operation has a part.
        refusal.index = refusal
            .index
            .or_else(|| (parts.len() == count).then_some(at))
            .filter(|index| *index < count);
        return BatchOutcome::Failed(refusal);
    }
    if parts.len() != count {
        return BatchOutcome::Unreadable;
    }
    BatchOutcome::Done(parts.iter().map(BatchPart::etag).collect())
}

/// The parts of the change set, or `None` if one is truncated.
fn parts(body: &str) -> Option<Vec<BatchPart<'_>>> {
    let mut parts = Vec::new();
    // The text before the first boundary describes the change set, and the text after the last one closes it.
    let mut pieces = body.split("--changesetresponse_");
    pieces.next()?;
    let mut closed = false;
    for piece in pieces {
        // A boundary line contains a random name, and the last one ends in two dashes.
        let (boundary, rest) = piece.split_once('\n').unwrap_or((piece, ""));
        if boundary.trim_end().ends_with("--") {
            closed = true;
            break;
        }
        parts.push(BatchPart::read(rest)?);
    }
    closed.then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: impl Into<String>) -> HttpAnswer {
        HttpAnswer {
            status: 202,
            headers: HeaderMap::new(),
            body: body.into().into(),
        }
    }

    fn success(parts: &[(&str, &str)]) -> String {
        let mut body = "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n".to_owned();
        for (status, etag) in parts {
            let etag = if etag.is_empty() {
                String::new()
            } else {
                format!("ETag: {etag}\r\n")
            };
            let part = format!(
                "--changesetresponse_2\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
                 HTTP/1.1 {status}\r\nDataServiceVersion: 1.0;\r\n{etag}\r\n\r\n"
            );
            body.push_str(&part);
        }
        body + "--changesetresponse_2--\r\n--batchresponse_1--\r\n"
    }

    #[test]
    fn a_success_names_an_etag_per_operation() {
        let body = success(&[
            ("204 No Content", "W/\"datetime'1'\""),
            ("204 No Content", ""),
        ]);
        assert_eq!(
            outcome(&answer(body.clone()), 2),
            BatchOutcome::Done(vec![Some("W/\"datetime'1'\"".into()), None])
        );
        assert_eq!(outcome(&answer(body), 3), BatchOutcome::Unreadable);
    }

    #[test]
    fn a_failure_names_its_operation() {
        let body = "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n\
            --changesetresponse_2\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
            HTTP/1.1 409 Conflict\r\nX-Content-Type-Options: nosniff\r\nContent-Type: application/json;odata=minimalmetadata\r\n\r\n\
            {\"odata.error\":{\"code\":\"EntityAlreadyExists\",\"message\":{\"lang\":\"en-US\",\"value\":\"3:The specified entity already exists.\\nRequestId:7\"}}}\r\n\
            --changesetresponse_2--\r\n--batchresponse_1--\r\n";
        let BatchOutcome::Failed(refusal) = outcome(&answer(body), 5) else {
            panic!()
        };
        assert_eq!(
            (refusal.status, refusal.code.as_deref(), refusal.index),
            (409, Some("EntityAlreadyExists"), Some(3))
        );
        // An index that is out of range is dropped.
        let BatchOutcome::Failed(refusal) = outcome(&answer(body), 2) else {
            panic!()
        };
        assert_eq!(refusal.index, None);
    }

    #[test]
    fn a_truncated_answer_is_unreadable() {
        let body = success(&[("204 No Content", "a"), ("204 No Content", "b")]);
        for end in [0, 10, 100, body.len() / 2, body.len() - 50] {
            assert_eq!(
                outcome(&answer(&body[..end]), 2),
                BatchOutcome::Unreadable,
                "{end}"
            );
        }
        assert_eq!(outcome(&answer("<html>"), 1), BatchOutcome::Unreadable);
    }

    #[test]
    fn inserts_ask_for_no_content() {
        let body = "--changeset_1\nContent-Type: application/http\n\nPOST http://h/T HTTP/1.1\naccept: x\n\n{\"S\":\"POST x HTTP/1.1\"}\n\nPUT http://h/T HTTP/1.1\n";
        let amended = without_content(body);
        assert_eq!(amended.matches("Prefer").count(), 1);
        assert!(
            amended.contains("POST http://h/T HTTP/1.1\nPrefer: return-no-content\naccept: x\n")
        );
    }

    proptest::proptest! {
        #[test]
        fn no_answer_makes_it_panic(body in "(--changesetresponse_|HTTP/1.1 |409|204|\r\n|ETag: |:|\\PC){0,30}", count in 0_usize..4) {
            let _ = outcome(&answer(body), count);
        }
    }
}
