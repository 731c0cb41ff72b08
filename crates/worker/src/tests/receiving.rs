use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::testing::{
    Effect, JOBS, Op, POISON, RECHECK, SECOND, World, at, done, from_to, sync, transient,
};
use crate::{Mode, Rechecks};
use evenkeel_engine::Recheck;
use evenkeel_model::job::Primary;
use evenkeel_model::settings::{Concurrency, PollInterval};
use evenkeel_model::{EntityKey, TableName};
use evenkeel_storage::{Clock as _, ErrorClass};

#[tokio::test(start_paused = true)]
async fn missing_queues_are_created() {
    let mut world = World::new();
    world.queue.shards = 3;
    world.until_idle().await.unwrap();
    for queue in [
        "evenkeel-jobs-00",
        "evenkeel-jobs-01",
        "evenkeel-jobs-02",
        POISON,
        RECHECK,
    ] {
        assert!(world.queues.exists(queue), "{queue}");
    }
    assert!(!world.queues.exists(JOBS));
}

#[tokio::test(start_paused = true)]
async fn a_queue_counts_as_answering_while_every_slot_is_taken() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _here = metrics::set_default_local_recorder(&recorder);
    let mut world = World::new();
    world.queue.concurrency = Concurrency::Fixed(2);
    for rk in 0..4 {
        world.queues.seed(JOBS, &sync(rk), None);
    }
    world.script(|_, _, _| async {
        sleep(Duration::from_mins(9)).await;
        done()
    });
    world.run_for(Duration::from_mins(5)).await;
    assert_eq!(
        world.queues.calls(Op::Get, JOBS).len(),
        1,
        "it is not asked"
    );
    let text = recorder.handle().render();
    let value = text
        .lines()
        .find_map(|line| {
            line.strip_prefix("evenkeel_last_poll_timestamp_seconds{queue=\"evenkeel-jobs\"} ")
        })
        .unwrap();
    let answered: f64 = value.parse().unwrap();
    assert!(
        answered
            > at(Duration::from_secs(4 * 60 + 30))
                .as_duration()
                .as_secs_f64(),
        "{value}"
    );
}

