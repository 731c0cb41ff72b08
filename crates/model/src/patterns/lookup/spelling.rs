//! Finds the values that a text spells, in the notations that people and libraries use.

use uuid::Uuid;

use crate::template::Number;
use crate::{EdmDateTime, EdmValue};

/// The text itself, and each value of another type that the text spells. Doubles are left out,
/// because only the filter `sortable` makes keys of doubles, and `sortable` parses the text itself.
pub(super) fn values(text: &str) -> Vec<EdmValue> {
    let integer = match Number::parse(text) {
        Some(Number::Integer(integer)) => Some(EdmValue::Int64(integer)),
        Some(Number::Double(_)) | None => None,
    };
    let others = [
        moment(text).map(EdmValue::DateTime),
        guid(text).map(EdmValue::Guid),
        truth(text).map(EdmValue::Bool),
        integer,
    ];
    std::iter::once(EdmValue::from(text))
        .chain(others.into_iter().flatten())
        .collect()
}

/// Parses a moment in RFC 3339, with any number of decimal digits, and with or without an offset.
/// Seconds may be missing, because Java omits seconds that are zero. The offset may lack its colon,
/// because some libraries write it without one.
pub(super) fn moment(text: &str) -> Option<EdmDateTime> {
    let has_offset = |text: &str| {
        text.len() > 5
            && text.as_bytes()[text.len() - 5..]
                .iter()
                .enumerate()
                .all(|(at, b)| is_offset(at, *b))
    };
    let colon = if text.is_ascii() && has_offset(text) {
        let (time, minutes) = text.split_at(text.len() - 2);
        format!("{time}:{minutes}")
    } else {
        text.to_owned()
    };
    // `YYYY-MM-DDTHH:MM` has 16 bytes.
    let seconds = match colon.split_at_checked(16) {
        Some((time, zone)) if !zone.starts_with(':') => format!("{time}:00{zone}"),
        _ => colon,
    };
    EdmDateTime::parse(&seconds).ok()
}

fn is_offset(at: usize, byte: u8) -> bool {
    if at == 0 {
        matches!(byte, b'+' | b'-')
    } else {
        byte.is_ascii_digit()
    }
}

/// Parses a GUID: 32 hex digits of either case, with or without dashes, braces or parentheses.
fn guid(text: &str) -> Option<Uuid> {
    let inner = text
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'))
        .unwrap_or(text);
    Uuid::try_parse(inner).ok()
}

fn truth(text: &str) -> Option<bool> {
    [true, false]
        .into_iter()
        .find(|truth| text.eq_ignore_ascii_case(&truth.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_is_read_in_the_spelling_of_every_library() {
        for text in [
            "2026-11-20T15:00:00Z",
            "2026-11-20T15:00:00.000Z",
            "2026-11-20T15:00:00.0000000Z",
            "2026-11-20T15:00:00.000000000Z",
            "2026-11-20T15:00:00+00:00",
            "2026-11-20 15:00:00+00:00",
            "2026-11-20T16:00:00+01:00",
            "2026-11-20T10:00:00.000-0500",
            "2026-11-20T15:00Z",
            "2026-11-20T16:00+01:00",
            "2026-11-20t15:00:00z",
            "2026-11-20T15:00:00",
            "2026-11-20T15:00",
        ] {
            let moment = EdmDateTime::parse("2026-11-20T15:00:00Z").unwrap();
            assert_eq!(
                values(text),
                [EdmValue::from(text), moment.into()],
                "{text}"
            );
        }
        for text in [
            "0f8fad5b-d9cb-469f-a165-70867728950e",
            "0F8FAD5B-D9CB-469F-A165-70867728950E",
            "{0F8FAD5B-D9CB-469F-A165-70867728950E}",
            "(0f8fad5b-d9cb-469f-a165-70867728950e)",
            "0f8fad5bd9cb469fa16570867728950e",
            "urn:uuid:0f8fad5b-d9cb-469f-a165-70867728950e",
        ] {
            let guid = Uuid::from_u128(0x0f8f_ad5b_d9cb_469f_a165_7086_7728_950e);
            assert_eq!(
                values(text),
                [EdmValue::from(text), EdmValue::Guid(guid)],
                "{text}"
            );
        }
        for (text, value) in [
            ("true", true.into()),
            ("True", true.into()),
            ("FALSE", false.into()),
            ("5.0", EdmValue::Int64(5)),
        ] {
            assert_eq!(values(text), [EdmValue::from(text), value], "{text}");
        }
        for text in [
            "Kim",
            "2026-11-20",
            "2026-11-20T",
            "5.5",
            "0f8fad5b",
            "yes",
            "1600-01-01T00:00:00Z",
            "2026-11-20T15:00é",
        ] {
            assert_eq!(values(text), [EdmValue::from(text)], "{text}");
        }
        assert_eq!(
            values("00000000000000000000000000000012").len(),
            3,
            "a number and a GUID"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), nearly in "[0-9]{4}-[0-9]{2}-[0-9]{2}[T é][0-9:.Z+é-]{0,16}") {
            for text in [text, nearly] {
                prop_assert!(!values(&text).is_empty());
            }
        }
    }
}
