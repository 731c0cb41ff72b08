//! Mappings from events to jobs.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

use super::envelope::{EventError, EventValue, ForeignEvent};
use crate::condition::Condition;
use crate::job;
use crate::odata::{self, ODataError};
use crate::template::{Escaping, Template};
use crate::{EdmValue, Key, ViewName, cause};

/// Fields of a job that are key templates.
const KEYS: [&str; 4] = ["pk", "rk", "to_pk", "to_rk"];
const ENTITY: &str = "entity";
const NEWER_BY: &str = "newer_by";
/// Fields of an entity that are key templates.
const ENTITY_KEYS: [&str; 2] = ["PartitionKey", "RowKey"];
/// Fields that a mapping cannot set, because the event or a worker sets them.
const OWN: [&str; 4] = ["id", "traceparent", "ek", "cursor"];
const TYPE_SUFFIX: &str = "@odata.type";
/// Maximum length of the list of mappings in an error, in bytes.
const LISTED_BYTES: usize = 2_048;
/// Event type of the webhook handshake.
const HANDSHAKE: &str = "Microsoft.EventGrid.SubscriptionValidationEvent";

/// `[events.NAME]`: which events become a job, and that job.
#[derive(Debug, Clone, PartialEq)]
pub struct EventMapping {
    /// The name of the mapping.
    pub name: ViewName,
    when: Option<Condition>,
    /// The fields of the job that are not templates, including `op`.
    fixed: Map<String, Value>,
    keys: BTreeMap<String, Template>,
    entity: Option<EntityMapping>,
    /// The property and value that a `delete` compares.
    newer_by: Option<EntityMapping>,
}

/// The entity of a job, or the property in the `newer_by` of a job.
#[derive(Debug, Clone, PartialEq, Default)]
struct EntityMapping {
    /// Property values that are not templates, and type annotations.
    fixed: Map<String, Value>,
    keys: BTreeMap<String, Template>,
    properties: BTreeMap<String, Template>,
}

/// A mapping that is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct MappingError {
    /// The field of the job: `pk`, `entity.Name` or `newer_by.Name`; empty if the job as a whole is invalid.
    pub field: String,
    /// The problem, and the expected input.
    pub problem: String,
}

/// The mappings of a configuration, sorted by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventMappings(pub Vec<EventMapping>);

/// A job made from an event.
#[derive(Debug, Clone, PartialEq)]
pub struct MappedJob<'m> {
    /// The mapping that made the job.
    pub mapping: &'m EventMapping,
    /// The job in the form that a client would send.
    pub job: Map<String, Value>,
}

impl EventMapping {
    /// Parses a mapping, and tries it with an event that has a text in every field.
    ///
    /// # Errors
    ///
    /// A template is invalid, or no event could make a valid job: the operation or a field is unknown, or the job covers more than one
    /// entity.
    pub fn new(
        name: ViewName,
        when: Option<Condition>,
        job: Map<String, Value>,
    ) -> Result<Self, MappingError> {
        let mut mapping = Self {
            name,
            when,
            fixed: Map::new(),
            keys: BTreeMap::new(),
            entity: None,
            newer_by: None,
        };
        for (field, value) in job {
            match value {
                _ if OWN.contains(&field.as_str()) => {
                    let problem = format!(
                        "{field:?} cannot be set in a mapping; the job's \"id\" is the event's"
                    );
                    return Err(MappingError { field, problem });
                }
                Value::String(text) if KEYS.contains(&field.as_str()) => {
                    drop(mapping.keys.insert(field.clone(), key(field, &text)?));
                }
                Value::Object(entity) if field == ENTITY => {
                    mapping.entity = Some(EntityMapping::new(ENTITY, entity)?);
                }
                Value::Object(value) if field == NEWER_BY => {
                    mapping.newer_by = Some(EntityMapping::new(NEWER_BY, value)?);
                }
                value => drop(mapping.fixed.insert(field, value)),
            }
        }
        mapping.tried().map(|()| mapping)
    }

