//! The JSON Schema of a job.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::{VERSION, operations};

/// The JSON Schema of a message's body (draft 2020-12), one alternative per operation.
pub fn schema() -> Value {
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "evenkeel job",
        "description": "The body of a message on a job queue: UTF-8 JSON, plain or in Base64, at most 48 KiB.",
        "oneOf": operations::schemas(),
    })
}

/// The schema of an operation, with the fields of every message.
pub(super) fn of<T: JsonSchema>(op: &str) -> Value {
    // Inlined: each alternative stands inside the whole, where a reference to its own root would point nowhere.
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        let properties = object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("op".to_owned(), serde_json::json!({"const": op}));
            properties.insert(
                "v".to_owned(),
                serde_json::json!({"const": VERSION, "description": "Version of the message format; 1 when absent."}),
            );
            properties.insert("id".to_owned(), serde_json::json!({"type": ["string", "null"], "description": "The client's own name for the job, echoed in logs and poison messages."}));
            properties
                .insert("traceparent".to_owned(), serde_json::json!({"type": ["string", "null"], "description": "W3C trace context."}));
        }
        if let Some(Value::Array(required)) = object.get_mut("required") {
            required.insert(0, Value::String("op".to_owned()));
        }
    }
    schema
}
