//! The corpus of format 1: stored rows, documents, messages and a configuration, as a program of this format writes them.
//!
//! A change that makes any of these files unreadable is a new format, which needs its own version and its own corpus.
//! `EVENKEEL_WRITE=1 cargo test --test it formats` reads each file and writes it again.

#![expect(clippy::unwrap_used, reason = "an unreadable file fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_account::NoFaults;
use evenkeel_config::{Folder, Request};
use evenkeel_engine::Recheck;
use evenkeel_engine::footprint::{self, Footprint};
use evenkeel_model::job::{self, Job, Primary};
use evenkeel_model::large::Pointer;
use evenkeel_model::range_overlay::RangeOverlay;
use evenkeel_model::shared::{BlobList, OwnedProperties, owner_property};
use evenkeel_model::{
    Entity, EntityKey, Member, Site, TableName, ViewName, body, document, log, odata,
};
use evenkeel_rollout::migrations::testing;
use evenkeel_storage::TableOperation;
use evenkeel_worker::poison::PoisonMessage;
use serde_json::Value;

struct Format {
    file: &'static str,
    /// Parses a file and returns the text that the program writes for the same data, or the unchanged text if the program never writes such data.
    again: fn(&str) -> String,
}

const FORMATS: &[Format] = &[
    Format {
        file: "footprint.json",
        again: footprint,
    },
    Format {
        file: "tombstone.json",
        again: footprint,
    },
    Format {
        file: "range_overlay.json",
        again: |text| {
            let overlay = RangeOverlay::from_member(&Member(vec![text.to_owned()])).unwrap();
            overlay.member().0.remove(0)
        },
    },
    Format {
        file: "owner.json",
        again: owner,
    },
    Format {
        file: "pointer_to_blob.json",
        again: pointer,
    },
    Format {
        file: "pointer_to_file.json",
        again: pointer,
    },
    Format {
        file: "document.json",
        again: |text| {
            let key = EntityKey::new("Sales", "7").unwrap();
            let entity = document::decode(text.as_bytes(), &key).unwrap();
            String::from_utf8(document::encode(&entity).to_vec()).unwrap()
        },
    },
    Format {
        file: "line.json",
        again: |text| {
            log::check_line(&serde_json::from_str(text).unwrap()).unwrap();
            text.to_owned()
        },
    },
    Format {
        file: "list.jsonl",
        again: |text| {
            let list = BlobList::parse(&Bytes::copy_from_slice(text.as_bytes())).unwrap();
            assert_eq!(list.to_list().members.len(), 2);
            String::from_utf8(list.render()).unwrap()
        },
    },
    Format {
        file: "recheck.json",
        again: |text| inside(&Recheck::decode(text).unwrap().encode()),
    },
    Format {
        file: "rechecks.json",
        again: |text| {
            let rechecks = Recheck::decode_all(text).unwrap();
            inside(&Recheck::encode_all(&rechecks.iter().collect::<Vec<_>>()))
        },
    },
    Format {
        file: "poison.json",
        again: poison,
    },
    Format {
        file: "poison_in_blob.json",
        again: poison,
    },
    Format {
        file: "messages.jsonl",
        again: messages,
    },
    Format {
        file: "catalog.jsonl",
        again: catalog,
    },
    Format {
        file: "default.toml",
        again: configuration,
    },
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpora/format-1")
}

fn inside(message: &str) -> String {
    body::decode(message).unwrap().text
}

fn entity(text: &str) -> Entity {
    odata::decode(&serde_json::from_str(text).unwrap()).unwrap()
}

fn footprint(text: &str) -> String {
    let entity = entity(text);
    let primary = Primary {
        table: TableName::new("Employees").unwrap(),
        key: footprint::owner(&TableName::new("Employees").unwrap(), &entity).unwrap(),
    };
    let footprint = Footprint::decode(&primary, &entity, None).unwrap();
    let again = footprint.encode(&primary, None).unwrap();
    Value::Object(odata::encode(&again)).to_string()
}

fn owner(text: &str) -> String {
    let view = ViewName::new("manager").unwrap();
    let key = EntityKey::new("Sales", "department").unwrap();
    let site = Site::Row {
        table: TableName::new("Departments").unwrap(),
        key: key.clone(),
    };
    let entity = Entity::new(key).with(owner_property(&view), text);
    let owned = OwnedProperties::read(&site, &entity, &view)
        .unwrap()
        .unwrap();
    assert!(owned.primary.to_string().contains("Employees") && owned.by_range);
    text.to_owned()
}

fn pointer(text: &str) -> String {
    Pointer::of(&text.into()).unwrap().to_string()
}

fn poison(text: &str) -> String {
    inside(&PoisonMessage::decode(text).unwrap().encode())
}

fn messages(text: &str) -> String {
    for message in text.lines() {
        let mut envelope = job::decode(message).unwrap();
        assert_eq!(envelope.unknown_fields, [""; 0], "{message}");
        let object: Value = serde_json::from_str(message).unwrap();
        match envelope.job.operation_mut().cursor_mut() {
            Some(cursor) => assert_eq!(cursor.to_json(), object["cursor"], "{message}"),
            None => assert!(matches!(envelope.job, Job::Sync(_)), "{message}"),
        }
    }
    text.to_owned()
}

fn catalog(text: &str) -> String {
    let rows: Vec<Entity> = text.lines().map(entity).collect();
    let record = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(async {
            let world = testing::world(Arc::new(NoFaults));
            let migrator = testing::migrator(&world, &testing::catalog(&[]));
            testing::up(&migrator).await;
            let table = TableName::new("EvenkeelMigrations").unwrap();
            for row in rows {
                let operation = TableOperation::InsertOrReplace(row);
                let account = world.account();
                account.tables.apply(&table, &operation).await.unwrap();
            }
            migrator.catalog_record().await.unwrap()
        });
    let view = &record.views[&ViewName::new("gone").unwrap()];
    assert!(record.generation == 4 && view.generation == 3 && view.retired);
    assert!(view.followers.len() == 1 && view.accounts.len() == 2);
    assert!(record.later_generations.len() == 1 && record.names.contains("table:Visits%Y%m%d"));
    text.to_owned()
}

fn configuration(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("default.toml"), text).unwrap();
    let request = Request {
        folder: Folder::Named(folder.path().to_owned()),
        ..Request::default()
    };
    if let Err(errors) = evenkeel_config::load(&request) {
        panic!("{errors}");
    }
    text.to_owned()
}

#[test]
fn every_file_of_format_1_is_read_and_written_again_as_it_is() {
    let listed: BTreeSet<String> = FORMATS.iter().map(|one| one.file.to_owned()).collect();
    let there: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(there, listed);
    let mut wrong = Vec::new();
    for Format { file, again } in FORMATS {
        let path = folder().join(file);
        let text = fs::read_to_string(&path).unwrap();
        match std::panic::catch_unwind(|| again(&text)) {
            Ok(again) if again == text => {}
            Ok(again) if std::env::var_os("EVENKEEL_WRITE").is_some() => {
                fs::write(&path, again).unwrap();
            }
            Ok(again) => wrong.push(format!("{file} would be written as\n{again}")),
            Err(_) => wrong.push(format!("cannot read {file}: see above")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
