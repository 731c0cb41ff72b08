//! What the fuzz targets do with their input. `tests/corpora.rs` does the same with every file under `corpus/`, so that
//! what a fuzzer once found stays found.
//!
//! Nothing here may panic, whatever the bytes; and what can be read must be written and read again as the same.

use std::collections::BTreeMap;
use std::fs;

use evenkeel::config::{self, Folder};
use evenkeel::model::condition::Condition;
use evenkeel::model::job::{self, Primary};
use evenkeel::model::template::Template;
use evenkeel::model::{Entity, EntityKey, TableName, body, document, odata};
use evenkeel::reconcile::Recheck;
use evenkeel::reconcile::footprint::Footprint;
use evenkeel::shared::blocks::{BlockedList, ListWrite, OpenedList};

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
];

fn key() -> EntityKey {
    EntityKey::new("p", "r").expect("a key")
}

/// A message: as it lies on a queue, and as the body that is inside.
pub fn job(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    drop(job::decode(text));
    if let Ok(body) = body::decode(text)
        && body.text.len() <= 48 * 1024
    {
        let again = body::decode(&body::encode(&body.text)).expect("what was encoded is decoded");
        assert_eq!(again.text, body.text);
    }
}

/// A key template on the first line, and what it is rendered from on the second.
pub fn template(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (template, value) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(template) = Template::parse(template) else { return };
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
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(condition) = Condition::parse(text) {
        condition.holds(&Entity::new(key()).with("Name", "x").with("Age", 1));
    }
}

/// A configuration file.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("default.toml"), text).expect("a file");
    let request =
        config::Request { folder: Folder::Named(folder.path().to_owned()), environment: BTreeMap::new(), ..config::Request::default() };
    drop(config::load(&request));
}

/// An entity as OData JSON.
pub fn entity(data: &[u8]) {
    let Ok(json) = serde_json::from_slice(data) else { return };
    let Ok(entity) = odata::decode(&json) else { return };
    let again = odata::decode(&odata::encode(&entity).into()).expect("what was encoded is decoded");
    // NaN is not itself.
    assert_eq!(format!("{again:?}"), format!("{entity:?}"));
}

/// A footprint, as the entity that it lies in.
pub fn footprint(data: &[u8]) {
    let Ok(json) = serde_json::from_slice(data) else { return };
    let Ok(entity) = odata::decode(&json) else { return };
    let primary = Primary { table: TableName::new("Employees").expect("a name"), key: key() };
    let Ok(footprint) = Footprint::decode(&primary, &entity, None) else { return };
    if let Ok(encoded) = footprint.encode(&primary, None) {
        assert_eq!(Footprint::decode(&primary, &encoded, None).expect("what was encoded is decoded"), footprint);
    }
}

/// A second look, as its message.
pub fn recheck(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(recheck) = Recheck::decode(text) {
        assert_eq!(Recheck::decode(&recheck.encode()).expect("what was encoded is decoded"), recheck);
    }
}

/// An archived entity, as the blob or file that it lies in.
pub fn archived(data: &[u8]) {
    drop(document::decode(data, &key()));
}

/// A list in a blob, read as a whole. Brought into shape and written in one piece, it says the same.
pub fn list(data: &[u8]) {
    let Ok(OpenedList::List(mut list)) = BlockedList::open(data, data.len() as u64) else { return };
    assert!(list.unread().is_empty(), "all of it was read");
    let members = list.to_list();
    assert!(list.reshape().is_empty(), "there is nothing more to read");
    let mut id = 0;
    let written = list.write(|| {
        id += 1;
        id
    });
    if let ListWrite::Whole(content) = written {
        let Ok(OpenedList::List(again)) = BlockedList::open(&content, content.len() as u64) else { panic!("what was written is read") };
        assert_eq!(again.to_list(), members);
    }
}
