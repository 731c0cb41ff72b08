//! Rechecks of one primary that race with each other.

use std::collections::BTreeSet;

use evenkeel_account::company::{Shape, catalog};
use evenkeel_engine::footprint::FOOTPRINTS;
use evenkeel_engine::{Execute as _, Failure, FailureClass, Recheck, Work};
use evenkeel_model::item::Owner;
use evenkeel_model::job::Primary;
use evenkeel_model::{AccountName, EntityKey, ItemAddress, Job, ViewName, odata};
use futures::future::join_all;
use serde_json::json;

use crate::protocol::oracle;
use crate::protocol::world::{
    Disturbance, Lab, SHAPE, SMALL, employee, job, recheck_queue, sync, table,
};

const WORKERS: usize = 7;
const EACH: usize = 3;

fn put(email: &str) -> Job {
    job(
        &json!({"op": "put", "table": "Employees", "entity": odata::encode(&employee("1", email, "Lovelace"))}),
    )
}

fn recheck() -> Recheck {
    let (key, former) = (
        EntityKey::new("Sales", "1").unwrap(),
        EntityKey::new("email_Sales", "ada@contoso.com").unwrap(),
    );
    let item = ItemAddress::row(
        ViewName::new("by_email").unwrap(),
        AccountName::main(),
        table("ByEmail"),
        former,
    );
    Recheck {
        primary: Primary {
            table: table("Employees"),
            key,
        },
        items: vec![item],
        chained: 0,
        taken_keys: None,
    }
}

async fn look(lab: &Lab, recheck: &Recheck) {
    let mut delivery = lab.delivery();
    let work = Work::Recheck(recheck.clone());
    while let Err(Failure { class, step, .. }) = lab.engine.execute(&work, &delivery).await {
        assert!(
            matches!(class, FailureClass::Transient { .. }) && delivery.dequeue_count < 100,
            "{step}"
        );
        delivery.dequeue_count += 1;
    }
}

/// A pass has stopped with its announcement open, and several workers recheck its primary at once. A run that finds the
/// announcement of another run queues a recheck. The number of rechecks must not grow, or they would never end.
#[tokio::test(start_paused = true)]
async fn rechecks_that_race_for_a_primary_leave_no_more_of_them_than_there_were() {
    let operations = {
        let lab = Lab::of(SHAPE);
        lab.work(&put("ada@contoso.com")).await.unwrap();
        lab.operations_of(&put("countess@contoso.com")).await
    };
    let mut queued = 0;
    for at in 1..=operations {
        let lab = Lab::of(SHAPE);
        lab.work(&put("ada@contoso.com")).await.unwrap();
        lab.faults.arm(at, Disturbance::Crash);
        assert!(
            lab.deliver(&put("countess@contoso.com"), 1).await.is_none(),
            "no crash at operation {at}"
        );
        lab.faults.calm();
        let before = lab.rechecks().await.len();
        lab.faults.take_time();
        let recheck = recheck();
        let workers: [Lab; WORKERS] = std::array::from_fn(|_| lab.of_a_racing_worker());
        join_all(workers.iter().map(async |lab| {
            for _ in 0..EACH {
                look(lab, &recheck).await;
            }
        }))
        .await;
        let after = lab.rechecks().await.len() - before;
        assert!(
            after <= EACH * WORKERS,
            "{after} rechecks instead of {}, stopped at operation {at}",
            EACH * WORKERS
        );
        queued += after;
        lab.finish().await;
        oracle::check(
            &lab,
            &format!("rechecks that race, after a stop at operation {at}"),
        )
        .await;
    }
    assert!(queued > 0, "some rechecks must race");
}

