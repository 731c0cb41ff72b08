//! Changes in words, for the story of a run.

use evenkeel::adapters::sim::Change;
use evenkeel::model::{Row, body};
use evenkeel::ports::Blob;

pub(super) fn change(change: &Change) -> String {
    match change {
        Change::Row { table, key, row: None } => format!("- {table}{key}"),
        Change::Row { table, key, row: Some(row) } => format!("+ {table}{key} {}", self::row(row)),
        Change::Blob { container, name, blob: None } => format!("- {container}/{name}"),
        Change::Blob { container, name, blob: Some(blob) } => format!("+ {container}/{name} {}", self::blob(blob)),
        Change::File { place, content: None } => format!("- {}/{}", place.dir, place.name),
        Change::File { place, content: Some(content) } => format!("+ {}/{} {:?}", place.dir, place.name, String::from_utf8_lossy(content)),
        Change::Document { collection, key, document: None } => format!("- {collection}/{key}"),
        Change::Document { collection, key, document: Some(document) } => format!("+ {collection}/{key} {:?}", document.0),
        Change::Table { table, exists } => format!("{} table {table}", if *exists { '+' } else { '-' }),
        Change::Put { queue, id, text } => format!("+ {queue} {} {}", short(id), readable(text)),
        Change::Got { queue, id, dequeue_count } => format!("  {queue} {} got for the {dequeue_count}. time", short(id)),
        Change::Updated { queue, id, text } => format!("~ {queue} {} {}", short(id), readable(text)),
        Change::Deleted { queue, id } => format!("- {queue} {}", short(id)),
        Change::Expired { queue, id } => format!("- {queue} {} expired", short(id)),
    }
}

fn row(row: &Row) -> String {
    let properties: Vec<String> = row.entity.properties.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{} {}", row.etag, properties.join(" "))
}

fn blob(blob: &Blob) -> String {
    let content = String::from_utf8_lossy(&blob.content);
    let metadata: Vec<String> = blob.properties.metadata.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{} {} {content:?}", blob.properties.etag, metadata.join(" "))
}

fn short(id: &str) -> String {
    format!("m{}", id.rsplit('-').next().unwrap_or(id).trim_start_matches('0'))
}

fn readable(text: &str) -> String {
    body::decode(text).map_or_else(|_| format!("{text:?}"), |body| body.text)
}
