//! Erasures that race with other jobs. If an entity was put again later, the erasure leaves the entity alone, even if
//! the entity is archived by then. The entity can still be decrypted.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_account::company::{BLOB_ARCHIVE, FILE_ARCHIVE};
use evenkeel_engine::{Erasure, Outcome};
use evenkeel_model::{CollectionName, ContainerName, EdmValue, Entity, Job, QueueName, body};
use evenkeel_storage::{Query, all_blobs, all_tables};
use serde_json::{Value, json};

use crate::protocol::encryption::{CANARY, decrypted, lab, primary, put};
use crate::protocol::oracle;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, job};

fn erasure() -> Value {
    json!({"op": "erase", "table": "Employees", "pk": "Sales", "rk": "1"})
}

fn put_anew(mode: &str) -> Job {
    job(&put("1", "anew", mode))
}

async fn employed() -> Lab {
    let lab = lab();
    lab.work(&job(&put("1", "first", "replace"))).await.unwrap();
    lab
}

async fn anew(lab: &Lab) {
    lab.wait(Duration::from_mins(1));
    lab.work(&put_anew("replace")).await.unwrap();
}

async fn lives(lab: &Lab, entity: Option<Entity>, story: &str) {
    let Some(entity) = entity else {
        panic!("{story}: the entity was deleted")
    };
    let home = primary("Employees", "Sales", "1");
    assert_eq!(
        decrypted(lab, &entity, &home, "Ssn").await,
        EdmValue::from(format!("{CANARY} anew").as_str()),
        "{story}"
    );
}

async fn stored(lab: &Lab, table: &str) -> Option<Entity> {
    lab.read(table, "Sales", "1").await.map(|row| row.entity)
}

/// The message waits while the employee is put again and archived. In some runs another delivery has erased the
/// employee before that.
#[tokio::test]
async fn an_erasure_leaves_what_a_later_job_has_archived_with_its_data_key() {
    for archive in ["former", BLOB_ARCHIVE, FILE_ARCHIVE] {
        for (erased_before, deliveries) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
            let story = format!(
                "archived to {archive}, delivery {deliveries}, erased before: {erased_before}"
            );
            let lab = employed().await;
            let mut waiting = lab.message(&erasure());
            if erased_before {
                assert!(
                    matches!(
                        lab.run(&lab.message(&erasure())).await,
                        Ok(Outcome::Done(_))
                    ),
                    "{story}"
                );
            }
            anew(&lab).await;
            lab.work(&job(
                &json!({"op": "archive", "archive": archive, "pk": "Sales", "rk": "1"}),
            ))
            .await
            .unwrap();
            waiting.1.dequeue_count = deliveries;
            let ended = lab.run(&waiting).await;
            assert!(
                matches!(ended, Ok(Outcome::Skipped { .. })),
                "{story}: {ended:?}"
            );
            lab.finish().await;
            let archived = if archive == "former" {
                stored(&lab, "FormerEmployees").await
            } else {
                lab.document("1").await
            };
            lives(&lab, archived, &story).await;
        }
    }
}

#[tokio::test]
async fn an_erasure_takes_what_an_older_job_has_archived_late() {
    for archive in ["former", BLOB_ARCHIVE, FILE_ARCHIVE] {
        let lab = employed().await;
        let older =
            lab.message(&json!({"op": "archive", "archive": archive, "pk": "Sales", "rk": "1"}));
        let erase = lab.message(&erasure());
        lab.wait(Duration::from_hours(1));
        lab.run(&older).await.unwrap();
        assert!(
            matches!(lab.run(&erase).await, Ok(Outcome::Done(_))),
            "{archive}"
        );
        assert!(
            stored(&lab, "FormerEmployees").await.is_none() && lab.document("1").await.is_none(),
            "{archive}"
        );
    }
}

#[tokio::test]
async fn no_request_of_an_erasure_that_arrives_late_deletes_the_data_key_of_an_entity_put_anew() {
    let erase = job(&erasure());
    let operations = employed().await.operations_of(&erase).await;
    for at in 1..=operations {
        let story = format!("operation {at} of the erasure arrives in the end");
        let lab = employed().await;
        lab.faults.arm(at, Disturbance::ArriveLater(1_000_000));
        lab.deliver_until_done(&erase).await;
        lab.faults.calm();
        anew(&lab).await;
        lab.finish().await;
        oracle::check(&lab, &story).await;
        lives(&lab, stored(&lab, "Employees").await, &story).await;
    }
}

