//! Large values, disturbed at every operation of every job: each pointer has its blob, and each blob has a pointer.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_engine::{Erasure, FailureClass, Outcome};
use evenkeel_model::job::Primary;
use evenkeel_model::large::{self, Pointer, STAGING};
use evenkeel_model::{BlobName, ContainerName, Entity, EntityKey, Job, ViewName, odata};
use evenkeel_storage::{BlobUpload, FilePlace};
use futures::future::BoxFuture;
use serde_json::json;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, RECHECK_AFTER, SMALL, declared, job, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.photos]
kind = "large_entity"
source = "Staff"
properties = ["Photo", "Resume"]
container = "large"
threshold = "16B"

[views.by_name]
kind = "secondary_index"
source = "Staff"
table = "Staff"
partition_key = "{PartitionKey}"
row_key = "name_{Name}_{RowKey}"
select = []

[archives.former]
source = "Staff"
to = { kind = "table", table = "Former" }

[views.former_photos]
kind = "large_entity"
source = "Former"
container = "former"

[archives.papers]
source = "Staff"
to = { kind = "blob", container = "papers" }

[archives.drawer]
source = "Staff"
to = { kind = "file", dir = "/mnt/drawer" }
"#;
const DRAWER: &str = "/mnt/drawer";

const FIRST: &str = "the first value, which is large";
const SECOND: &str = "the second value, which is large too";

/// Content type of a text that a `put` moves to a blob.
const TEXT: &str = "text/plain; charset=utf-8";
const STAGED_KIND: &str = "image/png";

fn container(name: &str) -> ContainerName {
    ContainerName::new(name).unwrap()
}

async fn lab() -> Lab {
    let lab = Lab::with(SMALL, declared(CATALOG));
    for name in ["large", "former", "papers", STAGING] {
        lab.account
            .blobs
            .create_container(&container(name))
            .await
            .unwrap();
    }
    lab
}

fn staged() -> Vec<u8> {
    vec![7; (4 << 20) + 5]
}

fn person(name: &str) -> Entity {
    Entity::new(EntityKey::new("p", "1").unwrap()).with("Name", name)
}

fn put(entity: &Entity, mode: &str) -> Job {
    job(&json!({"op": "put", "table": "Staff", "mode": mode, "entity": odata::encode(entity)}))
}

fn on(op: &str) -> Job {
    match op {
        "archive" | "restore" => job(&json!({"op": op, "archive": "former", "pk": "p", "rk": "1"})),
        "file" => job(&json!({"op": "archive", "archive": "papers", "pk": "p", "rk": "1"})),
        "shut away" => job(&json!({"op": "archive", "archive": "drawer", "pk": "p", "rk": "1"})),
        "take out" => job(&json!({"op": "restore", "archive": "drawer", "pk": "p", "rk": "1"})),
        "unfile" => job(&json!({"op": "restore", "archive": "papers", "pk": "p", "rk": "1"})),
        "move" => job(
            &json!({"op": op, "table": "Staff", "pk": "p", "rk": "1", "to_pk": "q", "to_rk": "2"}),
        ),
        _ => job(&json!({"op": op, "table": "Staff", "pk": "p", "rk": "1"})),
    }
}

