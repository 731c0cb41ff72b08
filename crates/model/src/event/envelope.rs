//! The envelope of an event, with one set of field names for both schemas.

use serde_json::{Map, Value};

use super::data::{EventData, kind};
use crate::condition::Found;
use crate::{EdmDateTime, EdmValue, quoted};

/// The schema of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// CloudEvents 1.0, structured mode: one JSON object.
    CloudEvents,
    /// The event schema of Azure Event Grid.
    EventGrid,
}

impl Schema {
    /// The name of the schema.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CloudEvents => "CloudEvents 1.0",
            Self::EventGrid => "Event Grid",
        }
    }

    /// The name in this schema of a field that both schemas have.
    fn field(self, name: &str) -> &str {
        match (self, name) {
            (Self::EventGrid, "type") => "eventType",
            (Self::EventGrid, "time") => "eventTime",
            (Self::EventGrid, "source") => "topic",
            _ => name,
        }
    }

    /// The text fields that an event of this schema must have.
    const fn required(self) -> &'static [&'static str] {
        match self {
            Self::CloudEvents => &["id", "source", "type"],
            Self::EventGrid => &["id", "subject", "type"],
        }
    }
}

/// An event whose envelope is valid in its schema.
#[derive(Debug, Clone)]
pub struct ForeignEvent<'e> {
    /// The schema of the event.
    pub schema: Schema,
    object: &'e Map<String, Value>,
    data: EventData<'e>,
}

/// The value of an event's field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventValue {
    /// The field is missing or null.
    Absent,
    /// A value that a property can hold.
    Value(EdmValue),
    /// A list or an object, which no property can hold. Holds the problem.
    Compound(String),
    /// A value that evenkeel cannot read. Holds the problem.
    Unreadable(String),
}

impl EventValue {
    /// Returns the value, or `None` if the event has none.
    ///
    /// # Errors
    ///
    /// The field holds something that is not a value of a property.
    pub fn read(self) -> Result<Option<EdmValue>, String> {
        match self {
            Self::Absent => Ok(None),
            Self::Value(value) => Ok(Some(value)),
            Self::Compound(problem) | Self::Unreadable(problem) => Err(problem),
        }
    }

    /// Converts to the result type of conditions.
    pub fn found(self) -> Found {
        match self {
            Self::Absent => Found::Absent,
            Self::Value(value) => Found::Value(value),
            Self::Compound(_) => Found::Compound,
            Self::Unreadable(_) => Found::Unreadable,
        }
    }
}

/// A message that is not a valid event, or that no job can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EventError(pub(super) String);

impl<'e> ForeignEvent<'e> {
    /// Reads an event from a message. Returns `None` if the message has an `op`, or neither `specversion` nor `eventType`.
    ///
    /// # Errors
    ///
    /// The version of CloudEvents is unknown, or the envelope lacks a required field.
    pub fn of(object: &'e Map<String, Value>) -> Option<Result<Self, EventError>> {
        if object.contains_key("op") {
            return None;
        }
        // An event of CloudEvents version 0.1 has the field `eventType`, as an event of Event Grid has. Its `cloudEventsVersion` shows the
        // difference.
        let version = ["specversion", "cloudEventsVersion"]
            .into_iter()
            .find_map(|name| Some((name, object.get(name)?)));
        let schema = match version {
            Some(("specversion", version)) if version == "1.0" => Schema::CloudEvents,
            Some((name, version)) => {
                let found = quoted::cut(version, 180);
                return Some(Err(EventError(format!(
                    "unsupported CloudEvents version: {name:?} is {found}, expected 1.0"
                ))));
            }
            None if object.contains_key("eventType") => Schema::EventGrid,
            None => return None,
        };
        let event = Self {
            schema,
            object,
            data: EventData::of(schema, object),
        };
        let lacking = schema
            .required()
            .iter()
            .find(|name| event.text(name).is_none_or(str::is_empty));
        Some(lacking.map_or(Ok(event), |name| {
            Err(EventError(format!(
                "the event ({}) lacks the text field {:?}",
                schema.name(),
                schema.field(name)
            )))
        }))
    }

