//! `[events.NAME]`: mappings from events of other systems to jobs.

use serde_json::{Map, Value};

use super::section::Section;
use super::tree::{Node, Toml};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::condition::Condition;
use evenkeel_model::event::{EventMapping, EventMappings};
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::template::{Distinction, keys_determine};
use evenkeel_model::{TableName, ViewName};

const JOB: &str = "the job, such as { op = \"sync\", table = \"Employees\", pk = \"{data.department}\", rk = \"{data.number}\" }";

pub(super) fn read(
    root: &Section<'_>,
    catalog: &Catalog,
    queues: &[QueueSettings],
) -> EventMappings {
    EventMappings(
        root.subsections("events")
            .into_iter()
            .filter_map(|(name, section)| mapping(name, &section, catalog, queues))
            .collect(),
    )
}

fn mapping(
    name: &str,
    section: &Section<'_>,
    catalog: &Catalog,
    queues: &[QueueSettings],
) -> Option<EventMapping> {
    let name = ViewName::new(name)
        .map_err(|error| section.error("", error))
        .ok();
    let when = section.optional("when", |section| {
        section.parsed("when", Condition::parse_of_event)
    });
    let job = section.section("job");
    if !section.has("job") {
        section.error("job", format!("missing; expected {JOB}"));
    }
    section.finish();
    let (job, name, when) = (job?, name?, when.ok()?);
    let json: Map<String, Value> = job
        .entries()
        .map(|(key, node)| (key.to_owned(), json(node)))
        .collect();
    let mapping = EventMapping::new(name, when, json).map_err(|error| {
        let within = ["entity", "newer_by"]
            .into_iter()
            .find_map(|field| Some((field, error.field.strip_prefix(field)?.strip_prefix('.')?)));
        match within {
            Some((field, property)) => {
                if let Some(section) = job.section(field) {
                    section.error(property, &error);
                }
            }
            None => job.error(&error.field, &error),
        }
    });
    let mapping = mapping.ok()?;
    check(&mapping, &job, catalog);
    warn_of_shared_keys(&mapping, &job);
    if !queues.iter().any(|queue| queue.allows_op(mapping.op())) {
        job.warning(
            "op",
            format!("no declared queue allows {op} jobs, so every event of this mapping is poisoned. Add {op} to allow in one of the [[queues]]", op = mapping.op()),
        );
    }
    Some(mapping)
}

fn check(mapping: &EventMapping, job: &Section<'_>, catalog: &Catalog) {
    for (field, name) in mapping.names() {
        let known = match field {
            "archive" => ViewName::new(name).is_ok_and(|name| catalog.archives.contains_key(&name)),
            _ => TableName::new(name).is_ok_and(|name| catalog.table(&name).is_some()),
        };
        if !known {
            let message = if field == "archive" {
                format!("the catalog has no archive {name:?}; declare [archives.{name}]")
            } else {
                format!(
                    "the catalog has no table {name:?}; declare [tables.{name}], or a view or archive of it"
                )
            };
            job.error(field, message);
        }
        let table = TableName::new(name)
            .ok()
            .and_then(|name| catalog.table(&name));
        let encrypted = table.and_then(|table| catalog.encrypted.get(table));
        if let Some(property) = mapping
            .properties()
            .find(|property| encrypted.is_some_and(|encrypted| encrypted.contains(*property)))
        {
            job.error(
                "entity",
                format!("{property:?} is encrypted in {name}, but events are stored in plain text in their queue and in the poison queue. Remove it from entity"),
            );
        }
    }
}

/// Warns if two different events can get the same key. The fields of the row key are checked, or those of the partition key if the row
/// key is fixed. There is a warning if none of these fields can be restored from the key. Different spellings of a value may share a
/// key.
fn warn_of_shared_keys(mapping: &EventMapping, job: &Section<'_>) {
    let Some([partition_key, row_key]) = mapping.key_templates() else {
        return;
    };
    let row_decides = row_key.fields().next().is_some();
    let fields = if row_decides {
        row_key.properties()
    } else {
        partition_key.properties()
    };
    let is_determined = |field: &&str| {
        keys_determine(
            &[partition_key, row_key],
            field,
            Distinction::Spellings,
            mapping.beginning(field),
        )
    };
    if fields.is_empty() || fields.iter().any(is_determined) {
        return;
    }
    let message = format!(
        "two different events can get the same key, because {} cannot be restored from the key. Use the whole value, or parts that together give the value, such as before:/ and after:/",
        fields.into_iter().collect::<Vec<_>>().join(" and ")
    );
    match job.section("entity").filter(|entity| entity.has("RowKey")) {
        Some(entity) => entity.warning(
            if row_decides {
                "RowKey"
            } else {
                "PartitionKey"
            },
            message,
        ),
        None => job.warning(if row_decides { "rk" } else { "pk" }, message),
    }
}

fn json(node: &Node) -> Value {
    match &node.kind {
        Toml::Bool(truth) => Value::from(*truth),
        Toml::Integer(number) => Value::from(*number),
        Toml::Float(number) => Value::from(*number),
        Toml::Text(text) => Value::from(text.as_str()),
        Toml::List(items) => items.iter().map(json).collect(),
        Toml::Table(table) => Value::Object(
            table
                .iter()
                .map(|(key, node)| (key.clone(), json(node)))
                .collect(),
        ),
    }
}
