//! The reconcile protocol on a simulated account: every job, disturbed at every one of its operations.
//!
//! Each scenario first runs undisturbed to count its operations. Then it runs once for every operation and every
//! disturbance: the worker crashes, the store refuses, the answer is lost, the request arrives much later, or another
//! worker runs a whole job in between. After redelivery and the rechecks, derived data must equal an independent
//! recomputation, the footprints must list exactly these items, and no plan may find anything to do.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "an unexpected error fails the test"
)]

mod chained;
mod contenders;
mod dated;
mod deputies;
mod documents;
mod encryption;
mod erasing;
mod footprints;
mod in_step;
mod inverse;
mod large;
mod lists;
mod logs;
mod once;
mod oracle;
mod propagation;
mod random;
mod ranges;
mod rechecks;
mod redelivered;
mod restored;
mod retention;
mod scenarios;
mod sinks;
mod spreading;
mod stack;
mod sweep;
mod values;
mod views;
mod wide;
mod world;

use evenkeel_account::company::Shape;
use evenkeel_model::Job;
use scenarios::{Scenario, all};
use serde_json::json;
use sweep::Sweep;
use world::{Disturbance, Lab, SHAPE, SMALL};

/// Approximate number of pairs of disturbed operations per scenario.
const MOST_PAIRS: u64 = 600;
/// The pairs of disturbances: a crash after each kind of disturbance that leaves the outcome unknown, and two requests
/// with an unknown outcome in a row.
const PAIRS: [(Disturbance, Disturbance); 4] = [
    (Disturbance::Crash, Disturbance::Crash),
    (Disturbance::LoseAnswer, Disturbance::Crash),
    (Disturbance::ArriveLater(4), Disturbance::Crash),
    (Disturbance::ArriveLater(4), Disturbance::ArriveLater(4)),
];

async fn prepared(scenario: &Scenario, shape: Shape) -> Lab {
    let lab = Lab::of(shape);
    (scenario.prepare)(lab.clone()).await;
    lab
}

fn named(name: &str) -> Scenario {
    all()
        .into_iter()
        .find(|scenario| scenario.name == name)
        .unwrap()
}

async fn undisturbed(scenario: &Scenario, shape: Shape) -> u64 {
    let lab = prepared(scenario, shape).await;
    let operations = lab.operations_of(&(scenario.job)()).await;
    lab.finish().await;
    oracle::check(&lab, scenario.name).await;
    operations
}

/// Runs every case of a sweep for all scenarios. Returns the number of runs, and the number of runs with a late
/// request.
async fn swept(shape: Shape, sweep_of: fn(u64) -> Sweep) -> (u32, u32) {
    let (mut runs, mut arrivals) = (0, 0);
    for scenario in all() {
        let mut sweep = sweep_of(undisturbed(&scenario, shape).await);
        while let Some(case) = sweep.next() {
            let lab = prepared(&scenario, shape).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&(scenario.job)()).await;
            sweep.seen(&lab);
            lab.faults.calm();
            lab.finish().await;
            oracle::check(&lab, &format!("{}, {case}", scenario.name)).await;
            (scenario.verify)(lab).await;
        }
        runs += sweep.runs().0;
        arrivals += sweep.runs().1;
    }
    (runs, arrivals)
}

#[tokio::test]
async fn every_job_undisturbed_leaves_everything_in_step() {
    for scenario in all() {
        assert!(undisturbed(&scenario, SHAPE).await > 0, "{}", scenario.name);
    }
}

