//! A job acts once. If the answer to a delete is lost, the delete must not be repeated on an entity that was created
//! since.
//!
//! The account has the decorators of production, so they repeat a delete whose answer is lost. Between the two attempts
//! a client recreates the entity under the same key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_account::company::{self, BLOB_ARCHIVE, FILE_ARCHIVE, LOG_ARCHIVE};
use evenkeel_engine::{Delivery, Failure, FailureClass, Outcome};
use evenkeel_layers::stack::Grouping;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::Primary;
use evenkeel_model::{Entity, EntityKey, Job};
use evenkeel_storage::{ErrorClass, TableOperation};
use serde_json::json;

use crate::protocol::oracle;
use crate::protocol::world::{Disturbance, Lab, SMALL, employee, job, sync, table};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Items {
    /// The employee's partition has no item. A single request deletes the employee, and is repeated if its answer is
    /// lost.
    Apart,
    /// The employee's partition has an item. One transaction deletes both, and is not repeated.
    Beside,
}
use Items::{Apart, Beside};

impl Items {
    fn catalog(self) -> Catalog {
        let mut catalog = company::catalog(SMALL);
        if self == Apart {
            catalog.views.retain(|name, _| name.as_str() == "by_email");
        }
        catalog
    }
}

fn archive(more: &[(&str, &str)]) -> Job {
    on("former", more)
}

fn on(archive: &str, more: &[(&str, &str)]) -> Job {
    let mut archive = json!({"op": "archive", "archive": archive, "pk": "Sales", "rk": "1"});
    for (name, value) in more {
        archive[name] = json!(value);
    }
    job(&archive)
}

