//! Tests with faults at every operation, in order and at random. Whatever fails, every message that
//! was put must be done or poisoned, and only bad jobs may be poisoned.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::Mode;
use crate::testing::{
    Effect, JOBS, Op, POISON, SECOND, Seeded, World, done, permanent, put, sync, transient,
};
use evenkeel_engine::Work;
use evenkeel_model::settings::Concurrency;
use evenkeel_storage::{Clock as _, ErrorClass, Rng as _};

/// A mixed load: jobs that succeed, that fail once, that always fail, that take longer than half a
/// lease, and syncs of one key.
fn load(world: &World) -> (Vec<String>, Vec<String>) {
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for number in 0..4 {
        good.push(
            world
                .queues
                .seed(JOBS, &put(format!("plain-{number}")), None),
        );
        good.push(
            world
                .queues
                .seed(JOBS, &put(format!("slow-{number}")), None),
        );
        good.push(
            world
                .queues
                .seed(JOBS, &put(format!("flaky-{number}")), None),
        );
        good.push(world.queues.seed(JOBS, &put("same"), None));
        world.queues.seed(JOBS, &sync("coalesced"), None);
        bad.push(world.queues.seed(JOBS, &put(format!("bad-{number}")), None));
    }
    world.script(|number, work, _| {
        let rk = match work {
            Work::Job(job) => job.key().unwrap().rk.to_string(),
            Work::Recheck(recheck) => recheck.primary.key.rk.to_string(),
        };
        async move {
            sleep(if rk.starts_with("slow") {
                Duration::from_secs(45)
            } else {
                SECOND / 10
            })
            .await;
            match rk.split('-').next() {
                Some("bad") => permanent(),
                Some("flaky") if number % 3 == 0 => transient(),
                _ => done(),
            }
        }
    });
    (good, bad)
}

async fn nothing_is_lost(world: &World, good: &[String], bad: &[String], case: &str) {
    assert!(
        world.queues.messages(JOBS).is_empty(),
        "{case}: not all are settled"
    );
    let runs = world.work.runs();
    for id in good {
        assert!(
            runs.iter()
                .any(|run| run.message == *id && run.to.is_some()),
            "{case}: {id} is lost"
        );
    }
    assert!(
        runs.iter()
            .any(|run| run.rk == "coalesced" && run.to.is_some()),
        "{case}: the syncs are lost"
    );
    let poisoned: Vec<String> = world
        .poisoned()
        .await
        .into_iter()
        .map(|entry| entry.message.message_id)
        .collect();
    assert!(
        bad.iter().all(|id| poisoned.contains(id)),
        "{case}: a bad job is lost"
    );
    assert_eq!(
        poisoned.len(),
        bad.len(),
        "{case}: a good job is poisoned: {poisoned:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn any_failure_of_any_operation_loses_and_poisons_nothing() {
    let classes = [
        ErrorClass::Throttled { retry_after: None },
        ErrorClass::Throttled {
            retry_after: Some(Duration::from_secs(20)),
        },
        ErrorClass::Refused,
        ErrorClass::Transient { retry_after: None },
        ErrorClass::Ambiguous,
        ErrorClass::LeaseLost,
        ErrorClass::Permanent,
        ErrorClass::Unauthorised,
        ErrorClass::TooLarge,
    ];
    let mut cases = 0;
    for (op, queue) in [
        (Op::Get, JOBS),
        (Op::Update, JOBS),
        (Op::Delete, JOBS),
        (Op::Count, JOBS),
        (Op::Put, POISON),
    ] {
        for class in classes {
            for effect in [Effect::None, Effect::Taken] {
                for times in [1, 4, 12] {
                    let world = World::new();
                    let (good, bad) = load(&world);
                    world.queues.fail(op, queue, times, class, effect);
                    world.until_idle().await.unwrap();
                    nothing_is_lost(
                        &world,
                        &good,
                        &bad,
                        &format!("{times} × {op:?} {class:?} {effect:?}"),
                    )
                    .await;
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 270);
}

/// Two workers share a queue for ten minutes of faults, and one of them crashes now and then.
pub(super) async fn disturbed<L>(seed: u64, load: impl Fn(&World) -> L) -> (World, L) {
    let mut world = World::new();
    let rng = Seeded(AtomicU64::new(seed));
    world.queue.concurrency = Concurrency::Fixed(1 + usize::try_from(rng.next_u64() % 40).unwrap());
    let loaded = load(&world);
    evenkeel_storage::QueueStore::create_queue(
        world.queues.as_ref(),
        &world.queue.name.with_suffix("-recheck").unwrap(),
    )
    .await
    .unwrap();
    evenkeel_storage::QueueStore::create_queue(
        world.queues.as_ref(),
        &world.queue.name.with_suffix("-poison").unwrap(),
    )
    .await
    .unwrap();
    world
        .queues
        .storm(seed, rng.between(0.02, 0.5), Duration::from_mins(10));
    if rng.unit() < 0.5 {
        let from = Duration::from_secs(rng.next_u64() % 300);
        world
            .queues
            .outage(from..from + Duration::from_secs(rng.next_u64() % 300));
    }
    if rng.unit() < 0.5 {
        world
            .health
            .open_for(Duration::from_secs(rng.next_u64() % 200));
    }
    let shutdown = CancellationToken::new();
    let steady = world.worker();
    let crashing = async {
        for _ in 0..3 {
            world
                .crash_after(Duration::from_secs(1 + rng.next_u64() % 150))
                .await;
        }
        sleep(Duration::from_mins(10).saturating_sub(world.clock.monotonic())).await;
        shutdown.cancel();
    };
    let (report, ()) = tokio::join!(steady.run(Mode::Forever, shutdown.clone()), crashing);
    report.unwrap();
    assert!(
        world.clock.monotonic() < Duration::from_mins(11),
        "seed {seed}: it did not end"
    );
    world.until_idle().await.unwrap();
    (world, loaded)
}

#[tokio::test(start_paused = true)]
async fn faults_and_crashes_lose_and_poison_nothing() {
    for seed in 0..150 {
        let (world, (good, bad)) = disturbed(seed, load).await;
        nothing_is_lost(&world, &good, &bad, &format!("seed {seed}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn under_faults_one_worker_still_runs_one_job_per_key_within_its_slots() {
    for seed in 0..50 {
        let mut world = World::new();
        world.queue.concurrency = Concurrency::Fixed(8);
        let _ = load(&world);
        world.queues.storm(seed, 0.3, Duration::from_mins(5));
        world.run_for(Duration::from_mins(6)).await;
        assert_eq!(
            world.work.most_at_once(|run| run.rk == "same"),
            1,
            "seed {seed}"
        );
        assert!(world.work.most_at_once(|_| true) <= 8, "seed {seed}");
    }
}
