//! `[events.NAME]`: events of others that become jobs.

use serde_json::{Map, Value};

use super::section::Section;
use super::tree::{Node, Toml};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::model::condition::Condition;
use evenkeel_model::model::event::{EventMapping, EventMappings};
use evenkeel_model::model::{TableName, ViewName};
use evenkeel_model::settings::QueueSettings;

const JOB: &str = "the job, such as { op = \"sync\", table = \"Employees\", pk = \"{data.department}\", rk = \"{data.number}\" }";

/// Reads every mapping, and checks the names in it against the catalog.
pub(super) fn read(root: &Section<'_>, catalog: &Catalog, queues: &[QueueSettings]) -> EventMappings {
    EventMappings(root.named("events").into_iter().filter_map(|(name, section)| mapping(name, &section, catalog, queues)).collect())
}

fn mapping(name: &str, section: &Section<'_>, catalog: &Catalog, queues: &[QueueSettings]) -> Option<EventMapping> {
    let name = ViewName::new(name).map_err(|error| section.error("", error)).ok();
    let when = section.optional("when", |section| section.parsed("when", Condition::parse_of_event));
    let job = section.section("job");
    if !section.has("job") {
        section.error("job", format!("missing; expected {JOB}"));
    }
    section.finish();
    let (job, name, when) = (job?, name?, when.ok()?);
    let json: Map<String, Value> = job.nodes().map(|(key, node)| (key.to_owned(), json(node))).collect();
    let mapping = EventMapping::new(name, when, json).map_err(|error| match error.field.strip_prefix("entity.") {
        Some(property) => {
            if let Some(entity) = job.section("entity") {
                entity.error(property, &error);
            }
        }
        None => job.error(&error.field, &error),
    });
    let mapping = mapping.ok()?;
    check(&mapping, &job, catalog);
    if !queues.iter().any(|queue| queue.carries(mapping.op())) {
        job.warning(
            "op",
            format!("no declared queue carries {} jobs (its `allow`): every event that this mapping takes is poisoned", mapping.op()),
        );
    }
    Some(mapping)
}

/// Checks that the catalog knows the names, and that no encrypted property is among those written.
fn check(mapping: &EventMapping, job: &Section<'_>, catalog: &Catalog) {
    for (field, name) in mapping.names() {
        let known = match field {
            "archive" => ViewName::new(name).is_ok_and(|name| catalog.archives.contains_key(&name)),
            _ => TableName::new(name).is_ok_and(|name| catalog.table(&name).is_some()),
        };
        if !known {
            let section = if field == "archive" { "archives" } else { "tables" };
            job.error(field, format!("{name:?} is not declared: add [{section}.{name}], or a view or an archive of it"));
        }
        let table = TableName::new(name).ok().and_then(|name| catalog.table(&name));
        let encrypted = table.and_then(|table| catalog.encrypted.get(table));
        if let Some(property) = mapping.written().find(|property| encrypted.is_some_and(|encrypted| encrypted.contains(*property))) {
            job.error(
                "entity",
                format!("{property:?} is encrypted in {name}, and an event holds it in plain text: in its queue, and in the poison queue"),
            );
        }
    }
}

fn json(node: &Node) -> Value {
    match &node.kind {
        Toml::Bool(truth) => Value::from(*truth),
        Toml::Integer(number) => Value::from(*number),
        Toml::Float(number) => Value::from(*number),
        Toml::Text(text) => Value::from(text.as_str()),
        Toml::List(items) => items.iter().map(json).collect(),
        Toml::Table(table) => Value::Object(table.iter().map(|(key, node)| (key.clone(), json(node))).collect()),
    }
}