type Values = Vec<(&'static str, Vec<u8>)>;

/// A job, the jobs before it, and the final state: table, key, and the contents of `Photo` and `Resume`.
struct Scenario {
    name: &'static str,
    before: fn() -> Vec<Job>,
    job: fn() -> Job,
    after: Option<(&'static str, (&'static str, &'static str), Values)>,
}

fn settled() -> Vec<Job> {
    vec![put(&person("Ada").with("Photo", FIRST), "replace")]
}

fn scenarios() -> Vec<Scenario> {
    let photo = |content: &str| vec![("Photo", content.as_bytes().to_vec())];
    let here = ("p", "1");
    vec![
        Scenario {
            name: "a new value",
            before: Vec::new,
            job: || put(&person("Ada").with("Photo", FIRST), "replace"),
            after: Some(("Staff", here, photo(FIRST))),
        },
        Scenario {
            name: "another value",
            before: settled,
            job: || put(&person("Countess").with("Photo", SECOND), "replace"),
            after: Some(("Staff", here, photo(SECOND))),
        },
        Scenario {
            name: "the value before the last comes back",
            before: || {
                vec![
                    put(&person("Ada").with("Photo", SECOND), "replace"),
                    put(&person("Ada").with("Photo", FIRST), "replace"),
                ]
            },
            job: || put(&person("Ada").with("Photo", SECOND), "replace"),
            after: Some(("Staff", here, photo(SECOND))),
        },
        Scenario {
            name: "one more value by a merge",
            before: settled,
            job: || put(&Entity::new(person("").key).with("Resume", SECOND), "merge"),
            after: Some((
                "Staff",
                here,
                vec![
                    ("Photo", FIRST.as_bytes().to_vec()),
                    ("Resume", SECOND.as_bytes().to_vec()),
                ],
            )),
        },
        Scenario {
            name: "no value any more",
            before: settled,
            job: || put(&person("Ada"), "replace"),
            after: Some(("Staff", here, Vec::new())),
        },
        Scenario {
            name: "a staged value in place of another",
            before: settled,
            job: || {
                let blobs = json!({"Photo": {"blob": format!("{STAGING}/photo"), "sha256": large::hash(&staged())}});
                job(
                    &json!({"op": "put", "table": "Staff", "entity": odata::encode(&person("Ada")), "blobs": blobs}),
                )
            },
            after: Some(("Staff", here, vec![("Photo", staged())])),
        },
        Scenario {
            name: "it is deleted",
            before: settled,
            job: || on("delete"),
            after: None,
        },
        Scenario {
            name: "it is archived",
            before: settled,
            job: || on("archive"),
            after: Some(("Former", here, photo(FIRST))),
        },
        Scenario {
            name: "it is archived over an earlier archiving",
            before: || {
                vec![
                    put(&person("Old").with("Photo", SECOND), "replace"),
                    on("archive"),
                    put(&person("Ada").with("Photo", FIRST), "replace"),
                ]
            },
            job: || on("archive"),
            after: Some(("Former", here, photo(FIRST))),
        },
        Scenario {
            name: "it is restored",
            before: || {
                vec![
                    put(&person("Ada").with("Photo", FIRST), "replace"),
                    on("archive"),
                ]
            },
            job: || on("restore"),
            after: Some(("Staff", here, photo(FIRST))),
        },
        Scenario {
            name: "it is shut away",
            before: settled,
            job: || on("shut away"),
            after: Some(("Drawer", here, photo(FIRST))),
        },
        Scenario {
            name: "it is shut away over an earlier value",
            before: || {
                vec![
                    put(&person("Old").with("Photo", SECOND), "replace"),
                    on("shut away"),
                    put(
                        &person("Ada").with("Photo", FIRST).with("Resume", SECOND),
                        "replace",
                    ),
                ]
            },
            job: || on("shut away"),
            after: Some((
                "Drawer",
                here,
                vec![
                    ("Photo", FIRST.as_bytes().to_vec()),
                    ("Resume", SECOND.as_bytes().to_vec()),
                ],
            )),
        },
        Scenario {
            name: "it is taken out of the drawer",
            before: || {
                vec![
                    put(&person("Ada").with("Photo", FIRST), "replace"),
                    on("shut away"),
                ]
            },
            job: || on("take out"),
            after: Some(("Staff", here, photo(FIRST))),
        },
        Scenario {
            name: "it is filed",
            before: settled,
            job: || on("file"),
            after: Some(("Papers", here, photo(FIRST))),
        },
        Scenario {
            name: "it is filed over an earlier document",
            before: || {
                vec![
                    put(&person("Old").with("Photo", SECOND), "replace"),
                    on("file"),
                    put(
                        &person("Ada").with("Photo", FIRST).with("Resume", SECOND),
                        "replace",
                    ),
                ]
            },
            job: || on("file"),
            after: Some((
                "Papers",
                here,
                vec![
                    ("Photo", FIRST.as_bytes().to_vec()),
                    ("Resume", SECOND.as_bytes().to_vec()),
                ],
            )),
        },
        Scenario {
            name: "it comes back from the files",
            before: || {
                vec![
                    put(&person("Ada").with("Photo", FIRST), "replace"),
                    on("file"),
                ]
            },
            job: || on("unfile"),
            after: Some(("Staff", here, photo(FIRST))),
        },
        Scenario {
            name: "it moves",
            before: settled,
            job: || on("move"),
            after: Some(("Staff", ("q", "2"), photo(FIRST))),
        },
    ]
}

async fn prepared(scenario: &Scenario) -> Lab {
    let lab = lab().await;
    for job in (scenario.before)() {
        lab.work(&job).await.unwrap();
    }
    if matches!((scenario.job)(), Job::Put(put) if !put.staged_values.is_empty()) {
        let name = BlobName::new("photo").unwrap();
        let upload = BlobUpload {
            content_type: Some(STAGED_KIND.to_owned()),
            ..BlobUpload::default()
        };
        lab.account
            .blobs
            .put(&container(STAGING), &name, staged().into(), &upload)
            .await
            .unwrap();
    }
    lab
}

/// Every entity except copies, from the tables and from the archived documents, with its table and its primary.
async fn entities(lab: &Lab) -> Vec<(&'static str, Primary, Entity)> {
    let mut entities = Vec::new();
    for name in ["Staff", "Former"] {
        let rows = lab
            .sim
            .rows(&table(name))
            .into_iter()
            .filter(|row| row.entity.get("ek_view").is_none());
        entities.extend(rows.map(|row| {
            (
                name,
                Primary {
                    table: table(name),
                    key: row.entity.key.clone(),
                },
                row.entity,
            )
        }));
    }
    let filing = |archive: &str| {
        lab.engine
            .catalog()
            .archived_values_of(&ViewName::new(archive).unwrap())
            .unwrap()
            .table
            .table
            .clone()
    };
    for place in lab
        .sim
        .places()
        .into_iter()
        .filter(|place| !place.name.as_str().contains("%values/"))
    {
        let file = lab.sim.files().read(&place).await.unwrap().unwrap();
        let entity = odata::decode(&serde_json::from_slice(&file.content).unwrap()).unwrap();
        entities.push((
            "Drawer",
            Primary {
                table: filing("drawer"),
                key: entity.key.clone(),
            },
            entity,
        ));
    }
    for name in names(lab, "papers")
        .await
        .into_iter()
        .filter(|name| !name.contains("%values/"))
    {
        let name = BlobName::new(name.strip_prefix("papers/").unwrap()).unwrap();
        let blob = lab
            .account
            .blobs
            .get(&container("papers"), &name, None)
            .await
            .unwrap()
            .unwrap();
        let entity = odata::decode(&serde_json::from_slice(&blob.content).unwrap()).unwrap();
        entities.push((
            "Papers",
            Primary {
                table: filing("papers"),
                key: entity.key.clone(),
            },
            entity,
        ));
    }
    entities
}

async fn led_to(lab: &Lab, pointer: &Pointer) -> (String, Option<(Bytes, Option<String>)>) {
    if let Some(container) = &pointer.container {
        let blob = lab
            .account
            .blobs
            .get(container, &pointer.name, None)
            .await
            .unwrap();
        return (
            format!("{container}/{}", pointer.name),
            blob.map(|blob| (blob.content, Some(blob.properties.content_type))),
        );
    }
    let place = FilePlace {
        dir: DRAWER.to_owned(),
        name: pointer.name.clone(),
    };
    let file = lab.sim.files().read(&place).await.unwrap();
    // A file has no content type, so the test uses the content type in the pointer.
    (
        format!("{DRAWER}/{}", pointer.name),
        file.map(|file| (file.content, pointer.content_type.clone())),
    )
}

async fn names(lab: &Lab, of: &str) -> Vec<String> {
    let page = lab
        .account
        .blobs
        .list(&container(of), "", None)
        .await
        .unwrap();
    page.blobs
        .into_iter()
        .map(|blob| format!("{of}/{}", blob.name))
        .collect()
}

async fn check(lab: &Lab, scenario: &Scenario, story: &str) {
    let mut wanted = BTreeSet::new();
    let mut found = Vec::new();
    for (name, primary, entity) in entities(lab).await {
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(plan.in_step && plan.waiting.is_empty(), "{story}: {plan}");
        let mut values = Vec::new();
        for (property, value) in entity.user_properties() {
            let Some(pointer) = Pointer::of(value) else {
                continue;
            };
            let (place, content) = led_to(lab, &pointer).await;
            let (content, kind) = content.unwrap_or_else(|| {
                panic!("{story}: {property} of {primary} points to a missing blob")
            });
            assert_eq!(large::hash(&content), pointer.sha256, "{story}");
            let wanted_kind = if content == staged() {
                STAGED_KIND
            } else {
                TEXT
            };
            assert_eq!(
                kind.as_deref(),
                Some(wanted_kind),
                "{story}: the content type of {property} of {primary}"
            );
            wanted.insert(place);
            values.push((property.clone(), content.to_vec()));
        }
        found.push((
            name,
            (primary.key.pk.to_string(), primary.key.rk.to_string()),
            values,
        ));
    }
    let places = lab
        .sim
        .places()
        .into_iter()
        .filter(|place| place.name.as_str().contains("%values/"));
    let mut there: BTreeSet<String> = places
        .map(|place| format!("{}/{}", place.dir, place.name))
        .collect();
    for container in ["large", "former", "papers"] {
        there.extend(
            names(lab, container)
                .await
                .into_iter()
                .filter(|name| !name.contains(".json") || name.contains("%values/")),
        );
    }
    assert_eq!(there, wanted, "{story}: orphaned or missing blobs");
    assert_eq!(
        names(lab, STAGING).await,
        Vec::<String>::new(),
        "{story}: a staged blob is left"
    );
    let expected = scenario.after.iter().map(|(table, (pk, rk), values)| {
        let values: Vec<_> = values
            .iter()
            .map(|(name, content)| ((*name).to_owned(), content.clone()))
            .collect();
        (*table, ((*pk).to_owned(), (*rk).to_owned()), values)
    });
    assert!(
        found == expected.collect::<Vec<_>>(),
        "{story}: {:?}",
        found
            .iter()
            .map(|(table, key, _)| (table, key))
            .collect::<Vec<_>>()
    );
}

async fn operations_of(scenario: &Scenario) -> u64 {
    let lab = prepared(scenario).await;
    let operations = lab.operations_of(&(scenario.job)()).await;
    lab.finish().await;
    check(&lab, scenario, scenario.name).await;
    operations
}

#[tokio::test]
async fn a_staged_value_is_refused_where_its_table_keeps_none_and_nothing_is_written() {
    let lab = lab().await;
    let name = BlobName::new("photo").unwrap();
    lab.account
        .blobs
        .put(
            &container(STAGING),
            &name,
            staged().into(),
            &BlobUpload::default(),
        )
        .await
        .unwrap();
    let blobs =
        json!({"Photo": {"blob": format!("{STAGING}/photo"), "sha256": large::hash(&staged())}});
    let put = job(
        &json!({"op": "put", "table": "Departments", "entity": odata::encode(&person("Ada")), "blobs": blobs}),
    );
    let refused = lab.work(&put).await;
    assert!(
        refused.is_err_and(|failure| failure.class == FailureClass::Permanent),
        "the put must fail, or its values would be lost"
    );
    assert!(
        lab.sim
            .rows(&table("Departments"))
            .iter()
            .all(|row| row.entity.key != person("Ada").key)
    );
}

/// A job that is skipped has not read the staged blob that it names. It deletes the blob only if the blob has the hash
/// in the job.
#[tokio::test]
async fn a_skipped_put_deletes_no_staged_blob_that_it_neither_read_nor_knows() {
    for (sha256, stays) in [
        (Some(large::hash(&staged())), false),
        (Some(large::hash(b"another")), true),
        (None, true),
    ] {
        let lab = lab().await;
        lab.work(&put(&person("Ada"), "replace")).await.unwrap();
        lab.account
            .blobs
            .put(
                &container(STAGING),
                &BlobName::new("photo").unwrap(),
                staged().into(),
                &BlobUpload::default(),
            )
            .await
            .unwrap();
        let mut blob = json!({"blob": format!("{STAGING}/photo")});
        blob.as_object_mut().unwrap().extend(
            sha256
                .as_ref()
                .map(|sha256| ("sha256".to_owned(), json!(sha256))),
        );
        let entity = odata::encode(&person("Ada"));
        let skipped = job(
            &json!({"op": "put", "table": "Staff", "entity": entity, "if_absent": true, "blobs": {"Photo": blob}}),
        );
        assert!(matches!(
            lab.work(&skipped).await,
            Ok(Outcome::Skipped { .. })
        ));
        assert_eq!(!names(&lab, STAGING).await.is_empty(), stays, "{sha256:?}");
    }
}

/// Erases the person. Returns the time at which the remaining values will be deleted, and their number.
async fn erased(lab: &Lab) -> (Option<jiff::Timestamp>, u64) {
    let mut told = Erasure::default();
    let primary = Primary {
        table: table("Staff"),
        key: person("").key,
    };
    lab.engine
        .erase(&primary, &lab.delivery(), &mut told)
        .await
        .unwrap();
    (
        told.until(),
        told.left.values().filter_map(|left| left.values).sum(),
    )
}

/// The answer of an earlier job is lost. Everything after that job is undisturbed.
#[tokio::test]
async fn an_erasure_tells_which_values_stay_after_a_disturbed_job_and_the_next_second_look_deletes_them()
 {
    let first = put(&person("Ada").with("Photo", FIRST), "replace");
    let operations = lab().await.operations_of(&first).await;
    let mut stayed = 0;
    for at in 1..=operations {
        let story = format!("the answer of operation {at} was lost");
        let lab = lab().await;
        lab.faults.arm(at, Disturbance::LoseAnswer);
        lab.deliver_until_done(&first).await;
        lab.faults.calm();
        lab.work(&put(&person("Ada").with("Photo", SECOND), "replace"))
            .await
            .unwrap();
        lab.wait(Duration::from_mins(12));
        let (until, left) = erased(&lab).await;
        assert_eq!(left, names(&lab, "large").await.len() as u64, "{story}");
        assert_eq!(until.is_some(), left > 0, "{story}");
        if left == 0 {
            continue;
        }
        stayed += 1;
        let (again, still) = erased(&lab).await;
        assert_eq!(
            still, left,
            "{story}: a second erasure must report the same"
        );
        let until = again.unwrap();
        let wait = Duration::try_from(until.duration_since(lab.now())).unwrap();
        assert!(
            wait < RECHECK_AFTER + Duration::from_mins(35),
            "{story}: {wait:?}"
        );
        lab.wait(wait);
        lab.recheck().await;
        assert_eq!(
            names(&lab, "large").await,
            [""; 0],
            "{story}: at the reported time"
        );
        assert_eq!(erased(&lab).await, (None, 0), "{story}");
        lab.finish().await;
    }
    assert!(stayed > 2, "values stayed {stayed} times");
}

async fn over_two_accounts(before: &[&str]) -> Lab {
    let own = "[views.former_photos]";
    let catalog =
        CATALOG.replace(own, &format!("[accounts.other]\nkind = \"embedded\"\npath = \"other.db\"\n\n{own}\naccount = \"other\""));
    let lab = Lab::over_two(declared(&catalog));
    let (blobs, beside) = (
        &lab.account.blobs,
        lab.beside.as_ref().unwrap().account().blobs,
    );
    for name in ["large", STAGING] {
        blobs.create_container(&container(name)).await.unwrap();
    }
    beside.create_container(&container("former")).await.unwrap();
    let upload = BlobUpload {
        content_type: Some(STAGED_KIND.to_owned()),
        ..BlobUpload::default()
    };
    blobs
        .put(
            &container(STAGING),
            &BlobName::new("photo").unwrap(),
            staged().into(),
            &upload,
        )
        .await
        .unwrap();
    let entity = odata::encode(&person("Ada").with("Resume", FIRST));
    let staged = json!({"Photo": {"blob": format!("{STAGING}/photo")}});
    lab.work(&job(
        &json!({"op": "put", "table": "Staff", "entity": entity, "blobs": staged}),
    ))
    .await
    .unwrap();
    for op in before {
        lab.work(&on(op)).await.unwrap();
    }
    lab
}

#[tokio::test]
async fn values_go_to_another_account_and_come_back_in_blocks_with_their_content_types() {
    for (op, before, from, to) in [
        ("archive", &[][..], "Staff", "Former"),
        ("restore", &["archive"], "Former", "Staff"),
    ] {
        let mut sweep =
            Sweep::at_once(over_two_accounts(before).await.operations_of(&on(op)).await);
        while let Some(case) = sweep.next() {
            let story = format!("{op}, {case}");
            let lab = over_two_accounts(before).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&on(op)).await;
            sweep.seen(&lab);
            lab.faults.calm();
            lab.finish().await;
            assert!(
                lab.read(from, "p", "1").await.is_none(),
                "{story}: the entity still exists"
            );
            let entity = lab.read(to, "p", "1").await.unwrap().entity;
            let beside = lab.beside.as_ref().unwrap().account();
            for (name, content, kind) in [
                ("Photo", staged(), STAGED_KIND),
                ("Resume", FIRST.as_bytes().to_vec(), TEXT),
            ] {
                let pointer = Pointer::of(entity.get(name).unwrap())
                    .unwrap_or_else(|| panic!("{story}: {name} has no pointer"));
                let blobs = if to == "Former" {
                    &beside.blobs
                } else {
                    &lab.account.blobs
                };
                let blob = blobs
                    .get(&pointer.container.unwrap(), &pointer.name, None)
                    .await
                    .unwrap();
                let blob =
                    blob.unwrap_or_else(|| panic!("{story}: {name} points to a missing blob"));
                assert!(
                    blob.content == content && blob.properties.content_type == kind,
                    "{story}: {name}"
                );
            }
            let former = beside
                .blobs
                .list(&container("former"), "", None)
                .await
                .unwrap()
                .blobs
                .len();
            let counts = (names(&lab, "large").await.len(), former);
            assert_eq!(
                counts,
                if to == "Former" { (0, 2) } else { (2, 0) },
                "{story}: orphaned blobs"
            );
        }
    }
}

/// The first delivery of a staged entity stops at some operation, and a later job writes the entity. Then the message
/// is delivered again.
#[tokio::test]
async fn a_staged_entity_that_comes_again_after_a_later_job_is_skipped_where_it_was_taken_or_its_condition_is_unmet()
 {
    let staging = container(STAGING);
    let mut taken = 0;
    for condition in [None, Some("if_absent")] {
        let content = json!(odata::encode(&person("Ada").with("Photo", FIRST))).to_string();
        let blob =
            json!({"blob": format!("{STAGING}/person"), "sha256": large::hash(content.as_bytes())});
        let mut staged =
            json!({"op": "put", "table": "Staff", "pk": "p", "rk": "1", "entity_ref": blob});
        if let Some(condition) = condition {
            staged[condition] = json!(true);
        }
        let staged = job(&staged);
        let mut at = 0;
        loop {
            at += 1;
            let story = format!("{condition:?}, stopped at operation {at}");
            let lab = lab().await;
            lab.account
                .blobs
                .put(
                    &staging,
                    &BlobName::new("person").unwrap(),
                    content.clone().into(),
                    &BlobUpload::default(),
                )
                .await
                .unwrap();
            lab.faults.arm(at, Disturbance::Crash);
            let stopped = lab.deliver(&staged, 1).await.is_none();
            lab.faults.calm();
            lab.wait(std::time::Duration::from_mins(1));
            lab.work(&put(&person("Countess"), "replace"))
                .await
                .unwrap();
            let gone = names(&lab, STAGING).await.is_empty();
            let again = lab
                .deliver(&staged, 2)
                .await
                .unwrap()
                .unwrap_or_else(|failure| panic!("{story}: {}", failure.chain()));
            let skipped = matches!(again, Outcome::Skipped { .. });
            assert_eq!(skipped, gone || condition.is_some(), "{story}: {again:?}");
            let there = lab.read("Staff", "p", "1").await.unwrap().entity;
            assert_eq!(
                there.text("Name"),
                Some(if skipped { "Countess" } else { "Ada" }),
                "{story}"
            );
            assert_eq!(
                names(&lab, STAGING).await,
                Vec::<String>::new(),
                "{story}: a staged blob is left"
            );
            taken += usize::from(gone);
            if !stopped {
                break;
            }
        }
    }
    assert!(
        taken >= 2,
        "the first delivery must have removed a staged blob in some run"
    );
}

const MAIL: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.overflow]
kind = "large_entity"
source = "Mail"
container = "large"

