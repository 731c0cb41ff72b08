//! What the fuzz targets do with their input. `tests/it/corpora.rs` does the same with every file under `corpus/`, so that
//! what a fuzzer once found stays found.
//!
//! Nothing here may panic, whatever the bytes; and what can be read must be written and read again as the same.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;

use bytes::Bytes;
use evenkeel_config::Folder;
use evenkeel_engine::Recheck;
use evenkeel_engine::footprint::Footprint;
use evenkeel_model::cause::{self, CHAIN_BYTES};
use evenkeel_model::condition::Condition;
use evenkeel_model::event::{EventMapping, EventMappings, ForeignEvent};
use evenkeel_model::job::{self, Batch, JobRequest, Primary};
use evenkeel_model::large::Pointer;
use evenkeel_model::shared::BlobList;
use evenkeel_model::template::Template;
use evenkeel_model::{
    Entity, EntityKey, KeyBytes, QueueName, TableName, ViewName, body, document, odata,
};
use evenkeel_storage::encryption::{DataKey, PropertyAddress};
use evenkeel_worker::poison::PoisonMessage;

/// A target: its name, which is its corpus's, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("job", job),
    ("template", template),
    ("condition", condition),
    ("configuration", configuration),
    ("entity", entity),
    ("footprint", footprint),
    ("recheck", recheck),
    ("document", archived),
    ("list", list),
    ("request", request),
    ("event", event),
    ("poison", poison),
    ("pointer", pointer),
    ("encryption", encryption),
];

/// Says nothing longer than an error may be: what a message says is cut in it.
fn told<T>(result: Result<T, impl Error + 'static>) -> Option<T> {
    result
        .inspect_err(|error| {
            assert!(cause::chain(error).len() <= CHAIN_BYTES);
            assert!(
                error.to_string().len() <= CHAIN_BYTES,
                "it is cut where it is made"
            );
        })
        .ok()
}

fn key() -> EntityKey {
    EntityKey::new("p", "r").expect("a key")
}

/// A message: as it lies on a queue, and as the body that is inside.
pub fn job(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    told(job::decode(text));
    // Only JSON is encoded. Other texts may look like UTF-16 once they are.
    if let Ok(body) = body::decode(text)
        && body.text.len() <= 48 * 1024
        && serde_json::from_str::<serde_json::Value>(&body.text).is_ok()
    {
        let again = body::decode(&body::encode(&body.text)).expect("what was encoded is decoded");
        assert_eq!(again.text, body.text);
    }
}

/// A key template on the first line, and what it is rendered from on the second.
pub fn template(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (template, value) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(template) = Template::parse(template) else {
        return;
    };
    let mut entity = Entity::new(key());
    for property in template.properties() {
        entity = entity.with(property, value);
    }
    // A key that was rendered is a key: its type says so.
    drop(template.render(&entity));
    drop(template.render_text(&entity));
}

/// A condition.
pub fn condition(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(condition) = Condition::parse(text) {
        condition.holds(&Entity::new(key()).with("Name", "x").with("Age", 1));
    }
}

/// A configuration file.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("default.toml"), text).expect("a file");
    let request = evenkeel_config::Request {
        folder: Folder::Named(folder.path().to_owned()),
        environment: BTreeMap::new(),
        ..evenkeel_config::Request::default()
    };
    drop(evenkeel_config::load(&request));
}

/// An entity as OData JSON.
pub fn entity(data: &[u8]) {
    let Ok(json) = serde_json::from_slice(data) else {
        return;
    };
    let Ok(entity) = odata::decode(&json) else {
        return;
    };
    let again = odata::decode(&odata::encode(&entity).into()).expect("what was encoded is decoded");
    // NaN is not itself.
    assert_eq!(format!("{again:?}"), format!("{entity:?}"));
}

/// A footprint, as the entity that it lies in.
pub fn footprint(data: &[u8]) {
    let Ok(json) = serde_json::from_slice(data) else {
        return;
    };
    let Ok(entity) = odata::decode(&json) else {
        return;
    };
    let primary = Primary {
        table: TableName::new("Employees").expect("a name"),
        key: key(),
    };
    let Ok(footprint) = Footprint::decode(&primary, &entity, None) else {
        return;
    };
    if let Ok(encoded) = footprint.encode(&primary, None) {
        assert_eq!(
            Footprint::decode(&primary, &encoded, None).expect("what was encoded is decoded"),
            footprint
        );
    }
}

