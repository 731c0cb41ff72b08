//! Reads the content of entities, documents and log lines. This is a second, simple implementation, which does not use
//! the program's own code.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::LARGE_PROPERTY;
use evenkeel_model::{EdmValue, Entity, EntityKey};

/// The properties of an entity. A large value is represented by its hash, whether a row, a blob or a file contains it.
pub(super) type Content = BTreeMap<String, String>;

fn large(text: &str) -> String {
    let pointer = text
        .starts_with('{')
        .then(|| serde_json::from_str::<Value>(text).ok())
        .flatten();
    let elsewhere =
        pointer.filter(|pointer| pointer["$blob"].is_string() || pointer["$file"].is_string());
    match elsewhere {
        Some(pointer) => format!("sha256 {}", pointer["sha256"].as_str().unwrap_or_default()),
        None => format!("sha256 {}", hex::encode(Sha256::digest(text))),
    }
}

pub(super) fn of_entity(entity: &Entity) -> Content {
    let own = entity
        .properties
        .iter()
        .filter(|(name, _)| !name.starts_with("ek_"));
    let says = own.map(|(name, value)| {
        let value = match value {
            EdmValue::String(text) if name == LARGE_PROPERTY => large(text),
            EdmValue::String(text) => format!("text {text}"),
            EdmValue::Int64(number) => format!("Edm.Int64 {number}"),
            EdmValue::Bool(truth) => format!("bool {truth}"),
            other => format!("{other:?}"),
        };
        (name.clone(), value)
    });
    says.collect()
}

pub(super) fn of_json(json: &Value) -> Content {
    let own = json.as_object().into_iter().flatten().filter(|(name, _)| {
        !name.starts_with("ek_")
            && !name.contains("odata.")
            && !matches!(name.as_str(), "PartitionKey" | "RowKey" | "Timestamp")
    });
    let says = own.map(|(name, value)| {
        let kind = json
            .get(format!("{name}@odata.type"))
            .and_then(Value::as_str);
        let value = match (value, kind) {
            (Value::String(text), None) if name == LARGE_PROPERTY => large(text),
            (Value::String(text), None) => format!("text {text}"),
            (Value::String(text), Some(kind)) => format!("{kind} {text}"),
            (Value::Bool(truth), None) => format!("bool {truth}"),
            (other, kind) => format!("{kind:?} {other}"),
        };
        (name.clone(), value)
    });
    says.collect()
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ArchivedVersion {
    pub(super) key: EntityKey,
    /// The ETag that the archived version had in the source. `None` if a run has given up and removed this ETag from
    /// the document.
    pub(super) version: Option<String>,
    pub(super) by: String,
    pub(super) content: Content,
    pub(super) value: Option<String>,
}

pub(super) fn archived(text: &[u8]) -> Result<ArchivedVersion, String> {
    let wrong = |what: &str| format!("{what}: {:?}", String::from_utf8_lossy(text));
    let json: Value = serde_json::from_slice(text).map_err(|error| wrong(&error.to_string()))?;
    let field = |name: &str| json[name].as_str();
    let key = field("PartitionKey")
        .zip(field("RowKey"))
        .and_then(|(pk, rk)| EntityKey::new(pk, rk).ok());
    let by = field("ek_job")
        .and_then(|stamp| stamp.split_once(' '))
        .map(|(message, _)| message.to_owned());
    Ok(ArchivedVersion {
        key: key.ok_or_else(|| wrong("no PartitionKey or RowKey"))?,
        version: field("ek_source_etag").map(str::to_owned),
        by: by.ok_or_else(|| wrong("no job stamp in ek_job"))?,
        content: of_json(&json),
        value: field(LARGE_PROPERTY).and_then(pointed_to),
    })
}

/// The target of a pointer: `container/name` for a blob, or the name for a file.
pub(super) fn pointed_to(text: &str) -> Option<String> {
    let pointer: Value = text
        .starts_with('{')
        .then(|| serde_json::from_str(text).ok())
        .flatten()?;
    pointer["$blob"]
        .as_str()
        .or_else(|| pointer["$file"].as_str())
        .map(str::to_owned)
}
