//! Events of other systems on a job queue: a created blob, and a newly hired employee.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use evenkeel_model::{Entity, EntityKey};
use serde_json::{Value, json};

use crate::end_to_end::site::Site;

/// The queue does not allow `archive`.
const CATALOG: &str = r#"
[[queues]]
name = "evenkeel-jobs"
allow = ["delete", "put", "sync"]

[[queues]]
name = "evenkeel-leavers"

[views.portraits_by_kind]
kind = "secondary_index"
source = "Portraits"
table = "PortraitsByKind"
partition_key = "{Kind}"
row_key = "{PartitionKey}_{RowKey}"

[archives.former_employees]
source = "Employees"
to = { kind = "table", table = "FormerEmployees" }

[events.portraits]
when = 'type == "Microsoft.Storage.BlobCreated" and startsWith(subject, "/blobServices/default/containers/portraits/blobs/")'

[events.portraits.job]
op = "put"
table = "Portraits"
newer_by = "Sequencer"

[events.portraits.job.entity]
PartitionKey = "{subject|after:/blobs/|before:/}"
RowKey = "{subject|after:/blobs/|after:/}"
Url = "{data.url}"
Kind = "{data.contentType}"
Bytes = "{data.contentLength}"
Sequencer = "{data.sequencer}"
Created = "{time}"

[events.portraits_gone]
when = 'type == "Microsoft.Storage.BlobDeleted"'

[events.portraits_gone.job]
op = "delete"
table = "Portraits"
pk = "{subject|after:/blobs/|before:/}"
rk = "{subject|after:/blobs/|after:/}"
newer_by = { Sequencer = "{data.sequencer}" }

[events.hired]
when = 'type == "Contoso.Hired"'
job = { op = "sync", table = "Employees", pk = "{data.department}", rk = "{data.number}" }

[events.left]
when = 'type == "Contoso.Left"'
job = { op = "archive", archive = "former_employees", pk = "{data.department}", rk = "{data.number}" }
"#;

fn blob_created(id: &str, name: &str, sequencer: &str) -> Value {
    json!({
        "topic": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/contoso",
        "subject": format!("/blobServices/default/containers/portraits/blobs/{name}"),
        "eventType": "Microsoft.Storage.BlobCreated", "id": id, "dataVersion": "", "metadataVersion": "1",
        "eventTime": "2026-11-20T15:00:00.5Z",
        "data": {
            "api": "PutBlob", "contentType": "image/png", "contentLength": 524_288, "blobType": "BlockBlob",
            "url": format!("https://contoso.blob.core.windows.net/portraits/{name}"), "sequencer": sequencer
        }
    })
}

fn blob_deleted(id: &str, name: &str, sequencer: &str) -> Value {
    let mut event = blob_created(id, name, sequencer);
    event["eventType"] = "Microsoft.Storage.BlobDeleted".into();
    // Some senders put the data into a string.
    event["data"] = event["data"].to_string().into();
    event
}

fn cloud_event(id: &str, kind: &str, data: &Value) -> Value {
    json!({"specversion": "1.0", "id": id, "source": "/contoso/staff", "type": kind, "time": "2026-11-20T15:00:00Z", "data": data})
}

