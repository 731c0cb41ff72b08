//! Jobs that are delivered again, because a delivery ended half-way or is delayed.

use std::time::Duration;

use evenkeel_account::company::{BLOB_ARCHIVE, FILE_ARCHIVE, LOG_ARCHIVE, Shape};
use evenkeel_engine::{Outcome, footprint};
use serde_json::{Value, json};

use crate::protocol::oracle;
use crate::protocol::world::{Disturbance, Lab, SHAPE, SMALL, employee, job, sync};

/// A client changes an employee, who then no longer satisfies the condition, and sends a sync.
#[derive(Debug, Clone, Copy)]
enum ClientChange {
    Renamed,
    Deleted,
}

async fn happens(lab: &Lab, since: ClientChange) {
    match since {
        ClientChange::Renamed => {
            lab.write(employee("1", "ada@contoso.com", "Lovelace"))
                .await;
        }
        ClientChange::Deleted => lab.remove("Sales", "1").await,
    }
    lab.work(&sync("Sales", "1")).await.unwrap();
}

async fn two() -> Lab {
    two_of(Shape {
        former_index: true,
        ..SMALL
    })
    .await
}

async fn two_of(shape: Shape) -> Lab {
    let lab = Lab::of(shape);
    for rk in ["1", "2"] {
        lab.write(employee(rk, &format!("{rk}@contoso.com"), "King"))
            .await;
        lab.work(&sync("Sales", rk)).await.unwrap();
    }
    lab
}

#[tokio::test]
async fn an_archiving_by_condition_goes_back_to_what_its_earlier_delivery_left_half_way() {
    let archive =
        job(&json!({"op": "archive_where", "archive": "former", "when": "LastName == \"King\""}));
    let operations = two().await.operations_of(&archive).await;
    for at in 1..=operations {
        for disturbance in [
            Disturbance::Crash,
            Disturbance::Throttle,
            Disturbance::LoseAnswer,
        ] {
            for since in [ClientChange::Renamed, ClientChange::Deleted] {
                let story = format!("{disturbance:?} at operation {at}, then {since:?}");
                let lab = two().await;
                lab.faults.arm(at, disturbance);
                lab.deliver(&archive, 1).await;
                lab.faults.calm();
                happens(&lab, since).await;
                let ended = lab.deliver(&archive, 2).await;
                assert!(
                    matches!(ended, Some(Ok(Outcome::Done(_)))),
                    "{story}: {ended:?}"
                );
                lab.finish().await;
                oracle::check(&lab, &story).await;
                for footprint in lab.rows(footprint::FOOTPRINTS).await {
                    assert!(
                        footprint.entity.text("Settled").is_some(),
                        "{story}: {footprint:?}"
                    );
                }
                assert!(
                    lab.read("FormerEmployees", "Sales", "2").await.is_some(),
                    "{story}"
                );
            }
        }
    }
}

/// Before each operation of the first delivery, a second delivery completes, and then a client recreates the entity.
#[tokio::test]
async fn a_delayed_delivery_leaves_an_entity_created_after_a_later_delivery() {
    let to = |archive: &str| json!({"op": "archive", "archive": archive, "pk": "Sales", "rk": "1"});
    let moving = json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": "Ops", "to_rk": "1"});
    for message in [
        to("former"),
        to(BLOB_ARCHIVE),
        to(FILE_ARCHIVE),
        to(LOG_ARCHIVE),
        moving,
    ] {
        let job = job(&message);
        for shape in [
            SMALL,
            Shape {
                former_index: true,
                ..SMALL
            },
        ] {
            let operations = settled(shape).await.operations_of(&job).await;
            for at in 1..=operations {
                let story = format!("{message} held up at operation {at}");
                let lab = settled(shape).await;
                let (later, again) = (lab.of_another_worker(), job.clone());
                lab.faults.arm(at, Disturbance::Meddle);
                lab.faults.meddle(Box::pin(async move {
                    let ended = later.deliver(&again, 2).await;
                    assert!(matches!(ended, Some(Ok(Outcome::Done(_)))), "{ended:?}");
                    later.wait(Duration::from_mins(1));
                    later.write(employee("1", "anew@contoso.com", "Anew")).await;
                    later.work(&sync("Sales", "1")).await.unwrap();
                }));
                lab.deliver(&job, 1).await;
                lab.faults.calm();
                lab.finish().await;
                let live = lab.read("Employees", "Sales", "1").await;
                assert!(
                    live.is_some_and(|row| row.entity.text("Email") == Some("anew@contoso.com")),
                    "{story}: the entity was deleted"
                );
                assert_eq!(kept(&lab, &message).await, ["first@contoso.com"], "{story}");
                oracle::check(&lab, &story).await;
            }
        }
    }
}