/// The first delivery stops while its request is in flight. The next delivery comes after the entity was put again.
#[tokio::test]
async fn a_late_request_of_a_stopped_erasure_keeps_the_data_key_of_a_new_entity() {
    let erase = job(&erasure());
    let operations = employed().await.operations_of(&erase).await;
    for at in 1..=operations {
        let story =
            format!("operation {at} of the erasure arrives in the end, and nothing follows it");
        let lab = employed().await;
        lab.faults.arm(at, Disturbance::ArriveLater(1_000_000));
        drop(lab.deliver(&erase, 1).await);
        lab.faults.calm();
        anew(&lab).await;
        let ended = lab.deliver_until_done(&erase).await;
        assert!(
            matches!(ended, Some(Outcome::Skipped { .. })),
            "{story}: {ended:?}"
        );
        lab.finish().await;
        oracle::check(&lab, &story).await;
        lives(&lab, stored(&lab, "Employees").await, &story).await;
    }
}

#[tokio::test]
async fn what_an_erasure_has_removed_is_told_where_the_rest_fails() {
    let operations = employed().await.operations_of(&job(&erasure())).await;
    let mut failed_after_it = 0;
    for at in 1..=operations {
        let lab = employed().await;
        lab.faults.arm(at, Disturbance::Refuse);
        let mut told = Erasure::default();
        let ended = lab
            .engine
            .erase(
                &primary("Employees", "Sales", "1"),
                &lab.delivery(),
                &mut told,
            )
            .await;
        lab.faults.calm();
        if told.removed.values().any(|removed| removed.entities > 0) {
            assert!(
                stored(&lab, "Employees").await.is_none(),
                "operation {at} must not be refused"
            );
            failed_after_it += u32::from(ended.is_err());
        }
    }
    assert!(failed_after_it > 0);
}

#[tokio::test]
async fn an_entity_that_is_put_anew_amid_an_erasure_can_be_read() {
    let erase = job(&erasure());
    let operations = employed().await.operations_of(&erase).await;
    for at in 1..=operations {
        let story = format!("put anew before operation {at} of the erasure");
        let lab = employed().await;
        let other = lab.of_another_worker();
        lab.faults.arm(at, Disturbance::Meddle);
        lab.faults
            .meddle(Box::pin(async move { anew(&other).await }));
        lab.deliver_until_done(&erase).await;
        lab.faults.calm();
        lab.finish().await;
        oracle::check(&lab, &story).await;
        lives(&lab, stored(&lab, "Employees").await, &story).await;
    }
}

/// Before each operation of the first delivery, a second delivery completes and then the entity is put again.
#[tokio::test]
async fn a_delivery_of_an_erasure_that_is_held_up_leaves_an_entity_put_anew_after_a_later_one_had_ended()
 {
    let erase = job(&erasure());
    let operations = employed().await.operations_of(&erase).await;
    for at in 1..=operations {
        let story = format!("an erasure held up at operation {at}");
        let lab = employed().await;
        let (later, again) = (lab.of_another_worker(), erase.clone());
        lab.faults.arm(at, Disturbance::Meddle);
        lab.faults.meddle(Box::pin(async move {
            let ended = later.deliver(&again, 2).await;
            assert!(matches!(ended, Some(Ok(Outcome::Done(_)))), "{ended:?}");
            anew(&later).await;
        }));
        lab.deliver_until_done(&erase).await;
        lab.faults.calm();
        lab.finish().await;
        oracle::check(&lab, &story).await;
        lives(&lab, stored(&lab, "Employees").await, &story).await;
    }
}

/// An erasure completes before each operation of a put. In some runs the entity exists before the put. In others a
/// plain delete has deleted the entity and kept its data key, or the entity never existed and has no data key.
#[tokio::test]
async fn a_put_that_loses_to_an_erasure_encrypts_by_the_data_key_that_is_there_in_the_end() {
    let prepared = async |before: &str| {
        if before == "absent" {
            return lab();
        }
        let lab = employed().await;
        if before == "deleted" {
            lab.work(&job(
                &json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"}),
            ))
            .await
            .unwrap();
        }
        lab
    };
    for (mode, before) in ["employed", "deleted", "absent"]
        .into_iter()
        .flat_map(|before| [("replace", before), ("merge", before)])
    {
        let operations = prepared(before).await.operations_of(&put_anew(mode)).await;
        let mut after = 0;
        for at in 1..=operations {
            let story = format!("{mode}, {before} before, and an erasure before operation {at}");
            let lab = prepared(before).await;
            let other = lab.of_another_worker();
            lab.faults.arm(at, Disturbance::Meddle);
            lab.faults.meddle(Box::pin(async move {
                let ended = other.work(&job(&erasure())).await;
                assert!(matches!(ended, Ok(Outcome::Done(_))), "{ended:?}");
            }));
            lab.work(&put_anew(mode)).await.unwrap();
            lab.faults.calm();
            lab.finish().await;
            oracle::check(&lab, &story).await;
            if let Some(entity) = stored(&lab, "Employees").await {
                lives(&lab, Some(entity), &story).await;
                after += 1;
            }
        }
        assert!(
            after > 2,
            "{mode}, {before} before: put {after} times after the erasure"
        );
    }
}

