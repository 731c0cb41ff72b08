//! `%XX` for characters that Azure forbids in keys.

use crate::model::key::forbidden_in_key;

/// Writes characters that Azure forbids in keys, and `%`, as `%XX` of their UTF-8 bytes, in upper case.
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

/// The value that [`escape`] made this text of; nothing for a text that it never makes.
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

/// Whether a character of a value is escaped.
pub(super) const fn escaped_in_key(c: char) -> bool {
    c == '%' || forbidden_in_key(c)
}

const fn hex_digit(nibble: u8) -> char {
    (if nibble < 10 { b'0' + nibble } else { b'A' + nibble - 10 }) as char
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
    use crate::model::Key;
    use proptest::prelude::*;

    #[test]
    fn forbidden_characters_become_their_bytes_in_upper_case() {
        assert_eq!(escape("a/b?c#d\\e"), "a%2Fb%3Fc%23d%5Ce");
        assert_eq!(escape("100%"), "100%25");
        assert_eq!(escape("\u{9f}\u{fffe}\n"), "%C2%9F%EF%BF%BE%0A");
        assert_eq!(escape("O'Brien 한 😀"), "O'Brien 한 😀");
    }

    #[test]
    fn what_escaping_never_makes_is_not_unescaped() {
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