[views.by_title]
kind = "secondary_index"
source = "Mail"
table = "ByTitle"
partition_key = "{PartitionKey}"
row_key = "{Title|hash:16}_{RowKey}"
when = 'Kind == "invoice"'
select = []

[views.described]
kind = "secondary_index"
source = "Mail"
table = "Described"
partition_key = "{PartitionKey}"
row_key = "{RowKey}"
when = 'Description != ""'
select = ["Description"]

[archives.filed]
source = "Mail"
to = { kind = "blob", container = "papers", metadata = { subject = "{Subject}" } }
"#;

/// A letter has no item of the view `by_title`, so its title may be in a blob.
#[tokio::test]
async fn only_a_view_with_items_of_an_entity_computes_from_it() {
    let lab = Lab::with(SMALL, declared(MAIL));
    lab.account
        .blobs
        .create_container(&container("large"))
        .await
        .unwrap();
    let mail = |rk: &str| Entity::new(EntityKey::new("p", rk).unwrap());
    let put = |entity: Entity, mode: &str| {
        job(&json!({"op": "put", "table": "Mail", "mode": mode, "entity": odata::encode(&entity)}))
    };
    let sync = |rk: &str| {
        job(&json!({"op": "sync", "table": "Mail", "pk": "p", "rk": rk, "thorough": true}))
    };
    let long = |sign: &str| sign.repeat(40_000);
    // Each value has its own job, because a message has room for only one of them.
    lab.work(&put(
        mail("1").with("Kind", "letter").with("Title", long("t")),
        "replace",
    ))
    .await
    .unwrap();
    lab.work(&put(mail("1").with("Description", long("d")), "merge"))
        .await
        .unwrap();
    lab.work(&sync("1")).await.unwrap();
    let letter = lab.read("Mail", "p", "1").await.unwrap().entity;
    assert!(
        ["Title", "Description"].iter().all(|name| letter
            .get(name)
            .is_some_and(|value| Pointer::of(value).is_some())),
        "{letter:?}"
    );
    let copy = lab.read("Described", "p", "1").await.unwrap().entity;
    assert_eq!(copy.get("Description"), letter.get("Description"));
    assert!(lab.sim.rows(&table("ByTitle")).is_empty());

    let invoice = |title: &str| mail("2").with("Kind", "invoice").with("Title", title);
    let refused = lab
        .work(&put(invoice(&long("t")), "replace"))
        .await
        .unwrap_err();
    assert!(
        refused.class == FailureClass::Permanent
            && refused.chain().contains("\"Title\" is too large for a row"),
        "{}",
        refused.chain()
    );
    lab.work(&put(invoice("short"), "replace")).await.unwrap();
    assert_eq!(lab.sim.rows(&table("ByTitle")).len(), 1);
    // A property in the condition of a view must not be in a blob either.
    let refused = lab
        .work(&put(
            mail("3").with("Kind", long("k")).with("Title", "short"),
            "replace",
        ))
        .await
        .unwrap_err();
    assert!(
        refused.chain().contains("\"Kind\" is too large for a row"),
        "{}",
        refused.chain()
    );
    let refused = lab
        .work(&put(mail("3").with("Subject", long("s")), "replace"))
        .await
        .unwrap_err();
    assert!(
        refused
            .chain()
            .contains("\"Subject\" is too large for a row"),
        "{}",
        refused.chain()
    );

    // The letter becomes an invoice, but its title is already in a blob.
    let refused = lab
        .work(&put(mail("1").with("Kind", "invoice"), "merge"))
        .await
        .unwrap_err();
    assert!(
        refused.chain().contains("\"Title\"") && refused.chain().contains("is in a blob"),
        "{}",
        refused.chain()
    );
    lab.work(&put(
        mail("1").with("Kind", "invoice").with("Title", "brief"),
        "merge",
    ))
    .await
    .unwrap();
    assert_eq!(lab.sim.rows(&table("ByTitle")).len(), 2);
}