/// Before each operation of a move, an erasure of the destination key runs. The worker of the move may stop at its
/// next operation.
#[tokio::test]
async fn a_move_that_loses_to_an_erasure_of_its_target_encrypts_by_the_data_key_that_is_there_in_the_end()
 {
    let away = job(
        &json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": "Ops", "to_rk": "7"}),
    );
    let operations = employed().await.operations_of(&away).await;
    for stops in [false, true] {
        let mut after = 0;
        for at in 1..=operations {
            let story = format!(
                "an erasure of the target before operation {at}, and the worker of the move stops then: {stops}"
            );
            let lab = employed().await;
            let other = lab.of_another_worker();
            lab.faults.arm(at, Disturbance::Meddle);
            if stops {
                lab.faults.arm(at + 1, Disturbance::Crash);
            }
            lab.faults.meddle(Box::pin(async move {
                let ended = other
                    .work(&job(
                        &json!({"op": "erase", "table": "Employees", "pk": "Ops", "rk": "7"}),
                    ))
                    .await;
                assert!(matches!(ended, Ok(Outcome::Done(_))), "{ended:?}");
            }));
            lab.deliver_until_done(&away).await;
            lab.faults.calm();
            lab.finish().await;
            oracle::check(&lab, &story).await;
            let Some(row) = lab.read("Employees", "Ops", "7").await else {
                continue;
            };
            let ssn = decrypted(&lab, &row.entity, &primary("Employees", "Ops", "7"), "Ssn").await;
            assert_eq!(
                ssn,
                EdmValue::from(format!("{CANARY} first").as_str()),
                "{story}"
            );
            after += 1;
        }
        assert!(
            after > 2,
            "the worker of the move stops after the erasure: {stops}. Only {after} runs ended with the moved entity"
        );
    }
}

const EVERYWHERE: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[sinks.catalog]
kind = "search"
endpoint = "http://127.0.0.1:1"
auth = "entra"
credential = "developer_tools"

[views.by_email]
kind = "secondary_index"
source = "Staff"
table = "ByEmail"
partition_key = "email"
row_key = "{Email|lower}"

[views.by_email_again]
kind = "secondary_index"
source = "ByEmail"
table = "ByEmailAgain"
partition_key = "{RowKey}"
row_key = "again"

[views.beside]
kind = "secondary_index"
source = "Staff"
table = "Staff"
partition_key = "{PartitionKey}"
row_key = "name_{Name}_{RowKey}"

[views.named]
kind = "index_entity"
source = "Staff"
store = "table"
table = "Named"
partition_key = "name"
row_key = "{Name}"
member = ["{PartitionKey}", "{RowKey}", "{Email}"]
property = "Staff"

[views.listed]
kind = "index_entity"
source = "Staff"
store = "blob"
container = "listed"
name = "{Name}.jsonl"
member = ["{PartitionKey}", "{RowKey}", "{Email}"]

[views.manager]
kind = "denormalize"
source = "Staff"
table = "Departments"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerEmail = "{Email}" }

[views.counted]
kind = "aggregate"
source = "Staff"
group_table = "Counted"
partition_key = "name"
row_key = "{Name}"
set = { People = "count()" }

[views.photos]
kind = "large_entity"
source = "Staff"
properties = ["Photo"]
container = "large"
threshold = "16B"

[views.found]
kind = "search_index"
source = "Staff"
sink = "catalog"
index = "people"
select = ["Email"]

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

/// Occurs in every value of the erased entity, and in none of its keys.
const VALUE: &str = "valueofher";

fn everywhere() -> Lab {
    let lab = Lab::with(SMALL, declared(EVERYWHERE));
    futures::executor::block_on(async {
        for name in ["large", "former", "papers", "listed"] {
            lab.account
                .blobs
                .create_container(&ContainerName::new(name).unwrap())
                .await
                .unwrap();
        }
    });
    lab.sim
        .create_collection(&CollectionName::new("people").unwrap(), &["Email"]);
    lab
}

fn hired([pk, rk]: [&str; 2], value: &str) -> Job {
    let entity = json!({
        "PartitionKey": pk, "RowKey": rk, "Name": format!("{value}name"), "Email": format!("{value}@contoso.com"),
        "Photo": format!("{value} photo of many bytes"),
    });
    job(&json!({"op": "put", "table": "Staff", "entity": entity}))
}

