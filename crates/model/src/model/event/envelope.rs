//! The envelope of an event, and its fields under one name each.

use serde_json::{Map, Value};

use crate::model::{EdmDateTime, EdmValue, quoted};

/// The form of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// CloudEvents 1.0, structured mode: one JSON object.
    CloudEvents,
    /// The schema of Azure Event Grid.
    EventGrid,
}

impl Schema {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CloudEvents => "CloudEvents 1.0",
            Self::EventGrid => "Event Grid",
        }
    }

    /// The field of this schema for a name that both share.
    fn field(self, name: &str) -> &str {
        match (self, name) {
            (Self::EventGrid, "type") => "eventType",
            (Self::EventGrid, "time") => "eventTime",
            (Self::EventGrid, "source") => "topic",
            _ => name,
        }
    }

    /// The texts that an event of this schema must have.
    const fn required(self) -> &'static [&'static str] {
        match self {
            Self::CloudEvents => &["id", "source", "type"],
            Self::EventGrid => &["id", "subject", "type"],
        }
    }
}

/// An event with an envelope that its schema allows.
#[derive(Debug, Clone, Copy)]
pub struct ForeignEvent<'e> {
    /// Its schema.
    pub schema: Schema,
    object: &'e Map<String, Value>,
}

/// Why an event is no event, or no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EventError(pub(super) String);

impl<'e> ForeignEvent<'e> {
    /// The event of a message. `None` where it is none: it has an `op`, or neither `specversion` nor `eventType`.
    ///
    /// # Errors
    ///
    /// Another version of CloudEvents, or an envelope without a field that its schema demands.
    pub fn of(object: &'e Map<String, Value>) -> Option<Result<Self, EventError>> {
        let schema = match object {
            _ if object.contains_key("op") => return None,
            _ if object.contains_key("specversion") => Schema::CloudEvents,
            _ if object.contains_key("eventType") => Schema::EventGrid,
            _ => return None,
        };
        if schema == Schema::CloudEvents && object["specversion"] != "1.0" {
            let found = quoted::cut(&object["specversion"], 180);
            return Some(Err(EventError(format!("the message is a CloudEvents event with \"specversion\" {found}; 1.0 is read"))));
        }
        let event = Self { schema, object };
        let lacking = schema.required().iter().find(|name| event.text(name).is_none_or(str::is_empty));
        Some(lacking.map_or(Ok(event), |name| {
            Err(EventError(format!("the message is an event ({}) without the text {:?}", schema.name(), schema.field(name))))
        }))
    }

    /// A field of the envelope that is a text.
    pub fn text(&self, name: &str) -> Option<&'e str> {
        self.object.get(self.schema.field(name))?.as_str()
    }

    /// The value at a path such as `data.url`. Numbers without a fraction are Edm.Int64, `time` is Edm.DateTime. `None` for null, lists and
    /// objects.
    pub fn value(&self, path: &str) -> Option<EdmValue> {
        let mut names = path.split('.');
        let first = self.object.get(self.schema.field(names.next()?))?;
        match names.try_fold(first, |value, name| value.as_object()?.get(name))? {
            Value::String(text) if path == "time" => {
                Some(EdmDateTime::parse(text).map_or_else(|_| EdmValue::String(text.clone()), EdmValue::DateTime))
            }
            Value::String(text) => Some(EdmValue::String(text.clone())),
            Value::Bool(truth) => Some(EdmValue::Bool(*truth)),
            Value::Number(number) => number.as_i64().map(EdmValue::Int64).or_else(|| number.as_f64().map(EdmValue::Double)),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// Checks the name of an event's field in a mapping: a field of the envelope, an extension attribute, or a path below `data`.
pub fn check_path(path: &str) -> Result<(), String> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let meant = match first {
        "eventType" => Some("type"),
        "eventTime" => Some("time"),
        "topic" => Some("source"),
        _ => None,
    };
    if let Some(meant) = meant {
        return Err(format!("write {meant:?}, which is {first:?} of Event Grid too"));
    }
    let known = matches!(first, "dataVersion" | "metadataVersion") || {
        (1..=20).contains(&first.len()) && first.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    if !known || first.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("{first:?} is no field of an event: id, source, type, subject, time, data.NAME, or an extension attribute"));
    }
    match (first, rest) {
        ("data", None) => Err("data is an object: name what is in it, such as data.url".to_owned()),
        ("data", Some(rest)) if rest.split('.').all(|name| !name.is_empty()) => Ok(()),
        (_, None) => Ok(()),
        (_, Some(_)) => Err(format!("{path:?} is no field of an event: only data has fields of its own")),
    }
}