/// The value decides whether the filter yields a key, and the pointer does not contain the value.
#[tokio::test]
async fn the_absence_of_an_item_is_not_derived_from_a_pointer() {
    for sign in ["@", "/"] {
        let view = format!(
            "[accounts.main]\nkind = \"embedded\"\npath = \"unused.db\"\n\
             [views.by_domain]\nkind = \"secondary_index\"\nsource = \"Mail\"\ntable = \"ByDomain\"\nselect = []\n\
             partition_key = \"{{Address|after:{sign}}}\"\nrow_key = \"{{Kind}}_{{RowKey}}\"\n"
        );
        let overflow =
            "[views.overflow]\nkind = \"large_entity\"\nsource = \"Mail\"\ncontainer = \"large\"\n";
        let lab = Lab::with(SMALL, declared(&format!("{view}{overflow}")));
        lab.account
            .blobs
            .create_container(&container("large"))
            .await
            .unwrap();
        let mail =
            Entity::new(EntityKey::new("p", "1").unwrap()).with("Address", "a".repeat(40_000));
        let put = |entity: Entity| {
            job(&json!({"op": "put", "table": "Mail", "entity": odata::encode(&entity)}))
        };
        let refused = lab
            .work(&put(mail.clone().with("Kind", "letter")))
            .await
            .unwrap_err();
        assert!(
            refused
                .chain()
                .contains("\"Address\" is too large for a row"),
            "{sign}: {}",
            refused.chain()
        );
        // If another part of the key is missing, the view has no item, whatever the value is. So the value may be in a
        // blob.
        lab.work(&put(mail)).await.unwrap();
        assert!(lab.sim.rows(&table("ByDomain")).is_empty());
    }
}

