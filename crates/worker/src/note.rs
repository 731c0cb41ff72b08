//! Writes evenkeel's own note into the text of a message. Pure.
//!
//! [`attempts`](super::attempts) decides the content of the note. The note contains the id of its
//! message, so the attempts of a copy under another id are counted from zero.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use evenkeel_model::body::{self, Extent};
use evenkeel_model::job::Note;

const FIELD: &str = "ek";
/// Limits of `compared`: bytes of the expanded body, and memory of its values.
const COMPARED_BYTES: usize = 256 * 1024;
const COMPARED_MEMORY: u64 = 8 << 20;

/// The raw values of the fields. They take no more memory than their text.
type Fields = BTreeMap<String, Box<RawValue>>;

/// Returns the text of the message with this note, and keeps the client's fields. The text is
/// Base64, or gzip in Base64 if only that fits. Returns `None` if the body is not a JSON object or
/// would be too large. The message then stays unchanged, and the delivery counts as an attempt.
pub(crate) fn with_note(text: &str, note: &Note) -> Option<String> {
    with_progress(text, note, &Map::new())
}

/// Like [`with_note`], but with the progress of the job in further fields.
pub(crate) fn with_progress(
    text: &str,
    note: &Note,
    fields: &Map<String, Value>,
) -> Option<String> {
    let mut object = object(text)?;
    for (name, value) in fields {
        object.insert(name.clone(), to_raw_value(value).ok()?);
    }
    object.insert(FIELD.to_owned(), to_raw_value(note).ok()?);
    encode(&object)
}

/// The text without the note, for a copy under another id. A text without a note is returned
/// unchanged.
pub(crate) fn without_note(text: &str) -> String {
    object(text)
        .filter(|object| object.contains_key(FIELD))
        .map_or_else(
            || text.to_owned(),
            |mut object| {
                object.remove(FIELD);
                encode(&object).unwrap_or_else(|| text.to_owned())
            },
        )
}

/// Returns the body in a form that is equal for all deliveries of one message: normalised, and
/// without the fields that deliveries change. A large body is returned unchanged.
pub(crate) fn compared(kept: &str) -> String {
    let body::Excerpt { text, cut } = body::excerpt(kept, COMPARED_BYTES);
    if cut || Extent::of(text.as_bytes()).parsed() > COMPARED_MEMORY {
        return kept.to_owned();
    }
    match serde_json::from_str(&text) {
        Ok(Value::Object(mut object)) => {
            object.retain(|name, _| name != FIELD && name != "cursor");
            Value::Object(object).to_string()
        }
        _ => kept.to_owned(),
    }
}

fn object(text: &str) -> Option<Fields> {
    serde_json::from_str(&body::decode(text).ok()?.text).ok()
}

fn encode(object: &Fields) -> Option<String> {
    body::pack(&serde_json::to_string(object).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{full, gzip, random_text};
    use evenkeel_model::job;

    fn note(free: u32) -> Note {
        Note {
            id: "m1".to_owned(),
            free,
            ..Note::default()
        }
    }

    fn read(text: &str) -> Option<u32> {
        job::note(&job::decode_object(text).unwrap(), "m1").map(|note| note.free)
    }

    #[test]
    fn a_note_is_put_beside_the_clients_fields_and_replaced_by_the_next() {
        let once = with_note(
            r#"{"op":"sync","table":"Employees","pk":"p","rk":"r","color":[1.5,null]}"#,
            &note(1),
        )
        .unwrap();
        let twice = with_note(&once, &note(2)).unwrap();
        assert_eq!(read(&twice), Some(2));
        assert_eq!(
            job::decode_object(&twice).unwrap()["color"].to_string(),
            "[1.5,null]"
        );
        assert!(job::decode(&twice).is_ok());
    }

    #[test]
    fn deliveries_of_one_message_have_one_body_and_other_messages_others() {
        let text = |job: &str, cursor: u32| {
            let fields = Map::from_iter([("cursor".to_owned(), Value::from(cursor))]);
            compared(&with_progress(job, &note(cursor), &fields).unwrap())
        };
        let job = r#"{"op": "backfill", "table": "T"}"#;
        assert_eq!(text(job, 1), text(job, 2));
        assert_eq!(text(job, 1), compared(job));
        assert_ne!(text(job, 1), compared(r#"{"op":"backfill","table":"U"}"#));
        assert_ne!(compared("no job"), compared("no other"));
    }

    #[test]
    fn progress_replaces_the_jobs_own_fields_and_nothing_else() {
        let fields = Map::from_iter([("cursor".to_owned(), Value::from(2))]);
        let text = with_progress(
            r#"{"op":"backfill","table":"T","cursor":1}"#,
            &note(1),
            &fields,
        )
        .unwrap();
        let object = job::decode_object(&text).unwrap();
        assert_eq!(
            (object["cursor"].as_u64(), object["table"].as_str()),
            (Some(2), Some("T"))
        );
    }

    #[test]
    fn a_note_that_does_not_fit_is_left_out() {
        let large = full(r#""op":"sync""#);
        assert!(job::decode_object(&large).is_ok());
        assert!(with_note(&large, &note(1)).is_none());
        assert_eq!(with_note("hello", &note(1)), None);
        assert_eq!(with_note("[1]", &note(1)), None);
    }

    #[test]
    fn a_body_that_is_full_keeps_its_note_compressed() {
        let full = format!(r#"{{"op":"sync","x":"{}"}}"#, random_text(49_120));
        let text = with_note(&full, &note(1)).unwrap();
        assert!(text.len() <= 65_536);
        assert_eq!(read(&text), Some(1));
    }

    #[test]
    fn a_compressed_body_keeps_its_note_compressed_where_it_must() {
        let json = format!(r#"{{"op":"sync","x":"{}"}}"#, "x".repeat(200_000));
        let text = with_note(&gzip(&json), &note(3)).unwrap();
        assert!(text.len() < 65_536);
        assert_eq!(read(&text), Some(3));
    }

    #[test]
    fn a_copy_loses_the_note_and_nothing_else() {
        let noted = with_note(r#"{"op":"sync","pk":"p"}"#, &note(4)).unwrap();
        assert_eq!(
            body::decode(&without_note(&noted)).unwrap().text,
            r#"{"op":"sync","pk":"p"}"#
        );
        assert_eq!(without_note("not a job"), "not a job");
        assert_eq!(without_note(r#"{ "op" : "sync" }"#), r#"{ "op" : "sync" }"#);
    }
}
