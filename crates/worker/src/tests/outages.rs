//! Tests with stores that do not answer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::testing::{Effect, JOBS, Op, POISON, SECOND, World, done, sync, transient};
use crate::{Mode, ReceiverState, Rechecks, WorkerError};
use evenkeel_engine::{Failure, FailureClass};
use evenkeel_model::settings::Concurrency;
use evenkeel_storage::{Clock as _, ErrorClass};

/// The jobs and the queue need the same store, so the jobs fail while the queue refuses requests.
fn refused_during_the_outage(world: &World, until: Duration) {
    let clock = std::sync::Arc::clone(&world.clock);
    world.script(move |_, _, _| {
        let clock = std::sync::Arc::clone(&clock);
        async move {
            sleep(SECOND).await;
            if clock.monotonic() < until {
                transient()
            } else {
                done()
            }
        }
    });
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_ten_minutes_poisons_nothing_and_costs_no_attempt() {
    let world = World::new();
    for rk in 0..200 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    let (from, until) = (Duration::from_millis(500), Duration::from_mins(10));
    world.queues.outage(from..until);
    refused_during_the_outage(&world, until);
    let watch = async {
        sleep(Duration::from_secs(599)).await;
        world
            .queues
            .messages(JOBS)
            .iter()
            .map(|message| message.count)
            .max()
    };
    let (report, most) = tokio::join!(world.until_idle(), watch);
    let report = report.unwrap();
    assert_eq!((report.done, report.poisoned, report.lost), (200, 0, 0));
    assert_eq!(
        most,
        Some(1),
        "no message may be received twice during the outage"
    );
    assert!(world.queues.messages(POISON).is_empty());
    assert!(
        world.clock.monotonic() < Duration::from_mins(12),
        "it went on soon: {:?}",
        world.clock.monotonic()
    );
    let polls = world
        .queues
        .calls(Op::Get, JOBS)
        .iter()
        .filter(|call| call.failed)
        .count();
    assert!(
        polls < 60,
        "too many polls of a store that refuses requests: {polls}"
    );
}

#[tokio::test(start_paused = true)]
async fn messages_in_flight_during_an_outage_are_released_with_their_attempt_written_off() {
    let world = World::new();
    for rk in 0..64 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    let until = Duration::from_mins(5);
    world.queues.outage(Duration::from_millis(500)..until);
    refused_during_the_outage(&world, until);
    world.run_for(Duration::from_secs(340)).await;
    for message in world.queues.messages(JOBS) {
        assert_eq!(message.count - message.free(), 0, "{message:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_circuit_is_open_nothing_is_received_and_it_is_probed_less_and_less() {
    let world = World::new();
    world.health.open_for(Duration::from_mins(10));
    world.queues.seed(JOBS, &sync("a"), None);
    let worker = world.worker();
    let status = worker.status();
    let shutdown = CancellationToken::new();
    let watch = async {
        sleep(Duration::from_mins(9)).await;
        assert!(world.queues.calls(Op::Get, JOBS).is_empty());
        assert_eq!(
            status.snapshot().queues[0].state,
            ReceiverState::PausedByStore
        );
        assert!(
            (15..30).contains(&world.health.probes.load(Ordering::SeqCst)),
            "{:?}",
            world.health.probes
        );
        sleep(Duration::from_mins(2)).await;
        assert_eq!(status.snapshot().queues[0].state, ReceiverState::Receiving);
        assert_eq!(world.work.runs().len(), 1);
        shutdown.cancel();
    };
    let (report, ()) = tokio::join!(worker.run(Mode::Forever, shutdown.clone()), watch);
    assert_eq!(report.unwrap().done, 1);
}

#[tokio::test(start_paused = true)]
async fn a_circuit_that_opens_while_all_slots_are_taken_is_heeded_when_one_is_free() {
    let mut world = World::new();
    world.queue.concurrency = Concurrency::Fixed(1);
    world.queues.seed(JOBS, &sync("a"), None);
    world.queues.seed(JOBS, &sync("b"), None);
    world.script(|_, _, _| async {
        sleep(10 * SECOND).await;
        done()
    });
    let opened = async {
        sleep(2 * SECOND).await;
        world.health.open_for(Duration::from_mins(5));
    };
    tokio::join!(world.run_for(Duration::from_mins(7)), opened);
    let runs = world.work.runs();
    assert_eq!(runs.len(), 2);
    assert!(
        runs[1].from > Duration::from_mins(5),
        "received at {:?}",
        runs[1].from
    );
}

#[tokio::test(start_paused = true)]
async fn a_timeout_while_a_store_refuses_costs_no_attempt() {
    let mut world = World::new();
    world.settings.job_timeout = Duration::from_secs(20);
    world.queues.seed(JOBS, &sync("a"), None);
    let health = std::sync::Arc::clone(&world.health);
    world.script(move |number, _, _| {
        let health = std::sync::Arc::clone(&health);
        async move {
            if number == 8 {
                return done();
            }
            sleep(15 * SECOND).await;
            health.open_for(10 * SECOND);
            std::future::pending().await
        }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!(
        (report.done, report.poisoned, world.work.runs().len()),
        (1, 0, 9)
    );
}

#[tokio::test(start_paused = true)]
async fn polls_that_fail_never_end_the_worker_and_show_in_its_status() {
    for class in [
        ErrorClass::Throttled { retry_after: None },
        ErrorClass::Refused,
        ErrorClass::Transient { retry_after: None },
        ErrorClass::Ambiguous,
        ErrorClass::Permanent,
        ErrorClass::Unauthorised,
        ErrorClass::LeaseLost,
    ] {
        let world = World::new();
        world.queues.seed(JOBS, &sync("a"), None);
        world.queues.fail(Op::Get, JOBS, 4, class, Effect::None);
        let worker = world.worker();
        let (status, shutdown) = (worker.status(), CancellationToken::new());
        let watch = async {
            sleep(SECOND / 2).await;
            let queue = status.snapshot().queues.remove(0);
            assert!(
                queue.last_error.is_some() && queue.last_poll.is_none(),
                "{queue:?}"
            );
            sleep(Duration::from_mins(1)).await;
            let queue = status.snapshot().queues.remove(0);
            assert!(
                queue.last_error.is_none() && queue.last_poll.is_some(),
                "{queue:?}"
            );
            shutdown.cancel();
        };
        let (report, ()) = tokio::join!(worker.run(Mode::Forever, shutdown.clone()), watch);
        assert_eq!(report.unwrap().done, 1, "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_get_whose_answer_was_lost_costs_one_attempt_and_the_job_is_done() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world
        .queues
        .fail(Op::Get, JOBS, 1, ErrorClass::Ambiguous, Effect::Taken);
    assert_eq!(world.until_idle().await.unwrap().done, 1);
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_in_which_answers_to_gets_are_lost_poison_nothing_and_cause_few_requests() {
    let world = World::new();
    for rk in 0..200 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    world.queues.unheard(Duration::from_mins(10));
    let worker = world.worker();
    let (status, shutdown) = (worker.status(), CancellationToken::new());
    let watch = async {
        sleep(Duration::from_mins(9)).await;
        let queue = status.snapshot().queues.remove(0);
        assert_eq!(queue.state, ReceiverState::AnswersLost);
        assert!(queue.last_error.is_some());
        assert!(world.work.runs().is_empty());
        let counted: u32 = world
            .queues
            .messages(JOBS)
            .iter()
            .map(|message| message.count)
            .sum();
        assert!(
            counted < 80,
            "too many lost deliveries of 200 messages: {counted}"
        );
        sleep(Duration::from_mins(3)).await;
        assert_eq!(status.snapshot().queues[0].state, ReceiverState::Receiving);
        shutdown.cancel();
    };
    let (report, ()) = tokio::join!(worker.run(Mode::Forever, shutdown.clone()), watch);
    let report = report.unwrap();
    assert_eq!((report.done, report.poisoned), (200, 0));
}

#[tokio::test(start_paused = true)]
async fn if_only_long_answers_are_lost_short_ones_get_the_work_done() {
    let world = World::new();
    for rk in 0..64 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    world.queues.unheard_beyond(4);
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.poisoned), (64, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_recorded_does_not_begin_and_costs_no_attempt() {
    for class in [
        ErrorClass::Throttled { retry_after: None },
        ErrorClass::Refused,
        ErrorClass::Unauthorised,
    ] {
        let world = World::new();
        world.queues.seed(JOBS, &sync("a"), None);
        world
            .queues
            .fail(Op::Get, JOBS, 1, ErrorClass::Ambiguous, Effect::Taken);
        world.queues.fail(Op::Update, JOBS, 3, class, Effect::None);
        let report = world.until_idle().await.unwrap();
        assert_eq!(
            (report.done, report.released, world.work.runs().len()),
            (1, 1, 1),
            "{class:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_begins_if_it_is_unknown_whether_it_was_recorded() {
    for effect in [Effect::None, Effect::Taken] {
        let world = World::new();
        world.queues.seed(JOBS, &sync("a"), None);
        world
            .queues
            .fail(Op::Get, JOBS, 1, ErrorClass::Ambiguous, Effect::Taken);
        world
            .queues
            .fail(Op::Update, JOBS, 1, ErrorClass::Ambiguous, effect);
        let report = world.until_idle().await.unwrap();
        assert_eq!((report.done, report.poisoned), (1, 0));
        // Since the answer was lost, the pop receipt that is needed to delete the message is
        // unknown.
        assert_eq!(
            world.work.runs().len(),
            if effect == Effect::Taken { 2 } else { 1 }
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_release_is_retried_until_another_receiver_has_the_message() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|number, _, _| async move { if number == 0 { transient() } else { done() } });
    world
        .queues
        .fail(Op::Update, JOBS, 4, ErrorClass::Refused, Effect::None);
    world.run_for(Duration::from_secs(6)).await;
    let message = world.queues.messages(JOBS).remove(0);
    assert_eq!((message.count, message.free()), (1, 1));
    assert_eq!(world.until_idle().await.unwrap().done, 1);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_was_deleted_is_created_again() {
    let world = World::new();
    let deleted = async {
        sleep(SECOND).await;
        evenkeel_storage::QueueStore::delete_queue(world.queues.as_ref(), &world.queue.name)
            .await
            .unwrap();
    };
    tokio::join!(world.run_for(Duration::from_secs(20)), deleted);
    assert!(world.queues.exists(JOBS));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_runs_forever_waits_if_its_credentials_are_refused_at_the_start() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.queues.fail(
        Op::Create,
        POISON,
        3,
        ErrorClass::Unauthorised,
        Effect::None,
    );
    assert_eq!(world.run_for(Duration::from_mins(1)).await.done, 1);
    assert_eq!(
        world
            .queues
            .calls(Op::Create, POISON)
            .iter()
            .filter(|call| call.failed)
            .count(),
        3
    );

    let world = World::new();
    world.queues.fail(
        Op::Create,
        POISON,
        1,
        ErrorClass::Unauthorised,
        Effect::None,
    );
    let ended = world.until_idle().await;
    assert!(
        matches!(ended, Err(WorkerError::Create { .. })),
        "a run until idle must return an error: {ended:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outdated_catalog_ends_a_run_until_idle() {
    let mut world = World::new();
    world.queue.concurrency = Concurrency::Fixed(1);
    for rk in 0..3 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    world.script(|_, _, _| async {
        Err(Failure::new(
            FailureClass::OutdatedCatalog,
            "reading the footprint",
            std::io::Error::other("generation 2"),
        ))
    });
    let mode = Mode::UntilIdle {
        quiet: SECOND,
        rechecks: Rechecks::Ignored,
    };
    let ended = world.worker().run(mode, CancellationToken::new()).await;
    assert!(matches!(ended, Err(WorkerError::OutdatedCatalog)));
    let messages = world.queues.messages(JOBS);
    assert_eq!(
        messages.iter().map(|message| message.count).sum::<u32>(),
        1,
        "only one was received"
    );
    assert_eq!(
        messages
            .iter()
            .map(super::super::testing::Stored::free)
            .sum::<u32>(),
        1,
        "and written off"
    );
}

#[tokio::test(start_paused = true)]
async fn one_unreadable_footprint_stops_its_own_job_only() {
    let mut world = World::new();
    world.queue.concurrency = Concurrency::Fixed(1);
    for rk in ["strange", "a", "b"] {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    world.script(|_, work, _| {
        let strange = format!("{work:?}").contains("strange");
        async move {
            if strange {
                return Err(Failure::new(
                    FailureClass::OutdatedCatalog,
                    "reading the footprint",
                    std::io::Error::other("generation 2"),
                ));
            }
            done()
        }
    });
    assert_eq!(world.run_for(Duration::from_mins(1)).await.done, 2);
    let messages = world.queues.messages(JOBS);
    assert_eq!(messages.len(), 1);
    assert_eq!(
        messages[0].free(),
        messages[0].count,
        "no delivery may count as an attempt"
    );
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_runs_forever_waits_for_its_store_and_one_until_idle_fails() {
    let world = World::new();
    world.queues.outage(Duration::ZERO..Duration::from_mins(2));
    world.queues.seed(JOBS, &sync("a"), None);
    assert!(matches!(
        world.until_idle().await,
        Err(WorkerError::Create { .. })
    ));
    assert_eq!(world.run_for(Duration::from_mins(3)).await.done, 1);
}
