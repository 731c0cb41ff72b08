//! Combined reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use tokio::time::{Instant, sleep};

use super::stage::{LATENCY, SLOW, Stage, key, names, table};
use evenkeel_account::FaultDecision;
use evenkeel_model::TableName;
use evenkeel_storage::{ErrorClass, Missing, Resource, TableStore as _};

/// Reads all rows concurrently. Returns whether each exists.
async fn read(stage: &Stage, rows: &[String]) -> Vec<bool> {
    join_all(rows.iter().map(|rk| stage.get(rk)))
        .await
        .into_iter()
        .zip(rows)
        .map(|(found, rk)| {
            let found = found.unwrap();
            assert!(
                found.as_ref().is_none_or(
                    |row| row.entity.key == key(rk) && row.entity.text("Name") == Some(rk)
                )
            );
            found.is_some()
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_single_read_is_sent_unchanged_and_at_once() {
    let stage = Stage::calm().await;
    stage.have(names(0..1)).await;
    let start = Instant::now();
    assert_eq!(read(&stage, &names(0..1)).await, [true]);
    assert_eq!(read(&stage, &names(1..2)).await, [false]);
    assert_eq!(start.elapsed(), LATENCY * 2);
    assert_eq!(stage.sent(), ["Get Entity", "Get Entity"]);
    assert_eq!(stage.tables.queues_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn concurrent_reads_become_one_range() {
    let stage = Stage::calm().await;
    stage.have(names(0..20)).await;
    let start = Instant::now();
    assert_eq!(
        read(&stage, &names(10..30)).await,
        [[true; 10], [false; 10]].concat()
    );
    assert_eq!(start.elapsed(), LATENCY);
    assert_eq!(stage.sent(), ["Query of 40"]);
}

#[tokio::test(start_paused = true)]
async fn two_reads_of_one_row_share_the_answer() {
    let stage = Stage::calm().await;
    stage.have(names(0..1)).await;
    let twice = [names(0..1), names(0..1)].concat();
    assert_eq!(read(&stage, &twice).await, [true, true]);
    assert_eq!(stage.sent(), ["Get Entity"]);
}

#[tokio::test(start_paused = true)]
async fn a_read_is_sent_after_it_was_requested() {
    let stage = Stage::with(|_| FaultDecision::AnswerLate {
        answers: LATENCY,
        timeout: Duration::from_mins(1),
    })
    .await;
    let rows = names(0..9);
    let early = join_all(rows.iter().map(|rk| stage.get(rk)));
    let late = async {
        sleep(LATENCY / 2).await;
        stage.have(["r05".to_owned()]).await;
        stage.get("r05").await.unwrap()
    };
    let (early, late) = join(early, late).await;
    assert!(
        early[5].as_ref().unwrap().is_none(),
        "executed before the row existed"
    );
    assert!(late.is_some());
}

#[tokio::test(start_paused = true)]
async fn rows_far_apart_are_read_alone_and_ranges_are_tried_rarely() {
    let stage = Stage::calm().await;
    stage.have((0..1_000).map(|n| format!("r{n:03}"))).await;
    let far: Vec<String> = (0..10).map(|n| format!("r{:03}", n * 100)).collect();
    assert_eq!(read(&stage, &far).await, [true; 10]);
    let sent = stage.sent();
    assert_eq!(
        sent[..2],
        ["Query of 20", "Query of 18"],
        "at most two rows for each requested key"
    );
    assert_eq!(sent[2..], vec!["Get Entity"; 8]);
    for _ in 0..6 {
        read(&stage, &far).await;
    }
    assert_eq!(stage.sent(), vec!["Get Entity"; 60]);
    read(&stage, &far).await;
    assert_eq!(
        stage
            .sent()
            .iter()
            .filter(|sent| sent.starts_with("Query"))
            .count(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn each_cluster_of_keys_is_one_range() {
    let stage = Stage::calm().await;
    stage.have((0..1_000).map(|n| format!("r{n:03}"))).await;
    let near = |from: usize, keys| (from..from + keys).map(|n| format!("r{n:03}"));
    let rows: Vec<String> = near(0, 2)
        .chain(near(400, 20))
        .chain(near(900, 38))
        .collect();
    for _ in 0..3 {
        assert_eq!(read(&stage, &rows).await, [true; 60]);
        assert_eq!(
            stage.sent(),
            ["Query of 120", "Query of 116", "Query of 76"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn neighbouring_keys_are_read_together_if_more_wait_than_fit_in_a_batch() {
    let stage = Stage::calm().await;
    stage.have((0..3_000).map(|n| format!("r{n:04}"))).await;
    // Ten batch jobs of a hundred keys each, interleaved.
    let rows: Vec<String> = (0..1_000)
        .map(|n| format!("r{:04}", (n % 10) * 300 + n / 10))
        .collect();
    assert_eq!(read(&stage, &rows).await, [true; 1_000]);
    assert_eq!(stage.sent(), vec!["Query of 200"; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_of_a_range_fails_all_its_reads() {
    let stage =
        Stage::with(|_| FaultDecision::Fail(ErrorClass::Throttled { retry_after: None })).await;
    for (result, rk) in join_all(names(0..5).iter().map(|rk| stage.get(rk)))
        .await
        .into_iter()
        .zip(names(0..5))
    {
        let error = result.unwrap_err();
        assert_eq!(
            (error.class, error.operation),
            (ErrorClass::Throttled { retry_after: None }, "Get Entity")
        );
        assert_eq!(error.subject.resource, Resource::Entity(table(), key(&rk)));
    }
    assert_eq!(stage.sent(), ["Query of 10"]);
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_a_rejected_range_are_read_alone() {
    let refuses = |info: &evenkeel_account::OperationInfo| match info.name {
        "Query Entities" => FaultDecision::Fail(ErrorClass::Permanent),
        _ => SLOW,
    };
    let stage = Stage::with(refuses).await;
    stage.have(names(0..2)).await;
    assert_eq!(read(&stage, &names(0..3)).await, [true, true, false]);
    let elsewhere = TableName::new("Elsewhere").unwrap();
    let (one, two) = (key("a"), key("b"));
    let (one, two) = join(
        stage.tables.get(&elsewhere, &one, None),
        stage.tables.get(&elsewhere, &two, None),
    )
    .await;
    for error in [one.unwrap_err(), two.unwrap_err()] {
        assert_eq!(
            (error.class, error.operation),
            (ErrorClass::NotFound(Missing::Container), "Get Entity")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn projections_are_read_alone() {
    let stage = Stage::calm().await;
    let (table, select) = (table(), ["Name".to_owned()]);
    let keys: Vec<_> = names(0..4).iter().map(|rk| key(rk)).collect();
    join_all(
        keys.iter()
            .map(|key| stage.tables.get(&table, key, Some(&select))),
    )
    .await;
    assert_eq!(stage.sent(), vec!["Get Entity"; 4]);
}

/// Prefixes of ten kinds of row keys.
const SHAPES: [&str; 10] = [
    "row",
    "dept ",
    "O'Brien",
    "50%",
    "Müller",
    "부서",
    "\u{1f600}",
    "a'b %ü",
    "\u{20bb7}한",
    "+&;=",
];

#[tokio::test(start_paused = true)]
async fn keys_of_every_kind_are_read_by_ranges_and_absent_ones_are_absent() {
    for shape in SHAPES {
        let stage = Stage::calm().await;
        let rows: Vec<String> = (0..100).map(|n| format!("{shape}{n:02}")).collect();
        stage.have(rows.iter().step_by(2).cloned()).await;
        let found: Vec<bool> = (0..100).map(|n| n % 2 == 0).collect();
        assert_eq!(read(&stage, &rows).await, found, "{shape}");
        assert_eq!(stage.sent(), ["Query of 200"], "{shape}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_range_may_contain_the_empty_key() {
    let stage = Stage::calm().await;
    let rows = ["", "1", "2"].map(str::to_owned);
    stage.have(rows[..2].to_vec()).await;
    assert_eq!(read(&stage, &rows).await, [true, true, false]);
    assert_eq!(stage.sent(), ["Query of 6"]);
}

#[tokio::test(start_paused = true)]
async fn keys_that_stores_sort_differently_are_found_in_any_order() {
    let stage = Stage::calm().await;
    let rows = ["\u{ff21}", "\u{ff22}", "\u{20bb7}", "\u{20bb8}"].map(str::to_owned);
    stage.have(rows[1..3].to_vec()).await;
    assert_eq!(read(&stage, &rows).await, [false, true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_range_of_quoted_keys_is_believed_after_one_of_its_keys_is_absent_too() {
    let stage = Stage::calm().await;
    let rows: Vec<String> = (0..10).map(|n| format!("O'Brien{n}")).collect();
    assert_eq!(read(&stage, &rows).await, [false; 10]);
    assert_eq!(stage.sent(), ["Query of 20", "Get Entity"]);
    // A range that returns a row proves that the store understands such filters.
    stage.have(rows[..1].to_vec()).await;
    assert_eq!(
        read(&stage, &rows)
            .await
            .iter()
            .filter(|found| **found)
            .count(),
        1
    );
    stage.sent();
    let others: Vec<String> = (0..10).map(|n| format!("P'{n}")).collect();
    assert_eq!(read(&stage, &others).await, [false; 10]);
    assert_eq!(stage.sent(), ["Query of 20"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_misreads_a_filter_gets_point_reads_from_then_on() {
    let stage = Stage::misreading().await;
    let rows: Vec<String> = (0..10).map(|n| format!("O'Brien{n}")).collect();
    stage.have(rows.clone()).await;
    assert_eq!(read(&stage, &rows).await, [true; 10]);
    assert_eq!(
        stage.sent()[..3],
        ["Query of 20", "Get Entity", "Query of 20"]
    );
    assert_eq!(read(&stage, &rows).await, [true; 10]);
    assert_eq!(stage.sent(), vec!["Get Entity"; 10]);
    // Other keys are still read by ranges.
    let plain = names(0..10);
    stage.have(plain.clone()).await;
    assert_eq!(read(&stage, &plain).await, [true; 10]);
    assert_eq!(stage.sent(), ["Query of 20"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_point_read_is_no_evidence_about_the_range() {
    let failed = AtomicBool::new(false);
    let stage = Stage::with(move |info| match info.name {
        "Get Entity" if !failed.swap(true, Ordering::Relaxed) => {
            FaultDecision::Fail(ErrorClass::Transient { retry_after: None })
        }
        _ => SLOW,
    })
    .await;
    let rows: Vec<String> = (0..10).map(|n| format!("O'Brien{n}")).collect();
    let answers = join_all(rows.iter().map(|rk| stage.get(rk))).await;
    assert_eq!(
        answers.iter().filter(|answer| answer.is_err()).count(),
        1,
        "only the key that was read alone"
    );
    stage.sent();
    assert_eq!(read(&stage, &rows).await, [false; 10]);
    assert_eq!(stage.sent(), ["Query of 20", "Get Entity"], "a range again");
}
