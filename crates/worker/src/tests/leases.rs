use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::testing::{Effect, JOBS, Op, POISON, SECOND, World, done, from_to, put, sync};
use evenkeel_model::body;
use evenkeel_storage::ErrorClass;

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_at_half_and_its_last_receipt_deletes() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| async {
        sleep(Duration::from_secs(200)).await;
        done()
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!(report.done, 1);
    assert_eq!(world.work.runs().len(), 1, "nobody else got it");
    assert!(world.queues.messages(JOBS).is_empty());
    let renewals = world.queues.calls(Op::Update, JOBS);
    let gaps: Vec<Duration> = renewals
        .windows(2)
        .map(|pair| from_to(pair[0].at, pair[1].at))
        .collect();
    assert!(
        (6..=9).contains(&renewals.len()),
        "{} renewals of 200 s",
        renewals.len()
    );
    assert!(
        gaps.iter()
            .all(|gap| (23 * SECOND..=31 * SECOND).contains(gap)),
        "{gaps:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_short_job_is_deleted_without_a_renewal() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.until_idle().await.unwrap();
    assert!(world.queues.calls(Op::Update, JOBS).is_empty());
    assert_eq!(world.queues.calls(Op::Delete, JOBS).len(), 1);
}

/// Sets a script whose run writes every 100 ms.
fn writing(world: &World) -> Arc<AtomicU64> {
    let written = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&world.clock);
    let last = Arc::clone(&written);
    world.script(move |_, _, _| {
        let (clock, last) = (Arc::clone(&clock), Arc::clone(&last));
        async move {
            loop {
                last.store(
                    u64::try_from(evenkeel_storage::Clock::monotonic(clock.as_ref()).as_millis())
                        .unwrap(),
                    Ordering::SeqCst,
                );
                sleep(Duration::from_millis(100)).await;
            }
        }
    });
    written
}