#[tokio::test]
async fn a_pointer_to_nothing_or_to_the_value_of_somebody_else_is_refused() {
    let lab = lab().await;
    lab.work(&put(
        &Entity::new(EntityKey::new("p", "2").unwrap())
            .with("Name", "Bea")
            .with("Photo", FIRST),
        "replace",
    ))
    .await
    .unwrap();
    let theirs = lab
        .read("Staff", "p", "2")
        .await
        .unwrap()
        .entity
        .text("Photo")
        .unwrap()
        .to_owned();
    assert!(Pointer::of(&theirs.as_str().into()).is_some(), "{theirs}");
    let foreign = lab
        .work(&put(
            &person("Ada").with("Photo", theirs.as_str()),
            "replace",
        ))
        .await
        .unwrap_err();
    assert!(
        foreign.class == FailureClass::Permanent
            && foreign.chain().contains("not a blob of this entity"),
        "{}",
        foreign.chain()
    );
    lab.work(&put(&person("Ada").with("Photo", FIRST), "replace"))
        .await
        .unwrap();
    let own = lab
        .read("Staff", "p", "1")
        .await
        .unwrap()
        .entity
        .text("Photo")
        .unwrap()
        .to_owned();
    lab.work(&put(&person("Ada"), "replace")).await.unwrap();
    let dangling = lab
        .work(&put(&person("Ada").with("Photo", own.as_str()), "replace"))
        .await
        .unwrap_err();
    assert!(
        dangling.class == FailureClass::Permanent && dangling.chain().contains("does not exist"),
        "{}",
        dangling.chain()
    );
    assert_eq!(
        lab.read("Staff", "p", "1")
            .await
            .unwrap()
            .entity
            .get("Photo"),
        None
    );
}