fn events_become_jobs(site: &Site) {
    site.migrate();
    site.write(
        "Employees",
        &[Entity::new(EntityKey::new("Sales", "000223").unwrap()).with("Name", "Jon")],
    );
    let created = blob_created("e-1", "Sales/000223.png", "0002").to_string();
    // The event is delivered twice, as plain text and in Base64. An older event and an older deletion arrive after it.
    let texts = [
        created.clone(),
        BASE64.encode(&created),
        BASE64.encode(blob_created("e-0", "Sales/000223.png", "0001").to_string()),
        blob_deleted("d-0", "Sales/000223.png", "0001").to_string(),
        cloud_event(
            "h-1",
            "Contoso.Hired",
            &json!({"department": "Sales", "number": "000223"}),
        )
        .to_string(),
    ];
    site.put_texts(texts.iter().map(String::as_str));
    let ended = site.run_until_idle(&[]);
    assert_eq!((ended.done + ended.skipped, ended.poisoned), (5, 0));
    let portrait = site
        .row("Portraits", "Sales", "000223.png")
        .expect("the portrait")
        .entity;
    assert_eq!(
        portrait.text("Url"),
        Some("https://contoso.blob.core.windows.net/portraits/Sales/000223.png")
    );
    assert_eq!(portrait.text("Sequencer"), Some("0002"));
    assert_eq!(portrait.get("Bytes"), Some(&524_288_i64.into()));
    assert_eq!(site.rows("PortraitsByKind").len(), 1);
    site.assert_all_done();

    // If no mapping matches an event, the error lists the mappings. The `allow` list of the queue applies to the mapped
    // job.
    let poisoned = [
        (
            cloud_event("x-1", "Contoso.Promoted", &json!({})).to_string(),
            vec![
                "Contoso.Promoted",
                "hired (when",
                "left (when",
                "portraits (when",
            ],
        ),
        (
            cloud_event("x-2", "Contoso.Hired", &json!({"department": "Sales"})).to_string(),
            vec!["[events.hired]", "\"rk\"", "no value"],
        ),
        (
            cloud_event(
                "x-3",
                "Contoso.Left",
                &json!({"department": "Sales", "number": "000223"}),
            )
            .to_string(),
            vec!["\"archive\" is not allowed", "put, sync"],
        ),
        (
            json!({"specversion": "0.3", "id": "x-4", "type": "Contoso.Hired", "source": "/"})
                .to_string(),
            vec!["\"0.3\", expected 1.0"],
        ),
        (
            BASE64.encode(json!([blob_created("x-5", "Sales/1.png", "1")]).to_string()),
            vec!["an array of events; send one message per event"],
        ),
    ];
    site.put_texts(poisoned.iter().map(|(text, _)| text.as_str()));
    assert_eq!(site.run_until_idle(&[]).poisoned, 5);
    let errors: Vec<String> = site
        .poison()
        .iter()
        .map(|one| format!("{} {}", one["id"], one["error"].as_str().unwrap()))
        .collect();
    for (text, words) in &poisoned {
        let said = errors
            .iter()
            .filter(|error| words.iter().all(|word| error.contains(word)))
            .count();
        assert_eq!(
            said, 1,
            "{text}: no poison message contains {words:?}: {errors:#?}"
        );
    }
    assert!(
        site.row("Employees", "Sales", "000223").is_some(),
        "the archive job was refused"
    );

    site.put_texts([blob_deleted("d-1", "Sales/000223.png", "0003")
        .to_string()
        .as_str()]);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    assert!(
        site.row("Portraits", "Sales", "000223.png").is_none()
            && site.rows("PortraitsByKind").is_empty()
    );

    // A requeued event is unchanged, and is mapped again.
    site.declare(&CATALOG.replace("allow = [\"delete\", \"put\", \"sync\"]", ""));
    assert_eq!(site.command(&["poison", "requeue", "x-3"]).code, 0);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    assert!(
        site.row("FormerEmployees", "Sales", "000223")
            .is_some_and(|row| row.entity.text("Name") == Some("Jon"))
    );
}

#[test]
fn events_of_others_become_jobs_on_the_embedded_store() {
    events_become_jobs(&Site::embedded(CATALOG));
}

#[test]
fn events_of_others_become_jobs_on_azurite() {
    events_become_jobs(&Site::azurite(CATALOG));
}

#[test]
fn an_event_is_tried_without_a_store() {
    let site = Site::embedded(CATALOG);
    let event = blob_created("e-1", "Sales/000223.png", "0002").to_string();
    std::fs::write(site.file("created.json"), &event).unwrap();
    let tried = site.command(&["events", "try", "created.json", "--json"]);
    assert_eq!(tried.code, 0, "{}", tried.err);
    let tried: Value = serde_json::from_str(&tried.out).unwrap();
    let takes = |name: &str, takes: bool| json!({"name": name, "takes": takes});
    assert_eq!(
        tried["mappings"],
        json!([
            takes("hired", false),
            takes("left", false),
            takes("portraits", true),
            takes("portraits_gone", false)
        ])
    );
    assert_eq!(
        (&tried["job"]["entity"]["RowKey"], &tried["job"]["id"]),
        (&json!("000223.png"), &json!("e-1"))
    );
    assert_eq!(
        tried["queues"],
        json!(["evenkeel-jobs", "evenkeel-leavers"])
    );
    let people = site.command_with(&["events", "try", "-"], &BASE64.encode(&event));
    assert!(
        people.code == 0
            && people.out.contains("[events.portraits] matches")
            && people.out.contains("\"op\": \"put\""),
        "{people:?}"
    );

    let promoted = cloud_event("x-1", "Contoso.Promoted", &json!({})).to_string();
    let refused = site.command_with(&["events", "try", "-"], &promoted);
    assert!(
        refused.code == 1 && refused.err.contains("no mapping matches this event"),
        "{refused:?}"
    );
    let job = site.command_with(
        &["events", "try", "-"],
        r#"{"op":"sync","table":"T","pk":"p","rk":"r"}"#,
    );
    assert!(job.code == 1 && job.err.contains("not an event"), "{job:?}");
}
