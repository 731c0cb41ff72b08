//! Conditions without their values, for errors that are stored, logged and shown. A job may compare with confidential values.

use super::parse::{ConditionError, FUNCTIONS, KEYWORDS};

const MASK: char = '*';
/// Words of literals that reveal nothing.
const LITERALS: [&str; 3] = ["datetime", "guid", "now"];

impl ConditionError {
    /// Masks the values of the condition in the error.
    #[must_use]
    pub fn without_values(self) -> Self {
        let Self {
            message,
            condition,
            span,
        } = self;
        let place = condition.get(span.clone()).unwrap_or_default();
        let message = if place.is_empty() {
            message
        } else {
            message.replace(&format!("{place:?}"), "something else")
        };
        Self {
            message,
            condition: masked(&condition),
            span,
        }
    }
}

/// Masks each byte of a condition except property names, keywords and signs. The length in bytes does not change, so spans stay valid.
fn masked(condition: &str) -> String {
    let mut shown = String::with_capacity(condition.len());
    let mut rest = condition;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '\'' => quoted(rest, first),
            _ if first.is_alphanumeric() || first == '_' => rest
                .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
                .unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (piece, behind) = rest.split_at(length);
        let is_shown = match first {
            '=' | '!' | '<' | '>' | '(' | ')' | '[' | ']' | ',' | '&' | '|' => true,
            _ if first.is_whitespace() => true,
            _ if first.is_alphabetic() || first == '_' => {
                is_word(piece) || is_compared(behind) || shown.trim_end().ends_with('(')
            }
            _ => false,
        };
        if is_shown {
            shown.push_str(piece);
        } else {
            shown.extend(std::iter::repeat_n(MASK, length));
        }
        rest = behind;
    }
    shown
}

/// Returns the length of a quoted text with its quotes, or the length of the rest if the quote is not closed.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let closes = *c == quote && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        closes
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

fn is_word(piece: &str) -> bool {
    let mut words = KEYWORDS.iter().chain(&FUNCTIONS).chain(&LITERALS);
    words.any(|word| word.eq_ignore_ascii_case(piece))
}

/// Whether the text behind a word begins with a comparison. If so, the word is a property.
fn is_compared(behind: &str) -> bool {
    let behind = behind.trim_start();
    behind.starts_with(['=', '!', '<', '>'])
        || behind
            .strip_prefix("in")
            .is_some_and(|rest| rest.trim_start().starts_with('['))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::condition::TimedCondition;

    #[test]
    fn values_are_masked_and_the_rest_is_shown() {
        for (condition, expected) in [
            ("Ssn = \"987-65-4321\"", "Ssn = *************"),
            (
                "Salary >= 75000 and not (Ssn == 'x')",
                "Salary >= ***** and not (Ssn == ***)",
            ),
            (
                "startsWith(Ssn, \"98\") or exists(Ssn",
                "startsWith(Ssn, ****) or exists(Ssn",
            ),
            ("Ssn in [\"a\\\"b\", 4.5", "Ssn in [******, ***"),
            ("Ssn == 987-65-4321", "Ssn == ***********"),
            ("Ssn == canary", "Ssn == ******"),
            ("Ssn == \"not closed", "Ssn == ***********"),
            ("\"canary\" == Ssn", "******** == ***"),
            ("exists(\"canary\")", "exists(********)"),
            ("Hired < now - 90", "Hired < now * **"),
        ] {
            assert_eq!(masked(condition), expected);
        }
    }

    #[test]
    fn an_error_shows_its_place_without_a_value() {
        for condition in [
            "Ssn = \"canary\"",
            "Ssn == canary",
            "Ssn == \"canary",
            "Ssn == datetime'canary'",
            "A < now - canary",
            "canary",
        ] {
            let error = TimedCondition::parse(condition).unwrap_err();
            assert!(error.to_string().contains("canary"), "{error}");
            let error = error.without_values().to_string();
            assert!(!error.contains("canary") && error.ends_with('^'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_masked_in_as_many_bytes(text in "\\PC{0,40}|[A-Za-z0-9 ='\"\\\\(),.<>é-]{0,40}") {
            prop_assert_eq!(masked(&text).len(), text.len());
        }
    }
}