#[tokio::test]
async fn every_job_disturbed_at_every_operation_leaves_no_value_behind_and_none_out() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let mut sweep = Sweep::over(operations_of(&scenario).await);
        while let Some(case) = sweep.next() {
            let lab = prepared(&scenario).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&(scenario.job)()).await;
            sweep.seen(&lab);
            lab.faults.calm();
            lab.finish().await;
            check(&lab, &scenario, &format!("{}, {case}", scenario.name)).await;
        }
        runs += sweep.runs().0;
    }
    assert!(
        runs > 500,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

type Meddler = fn(Lab, Job) -> BoxFuture<'static, ()>;

fn syncs(other: Lab, _: Job) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let archived_values: Vec<String> = other
            .engine
            .catalog()
            .archived_values
            .keys()
            .map(ToString::to_string)
            .collect();
        let tables = [
            ("Staff", "p", "1"),
            ("Former", "p", "1"),
            ("Staff", "q", "2"),
        ];
        for (name, pk, rk) in tables
            .into_iter()
            .chain(archived_values.iter().map(|name| (name.as_str(), "p", "1")))
        {
            drop(
                other
                    .work(&job(
                        &json!({"op": "sync", "table": name, "pk": pk, "rk": rk}),
                    ))
                    .await,
            );
        }
    })
}

