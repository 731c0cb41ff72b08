//! The whole decorator stack: ten minutes of failures as a worker meets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{join, join_all};
use tokio::time::Instant;

use super::{DecoratedAccount, Grouping, decorate_sink, decorate_within};
use crate::circuit::{CIRCUIT_OPEN, Circuits};
use crate::layer::{Op, ThrottleScope};
use crate::pace::SCOPE_HELD;
use crate::testing::{Answer, Arrival, Scripted};
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo, SimWorld};
use evenkeel_model::settings::{Backoff, PaceCeilings, RetryPolicy};
use evenkeel_model::{
    AccountName, CollectionName, ETag, Entity, EntityKey, Key, QueueName, TableName,
};
use evenkeel_storage::system::{SeededRng, SystemClock};
use evenkeel_storage::{
    Clock, ErrorClass, IfMatch, Missing, Query, Rng, Service, StoreHealth, TableOperation,
};

const THROTTLED: Answer = Answer::Err(ErrorClass::Throttled { retry_after: None }, Some(503));
const BROKEN: Answer = Answer::Err(ErrorClass::Ambiguous, Some(500));

fn scripted_account(
    answer: impl Fn(&Arrival) -> Answer + Send + Sync + 'static,
) -> (DecoratedAccount, Arc<Scripted>) {
    scripted_within(None, answer)
}

fn scripted_within(
    ceilings: Option<PaceCeilings>,
    answer: impl Fn(&Arrival) -> Answer + Send + Sync + 'static,
) -> (DecoratedAccount, Arc<Scripted>) {
    let (bare, script) = Scripted::by(answer);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(7));
    let backoff = Backoff {
        min: Duration::from_millis(50),
        base: Duration::from_millis(100),
        max: Duration::from_secs(5),
    };
    (
        decorate_within(
            &AccountName::main(),
            &bare,
            Grouping::Together,
            ceilings,
            RetryPolicy::growing(backoff, 6),
            &clock,
            &rng,
        ),
        script,
    )
}

fn table() -> TableName {
    TableName::new("Employees").unwrap()
}

fn scope(pk: &str) -> ThrottleScope {
    ThrottleScope::Partition(table(), Key::new(pk).unwrap())
}

