//! Tests of the reports to an observer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::batches::{batch, rk};
use crate::testing::{JOBS, RECHECK, World, done, permanent, put, sync, transient};
use crate::{DeliveryReport, DeliveryStatus, Mode, Observer, Rechecks};
use evenkeel_engine::{Action, ItemChange, Outcome, Recheck, Summary, record_unreported};
use evenkeel_model::job::Primary;
use evenkeel_model::{AccountName, EntityKey, TableName, ViewName};

#[derive(Default)]
struct RecordingObserver {
    ended: Mutex<Vec<DeliveryReport>>,
    changed: Mutex<usize>,
    found: Mutex<Vec<Duration>>,
}

impl Observer for RecordingObserver {
    fn ended(&self, delivery: DeliveryReport) {
        self.ended.lock().unwrap().push(delivery);
    }

    fn changed(&self, changes: &[ItemChange]) {
        *self.changed.lock().unwrap() += changes.len();
    }

    fn found(&self, after: Duration) {
        self.found.lock().unwrap().push(after);
    }
}

async fn run_observed(world: &World) -> Arc<RecordingObserver> {
    let observer = Arc::<RecordingObserver>::default();
    let worker = world
        .worker()
        .observed_by(Arc::clone(&observer) as Arc<dyn Observer>);
    let mode = Mode::UntilIdle {
        quiet: Duration::from_secs(1),
        rechecks: Rechecks::Ignored,
    };
    worker.run(mode, CancellationToken::new()).await.unwrap();
    observer
}