    /// A text field of the envelope.
    pub fn text(&self, name: &str) -> Option<&'e str> {
        self.object.get(self.schema.field(name))?.as_str()
    }

    /// The value at a path such as `data.url`. Whole numbers are Edm.Int64, and `time` is Edm.DateTime.
    pub fn value(&self, path: &str) -> EventValue {
        let (first, members) = path
            .split_once('.')
            .map_or((path, None), |(first, members)| (first, Some(members)));
        let found = match (members, &self.data) {
            (None, _) => self.object.get(self.schema.field(first)),
            (Some(_), EventData::Absent) => None,
            (Some(_), EventData::Unreadable(problem)) => {
                return EventValue::Unreadable(format!("{path} cannot be read: {problem}"));
            }
            (Some(members), EventData::Object(data)) => {
                let (member, rest) = members
                    .split_once('.')
                    .map_or((members, None), |(member, rest)| (member, Some(rest)));
                let mut found = data.get(member);
                for member in rest.into_iter().flat_map(|rest| rest.split('.')) {
                    found = match found {
                        None | Some(Value::Null) => None,
                        Some(Value::Object(object)) => object.get(member),
                        Some(other) => {
                            let problem = format!(
                                "{path} cannot be read: the value that should contain {member:?} is {}",
                                kind(other)
                            );
                            return EventValue::Unreadable(problem);
                        }
                    };
                }
                found
            }
        };
        match found {
            None | Some(Value::Null) => EventValue::Absent,
            Some(Value::String(text)) if path == "time" => match EdmDateTime::parse(text) {
                Ok(moment) => EventValue::Value(moment.into()),
                Err(error) => EventValue::Unreadable(format!("time cannot be read: {error}")),
            },
            Some(Value::String(text)) => EventValue::Value(text.as_str().into()),
            Some(Value::Bool(truth)) => EventValue::Value((*truth).into()),
            Some(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => EventValue::Value(integer.into()),
                (None, Some(fraction)) if !number.is_u64() => EventValue::Value(fraction.into()),
                _ => {
                    let characters = number.to_string().len();
                    EventValue::Unreadable(format!(
                        "{path} is an integer of {characters} characters, which exceeds Edm.Int64; send it as a text"
                    ))
                }
            },
            Some(compound @ (Value::Array(_) | Value::Object(_))) => EventValue::Compound(format!(
                "{path} is {}, which no key or property can hold",
                kind(compound)
            )),
        }
    }

    /// Whether the event has no data at all.
    pub const fn is_without_data(&self) -> bool {
        matches!(self.data, EventData::Absent)
    }
}

/// Checks the name of an event's field in a mapping: a field of the envelope, an extension attribute, or a path below `data`.
pub fn check_path(path: &str) -> Result<(), String> {
    let (first, rest) = path
        .split_once('.')
        .map_or((path, None), |(first, rest)| (first, Some(rest)));
    let meant = match first {
        "eventType" => Some("type"),
        "eventTime" => Some("time"),
        "topic" => Some("source"),
        _ => None,
    };
    if let Some(meant) = meant {
        return Err(format!(
            "use {meant:?} instead; it stands for {first:?} of Event Grid"
        ));
    }
    let known = matches!(first, "dataVersion" | "metadataVersion") || {
        (1..=20).contains(&first.len())
            && first
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    if !known || first.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "{first:?} is not a field of an event; expected id, source, type, subject, time, data.NAME or an extension attribute"
        ));
    }
    match (first, rest) {
        ("data", None) => {
            Err("data is an object; name one of its members, such as data.url".to_owned())
        }
        ("data", Some(rest)) if rest.split('.').all(|name| !name.is_empty()) => Ok(()),
        (_, None) => Ok(()),
        (_, Some(_)) => Err(format!(
            "{path:?} is not a field of an event: only data has members"
        )),
    }
}
