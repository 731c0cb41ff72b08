//! Groups poison messages by cause, which is the error without keys and values. If one fault
//! poisoned thousands of messages, they appear in one line. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{PoisonEntry, PoisonMessage, Reason};

const ID_CHARS: usize = 8;
/// A word of at least this many hexadecimal digits counts as an id.
const HEX_CHARS: usize = 8;
const VALUE: char = '…';

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoisonCause {
    /// Identifies the cause. The id stays the same as long as the error text does not change.
    pub id: String,
    pub reason: Reason,
    /// The error text without keys and values.
    pub error: String,
    pub count: u64,
    pub first: Timestamp,
    pub last: Timestamp,
    pub sample: String,
}

/// Groups messages by cause. The most frequent causes come first.
pub fn causes<'e>(entries: impl Iterator<Item = &'e PoisonEntry>) -> Vec<PoisonCause> {
    let mut causes: BTreeMap<String, PoisonCause> = BTreeMap::new();
    for PoisonEntry { message, .. } in entries {
        let (id, at) = (cause_id(message), message.poisoned);
        let cause = causes.entry(id.clone()).or_insert_with(|| PoisonCause {
            id,
            reason: message.reason,
            error: without_values(&message.error),
            count: 0,
            first: at,
            last: at,
            sample: message.message_id.clone(),
        });
        if at < cause.first {
            cause.sample.clone_from(&message.message_id);
        }
        (cause.count, cause.first, cause.last) =
            (cause.count + 1, cause.first.min(at), cause.last.max(at));
    }
    let mut causes: Vec<PoisonCause> = causes.into_values().collect();
    causes.sort_by_key(|cause| (std::cmp::Reverse(cause.count), cause.first));
    causes
}

pub fn cause_id(message: &PoisonMessage) -> String {
    let mut id = hex::encode(Sha256::digest(format!(
        "{}\n{}",
        message.reason,
        without_values(&message.error)
    )));
    id.truncate(ID_CHARS);
    id
}

/// Replaces the values in an error by placeholders: quoted texts, numbers, ids, and the parts of
/// paths after the first slash.
fn without_values(error: &str) -> String {
    let (mut plain, mut word, mut chars) = (String::new(), String::new(), error.chars());
    while let Some(char) = chars.next() {
        if char.is_alphanumeric() || "_-./+%@:".contains(char) {
            word.push(char);
            continue;
        }
        plain.push_str(&without_value(&std::mem::take(&mut word)));
        plain.push(char);
        if char == '"' {
            plain.push(VALUE);
            while let Some(quoted) = chars.next() {
                match quoted {
                    '\\' => {
                        chars.next();
                    }
                    '"' => {
                        plain.push('"');
                        break;
                    }
                    _ => {}
                }
            }
        }
    }
    plain.push_str(&without_value(&word));
    plain
}

fn without_value(word: &str) -> String {
    let whole = word.trim_end_matches(['.', ':']);
    let end = &word[whole.len()..];
    let is_id = whole.len() >= HEX_CHARS
        && whole.contains(|char: char| char.is_ascii_digit())
        && whole
            .chars()
            .all(|char| char == '-' || char.is_ascii_hexdigit());
    match whole.split_once('/') {
        Some((head, rest)) if !head.is_empty() && !rest.is_empty() => {
            format!("{head}/{VALUE}{end}")
        }
        _ if is_id || whole.starts_with(|char: char| char.is_ascii_digit()) => {
            format!("{VALUE}{end}")
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::poisoned;
    use super::*;

    fn entry(id: &str, error: &str, second: i64) -> PoisonEntry {
        let message = PoisonMessage {
            error: error.to_owned(),
            poisoned: Timestamp::from_second(second).unwrap(),
            ..poisoned(id, "{}")
        };
        PoisonEntry {
            inserted: message.poisoned,
            message,
            ids: vec![format!("p-{id}")],
        }
    }

    #[test]
    fn values_are_no_part_of_a_cause() {
        for (error, cause) in [
            (
                r#"reconciling Employees("Sales", "7"): ByEmail("a\"b", "x") of view by_email is taken by Employees("Sales", "8")"#,
                r#"reconciling Employees("…", "…"): ByEmail("…", "…") of view by_email is taken by Employees("…", "…")"#,
            ),
            (
                "the message has 70000 bytes; at most 49,152 (48 KiB) are allowed",
                "the message has … bytes; at most …,… (… KiB) are allowed",
            ),
            (
                "employees/Sales/7.json of view as_json: gone.",
                "employees/… of view as_json: gone.",
            ),
            (
                "request 8f14e45f-ceea-467f-a3a2-1c5ab2d5c1a0 failed at 2026-11-28T12:00:00Z: try again",
                "request … failed at …: try again",
            ),
            (
                "view orders_2026 and x86 stay",
                "view orders_2026 and x86 stay",
            ),
            ("an open \"quote", "an open \"…"),
        ] {
            assert_eq!(without_values(error), cause);
        }
    }

    #[test]
    fn messages_of_one_cause_are_counted_together() {
        let entries = [
            entry("a", "no row \"1\"", 5),
            entry("b", "no row \"2\"", 3),
            entry("c", "no table", 9),
            entry("d", "no row \"3\"", 7),
        ];
        let found = causes(entries.iter());
        let reported: Vec<_> = found
            .iter()
            .map(|cause| (cause.error.as_str(), cause.count, cause.sample.as_str()))
            .collect();
        assert_eq!(reported, [("no row \"…\"", 3, "b"), ("no table", 1, "c")]);
        assert_eq!(
            (found[0].first.as_second(), found[0].last.as_second()),
            (3, 7)
        );
        assert!(entries.iter().all(|entry| {
            found
                .iter()
                .any(|cause| cause.id == cause_id(&entry.message))
        }));
    }

    proptest::proptest! {
        #[test]
        fn any_error_has_a_cause_no_longer_than_itself(error in proptest::prelude::any::<String>()) {
            proptest::prop_assert!(without_values(&error).chars().count() <= error.chars().count() + error.matches('"').count());
        }
    }
}
