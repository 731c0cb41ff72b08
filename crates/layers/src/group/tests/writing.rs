//! Combined writes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use tokio::time::{Instant, sleep, timeout};

use super::stage::{LATENCY, SLOW, Stage, insert, key, names, table};
use evenkeel_account::FaultDecision;
use evenkeel_model::{ETag, Entity, Key};
use evenkeel_storage::{
    ErrorClass, IfMatch, Missing, Resource, StoreError, TableOperation, TableStore as _,
};
use evenkeel_telemetry::job_trace::{self, Recording, Urgency};

fn class<T: std::fmt::Debug>(result: Result<T, StoreError>) -> ErrorClass {
    result.unwrap_err().class
}

#[tokio::test(start_paused = true)]
async fn a_single_write_is_sent_unchanged_and_at_once() {
    let stage = Stage::calm().await;
    let start = Instant::now();
    let etag = stage.apply(insert("a")).await.unwrap().unwrap();
    let entity = Entity::new(key("a")).with("Name", "b");
    let etag = stage
        .apply(TableOperation::Replace(entity, IfMatch::Matches(etag)))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        stage
            .apply(TableOperation::Delete(key("a"), IfMatch::Matches(etag)))
            .await
            .unwrap(),
        None
    );
    assert_eq!(start.elapsed(), LATENCY * 3);
    assert_eq!(
        stage.sent(),
        ["Insert Entity", "Update Entity", "Delete Entity"]
    );
    assert_eq!(stage.tables.queues_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn concurrent_writes_become_one_transaction() {
    let stage = Stage::calm().await;
    let start = Instant::now();
    let etags = join_all(names(0..32).iter().map(|rk| stage.apply(insert(rk)))).await;
    assert!(etags.into_iter().all(|etag| etag.unwrap().is_some()));
    assert_eq!(start.elapsed(), LATENCY);
    assert_eq!(stage.sent(), ["Transaction of 32"]);
    assert_eq!(stage.rows(), names(0..32));
}

#[tokio::test(start_paused = true)]
async fn writes_that_wait_for_two_batches_are_sent_together() {
    let stage = Stage::calm().await;
    let later = |n: usize| {
        let stage = &stage;
        async move {
            sleep(Duration::from_millis(n as u64)).await;
            stage.apply(insert(&format!("r{n:02}"))).await
        }
    };
    join_all((0..9).map(later)).await;
    assert_eq!(
        stage.sent(),
        ["Insert Entity", "Insert Entity", "Transaction of 7"]
    );
    assert_eq!(stage.tables.queues_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_job_traces_its_step_and_a_shared_request_is_counted_once() {
    let stage = Stage::calm().await;
    stage.have(["r01".to_owned()]).await;
    let job = |rk: String| {
        let stage = &stage;
        job_trace::scope(Recording::On, Urgency::Live, async move {
            drop(stage.apply(insert(&rk)).await);
            drop(stage.get(&rk).await);
            job_trace::take()
        })
    };
    let trails = join_all(names(0..4).into_iter().map(job)).await;
    for (trail, inserted) in trails.iter().zip(["ok", "conflict", "ok", "ok"]) {
        let steps: Vec<_> = trail
            .steps
            .iter()
            .map(|step| (step.op, step.target.as_str(), step.answer))
            .collect();
        assert_eq!(
            steps,
            [
                ("insert_entity", "Employees", inserted),
                ("get_entity", "Employees", "ok")
            ]
        );
        assert!(trail.steps.iter().all(|step| step.took >= LATENCY));
    }
    assert_eq!(
        trails
            .iter()
            .map(|trail| trail.requests as usize)
            .sum::<usize>(),
        stage.sent().len()
    );
}

#[tokio::test(start_paused = true)]
async fn partitions_and_tables_do_not_wait_for_each_other() {
    let stage = Stage::calm().await;
    let start = Instant::now();
    let each = (0..20).map(|n| {
        let entity = Entity::new(evenkeel_model::EntityKey::new(format!("p{n}"), "r").unwrap());
        stage.apply(TableOperation::Insert(entity))
    });
    join_all(each).await;
    assert_eq!(start.elapsed(), LATENCY);
    assert_eq!(stage.sent(), vec!["Insert Entity"; 20]);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_operation_fails_only_its_caller_and_the_rest_is_sent_again() {
    let stage = Stage::calm().await;
    stage.have(["r03".to_owned()]).await;
    let bogus = IfMatch::Matches(ETag::new("W/\"other\"").unwrap());
    let missing = TableOperation::Delete(key("nobody"), bogus.clone());
    let results = join(
        join_all(names(0..8).iter().map(|rk| stage.apply(insert(rk)))),
        stage.apply(missing),
    );
    let (inserts, missing) = results.await;
    let errors: Vec<_> = inserts
        .into_iter()
        .enumerate()
        .filter_map(|(at, result)| result.err().map(|error| (at, error)))
        .collect();
    assert_eq!(errors.len(), 1);
    let (at, error) = &errors[0];
    assert_eq!(
        (*at, error.class, error.operation, error.index),
        (3, ErrorClass::Conflict, "Insert Entity", None)
    );
    assert_eq!(
        error.subject.resource,
        Resource::Entity(table(), key("r03"))
    );
    let missing = missing.unwrap_err();
    assert_eq!(
        (missing.class, missing.operation),
        (ErrorClass::NotFound(Missing::Item), "Delete Entity")
    );
    assert_eq!(
        stage.sent(),
        ["Transaction of 9", "Transaction of 8", "Transaction of 7"]
    );
    assert_eq!(stage.rows(), names(0..8));
}

#[tokio::test(start_paused = true)]
async fn after_several_rejections_the_rest_is_sent_one_by_one() {
    let stage = Stage::calm().await;
    stage.have(names(0..30)).await;
    let results = join_all(names(0..32).iter().map(|rk| stage.apply(insert(rk)))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 2);
    let sent = stage.sent();
    assert_eq!(
        sent[..3],
        [
            "Transaction of 32",
            "Transaction of 31",
            "Transaction of 30"
        ]
    );
    assert_eq!(sent[3..], vec!["Insert Entity"; 29]);
}

#[tokio::test(start_paused = true)]
async fn the_last_operation_of_a_transaction_is_sent_alone() {
    let stage = Stage::calm().await;
    stage.have(["a".to_owned()]).await;
    let (taken, free) = join(stage.apply(insert("a")), stage.apply(insert("b"))).await;
    assert_eq!(class(taken), ErrorClass::Conflict);
    free.unwrap();
    assert_eq!(stage.sent(), ["Transaction of 2", "Insert Entity"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_answer_and_throttling_affect_every_caller() {
    for (verdict, expected) in [
        (FaultDecision::LoseAnswer, ErrorClass::Ambiguous),
        (
            FaultDecision::Fail(ErrorClass::Throttled {
                retry_after: Some(LATENCY),
            }),
            ErrorClass::Throttled {
                retry_after: Some(LATENCY),
            },
        ),
        (
            FaultDecision::Fail(ErrorClass::Refused),
            ErrorClass::Refused,
        ),
    ] {
        let stage = Stage::with(move |_| verdict).await;
        let results = join_all(names(0..5).iter().map(|rk| stage.apply(insert(rk)))).await;
        for (result, rk) in results.into_iter().zip(names(0..5)) {
            let error = result.unwrap_err();
            assert_eq!(
                (error.class, error.operation, error.index),
                (expected, "Insert Entity", None)
            );
            assert_eq!(error.subject.resource, Resource::Entity(table(), key(&rk)));
        }
        assert_eq!(stage.sent(), ["Transaction of 5"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_table_fails_every_caller() {
    let stage = Stage::calm().await;
    let elsewhere = evenkeel_model::TableName::new("Elsewhere").unwrap();
    let operations = [insert("a"), TableOperation::Delete(key("b"), IfMatch::Any)];
    for result in join_all(
        operations
            .iter()
            .map(|operation| stage.tables.apply(&elsewhere, operation)),
    )
    .await
    {
        assert_eq!(class(result), ErrorClass::NotFound(Missing::Container));
    }
    assert_eq!(stage.sent(), ["Transaction of 2"]);
}

#[tokio::test(start_paused = true)]
async fn an_operation_over_a_limit_is_rejected_unsent_and_delays_no_other() {
    let stage = Stage::calm().await;
    let bad = TableOperation::Insert(Entity::new(key("bad")).with("a-b", 1));
    let (bad, good) = join(stage.apply(bad), stage.apply(insert("good"))).await;
    assert_eq!(class(bad), ErrorClass::Permanent);
    good.unwrap();
    assert_eq!(stage.rows(), ["good"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_dropped_before_its_write_is_sent_withdraws_it() {
    let stage = Stage::calm().await;
    let in_flight = stage.apply(insert("r00"));
    let others = async {
        sleep(Duration::from_millis(1)).await;
        join_all(names(1..2).iter().map(|rk| stage.apply(insert(rk)))).await;
    };
    let impatient = async {
        sleep(Duration::from_millis(2)).await;
        assert!(
            timeout(Duration::from_millis(3), stage.apply(insert("impatient")))
                .await
                .is_err()
        );
    };
    let patient = async {
        sleep(Duration::from_millis(2)).await;
        stage.apply(insert("patient")).await.unwrap();
    };
    let ((in_flight, ()), _) = join(join(in_flight, others), join(impatient, patient)).await;
    in_flight.unwrap();
    assert_eq!(stage.sent(), vec!["Insert Entity"; 3]);
    assert_eq!(stage.rows(), ["patient", "r00", "r01"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_dropped_later_does_not_affect_the_others() {
    let stage = Stage::calm().await;
    let impatient = timeout(Duration::from_millis(3), stage.apply(insert("impatient")));
    let (impatient, patient) = join(
        impatient,
        join_all(names(0..5).iter().map(|rk| stage.apply(insert(rk)))),
    )
    .await;
    assert!(impatient.is_err());
    assert!(patient.iter().all(Result::is_ok));
    assert_eq!(stage.rows().len(), 6, "its request was under way");
    assert_eq!(stage.tables.queues_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_callers_is_dropped_and_the_next_one_sent() {
    let stage = Stage::with(|info| {
        if info.number < 4 {
            FaultDecision::NeverAnswer
        } else {
            SLOW
        }
    })
    .await;
    let lost = join_all(
        names(0..3)
            .iter()
            .map(|rk| timeout(LATENCY, stage.apply(insert(rk)))),
    );
    let waits = async {
        sleep(Duration::from_millis(1)).await;
        // This row belongs to the first request, so the second waits until the first has ended.
        timeout(Duration::from_millis(20), stage.apply(insert("r00"))).await
    };
    let (lost, waited) = join(lost, waits).await;
    assert!(lost.iter().all(Result::is_err));
    assert!(waited.is_err(), "nothing answers the second request either");
    stage.apply(insert("next")).await.unwrap();
    assert_eq!(stage.tables.queues_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_request_delays_others_for_a_second_at_most() {
    let hung = AtomicU32::new(0);
    let stage = Stage::with(move |_| {
        if hung.fetch_add(1, Ordering::Relaxed) < 2 {
            FaultDecision::NeverAnswer
        } else {
            SLOW
        }
    })
    .await;
    let hang = |rk: &'static str, after: u64| {
        let stage = &stage;
        async move {
            sleep(Duration::from_millis(after)).await;
            timeout(Duration::from_secs(30), stage.apply(insert(rk))).await
        }
    };
    let same_row = async {
        sleep(Duration::from_millis(5)).await;
        let start = Instant::now();
        let result = stage.apply(insert("a")).await;
        (result, start.elapsed())
    };
    let other_rows = async {
        sleep(Duration::from_millis(5)).await;
        let start = Instant::now();
        join_all(names(0..5).iter().map(|rk| stage.apply(insert(rk)))).await;
        start.elapsed()
    };
    let ((first, second), ((same, after), others)) =
        join(join(hang("a", 0), hang("b", 1)), join(same_row, other_rows)).await;
    assert!(first.is_err() && second.is_err());
    assert!(others <= Duration::from_secs(1) + LATENCY, "{others:?}");
    assert_eq!(
        class(same),
        ErrorClass::Conflict,
        "the first request was executed"
    );
    assert!(after > Duration::from_secs(29), "{after:?}");
    assert_eq!(stage.tables.queues_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_of_a_caller_is_sent_unchanged() {
    let stage = Stage::calm().await;
    let pk = Key::new("Sales").unwrap();
    stage.have(["taken".to_owned()]).await;
    let own = [insert("a"), insert("b"), insert("taken")];
    let table = table();
    let own = stage.tables.transact(&table, &pk, &own);
    let (own, others) = join(
        own,
        join_all(["a", "c", "d"].map(|rk| stage.apply(insert(rk)))),
    )
    .await;
    let error = own.unwrap_err();
    assert_eq!(
        (error.class, error.index, error.operation),
        (ErrorClass::Conflict, Some(2), "Entity Group Transaction")
    );
    assert!(
        others.iter().all(Result::is_ok),
        "the write of a waited for the transaction that contains a"
    );
    assert_eq!(
        stage.sent(),
        ["Transaction of 3", "Transaction of 2", "Insert Entity"]
    );
}

#[tokio::test(start_paused = true)]
async fn two_hundred_writes_are_sent_in_hundreds_and_large_ones_alone() {
    let stage = Stage::calm().await;
    join_all(
        (0..200)
            .map(|n| format!("r{n:03}"))
            .map(|rk| stage.apply(insert(&rk))),
    )
    .await;
    assert_eq!(stage.sent(), ["Transaction of 100", "Transaction of 100"]);
    let large = |rk: String| {
        let entity = (0..10).fold(Entity::new(key(&rk)), |entity, n| {
            entity.with(format!("P{n}"), "x".repeat(32_000))
        });
        stage.apply(TableOperation::Insert(entity))
    };
    assert!(
        join_all(names(0..7).into_iter().map(large))
            .await
            .iter()
            .all(Result::is_ok)
    );
    assert_eq!(
        stage.sent(),
        ["Transaction of 3", "Transaction of 3", "Insert Entity"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_fails_its_request_and_no_other() {
    let stage = Stage::with(|info| {
        if info.number == 2 {
            panic!("injected")
        } else {
            SLOW
        }
    })
    .await;
    let results = join_all(names(0..3).iter().map(|rk| stage.apply(insert(rk)))).await;
    assert!(
        results
            .into_iter()
            .all(|result| class(result) == ErrorClass::Ambiguous)
    );
    stage.apply(insert("next")).await.unwrap();
    assert_eq!(stage.tables.queues_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_store_ends_requests_in_flight() {
    let stage = Stage::with(|_| FaultDecision::Delayed {
        arrives: LATENCY,
        timeout: Duration::from_mins(1),
    })
    .await;
    let Stage { tables, world, .. } = stage;
    assert!(
        timeout(
            Duration::from_millis(1),
            tables.apply(&table(), &insert("a"))
        )
        .await
        .is_err()
    );
    drop(tables);
    sleep(LATENCY * 2).await;
    world.catch_up();
    assert_eq!(
        world.rows(&table()).len(),
        1,
        "a request that has been sent is still executed"
    );
}
