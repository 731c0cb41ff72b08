//! Tests of messages with jobs for many primaries.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::poison::Reason;
use crate::testing::{JOBS, Op, RECHECK, World, done, permanent, sync, transient, withheld};
use evenkeel_engine::{Outcome, Recheck, Summary, Work};
use evenkeel_model::job::Primary;
use evenkeel_model::{EntityKey, TableName, body};

pub(super) fn batch(rks: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    let rks: Vec<String> = rks.into_iter().map(|rk| rk.to_string()).collect();
    body::encode(
        &json!({"op": "sync", "table": "Employees", "pk": "p", "rks": rks, "id": "mine"})
            .to_string(),
    )
}

pub(super) fn rk(work: &Work) -> String {
    match work {
        Work::Job(job) => job.key().unwrap().rk.to_string(),
        Work::Recheck(recheck) => recheck.primary.key.rk.to_string(),
    }
}

/// The RowKeys in the only message of the queue.
fn left(world: &World) -> Vec<String> {
    let messages = world.queues.messages(JOBS);
    let [message] = messages.as_slice() else {
        panic!("{} messages", messages.len())
    };
    let body: Value = serde_json::from_str(&body::decode(&message.text).unwrap().text).unwrap();
    body["rks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rk| rk.as_str().unwrap().to_owned())
        .collect()
}

/// The RowKeys of the poison messages, each of a single job.
async fn poisoned(world: &World) -> Vec<(String, Reason)> {
    let entries = world.poisoned().await;
    let rk = |text: &str| {
        serde_json::from_str::<Value>(text).unwrap()["rk"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let mut poisoned: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                rk(entry.message.body.as_deref().unwrap()),
                entry.message.reason,
            )
        })
        .collect();
    poisoned.sort_unstable();
    poisoned
}

