//! The `data` of an event, in each form that senders use.
//!
//! | CloudEvents 1.0 | result |
//! | --- | --- |
//! | `data` is a JSON object | its members |
//! | `data` is a text, and `datacontenttype` is JSON or absent, which means JSON | the members of the JSON object in the text |
//! | `data` is a text of another content type | unreadable |
//! | `data_base64`, and `datacontenttype` is JSON or absent | the members of the JSON object in the decoded bytes |
//! | `data` is an array, a number or a boolean | unreadable, because it has no members |
//!
//! By the specification, a text with a JSON content type is a JSON string, not the JSON document in the text. But senders do write
//! documents as texts, and a mapping that names a member means the member of the document. Events in the Event Grid schema have no content
//! type; their texts are read in the same way.
//!
//! Unreadable data is not absent data, because a job that treated it as absent would remove stored values.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::envelope::Schema;
use crate::job::{self, JobError};
use crate::quoted::Quoted;

#[derive(Debug, Clone)]
pub(super) enum EventData<'e> {
    /// The event has no data, or null.
    Absent,
    /// The members of the data.
    Object(Cow<'e, Map<String, Value>>),
    /// The event has data, but its members cannot be read. Holds the problem.
    Unreadable(String),
}

impl<'e> EventData<'e> {
    pub(super) fn of(schema: Schema, object: &'e Map<String, Value>) -> Self {
        let there = |name: &str| object.get(name).filter(|value| !value.is_null());
        let encoded = there("data_base64").filter(|_| schema == Schema::CloudEvents);
        let content_type = there("datacontenttype").and_then(Value::as_str);
        match (there("data"), encoded) {
            (None, None) => Self::Absent,
            (Some(_), Some(_)) => {
                Self::Unreadable("the event has both data and data_base64".to_owned())
            }
            (Some(Value::Object(data)), None) => Self::Object(Cow::Borrowed(data)),
            (Some(Value::String(text)), None) => Self::of_text("data", content_type, text),
            (Some(other), None) => {
                Self::Unreadable(format!("data is {}, not an object", kind(other)))
            }
            (None, Some(Value::String(text))) => match BASE64.decode(text).map(String::from_utf8) {
                Ok(Ok(text)) => Self::of_text(
                    "data_base64",
                    content_type,
                    text.trim_start_matches('\u{feff}'),
                ),
                Ok(Err(_)) => Self::Unreadable("data_base64 is not UTF-8 text".to_owned()),
                Err(error) => Self::Unreadable(format!("data_base64 is not Base64: {error}")),
            },
            (None, Some(other)) => {
                Self::Unreadable(format!("data_base64 is {}, not a text", kind(other)))
            }
        }
    }

    fn of_text(field: &str, content_type: Option<&str>, text: &str) -> Self {
        if let Some(other) = content_type.filter(|content_type| !is_json(content_type)) {
            return Self::Unreadable(format!("{field} is text of {}, not JSON", Quoted(other)));
        }
        match job::object_of(text) {
            Ok(data) => Self::Object(Cow::Owned(data)),
            Err(JobError::IntegerTooLong(characters)) => Self::Unreadable(format!(
                "{field} contains an integer of {characters} characters, which does not fit into 64 bits"
            )),
            Err(JobError::Json(problem)) => {
                Self::Unreadable(format!("{field} is text that is not JSON: {problem}"))
            }
            Err(JobError::TooManyValues(_)) => {
                Self::Unreadable(format!("{field} would take too much memory"))
            }
            Err(_) => Self::Unreadable(format!("{field} is text that is not a JSON object")),
        }
    }
}

/// Whether a media type is JSON: `application/json`, `text/json`, `application/vnd.contoso+json; charset=utf-8`.
fn is_json(content_type: &str) -> bool {
    let media_type = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let subtype = media_type
        .split_once('/')
        .map_or("", |(_, subtype)| subtype);
    subtype == "json" || subtype.ends_with("+json")
}

/// The type of a JSON value in words.
pub(super) const fn kind(json: &Value) -> &'static str {
    match json {
        Value::Object(_) => "an object",
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
    }
}