/// Many employees are deleted at once. Rechecks that are queued at the same time share a message.
#[tokio::test(start_paused = true)]
async fn rechecks_of_all_who_leave_together_share_messages() {
    let everybody: Vec<String> = (100..250).map(|number| number.to_string()).collect();
    let lab = Lab::of(SMALL);
    for rk in &everybody {
        lab.write(employee(
            rk,
            &format!("{rk}@contoso.com"),
            &format!("King{rk}"),
        ))
        .await;
        lab.work(&sync("Sales", rk)).await.unwrap();
    }
    lab.faults.take_time();
    let deletes = everybody
        .iter()
        .map(|rk| job(&json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": rk})));
    assert!(
        join_all(deletes.map(async |delete| lab.work(&delete).await.is_ok()))
            .await
            .iter()
            .all(|done| *done)
    );
    let queued = lab.sim.messages(&recheck_queue());
    let lists: Vec<Vec<Recheck>> = queued
        .iter()
        .map(|message| Recheck::decode_all(&message.text).unwrap())
        .collect();
    assert!(
        (2..=4).contains(&lists.len()) && lists.iter().all(|list| list.len() <= 100),
        "{} messages",
        lists.len()
    );
    let leavers: BTreeSet<&str> = lists
        .iter()
        .flatten()
        .map(|recheck| recheck.primary.key.rk.as_str())
        .collect();
    assert_eq!(
        (lists.concat().len(), leavers.len()),
        (150, 150),
        "each must be rechecked once"
    );
    lab.finish().await;
    assert!(
        lab.rows(FOOTPRINTS).await.is_empty(),
        "no footprint may be left"
    );
}

/// If another worker was faster, the recheck leaves the primary to that worker, and queues another recheck.
#[tokio::test]
async fn a_recheck_that_gives_way_leaves_nothing_undone() {
    let recheck = recheck();
    let (mut gave_way, mut at) = (0, 0);
    loop {
        at += 1;
        let lab = Lab::of(SHAPE);
        lab.work(&put("ada@contoso.com")).await.unwrap();
        lab.faults.arm(5, Disturbance::Crash);
        assert!(lab.deliver(&put("countess@contoso.com"), 1).await.is_none());
        lab.faults.calm();
        let before = lab.rechecks().await.len();
        lab.faults.arm(at, Disturbance::Meddle);
        let other = lab.of_another_worker();
        lab.faults.meddle(Box::pin(async move {
            drop(other.work(&put("again@contoso.com")).await);
        }));
        lab.engine
            .execute(&Work::Recheck(recheck.clone()), &lab.delivery())
            .await
            .unwrap();
        let disturbed = lab.faults.counted() >= at;
        lab.faults.calm();
        gave_way += usize::from(lab.rechecks().await.len() > before);
        lab.finish().await;
        oracle::check(
            &lab,
            &format!("a recheck and another worker before operation {at}"),
        )
        .await;
        if !disturbed {
            break;
        }
    }
    assert!(gave_way > 0, "the recheck must give way in some run");
}

/// A recheck stops when another pass is faster. That pass may have read the footprint before the recheck wrote, so the
/// recheck must check its own changes again.
#[tokio::test]
async fn a_recheck_that_has_changed_something_leaves_it_to_no_later_one() {
    changed_by_a_recheck(SMALL, &[]).await;
}

/// A recheck must also check its changes again if it took over another primary's item.
#[tokio::test]
async fn a_recheck_that_has_taken_a_key_over_leaves_it_to_no_later_one() {
    changed_by_a_recheck(
        Shape {
            last_writer: true,
            ..SMALL
        },
        &["2"],
    )
    .await;
}

/// Another worker runs before each operation of a recheck. `holders` are employees that have had the address of the job
/// before.
async fn changed_by_a_recheck(shape: Shape, holders: &[&str]) {
    let (recheck, countess) = (recheck(), put("countess@contoso.com"));
    // Keeps only the view in another partition. An item in the employee's own partition would be written in the same
    // transaction, and would fail if the employee changed.
    let prepared = async || {
        let mut catalog = catalog(shape);
        catalog.views.retain(|name, _| name.as_str() == "by_email");
        let lab = Lab::with(shape, catalog);
        lab.work(&put("ada@contoso.com")).await.unwrap();
        for holder in holders {
            lab.write(employee(holder, "countess@contoso.com", "King"))
                .await;
            lab.work(&sync("Sales", holder)).await.unwrap();
        }
        lab
    };
    let (operations, mut changes) = (prepared().await.operations_of(&countess).await, 0);
    for stopped in 1..=operations {
        let (mut disturbed, mut at) = (true, 0);
        while disturbed {
            at += 1;
            let lab = prepared().await;
            lab.faults.arm(stopped, Disturbance::Crash);
            assert!(lab.deliver(&countess, 1).await.is_none());
            lab.faults.arm(at, Disturbance::Meddle);
            let other = lab.of_another_worker();
            lab.faults.meddle(Box::pin(async move {
                drop(other.work(&put("again@contoso.com")).await);
            }));
            let ended = lab
                .engine
                .execute(&Work::Recheck(recheck.clone()), &lab.delivery())
                .await
                .unwrap();
            disturbed = lab.faults.counted() >= at;
            changes += usize::from(disturbed && ended.summary().changed() > 0);
            lab.faults.calm();
            lab.do_queued().await;
            let rows = lab.rows("ByEmail").await.into_iter();
            let derived = rows.map(|row| {
                (
                    row.entity.key.rk.to_string(),
                    Owner::of(&row.entity).unwrap().primary.key.rk.to_string(),
                )
            });
            let employees = lab.rows("Employees").await.into_iter();
            let wanted = employees.filter_map(|row| {
                Some((
                    row.entity.text("Email")?.to_owned(),
                    row.entity.key.rk.to_string(),
                ))
            });
            let (derived, wanted): (BTreeSet<_>, BTreeSet<_>) =
                (derived.collect(), wanted.collect());
            let addresses = |of: &BTreeSet<(String, String)>| {
                of.iter()
                    .map(|(email, _)| email.clone())
                    .collect::<BTreeSet<_>>()
            };
            let story = format!(
                "stopped at operation {stopped}, and another worker before {at} of the recheck"
            );
            assert!(
                derived.is_subset(&wanted),
                "{story}: {derived:?}, expected {wanted:?}"
            );
            assert_eq!(addresses(&derived), addresses(&wanted), "{story}");
        }
    }
    assert!(changes > 5, "only {changes} rechecks changed anything");
}