#[tokio::test(start_paused = true)]
async fn no_write_after_the_lease() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    let written = writing(&world);
    world.queues.fail(
        Op::Update,
        JOBS,
        usize::MAX,
        ErrorClass::Refused,
        Effect::None,
    );
    world.run_for(Duration::from_secs(64)).await;
    let (got, runs) = (world.queues.calls(Op::Get, JOBS), world.work.runs());
    let first = got.iter().find(|call| call.at <= runs[0].from).unwrap();
    assert!(
        written.load(Ordering::SeqCst)
            <= u64::try_from((first.at + Duration::from_mins(1)).as_millis()).unwrap()
    );
    assert_eq!(runs.len(), 1);
    assert!(world.queues.calls(Op::Delete, JOBS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_slow_renewal_extends_the_lease_from_when_it_was_sent_not_from_its_answer() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    let written = writing(&world);
    let slow = async {
        sleep(SECOND).await;
        // Half of the latency passes before a request takes effect.
        world.queues.latency(20 * SECOND);
        sleep(59 * SECOND).await;
        world.queues.fail(
            Op::Update,
            JOBS,
            usize::MAX,
            ErrorClass::Refused,
            Effect::None,
        );
    };
    tokio::join!(world.run_for(Duration::from_secs(90)), slow);
    let renewed: Vec<Duration> = world
        .queues
        .calls(Op::Update, JOBS)
        .into_iter()
        .filter(|call| !call.failed)
        .map(|call| call.at)
        .collect();
    assert_eq!(renewed.len(), 1, "{renewed:?}");
    let visible = renewed[0] + Duration::from_mins(1);
    let last = Duration::from_millis(written.load(Ordering::SeqCst));
    assert!(
        last < visible,
        "the run wrote at {last:?}, but its message was visible from {visible:?} on"
    );
    assert!(
        last + 12 * SECOND > visible,
        "the run was dropped too early: at {last:?}, but its lease lasted until {visible:?}"
    );
}

/// Checks that a job of this length is done in one run, although the first renewals of its lease
/// fail.
async fn outlives_renewals(world: &World, failing: usize, takes: Duration) {
    world.queues.seed(JOBS, &sync("a"), None);
    world.queues.fail(
        Op::Update,
        JOBS,
        failing,
        ErrorClass::Transient { retry_after: None },
        Effect::None,
    );
    world.script(move |_, _, _| async move {
        sleep(takes).await;
        done()
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, world.work.runs().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_tried_again_until_the_lease_is_really_over() {
    let world = World::new();
    outlives_renewals(&world, 3, 100 * SECOND).await;
    let renewals = world.queues.calls(Op::Update, JOBS);
    let gaps: Vec<u64> = renewals
        .windows(2)
        .take(3)
        .map(|pair| from_to(pair[0].at, pair[1].at).as_secs())
        .collect();
    assert!(
        (12..=15).contains(&gaps[0]) && (5..=8).contains(&gaps[1]) && (3..=5).contains(&gaps[2]),
        "the gaps between renewals must halve, down to 5 s: {gaps:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_has_several_renewals_too() {
    let mut world = World::new();
    world.settings.lease = 10 * SECOND;
    outlives_renewals(&world, 2, 30 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_stops_the_run_at_once_and_nothing_is_deleted() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    let written = writing(&world);
    let stolen = async {
        sleep(Duration::from_secs(10)).await;
        world.queues.steal(JOBS);
    };
    let (report, ()) = tokio::join!(world.run_for(Duration::from_secs(50)), stolen);
    assert_eq!(report.lost, 1);
    assert!(
        written.load(Ordering::SeqCst) <= 31_000,
        "the run must be dropped when its first renewal fails"
    );
    assert!(world.queues.calls(Op::Delete, JOBS).is_empty());
    assert_eq!(world.queues.messages(JOBS).len(), 1);
}

/// Puts two jobs of one key. The second waits five seconds for its key. Meanwhile another worker
/// receives its message and may do the job.
async fn waits_while_its_message_is_shown(texts: &[String]) -> usize {
    let world = World::new();
    for text in texts {
        world.queues.seed(JOBS, text, None);
    }
    world.script(|_, _, _| async {
        sleep(5 * SECOND).await;
        done()
    });
    let shown = async {
        sleep(2 * SECOND).await;
        world.queues.steal(JOBS);
    };
    tokio::join!(world.run_for(Duration::from_secs(30)), shown);
    world.work.runs().len()
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waited_begins_only_if_its_lease_is_confirmed() {
    let batch =
        r#"{"op":"put","table":"Employees","entities":[{"PartitionKey":"p","RowKey":"a"}]}"#;
    for second in [put("a"), body::encode(batch)] {
        let texts = [put("a"), second];
        assert_eq!(
            waits_while_its_message_is_shown(&texts).await,
            1,
            "{texts:?}"
        );
    }
    assert_eq!(
        waits_while_its_message_is_shown(&[put("a"), sync("a")]).await,
        2,
        "a sync runs without a confirmation of its lease"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_did_not_wait_asks_for_no_confirmation() {
    let world = World::new();
    world.queues.seed(JOBS, &put("a"), None);
    world.until_idle().await.unwrap();
    assert!(world.queues.calls(Op::Update, JOBS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ends_while_its_lease_is_renewed_is_deleted_with_the_new_receipt() {
    let world = World::new();
    world.queues.latency(2 * SECOND);
    world.queues.seed(JOBS, &sync("a"), None);
    // Each renewal is sent 24 to 30 s after the Get Messages request, and takes 2 s. Each run takes
    // 25 s, so some runs end while the lease of their message is renewed.
    world.script(|_, _, _| async {
        sleep(Duration::from_secs(25)).await;
        done()
    });
    for rk in 0..30 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.lost), (31, 0));
    assert!(!world.queues.calls(Op::Update, JOBS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_delete_is_retried_and_one_that_took_effect_counts_as_done() {
    for (class, effect) in [
        (
            ErrorClass::Throttled {
                retry_after: Some(SECOND),
            },
            Effect::None,
        ),
        (ErrorClass::Refused, Effect::None),
        (ErrorClass::Ambiguous, Effect::None),
        (ErrorClass::Ambiguous, Effect::Taken),
    ] {
        let world = World::new();
        world.queues.seed(JOBS, &sync("a"), None);
        world.queues.fail(Op::Delete, JOBS, 2, class, effect);
        let report = world.until_idle().await.unwrap();
        assert_eq!(
            (report.done, world.work.runs().len()),
            (1, 1),
            "{class:?} {effect:?}"
        );
        assert!(world.queues.messages(JOBS).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_never_ends_is_cancelled_and_counts_as_an_attempt() {
    let world = World::new();
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| pending());
    world.until_idle().await.unwrap();
    let runs = world.work.runs();
    assert_eq!(runs.len(), 5);
    let poisoned = world.poisoned().await;
    assert_eq!(poisoned.len(), 1);
    assert!(
        poisoned[0].message.error.contains("job_timeout"),
        "{}",
        poisoned[0].message.error
    );
    assert_eq!(world.queues.messages(POISON).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_lease_exceeds_the_expiry_of_its_message_and_an_expiring_job_is_poisoned_not_lost() {
    let world = World::new();
    world
        .queues
        .seed(JOBS, &sync("a"), Some(Duration::from_secs(80)));
    world.script(|_, _, _| pending());
    world.run_for(Duration::from_secs(100)).await;
    let renewals = world.queues.calls(Op::Update, JOBS);
    assert!(
        renewals.iter().all(|call| !call.failed),
        "no lease may be longer than the life of the message: {renewals:?}"
    );
    let poisoned = world.poisoned().await;
    assert_eq!(poisoned[0].message.reason.name(), "expired");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_expires_while_it_waits_for_memory_is_poisoned_not_lost() {
    let mut world = World::new();
    world.settings.memory = 1;
    world.queues.seed(JOBS, &put("a"), None);
    world.queues.seed(JOBS, &put("b"), Some(150 * SECOND));
    world.script(|_, _, _| async {
        sleep(300 * SECOND).await;
        done()
    });
    world.until_idle().await.unwrap();
    let poisoned = world.poisoned().await;
    assert_eq!((world.work.runs().len(), poisoned.len()), (1, 1));
    assert_eq!(poisoned[0].message.reason.name(), "expired");
}