fn endings(observer: &RecordingObserver) -> Vec<DeliveryStatus> {
    observer
        .ended
        .lock()
        .unwrap()
        .iter()
        .map(|delivery| delivery.ending)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn each_delivery_is_reported_with_its_key_its_changes_and_its_outcome() {
    let world = World::new();
    world.script(|number, _, _| async move {
        let change = ItemChange {
            view: ViewName::new("by_email").unwrap(),
            account: AccountName::main(),
            action: Action::Create,
        };
        match number {
            0 => transient(),
            _ => Ok(Outcome::Done(Summary {
                changes: vec![change; 100],
                ..Summary::default()
            })),
        }
    });
    world.queues.seed(JOBS, &put(7), None);
    let observer = run_observed(&world).await;
    assert_eq!(
        endings(&observer),
        [DeliveryStatus::Retried, DeliveryStatus::Done]
    );
    let ended = observer.ended.lock().unwrap();
    assert_eq!(ended[0].error.as_deref(), Some("writing the copy: 503"));
    assert_eq!(ended[0].step.as_deref(), Some("writing the copy"));
    let last = &ended[1];
    assert_eq!(
        (
            last.op,
            last.deliveries,
            last.primary.as_ref().unwrap().key.rk.as_str()
        ),
        ("put", 2, "7")
    );
    assert_eq!(
        (
            last.changes.len(),
            last.changed,
            *observer.changed.lock().unwrap()
        ),
        (64, 100, 100)
    );
    assert!(last.lag.unwrap() > Duration::from_secs(1) && last.error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_batch_keeps_as_many_changes_as_are_reported() {
    let world = World::new();
    world.script(|_, _, _| async {
        let change = ItemChange {
            view: ViewName::new("by_email").unwrap(),
            account: AccountName::main(),
            action: Action::Create,
        };
        Ok(Outcome::Done(Summary {
            changes: vec![change; 1_000],
            ..Summary::default()
        }))
    });
    world.queues.seed(JOBS, &batch(0..40), None);
    let observer = run_observed(&world).await;
    let ended = observer.ended.lock().unwrap();
    assert_eq!(
        (
            ended[0].changes.len(),
            ended[0].changed,
            *observer.changed.lock().unwrap()
        ),
        (40, 40_000, 40_000)
    );
}

#[tokio::test(start_paused = true)]
async fn changes_of_failed_runs_are_reported_too() {
    let world = World::new();
    world.script(|number, work, _| {
        let rk = rk(work);
        async move {
            let change = ItemChange {
                view: ViewName::new("by_email").unwrap(),
                account: AccountName::main(),
                action: Action::Delete,
            };
            match (number, rk.as_str()) {
                (_, "good") => {
                    return Ok(Outcome::Done(Summary {
                        changes: vec![change],
                        ..Summary::default()
                    }));
                }
                (0, _) => record_unreported(vec![change]),
                (1, _) => {
                    record_unreported(vec![change; 2]);
                    panic!("index 7 is out of bounds");
                }
                _ => record_unreported(vec![change; 4]),
            }
            if number == 0 {
                transient()
            } else {
                permanent()
            }
        }
    });
    world.queues.seed(JOBS, &put(7), None);
    let single = run_observed(&world).await;
    assert_eq!(
        endings(&single),
        [
            DeliveryStatus::Retried,
            DeliveryStatus::Retried,
            DeliveryStatus::Poisoned
        ]
    );
    assert_eq!(
        single
            .ended
            .lock()
            .unwrap()
            .iter()
            .map(|delivery| delivery.changed)
            .collect::<Vec<_>>(),
        [1, 0, 4]
    );
    assert_eq!(
        *single.changed.lock().unwrap(),
        7,
        "the changes of a run that panicked must be reported, although it returned nothing"
    );

    world.queues.seed(JOBS, &batch(["good", "bad"]), None);
    let many = run_observed(&world).await;
    assert_eq!(endings(&many), [DeliveryStatus::Poisoned]);
    let ended = many.ended.lock().unwrap();
    assert_eq!(
        (ended[0].changes.len(), ended[0].changed),
        (5, 5),
        "the changes of the successful job must be included"
    );
}

fn keys(observer: &RecordingObserver) -> Vec<Vec<String>> {
    let ended = observer.ended.lock().unwrap();
    let lines = |delivery: &DeliveryReport| {
        delivery
            .keys
            .iter()
            .map(|key| {
                format!(
                    "{} {}: {}",
                    key.rk,
                    key.ending.name(),
                    key.error.unwrap_or_default()
                )
            })
            .collect()
    };
    ended.iter().map(lines).collect()
}

#[tokio::test(start_paused = true)]
async fn each_delivery_of_a_batch_is_reported_with_the_outcome_of_each_key() {
    let world = World::new();
    world.script(|run, work, _| {
        let rk = rk(work);
        async move {
            match rk.as_str() {
                "bad" => permanent(),
                "busy" if run < 4 => transient(),
                "late" => Ok(Outcome::Skipped {
                    reason: "overtaken".to_owned(),
                    summary: Summary::default(),
                }),
                _ => done(),
            }
        }
    });
    world
        .queues
        .seed(JOBS, &batch(["good", "late", "busy", "bad"]), None);
    let observer = run_observed(&world).await;
    assert_eq!(
        endings(&observer),
        [DeliveryStatus::Retried, DeliveryStatus::Done]
    );
    assert_eq!(
        keys(&observer),
        [
            vec![
                "bad poisoned: reading the primary: no such table",
                "busy retried: writing the copy: 503",
                "late skipped: overtaken",
                "good done: "
            ],
            vec!["busy done: "],
        ]
    );
    let ended = observer.ended.lock().unwrap();
    assert_eq!(
        (
            ended[0].jobs,
            ended[1].jobs,
            ended[0].keys.table.as_ref().unwrap().as_str()
        ),
        (4, 1, "Employees")
    );
    assert!(ended[0].primary.is_none());
}

#[tokio::test(start_paused = true)]
async fn lists_of_rechecks_are_reported_key_by_key() {
    let rechecks = ["1", "2"].map(|rk| Recheck {
        primary: Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new("p", rk).unwrap(),
        },
        items: Vec::new(),
        chained: 0,
        taken_keys: None,
    });
    let world = World::new();
    world.script(|_, _, _| async { done() });
    world
        .queues
        .seed(RECHECK, &Recheck::encode_all(&rechecks.each_ref()), None);
    let rechecks = run_observed(&world).await;
    assert_eq!(keys(&rechecks), [["1 done: ", "2 done: "]]);
}

#[tokio::test(start_paused = true)]
async fn walks_over_whole_tables_have_no_lag() {
    let world = World::new();
    world.script(|_, _, _| async move {
        tokio::time::sleep(Duration::from_mins(6)).await;
        done()
    });
    for op in ["backfill", "audit"] {
        world.queues.seed(
            JOBS,
            &format!("{{\"op\":{op:?},\"table\":\"Employees\"}}"),
            None,
        );
    }
    world.queues.seed(JOBS, &put(7), None);
    let observer = run_observed(&world).await;
    let ended = observer.ended.lock().unwrap();
    let with_lag: Vec<&str> = ended
        .iter()
        .filter(|delivery| delivery.lag.is_some())
        .map(|delivery| delivery.op)
        .collect();
    assert_eq!(
        (ended.len(), with_lag),
        (3, vec!["put"]),
        "a walk over a table must report no lag"
    );
}

#[tokio::test(start_paused = true)]
async fn poisoned_and_skipped_jobs_are_reported_with_their_reason() {
    let world = World::new();
    world.script(|number, _, _| async move {
        if number == 0 {
            permanent()
        } else {
            Ok(Outcome::Skipped {
                reason: "overtaken".to_owned(),
                summary: Summary::default(),
            })
        }
    });
    world.queues.seed(JOBS, &put(1), None);
    let first = run_observed(&world).await;
    world.queues.seed(JOBS, &put(2), None);
    world.queues.seed(JOBS, "no job", None);
    let second = run_observed(&world).await;
    assert_eq!(endings(&first), [DeliveryStatus::Poisoned]);
    assert_eq!(first.ended.lock().unwrap()[0].outcome, "permanent");
    let mut second = second.ended.lock().unwrap().clone();
    second.sort_by_key(|delivery| delivery.ending);
    assert_eq!(
        (second[0].ending, second[0].error.as_deref()),
        (DeliveryStatus::Skipped, Some("overtaken"))
    );
    assert_eq!(
        (second[1].ending, second[1].outcome, second[1].op),
        (DeliveryStatus::Poisoned, "undecodable", "unknown")
    );
    assert!(second[1].primary.is_none() && second[1].error.as_ref().unwrap().contains("Base64"));
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_shared_run_are_reported_once() {
    let world = World::new();
    world.script(|number, _, _| async move {
        if number == 0 {
            tokio::time::sleep(Duration::from_secs(5)).await;
            return done();
        }
        let change = ItemChange {
            view: ViewName::new("by_email").unwrap(),
            account: AccountName::main(),
            action: Action::Update,
        };
        Ok(Outcome::Done(Summary {
            changes: vec![change],
            ..Summary::default()
        }))
    });
    for _ in 0..5 {
        world.queues.seed(JOBS, &sync(7), None);
    }
    let observer = run_observed(&world).await;
    assert_eq!(endings(&observer), [DeliveryStatus::Done; 5]);
    assert_eq!(
        *observer.changed.lock().unwrap(),
        1,
        "a change must be reported once, although five jobs shared the run"
    );
}

#[test]
fn a_write_that_was_found_is_counted_once_for_each_view_that_changed() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let observer = metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let world = World::new();
            world.script(|number, _, _| async move {
                let change = |view| ItemChange {
                    view: ViewName::new(view).unwrap(),
                    account: AccountName::main(),
                    action: Action::Create,
                };
                let found_after = (number < 2).then(|| Duration::from_secs(2 + 9 * number as u64));
                let changes = vec![change("by_email"), change("by_email"), change("by_name")];
                Ok(Outcome::Done(Summary {
                    changes,
                    found_after,
                    ..Summary::default()
                }))
            });
            (0..3).for_each(|rk| drop(world.queues.seed(JOBS, &sync(rk), None)));
            run_observed(&world).await
        })
    });
    assert_eq!(
        *observer.found.lock().unwrap(),
        [Duration::from_secs(2), Duration::from_secs(11)]
    );
    let text = handle.render();
    for view in ["by_email", "by_name"] {
        assert!(
            text.contains(&format!(
                "evenkeel_write_to_found_seconds_sum{{view=\"{view}\"}} 13\n"
            )),
            "{text}"
        );
    }
}