#[tokio::test]
async fn every_job_disturbed_at_every_operation_converges() {
    let (runs, _) = swept(SHAPE, Sweep::at_once).await;
    assert!(
        runs > 500,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

#[tokio::test]
async fn every_write_of_every_job_that_arrives_late_at_whatever_moment_does_no_harm() {
    let (runs, arrivals) = swept(SMALL, Sweep::of_arrivals).await;
    assert!(
        runs > 500 && arrivals > 500,
        "only {runs} runs, {arrivals} with an arrival: the sweep must run all scenarios"
    );
}

#[tokio::test]
async fn every_job_disturbed_twice_converges() {
    let mut runs = 0_u32;
    for scenario in all() {
        let operations = undisturbed(&scenario, SMALL).await;
        // A job of many operations would have more pairs than all other jobs together. So each operation is combined
        // with only some of the later ones, in turn.
        let stride = (operations * operations).div_ceil(MOST_PAIRS);
        for (first, second) in PAIRS {
            for at in 1..=operations {
                for gap in (1 + at % stride..=operations).step_by(usize::try_from(stride).unwrap())
                {
                    let lab = prepared(&scenario, SMALL).await;
                    lab.faults.arm(at, first);
                    lab.faults.arm(at + gap, second);
                    lab.deliver_until_done(&(scenario.job)()).await;
                    lab.faults.calm();
                    lab.finish().await;
                    oracle::check(
                        &lab,
                        &format!(
                            "{}, {first:?} at {at} and {second:?} {gap} later",
                            scenario.name
                        ),
                    )
                    .await;
                    runs += 1;
                }
            }
        }
    }
    assert!(
        runs > 5_000,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

#[tokio::test]
async fn an_archive_job_that_was_put_off_archives_what_changed_meanwhile() {
    let scenario = named("archive");
    let operations = undisturbed(&scenario, SHAPE).await;
    for at in 1..=operations {
        let lab = prepared(&scenario, SHAPE).await;
        lab.faults.arm(at, Disturbance::Throttle);
        let Some(Err(_)) = lab.deliver(&(scenario.job)(), 1).await else {
            panic!("operation {at} is not throttled")
        };
        lab.faults.calm();
        let archived_already = lab.read("Employees", "Sales", "1").await.is_none();
        lab.client_writes("1", "meanwhile@contoso.com").await;
        lab.sync_later
            .lock()
            .unwrap()
            .push(scenarios::sync_of_one());
        lab.deliver(&(scenario.job)(), 2)
            .await
            .expect("no crash")
            .expect("not disturbed");
        lab.finish().await;
        let story = format!("archive throttled at operation {at}");
        oracle::check(&lab, &story).await;
        oracle::nothing_lost(&lab, &story).await;
        let left = lab.read("Employees", "Sales", "1").await;
        assert_eq!(
            left.is_some(),
            archived_already,
            "{story}: only the recreated entity must remain"
        );
    }
}

/// A run that knows that it has not deleted the source withdraws its claim on the copy as its last operation. This
/// request may arrive long after the job, and the run may stop right after sending it. In each case the items of the
/// copy must be checked again.
#[tokio::test]
async fn a_copy_that_is_reopened_long_after_its_job_is_rechecked() {
    let shape = Shape {
        former_index: true,
        ..SMALL
    };
    let scenario = named("archive");
    let operations = undisturbed(&scenario, shape).await;
    let mut late = 0_u32;
    for at in 1..=operations {
        for gap in 1..=operations {
            for stops in [false, true] {
                let lab = prepared(&scenario, shape).await;
                lab.faults.arm(at, Disturbance::Throttle);
                lab.faults.arm(at + gap, Disturbance::ArriveLater(1_000));
                if stops {
                    lab.faults.arm(at + gap + 1, Disturbance::Crash);
                }
                assert!(
                    !matches!(lab.deliver(&(scenario.job)(), 1).await, Some(Ok(_))),
                    "operation {at} is not throttled"
                );
                late += u32::from(lab.faults.counted() > at + gap);
                lab.faults.calm();
                lab.deliver(&(scenario.job)(), 2)
                    .await
                    .expect("no crash")
                    .expect("not disturbed");
                lab.finish().await;
                let then = if stops { "stopped, and " } else { "" };
                oracle::check(&lab, &format!("archive throttled at operation {at}, {then}a request {gap} later that arrives in the end"))
                    .await;
            }
        }
    }
    assert!(
        late > 0,
        "some run must send a request after it was throttled"
    );
}

/// A run whose write was not answered announces its items, although another run has already closed the footprint. Then
/// it stops, and its announcement arrives long after the job.
#[tokio::test]
async fn a_late_announcement_of_an_uncertain_run_is_rechecked() {
    let scenario = named("put that merges one property");
    // No key changes, so nothing is announced before the primary is written.
    let entity = json!({"PartitionKey": "Sales", "RowKey": "1", "FirstName": "Augusta"});
    let job =
        world::job(&json!({"op": "put", "table": "Employees", "entity": entity, "mode": "merge"}));
    let operations = undisturbed(&scenario, SMALL).await;
    let mut stopped = 0_u32;
    for at in 1..=operations {
        for gap in 1..=operations {
            let lab = prepared(&scenario, SMALL).await;
            lab.faults.arm(at, Disturbance::LoseAnswer);
            lab.faults.arm(at + 1, Disturbance::Meddle);
            let other = lab.of_another_worker();
            lab.faults.meddle(Box::pin(async move {
                drop(other.work(&scenarios::sync_of_one()).await);
            }));
            lab.faults
                .arm(at + 1 + gap, Disturbance::ArriveLater(1_000));
            lab.faults.arm(at + 2 + gap, Disturbance::Crash);
            stopped += u32::from(lab.deliver(&job, 1).await.is_none());
            lab.faults.calm();
            lab.deliver(&job, 2)
                .await
                .expect("no crash")
                .expect("not disturbed");
            lab.finish().await;
            oracle::check(
                &lab,
                &format!("no answer at operation {at}, another worker, a late request {gap} later"),
            )
            .await;
        }
    }
    assert!(stopped > 0, "some run must stop");
}

/// A restore announces the deletion of the archived row. Before the announcement is answered, another entity takes the
/// key.
#[tokio::test]
async fn an_announcement_before_a_refused_restore_is_rechecked() {
    let shape = Shape {
        former_index: true,
        ..SMALL
    };
    let scenario = named("restore");
    let operations = undisturbed(&scenario, shape).await;
    let mut refused = 0_u32;
    for (name, meddle) in scenarios::meddlers() {
        for at in 1..=operations {
            for gap in 1..=3 {
                let lab = prepared(&scenario, shape).await;
                lab.faults.arm(at, Disturbance::ArriveLater(1_000));
                lab.faults.arm(at + gap, Disturbance::Meddle);
                lab.faults.meddle(meddle(lab.of_another_worker()));
                refused += u32::from(lab.deliver_until_done(&(scenario.job)()).await.is_none());
                lab.faults.calm();
                lab.finish().await;
                oracle::check(
                    &lab,
                    &format!("a late request at operation {at}, and {name} {gap} later"),
                )
                .await;
            }
        }
    }
    assert!(refused > 0, "some restore must be refused");
}

/// A run stops right after a request that arrives at the very end, and the job is poisoned. A requeue from the poison
/// queue creates a new message, which has no trace of the earlier delivery.
#[tokio::test]
async fn a_late_request_of_a_job_that_was_given_up_is_rechecked() {
    let shape = Shape {
        former_index: true,
        ..SMALL
    };
    let mut runs = 0_u32;
    // A job by condition covers many entities, and the poison message does not name the one that was in progress. The
    // page docs/jobs.md describes how an operator settles them.
    for scenario in all()
        .into_iter()
        .filter(|scenario| !matches!((scenario.job)(), Job::DeleteWhere(_) | Job::ArchiveWhere(_)))
    {
        let operations = undisturbed(&scenario, shape).await;
        for (at, (name, meddle)) in (1..=operations).zip(scenarios::meddlers().into_iter().cycle())
        {
            let lab = prepared(&scenario, shape).await;
            lab.faults.arm(at, Disturbance::ArriveLater(1_000));
            lab.faults.arm(at + 1, Disturbance::Crash);
            let job = (scenario.job)();
            let stopped = lab.deliver(&job, 1).await.is_none();
            lab.faults.calm();
            if stopped {
                lab.give_up(&job).await;
            }
            meddle(lab.of_another_worker()).await;
            drop(lab.work(&job).await);
            lab.finish().await;
            let story = format!(
                "{}, a late request at operation {at}, given up; {name}, and sent again",
                scenario.name
            );
            oracle::check(&lab, &story).await;
            runs += u32::from(stopped);
        }
    }
    assert!(runs > 200, "only {runs} runs were stopped");
}

#[tokio::test]
async fn a_client_and_another_worker_in_between_at_every_operation_lose_nothing() {
    let mut runs = 0_u32;
    for scenario in all() {
        let operations = undisturbed(&scenario, SHAPE).await;
        for (name, meddle) in scenarios::meddlers() {
            for at in 1..=operations {
                let lab = prepared(&scenario, SHAPE).await;
                lab.faults.arm(at, Disturbance::Meddle);
                lab.faults.meddle(meddle(lab.of_another_worker()));
                lab.deliver_until_done(&(scenario.job)()).await;
                lab.faults.calm();
                lab.finish().await;
                let story = format!("{}, {name} before operation {at}", scenario.name);
                oracle::check(&lab, &story).await;
                // These jobs overwrite or delete earlier changes on purpose.
                if !matches!(
                    (scenario.job)(),
                    Job::Put(_) | Job::Delete { .. } | Job::Erase(_) | Job::DeleteWhere(_)
                ) {
                    oracle::nothing_lost(&lab, &story).await;
                }
                runs += 1;
            }
        }
    }
    assert!(
        runs > 200,
        "only {runs} runs: the sweep must run all scenarios"
    );
}
