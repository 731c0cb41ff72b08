//! `%XX` escapes for characters that Azure forbids in keys.

use crate::key::forbidden_in_key;

/// How values are escaped in keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escaping {
    /// Every value is [escaped](escape), so that different values have different texts. This is for keys that evenkeel creates.
    Always,
    /// Only values with forbidden characters are escaped. Other values stay as they are, even if they contain `%`. This is for keys that
    /// other programs created, because a value may itself be such a key.
    WhereForbidden,
    /// Values stay as they are, and a value with a forbidden character gives no key. This is for values that are keys.
    Never,
}

impl Escaping {
    /// Returns the text of a value in a key.
    pub(crate) fn written(self, value: String) -> String {
        let is_escaped = match self {
            Self::Always => true,
            Self::WhereForbidden => value.chars().any(forbidden_in_key),
            Self::Never => false,
        };
        if is_escaped { escape(&value) } else { value }
    }
}

/// Escapes `%` and the characters that Azure forbids in keys as `%XX` of their UTF-8 bytes, in upper case.
pub fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    let mut buffer = [0; 4];
    for c in value.chars() {
        if escaped_in_key(c) {
            for byte in c.encode_utf8(&mut buffer).bytes() {
                escaped.push('%');
                escaped.extend([hex_digit(byte >> 4), hex_digit(byte & 15)]);
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// The inverse of [`escape`]. Returns `None` for a text that `escape` never returns.
pub fn unescape(escaped: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                bytes.push(hex_value(*high)? << 4 | hex_value(*low)?);
                tail
            }
            (b'%', _) => return None,
            (byte, tail) => {
                bytes.push(*byte);
                tail
            }
        };
    }
    let value = String::from_utf8(bytes).ok()?;
    (escape(&value) == escaped).then_some(value)
}

pub(super) const fn escaped_in_key(c: char) -> bool {
    c == '%' || forbidden_in_key(c)
}

const fn hex_digit(nibble: u8) -> char {
    (if nibble < 10 {
        b'0' + nibble
    } else {
        b'A' + nibble - 10
    }) as char
}

const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use proptest::prelude::*;

    #[test]
    fn forbidden_characters_become_their_bytes_in_upper_case() {
        assert_eq!(escape("a/b?c#d\\e"), "a%2Fb%3Fc%23d%5Ce");
        assert_eq!(escape("100%"), "100%25");
        assert_eq!(escape("\u{9f}\u{fffe}\n"), "%C2%9F%EF%BF%BE%0A");
        assert_eq!(escape("O'Brien 한 😀"), "O'Brien 한 😀");
    }

    #[test]
    fn a_valid_key_stays_as_it_is_and_other_values_are_escaped() {
        for (value, written) in [
            ("R%2FD", "R%2FD"),
            ("100%", "100%"),
            ("R/D", "R%2FD"),
            ("50% R/D", "50%25 R%2FD"),
        ] {
            assert_eq!(Escaping::WhereForbidden.written(value.to_owned()), written);
            assert_eq!(Escaping::Always.written(value.to_owned()), escape(value));
            assert_eq!(Escaping::Never.written(value.to_owned()), value);
        }
    }

    #[test]
    fn a_text_that_escaping_never_returns_is_not_unescaped() {
        for text in ["%", "%2", "%2f", "%41", "a/b", "%zz", "%C2", "%ED%A0%80"] {
            assert_eq!(unescape(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_value_comes_back_and_is_a_legal_key(value in any::<String>()) {
            let escaped = escape(&value);
            prop_assert_eq!(unescape(&escaped), Some(value));
            prop_assert!(escaped.len() > 900 || Key::new(escaped.clone()).is_ok() || escaped.encode_utf16().count() > 512);
        }

        #[test]
        fn what_is_unescaped_escapes_to_the_same_text(text in "[%0-9A-Fa-f/é]{0,12}") {
            if let Some(value) = unescape(&text) {
                prop_assert_eq!(escape(&value), text);
            }
        }
    }
}
