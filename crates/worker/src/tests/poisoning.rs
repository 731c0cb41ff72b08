use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::poison::{PoisonEntry, PoisonFilter, PoisonQueue, Reason};
use crate::testing::{
    Effect, JOBS, Op, POISON, RECHECK, SECOND, World, done, from_to, full, permanent, put, sync,
    transient, withheld,
};
use evenkeel_engine::{Failure, FailureClass};
use evenkeel_model::{BlobName, ContainerName, body};
use evenkeel_storage::{BlobStore as _, BlobUpload, Clock as _, ErrorClass};

fn tool(world: &World) -> PoisonQueue {
    PoisonQueue::new(&world.account(), &world.queue).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_poisoned_at_once_with_all_its_causes() {
    let world = World::new();
    let json = r#"{"op":"sync","table":"Employees","pk":"p","rk":"a","id":"mine"}"#;
    let id = world.queues.seed(JOBS, &body::encode(json), None);
    world.script(|_, _, _| async { permanent() });
    let report = world.until_idle().await.unwrap();
    assert_eq!(report.poisoned, 1);
    let entry = world.poisoned().await.remove(0);
    let message = entry.message;
    assert_eq!(
        (message.reason, message.dequeue_count),
        (Reason::Permanent, 1)
    );
    assert_eq!(message.error, "reading the primary: no such table");
    assert_eq!(message.step, "reading the primary");
    assert_eq!(
        (message.op.as_deref(), message.id.as_deref()),
        (Some("sync"), Some("mine"))
    );
    assert_eq!(
        (
            message.message_id,
            message.queue.as_str(),
            message.worker.as_str()
        ),
        (id, JOBS, "w1")
    );
    assert_eq!(message.body.as_deref(), Some(json));
    assert_eq!(
        world.queues.messages(POISON)[0].expires,
        None,
        "poison never expires"
    );
}

#[tokio::test(start_paused = true)]
async fn undecodable_and_disallowed_messages_are_poisoned_without_a_run() {
    let mut world = World::new();
    world.queue.allowed.ops = Some(["sync".to_owned()].into());
    world.queues.seed(JOBS, "hello", None);
    world.queues.seed(JOBS, &put("a"), None);
    world.until_idle().await.unwrap();
    let reasons: Vec<Reason> = world
        .poisoned()
        .await
        .iter()
        .map(|entry| entry.message.reason)
        .collect();
    assert!(
        reasons.contains(&Reason::Undecodable) && reasons.contains(&Reason::Permanent),
        "{reasons:?}"
    );
    assert!(world.work.runs().is_empty());
}

#[tokio::test(start_paused = true)]
async fn poison_from_the_recheck_queue_is_not_foreign_and_goes_back_there() {
    let world = World::new();
    let texts = ["{}", r#"{"op":"sync","pk":"p","rk":"r"}"#, "no job"].map(body::encode);
    for text in &texts {
        world.queues.seed(RECHECK, text, None);
    }
    assert_eq!(world.until_idle().await.unwrap().poisoned, 3);
    let poisoned = world.poisoned().await;
    assert!(
        poisoned
            .iter()
            .all(|entry| entry.message.reason != Reason::Foreign
                && entry.message.queue.as_str() == RECHECK),
        "{poisoned:?}"
    );
    let requeued = tool(&world)
        .requeue(&PoisonFilter::default())
        .await
        .unwrap();
    assert_eq!(
        (requeued.done.len(), requeued.failed.len()),
        (3, 0),
        "{:?}",
        requeued.failed
    );
    let mut back: Vec<String> = world
        .queues
        .messages(RECHECK)
        .into_iter()
        .map(|message| message.text)
        .collect();
    back.sort();
    let mut sent = texts.to_vec();
    sent.sort();
    assert_eq!((back, world.queues.messages(JOBS).len()), (sent, 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_own_job_which_is_poisoned_after_five() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("bad"), None);
    for rk in 0..20 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    world.script(|_, work, _| {
        let bad = matches!(work, evenkeel_engine::Work::Job(job) if job.key().unwrap().rk.as_str() == "bad");
        async move {
            assert!(!bad, "index 7 is out of bounds");
            done()
        }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.poisoned), (20, 1));
    let runs = world
        .work
        .runs()
        .iter()
        .filter(|run| run.rk == "bad")
        .count();
    assert_eq!(runs, 5);
    let entry = world.poisoned().await.remove(0);
    assert_eq!(entry.message.reason, Reason::Exhausted);
    assert!(
        entry.message.error.contains("index 7 is out of bounds"),
        "{}",
        entry.message.error
    );
    assert_eq!(world.work.given_up(), [entry.message.message_id]);
}

/// Before the worker poisons an exhausted job, it gives up the job's work, because requests of
/// earlier deliveries may still arrive. After a run that failed permanently, this is not needed,
/// because the run itself has done so.
#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_be_given_up_now_is_poisoned_later_and_one_that_never_can_at_once() {
    for (failure, tries) in [(transient(), 2), (permanent(), 1)] {
        let world = World::new();
        world.queues.seed(JOBS, &sync("a"), None);
        world.script(|_, _, _| async { panic!("index 7 is out of bounds") });
        world.work.next_giving_up(failure.map(drop));
        world.until_idle().await.unwrap();
        assert_eq!(
            world.poisoned().await.remove(0).message.reason,
            Reason::Exhausted
        );
        assert_eq!(
            (world.work.runs().len(), world.work.given_up().len()),
            (5, tries),
            "used up is used up"
        );
    }
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| async { permanent() });
    world.until_idle().await.unwrap();
    assert_eq!(
        (world.poisoned().await.len(), world.work.given_up().len()),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_crashes_the_process_is_poisoned_before_its_sixth_run() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| std::future::pending());
    for _ in 0..5 {
        world.crash_after(Duration::from_secs(61)).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
    }
    assert_eq!(world.work.runs().len(), 5);
    world.until_idle().await.unwrap();
    assert_eq!(
        world.work.runs().len(),
        5,
        "the attempts must be checked before another run"
    );
    let entry = world.poisoned().await.remove(0);
    assert_eq!(
        (entry.message.reason, entry.message.dequeue_count),
        (Reason::Exhausted, 6)
    );
    assert_eq!(world.work.given_up(), [entry.message.message_id]);
}

/// If the first run crashes at once, it is not recorded in the message. Only the service has
/// counted its delivery. This does not make it an attempt, because the service also counts
/// deliveries whose answer was lost.
#[tokio::test(start_paused = true)]
async fn a_job_that_crashes_the_process_at_once_is_poisoned_after_one_run_more() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| std::future::pending());
    for _ in 0..8 {
        world.crash_after(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
    }
    assert_eq!(world.work.runs().len(), 6);
    let entry = world.poisoned().await.remove(0);
    assert_eq!(
        (entry.message.reason, entry.message.dequeue_count),
        (Reason::Exhausted, 7)
    );
    assert_eq!(
        entry.message.error,
        "5 attempts crashed, panicked or were killed"
    );
}