async fn places(lab: &Lab) -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    for table in all_tables(lab.account.tables.as_ref()).await.unwrap() {
        for row in lab
            .account
            .tables
            .query(&table, &Query::default())
            .await
            .unwrap()
            .rows
        {
            places.insert(
                format!("{table} {:?}", row.entity.key),
                format!("{:?}", row.entity),
            );
        }
    }
    for name in ["large", "former", "papers", "listed"] {
        let container = ContainerName::new(name).unwrap();
        for blob in all_blobs(lab.account.blobs.as_ref(), &container, "")
            .await
            .unwrap()
        {
            let content = lab
                .account
                .blobs
                .get(&container, &blob.name, None)
                .await
                .unwrap()
                .unwrap()
                .content;
            places.insert(
                format!("{name}/{}", blob.name),
                String::from_utf8_lossy(&content).into_owned(),
            );
        }
    }
    for place in lab.sim.places() {
        let content = lab.sim.files().read(&place).await.unwrap().unwrap().content;
        places.insert(
            format!("{}/{}", place.dir, place.name),
            String::from_utf8_lossy(&content).into_owned(),
        );
    }
    for (key, document) in lab.sim.documents(&CollectionName::new("people").unwrap()) {
        places.insert(format!("people {key:?}"), format!("{document:?}"));
    }
    for name in ["jobs", "jobs-recheck"] {
        for message in lab.sim.messages(&QueueName::new(name).unwrap()) {
            let text =
                body::decode(&message.text).map_or_else(|_| message.text.clone(), |body| body.text);
            places.insert(format!("queue {name} {}", message.id), text);
        }
    }
    places
}

async fn marked(lab: &Lab) -> Vec<String> {
    let is_marked = |(place, content): (String, String)| {
        (place.contains(VALUE) || content.contains(VALUE)).then_some(place)
    };
    places(lab)
        .await
        .into_iter()
        .filter_map(is_marked)
        .collect()
}

/// The answer of the first job of this entity is lost. Since then the entity was moved to each archive, without
/// disturbance, and put again each time.
#[tokio::test]
async fn nothing_of_an_erased_entity_remains_except_what_its_erasure_reports() {
    let first = hired(["Sales", "1"], VALUE);
    let operations = everywhere().operations_of(&first).await;
    let erased = async |lab: &Lab| {
        let mut told = Erasure::default();
        lab.engine
            .erase(&primary("Staff", "Sales", "1"), &lab.delivery(), &mut told)
            .await
            .unwrap();
        told
    };
    for at in 1..=operations {
        let story = format!("the answer of operation {at} was lost");
        let lab = everywhere();
        lab.work(&hired(["Ops", "2"], "another")).await.unwrap();
        lab.faults.arm(at, Disturbance::LoseAnswer);
        lab.deliver_until_done(&first).await;
        lab.faults.calm();
        for archive in ["former", "papers", "drawer"] {
            lab.work(&job(
                &json!({"op": "archive", "archive": archive, "pk": "Sales", "rk": "1"}),
            ))
            .await
            .unwrap();
            lab.work(&hired(["Sales", "1"], VALUE)).await.unwrap();
        }
        lab.do_queued().await;
        assert!(
            marked(&lab).await.len() > 15,
            "{story}: {:?}",
            marked(&lab).await
        );
        lab.wait(Duration::from_mins(12));
        let told = erased(&lab).await;
        lab.do_queued().await;
        assert!(told.rechecks_until.is_some(), "{story}");
        let values: u64 = told.left.values().filter_map(|left| left.values).sum();
        let is_value = |place: &str| {
            place.starts_with("large/")
                || place.starts_with("former/")
                || place.contains("%values/")
        };
        let is_second_look = |place: &str| {
            place.starts_with("EvenkeelFootprints") || place.starts_with("queue jobs-recheck")
        };
        let left: Vec<String> = marked(&lab)
            .await
            .into_iter()
            .filter(|place| !is_second_look(place))
            .collect();
        assert!(
            left.iter().all(|place| is_value(place)),
            "{story}: {left:?}"
        );
        let in_files = left.iter().any(|place| place.starts_with("/mnt"))
            || told.left.values().any(|left| left.values.is_none());
        assert!(
            in_files || left.len() as u64 == values,
            "{story}: {left:?}, {told:?}"
        );
        lab.finish().await;
        assert_eq!(marked(&lab).await, [""; 0], "{story}");
        assert_eq!(erased(&lab).await.until(), None, "{story}");
        assert!(
            !places(&lab)
                .await
                .into_iter()
                .all(|(_, content)| !content.contains("another@contoso.com")),
            "{story}: the other entity must stay"
        );
    }
}
