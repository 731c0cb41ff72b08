//! Logs: each version has exactly one line, even if an append whose sender gave up arrives late.

use std::collections::BTreeMap;

use evenkeel_engine::Outcome;
use evenkeel_model::{Entity, EntityKey, Job};
use futures::future::join_all;
use serde_json::json;

use crate::protocol::world::{Disturbance, Lab, SMALL, declared, employee, job};

const LOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Employees]

[archives.former_log]
source = "Employees"
to = { kind = "append_blob", container = "former-employees", path = "logs/%Y/%m/%d/%H00", spread = 1 }
"#;
const VIEW: &str = r#"
[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "ByEmail"
partition_key = "email_{PartitionKey}"
row_key = "{Email|lower}"
"#;
/// More operations than any job of this file has, disturbed or not.
const LATEST: u64 = 24;

fn labs() -> [Lab; 2] {
    [LOG.to_owned(), format!("{LOG}{VIEW}")].map(|catalog| Lab::with(SMALL, declared(&catalog)))
}

async fn prepared(views: usize, people: &[&str]) -> Lab {
    let lab = labs().into_iter().nth(views).unwrap();
    for rk in people {
        lab.write(employee(rk, &format!("{rk}@contoso.com"), "King"))
            .await;
    }
    lab
}

fn archive(rk: &str) -> Job {
    job(&json!({"op": "archive", "archive": "former_log", "pk": "Sales", "rk": rk}))
}

async fn lines(lab: &Lab) -> BTreeMap<(String, String), usize> {
    let mut lines = BTreeMap::new();
    for line in lab.lines().await {
        let text = |name: &str| {
            line[name]
                .as_str()
                .expect("every line has this property")
                .to_owned()
        };
        *lines
            .entry((text("RowKey"), text("ek_source_etag")))
            .or_default() += 1;
    }
    lines
}

async fn one_line_each(lab: &Lab, people: &[&str], story: &str) {
    let lines = lines(lab).await;
    let each: Vec<(&str, usize)> = lines
        .iter()
        .map(|((rk, _), count)| (rk.as_str(), *count))
        .collect();
    let expected: Vec<(&str, usize)> = people.iter().map(|rk| (*rk, 1)).collect();
    assert_eq!(each, expected, "{story}");
    for rk in people {
        assert!(
            lab.read("Employees", "Sales", rk).await.is_none(),
            "{story}: {rk} still exists"
        );
    }
}

async fn operations(views: usize, people: &[&str]) -> u64 {
    let lab = prepared(views, people).await;
    lab.faults.arm(u64::MAX, Disturbance::Crash);
    archived(&lab, people).await;
    one_line_each(&lab, people, "undisturbed").await;
    lab.faults.counted()
}

async fn archived(lab: &Lab, people: &[&str]) {
    lab.faults.take_turns();
    let jobs: Vec<Job> = people.iter().map(|rk| archive(rk)).collect();
    for ended in join_all(jobs.iter().map(|job| lab.work(job))).await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn a_line_whose_append_arrives_at_any_time_is_there_once() {
    for views in [0, 1] {
        for at in 1..=operations(views, &["1"]).await {
            for arrival in 1..=LATEST {
                let lab = prepared(views, &["1"]).await;
                lab.faults.arm(at, Disturbance::ArriveLater(arrival));
                lab.deliver_until_done(&archive("1")).await;
                lab.faults.calm();
                lab.finish().await;
                one_line_each(
                    &lab,
                    &["1"],
                    &format!("{views} views: operation {at} arrives {arrival} later"),
                )
                .await;
            }
        }
    }
}

#[tokio::test]
async fn a_line_whose_append_arrives_at_any_time_after_its_worker_stopped_is_there_once() {
    for views in [0, 1] {
        for at in 1..=operations(views, &["1"]).await {
            for arrival in 1..=LATEST {
                let lab = prepared(views, &["1"]).await;
                lab.faults.arm(at, Disturbance::ArriveLater(arrival));
                lab.faults.arm(at + 1, Disturbance::Crash);
                lab.deliver_until_done(&archive("1")).await;
                lab.faults.calm();
                lab.finish().await;
                one_line_each(
                    &lab,
                    &["1"],
                    &format!("{views} views: operation {at} arrives {arrival} later, stopped"),
                )
                .await;
            }
        }
    }
}

#[tokio::test]
async fn lines_that_travel_together_and_arrive_at_any_time_are_there_once() {
    let people = ["1", "2", "3"];
    for views in [0, 1] {
        for at in 1..=operations(views, &people).await {
            for arrival in 1..=LATEST {
                let lab = prepared(views, &people).await;
                lab.faults.arm(at, Disturbance::ArriveLater(arrival));
                archived(&lab, &people).await;
                lab.faults.calm();
                lab.finish().await;
                one_line_each(
                    &lab,
                    &people,
                    &format!("{views} views: operation {at} arrives {arrival} later"),
                )
                .await;
            }
        }
    }
}

/// The name of a line's record contains the whole key, including the partition key.
#[tokio::test]
async fn events_with_one_row_key_in_several_partitions_have_a_line_each() {
    let partitions = ["Sales", "Trade", "Works"];
    let lab = prepared(0, &[]).await;
    for pk in partitions {
        lab.write(Entity::new(EntityKey::new(pk, "1").unwrap()).with("Email", "1@contoso.com"))
            .await;
    }
    lab.faults.take_turns();
    let jobs = partitions
        .map(|pk| job(&json!({"op": "archive", "archive": "former_log", "pk": pk, "rk": "1"})));
    for ended in join_all(jobs.iter().map(|job| lab.work(job))).await {
        ended.unwrap();
    }
    let mut logged: Vec<String> = lab
        .lines()
        .await
        .iter()
        .map(|line| line["PartitionKey"].as_str().unwrap().to_owned())
        .collect();
    logged.sort_unstable();
    assert_eq!(logged, partitions);
    assert_eq!(lab.rows("Employees").await, []);
}

#[tokio::test]
async fn two_appends_of_one_start_that_arrive_at_any_time_leave_one_line_each() {
    let people = ["1", "2"];
    for at in 1..=operations(0, &people).await {
        for gap in 1..=8 {
            for arrival in [2, 3, 5, 8, 13, 21] {
                let lab = prepared(0, &people).await;
                lab.faults.arm(at, Disturbance::ArriveLater(arrival + gap));
                lab.faults.arm(at + gap, Disturbance::ArriveLater(arrival));
                archived(&lab, &people).await;
                lab.faults.calm();
                lab.finish().await;
                one_line_each(
                    &lab,
                    &people,
                    &format!("operations {at} and {} arrive {arrival} later", at + gap),
                )
                .await;
            }
        }
    }
}

/// A version that is written during the append of the previous version gets its own line, and no version gets two
/// lines.
#[tokio::test]
async fn a_version_that_is_written_while_an_append_is_under_way_has_one_line() {
    let mut both = 0_u32;
    for at in 1..=operations(0, &["1"]).await {
        for gap in 1..=6 {
            for arrival in 1..=12 {
                let lab = prepared(0, &["1"]).await;
                lab.faults.arm(at, Disturbance::ArriveLater(arrival));
                lab.faults.arm(at + gap, Disturbance::Meddle);
                let client = lab.clone();
                lab.faults.meddle(Box::pin(async move {
                    client.client_writes("1", "meddled@contoso.com").await;
                }));
                drop(lab.deliver_until_done(&archive("1")).await);
                lab.faults.calm();
                lab.finish().await;
                let story = format!(
                    "operation {at} arrives {arrival} later, and a client writes {gap} later"
                );
                let lines = lines(&lab).await;
                assert!(
                    lines.values().all(|count| *count == 1),
                    "{story}: {lines:?}"
                );
                let kept = lab.read("Employees", "Sales", "1").await.is_some();
                let logged = lab
                    .lines()
                    .await
                    .iter()
                    .any(|line| line["Email"] == "meddled@contoso.com");
                let written = lab.last_client_write.lock().unwrap().is_some();
                assert!(
                    kept || logged || !written,
                    "{story}: the client's write is lost"
                );
                both += u32::from(lines.len() == 2);
            }
        }
    }
    assert!(both > 0, "a version must be written in between in some run");
}

/// Two workers run a job for the same event. The first deletes the event and the record of its line. The second has
/// read the same version, but has not yet recorded its own line. It records the line alone, or in a transaction with
/// other lines, which are then tried one by one.
#[tokio::test]
async fn two_workers_that_read_one_version_append_one_line() {
    let mut raced = 0;
    for people in [&["1"][..], &["1", "2"]] {
        for ahead in 0..30 {
            for slower in 0..4 {
                let lab = prepared(0, people).await;
                lab.faults.take_turns();
                let other = lab.of_another_worker();
                let (alone, jobs): (Job, Vec<Job>) =
                    (archive("1"), people.iter().map(|rk| archive(rk)).collect());
                let one = async {
                    for _ in 0..slower {
                        tokio::task::yield_now().await;
                    }
                    lab.work(&alone).await
                };
                let others = async {
                    for _ in 0..ahead {
                        tokio::task::yield_now().await;
                    }
                    join_all(jobs.iter().map(|job| other.work(job))).await
                };
                let (one, others) = tokio::join!(one, others);
                let ended: Vec<Outcome> = std::iter::once(one)
                    .chain(others)
                    .map(Result::unwrap)
                    .collect();
                // The second worker had read the event, and found it deleted when it wrote.
                let came_second = |outcome: &Outcome| matches!(outcome, Outcome::Skipped { summary, .. } if summary.extra_rounds > 0);
                raced += usize::from(ended.iter().any(came_second));
                one_line_each(
                    &lab,
                    people,
                    &format!("{people:?}, {ahead} turns ahead, {slower} turns slower"),
                )
                .await;
                assert_eq!(
                    lab.rows("EvenkeelFootprints").await,
                    [],
                    "{people:?}, {ahead} turns ahead, {slower} turns slower: records are left"
                );
            }
        }
    }
    assert!(raced > 0, "the two workers must race in some run");
}
