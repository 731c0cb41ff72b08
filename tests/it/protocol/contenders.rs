//! Keys that several primaries want: when the holder gives up the key, a contender takes it.

use std::time::Duration;

use evenkeel_account::company::Shape;
use evenkeel_engine::footprint::FOOTPRINTS;
use evenkeel_engine::{Execute as _, FailureClass, Recheck, Work};
use evenkeel_model::item::Owner;
use evenkeel_model::job::Primary;
use evenkeel_model::{Entity, EntityKey, Job, QueueName};
use evenkeel_storage::{IfMatch, MessageText, TableOperation};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;

use crate::protocol::oracle;
use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SHAPE, SMALL, employee, job, jobs_of, sync, table};

const LAST: Shape = Shape {
    last_writer: true,
    ..SMALL
};
const WANTED: &str = "info@contoso.com";

async fn comes(lab: &Lab, rk: &str) {
    lab.write(employee(rk, WANTED, "King")).await;
    drop(lab.work(&sync("Sales", rk)).await);
}

async fn holder(lab: &Lab) -> Option<String> {
    let row = lab.read("ByEmail", "email_Sales", WANTED).await?;
    let [_, _, rk]: [String; 3] = serde_json::from_str(row.entity.text("ek_source")?).unwrap();
    Some(rk)
}

/// Two employees want one address. Returns the holder and the contender.
async fn contested(shape: Shape) -> (Lab, &'static str, &'static str) {
    let lab = Lab::of(shape);
    comes(&lab, "1").await;
    comes(&lab, "2").await;
    let (has, wants) = if shape.last_writer {
        ("2", "1")
    } else {
        ("1", "2")
    };
    assert_eq!(holder(&lab).await.as_deref(), Some(has));
    (lab, has, wants)
}

async fn do_queued(lab: &Lab) {
    let queue = QueueName::new("jobs").unwrap();
    for _ in 0..100 {
        let messages = lab
            .account
            .queues
            .get(&queue, 32, Duration::from_mins(1))
            .await
            .unwrap();
        if messages.is_empty() {
            return;
        }
        for message in messages {
            let MessageText::Readable(text) = &message.text else {
                panic!("job cannot be decoded")
            };
            for queued in jobs_of(text) {
                if let Err(failure) = lab.work(&queued).await {
                    assert_eq!(
                        failure.class,
                        FailureClass::Permanent,
                        "{queued:?}: {}",
                        failure.chain()
                    );
                }
            }
            lab.account
                .queues
                .delete(&queue, &message.id, &message.pop_receipt)
                .await
                .unwrap();
        }
    }
    panic!("the syncs of contenders do not end");
}

async fn in_step(lab: &Lab, rk: &str) -> bool {
    let primary = Primary {
        table: table("Employees"),
        key: EntityKey::new("Sales", rk).unwrap(),
    };
    lab.engine.plan(&primary).await.unwrap().in_step
}

#[tokio::test]
async fn items_of_other_views_that_a_refused_job_has_written_are_told() {
    let lab = Lab::of(SMALL);
    comes(&lab, "1").await;
    lab.write(employee("2", WANTED, "King")).await;
    let (refused, untold) = lab.work_untold(&sync("Sales", "2")).await;
    assert_eq!(refused.unwrap_err().class, FailureClass::Permanent);
    let has = |view: &str| untold.iter().any(|change| change.view.as_str() == view);
    assert_eq!(
        (has("by_last_name_near"), has("by_email")),
        (true, false),
        "{untold:?}"
    );
    lab.write(employee("2", "another@contoso.com", "King"))
        .await;
    let (done, untold) = lab.work_untold(&sync("Sales", "2")).await;
    assert!(
        !done.unwrap().summary().changes.is_empty() && untold.is_empty(),
        "an outcome must report these: {untold:?}"
    );
}

type Prepared = BoxFuture<'static, Job>;
type Way = (&'static str, fn(Lab, &'static str) -> Prepared);