#[tokio::test(start_paused = true)]
async fn never_more_than_the_free_slots_are_got() {
    for (concurrency, shards) in [(1, 1), (10, 1), (64, 1), (100, 1), (10, 4)] {
        let mut world = World::new();
        world.queue.concurrency = Concurrency::Fixed(concurrency);
        world.queue.shards = shards;
        let queues = world.queue.shard_names();
        for (number, queue) in (0..300).zip(queues.iter().cycle()) {
            world.queues.seed(queue.as_str(), &sync(number), None);
        }
        world.script(|number, _, _| async move {
            sleep(Duration::from_millis(100 + 37 * (number as u64 % 11))).await;
            done()
        });
        let report = world.until_idle().await.unwrap();
        assert_eq!(report.done, 300);
        let most = world.work.most_at_once(|_| true);
        assert!(
            most <= concurrency,
            "{most} at once with {concurrency} slots"
        );
        assert!(
            most * 10 >= concurrency * 9,
            "only {most} at once with {concurrency} slots"
        );
        let requested = queues
            .iter()
            .flat_map(|queue| world.queues.calls(Op::Get, queue.as_str()))
            .map(|call| call.max)
            .max();
        assert!(requested <= Some(u32::try_from(concurrency.min(32)).unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_got_in_full_batches_without_a_pause() {
    let world = World::new();
    for number in 0..640 {
        world.queues.seed(JOBS, &sync(number), None);
    }
    world.until_idle().await.unwrap();
    let gets = world.queues.calls(Op::Get, JOBS);
    assert!(gets.iter().take(20).all(|call| call.max == 32));
    assert!(
        from_to(gets[0].at, gets[19].at) < Duration::from_millis(200),
        "{:?}",
        from_to(gets[0].at, gets[19].at)
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_queue_is_polled_less_and_less_and_a_new_job_is_found_within_the_longest_wait() {
    let world = World::new();
    let put = async {
        sleep(Duration::from_mins(10)).await;
        world.queues.seed(JOBS, &sync("a"), None);
    };
    tokio::join!(world.run_for(Duration::from_secs(620)), put);
    let polls = world.queues.calls(Op::Get, JOBS);
    assert!(
        (100..170).contains(
            &polls
                .iter()
                .filter(|call| call.at < Duration::from_mins(10))
                .count()
        ),
        "{} polls",
        polls.len()
    );
    assert!(world.work.runs()[0].from < Duration::from_millis(606_100));
}

/// The default poll interval.
const POLL: PollInterval = PollInterval {
    min: Duration::from_millis(100),
    max: Duration::from_millis(1_500),
};

#[tokio::test(start_paused = true)]
async fn an_idle_worker_begins_a_new_job_within_a_second_in_the_median() {
    let mut world = World::new();
    world.settings.poll = POLL;
    let mut put_at = Vec::new();
    let put = async {
        for number in 0..41 {
            // Long enough for the worker to become idle. Each message arrives at a different time
            // between two polls.
            sleep(Duration::from_millis(60_000 + 377 * (number % 13))).await;
            put_at.push(world.clock.monotonic());
            world.queues.seed(JOBS, &sync(number), None);
        }
    };
    tokio::join!(world.run_for(Duration::from_mins(45)), put);
    let mut waits: Vec<Duration> = world
        .work
        .runs()
        .iter()
        .zip(&put_at)
        .map(|(run, put)| run.from.saturating_sub(*put))
        .collect();
    assert_eq!(waits.len(), 41);
    waits.sort();
    assert!(waits[20] <= SECOND, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_ring_wakes_an_idle_worker_at_once_and_a_false_one_is_cheap() {
    let world = World::new();
    let worker = world.worker();
    let doorbell = worker.doorbell();
    let shutdown = CancellationToken::new();
    let mut rung_at = Duration::ZERO;
    let ring = async {
        sleep(Duration::from_mins(10)).await;
        let before = world.queues.calls(Op::Get, JOBS).len();
        assert_eq!(doorbell.ring(None), 1);
        sleep(Duration::from_mins(1)).await;
        let polls = world.queues.calls(Op::Get, JOBS).len() - before;
        assert!(
            (12..=22).contains(&polls),
            "unexpected number of polls in the minute after a needless ring: {polls}"
        );
        world.queues.seed(JOBS, &sync("a"), None);
        rung_at = world.clock.monotonic();
        assert_eq!(doorbell.ring(Some(&world.queue.name)), 1);
        sleep(SECOND).await;
        shutdown.cancel();
    };
    tokio::join!(worker.run(Mode::Forever, shutdown.clone()), ring)
        .0
        .unwrap();
    assert!(world.work.runs()[0].from.saturating_sub(rung_at) <= Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_fails_is_not_polled_sooner_for_a_ring() {
    let world = World::new();
    let worker = world.worker();
    let doorbell = worker.doorbell();
    world.queues.fail(
        Op::Get,
        JOBS,
        usize::MAX,
        ErrorClass::Transient {
            retry_after: Some(Duration::from_mins(1)),
        },
        Effect::None,
    );
    let shutdown = CancellationToken::new();
    let ring = async {
        sleep(SECOND).await;
        let before = world.queues.calls(Op::Get, JOBS).len();
        doorbell.ring(None);
        sleep(30 * SECOND).await;
        assert_eq!(world.queues.calls(Op::Get, JOBS).len(), before);
        shutdown.cancel();
    };
    tokio::join!(worker.run(Mode::Forever, shutdown.clone()), ring)
        .0
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn recheck_queues_are_polled_less_often() {
    let mut world = World::new();
    world.settings.poll = POLL;
    world.run_for(Duration::from_hours(1)).await;
    let (jobs, rechecks) = (
        world.queues.calls(Op::Get, JOBS).len(),
        world.queues.calls(Op::Get, RECHECK).len(),
    );
    assert!(rechecks * 7 < jobs, "{rechecks} and {jobs}");
}

#[tokio::test(start_paused = true)]
async fn a_throttled_partition_only_slows_its_own_jobs() {
    let mut world = World::new();
    world.queue.concurrency = Concurrency::Fixed(4);
    for number in 0..40 {
        world
            .queues
            .seed(JOBS, &sync(format!("hot-{number}")), None);
        world
            .queues
            .seed(JOBS, &sync(format!("cold-{number}")), None);
    }
    let clock = std::sync::Arc::clone(&world.clock);
    world.script(move |_, work, _| {
        let hot = matches!(work, evenkeel_engine::Work::Job(job) if job.key().unwrap().rk.as_str().starts_with("hot"));
        let throttled = hot && clock.monotonic() < Duration::from_mins(3);
        async move { if throttled { transient() } else { done() } }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.poisoned), (80, 0));
    let cold = world
        .work
        .runs()
        .iter()
        .filter(|run| run.rk.starts_with("cold"))
        .map(|run| run.from)
        .max()
        .unwrap();
    assert!(
        cold < Duration::from_secs(5),
        "the jobs of other keys must not wait: the last one began at {cold:?}"
    );
}

fn recheck(rk: &str) -> String {
    let primary = Primary {
        table: TableName::new("Employees").unwrap(),
        key: EntityKey::new("p", rk).unwrap(),
    };
    Recheck {
        primary,
        items: Vec::new(),
        chained: 0,
        taken_keys: None,
    }
    .encode()
}

#[tokio::test(start_paused = true)]
async fn a_run_until_idle_waits_for_released_jobs_and_for_rechecks_only_if_requested() {
    for rechecks in [Rechecks::Ignored, Rechecks::Awaited] {
        let world = World::new();
        world.queues.seed(JOBS, &sync("a"), None);
        world.script(|number, _, _| async move { if number < 3 { transient() } else { done() } });
        evenkeel_storage::QueueStore::create_queue(
            world.queues.as_ref(),
            &world.queue.name.with_suffix("-recheck").unwrap(),
        )
        .await
        .unwrap();
        let recheck_queue = world.queue.name.with_suffix("-recheck").unwrap();
        let after = Duration::from_mins(26);
        evenkeel_storage::QueueStore::put(
            world.queues.as_ref(),
            &recheck_queue,
            &recheck("b"),
            after,
            evenkeel_storage::Ttl::Never,
        )
        .await
        .unwrap();
        let mode = Mode::UntilIdle {
            quiet: SECOND,
            rechecks,
        };
        let report = world
            .worker()
            .run(mode, CancellationToken::new())
            .await
            .unwrap();
        let expected = match rechecks {
            Rechecks::Ignored => 1,
            Rechecks::Awaited => 2,
        };
        assert_eq!((report.done, report.released), (expected, 3));
        assert_eq!(
            world.clock.monotonic() > after,
            rechecks == Rechecks::Awaited
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_until_idle_of_empty_queues_takes_the_quiet_time() {
    let world = World::new();
    world.until_idle().await.unwrap();
    assert!(
        (SECOND..2 * SECOND).contains(&world.clock.monotonic()),
        "{:?}",
        world.clock.monotonic()
    );
}

#[tokio::test(start_paused = true)]
async fn every_run_is_repeatable_from_its_seed() {
    let mut courses = Vec::new();
    for _ in 0..2 {
        let world = World::new();
        for number in 0..50 {
            world.queues.seed(JOBS, &sync(number % 20), None);
        }
        world.script(|number, _, _| async move {
            sleep(Duration::from_millis(10 * (number as u64 % 7))).await;
            if number % 5 == 0 { transient() } else { done() }
        });
        world.until_idle().await.unwrap();
        courses.push(
            world
                .work
                .runs()
                .into_iter()
                .map(|run| (run.message, run.from, run.to))
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(courses[0], courses[1]);
}
