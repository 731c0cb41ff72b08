//! Tests that only one job runs per key.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::poison::Reason;
use crate::testing::{
    Effect, JOBS, Op, RECHECK, SECOND, World, done, from_to, put, sync, transient,
};
use crate::{Mode, Rechecks};
use evenkeel_engine::{Work, exclude_from_timeout};
use evenkeel_model::settings::Concurrency;
use evenkeel_storage::{Clock as _, ErrorClass};

#[tokio::test(start_paused = true)]
async fn two_jobs_of_one_key_never_run_at_once_and_other_keys_do() {
    let world = World::new();
    for rk in ["a", "b", "a", "b", "a", "b"] {
        world.queues.seed(JOBS, &put(rk), None);
    }
    world.script(|_, _, _| async {
        sleep(SECOND).await;
        done()
    });
    world.until_idle().await.unwrap();
    assert_eq!(world.work.most_at_once(|run| run.rk == "a"), 1);
    assert_eq!(world.work.most_at_once(|_| true), 2);
    assert_eq!(world.work.runs().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn jobs_of_one_key_run_in_order_of_arrival() {
    let world = World::new();
    let ids: Vec<String> = (0..5)
        .map(|_| world.queues.seed(JOBS, &put("a"), None))
        .collect();
    world.until_idle().await.unwrap();
    let ran: Vec<String> = world
        .work
        .runs()
        .into_iter()
        .map(|run| run.message)
        .collect();
    assert_eq!(ran, ids);
}

#[tokio::test(start_paused = true)]
async fn coalesced_syncs_are_deleted_after_one_run_that_began_after_they_were_received() {
    let world = World::new();
    for _ in 0..20 {
        world.queues.seed(JOBS, &sync("a"), None);
    }
    world.script(|_, _, _| async {
        sleep(SECOND).await;
        done()
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!(report.done, 20);
    let runs = world.work.runs();
    assert_eq!(
        runs.len(),
        2,
        "while the first sync runs, all further syncs must wait for one shared run"
    );
    let deletes = world.queues.calls(Op::Delete, JOBS);
    assert_eq!(
        deletes
            .iter()
            .filter(|call| call.at < runs[1].from + SECOND)
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_a_redelivered_sync_shares_is_a_redelivery() {
    let world = World::new();
    let redelivered = world.queues.seed(JOBS, &sync("a"), None);
    world
        .queues
        .fail(Op::Get, JOBS, 1, ErrorClass::Ambiguous, Effect::Taken);
    world.script(|_, _, _| async {
        sleep(10 * SECOND).await;
        done()
    });
    let others = async {
        sleep(55 * SECOND).await;
        (0..2)
            .map(|_| world.queues.seed(JOBS, &sync("a"), None))
            .collect::<Vec<_>>()
    };
    let (_, others) = tokio::join!(world.run_for(Duration::from_secs(100)), others);
    let runs = world.work.runs();
    let deliveries: Vec<_> = runs
        .iter()
        .map(|run| (run.message.as_str(), run.dequeue_count))
        .collect();
    assert_eq!(
        deliveries,
        [(others[0].as_str(), 1), (others[1].as_str(), 2)],
        "the second run must cover {redelivered} and count as a redelivery"
    );
    assert!(world.queues.messages(JOBS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_scarce_resource_does_not_use_up_the_time_of_a_run() {
    let mut world = World::new();
    world.settings.job_timeout = Duration::from_mins(10);
    for rk in 0..64 {
        world.queues.seed(JOBS, &put(rk), None);
    }
    let scarce = Arc::new(Semaphore::new(2));
    world.script(move |_, _, _| {
        let scarce = Arc::clone(&scarce);
        async move {
            let _one = exclude_from_timeout(scarce.acquire()).await;
            sleep(Duration::from_mins(1)).await;
            done()
        }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.released, report.poisoned), (64, 0, 0));
    assert!(
        world.clock.monotonic() > Duration::from_mins(30),
        "the last job must have waited for half an hour"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_hangs_is_cut_off_after_its_time_however_long_it_waited() {
    let mut world = World::new();
    world.settings.job_timeout = Duration::from_mins(10);
    world.queues.seed(JOBS, &put("a"), None);
    world.script(|number, _, _| async move {
        exclude_from_timeout(sleep(Duration::from_mins(20))).await;
        if number == 0 {
            std::future::pending().await
        } else {
            done()
        }
    });
    world.until_idle().await.unwrap();
    let runs = world.work.runs();
    let again = from_to(runs[0].from, runs[1].from);
    assert!(
        (Duration::from_mins(30)..Duration::from_mins(31)).contains(&again),
        "{again:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_coalesced_run_that_fails_fails_for_all_its_jobs() {
    let world = World::new();
    for _ in 0..5 {
        world.queues.seed(JOBS, &sync("a"), None);
    }
    world.script(|number, _, _| async move {
        sleep(SECOND).await;
        if number < 2 { transient() } else { done() }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.released, report.poisoned), (5, 5, 0));
}

#[tokio::test(start_paused = true)]
async fn waiting_jobs_keep_their_leases() {
    let world = World::new();
    for _ in 0..3 {
        world.queues.seed(JOBS, &put("a"), None);
    }
    world.script(|_, _, _| async {
        sleep(Duration::from_secs(70)).await;
        done()
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.lost), (3, 0));
    assert_eq!(world.work.runs().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_leaves_slots_to_others_and_costs_its_jobs_no_attempt() {
    let mut world = World::new();
    world.queue.concurrency = Concurrency::Fixed(8);
    for _ in 0..30 {
        world.queues.seed(JOBS, &put("hot"), None);
    }
    for rk in 0..10 {
        world.queues.seed(JOBS, &put(rk), None);
    }
    world.script(|_, work, _| {
        let hot = matches!(work, evenkeel_engine::Work::Job(job) if job.key().unwrap().rk.as_str() == "hot");
        async move {
            sleep(if hot { Duration::from_secs(30) } else { SECOND }).await;
            done()
        }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.poisoned), (40, 0));
    let cold = world
        .work
        .runs()
        .iter()
        .filter(|run| run.rk != "hot")
        .map(|run| run.from)
        .max()
        .unwrap();
    assert!(
        cold < Duration::from_mins(1),
        "the jobs of other keys must not wait: the last one began at {cold:?}"
    );
}

fn recheck() -> evenkeel_engine::Recheck {
    let table = evenkeel_model::TableName::new("Employees").unwrap();
    let key = evenkeel_model::EntityKey::new("p", "a").unwrap();
    evenkeel_engine::Recheck {
        primary: evenkeel_model::job::Primary { table, key },
        items: Vec::new(),
        chained: 0,
        taken_keys: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_queued_by_a_recheck_is_like_any_other() {
    let world = World::new();
    world.queues.seed(RECHECK, &recheck().encode(), None);
    world.script(|_, _, delivery| {
        assert_eq!(
            (
                delivery.propagation_queue.as_str(),
                delivery.recheck_queue.as_str()
            ),
            (JOBS, RECHECK)
        );
        async { done() }
    });
    world.run_for(Duration::from_secs(20)).await;
    assert_eq!(world.work.runs().len(), 1);
    assert!(world.poisoned().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_recheck_and_a_job_of_one_primary_never_run_at_once() {
    let world = World::new();
    let recheck = recheck();
    for _ in 0..3 {
        world.queues.seed(JOBS, &put("a"), None);
        world.queues.seed(RECHECK, &recheck.encode(), None);
    }
    world.script(|_, _, _| async {
        sleep(SECOND).await;
        done()
    });
    world.run_for(Duration::from_secs(20)).await;
    assert_eq!(
        (world.work.runs().len(), world.work.most_at_once(|_| true)),
        (6, 1)
    );
}

/// One of forty jobs, all received by the same polls, crashes the process whenever it runs.
#[tokio::test(start_paused = true)]
async fn a_job_that_crashes_the_process_is_poisoned_without_others() {
    for first in [true, false] {
        let world = World::new();
        let neighbours =
            |from, to| (from..to).for_each(|rk| drop(world.queues.seed(JOBS, &put(rk), None)));
        neighbours(0, if first { 0 } else { 39 });
        let bad = world.queues.seed(JOBS, &put("bad"), None);
        neighbours(if first { 0 } else { 39 }, 39);
        let down = Arc::new(Notify::new());
        let goes_down = Arc::clone(&down);
        world.script(move |_, work, _| {
            let bad = matches!(work, Work::Job(job) if job.key().is_some_and(|key| key.rk.as_str() == "bad"));
            let goes_down = Arc::clone(&goes_down);
            async move {
                sleep(if bad { SECOND } else { 2 * SECOND }).await;
                if bad {
                    goes_down.notify_one();
                }
                done()
            }
        });
        let mut crashes = 0;
        loop {
            let mode = Mode::UntilIdle {
                quiet: SECOND,
                rechecks: Rechecks::Ignored,
            };
            let worker = world.worker();
            tokio::select! {
                biased;
                () = down.notified() => crashes += 1,
                report = worker.run(mode, CancellationToken::new()) => {
                    report.unwrap();
                    break;
                }
            }
            sleep(Duration::from_mins(2)).await;
        }
        let poisoned: Vec<_> = world
            .poisoned()
            .await
            .into_iter()
            .map(|entry| (entry.message.message_id, entry.message.reason))
            .collect();
        assert_eq!((poisoned, crashes), (vec![(bad, Reason::Exhausted)], 6));
    }
}