/// A second look, as its message.
pub fn recheck(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(recheck) = Recheck::decode(text) {
        assert_eq!(
            Recheck::decode(&recheck.encode()).expect("what was encoded is decoded"),
            recheck
        );
    }
}

/// An archived entity, as the blob or file that it lies in.
pub fn archived(data: &[u8]) {
    drop(document::decode(data, &key()));
}

/// A message about one primary or many: each of its jobs.
pub fn request(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Some(object) = told(job::decode_object(text)) else {
        return;
    };
    drop(job::note(&object, "m1"));
    if let Some(Some(rechecks)) = told(Batch::of_rechecks(&mut object.clone())) {
        (0..rechecks.len()).for_each(|at| drop(told(Recheck::of_object(rechecks.single(at)))));
    }
    if let Some(JobRequest::Batch(batch)) = told(job::decode_request(object)) {
        told(batch.sample()).expect("what all jobs share was read");
        (0..batch.len()).for_each(|at| drop(told(batch.job(at))));
        let bytes: usize = (0..batch.len())
            .map(|at| {
                serde_json::Value::Object(batch.single(at))
                    .to_string()
                    .len()
            })
            .sum();
        assert!(
            bytes
                <= batch.len() * 20_000 + body::decode(text).map_or(0, |body| 2 * body.text.len()),
            "their poison messages"
        );
    }
}

/// An event, and the job that a mapping makes of it.
pub fn event(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(object) = job::decode_object(text) else {
        return;
    };
    let Some(event) = ForeignEvent::of(&object) else {
        return;
    };
    let Some(event) = told(event) else { return };
    let serde_json::Value::Object(job) = serde_json::json!({
        "op": "put", "table": "Portraits", "newer_by": "Sequencer",
        "entity": {"PartitionKey": "{subject|after:/blobs/|before:/}", "RowKey": "{id}", "Sequencer": "{data.sequencer}", "Bytes": "{data.contentLength}"}
    }) else {
        return;
    };
    let mapping = EventMapping::new(ViewName::new("portraits").expect("a name"), None, job)
        .expect("a mapping");
    if let Some(mapped) = told(EventMappings(vec![mapping]).map(&event)) {
        told(job::decode_job(mapped.job));
    }
}

/// A message on a poison queue.
pub fn poison(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    drop(PoisonMessage::requeued_text(&PoisonMessage::keep_body(
        text,
    )));
    let Some(message) = told(PoisonMessage::decode(text)) else {
        return;
    };
    drop(message.forged(&[QueueName::new("evenkeel-jobs").expect("a name")]));
    let again = PoisonMessage::decode(&message.encode()).expect("what was encoded is decoded");
    assert_eq!(
        (again.message_id, again.body, again.body_blob),
        (message.message_id, message.body, message.body_blob)
    );
}

/// A value of a property that may be a pointer.
pub fn pointer(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Some(pointer) = Pointer::of(&text.into()) else {
        return;
    };
    assert_eq!(
        Pointer::of(&pointer.to_string().into()),
        Some(pointer.clone())
    );
}

/// A value of a property that may be encrypted.
pub fn encryption(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let home = Primary {
        table: TableName::new("Employees").expect("a name"),
        key: key(),
    };
    let (place, data_key) = (
        PropertyAddress {
            home: &home,
            property: "Ssn",
        },
        DataKey::new(KeyBytes([7; 32])),
    );
    told(data_key.decrypt(place, text));
    let again = data_key.encrypt(place, &text.into());
    assert_eq!(
        data_key
            .decrypt(place, &again)
            .expect("what was encrypted is decrypted"),
        text.into()
    );
}

/// A list in a blob. What is written of it says the same.
pub fn list(data: &[u8]) {
    let Ok(list) = BlobList::parse(&Bytes::copy_from_slice(data)) else {
        return;
    };
    let again = BlobList::parse(&Bytes::from(list.render())).expect("what was written is read");
    assert_eq!(again.to_list(), list.to_list());
}
