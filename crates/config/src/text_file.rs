//! Reads text files: configuration, catalogs, secrets.
//!
//! On Windows, editors and shells write byte order marks and UTF-16. Byte order marks are removed, and UTF-16 is refused.

use std::path::Path;

/// Reads a file of at most `most` bytes as UTF-8, without a byte order mark. The error text continues a sentence that begins with the
/// name of the file.
pub(super) fn read(path: &Path, most: u64, what: &str) -> Result<String, String> {
    let unread = |error: std::io::Error| format!("cannot be read: {error}");
    let size = std::fs::metadata(path).map_err(unread)?.len();
    if size > most {
        return Err(format!(
            "has {size} bytes; expected at most {most} for {what}"
        ));
    }
    decode(std::fs::read(path).map_err(unread)?)
}

fn decode(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err("is UTF-16; save it as UTF-8".to_owned());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => text,
        }),
        Err(error) => Err(format!(
            "is not UTF-8 (byte {}); save it as UTF-8",
            error.utf8_error().valid_up_to()
        )),
    }
}

/// Removes the blanks, line ends and quotes that shells and tools put around a secret.
pub(super) fn trim_secret(text: &str) -> &str {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let within = |quote: char| {
        text.strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote))
    };
    within('"').or_else(|| within('\'')).map_or(text, str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_marks_are_removed_and_utf_16_is_refused() {
        assert_eq!(
            decode(b"\xef\xbb\xbfa = 1\r\n".to_vec()).as_deref(),
            Ok("a = 1\r\n")
        );
        assert_eq!(
            decode(b"\xff\xfea\0".to_vec()).unwrap_err(),
            "is UTF-16; save it as UTF-8"
        );
        assert_eq!(
            decode(b"abc\xe9".to_vec()).unwrap_err(),
            "is not UTF-8 (byte 3); save it as UTF-8"
        );
    }

    #[test]
    fn quotes_and_blanks_around_a_secret_are_removed() {
        for text in [
            "s3cret",
            " s3cret\r\n",
            "\u{feff}s3cret\r\n",
            "\"s3cret\"\n",
            "' s3cret '",
        ] {
            assert_eq!(trim_secret(text), "s3cret", "{text:?}");
        }
        assert_eq!(trim_secret("\"a'"), "\"a'");
    }
}