    /// The names that the catalog must know: the table of the job, the target table of a move, and the archive.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        ["table", "to_table", "archive"]
            .into_iter()
            .filter_map(|field| Some((field, self.fixed.get(field)?.as_str()?)))
    }

    /// The names of the properties whose values the jobs of the mapping contain.
    pub fn properties(&self) -> impl Iterator<Item = &str> {
        let entities = self.entity.iter().chain(&self.newer_by);
        entities.flat_map(|entity| {
            entity
                .properties
                .keys()
                .chain(entity.fixed.keys())
                .map(String::as_str)
        })
    }

    /// The templates of the primary's PartitionKey and RowKey.
    pub fn key_templates(&self) -> Option<[&Template; 2]> {
        let (keys, [pk, rk]) = match &self.entity {
            Some(entity) => (&entity.keys, ENTITY_KEYS),
            None => (&self.keys, ["pk", "rk"]),
        };
        Some([keys.get(pk)?, keys.get(rk)?])
    }

    /// The prefix that a text field has in every matching event, as far as the mapping's condition shows it.
    pub fn beginning(&self, field: &str) -> Option<&str> {
        self.when.as_ref()?.beginning(field)
    }

    /// The operation of the mapping's jobs.
    pub fn op(&self) -> &str {
        self.fixed
            .get("op")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Whether the mapping matches an event.
    ///
    /// # Errors
    ///
    /// The result depends on an unreadable field. The error is the problem with that field.
    pub fn takes(&self, event: &ForeignEvent<'_>) -> Result<bool, String> {
        let Some(when) = &self.when else {
            return Ok(true);
        };
        when.decided_with(&|path| event.value(path).found())
            .ok_or_else(|| {
                let problem = |path: &str| {
                    if let EventValue::Unreadable(problem) = event.value(path) {
                        Some(problem)
                    } else {
                        None
                    }
                };
                when.properties()
                    .into_iter()
                    .find_map(problem)
                    .unwrap_or_default()
            })
    }

    /// Makes the job of a matching event.
    fn job(&self, event: &ForeignEvent<'_>) -> Result<Map<String, Value>, String> {
        let mut job = self.fixed.clone();
        for (field, template) in &self.keys {
            job.insert(field.clone(), filled(field, template, event)?);
        }
        if let Some(entity) = &self.entity {
            let filled = entity.filled(event)?;
            self.check_lacking(entity, &filled, event)?;
            job.insert(ENTITY.to_owned(), Value::Object(filled));
        }
        if let Some(newer_by) = &self.newer_by {
            let filled = newer_by.filled(event)?;
            if let Some((name, template)) = newer_by
                .properties
                .iter()
                .find(|(name, _)| !filled.contains_key(*name))
            {
                return Err(format!(
                    "{template} has no value in this event, but \"newer_by\" compares {name}"
                ));
            }
            job.insert(NEWER_BY.to_owned(), Value::Object(filled));
        }
        for field in ["id", "traceparent"] {
            job.extend(
                event
                    .text(field)
                    .map(|text| (field.to_owned(), Value::from(text))),
            );
        }
        Ok(job)
    }

    /// Refuses an entity that lacks its `newer_by` property. Also refuses a replacement by an event without any data, because the
    /// replacement would remove every property that the mapping takes from the data.
    /// If the event has data but one property is missing there, this property is left out.
    fn check_lacking(
        &self,
        entity: &EntityMapping,
        filled: &Map<String, Value>,
        event: &ForeignEvent<'_>,
    ) -> Result<(), String> {
        let mut lacking = entity
            .properties
            .iter()
            .filter(|(name, _)| !filled.contains_key(*name));
        let compared = self.fixed.get(NEWER_BY).and_then(Value::as_str);
        if let Some((name, template)) = lacking
            .clone()
            .find(|(name, _)| Some(name.as_str()) == compared)
        {
            return Err(format!(
                "{template} has no value in this event, but \"newer_by\" compares {name}"
            ));
        }
        let replaces = self.fixed.get("mode").is_none_or(|mode| mode == "replace");
        let of_data = |template: &Template| {
            template
                .properties()
                .into_iter()
                .any(|path| path.starts_with("data."))
        };
        match lacking
            .find(|(_, template)| of_data(template))
            .filter(|_| replaces && event.is_without_data())
        {
            Some((name, template)) => Err(format!(
                "{template} has no value because the event has no data, so a replacement would remove {name}. Set \"mode\" = \"merge\" to keep it"
            )),
            None => Ok(()),
        }
    }

    /// Decodes the job of an event that has a text in every field.
    fn tried(&self) -> Result<(), MappingError> {
        let mut sample = self.fixed.clone();
        sample.extend(
            self.keys
                .keys()
                .map(|field| (field.clone(), Value::from("x"))),
        );
        for (field, entity) in [(ENTITY, &self.entity), (NEWER_BY, &self.newer_by)] {
            if let Some(entity) = entity {
                sample.insert(field.to_owned(), Value::Object(entity.sample(field)?));
            }
        }
        let whole = |problem: String| MappingError {
            field: String::new(),
            problem,
        };
        let decoded = job::decode_job(sample).map_err(|error| whole(cause::chain(&error)))?;
        let op = decoded.job.op();
        if let Some(field) = decoded.unknown_fields.first().cloned() {
            return Err(MappingError {
                problem: format!("{field:?} is not a field of op {op:?} for one entity"),
                field,
            });
        }
        if decoded.job.key().is_none() {
            return Err(whole(format!(
                "op {op:?} cannot be mapped: an event becomes a job for exactly one entity"
            )));
        }
        Ok(())
    }
}

