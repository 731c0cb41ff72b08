use evenkeel_account::ObservedChange;
use evenkeel_model::{Row, body};
use evenkeel_storage::Blob;

pub(super) fn change(change: &ObservedChange) -> String {
    match change {
        ObservedChange::Row {
            table,
            key,
            row: None,
        } => format!("- {table}{key}"),
        ObservedChange::Row {
            table,
            key,
            row: Some(row),
        } => format!("+ {table}{key} {}", self::row(row)),
        ObservedChange::Blob {
            container,
            name,
            blob: None,
        } => format!("- {container}/{name}"),
        ObservedChange::Blob {
            container,
            name,
            blob: Some(blob),
        } => format!("+ {container}/{name} {}", self::blob(blob)),
        ObservedChange::File {
            place,
            content: None,
        } => format!("- {}/{}", place.dir, place.name),
        ObservedChange::File {
            place,
            content: Some(content),
        } => {
            format!(
                "+ {}/{} {:?}",
                place.dir,
                place.name,
                String::from_utf8_lossy(content)
            )
        }
        ObservedChange::Document {
            collection,
            key,
            document: None,
        } => format!("- {collection}/{key}"),
        ObservedChange::Document {
            collection,
            key,
            document: Some(document),
        } => format!("+ {collection}/{key} {:?}", document.0),
        ObservedChange::Table { table, exists } => {
            format!("{} table {table}", if *exists { '+' } else { '-' })
        }
        ObservedChange::Put { queue, id, text } => {
            format!("+ {queue} {} {}", short(id), readable(text))
        }
        ObservedChange::Got {
            queue,
            id,
            dequeue_count,
        } => format!(
            "  {queue} {} received, dequeue count {dequeue_count}",
            short(id)
        ),
        ObservedChange::Updated { queue, id, text } => {
            format!("~ {queue} {} {}", short(id), readable(text))
        }
        ObservedChange::Deleted { queue, id } => format!("- {queue} {}", short(id)),
        ObservedChange::Expired { queue, id } => format!("- {queue} {} expired", short(id)),
    }
}

fn row(row: &Row) -> String {
    let properties: Vec<String> = row
        .entity
        .properties
        .iter()
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    format!("{} {}", row.etag, properties.join(" "))
}

fn blob(blob: &Blob) -> String {
    let content = String::from_utf8_lossy(&blob.content);
    let metadata: Vec<String> = blob
        .properties
        .metadata
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    format!(
        "{} {} {content:?}",
        blob.properties.etag,
        metadata.join(" ")
    )
}

fn short(id: &str) -> String {
    format!(
        "m{}",
        id.rsplit('-').next().unwrap_or(id).trim_start_matches('0')
    )
}

fn readable(text: &str) -> String {
    body::decode(text).map_or_else(|_| format!("{text:?}"), |body| body.text)
}
