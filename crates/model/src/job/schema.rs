//! The JSON Schema of a job.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::batch::{Listing, SubjectList};
use super::{VERSION, operations};

/// The JSON Schema of a message's body (draft 2020-12), with one alternative for each operation and for each of its lists of primaries.
pub fn schema() -> Value {
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "evenkeel job",
        "description": "The body of a message on a job queue: UTF-8 JSON, plain or in Base64, at most 48 KiB.",
        "anyOf": operations::schemas(),
    })
}

/// Returns the schemas of an operation: one for a single job, and one for each of its lists.
pub(super) fn of<T: JsonSchema>(op: &str, listing: Option<Listing>) -> Vec<Value> {
    let one = single::<T>(op);
    let many = listing
        .into_iter()
        .flat_map(SubjectList::of)
        .map(|list| many(one.clone(), list));
    std::iter::once(one.clone()).chain(many).collect()
}

/// Returns the schema of an operation with a list instead of the fields that the list replaces.
fn many(mut schema: Value, list: SubjectList) -> Value {
    let field = list.field();
    let Some(object) = schema.as_object_mut() else {
        return schema;
    };
    object.insert(
        "title".to_owned(),
        Value::String(format!(
            "{} of many: {}",
            object["title"].as_str().unwrap_or_default(),
            field
        )),
    );
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for field in list.excluded() {
            properties.remove(field);
        }
        properties.insert(field.to_owned(), list.schema());
    }
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.retain(|name| !list.excluded().any(|field| name == field));
        required.push(Value::String(field.to_owned()));
    }
    schema
}

/// Returns the schema of a single job, with the fields that every message has.
fn single<T: JsonSchema>(op: &str) -> Value {
    // Subschemas are inlined because the alternatives are embedded in a larger schema, where references to their own root would break.
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true);
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        let properties = object
            .entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("op".to_owned(), serde_json::json!({"const": op}));
            properties.insert(
                "v".to_owned(),
                serde_json::json!({"const": VERSION, "description": "Version of the message format; default 1."}),
            );
            properties.insert("id".to_owned(), serde_json::json!({"type": ["string", "null"], "description": "The client's own id of the job, which appears in logs and poison messages."}));
            properties
                .insert("traceparent".to_owned(), serde_json::json!({"type": ["string", "null"], "description": "W3C trace context."}));
        }
        if let Some(Value::Array(required)) = object.get_mut("required") {
            required.insert(0, Value::String("op".to_owned()));
        }
    }
    schema
}