/// The first worker has lost its lease without noticing. Another worker gets the same message, and does the job.
fn does_the_same(other: Lab, job: Job) -> BoxFuture<'static, ()> {
    Box::pin(async move { drop(other.deliver_until_done(&job).await) })
}

#[tokio::test]
async fn another_worker_in_between_takes_no_value_away_for_good() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let operations = operations_of(&scenario).await;
        for (name, meddler) in [("syncs", syncs as Meddler), ("the same job", does_the_same)] {
            for at in 1..=operations {
                let lab = prepared(&scenario).await;
                lab.faults.arm(at, Disturbance::Meddle);
                lab.faults
                    .meddle(meddler(lab.of_another_worker(), (scenario.job)()));
                lab.deliver_until_done(&(scenario.job)()).await;
                lab.faults.calm();
                lab.finish().await;
                check(
                    &lab,
                    &scenario,
                    &format!("{}, {name} before operation {at}", scenario.name),
                )
                .await;
                runs += 1;
            }
        }
    }
    assert!(
        runs > 160,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

fn deletes(other: Lab, _: Job) -> BoxFuture<'static, ()> {
    Box::pin(async move { drop(other.deliver_until_done(&on("delete")).await) })
}

#[tokio::test]
async fn a_sync_that_precedes_the_row_and_a_deletion_that_follows_it_leave_no_pointer_to_nothing() {
    let mut runs = 0_u32;
    for scenario in scenarios().into_iter().filter(|scenario| {
        [
            "it is archived",
            "it is filed",
            "it is shut away",
            "it moves",
        ]
        .contains(&scenario.name)
    }) {
        let operations = operations_of(&scenario).await;
        for (first, second) in (1..=operations)
            .flat_map(|first| (first + 1..=operations).map(move |second| (first, second)))
        {
            let lab = prepared(&scenario).await;
            for (at, meddler) in [(first, syncs as Meddler), (second, deletes)] {
                lab.faults.arm(at, Disturbance::Meddle);
                lab.faults
                    .meddle(meddler(lab.of_another_worker(), (scenario.job)()));
            }
            lab.deliver_until_done(&(scenario.job)()).await;
            lab.faults.calm();
            lab.finish().await;
            // Either job may have been first.
            let after = if entities(&lab).await.is_empty() {
                None
            } else {
                scenario.after.clone()
            };
            let story = format!(
                "{}, synced before operation {first} and deleted before {second}",
                scenario.name
            );
            check(
                &lab,
                &Scenario {
                    after,
                    name: scenario.name,
                    before: scenario.before,
                    job: scenario.job,
                },
                &story,
            )
            .await;
            runs += 1;
        }
    }
    assert!(
        runs > 160,
        "only {runs} runs: the sweep must run all scenarios"
    );
}