impl EntityMapping {
    fn new(of: &str, json: Map<String, Value>) -> Result<Self, MappingError> {
        let mut entity = Self::default();
        for (name, value) in json {
            let field = format!("{of}.{name}");
            match value {
                Value::String(text) if of == ENTITY && ENTITY_KEYS.contains(&name.as_str()) => {
                    drop(entity.keys.insert(name, key(field, &text)?));
                }
                Value::String(text) if !name.ends_with(TYPE_SUFFIX) => {
                    let template =
                        Template::parse_of_event(&text).map_err(|error| MappingError {
                            field,
                            problem: error.to_string(),
                        })?;
                    entity.properties.insert(name, template);
                }
                value => drop(entity.fixed.insert(name, value)),
            }
        }
        Ok(entity)
    }

    fn type_of(&self, property: &str) -> Option<&str> {
        self.fixed
            .get(&format!("{property}{TYPE_SUFFIX}"))?
            .as_str()
    }

    /// Fills in the properties from an event. Properties without a value are left out, and unreadable values are errors.
    fn filled(&self, event: &ForeignEvent<'_>) -> Result<Map<String, Value>, String> {
        let mut entity = self.fixed.clone();
        for (name, template) in &self.keys {
            entity.insert(name.clone(), filled(name, template, event)?);
        }
        let mut typed = BTreeMap::new();
        for (name, template) in &self.properties {
            let values = values(template, event)?;
            let value = match template.bare_property() {
                Some(path) => values.get(path).cloned(),
                None => template
                    .render_text_with(|path| values.get(path).cloned())
                    .map_err(|error| error.message)?
                    .map(EdmValue::String),
            };
            match (value, self.type_of(name)) {
                (None, _) => drop(entity.remove(&format!("{name}{TYPE_SUFFIX}"))),
                (Some(value), None) => drop(typed.insert(name.clone(), value)),
                (Some(value), Some(type_name)) => {
                    drop(entity.insert(name.clone(), annotated(type_name, &value)));
                }
            }
        }
        entity.extend(odata::encode_properties(&typed));
        Ok(entity)
    }

    fn sample(&self, of: &str) -> Result<Map<String, Value>, MappingError> {
        let mut entity = self.fixed.clone();
        entity.extend(
            self.keys
                .keys()
                .map(|name| (name.clone(), Value::from("x"))),
        );
        for name in self.properties.keys() {
            let annotation = format!("{name}{TYPE_SUFFIX}");
            let decoded = |value: &Value| {
                let annotated = self.fixed.get_key_value(&annotation).map(owned);
                odata::decode_properties(
                    annotated
                        .into_iter()
                        .chain([(name.clone(), value.clone())])
                        .collect(),
                )
            };
            let values = [
                "x",
                "1",
                "AA==",
                "2026-11-20T15:00:00Z",
                "00000000-0000-0000-0000-000000000000",
            ]
            .map(Value::from);
            let mut values = values
                .into_iter()
                .chain([Value::from(1), Value::from(true)]);
            let unknown = || match decoded(&Value::from("x")) {
                Err(error @ ODataError::Annotation { .. }) => error.to_string(),
                _ => "no value fits this type".to_owned(),
            };
            let Some(value) = values.find(|value| decoded(value).is_ok()) else {
                return Err(MappingError {
                    field: format!("{of}.{annotation}"),
                    problem: unknown(),
                });
            };
            entity.insert(name.clone(), value);
        }
        Ok(entity)
    }
}

