//! Prepares a poisoned body for display. The body is limited before it is expanded, parsed or
//! indented.
//!
//! Any sender with the right to add to a queue can choose the body. 1,400 bytes of gzip can expand
//! to a megabyte, which takes 32 MiB as JSON values and hundreds of MiB when indented.

use std::io::{self, Write};

use serde_json::Value;

use evenkeel_model::body;

/// Number of bytes of a body that a page or an API answer shows.
pub const PREVIEW_BYTES: usize = 8 * 1024;
/// Maximum length of the indented text, as a multiple of the body. A text with more indentation
/// does not help a reader.
const LAID_OUT_TIMES: usize = 4;

#[derive(Debug, Clone, PartialEq)]
pub struct BodyPreview {
    pub value: Option<Value>,
    pub text: String,
    /// Whether the text is only the beginning of the body.
    pub cut: bool,
}

impl BodyPreview {
    /// Expands a kept body to at most `most` bytes.
    pub fn of(kept: &str, most: usize) -> Self {
        let body::Excerpt { text, cut } = body::excerpt(kept, most);
        let value = if cut {
            None
        } else {
            serde_json::from_str(&text).ok()
        };
        Self { value, text, cut }
    }

    /// A preview of a whole value. The caller has checked its size.
    #[must_use]
    pub fn whole(value: Value) -> Self {
        Self {
            text: value.to_string(),
            value: Some(value),
            cut: false,
        }
    }

    #[must_use]
    pub fn into_value(self) -> Value {
        self.value.unwrap_or(Value::String(self.text))
    }

    /// The indented value, or the plain text if the indented text would be too long.
    pub fn indented(&self) -> String {
        let most = self
            .text
            .len()
            .saturating_mul(LAID_OUT_TIMES)
            .saturating_add(1_024);
        self.value
            .as_ref()
            .and_then(|value| indented(value, most))
            .unwrap_or_else(|| self.text.clone())
    }
}

/// Indents the value. Returns `None` if the result has more than `most` bytes.
fn indented(value: &Value, most: usize) -> Option<String> {
    let mut bounded = BoundedWriter {
        bytes: Vec::new(),
        most,
    };
    serde_json::to_writer_pretty(&mut bounded, value).ok()?;
    String::from_utf8(bounded.bytes).ok()
}

struct BoundedWriter {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for BoundedWriter {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few hundred bytes that expand to a megabyte of zeros, nested as deeply as the parser
    /// allows.
    fn bomb() -> String {
        let zeros = vec!["0"; 500_000].join(",");
        let json = format!(
            "{{\"op\":\"nope\",\"a\":{}{zeros}{}}}",
            "[".repeat(120),
            "]".repeat(120)
        );
        body::pack(&json).unwrap()
    }

    #[test]
    fn a_bomb_is_cut_before_it_is_parsed() {
        let message = bomb();
        assert!(message.len() < 3_000, "{}", message.len());
        let shown = BodyPreview::of(&message, PREVIEW_BYTES);
        assert!(shown.cut && shown.value.is_none());
        assert_eq!(shown.text.len(), PREVIEW_BYTES);
        assert_eq!(shown.indented().len(), PREVIEW_BYTES);
    }

    #[test]
    fn a_body_that_indentation_would_blow_up_is_shown_as_it_is() {
        let deep = format!(
            "{{\"a\":{}{}{}}}",
            "[".repeat(120),
            vec!["0"; 3_000].join(","),
            "]".repeat(120)
        );
        let shown = BodyPreview::of(&deep, PREVIEW_BYTES);
        assert!(!shown.cut && shown.value.is_some());
        assert_eq!(shown.indented(), deep);
        let flat = BodyPreview::of(r#"{"op":"sync","table":"T"}"#, PREVIEW_BYTES);
        assert_eq!(
            flat.indented(),
            "{\n  \"op\": \"sync\",\n  \"table\": \"T\"\n}"
        );
    }

    #[test]
    fn a_body_that_is_not_json_is_text() {
        let shown = BodyPreview::of("한 no job", 6);
        assert_eq!((shown.text.as_str(), shown.cut), ("한 no", true));
        assert_eq!(BodyPreview::of("한", 2).text, "", "no half of a character");
        assert_eq!(
            BodyPreview::of("no job", 100).into_value(),
            Value::from("no job")
        );
    }
}