async fn read(
    decorated: &DecoratedAccount,
    pk: &str,
) -> Result<(), (ErrorClass, Option<Box<str>>)> {
    let key = EntityKey::new(pk, "7").unwrap();
    decorated
        .account
        .tables
        .get(&table(), &key, None)
        .await
        .map(drop)
        .map_err(|error| (error.class, error.code))
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_of_503_on_one_partition_leave_other_partitions_undelayed() {
    let (decorated, script) = scripted_account(|arrival| {
        if arrival.scope == scope("hot") {
            THROTTLED
        } else {
            Answer::Ok
        }
    });
    let start = Instant::now();
    let (mut held, mut longest_in_place) = (0, Duration::ZERO);
    while start.elapsed() < Duration::from_mins(10) {
        let sent_at = Instant::now();
        let (class, code) = read(&decorated, "hot").await.unwrap_err();
        longest_in_place = longest_in_place.max(sent_at.elapsed());
        held += u32::from(code.as_deref() == Some(SCOPE_HELD));
        // The job is released with the requested delay, and others run in between.
        for pk in ["calm", "quiet"] {
            let sent_at = Instant::now();
            read(&decorated, pk).await.unwrap();
            assert_eq!(sent_at.elapsed(), Duration::ZERO, "{pk} was delayed");
        }
        tokio::time::sleep(
            class
                .retry_after()
                .unwrap_or_default()
                .max(Duration::from_secs(1)),
        )
        .await;
    }
    let sent = script
        .arrivals()
        .iter()
        .filter(|arrival| arrival.scope == scope("hot"))
        .count();
    assert!(
        sent < 70,
        "{sent} requests were sent to a partition that refused all of them"
    );
    assert!(held > 20, "only {held} requests were withheld");
    assert!(
        longest_in_place < Duration::from_secs(20),
        "a slot was held for {longest_in_place:?}"
    );
    assert!(decorated.circuit.open_circuits().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_recovers_is_served_within_its_last_hold() {
    let (decorated, _) = scripted_account(|arrival| {
        if arrival.scope == scope("hot") && arrival.at < Duration::from_mins(2) {
            THROTTLED
        } else {
            Answer::Ok
        }
    });
    let start = Instant::now();
    while let Err((class, _)) = read(&decorated, "hot").await {
        tokio::time::sleep(class.retry_after().unwrap_or(Duration::from_secs(1))).await;
    }
    assert!(
        start.elapsed() < Duration::from_secs(120 + 20),
        "{:?}",
        start.elapsed()
    );
    let sent_at = Instant::now();
    join_all((0..64).map(|_| read(&decorated, "hot")))
        .await
        .into_iter()
        .collect::<Result<Vec<()>, _>>()
        .unwrap();
    assert_eq!(sent_at.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_withheld_request_does_not_use_up_the_ceiling() {
    let busy = Answer::Err(
        ErrorClass::Throttled {
            retry_after: Some(Duration::from_mins(5)),
        },
        Some(503),
    );
    let ceilings = PaceCeilings {
        account: 100.0,
        partition: 100.0,
        ..PaceCeilings::AZURE
    };
    let (decorated, script) = scripted_within(Some(ceilings), move |arrival| {
        if arrival.scope == scope("hot") {
            busy
        } else {
            Answer::Ok
        }
    });
    let (rate, start) = (decorated.pace.account_rate(), Instant::now());
    for _ in 0..1_000 {
        read(&decorated, "hot").await.unwrap_err();
    }
    read(&decorated, "calm").await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(
        (script.arrivals().len(), decorated.pace.account_rate()),
        (2, rate)
    );
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_caller_goes_away_does_not_block_its_scope() {
    let (decorated, _) = scripted_account(|arrival| match arrival.at.as_millis() {
        0..100 => THROTTLED,
        100..60_000 => Answer::Silence,
        _ => Answer::Ok,
    });
    assert!(
        tokio::time::timeout(Duration::from_secs(30), read(&decorated, "hot"))
            .await
            .is_err()
    );
    tokio::time::sleep(Duration::from_mins(1)).await;
    read(&decorated, "hot").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_withholds_requests_until_any_answer() {
    let (decorated, script) = scripted_account(|arrival| match arrival.at.as_secs() {
        0..60 => BROKEN,
        _ if arrival.op == Op::ListTables => Answer::Err(ErrorClass::Unauthorised, Some(403)),
        _ => Answer::Ok,
    });
    let circuits = Circuits::new(vec![decorated.circuit.clone()]);
    let start = Instant::now();
    let load = join_all((0..64).map(|_| read(&decorated, "any")));
    let watch = async {
        while circuits.open_circuits().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        start.elapsed()
    };
    let (_, opened_after) = join(load, watch).await;
    assert!(
        (1.0..2.0).contains(&opened_after.as_secs_f64()),
        "open after {opened_after:?}"
    );
    let open = &circuits.open_circuits()[0];
    assert_eq!(
        (open.account.as_str(), open.service),
        ("main", Service::Table)
    );
    assert!(open.reason.contains("Get Entity"), "{}", open.reason);
    assert!(
        decorated
            .account
            .queues
            .approximate_count(&QueueName::new("evenkeel-jobs").unwrap())
            .await
            .is_err(),
        "queues have their own circuit"
    );

    let before = script.requests();
    let key = EntityKey::new("other", "7").unwrap();
    let insert = TableOperation::Insert(Entity::new(key));
    let table = table();
    let inserts = join_all((0..64).map(|_| decorated.account.tables.apply(&table, &insert))).await;
    assert!(
        script.requests() - before <= 6,
        "an open circuit lets only trials through"
    );
    let withheld = inserts.iter().filter(|result| {
        result
            .as_ref()
            .is_err_and(|error| error.code.as_deref() == Some(CIRCUIT_OPEN))
    });
    assert!(withheld.count() >= 58);

    circuits.probe().await;
    assert_eq!(
        circuits.open_circuits().len(),
        1,
        "a failed probe changes nothing"
    );
    tokio::time::sleep_until(start + Duration::from_secs(61)).await;
    circuits.probe().await;
    assert!(circuits.open_circuits().is_empty(), "403 is an answer");
    read(&decorated, "any").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_trial_closes_the_circuit_without_probes() {
    let (decorated, script) = scripted_account(|arrival| {
        if arrival.at < Duration::from_mins(1) {
            ErrorClass::Refused.into()
        } else {
            Answer::Ok
        }
    });
    let start = Instant::now();
    while read(&decorated, "any").await.is_err() {}
    assert!(
        script.requests() < 30,
        "{} requests in a minute of outage",
        script.requests()
    );
    assert!(
        start.elapsed() < Duration::from_secs(70),
        "{:?}",
        start.elapsed()
    );
    assert!(decorated.circuit.open_circuits().is_empty());
}

/// A store to which no connection can be made.
struct Unreachable;

#[async_trait]
impl FaultPolicy for Unreachable {
    async fn before(&self, _: &OperationInfo) -> FaultDecision {
        FaultDecision::Fail(ErrorClass::Refused)
    }
}

#[tokio::test(start_paused = true)]
async fn the_circuit_of_an_unused_sink_lapses_and_resets_its_gauge() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let (clock, rng): (Arc<dyn Clock>, Arc<dyn Rng>) =
        (Arc::new(SystemClock::new()), Arc::new(SeededRng::new(7)));
    let name = AccountName::new("catalog").unwrap();
    let bare = SimWorld::new(name.clone(), clock.clone(), Arc::new(Unreachable)).sink();
    let once = RetryPolicy::growing(
        Backoff {
            min: Duration::ZERO,
            base: Duration::ZERO,
            max: Duration::ZERO,
        },
        1,
    );
    let decorated = decorate_sink(&name, bare, once, &clock, &rng);
    let people = CollectionName::new("people").unwrap();
    let code = async || decorated.sink.fields(&people).await.unwrap_err().code;
    let assert_open_circuits = |open: usize| {
        let line =
            format!("evenkeel_circuit_open{{account=\"catalog\",service=\"search\"}} {open}");
        let text = recorder.handle().render();
        assert!(
            text.lines().any(|found| found == line),
            "{line:?} is not in\n{text}"
        );
        assert_eq!(decorated.circuit.open_circuits().len(), open);
    };
    for _ in 0..8 {
        assert_eq!(code().await, None);
    }
    assert_open_circuits(1);
    tokio::time::sleep(Duration::from_mins(14)).await;
    decorated.circuit.lapse();
    assert_open_circuits(1);
    tokio::time::sleep(Duration::from_mins(2)).await;
    decorated.circuit.lapse();
    assert_open_circuits(0);
    assert_eq!(code().await, None, "it is sent");
    assert_open_circuits(1);
    assert_eq!(code().await.as_deref(), Some(CIRCUIT_OPEN));
}

#[tokio::test(start_paused = true)]
async fn throttling_of_many_partitions_opens_the_circuit_and_of_one_never() {
    let (decorated, _) = scripted_account(|_| THROTTLED);
    for n in 0..40 {
        read(&decorated, &format!("partition-{n}"))
            .await
            .unwrap_err();
    }
    assert_eq!(decorated.circuit.open_circuits().len(), 1);

    let (decorated, _) = scripted_account(|_| THROTTLED);
    for _ in 0..400 {
        read(&decorated, "hot").await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(decorated.circuit.open_circuits().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_group_is_one_request_about_all_its_entities() {
    let (decorated, script) = scripted_account(|_| Answer::Ok);
    let table = table();
    let inserts: Vec<_> = (0..64)
        .map(|n| TableOperation::Insert(Entity::new(EntityKey::new("p", n.to_string()).unwrap())))
        .collect();
    for result in join_all(
        inserts
            .iter()
            .map(|insert| decorated.account.tables.apply(&table, insert)),
    )
    .await
    {
        assert!(result.unwrap().is_some());
    }
    let tally = decorated.counts.snapshot();
    assert_eq!((tally.transactions(), tally.entities), (1, 64));
    assert_eq!(script.arrivals()[0].scope, scope("p"));
}

#[tokio::test(start_paused = true)]
async fn a_throttled_group_holds_its_partition_and_each_caller_retries() {
    let (decorated, script) = scripted_account(|arrival| {
        if arrival.at < Duration::from_millis(50) {
            THROTTLED
        } else {
            Answer::Ok
        }
    });
    let table = table();
    let inserts: Vec<_> = (0..64)
        .map(|n| TableOperation::Insert(Entity::new(EntityKey::new("p", n.to_string()).unwrap())))
        .collect();
    for result in join_all(
        inserts
            .iter()
            .map(|insert| decorated.account.tables.apply(&table, insert)),
    )
    .await
    {
        result.unwrap();
    }
    let arrivals = script.arrivals();
    assert!(
        arrivals[1].at >= Duration::from_millis(80),
        "the scope was not held: {arrivals:?}"
    );
    assert!(arrivals.len() < 64, "{} requests", arrivals.len());
}

#[tokio::test(start_paused = true)]
async fn each_operation_decides_what_a_missing_answer_to_a_group_means() {
    let (decorated, _) = scripted_account(|arrival| {
        if arrival.op == Op::Transact {
            Answer::Err(ErrorClass::Ambiguous, None)
        } else {
            Answer::Ok
        }
    });
    let table = table();
    let insert = TableOperation::Insert(Entity::new(EntityKey::new("p", "1").unwrap()));
    let condition = IfMatch::Matches(ETag::new("\"1\"").unwrap());
    let delete = TableOperation::Delete(EntityKey::new("p", "2").unwrap(), condition);
    let (inserted, deleted) = join(
        decorated.account.tables.apply(&table, &insert),
        decorated.account.tables.apply(&table, &delete),
    )
    .await;
    assert_eq!(
        inserted.unwrap_err().class,
        ErrorClass::Ambiguous,
        "the insert may have been executed, so its caller must read"
    );
    assert_eq!(
        deleted.unwrap(),
        None,
        "a delete at an ETag may be repeated, and is repeated alone"
    );
}

#[tokio::test(start_paused = true)]
async fn sent_requests_are_counted_and_withheld_ones_are_not() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let (decorated, _) = scripted_account(|arrival| match arrival.op {
        Op::Transact => Answer::Err(ErrorClass::Conflict, Some(409)),
        Op::PeekMessages => Answer::Silence,
        Op::QueryEntities => Answer::Err(ErrorClass::NotFound(Missing::Container), None),
        _ => Answer::Ok,
    });
    let before = decorated.counts.snapshot();
    read(&decorated, "calm").await.unwrap();
    let operations: Vec<_> = (0..100)
        .map(|n| TableOperation::Insert(Entity::new(EntityKey::new("p", n.to_string()).unwrap())))
        .collect();
    decorated
        .account
        .tables
        .transact(&table(), &Key::new("p").unwrap(), &operations)
        .await
        .unwrap_err();
    decorated
        .account
        .tables
        .query(&table(), &Query::default())
        .await
        .unwrap_err();
    let queue = QueueName::new("evenkeel-jobs").unwrap();
    assert!(
        tokio::time::timeout(
            Duration::from_secs(3),
            decorated.account.queues.peek(&queue, 1)
        )
        .await
        .is_err()
    );

    let tally = decorated.counts.snapshot().since(&before);
    assert_eq!(
        (tally.transactions(), tally.entities),
        (4, 101),
        "a transaction of 100 is one request and 100 entities"
    );
    assert_eq!(
        (
            tally.of_service(Service::Table),
            tally.of_service(Service::Queue),
            tally.of_service(Service::Blob)
        ),
        (3, 1, 0)
    );
    let text = recorder.handle().render();
    for line in [
        "evenkeel_storage_requests_total{account=\"main\",service=\"table\",op=\"get_entity\",status=\"ok\"} 1",
        "evenkeel_storage_requests_total{account=\"main\",service=\"table\",op=\"transact\",status=\"409\"} 1",
        "evenkeel_storage_requests_total{account=\"main\",service=\"table\",op=\"query_entities\",status=\"not_found\"} 1",
        "evenkeel_storage_requests_total{account=\"main\",service=\"queue\",op=\"peek_messages\",status=\"cancelled\"} 1",
        "evenkeel_storage_request_duration_seconds_sum{account=\"main\",service=\"queue\",op=\"peek_messages\",status=\"cancelled\"} 3",
        "evenkeel_circuit_open{account=\"main\",service=\"blob\"} 0",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line:?} is not in\n{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn repetitions_are_counted_by_operation_and_class() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let requests = AtomicU32::new(0);
    let (decorated, _) = scripted_account(move |_| {
        if requests.fetch_add(1, Ordering::Relaxed) == 0 {
            Answer::Err(ErrorClass::Ambiguous, None)
        } else {
            Answer::Ok
        }
    });
    read(&decorated, "7").await.unwrap();
    let text = recorder.handle().render();
    assert!(
        text.contains("evenkeel_retries_total{op=\"get_entity\",class=\"ambiguous\"} 1"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_entities_of_an_account_are_counted_over_all_its_partitions_and_messages_are_none() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let (decorated, _) = scripted_account(|_| Answer::Ok);
    let _local = metrics::set_default_local_recorder(&recorder);
    for pk in ["one", "two", "three"] {
        read(&decorated, pk).await.unwrap();
    }
    let entity = |rk: usize| Entity::new(EntityKey::new("many", rk.to_string()).unwrap());
    let table = table();
    let operations: Vec<TableOperation> = (0..50)
        .map(|rk| TableOperation::Insert(entity(rk)))
        .collect();
    join_all(
        operations
            .iter()
            .map(|operation| decorated.account.tables.apply(&table, operation)),
    )
    .await;
    decorated
        .account
        .queues
        .get(
            &QueueName::new("jobs").unwrap(),
            32,
            Duration::from_secs(30),
        )
        .await
        .unwrap();
    let text = recorder.handle().render();
    assert!(
        text.contains("evenkeel_table_entities_total{account=\"main\"} 53"),
        "{text}"
    );
    assert_eq!(decorated.counts.answers(Service::Table).entities, 53);
}