/// Ways in which the holder gives up the address. Each has preparations, and returns the job to run.
const WAYS: [Way; 6] = [
    ("deleted by its application", |lab, rk| {
        async move {
            lab.remove("Sales", rk).await;
            sync("Sales", rk)
        }
        .boxed()
    }),
    ("given another address by its application", |lab, rk| {
        async move {
            lab.write(employee(rk, "another@contoso.com", "King")).await;
            sync("Sales", rk)
        }
        .boxed()
    }),
    ("given another address by a job", |_, rk| {
        let entity = json!({"PartitionKey": "Sales", "RowKey": rk, "Email": "another@contoso.com"});
        async move {
            job(&json!({"op": "put", "table": "Employees", "entity": entity, "mode": "merge"}))
        }
        .boxed()
    }),
    ("deleted by a job", |_, rk| {
        async move { job(&json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": rk})) }
            .boxed()
    }),
    ("archived", |_, rk| {
        async move { job(&json!({"op": "archive", "archive": "former", "pk": "Sales", "rk": rk})) }
            .boxed()
    }),
    ("moved to another department", |_, rk| {
        async move { job(&json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": rk, "to_pk": "Support", "to_rk": rk})) }.boxed()
    }),
];

#[tokio::test]
async fn a_key_that_is_given_up_goes_to_who_wants_it_whoever_was_first_and_however_it_is_given_up()
{
    for shape in [SMALL, LAST] {
        for (name, way) in WAYS {
            let (lab, has, wants) = contested(shape).await;
            let story = format!("the holder is {name}, last_writer: {}", shape.last_writer);
            let job = way(lab.clone(), has).await;
            lab.work(&job).await.unwrap();
            do_queued(&lab).await;
            assert_eq!(holder(&lab).await.as_deref(), Some(wants), "{story}");
            assert!(in_step(&lab, wants).await, "{story}");
            lab.finish().await;
            oracle::check(&lab, &story).await;
        }
    }
}

#[tokio::test]
async fn a_key_is_handed_on_whatever_disturbs_the_job_that_gives_it_up() {
    let mut runs = 0;
    for shape in [SMALL, LAST] {
        for (name, way) in [WAYS[0], WAYS[2]] {
            let (lab, has, _) = contested(shape).await;
            let mut sweep = Sweep::over(lab.operations_of(&way(lab.clone(), has).await).await);
            while let Some(case) = sweep.next() {
                let (lab, has, wants) = contested(shape).await;
                let job = way(lab.clone(), has).await;
                case.arm(&lab.faults);
                lab.deliver_until_done(&job).await;
                sweep.seen(&lab);
                lab.faults.calm();
                do_queued(&lab).await;
                lab.finish().await;
                do_queued(&lab).await;
                let story = format!(
                    "the holder is {name}, last_writer: {}, {case}",
                    shape.last_writer
                );
                assert_eq!(holder(&lab).await.as_deref(), Some(wants), "{story}");
                oracle::check(&lab, &story).await;
            }
            runs += sweep.runs().0;
        }
    }
    assert!(runs > 200, "only {runs} runs");
}

#[tokio::test]
async fn a_contender_is_remembered_whatever_disturbs_its_own_job() {
    for shape in [SMALL, LAST] {
        let arrived = async || {
            let lab = Lab::of(shape);
            comes(&lab, "1").await;
            lab.write(employee("2", WANTED, "King")).await;
            lab
        };
        let lab = arrived().await;
        lab.faults.arm(u64::MAX, Disturbance::Crash);
        drop(lab.deliver(&sync("Sales", "2"), 1).await);
        let mut sweep = Sweep::over(lab.faults.counted());
        while let Some(case) = sweep.next() {
            let lab = arrived().await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&sync("Sales", "2")).await;
            sweep.seen(&lab);
            lab.faults.calm();
            lab.finish().await;
            let story = format!("last_writer: {}, {case}", shape.last_writer);
            let has = holder(&lab)
                .await
                .unwrap_or_else(|| panic!("{story}: the address has no holder"));
            let wants = if has == "1" { "2" } else { "1" };
            lab.remove("Sales", &has).await;
            lab.work(&sync("Sales", &has)).await.unwrap();
            do_queued(&lab).await;
            assert_eq!(holder(&lab).await.as_deref(), Some(wants), "{story}");
            lab.finish().await;
            oracle::check(&lab, &story).await;
        }
    }
}

/// One worker runs its whole job before an operation of the other worker. The holder must notice the contender even if the contender's note is
/// written after the holder was read.
#[tokio::test]
async fn a_key_that_is_given_up_while_it_is_asked_for_is_not_forgotten() {
    for shape in [SMALL, LAST] {
        for asks_first in [true, false] {
            for at in 1.. {
                let lab = Lab::of(shape);
                comes(&lab, "1").await;
                lab.write(employee("2", WANTED, "King")).await;
                let (worker, other) = (lab.clone(), lab.of_another_worker());
                let gives_up = |lab: Lab| async move {
                    lab.write(employee("1", "another@contoso.com", "King"))
                        .await;
                    drop(lab.work(&sync("Sales", "1")).await);
                };
                let asks = |lab: Lab| async move { drop(lab.work(&sync("Sales", "2")).await) };
                lab.faults.arm(at, Disturbance::Meddle);
                if asks_first {
                    lab.faults.meddle(gives_up(other).boxed());
                    asks(worker).await;
                } else {
                    lab.faults.meddle(asks(other).boxed());
                    gives_up(worker).await;
                }
                let met = lab.faults.counted() >= at;
                lab.faults.calm();
                if !met {
                    break;
                }
                do_queued(&lab).await;
                let story = format!(
                    "last_writer: {}, asks first: {asks_first}, operation {at}",
                    shape.last_writer
                );
                assert_eq!(holder(&lab).await.as_deref(), Some("2"), "{story}");
                lab.finish().await;
                oracle::check(&lab, &story).await;
            }
        }
    }
}

#[tokio::test]
async fn of_several_who_want_a_key_each_has_it_in_the_end_when_all_others_are_gone() {
    for shape in [SMALL, LAST] {
        let lab = Lab::of(shape);
        for rk in ["1", "2", "3", "4"] {
            comes(&lab, rk).await;
        }
        for left in (1..=4).rev() {
            let has = holder(&lab)
                .await
                .unwrap_or_else(|| panic!("the address has no holder, and {left} contenders"));
            lab.remove("Sales", &has).await;
            lab.work(&sync("Sales", &has)).await.unwrap();
            do_queued(&lab).await;
        }
        assert_eq!(holder(&lab).await, None);
    }
}

#[tokio::test]
async fn a_primary_that_leaves_after_its_key_was_taken_over_leaves_those_before_it_to_the_next_one()
{
    let lab = Lab::of(LAST);
    for rk in ["1", "2", "3"] {
        comes(&lab, rk).await;
    }
    for (gone, has) in [("2", "3"), ("3", "1")] {
        lab.remove("Sales", gone).await;
        lab.work(&sync("Sales", gone)).await.unwrap();
        do_queued(&lab).await;
        assert_eq!(
            holder(&lab).await.as_deref(),
            Some(has),
            "{gone} was deleted"
        );
    }
}

/// What happens before the recheck: nothing; a long wait and a pass that closes; a third employee takes over the address; the former holder gives up
/// the address before the late takeover arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    Closed,
    TakenOver,
    Left,
}

/// The new holder wants another address before its takeover is answered. The request that replaces the former holder's row arrives at the end, while
/// the row still has the expected version.
#[tokio::test]
async fn a_takeover_that_arrives_late_is_given_back() {
    let (mut arrived, mut at, mut disturbed) = (0, 0, true);
    while disturbed {
        at += 1;
        let cases = (1..=3).flat_map(|gap| [true, false].map(|synced| (gap, synced)));
        let meanwhile = [
            Meanwhile::Nothing,
            Meanwhile::Closed,
            Meanwhile::TakenOver,
            Meanwhile::Left,
        ];
        for (gap, synced, meanwhile) in
            cases.flat_map(|(gap, synced)| meanwhile.map(|meanwhile| (gap, synced, meanwhile)))
        {
            let lab = Lab::of(LAST);
            comes(&lab, "1").await;
            lab.write(employee("2", WANTED, "King")).await;
            lab.faults.arm(at, Disturbance::ArriveLater(1_000));
            lab.faults.arm(at + gap, Disturbance::Meddle);
            let client = lab.of_another_worker();
            lab.faults.meddle(Box::pin(async move {
                client
                    .write(employee("2", "another@contoso.com", "King"))
                    .await;
                if synced {
                    drop(client.work(&sync("Sales", "2")).await);
                }
            }));
            lab.deliver_until_done(&sync("Sales", "2")).await;
            disturbed = lab.faults.counted() >= at;
            let met = lab.faults.counted() >= at + gap;
            lab.faults.calm();
            if !met {
                continue;
            }
            let story = format!(
                "operation {at} arrives in the end, and the client changes its mind {gap} later (synced: {synced}), then: {meanwhile:?}"
            );
            drop(lab.work(&sync("Sales", "2")).await);
            do_queued(&lab).await;
            if meanwhile == Meanwhile::Left {
                lab.write(employee("1", "elsewhere@contoso.com", "King"))
                    .await;
                drop(lab.work(&sync("Sales", "1")).await);
            }
            let before = holder(&lab).await;
            lab.sim.settle();
            arrived += u32::from(
                before.as_deref() == Some("1") && holder(&lab).await.as_deref() == Some("2"),
            );
            match meanwhile {
                Meanwhile::Nothing | Meanwhile::Left => {}
                Meanwhile::Closed => {
                    lab.wait(Duration::from_hours(3));
                    lab.write(employee("2", "a-third@contoso.com", "King"))
                        .await;
                    drop(lab.work(&sync("Sales", "2")).await);
                }
                Meanwhile::TakenOver => comes(&lab, "3").await,
            }
            lab.finish().await;
            do_queued(&lab).await;
            if meanwhile == Meanwhile::TakenOver {
                assert_eq!(holder(&lab).await.as_deref(), Some("3"), "{story}");
                lab.remove("Sales", "3").await;
                drop(lab.work(&sync("Sales", "3")).await);
                do_queued(&lab).await;
            }
            assert_eq!(
                holder(&lab).await.as_deref(),
                (meanwhile != Meanwhile::Left).then_some("1"),
                "{story}"
            );
            lab.finish().await;
            oracle::check(&lab, &story).await;
        }
    }
    assert!(arrived > 0, "no takeover arrived late");
}

#[tokio::test]
async fn properties_on_the_entity_of_another_go_to_who_wants_them() {
    let lab = Lab::of(SHAPE);
    let manager = |rk: &str, first: &str, manages: bool| {
        employee(rk, &format!("{rk}@contoso.com"), "King")
            .with("FirstName", first)
            .with("IsManager", manages)
    };
    lab.write(manager("1", "Ada", true)).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab.write(manager("2", "Eve", true)).await;
    assert_eq!(
        lab.work(&sync("Sales", "2")).await.unwrap_err().class,
        FailureClass::Permanent
    );
    lab.write(manager("1", "Ada", false)).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    do_queued(&lab).await;
    assert!(in_step(&lab, "2").await);
    lab.finish().await;
    oracle::check(&lab, "the first manager must no longer be one").await;
}

#[tokio::test]
async fn contenders_cost_the_holder_nothing_and_are_noted_once() {
    let lab = Lab::of(SMALL);
    comes(&lab, "1").await;
    let alone = lab.operations_of(&sync("Sales", "1")).await;
    let footprint = async || {
        lab.read(FOOTPRINTS, "Employees~Sales", "1")
            .await
            .unwrap()
            .etag
    };
    let before = footprint().await;
    comes(&lab, "2").await;
    let noted = footprint().await;
    assert_ne!(noted, before, "the first refusal must be recorded");
    for _ in 0..2 {
        comes(&lab, "2").await;
    }
    assert_eq!(
        footprint().await,
        noted,
        "the next refusals must not be recorded"
    );
    assert_eq!(lab.operations_of(&sync("Sales", "1")).await, alone);
    let row = lab.read("ByEmail", "email_Sales", WANTED).await.unwrap();
    lab.work(&sync("Sales", "1")).await.unwrap();
    assert_eq!(
        lab.read("ByEmail", "email_Sales", WANTED)
            .await
            .unwrap()
            .etag,
        row.etag,
        "its row must be unchanged"
    );
}

/// The holder no longer wants the address, but its own job fails permanently because its footprint is unreadable.
#[tokio::test]
async fn an_unreadable_footprint_of_a_holder_blocks_only_the_contested_key() {
    let lab = Lab::of(SMALL);
    comes(&lab, "1").await;
    lab.write(employee("1", "other@contoso.com", "King")).await;
    let footprint = EntityKey::new("Employees~Sales", "1").unwrap();
    let unreadable = TableOperation::Merge(
        Entity::new(footprint.clone()).with("Items", "?"),
        IfMatch::Any,
    );
    lab.account
        .tables
        .apply(&table(FOOTPRINTS), &unreadable)
        .await
        .unwrap();
    lab.write(employee("2", WANTED, "Lovelace")).await;
    let failure = lab.work(&sync("Sales", "2")).await.unwrap_err();
    assert!(
        failure.class == FailureClass::Permanent && failure.chain().contains("is taken by"),
        "{}",
        failure.chain()
    );
    let derived = async || {
        let rows = lab
            .rows("Employees")
            .await
            .into_iter()
            .chain(lab.rows("ByEmail").await);
        rows.filter_map(|row| Owner::of(&row.entity))
            .filter(|owner| owner.primary.key.rk.as_str() == "2")
            .count()
    };
    assert!(derived().await > 0, "all other items must be derived");
    // The error text recommends to delete the footprint.
    lab.delete_row(FOOTPRINTS, "Employees~Sales", "1").await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    do_queued(&lab).await;
    lab.work(&sync("Sales", "2")).await.unwrap();
    assert_eq!(holder(&lab).await.as_deref(), Some("2"));
    lab.finish().await;
    oracle::check(&lab, "the holder must be repaired").await;
}

fn waiting(lab: &Lab) -> (usize, Vec<String>) {
    let messages = lab.sim.messages(&QueueName::new("jobs").unwrap());
    let jobs = messages.iter().flat_map(|message| jobs_of(&message.text));
    (
        messages.len(),
        jobs.map(|job| job.key().unwrap().rk.to_string()).collect(),
    )
}

async fn four_who_want_it() -> Lab {
    let lab = Lab::of(SMALL);
    for rk in ["1", "2", "3", "4"] {
        comes(&lab, rk).await;
    }
    lab
}

#[tokio::test]
async fn all_who_wait_for_a_key_are_told_in_one_message() {
    let lab = four_who_want_it().await;
    lab.write(employee("1", "other@contoso.com", "King")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    assert_eq!(
        waiting(&lab),
        (1, ["2", "3", "4"].map(str::to_owned).to_vec())
    );
    do_queued(&lab).await;
    assert_eq!(holder(&lab).await.as_deref(), Some("2"));
}

#[tokio::test]
async fn what_a_page_of_a_backfill_leaves_out_is_one_message() {
    let lab = four_who_want_it().await;
    for rk in ["2", "3", "4"] {
        lab.write(employee(rk, &rk.repeat(1100), "King")).await;
    }
    lab.work(&job(&json!({"op": "backfill", "table": "Employees"})))
        .await
        .unwrap();
    assert_eq!(
        waiting(&lab),
        (1, ["2", "3", "4"].map(str::to_owned).to_vec())
    );
}

#[tokio::test]
async fn a_contender_is_queued_by_a_backfill_but_not_by_a_repair() {
    let lab = four_who_want_it().await;
    lab.work(&job(&json!({"op": "backfill", "table": "Employees"})))
        .await
        .unwrap();
    assert_eq!(
        waiting(&lab),
        (1, ["2", "3", "4"].map(str::to_owned).to_vec()),
        "each must have a poison message"
    );

    let lab = four_who_want_it().await;
    lab.work(&job(
        &json!({"op": "audit", "table": "Employees", "repair": true}),
    ))
    .await
    .unwrap();
    assert_eq!(waiting(&lab), (0, Vec::new()), "the audit must list them");
    lab.write(employee("1", "other@contoso.com", "King")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    do_queued(&lab).await;
    assert_eq!(holder(&lab).await.as_deref(), Some("2"));
}

/// A worker has stopped in the middle of a pass, and the next worker queues a recheck.
#[tokio::test(start_paused = true)]
async fn a_recheck_does_not_fail_for_a_key_conflict_of_its_job() {
    let (lab, has, wants) = contested(SMALL).await;
    lab.write(employee(wants, WANTED, "Ryan")).await;
    let (mut told, mut at) = (0, 0);
    loop {
        at += 1;
        lab.faults.arm(at, Disturbance::Crash);
        let stopped = lab.deliver(&sync("Sales", wants), 1).await.is_none();
        lab.faults.calm();
        let refused = lab
            .deliver(&sync("Sales", wants), 2)
            .await
            .expect("no crash");
        assert_eq!(
            refused.unwrap_err().class,
            FailureClass::Permanent,
            "stopped at operation {at}"
        );
        for recheck in lab.rechecks().await {
            let second = lab
                .engine
                .execute(&Work::Recheck(recheck.clone()), &lab.delivery())
                .await;
            assert!(
                second.is_ok(),
                "stopped at operation {at}: {recheck:?}: {}",
                second.unwrap_err().chain()
            );
            told += 1;
        }
        if !stopped {
            break;
        }
        lab.write(employee(wants, WANTED, &format!("Ryan{at}")))
            .await;
    }
    assert!(told > 0, "a recheck must be queued");
    let primary = Primary {
        table: table("Employees"),
        key: EntityKey::new("Sales", wants).unwrap(),
    };
    let untold = Recheck {
        primary,
        items: Vec::new(),
        chained: 0,
        taken_keys: None,
    };
    assert_eq!(
        lab.engine
            .execute(&Work::Recheck(untold), &lab.delivery())
            .await
            .unwrap_err()
            .class,
        FailureClass::Permanent
    );
    assert_eq!(holder(&lab).await.as_deref(), Some(has));
}