#[tokio::test(start_paused = true)]
async fn a_hundred_jobs_of_one_message_run_side_by_side_and_cost_one_get_and_one_delete() {
    let world = World::new();
    world.queues.seed(JOBS, &batch(0..100), None);
    world.script(|_, _, _| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        done()
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.released, report.poisoned), (100, 0, 0));
    assert_eq!(
        (world.work.runs().len(), world.work.most_at_once(|_| true)),
        (100, 100)
    );
    assert_eq!(world.queues.calls(Op::Delete, JOBS).len(), 1);
    assert!(world.queues.calls(Op::Update, JOBS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_for_good_is_poisoned_alone_and_99_are_done() {
    let world = World::new();
    world.queues.seed(
        JOBS,
        &batch((0..99).map(|rk| rk.to_string()).chain(["bad".to_owned()])),
        None,
    );
    world.script(|_, work, _| {
        let bad = rk(work) == "bad";
        async move { if bad { permanent() } else { done() } }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.poisoned), (99, 1));
    let entry = world.poisoned().await.remove(0).message;
    let single: Value = serde_json::from_str(entry.body.as_deref().unwrap()).unwrap();
    assert_eq!(
        single,
        json!({"op": "sync", "table": "Employees", "pk": "p", "rk": "bad", "id": "mine"})
    );
    assert_eq!(
        (entry.reason, entry.error.as_str(), entry.op.as_deref()),
        (
            Reason::Permanent,
            "reading the primary: no such table",
            Some("sync")
        )
    );
    assert!(world.queues.messages(JOBS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn fields_that_no_job_of_a_batch_can_have_are_poisoned_once_and_those_that_none_reads_go_nowhere()
 {
    let long = "A".repeat(500_000);
    let text = |field: &str| {
        let rks: Vec<String> = (0..100).map(|rk| rk.to_string()).collect();
        body::pack(
            &json!({"op": "sync", "table": "Employees", "pk": "p", "rks": rks, field: long})
                .to_string(),
        )
        .unwrap()
    };
    let world = World::new();
    world.queues.seed(JOBS, &text("thorough"), None);
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.poisoned, world.work.runs().len()), (1, 0));
    let entry = world.poisoned().await.remove(0).message;
    assert!(
        entry.error.contains("thorough")
            && entry.error.contains("boolean")
            && entry.error.len() < 1_000,
        "{}",
        entry.error
    );
    assert!(
        entry.body.is_some_and(|body| body.len() < 5_000),
        "as it came"
    );

    let world = World::new();
    world.queues.seed(JOBS, &text("x"), None);
    world.script(|_, _, _| async { permanent() });
    assert_eq!(world.until_idle().await.unwrap().poisoned, 100);
    assert!(world.poisoned().await.iter().all(|entry| {
        entry
            .message
            .body
            .as_ref()
            .is_some_and(|body| body.len() < 200)
    }));
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_message_that_expires_while_their_poison_messages_are_put_are_not_lost() {
    let world = World::new();
    world
        .queues
        .seed(JOBS, &batch(0..100), Some(Duration::from_secs(20)));
    world.script(|_, _, _| async { transient() });
    world.queues.latency(Duration::from_millis(200));
    world.run_for(Duration::from_mins(2)).await;
    let poisoned = poisoned(&world).await;
    assert_eq!(poisoned.len(), 100);
    assert!(
        poisoned
            .iter()
            .all(|(_, reason)| *reason == Reason::Expired)
    );
    assert_eq!(world.work.given_up().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn jobs_that_were_not_begun_shortly_before_their_message_expires_are_not_lost() {
    let world = World::new();
    world
        .queues
        .seed(JOBS, &batch(0..300), Some(Duration::from_secs(11)));
    world.script(|_, _, _| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        done()
    });
    world.run_for(Duration::from_millis(1_500)).await;
    let poisoned = poisoned(&world).await;
    assert!(
        world.queues.messages(JOBS).is_empty(),
        "a released message would expire before any worker sees it"
    );
    assert!(
        poisoned.len() >= 100
            && poisoned
                .iter()
                .all(|(_, reason)| *reason == Reason::Expired),
        "{}",
        poisoned.len()
    );
}

#[tokio::test(start_paused = true)]
async fn every_job_of_a_message_that_is_poisoned_as_a_whole_is_given_up() {
    let world = World::new();
    world
        .queues
        .seed(JOBS, &batch(0..3), Some(Duration::from_secs(20)));
    world.script(|_, _, _| std::future::pending());
    world.run_for(Duration::from_mins(2)).await;
    assert_eq!(
        world.poisoned().await.remove(0).message.reason,
        Reason::Expired
    );
    assert_eq!(world.work.given_up().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_key_is_poisoned_without_a_run_and_an_unreadable_list_poisons_the_message() {
    let world = World::new();
    world.queues.seed(JOBS, &batch(["1", "a/b", "3"]), None);
    world.until_idle().await.unwrap();
    assert_eq!(
        (world.work.runs().len(), poisoned(&world).await),
        (2, vec![("a/b".to_owned(), Reason::Permanent)])
    );

    let world = World::new();
    world.queues.seed(
        JOBS,
        &body::encode(r#"{"op":"sync","table":"Employees","pk":"p","rks":[]}"#),
        None,
    );
    world.until_idle().await.unwrap();
    assert!(world.work.runs().is_empty());
    assert!(
        world
            .poisoned()
            .await
            .remove(0)
            .message
            .error
            .contains("has 0 primaries")
    );
}

#[tokio::test(start_paused = true)]
async fn transient_failures_stay_in_the_message_and_finished_jobs_do_not_run_again() {
    for answer in [transient as fn() -> _, withheld] {
        let world = World::new();
        world.queues.seed(JOBS, &batch(0..10), None);
        world.script(move |number, work, _| {
            let fails = number < 10 && ["3", "7"].contains(&rk(work).as_str());
            async move { if fails { answer() } else { done() } }
        });
        world.run_for(Duration::from_secs(1)).await;
        assert_eq!(left(&world), ["3", "7"]);
        assert_eq!(world.work.runs().len(), 10);
        let report = world.until_idle().await.unwrap();
        assert_eq!(
            (report.done, report.poisoned, world.work.runs().len()),
            (2, 0, 12)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_with_progress_is_charged_no_attempt_and_one_without_ends_like_single_jobs() {
    let world = World::new();
    world.queues.seed(JOBS, &batch(0..8), None);
    // Each delivery finishes one more job, and all remaining jobs panic.
    world.script(|_, work, delivery| {
        let panics = rk(work).parse::<u32>().unwrap() >= delivery.dequeue_count;
        async move {
            assert!(!panics, "index 7 is out of bounds");
            done()
        }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.poisoned), (8, 0));

    let world = World::new();
    world.queues.seed(JOBS, &batch(["a", "b"]), None);
    world.script(|_, _, _| async { panic!("index 7 is out of bounds") });
    world.until_idle().await.unwrap();
    assert_eq!(
        poisoned(&world).await,
        [
            ("a".to_owned(), Reason::Exhausted),
            ("b".to_owned(), Reason::Exhausted)
        ]
    );
    // Both jobs run in the first delivery. Then `a` runs alone until its fifth run, and is
    // poisoned. After that, attempts are counted from zero, and `b` runs alone five times.
    assert_eq!(
        (world.work.runs().len(), world.work.given_up().len()),
        (2 * 5 + 1, 2)
    );
}

/// The bad job hangs, and the worker crashes while the job runs. So none of its runs is settled, as
/// if the job had crashed the process.
#[tokio::test(start_paused = true)]
async fn a_job_of_a_batch_that_crashes_the_process_is_isolated_and_poisoned_alone() {
    for bad in [0, 5, 31, 32, 63] {
        let world = World::new();
        world.queues.seed(JOBS, &batch(0..64), None);
        world.script(move |_, work, _| {
            let bad = rk(work) == bad.to_string();
            async move {
                if bad {
                    std::future::pending().await
                } else {
                    done()
                }
            }
        });
        let mut crashes = 0;
        while !world.queues.messages(JOBS).is_empty() {
            world.crash_after(Duration::from_secs(61)).await;
            tokio::time::sleep(Duration::from_mins(2)).await;
            crashes += 1;
            assert!(crashes < 30, "{bad}: {:?} are left", left(&world));
        }
        assert_eq!(
            poisoned(&world).await,
            [(bad.to_string(), Reason::Exhausted)]
        );
        let done: BTreeSet<String> = world
            .work
            .runs()
            .into_iter()
            .filter(|run| run.to.is_some())
            .map(|run| run.rk)
            .collect();
        assert_eq!(done.len(), 63, "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn drain_writes_back_what_is_left() {
    let world = World::new();
    world.queues.seed(JOBS, &batch(0..250), None);
    world.script(|_, _, _| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        done()
    });
    let report = world.run_for(Duration::from_secs(5)).await;
    assert_eq!(
        (report.done, report.released),
        (100, 1),
        "jobs that have begun must end before the message is released"
    );
    assert_eq!(left(&world).len(), 150);
    assert_eq!(world.until_idle().await.unwrap().done, 150);
}

#[tokio::test(start_paused = true)]
async fn rechecks_of_one_message_end_one_by_one() {
    let world = World::new();
    let rechecks = ["bad", "busy", "good"].map(|rk| Recheck {
        primary: Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new("p", rk).unwrap(),
        },
        items: Vec::new(),
        chained: 0,
        taken_keys: None,
    });
    world
        .queues
        .seed(RECHECK, &Recheck::encode_all(&rechecks.each_ref()), None);
    world.script(|run, work, _| {
        let (rk, first) = (rk(work), run < 3);
        async move {
            match rk.as_str() {
                "bad" => permanent(),
                "busy" if first => transient(),
                _ => done(),
            }
        }
    });
    world.run_for(Duration::from_mins(2)).await;
    let runs: Vec<String> = world.work.runs().into_iter().map(|run| run.rk).collect();
    assert_eq!(
        runs,
        ["bad", "busy", "good", "busy"],
        "a finished job must not run again"
    );
    assert_eq!(
        poisoned(&world).await,
        [("bad".to_owned(), Reason::Permanent)]
    );
    let single = world.poisoned().await.remove(0).message.body.unwrap();
    assert_eq!(
        Recheck::decode(&single).as_ref(),
        Ok(&rechecks[0]),
        "as a message of its own"
    );
    assert!(world.queues.messages(RECHECK).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_outlives_half_of_its_time_saves_its_progress_and_goes_on() {
    let world = World::new();
    world.queues.seed(JOBS, &batch(0..500), None);
    world.script(|_, _, _| async {
        tokio::time::sleep(Duration::from_mins(4)).await;
        done()
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, world.work.runs().len()), (500, 500));
    assert_eq!(
        report.released, 2,
        "two groups of 100 jobs begin within five minutes of a delivery"
    );
}

#[tokio::test(start_paused = true)]
async fn jobs_of_batches_and_single_jobs_of_one_primary_take_turns_and_share_runs() {
    let world = World::new();
    world.queues.seed(JOBS, &batch(["a", "b"]), None);
    world.queues.seed(JOBS, &batch(["b", "a"]), None);
    world.queues.seed(JOBS, &sync("a"), None);
    world.script(|_, _, _| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(Outcome::Done(Summary::default()))
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!(report.done, 5);
    assert_eq!(world.work.most_at_once(|run| run.rk == "a"), 1);
    assert_eq!(
        world.work.runs().len(),
        4,
        "syncs that wait for the same primary share one run"
    );
}

/// Batches of jobs. Some jobs succeed, some fail sometimes, some take long, and some always fail.
fn load(world: &World) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut good, mut bad) = (BTreeSet::new(), BTreeSet::new());
    for size in [1, 2, 7, 30, 120] {
        let rks: Vec<String> = (0..size)
            .map(|at| {
                format!(
                    "{}-{size}-{at}",
                    ["plain", "flaky", "plain", "slow", "bad"][at % 5]
                )
            })
            .collect();
        world.queues.seed(JOBS, &batch(&rks), None);
        let (never, others): (Vec<_>, Vec<_>) =
            rks.into_iter().partition(|rk| rk.starts_with("bad"));
        good.extend(others);
        bad.extend(never);
    }
    world.script(|number, work, _| {
        let rk = rk(work);
        async move {
            tokio::time::sleep(if rk.starts_with("slow") {
                Duration::from_secs(45)
            } else {
                Duration::from_millis(100)
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

/// Describes what is wrong after a run with faults.
async fn wrong(
    world: &World,
    (good, bad): &(BTreeSet<String>, BTreeSet<String>),
) -> Option<String> {
    if !world.queues.messages(JOBS).is_empty() {
        return Some(format!("{:?} are not settled", left(world)));
    }
    let done: BTreeSet<String> = world
        .work
        .runs()
        .into_iter()
        .filter(|run| run.to.is_some())
        .map(|run| run.rk)
        .collect();
    if let Some(lost) = good.difference(&done).next() {
        return Some(format!("{lost} is lost"));
    }
    let poisoned: Vec<String> = poisoned(world)
        .await
        .into_iter()
        .map(|(rk, _)| rk)
        .collect();
    (poisoned != bad.iter().cloned().collect::<Vec<_>>())
        .then(|| format!("{poisoned:?} are poisoned"))
}

#[tokio::test(start_paused = true)]
async fn faults_and_crashes_lose_no_job_of_a_batch_and_poison_each_bad_one_once() {
    for seed in 0..60 {
        let (world, jobs) = super::faults::disturbed(seed, load).await;
        assert_eq!(wrong(&world, &jobs).await, None, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_message_that_another_receiver_has_are_counted_as_lost() {
    let world = World::new();
    world.queues.seed(JOBS, &batch(0..3), None);
    world.script(|_, _, _| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        done()
    });
    let steal = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.queues.steal(JOBS);
    };
    let (report, ()) = tokio::join!(world.until_idle(), steal);
    let report = report.unwrap();
    assert_eq!((report.done, report.lost), (3, 1), "{report:?}");
}
