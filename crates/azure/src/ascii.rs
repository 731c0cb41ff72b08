//! Converts bodies to ASCII, for emulators.
//!
//! Azurite decodes each piece of a request body separately. A piece has 64 KiB on loopback; elsewhere it is a network packet. A
//! multi-byte character that spans two pieces is destroyed without an error. An ASCII body has no such character. Azure does
//! not have this defect and gets UTF-8, which is shorter.

use std::fmt::Write as _;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Ascii,
}

/// Escapes all non-ASCII characters by `\u`, or returns the body unchanged if the result would exceed the service's limit.
pub(super) fn json<const LIMIT: usize>(body: &str) -> String {
    rewritten(body, LIMIT, |escaped, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    })
}

/// Replaces all non-ASCII characters by character references.
pub(super) fn xml(body: &str) -> String {
    rewritten(body, usize::MAX, |escaped, c| {
        let _ = write!(escaped, "&#x{:X};", u32::from(c));
    })
}

fn rewritten(body: &str, limit: usize, escape: impl Fn(&mut String, char)) -> String {
    if body.is_ascii() {
        return body.to_owned();
    }
    let mut escaped = String::with_capacity(body.len() * 2);
    for c in body.chars() {
        if c.is_ascii() {
            escaped.push(c);
        } else {
            escape(&mut escaped, c);
        }
    }
    if escaped.len() > limit {
        body.to_owned()
    } else {
        escaped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_means_the_same() {
        let body = serde_json::json!({"S": "한 😀 \u{7f} é", "한": "\r\n\"\\"}).to_string();
        let ascii = json::<1_000>(&body);
        assert!(ascii.is_ascii());
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&ascii).unwrap(),
            serde_json::from_str::<serde_json::Value>(&body).unwrap()
        );
        assert_eq!(json::<10>(&body), body);
        assert_eq!(json::<0>("{}"), "{}");
    }

    #[test]
    fn xml_means_the_same() {
        assert_eq!(xml("<a>한😀&amp;</a>"), "<a>&#xD55C;&#x1F600;&amp;</a>");
    }
}
