//! Bodies in ASCII, for emulators.
//!
//! Azurite puts a request's body together from pieces that it turns into text one by one, so that a character
//! of several bytes that lies across a seam is destroyed, without an error, in any body larger than a piece
//! (64 KiB on loopback, a network packet elsewhere). A body of ASCII has no such character. Azure itself reads
//! bodies whole, and is sent UTF-8, which is shorter.

use std::fmt::Write as _;

/// How bodies are written for an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// UTF-8, for Azure.
    Utf8,
    /// ASCII, for everything else.
    Ascii,
}

/// JSON with `\u` escapes for all that is not ASCII, or as it was where it would pass the limit of the service.
pub(super) fn json<const LIMIT: usize>(body: &str) -> String {
    rewritten(body, LIMIT, |escaped, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    })
}

/// XML with character references for all that is not ASCII.
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