#[tokio::test(start_paused = true)]
async fn jobs_that_wait_during_a_crash_are_charged_no_attempt() {
    let world = World::new();
    world.queues.seed(JOBS, &put("a"), None);
    let waiting = world.queues.seed(JOBS, &put("a"), None);
    world.script(|_, _, _| std::future::pending());
    for _ in 0..9 {
        world.crash_after(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
    }
    let poisoned: Vec<String> = world
        .poisoned()
        .await
        .into_iter()
        .map(|entry| entry.message.message_id)
        .collect();
    assert!(!poisoned.contains(&waiting), "it ran twice at most");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_only_waits_is_done_after_any_number_of_crashes() {
    only_waits(&put("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_only_waits_is_done_after_any_number_of_crashes() {
    only_waits(r#"{"op":"sync","table":"Employees","pk":"p","rks":["a"]}"#).await;
}

async fn only_waits(text: &str) {
    let world = World::new();
    for _ in 0..4 {
        world.queues.seed(JOBS, text, None);
    }
    world.script(|_, _, _| std::future::pending());
    for _ in 0..5 {
        // Longer than half of a lease, so that each lease is renewed.
        world.crash_after(Duration::from_secs(61)).await;
        sleep(Duration::from_mins(2)).await;
    }
    assert_eq!(
        world.work.runs().len(),
        5,
        "the other jobs must wait for the key of the first one"
    );
    world.script(|_, _, _| async { done() });
    let report = world.until_idle().await.unwrap();
    assert_eq!(report.done + report.poisoned, 4);
    assert!(
        report.done >= 3,
        "at most one job can have been running in every crash"
    );
}

#[tokio::test(start_paused = true)]
async fn a_backlog_older_than_jobs_are_retried_is_retried_all_the_same() {
    let world = World::new();
    for rk in 0..200 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    let opens = Duration::from_hours(7);
    tokio::time::sleep(opens).await;
    let clock = std::sync::Arc::clone(&world.clock);
    world.script(move |number, _, _| {
        let throttled = clock.monotonic() < opens + Duration::from_mins(2);
        async move {
            if throttled && number % 10 > 0 {
                transient()
            } else {
                done()
            }
        }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.poisoned), (200, 0));
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_requests_are_withheld_is_never_given_up() {
    let mut world = World::new();
    world.settings.give_up_after = Duration::from_mins(10);
    world.queues.seed(JOBS, &sync("a"), None);
    let clock = std::sync::Arc::clone(&world.clock);
    world.script(move |number, _, _| {
        let away = clock.monotonic() < Duration::from_hours(12);
        // The first run fails transiently, so the time of `give_up_after` begins. All further runs
        // of the first 12 hours are withheld and do not count as failures.
        async move {
            match (number, away) {
                (0, _) => transient(),
                (_, true) => withheld(),
                (_, false) => done(),
            }
        }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.poisoned), (1, 0));
    assert!(
        world.work.runs().len() > 60,
        "{} runs",
        world.work.runs().len()
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_failed_before_its_workers_were_away_has_all_its_attempts_left() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|number, _, _| async move { if number < 4 { transient() } else { done() } });
    world.run_for(SECOND).await;
    assert_eq!(world.work.runs().len(), 1);
    tokio::time::sleep(Duration::from_hours(60)).await;
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.released, report.poisoned), (1, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_message_without_room_for_a_note_is_poisoned_no_earlier_than_any_other() {
    let world = World::new();
    world.queues.seed(
        JOBS,
        &full(r#""op":"sync","table":"Employees","pk":"p","rk":"a""#),
        None,
    );
    world
        .queues
        .fail(Op::Get, JOBS, 12, ErrorClass::Ambiguous, Effect::Taken);
    world.script(|number, _, _| async move { if number < 20 { transient() } else { done() } });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.released, report.poisoned), (1, 20, 0));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_text_is_never_overwritten() {
    for class in [ErrorClass::Refused, ErrorClass::Permanent] {
        let world = World::new();
        let text = "x".repeat(20_000);
        world.queues.seed(JOBS, &text, None);
        world.queues.garble(JOBS);
        world.queues.fail(Op::Put, POISON, 7, class, Effect::None);
        world.run_for(Duration::from_secs(50)).await;
        assert_eq!(world.queues.messages(JOBS).remove(0).text, text);
        assert!(
            world.queues.calls(Op::Update, JOBS).is_empty(),
            "neither renewed nor released"
        );
        world.until_idle().await.unwrap();
        let entry = world.poisoned().await.remove(0);
        assert_eq!(entry.message.reason, Reason::Undecodable);
        assert_eq!(
            entry.message.body,
            Some(format!("<MessageText>{text}")),
            "the whole of it"
        );
        assert!(world.queues.messages(JOBS).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn transient_failures_are_retried_with_growing_delays_and_given_up_by_age_not_by_count() {
    let mut world = World::new();
    world.settings.give_up_after = Duration::from_hours(2);
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| async { transient() });
    world.until_idle().await.unwrap();
    let runs = world.work.runs();
    assert!(runs.len() > 15, "{} runs", runs.len());
    let gaps: Vec<u64> = runs
        .windows(2)
        .map(|pair| from_to(pair[0].from, pair[1].from).as_secs())
        .collect();
    assert!(gaps[0] < 12 && gaps[3] > 20 && gaps[10] >= 595, "{gaps:?}");
    let entry = world.poisoned().await.remove(0);
    assert_eq!(entry.message.reason, Reason::Exhausted);
    assert!(
        entry.message.error.contains("writing the copy: 503"),
        "{}",
        entry.message.error
    );
    assert!(
        (7_100..8_000).contains(&runs.last().unwrap().from.as_secs()),
        "given up after its time"
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_store_asks_to_wait_is_waited() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|number, _, _| async move {
        let class = FailureClass::Transient {
            retry_after: Some(Duration::from_mins(5)),
        };
        if number == 0 {
            Err(Failure::new(
                class,
                "dropping",
                std::io::Error::other("TableBeingDeleted"),
            ))
        } else {
            done()
        }
    });
    world.until_idle().await.unwrap();
    let runs = world.work.runs();
    assert!(from_to(runs[0].from, runs[1].from) >= Duration::from_mins(5));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_would_expire_before_its_next_attempt_is_poisoned() {
    let world = World::new();
    world
        .queues
        .seed(JOBS, &sync("a"), Some(Duration::from_secs(20)));
    world.script(|_, _, _| async { transient() });
    world.until_idle().await.unwrap();
    let entry = world.poisoned().await.remove(0);
    assert_eq!(entry.message.reason, Reason::Expired);
    assert!(
        entry.message.error.contains("503"),
        "{}",
        entry.message.error
    );
}

#[tokio::test(start_paused = true)]
async fn a_poison_put_that_fails_loses_nothing() {
    for class in [
        ErrorClass::Throttled { retry_after: None },
        ErrorClass::Refused,
        ErrorClass::Permanent,
        ErrorClass::Unauthorised,
    ] {
        let world = World::new();
        world.queues.seed(JOBS, &sync("a"), None);
        world.script(|_, _, _| async { permanent() });
        world.queues.fail(Op::Put, POISON, 7, class, Effect::None);
        world.run_for(Duration::from_secs(1)).await;
        assert_eq!(
            (
                world.queues.messages(JOBS).len(),
                world.queues.messages(POISON).len()
            ),
            (1, 0),
            "{class:?}"
        );
        world.until_idle().await.unwrap();
        assert_eq!(world.poisoned().await.len(), 1);
        assert!(world.queues.messages(JOBS).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_attempts_are_used_up_does_not_run_again_while_the_poison_queue_cannot_be_reached()
 {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| async { panic!("index 7 is out of bounds") });
    world.queues.fail(
        Op::Put,
        POISON,
        7,
        ErrorClass::Throttled { retry_after: None },
        Effect::None,
    );
    world.until_idle().await.unwrap();
    assert_eq!(world.work.runs().len(), 5);
    assert_eq!(
        world.poisoned().await.remove(0).message.reason,
        Reason::Exhausted
    );
    assert!(world.queues.messages(JOBS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_put_to_poison_twice_is_shown_once_and_discarded_whole() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| async { permanent() });
    world
        .queues
        .fail(Op::Put, POISON, 2, ErrorClass::Ambiguous, Effect::Taken);
    world.until_idle().await.unwrap();
    assert_eq!(world.queues.messages(POISON).len(), 3);
    let entries = world.poisoned().await;
    assert_eq!((entries.len(), entries[0].ids.len()), (1, 3));
    let discarded = tool(&world)
        .discard(&PoisonFilter::default())
        .await
        .unwrap();
    assert_eq!((discarded.done.len(), discarded.failed.len()), (1, 0));
    assert!(world.queues.messages(POISON).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_fit_is_stored_in_a_blob_and_requeued_from_there() {
    let world = World::new();
    let json = format!(
        r#"{{"op":"sync","table":"Employees","pk":"p","rk":"a","x":"{}"}}"#,
        "x".repeat(49_000)
    );
    world.queues.seed(JOBS, &body::encode(&json), None);
    world.script(|number, _, _| async move { if number == 0 { permanent() } else { done() } });
    world.until_idle().await.unwrap();
    let entry = world.poisoned().await.remove(0);
    assert_eq!(entry.message.body, None);
    assert_eq!(world.blobs.names().len(), 1);
    assert_eq!(
        tool(&world).body(&entry.message).await.unwrap(),
        Some(json.clone())
    );
    let requeued = tool(&world)
        .requeue(&PoisonFilter::default())
        .await
        .unwrap();
    assert_eq!(requeued.done.len(), 1, "{:?}", requeued.failed);
    assert_eq!(
        body::decode(&world.queues.messages(JOBS)[0].text)
            .unwrap()
            .text,
        json
    );
    assert!(world.blobs.names().is_empty());
    world.until_idle().await.unwrap();
    assert!(world.queues.messages(POISON).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_requeued_job_starts_anew() {
    let mut world = World::new();
    world.settings.give_up_after = Duration::from_mins(1);
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| async { transient() });
    world.until_idle().await.unwrap();
    let handled = tool(&world)
        .requeue(&PoisonFilter::default())
        .await
        .unwrap();
    assert_eq!(handled.done.len(), 1, "{:?}", handled.failed);
    let message = world.queues.messages(JOBS).remove(0);
    assert_eq!((message.count, message.free()), (0, 0));
    assert!(!body::decode(&message.text).unwrap().text.contains("\"ek\""));
    world.script(|_, _, _| async { done() });
    assert_eq!(world.until_idle().await.unwrap().done, 1);
}

#[tokio::test(start_paused = true)]
async fn a_requeue_that_fails_keeps_the_poison_message_and_says_so() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| async { permanent() });
    world.until_idle().await.unwrap();
    world
        .queues
        .fail(Op::Put, JOBS, 1, ErrorClass::Refused, Effect::None);
    let handled = tool(&world)
        .requeue(&PoisonFilter::default())
        .await
        .unwrap();
    assert_eq!(handled.done.len(), 0);
    assert!(
        handled.failed[0].1.contains("could not put it back"),
        "{}",
        handled.failed[0].1
    );
    assert_eq!(world.poisoned().await.len(), 1, "visible again at once");
}

#[tokio::test(start_paused = true)]
async fn a_long_poison_queue_is_listed_whole_and_stays_as_it_was() {
    let world = World::new();
    for number in 0..100 {
        world.queues.seed(JOBS, &format!("no job {number}"), None);
    }
    world.until_idle().await.unwrap();
    world.queues.seed(POISON, "put by somebody else", None);
    let entries = world.poisoned().await;
    assert_eq!(entries.len(), 101);
    assert_eq!(
        entries
            .iter()
            .filter(|entry| entry.message.reason == Reason::Foreign)
            .count(),
        1
    );
    assert_eq!(world.poisoned().await.len(), 101, "all are visible again");
    let one = PoisonFilter {
        ids: [entries[50].message.message_id.clone()].into(),
        ..PoisonFilter::default()
    };
    assert_eq!(tool(&world).list(&one).await.unwrap().entries.len(), 1);
    assert_eq!(tool(&world).discard(&one).await.unwrap().done.len(), 1);
    let foreign = PoisonFilter {
        reason: Some(Reason::Foreign),
        ..PoisonFilter::default()
    };
    assert_eq!(tool(&world).discard(&foreign).await.unwrap().done.len(), 1);
    assert_eq!(world.poisoned().await.len(), 99);
}

#[tokio::test(start_paused = true)]
async fn one_message_at_the_front_of_a_long_poison_queue_costs_one_page() {
    let world = World::new();
    for number in 0..200 {
        world.queues.seed(JOBS, &format!("no job {number}"), None);
    }
    world.until_idle().await.unwrap();
    let front = tool(&world).front().await.unwrap().0;
    let one = PoisonFilter {
        ids: [front[3].message.message_id.clone()].into(),
        ..PoisonFilter::default()
    };
    assert_eq!(tool(&world).requeue(&one).await.unwrap().done.len(), 1);
    assert_eq!(world.queues.calls(Op::Get, POISON).len(), 1);
    let all = PoisonFilter::default();
    assert_eq!(
        tool(&world).requeue(&all).await.unwrap().done.len(),
        199,
        "all other messages must be visible again"
    );
    assert!(world.queues.messages(POISON).is_empty());
}

#[tokio::test(start_paused = true)]
async fn messages_that_return_while_all_are_requeued_are_requeued_once() {
    let world = World::new();
    for number in 0..40 {
        world.queues.seed(JOBS, &format!("no job {number}"), None);
    }
    world.until_idle().await.unwrap();
    world.queues.latency(Duration::from_millis(3));
    let working = async {
        loop {
            world.until_idle().await.unwrap();
        }
    };
    let (tool, all) = (tool(&world), PoisonFilter::default());
    let handled = tokio::select! {
        handled = tool.requeue(&all) => handled.unwrap(),
        () = working => unreachable!("it works without end"),
    };
    assert_eq!((handled.done.len(), handled.failed.len()), (40, 0));
    world.queues.latency(Duration::ZERO);
    world.until_idle().await.unwrap();
    assert_eq!(
        world.poisoned().await.len(),
        40,
        "the requeued jobs must be poisoned again and be visible"
    );
}

#[tokio::test(start_paused = true)]
async fn messages_put_before_the_clock_was_set_back_are_requeued() {
    let world = World::new();
    for number in 0..40 {
        world.queues.seed(JOBS, &format!("no job {number}"), None);
    }
    world.until_idle().await.unwrap();
    world.queues.set_back(POISON, Duration::from_hours(9));
    let handled = tool(&world)
        .requeue(&PoisonFilter::default())
        .await
        .unwrap();
    assert_eq!(
        (
            handled.done.len(),
            handled.failed.len(),
            world.queues.messages(POISON).len()
        ),
        (40, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_half_way_leaves_a_report_of_what_was_done() {
    let world = World::new();
    for number in 0..40 {
        world.queues.seed(JOBS, &format!("no job {number}"), None);
    }
    world.until_idle().await.unwrap();
    let ids = |entries: Vec<PoisonEntry>| {
        entries
            .into_iter()
            .map(|entry| entry.message.message_id)
            .collect::<BTreeSet<_>>()
    };
    let all = ids(world.poisoned().await);
    world
        .queues
        .fail_after(1, Op::Get, POISON, 1, ErrorClass::Permanent, Effect::None);
    let handled = tool(&world)
        .discard(&PoisonFilter::default())
        .await
        .unwrap();
    assert_eq!((handled.done.len(), handled.failed.len()), (32, 0));
    assert!(handled.cut_short.is_some());
    assert_eq!(
        ids(world.poisoned().await)
            .union(&ids(handled.done))
            .count(),
        all.len()
    );
}

#[tokio::test(start_paused = true)]
async fn failures_are_reported_if_the_store_fails_after_them() {
    let world = poisoned_with(40).await;
    world
        .queues
        .fail(Op::Put, JOBS, 32, ErrorClass::Refused, Effect::None);
    world
        .queues
        .fail_after(1, Op::Get, POISON, 1, ErrorClass::Permanent, Effect::None);
    let handled = tool(&world)
        .requeue(&PoisonFilter::default())
        .await
        .unwrap();
    assert_eq!((handled.done.len(), handled.failed.len()), (0, 32));
    assert!(handled.cut_short.is_some());
    assert_eq!(world.poisoned().await.len(), 40, "all are visible again");
}

#[tokio::test(start_paused = true)]
async fn messages_poisoned_after_the_question_stay_and_are_counted() {
    for count in [10, 100] {
        let world = poisoned_with(count).await;
        let listed = tool(&world)
            .list(&PoisonFilter::default())
            .await
            .unwrap()
            .entries;
        let until = listed.iter().map(|entry| entry.inserted).max();
        sleep(SECOND).await;
        for number in 0..3 {
            world
                .queues
                .seed(POISON, &format!("put since {number}"), None);
        }
        let undecodable = PoisonFilter {
            reason: Some(Reason::Undecodable),
            until,
            ..PoisonFilter::default()
        };
        let handled = tool(&world).requeue(&undecodable).await.unwrap();
        assert_eq!(
            (handled.done.len(), handled.since, handled.hidden),
            (count, 0, 0),
            "those since are foreign"
        );
        world.until_idle().await.unwrap();
        let handled = tool(&world)
            .discard(&PoisonFilter {
                until,
                ..PoisonFilter::default()
            })
            .await
            .unwrap();
        assert_eq!(
            (handled.done.len(), handled.since, handled.hidden),
            (0, count as u64 + 3, 0)
        );
        assert_eq!(world.poisoned().await.len(), count + 3, "visible again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_poison_queue_is_listed_without_touching_it() {
    let world = World::new();
    world.queues.seed(JOBS, "no job", None);
    world.until_idle().await.unwrap();
    assert_eq!(world.poisoned().await.len(), 1);
    assert_eq!(world.queues.messages(POISON)[0].count, 0);
    assert!(world.queues.calls(Op::Get, POISON).is_empty());
    let missing = ContainerName::new("evenkeel-poison").unwrap();
    assert!(
        world
            .blobs
            .delete_container(&missing)
            .await
            .is_ok_and(|deleted| !deleted),
        "no container without need"
    );
    tokio::time::sleep(SECOND).await;
}

async fn poisoned_with(count: usize) -> World {
    let world = World::new();
    for number in 0..count {
        world.queues.seed(JOBS, &format!("no job {number}"), None);
    }
    world.until_idle().await.unwrap();
    world
}

/// Receives and holds this many messages, as another operator does.
async fn hold(world: &World, count: u32) {
    let queue = evenkeel_model::QueueName::new(POISON).unwrap();
    assert_eq!(
        world
            .account()
            .queues
            .get(&queue, count, Duration::from_mins(2))
            .await
            .unwrap()
            .len(),
        count as usize
    );
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_listing_shows_everything_again_at_once() {
    let world = poisoned_with(600).await;
    world.queues.latency(Duration::from_millis(3));
    let stop = CancellationToken::new();
    let tool = tool(&world).until(&stop);
    let all = PoisonFilter::default();
    let ended = async {
        sleep(Duration::from_millis(8)).await;
        stop.cancel();
    };
    let (listed, ()) = tokio::join!(tool.list(&all), ended);
    let listed = listed.unwrap();
    assert!(
        listed.interrupted && (32..320).contains(&listed.entries.len()),
        "{}",
        listed.entries.len()
    );
    world.queues.latency(Duration::ZERO);
    assert_eq!(
        world.queues.calls(Op::Update, POISON).len(),
        listed.entries.len()
    );
    assert_eq!(world.poisoned().await.len(), 600, "all are visible again");
}

#[tokio::test(start_paused = true)]
async fn a_listing_of_a_long_queue_costs_a_request_for_32_messages_and_commands_after_it_see_them_all()
 {
    let world = poisoned_with(1_000).await;
    assert_eq!(world.poisoned().await.len(), 1_000);
    assert!(
        world.queues.calls(Op::Get, POISON).len() <= 33,
        "{}",
        world.queues.calls(Op::Get, POISON).len()
    );
    assert!(
        world.queues.calls(Op::Update, POISON).is_empty(),
        "they reappear by themselves"
    );
    let longest = world
        .queues
        .calls(Op::Get, POISON)
        .into_iter()
        .map(|call| call.visibility)
        .max()
        .unwrap();
    assert!(longest <= Duration::from_secs(7), "{longest:?}");
    let again = tool(&world).list(&PoisonFilter::default()).await.unwrap();
    assert_eq!((again.entries.len(), again.hidden), (1_000, 0));
    let handled = tool(&world)
        .discard(&PoisonFilter::default())
        .await
        .unwrap();
    assert_eq!((handled.done.len(), handled.hidden), (1_000, 0));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_answers_with_short_pages_is_listed_whole() {
    let world = poisoned_with(100).await;
    world.queues.short_pages(10);
    let listed = tool(&world).list(&PoisonFilter::default()).await.unwrap();
    assert_eq!(
        (listed.entries.len(), listed.hidden, listed.interrupted),
        (100, 0, false)
    );
}

#[tokio::test(start_paused = true)]
async fn a_killed_listing_hides_what_it_read_for_some_seconds() {
    let world = poisoned_with(600).await;
    world.queues.latency(Duration::from_millis(3));
    let (tool, all) = (tool(&world), PoisonFilter::default());
    assert!(
        tokio::time::timeout(Duration::from_millis(17), tool.list(&all))
            .await
            .is_err()
    );
    let (listed, held) = (
        tool.list(&all).await.unwrap(),
        world.queues.calls(Op::Get, POISON),
    );
    assert_eq!(
        (listed.entries.len(), listed.hidden),
        (600, 0),
        "the second listing must wait for the messages that the first one hides"
    );
    assert!(
        held.into_iter()
            .all(|call| call.visibility <= Duration::from_secs(6))
    );
}

#[tokio::test(start_paused = true)]
async fn messages_held_by_another_operator_are_counted_and_nothing_else_is_hidden() {
    let world = poisoned_with(10).await;
    hold(&world, 3).await;
    let gets = world.queues.calls(Op::Get, POISON).len();
    let listed = tool(&world).list(&PoisonFilter::default()).await.unwrap();
    assert_eq!(
        (listed.entries.len(), listed.hidden, listed.interrupted),
        (7, 3, false)
    );
    assert_eq!(world.queues.calls(Op::Get, POISON).len(), gets);
}

#[tokio::test(start_paused = true)]
async fn messages_hidden_while_all_are_requeued_or_discarded_are_counted() {
    for count in [10, 100] {
        let world = poisoned_with(count).await;
        hold(&world, 4).await;
        let handled = tool(&world)
            .requeue(&PoisonFilter::default())
            .await
            .unwrap();
        assert_eq!(
            (handled.done.len(), handled.failed.len(), handled.hidden),
            (count - 4, 0, 4)
        );
        let rest = tool(&world)
            .discard(&PoisonFilter::default())
            .await
            .unwrap();
        assert_eq!((rest.done.len(), rest.hidden), (0, 4));
        sleep(Duration::from_mins(3)).await;
        let rest = tool(&world)
            .discard(&PoisonFilter::default())
            .await
            .unwrap();
        assert_eq!((rest.done.len(), rest.hidden), (4, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_requeue_reports_it_and_leaves_the_rest_unchanged() {
    let world = poisoned_with(100).await;
    let stop = CancellationToken::new();
    let (tool, all) = (
        tool(&world).until(&stop),
        PoisonFilter {
            reason: Some(Reason::Foreign),
            ..PoisonFilter::default()
        },
    );
    let ended = async {
        sleep(Duration::from_millis(5)).await;
        stop.cancel();
    };
    let (handled, ()) = tokio::join!(tool.discard(&all), ended);
    assert!(handled.unwrap().cut_short.unwrap().contains("interrupted"));
    assert_eq!(world.poisoned().await.len(), 100, "all are visible again");
}

#[tokio::test(start_paused = true)]
async fn a_walk_that_takes_longer_than_messages_are_hidden_sees_them_all() {
    let world = poisoned_with(200).await;
    world.queues.latency(Duration::from_secs(8));
    assert_eq!(world.poisoned().await.len(), 200);
    let foreign = PoisonFilter {
        reason: Some(Reason::Foreign),
        ..PoisonFilter::default()
    };
    assert_eq!(tool(&world).discard(&foreign).await.unwrap().hidden, 0);
    assert_eq!(
        tool(&world)
            .discard(&PoisonFilter::default())
            .await
            .unwrap()
            .done
            .len(),
        200
    );
}

fn erase(rk: impl std::fmt::Display) -> String {
    body::encode(&format!(
        r#"{{"op":"erase","table":"Employees","pk":"p","rk":"{rk}"}}"#
    ))
}

/// A message that was poisoned because it is not a valid job may still be about the erased entity.
#[tokio::test(start_paused = true)]
async fn an_erasure_discards_invalid_jobs_and_leaves_messages_about_others() {
    let world = World::new();
    let entity =
        |rk: &str| json!({"PartitionKey": "p", "RowKey": rk, "Email": format!("{rk}@contoso.com")});
    let long = json!({"op": "put", "table": "Employees", "mode": "patch", "entity": {"PartitionKey": "p", "RowKey": "anna", "Note": "x".repeat(60_000)}});
    for text in [
        body::encode(
            &json!({"op": "put", "table": "Employees", "v": 2, "entity": entity("anna")})
                .to_string(),
        ),
        body::pack(&long.to_string()).unwrap(),
        body::encode(
            &json!([{"op": "put", "table": "Employees", "entity": entity("anna")}]).to_string(),
        ),
        json!({"op": "put", "table": "Employees", "entity": entity("anna")}).to_string()[..90]
            .to_owned(),
        body::encode(
            &json!({"op": "put", "table": "Employees", "mode": "patch", "entity": entity("anton")})
                .to_string(),
        ),
        body::encode(
            &json!({"op": "explode", "table": "Employees", "pk": "p", "rks": ["anna", "anton"]})
                .to_string(),
        ),
        "hello".to_owned(),
    ] {
        world.queues.seed(JOBS, &text, None);
    }
    assert_eq!(world.until_idle().await.unwrap().poisoned, 7);
    world.queues.seed(JOBS, &erase("anna"), None);
    assert_eq!(world.until_idle().await.unwrap().done, 1);
    let left: Vec<String> = world
        .poisoned()
        .await
        .into_iter()
        .filter_map(|entry| entry.message.body)
        .collect();
    assert_eq!(
        left.iter().filter(|body| body.contains("anna")).count(),
        1,
        "only the message about several primaries may stay: {left:?}"
    );
    assert_eq!((left.len(), world.blobs.names().len()), (3, 0), "{left:?}");
}

/// Anyone who knows the name of a staged blob can write the name into a message. So an erasure
/// deletes a blob only if the message also has the hash of its content.
#[tokio::test(start_paused = true)]
async fn an_erasure_deletes_staged_blobs_by_their_hash_and_leaves_messages_with_another() {
    let world = World::new();
    let staging = ContainerName::new(evenkeel_model::large::STAGING).unwrap();
    world.blobs.create_container(&staging).await.unwrap();
    let hash = |content: &str| evenkeel_model::large::hash(content.as_bytes());
    for (rk, sha256) in [
        ("own", Some(hash("own"))),
        ("other", Some(hash("own"))),
        ("unnamed", None),
        ("gone", None),
    ] {
        if rk != "gone" {
            world
                .blobs
                .put(
                    &staging,
                    &BlobName::new(rk).unwrap(),
                    rk.to_owned().into(),
                    &BlobUpload::default(),
                )
                .await
                .unwrap();
        }
        let mut blob = json!({"blob": format!("{staging}/{rk}")});
        blob.as_object_mut()
            .unwrap()
            .extend(sha256.map(|sha256| ("sha256".to_owned(), json!(sha256))));
        let put = json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "p", "RowKey": "anna"}, "blobs": {"Photo": blob}});
        world
            .queues
            .seed(JOBS, &body::encode(&put.to_string()), None);
    }
    world.script(|_, _, _| async { permanent() });
    assert_eq!(world.until_idle().await.unwrap().poisoned, 4);
    world.script(|_, _, _| async { done() });
    world.queues.seed(JOBS, &erase("anna"), None);
    assert_eq!(world.until_idle().await.unwrap().done, 1);
    assert_eq!(
        world.blobs.names(),
        [format!("{staging}/other"), format!("{staging}/unnamed")]
    );
    assert_eq!(world.poisoned().await.len(), 2, "messages whose blobs stay");
}

/// Another receiver gets the poison message before it is deleted.
#[tokio::test(start_paused = true)]
async fn a_poison_message_that_another_receiver_has_does_not_count_as_deleted() {
    let poisoned = async || {
        let world = World::new();
        world.queues.seed(JOBS, &sync("a"), None);
        world.script(|_, _, _| async { permanent() });
        world.until_idle().await.unwrap();
        world
            .queues
            .fail(Op::Delete, POISON, 1, ErrorClass::LeaseLost, Effect::None);
        world
    };
    for requeued in [false, true] {
        let (world, all) = (poisoned().await, PoisonFilter::default());
        let handled = if requeued {
            tool(&world).requeue(&all).await
        } else {
            tool(&world).discard(&all).await
        };
        let handled = handled.unwrap();
        assert_eq!(
            (handled.done.len(), handled.failed.len()),
            (0, 1),
            "requeued: {requeued}"
        );
        assert!(
            handled.failed[0].1.contains("another receiver"),
            "{}",
            handled.failed[0].1
        );
        assert_eq!(
            world.queues.messages(POISON).len(),
            1,
            "requeued: {requeued}"
        );
    }
    let world = poisoned().await;
    world.queues.seed(JOBS, &erase("a"), None);
    world.script(|_, _, _| async { done() });
    assert_eq!(world.until_idle().await.unwrap().done, 1);
    assert!(
        world.queues.messages(POISON).is_empty(),
        "the erasure must be retried until the message is deleted"
    );
    assert_eq!(
        world.work.runs().iter().filter(|run| run.rk == "a").count(),
        3,
        "one run of the job, and two deliveries of the erasure"
    );
}

/// A walk of one erasure hides the poison messages from the walks of other erasures. Nevertheless
/// no erasure has to be retried, because the erasures share walks. Most messages are about other
/// entities.
#[tokio::test(start_paused = true)]
async fn many_erasures_at_once_end_at_their_first_delivery() {
    let world = World::new();
    for rk in 0..12 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    world.script(|_, _, _| async { permanent() });
    assert_eq!(world.until_idle().await.unwrap().poisoned, 12);
    for _ in 0..300 {
        world.queues.seed(POISON, &"x".repeat(1_000), None);
    }
    for rk in 0..12 {
        world.queues.seed(JOBS, &erase(rk), None);
    }
    world.script(|_, _, _| async { done() });
    assert_eq!(world.until_idle().await.unwrap().done, 12);
    assert_eq!(world.work.runs().len(), 2 * 12, "no erasure may be retried");
    assert_eq!(world.queues.messages(POISON).len(), 300);
    assert_eq!(
        world.poisoned().await.len(),
        300,
        "messages about other entities must be visible again"
    );
}

/// If a job fits into a message only when it is compressed, its poison message contains the
/// expanded job.
#[tokio::test(start_paused = true)]
async fn a_job_that_fits_a_message_only_compressed_is_requeued_and_erased() {
    for erased in [false, true] {
        let world = World::new();
        let text = |length: usize| {
            (0..length).map(|number| (format!("T{number}"), json!("x".repeat(30_000))))
        };
        let entity = |rk: &str, length: usize| {
            let properties = [
                ("PartitionKey".to_owned(), json!("p")),
                ("RowKey".to_owned(), json!(rk)),
            ];
            Value::Object(properties.into_iter().chain(text(length)).collect())
        };
        let message = json!({"op": "put", "table": "Employees", "entities": [entity("0", 2), entity("1", 13)]});
        world
            .queues
            .seed(JOBS, &body::pack(&message.to_string()).unwrap(), None);
        world.script(|_, _, _| async { permanent() });
        assert_eq!(world.until_idle().await.unwrap().poisoned, 2);
        if erased {
            for rk in 0..2 {
                world.queues.seed(JOBS, &erase(rk), None);
            }
            world.script(|_, _, _| async { done() });
            assert_eq!(world.until_idle().await.unwrap().done, 2);
        } else {
            let requeued = tool(&world)
                .requeue(&PoisonFilter::default())
                .await
                .unwrap();
            assert_eq!(
                (requeued.done.len(), requeued.failed.len()),
                (2, 0),
                "{:?}",
                requeued.failed
            );
            let texts = world
                .queues
                .messages(JOBS)
                .into_iter()
                .map(|message| body::decode(&message.text).unwrap().text.len());
            assert!(texts.max() > Some(390_000));
        }
        let left: Vec<String> = world
            .queues
            .messages(POISON)
            .into_iter()
            .map(|message| body::decode(&message.text).unwrap().text)
            .collect();
        assert!(
            left.is_empty() && world.blobs.names().is_empty(),
            "erased: {erased}, {left:?}, {:?}",
            world.blobs.names()
        );
    }
}