fn delete() -> Job {
    job(&json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"}))
}

fn move_away() -> Job {
    job(
        &json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": "Ops", "to_rk": "1"}),
    )
}

fn first() -> Entity {
    employee("1", "first@contoso.com", "First")
}

async fn settled(items: Items) -> Lab {
    let lab = Lab::decorated(SMALL, items.catalog(), Grouping::Together);
    lab.write(first()).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab
}

async fn bare() -> Lab {
    let lab = Lab::with(SMALL, Apart.catalog());
    lab.write(first()).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab
}

/// The first delivery sends its delete at this operation, and the worker stops. The delete arrives when `settle` is
/// called. Returns whether the worker stopped there.
async fn stops_amid_its_deletion(lab: &Lab, job: &Job, at: u64) -> bool {
    lab.faults.arm(at, Disturbance::ArriveLater(1_000));
    lab.faults.arm(at + 1, Disturbance::Crash);
    lab.deliver(job, 1).await.is_none() && lab.faults.named(at) == Some("Delete Entity")
}

/// Before this operation, all late requests arrive. If they delete the employee, a client recreates the employee, and
/// the returned flag is set.
fn late_deletion(lab: &Lab, then: u64) -> Arc<AtomicBool> {
    let (other, arrived) = (lab.of_another_worker(), Arc::new(AtomicBool::new(false)));
    let late = Arc::clone(&arrived);
    lab.faults.arm(then, Disturbance::Meddle);
    lab.faults.meddle(Box::pin(async move {
        let before = other.read("Employees", "Sales", "1").await.is_some();
        other.sim.settle();
        if before && other.read("Employees", "Sales", "1").await.is_none() {
            late.store(true, Ordering::SeqCst);
            anew(&other).await;
        }
    }));
    arrived
}

/// The delete of the source is executed, and its answer is lost. A client recreates the entity. The next request is
/// refused as `then` specifies.
fn unheard(lab: &Lab, then: Option<ErrorClass>) {
    let other = lab.of_another_worker();
    lab.faults.lose_the_deletion_of(
        "Employees",
        then,
        Box::pin(async move { anew(&other).await }),
    );
}

async fn anew(lab: &Lab) {
    lab.wait(Duration::from_mins(1));
    lab.write(employee("1", "anew@contoso.com", "Anew")).await;
}

async fn in_step(lab: &Lab, story: &str) {
    if lab.engine.catalog().views.len() > 1 {
        return oracle::check(lab, story).await;
    }
    let mut wanted = BTreeSet::new();
    for pk in ["Sales", "Ops"] {
        let primary = Primary {
            table: table("Employees"),
            key: EntityKey::new(pk, "1").unwrap(),
        };
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(
            plan.in_step,
            "{story}: a second pass would still change something: {plan}"
        );
        wanted.extend(
            email(lab, "Employees", pk)
                .await
                .map(|email| (format!("email_{pk}"), email)),
        );
    }
    let found: BTreeSet<_> = lab
        .rows("ByEmail")
        .await
        .into_iter()
        .map(|row| (row.entity.key.pk.to_string(), row.entity.key.rk.to_string()))
        .collect();
    assert_eq!(found, wanted, "{story}");
}

async fn email(lab: &Lab, name: &str, pk: &str) -> Option<String> {
    lab.read(name, pk, "1")
        .await
        .and_then(|row| row.entity.text("Email").map(str::to_owned))
}

async fn former(lab: &Lab, archive_name: &str) -> Option<String> {
    match archive_name {
        FILE_ARCHIVE => lab
            .document("1")
            .await
            .and_then(|entity| entity.text("Email").map(str::to_owned)),
        _ => email(lab, "FormerEmployees", "Sales").await,
    }
}

async fn lives(lab: &Lab, story: &str) {
    lab.faults.calm();
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab.finish().await;
    assert_eq!(
        email(lab, "Employees", "Sales").await.as_deref(),
        Some("anew@contoso.com"),
        "{story}: live data was deleted"
    );
    in_step(lab, story).await;
}

/// The answers to the second attempt of the delete.
const REFUSALS: [Option<ErrorClass>; 5] = [
    // The answer of a real service: the entity has another ETag.
    None,
    Some(ErrorClass::Unauthorised),
    Some(ErrorClass::Permanent),
    Some(ErrorClass::Conflict),
    Some(ErrorClass::TooLarge),
];

#[tokio::test(start_paused = true)]
async fn an_archive_job_takes_nobody_away_who_was_created_after_its_unheard_deletion() {
    for refusal in REFUSALS {
        let lab = settled(Apart).await;
        unheard(&lab, refusal);
        lab.deliver_until_done(&archive(&[])).await;
        assert!(lab.faults.has_lost_it());
        let story = format!("an archive whose repeated deletion is refused as {refusal:?}");
        lives(&lab, &story).await;
        assert_eq!(
            email(&lab, "FormerEmployees", "Sales").await.as_deref(),
            Some("first@contoso.com"),
            "{story}: the archived entity is lost"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_leaves_what_it_has_moved_and_who_was_created_after_its_unheard_deletion() {
    for refusal in REFUSALS {
        let lab = settled(Apart).await;
        unheard(&lab, refusal);
        lab.deliver_until_done(&move_away()).await;
        let story = format!("a move whose repeated deletion is refused as {refusal:?}");
        lives(&lab, &story).await;
        assert_eq!(
            email(&lab, "Employees", "Ops").await.as_deref(),
            Some("first@contoso.com"),
            "{story}: the moved entity is lost"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_job_deletes_nobody_who_was_created_after_its_unheard_deletion() {
    for items in [Apart, Beside] {
        for refusal in REFUSALS {
            let lab = settled(items).await;
            unheard(&lab, refusal);
            lab.deliver_until_done(&delete()).await;
            lives(
                &lab,
                &format!("a delete whose repeated deletion is refused as {refusal:?}, {items:?}"),
            )
            .await;
        }
    }
}

/// All events happen within one second of the queue's clock, so the clocks cannot order them.
#[tokio::test(start_paused = true)]
async fn a_run_without_an_answer_leaves_another_version_alone_whatever_the_clocks() {
    for job in [delete(), archive(&[]), move_away()] {
        let lab = settled(Apart).await;
        let other = lab.of_another_worker();
        let again = async move { other.write(employee("1", "anew@contoso.com", "Anew")).await };
        lab.faults
            .lose_the_deletion_of("Employees", None, Box::pin(again));
        let ended = lab.deliver(&job, 1).await;
        assert!(
            matches!(ended, Some(Ok(Outcome::Skipped { .. }))),
            "{ended:?}"
        );
        lives(&lab, &format!("{job:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_etag_that_was_asked_for_is_asked_of_the_version_that_goes() {
    for archive_name in ["former", LOG_ARCHIVE, FILE_ARCHIVE] {
        let lab = settled(Apart).await;
        let etag = lab
            .read("Employees", "Sales", "1")
            .await
            .unwrap()
            .etag
            .to_string();
        unheard(&lab, None);
        lab.deliver_until_done(&on(archive_name, &[("if_match", &etag)]))
            .await;
        lives(
            &lab,
            &format!("if_match, to {archive_name}, and a deletion whose answer is lost"),
        )
        .await;

        // A client updates the entity during the job, and all answers arrive. The entity then has another version than
        // the job has read.
        let operations = settled(Apart)
            .await
            .operations_of(&on(archive_name, &[]))
            .await;
        for at in 1..=operations {
            let lab = settled(Apart).await;
            let etag = lab
                .read("Employees", "Sales", "1")
                .await
                .unwrap()
                .etag
                .to_string();
            let other = lab.of_another_worker();
            lab.faults.arm(at, Disturbance::Meddle);
            lab.faults
                .meddle(Box::pin(async move { anew(&other).await }));
            lab.deliver_until_done(&on(archive_name, &[("if_match", &etag)]))
                .await;
            lives(
                &lab,
                &format!("if_match, to {archive_name}, and an update before operation {at}"),
            )
            .await;
        }
    }
}

#[tokio::test]
async fn a_copy_of_a_version_that_is_gone_is_taken_back() {
    let mut skipped = 0;
    for archive_name in ["former", FILE_ARCHIVE] {
        for at in 1..=bare().await.operations_of(&on(archive_name, &[])).await {
            let lab = bare().await;
            let etag = lab.read("Employees", "Sales", "1").await.unwrap().etag;
            let other = lab.of_another_worker();
            lab.faults.arm(at, Disturbance::Meddle);
            lab.faults
                .meddle(Box::pin(async move { anew(&other).await }));
            let ended = lab
                .deliver(&on(archive_name, &[("if_match", etag.as_str())]), 1)
                .await;
            let story = format!(
                "if_match, to {archive_name}, and an update before operation {at}: {ended:?}"
            );
            let wanted = match ended {
                Some(Ok(Outcome::Skipped { .. })) => None,
                Some(Ok(Outcome::Done(_))) => Some("first@contoso.com"),
                _ => panic!("{story}"),
            };
            skipped += usize::from(wanted.is_none());
            lives(&lab, &story).await;
            assert_eq!(
                former(&lab, archive_name).await.as_deref(),
                wanted,
                "{story}"
            );
        }
    }
    assert!(skipped > 4, "only {skipped} runs met an update");
}

/// The first delivery stops before its pass, with its write of the primary in flight. The second delivery is done, and
/// then the late write arrives.
#[tokio::test]
async fn late_writes_of_an_earlier_put_delivery_are_followed() {
    let lab = Lab::new();
    let put = job(
        &json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "1", "Email": "new@contoso.com", "LastName": "King"}}),
    );
    lab.deliver(&put, 2).await.unwrap().unwrap();
    // A client changes the entity and sends a sync. The next write stands for the late write of the first delivery.
    lab.write(employee("1", "another@contoso.com", "King"))
        .await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab.write(employee("1", "new@contoso.com", "King")).await;
    lab.finish().await;
    let plan = lab
        .engine
        .plan(&Primary {
            table: table("Employees"),
            key: EntityKey::new("Sales", "1").unwrap(),
        })
        .await
        .unwrap();
    assert!(plan.in_step, "{plan}");
}

/// The first delivery has copied the entity, has sent its delete, and has stopped. The delete arrives during the second
/// delivery, which finds the copy. The second delivery's own delete certainly fails, but the earlier delete may have
/// succeeded. So the second delivery must not treat the copy as its own, and must not overwrite it.
#[tokio::test]
async fn a_copy_of_an_earlier_delivery_is_not_written_over_with_who_was_created_since() {
    for job in [archive(&[]), move_away()] {
        let operations = bare().await.operations_of(&job).await;
        let mut created = 0;
        for at in 1..=operations {
            for then in 1..=operations {
                let lab = bare().await;
                if !stops_amid_its_deletion(&lab, &job, at).await {
                    continue;
                }
                let was_there = late_deletion(&lab, then);
                lab.deliver(&job, 2).await;
                lab.deliver_until_done(&job).await;
                lab.faults.calm();
                if was_there.load(Ordering::SeqCst) {
                    created += 1;
                    lives(
                        &lab,
                        &format!(
                            "{job:?}, a late deletion before operation {then} of the next delivery"
                        ),
                    )
                    .await;
                }
            }
        }
        assert!(created > 2, "recreated only {created} times");
    }
}

/// Two jobs archive the same version. The second job has overwritten the copy of the first when the delete of the first
/// arrives. An entity that is created after that must not overwrite the archived copy.
#[tokio::test]
async fn a_copy_over_another_jobs_copy_protects_both_from_overwriting() {
    for to in ["former", FILE_ARCHIVE] {
        let job = on(to, &[]);
        let operations = settled(Apart).await.operations_of(&job).await;
        let mut created = 0;
        for at in 1..=operations {
            for then in 1..=2 * operations {
                let lab = bare().await;
                if !stops_amid_its_deletion(&lab, &job, at).await {
                    continue;
                }
                lab.wait(Duration::from_mins(1));
                let late = late_deletion(&lab, then);
                lab.work(&job).await.unwrap();
                lab.faults.calm();
                if late.load(Ordering::SeqCst) {
                    created += 1;
                    assert_eq!(
                        former(&lab, to).await.as_deref(),
                        Some("first@contoso.com"),
                        "{to}, a late deletion before operation {then}"
                    );
                }
            }
        }
        assert!(created > 2, "recreated only {created} times");
    }
}

/// A sender may repeat `Put Message`. The duplicate is delivered for the first time long after the job is done.
#[tokio::test]
async fn a_duplicate_message_does_not_delete_a_newer_entity() {
    for id in [None, Some("leaver-4711")] {
        for (op, wait) in [
            ("delete", 60),
            ("archive", 60),
            ("move", 60),
            ("archive", 1),
            ("move", 1),
        ] {
            // The clocks cannot order events that are only seconds apart. Then only the job id reveals the duplicate.
            if wait < 60 && id.is_none() {
                continue;
            }
            let mut job = match op {
                "delete" => json!({"op": op, "table": "Employees", "pk": "Sales", "rk": "1"}),
                "archive" => json!({"op": op, "archive": "former", "pk": "Sales", "rk": "1"}),
                _ => {
                    json!({"op": op, "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": "Ops", "to_rk": "1"})
                }
            };
            if let Some(id) = id {
                job["id"] = json!(id);
            }
            let story = format!("{op} sent twice, id {id:?}, and created anew {wait} s later");
            let lab = Lab::with(SMALL, Apart.catalog());
            lab.write(first()).await;
            lab.work(&sync("Sales", "1")).await.unwrap();
            let (one, double) = (lab.message(&job), lab.message(&job));
            assert!(
                matches!(lab.run(&one).await, Ok(Outcome::Done(_))),
                "{story}"
            );
            lab.wait(Duration::from_secs(wait));
            lab.write(employee("1", "anew@contoso.com", "Anew")).await;
            match lab.run(&double).await {
                Ok(Outcome::Skipped { .. }) => {}
                Err(failure)
                    if op == "move"
                        && id.is_none()
                        && failure.chain().contains("was not moved there by this job") => {}
                ended => panic!("{story}: {ended:?}"),
            }
            lives(&lab, &story).await;
            if op != "delete" {
                let (table, pk) = if op == "archive" {
                    ("FormerEmployees", "Sales")
                } else {
                    ("Employees", "Ops")
                };
                assert_eq!(
                    email(&lab, table, pk).await.as_deref(),
                    Some("first@contoso.com"),
                    "{story}"
                );
            }
        }
    }
}

/// A write just before the job was sent must be included in the job, although the clock of the queue service is some
/// seconds behind.
#[tokio::test]
async fn a_first_delivery_does_its_job_even_if_the_clocks_differ() {
    let delete = json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"});
    for behind in [0, 1, 9] {
        let lab = Lab::of(SMALL);
        lab.write(first()).await;
        lab.work(&sync("Sales", "1")).await.unwrap();
        let mut message = lab.message(&delete);
        message.1.stamp.enqueued -= jiff::SignedDuration::from_secs(behind);
        assert!(
            matches!(lab.run(&message).await, Ok(Outcome::Done(_))),
            "{behind} s behind"
        );
        assert!(
            lab.read("Employees", "Sales", "1").await.is_none(),
            "{behind} s behind"
        );
    }
}

/// Queues do not keep order. A put that was sent before a delete may run long after the delete was sent.
#[tokio::test]
async fn a_delete_deletes_what_an_older_put_has_written_late_and_leaves_what_a_later_one_wrote() {
    let entity = json!({"PartitionKey": "Sales", "RowKey": "1", "Email": "anew@contoso.com", "FirstName": "Ada", "LastName": "King"});
    let put = json!({"op": "put", "table": "Employees", "entity": entity});
    let delete = json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"});
    for put_is_older in [true, false] {
        let lab = Lab::of(SMALL);
        let (earlier, later) = if put_is_older {
            (&put, &delete)
        } else {
            (&delete, &put)
        };
        let earlier = lab.message(earlier);
        lab.wait(Duration::from_secs(2));
        let later = lab.message(later);
        let (put, mut delete) = if put_is_older {
            (earlier, later)
        } else {
            (later, earlier)
        };
        lab.wait(Duration::from_hours(1));
        lab.run(&put).await.unwrap();
        for deliveries in [1, 2] {
            delete.1.dequeue_count = deliveries;
            lab.run(&delete).await.unwrap();
            assert_eq!(
                lab.read("Employees", "Sales", "1").await.is_none(),
                put_is_older,
                "delivery {deliveries}"
            );
        }
        lab.finish().await;
        oracle::check(&lab, "a put and a delete").await;
    }
}

async fn archived(lab: &Lab, archive: &str) -> Option<String> {
    let entity = match archive {
        BLOB_ARCHIVE | FILE_ARCHIVE => lab.document("1").await,
        _ => lab
            .read("FormerEmployees", "Sales", "1")
            .await
            .map(|row| row.entity),
    };
    entity.and_then(|entity| entity.text("Email").map(str::to_owned))
}

fn put(email: &str) -> serde_json::Value {
    let entity = json!({"PartitionKey": "Sales", "RowKey": "1", "Email": email, "FirstName": "Ada", "LastName": "King"});
    json!({"op": "put", "table": "Employees", "entity": entity})
}

/// Two archive jobs have the same key. The first archives one version, which is then restored, and the second archives
/// the next version. Then the first job is delivered again. The archive no longer names the first job. The times cannot
/// show that the job is done either, because the present content was written by a put that was sent before both jobs.
#[tokio::test]
async fn a_redelivered_archive_job_does_not_overwrite_a_newer_archived_version() {
    for archive in ["former", BLOB_ARCHIVE, FILE_ARCHIVE] {
        for (earlier, ahead) in [(0, 0), (30, 0), (3_600, 0), (0, 90), (30, 90)] {
            let story = format!(
                "to {archive}, the other job enqueued {earlier} s earlier, queues {ahead} s ahead"
            );
            let lab = services_apart((ahead, 0)).await;
            let sent = |job: serde_json::Value| {
                let (job, mut delivery) = lab.message(&job);
                delivery.stamp.enqueued += jiff::SignedDuration::from_secs(ahead);
                (job, delivery)
            };
            let (second, third) = (
                sent(put("second@contoso.com")),
                sent(put("anew@contoso.com")),
            );
            lab.wait(Duration::from_secs(3_610));
            let mut other =
                sent(json!({"op": "archive", "archive": archive, "pk": "Sales", "rk": "1"}));
            other.1.stamp.enqueued -= jiff::SignedDuration::from_secs(earlier);
            let mut one = lab
                .queued(&json!({"op": "archive", "archive": archive, "pk": "Sales", "rk": "1"}))
                .await;
            lab.wait(Duration::from_mins(1));

            assert!(
                matches!(lab.run(&one).await, Ok(Outcome::Done(_))),
                "{story}"
            );
            let restore =
                sent(json!({"op": "restore", "archive": archive, "pk": "Sales", "rk": "1"}));
            assert!(
                matches!(lab.run(&restore).await, Ok(Outcome::Done(_))),
                "{story}"
            );
            lab.run(&second).await.unwrap();
            assert!(
                matches!(lab.run(&other).await, Ok(Outcome::Done(_))),
                "{story}"
            );
            lab.wait(Duration::from_mins(1));
            lab.run(&third).await.unwrap();

            one.1.dequeue_count = 2;
            let ended = lab.run(&one).await;
            assert!(
                matches!(ended, Ok(Outcome::Skipped { .. })),
                "{story}: {ended:?}"
            );
            assert_eq!(
                archived(&lab, archive).await.as_deref(),
                Some("second@contoso.com"),
                "{story}: the archived entity was overwritten"
            );
            lives(&lab, &story).await;
        }
    }
}

/// The first delivery of an archive job has read one version, and is delayed at some operation. Meanwhile an archive
/// job that was sent earlier archives the next version.
#[tokio::test]
async fn a_delayed_archive_job_does_not_overwrite_a_newer_archived_version() {
    for (archive, restored) in [
        ("former", false),
        (BLOB_ARCHIVE, false),
        (FILE_ARCHIVE, false),
        ("former", true),
        (BLOB_ARCHIVE, true),
        (FILE_ARCHIVE, true),
    ] {
        let mut at = 0;
        loop {
            at += 1;
            let story =
                format!("to {archive}, held up at operation {at}, archived before: {restored}");
            let lab = settled(Apart).await;
            let message = json!({"op": "archive", "archive": archive, "pk": "Sales", "rk": "1"});
            if restored {
                lab.run(&lab.message(&message)).await.unwrap();
                lab.wait(Duration::from_hours(1));
                lab.run(&lab.message(&put("first@contoso.com")))
                    .await
                    .unwrap();
                lab.wait(Duration::from_hours(1));
            }
            let other = lab.message(&message);
            lab.wait(Duration::from_mins(30));
            let (one, second) = (
                lab.message(&message),
                lab.message(&put("second@contoso.com")),
            );
            let meddler = lab.of_another_worker();
            lab.faults.arm(at, Disturbance::Meddle);
            lab.faults.meddle(Box::pin(async move {
                meddler.wait(Duration::from_secs(5));
                meddler.run(&second).await.unwrap();
                meddler.run(&other).await.unwrap();
            }));
            let ended = lab.run(&one).await;
            let operations = lab.faults.counted();
            lab.faults.calm();
            if let Err(failure) = ended {
                assert!(
                    matches!(failure.class, FailureClass::Transient { .. }),
                    "{story}: {failure:?}"
                );
            }
            let there = email(&lab, "Employees", "Sales").await;
            let kept = archived(&lab, archive).await;
            if at > operations {
                break;
            }
            assert!(
                [&there, &kept]
                    .into_iter()
                    .flatten()
                    .any(|email| email == "second@contoso.com"),
                "{story}: {there:?} in the table, {kept:?} in the archive"
            );
        }
        assert!(at > 3, "{archive}: {at}");
    }
}

/// Before some read of the redelivery, the first delivery runs to its end. The redelivery must recognize that its own job
/// is done.
#[tokio::test]
async fn a_redelivered_archive_job_recognizes_its_running_first_delivery() {
    for archive in ["former", BLOB_ARCHIVE, FILE_ARCHIVE] {
        for at in 1..8 {
            let lab = settled(Apart).await;
            let one = lab
                .message(&json!({"op": "archive", "archive": archive, "pk": "Sales", "rk": "1"}));
            let mut again = one.clone();
            again.1.dequeue_count = 2;
            let first = lab.of_another_worker();
            lab.faults.arm(at, Disturbance::Meddle);
            lab.faults.meddle(Box::pin(async move {
                first.run(&one).await.unwrap();
            }));
            let ended = lab.run(&again).await;
            assert!(
                matches!(ended, Ok(Outcome::Done(_))),
                "to {archive}, at operation {at}: {ended:?}"
            );
            assert_eq!(
                archived(&lab, archive).await.as_deref(),
                Some("first@contoso.com"),
                "to {archive}, at operation {at}"
            );
        }
    }
}

/// Another job archived the entity in the same second, and the entity was restored since. This job must not archive the
/// entity again.
#[tokio::test]
async fn a_redelivered_archive_job_leaves_an_entity_restored_from_another_job() {
    let lab = Lab::with(SMALL, Apart.catalog());
    lab.write(employee("1", "anew@contoso.com", "Anew")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    let archive = json!({"op": "archive", "archive": "former", "pk": "Sales", "rk": "1"});
    let (mut one, mut other) = (lab.message(&archive), lab.message(&archive));
    for (_, delivery) in [&mut one, &mut other] {
        delivery.stamp.enqueued = delivery.stamp.enqueued.round(jiff::Unit::Minute).unwrap();
    }
    for job in [&one, &other] {
        assert!(matches!(lab.run(job).await, Ok(Outcome::Done(_))));
        lab.wait(Duration::from_mins(1));
        let restore =
            lab.message(&json!({"op": "restore", "archive": "former", "pk": "Sales", "rk": "1"}));
        assert!(matches!(lab.run(&restore).await, Ok(Outcome::Done(_))));
    }
    one.1.dequeue_count = 2;
    assert!(matches!(lab.run(&one).await, Ok(Outcome::Skipped { .. })));
    lives(&lab, "two archive jobs with the same enqueue time").await;
}

/// How far the clock of the queue service and the clock of the table service are ahead, in seconds.
const SERVICE_CLOCKS: [(i64, i64); 8] = [
    (0, 0),
    (3, 0),
    (12, 0),
    (90, 0),
    (51, -36),
    (0, -600),
    (-60, 0),
    (-30, 60),
];

async fn services_apart((queues, tables): (i64, i64)) -> Lab {
    let lab = Lab::with(SMALL, Apart.catalog());
    let seconds = jiff::SignedDuration::from_secs;
    lab.sim.set_service_clocks(seconds(queues), seconds(tables));
    // The times of the table service rise with every write, so there must be a write.
    lab.wait(Duration::from_hours(1));
    lab.write(first()).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab
}

/// Redelivers a message until it is done or fails permanently. Between deliveries, other requests show the services'
/// clocks to the worker.
async fn delivered_again(lab: &Lab, message: &mut (Job, Delivery)) -> Result<Outcome, Failure> {
    loop {
        message.1.dequeue_count += 1;
        match lab.run(message).await {
            Err(failure) if matches!(failure.class, FailureClass::Transient { .. }) => {}
            ended => return ended,
        }
        for _ in 0..10 {
            lab.wait(Duration::from_millis(170));
            lab.queued(&json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "2"}))
                .await;
            lab.read("Employees", "Sales", "2").await;
        }
    }
}

/// A redelivery does not know whether an earlier delivery has done the job. The clocks of the services decide.
#[tokio::test]
async fn a_redelivery_leaves_newer_entities_despite_different_clocks() {
    let archive = json!({"op": "archive", "archive": LOG_ARCHIVE, "pk": "Sales", "rk": "1"});
    let delete = json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"});
    for clocks in SERVICE_CLOCKS {
        for job in [&delete, &archive] {
            let story =
                format!("{job} of an employee created anew, queues and tables {clocks:?} s off");
            let lab = services_apart(clocks).await;
            lab.wait(Duration::from_mins(1));
            let mut message = lab.queued(job).await;
            assert!(
                matches!(lab.run(&message).await, Ok(Outcome::Done(_))),
                "{story}"
            );
            lab.wait(Duration::from_secs(1));
            lab.write(employee("1", "anew@contoso.com", "Anew")).await;
            let ended = delivered_again(&lab, &mut message).await;
            assert!(
                matches!(ended, Ok(Outcome::Skipped { .. })),
                "{story}: {ended:?}"
            );
            lives(&lab, &story).await;
        }
    }
}

/// A job must include every write that was made before the job was sent. A redelivery can determine these times only to
/// about a second, so in that case the write and the job are three seconds apart.
#[tokio::test]
async fn a_job_is_done_however_far_the_services_clocks_differ() {
    let delete = json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"});
    for clocks in SERVICE_CLOCKS {
        for (deliveries, before) in [(1, 0), (2, 3)] {
            let lab = services_apart(clocks).await;
            lab.wait(Duration::from_secs(before));
            let mut message = lab.queued(&delete).await;
            message.1.dequeue_count = deliveries;
            let ended = lab.run(&message).await;
            assert!(
                matches!(ended, Ok(Outcome::Done(_))),
                "delivery {deliveries}, {clocks:?}: {ended:?}"
            );
            assert!(lab.read("Employees", "Sales", "1").await.is_none());
        }
    }
}

/// A worker that has just started has seen few answers. It retries the job until it knows the clocks better, and then
/// does the job.
#[tokio::test]
async fn a_redelivery_to_a_new_worker_does_its_job() {
    let delete = json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"});
    for clocks in SERVICE_CLOCKS {
        let lab = services_apart(clocks).await;
        // The write and the message are less than a second apart. The next worker has seen too few answers to know
        // which of them came first.
        lab.wait(Duration::from_millis(300));
        lab.write(first()).await;
        let mut message = lab.queued(&delete).await;
        lab.wait(Duration::from_millis(800));
        let lab = lab.of_a_new_worker();
        lab.queued(&delete).await;
        let ended = delivered_again(&lab, &mut message).await;
        assert!(
            matches!(ended, Ok(Outcome::Done(_))),
            "{clocks:?}: {ended:?}"
        );
        assert!(
            (3..6).contains(&message.1.dequeue_count),
            "{clocks:?}: {} deliveries",
            message.1.dequeue_count
        );
        assert!(lab.read("Employees", "Sales", "1").await.is_none());
    }
}

/// A client changes the copy and the original between any two requests of the move.
#[tokio::test]
async fn a_move_does_not_overwrite_a_changed_destination() {
    let mut met = 0;
    for at in 1..=bare().await.operations_of(&move_away()).await {
        let lab = bare().await;
        let (other, changed) = (lab.of_another_worker(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&changed);
        lab.faults.arm(at, Disturbance::Meddle);
        lab.faults.meddle(Box::pin(async move {
            let (gone, arrived) = (
                other.read("Employees", "Sales", "1").await,
                other.read("Employees", "Ops", "1").await,
            );
            if let (Some(_), Some(arrived)) = (gone, arrived) {
                other.write(arrived.entity.with("Nick", "Addie")).await;
                other.write(employee("1", "anew@contoso.com", "Anew")).await;
                told.store(true, Ordering::SeqCst);
            }
        }));
        let ended = lab.deliver(&move_away(), 1).await;
        if !changed.load(Ordering::SeqCst) {
            continue;
        }
        met += 1;
        let story = format!("before operation {at}: {ended:?}");
        let arrived = lab.read("Employees", "Ops", "1").await.unwrap().entity;
        assert_eq!(arrived.text("Nick"), Some("Addie"), "{story}");
        assert_eq!(
            email(&lab, "Employees", "Sales").await.as_deref(),
            Some("anew@contoso.com"),
            "{story}"
        );
        assert!(
            ended.is_some_and(
                |ended| ended.is_err_and(|failure| failure.class == FailureClass::Permanent)
            ),
            "{story}"
        );
    }
    assert!(met > 0, "some change must arrive in time");
}

/// A put was sent before a delete, but runs after the delete was sent. In some runs a client then merges into the
/// entity that the put has written. The delete runs last.
#[tokio::test]
async fn a_delete_leaves_what_a_client_merged_into_an_older_puts_entity() {
    let entity = json!({"PartitionKey": "Sales", "RowKey": "1", "Email": "anew@contoso.com", "FirstName": "Ada", "LastName": "King"});
    let put = json!({"op": "put", "table": "Employees", "entity": entity});
    let delete = json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"});
    let log = json!({"op": "archive", "archive": LOG_ARCHIVE, "pk": "Sales", "rk": "1"});
    for job in [&delete, &log] {
        for merged in [false, true] {
            let lab = bare().await;
            let put = lab.message(&put);
            lab.wait(Duration::from_secs(2));
            let mut leaver = lab.message(job);
            lab.wait(Duration::from_hours(1));
            lab.run(&put).await.unwrap();
            if merged {
                let merge = TableOperation::InsertOrMerge(
                    Entity::new(EntityKey::new("Sales", "1").unwrap()).with("Nick", "Addie"),
                );
                lab.account
                    .tables
                    .apply(&table("Employees"), &merge)
                    .await
                    .unwrap();
            }
            for deliveries in [1, 2] {
                leaver.1.dequeue_count = deliveries;
                lab.run(&leaver).await.unwrap();
                let left = lab.read("Employees", "Sales", "1").await;
                assert_eq!(
                    left.is_some(),
                    merged,
                    "{job}, merged: {merged}, delivery {deliveries}"
                );
            }
        }
    }
}

/// The first delivery has copied the entity, but has not deleted it. Then a client changes both the copy and the
/// original, and the next delivery comes.
#[tokio::test]
async fn a_redelivered_move_does_not_overwrite_a_changed_destination() {
    let mut met = 0;
    for at in 1..=bare().await.operations_of(&move_away()).await {
        let lab = bare().await;
        lab.faults.arm(at, Disturbance::Throttle);
        let ended = lab.deliver(&move_away(), 1).await;
        let (gone, arrived) = (
            lab.read("Employees", "Sales", "1").await,
            lab.read("Employees", "Ops", "1").await,
        );
        let (Some(_), Some(arrived)) = (gone, arrived) else {
            continue;
        };
        met += 1;
        let merge = TableOperation::InsertOrMerge(
            Entity::new(arrived.entity.key.clone()).with("Nick", "Addie"),
        );
        lab.account
            .tables
            .apply(&table("Employees"), &merge)
            .await
            .unwrap();
        lab.write(employee("1", "anew@contoso.com", "Anew")).await;
        let story = format!(
            "operation {at} fails: {ended:?}, then {:?}",
            lab.deliver(&move_away(), 2).await
        );
        let arrived = lab.read("Employees", "Ops", "1").await.unwrap().entity;
        assert_eq!(arrived.text("Nick"), Some("Addie"), "{story}");
        assert_eq!(
            email(&lab, "Employees", "Sales").await.as_deref(),
            Some("anew@contoso.com"),
            "{story}"
        );
    }
    assert!(met > 0, "some delivery must not delete");
}
