//! Tests of the end of a run.

use std::future::pending;
use std::time::Duration;

use tokio::time::sleep;

use crate::testing::{Effect, JOBS, Op, SECOND, World, done, put, sync};
use evenkeel_storage::{Clock as _, ErrorClass};

#[tokio::test(start_paused = true)]
async fn drain_waits_for_running_jobs() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| async {
        sleep(Duration::from_secs(10)).await;
        done()
    });
    let report = world.run_for(SECOND).await;
    assert_eq!((report.done, report.released), (1, 0));
    assert!(world.clock.monotonic() < Duration::from_secs(12));
}

#[tokio::test(start_paused = true)]
async fn drain_releases_messages_at_once_and_charges_no_attempt() {
    let world = World::new();
    for rk in 0..40 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    world.script(|_, _, _| pending());
    let report = world.run_for(SECOND).await;
    assert_eq!(report.released, 40);
    assert!(
        world.clock.monotonic() < Duration::from_secs(27),
        "{:?}",
        world.clock.monotonic()
    );
    for message in world.queues.messages(JOBS) {
        assert_eq!((message.count, message.free()), (1, 1));
        assert!(message.visible <= world.clock.monotonic());
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_wait_for_their_turn_are_released_at_once() {
    let world = World::new();
    for _ in 0..3 {
        world.queues.seed(JOBS, &put("a"), None);
    }
    world.script(|_, _, _| async {
        sleep(Duration::from_secs(10)).await;
        done()
    });
    let report = world.run_for(SECOND).await;
    assert_eq!((report.done, report.released), (1, 2));
    let released = world.queues.calls(Op::Update, JOBS);
    assert!(
        released
            .iter()
            .all(|call| call.at < 2 * SECOND && call.visibility == Duration::ZERO)
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_received_after_the_signal_and_messages_of_a_pending_get_are_released() {
    let world = World::new();
    world.queues.latency(2 * SECOND);
    world.queues.seed(JOBS, &sync("a"), None);
    // Queues are created until 6 s; the Get takes effect at 7 s and is answered at 8 s.
    let report = world.run_for(Duration::from_millis(7_500)).await;
    assert_eq!(report.released, 1);
    assert!(world.work.runs().is_empty());
    let message = world.queues.messages(JOBS).remove(0);
    assert_eq!((message.count, message.free()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn without_time_to_drain_messages_of_a_pending_get_are_released_too() {
    let mut world = World::new();
    world.settings.drain = Duration::ZERO;
    world.queues.latency(SECOND);
    world.queues.seed(JOBS, &sync("a"), None);
    // Queues are created until 3 s; the Get takes effect at 3.5 s and is answered at 4 s.
    let report = world.run_for(Duration::from_millis(3_750)).await;
    assert_eq!(report.released, 1);
    let message = world.queues.messages(JOBS).remove(0);
    assert_eq!((message.count, message.free()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_does_not_keep_the_program_from_ending() {
    let world = World::new();
    for rk in 0..10 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    world.script(|_, _, _| pending());
    world.queues.fail(
        Op::Update,
        JOBS,
        usize::MAX,
        ErrorClass::Refused,
        Effect::None,
    );
    let report = world.run_for(SECOND).await;
    assert_eq!(report.lost, 10);
    assert!(
        world.clock.monotonic() < Duration::from_secs(31),
        "{:?}",
        world.clock.monotonic()
    );
}

#[tokio::test(start_paused = true)]
async fn a_crash_loses_nothing() {
    let world = World::new();
    for rk in 0..100 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    world.script(|_, _, _| async {
        sleep(Duration::from_millis(300)).await;
        done()
    });
    world.crash_after(Duration::from_millis(450)).await;
    assert!(!world.queues.messages(JOBS).is_empty());
    world.until_idle().await.unwrap();
    let mut done: Vec<String> = world
        .work
        .runs()
        .into_iter()
        .filter(|run| run.to.is_some())
        .map(|run| run.rk)
        .collect();
    done.sort();
    done.dedup();
    assert_eq!(done.len(), 100);
}