/// A second run completes before each operation of the first run. As soon as both runs have ended, derived data must be
/// correct without a recheck. For this, a run must find what the other run wrote to the footprint after this run had
/// read the footprint for the first time.
#[tokio::test]
async fn two_concurrent_runs_leave_nothing_to_a_recheck() {
    let put = |email: &str, last_name: &str| {
        let entity =
            json!({"PartitionKey": "Sales", "RowKey": "1", "Email": email, "LastName": last_name});
        job(&json!({"op": "put", "table": "Employees", "entity": entity}))
    };
    let delete = job(&json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"}));
    let archive = job(&json!({"op": "archive", "archive": "former", "pk": "Sales", "rk": "1"}));
    let moving = job(
        &json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": "Ops", "to_rk": "1"}),
    );
    let all = [
        put("first@contoso.com", "Other"),
        put("other@contoso.com", "Other"),
        delete,
        archive,
        moving.clone(),
    ];
    let mut runs = 0_u32;
    for first in all.iter().chain([&sync("Sales", "1")]) {
        for second in all
            .iter()
            .filter(|second| *first != moving || **second != moving)
        {
            for shape in [
                SMALL,
                Shape {
                    former_index: true,
                    ..SHAPE
                },
            ] {
                let written = async || {
                    let lab = Lab::of(shape);
                    lab.write(employee("1", "first@contoso.com", "First")).await;
                    lab
                };
                for at in 1..=written().await.operations_of(first).await {
                    let story = format!("{second:?} before operation {at} of {first:?}");
                    let lab = written().await;
                    let (other, amid) = (lab.of_another_worker(), second.clone());
                    lab.faults.arm(at, Disturbance::Meddle);
                    lab.faults.meddle(Box::pin(
                        async move { drop(other.work(&amid).await.unwrap()) },
                    ));
                    let ended = lab.deliver(first, 1).await;
                    assert!(matches!(ended, Some(Ok(_))), "{story}: {ended:?}");
                    lab.faults.calm();
                    lab.do_queued().await;
                    oracle::check(&lab, &story).await;
                    runs += 1;
                }
            }
        }
    }
    assert!(runs > 100, "only {runs} runs");
}

/// A run that loses every round leaves its changes to its next delivery, and queues no recheck.
#[tokio::test]
async fn a_run_that_gives_up_queues_no_recheck() {
    let put = |email: String| {
        let entity =
            json!({"PartitionKey": "Sales", "RowKey": "1", "Email": email, "LastName": "Other"});
        job(&json!({"op": "put", "table": "Employees", "entity": entity}))
    };
    let mut gave_up = 0;
    for first in [put("first@contoso.com".to_owned()), sync("Sales", "1")] {
        for apart in 2..=16 {
            for at in 1..=apart {
                let lab = Lab::of(SMALL);
                lab.write(employee("1", "first@contoso.com", "First")).await;
                for round in 0..8 {
                    lab.faults.arm(at + round * apart, Disturbance::Meddle);
                    let (other, amid) = (
                        lab.of_another_worker(),
                        put(format!("other{round}@contoso.com")),
                    );
                    lab.faults.meddle(Box::pin(
                        async move { drop(other.work(&amid).await.unwrap()) },
                    ));
                }
                let story = format!("others before operation {at}, and every {apart} from there");
                let ended = lab.deliver(&first, 1).await;
                lab.faults.calm();
                if !matches!(ended, Some(Ok(_))) {
                    gave_up += 1;
                    assert!(
                        matches!(lab.deliver(&first, 2).await, Some(Ok(_))),
                        "{story}"
                    );
                }
                lab.do_queued().await;
                oracle::check(&lab, &story).await;
            }
        }
    }
    assert!(gave_up > 10, "only {gave_up} runs gave up");
}

/// An employee who was already copied is archived, even if the employee no longer satisfies the condition when the
/// sweep tries again.
#[tokio::test]
async fn a_sweep_that_loses_its_races_archives_the_copied_entities() {
    let archive =
        job(&json!({"op": "archive_where", "archive": "former", "when": "LastName == \"King\""}));
    let mut moved = 0;
    for apart in 2..=16 {
        for at in 1..=3 * apart {
            // With views, a first delivery would also read the archive.
            let lab = two_of(SMALL).await;
            for round in 0..5 {
                lab.faults.arm(at + round * apart, Disturbance::Meddle);
                let other = lab.of_another_worker();
                lab.faults.meddle(Box::pin(async move {
                    if other.read("Employees", "Sales", "1").await.is_some() {
                        other
                            .write(employee("1", &format!("{round}@contoso.com"), "Lovelace"))
                            .await;
                    }
                }));
            }
            let story = format!("others before operation {at}, and every {apart} from there");
            let mut ended = lab.deliver(&archive, 1).await;
            lab.faults.calm();
            if !matches!(ended, Some(Ok(_))) {
                ended = lab.deliver(&archive, 2).await;
            }
            assert!(
                matches!(ended, Some(Ok(Outcome::Done(_)))),
                "{story}: {ended:?}"
            );
            lab.work(&sync("Sales", "1")).await.unwrap();
            lab.finish().await;
            oracle::check(&lab, &story).await;
            let [lives, archived] = [
                lab.read("Employees", "Sales", "1").await,
                lab.read("FormerEmployees", "Sales", "1").await,
            ];
            assert!(
                lives.is_some() != archived.is_some(),
                "{story}: {lives:?}, {archived:?}"
            );
            moved += usize::from(archived.is_some());
        }
    }
    assert!(moved > 0, "an employee must be archived in some run");
}

async fn settled(shape: Shape) -> Lab {
    let lab = Lab::of(shape);
    lab.write(employee("1", "first@contoso.com", "First")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab
}

async fn kept(lab: &Lab, message: &Value) -> Vec<String> {
    let rows = match message["archive"].as_str() {
        Some(LOG_ARCHIVE) => {
            return lab
                .lines()
                .await
                .iter()
                .filter_map(|line| line["Email"].as_str().map(str::to_owned))
                .collect();
        }
        Some(BLOB_ARCHIVE | FILE_ARCHIVE) => lab.document("1").await,
        Some(_) => lab
            .read("FormerEmployees", "Sales", "1")
            .await
            .map(|row| row.entity),
        None => lab
            .read("Employees", "Ops", "1")
            .await
            .map(|row| row.entity),
    };
    rows.iter()
        .filter_map(|entity| entity.text("Email").map(str::to_owned))
        .collect()
}