impl EventMappings {
    /// Makes the job of an event by the only mapping that matches.
    ///
    /// # Errors
    ///
    /// No mapping or several mappings match, a key has no value, a filter refuses the value of a key, or a needed field is unreadable.
    pub fn map(&self, event: &ForeignEvent<'_>) -> Result<MappedJob<'_>, EventError> {
        let mut takers: Vec<&EventMapping> = Vec::new();
        for mapping in &self.0 {
            match mapping.takes(event) {
                Ok(takes) => takers.extend(Some(mapping).filter(|_| takes)),
                Err(problem) => {
                    return Err(EventError(format!(
                        "[events.{}]: cannot evaluate \"when\": {problem}",
                        mapping.name
                    )));
                }
            }
        }
        match takers.as_slice() {
            [mapping] => match mapping.job(event) {
                Ok(job) => Ok(MappedJob { mapping, job }),
                Err(problem) => Err(EventError(format!(
                    "[events.{}] matches, but cannot make a job of this event: {problem}",
                    mapping.name
                ))),
            },
            [] => Err(EventError(self.untaken(event))),
            several => {
                let names: Vec<&str> = several
                    .iter()
                    .map(|mapping| mapping.name.as_str())
                    .collect();
                Err(EventError(format!(
                    "more than one mapping matches this event: {}",
                    names.join(", ")
                )))
            }
        }
    }

    fn untaken(&self, event: &ForeignEvent<'_>) -> String {
        let field = |name| {
            event
                .text(name)
                .map(|text| format!("{name} {:?}", cause::shortened(text, 256)))
        };
        let about = ["type", "subject"]
            .into_iter()
            .filter_map(field)
            .collect::<Vec<_>>()
            .join(", ");
        let hint = if event.text("type") == Some(HANDSHAKE) {
            "; this is a webhook handshake, which a queue does not need"
        } else {
            ""
        };
        let schema = event.schema.name();
        if self.0.is_empty() {
            return format!(
                "the message is an event ({schema}; {about}), but no [events.NAME] is configured{hint}"
            );
        }
        let listed = |mapping: &EventMapping| match &mapping.when {
            Some(when) => format!("{} (when {when})", mapping.name),
            None => mapping.name.to_string(),
        };
        let known = self.0.iter().map(listed).collect::<Vec<_>>().join(", ");
        format!(
            "no mapping matches this event ({schema}; {about}){hint}; configured are: {}",
            cause::shortened(&known, LISTED_BYTES)
        )
    }
}

fn owned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

fn key(field: String, text: &str) -> Result<Template, MappingError> {
    Template::parse_key_of_event(text).map_err(|error| MappingError {
        field,
        problem: error.to_string(),
    })
}

/// Returns the event's values for the fields of a template.
fn values<'t>(
    template: &'t Template,
    event: &ForeignEvent<'_>,
) -> Result<BTreeMap<&'t str, EdmValue>, String> {
    let read = |path: &'t str| {
        event
            .value(path)
            .read()
            .map(|value| value.map(|value| (path, value)))
            .transpose()
    };
    template.properties().into_iter().filter_map(read).collect()
}

/// Renders a key for an event. Only forbidden characters are escaped, because the sender knows the entity by this key or by the values in
/// the key.
fn filled(field: &str, template: &Template, event: &ForeignEvent<'_>) -> Result<Value, String> {
    let values = values(template, event).map_err(|problem| format!("{field:?}: {problem}"))?;
    let rendered = template.render_with(Escaping::WhereForbidden, |path| values.get(path).cloned());
    let rendered: Option<Key> =
        rendered.map_err(|error| format!("{field:?}: {}", error.message))?;
    rendered
        .map(|key| Value::from(key.as_str()))
        .ok_or_else(|| format!("{field:?}: {template} has no value in this event"))
}

/// Writes a value as JSON of the type that the mapping declares. A value that does not fit is refused when the job is decoded.
fn annotated(type_name: &str, value: &EdmValue) -> Value {
    let text = match value {
        EdmValue::Double(number) => return Value::from(*number),
        EdmValue::String(text) => text.clone(),
        EdmValue::DateTime(moment) => moment.to_string(),
        EdmValue::Int32(number) => number.to_string(),
        EdmValue::Int64(number) => number.to_string(),
        EdmValue::Bool(truth) => truth.to_string(),
        EdmValue::Guid(guid) => guid.to_string(),
        EdmValue::Binary(bytes) => BASE64.encode(bytes),
    };
    match type_name {
        "Edm.Int32" => text.parse::<i32>().map_or(Value::String(text), Value::from),
        "Edm.Boolean" => text
            .parse::<bool>()
            .map_or(Value::String(text), Value::from),
        _ => Value::String(text),
    }
}
