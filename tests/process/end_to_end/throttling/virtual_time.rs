//! One partition answers 503 for ten minutes of virtual time. The worker, the protocol and the decorators of stores run
//! on a simulated account, which refuses requests for this partition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo, SimWorld};
use evenkeel_config::Folder;
use evenkeel_engine::{Engine, EngineParts};
use evenkeel_layers::circuit::Circuits;
use evenkeel_layers::stack::{Grouping, decorate};
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{AccountName, Key, QueueName, TableName, body};
use evenkeel_storage::{Account, Clock, ErrorClass, Query, Resource, Rng, Stores, Ttl};
use evenkeel_worker::poison::{PoisonFilter, PoisonQueue};
use evenkeel_worker::{Mode, Rechecks, RunReport, Worker, WorkerParts};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{HOT, OTHERS, put};
use crate::end_to_end::site::{EMPLOYEES, QUEUE};

/// How long the partition answers 503.
const BUSY: Duration = Duration::from_mins(10);

struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> jiff::Timestamp {
        "2026-11-20T12:00:00Z".parse::<jiff::Timestamp>().unwrap() + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

struct SeededNumbers(AtomicU64);

impl Rng for SeededNumbers {
    fn next_u64(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Every request takes 5 ms. One partition of the employees answers 503 until this time.
struct OneBusyPartition {
    clock: Arc<PausedClock>,
    until: Duration,
    refused: AtomicU64,
}

#[async_trait]
impl FaultPolicy for OneBusyPartition {
    async fn before(&self, operation: &OperationInfo) -> FaultDecision {
        sleep(Duration::from_millis(5)).await;
        let hot =
            |table: &TableName, pk: &Key| table.as_str() == "Employees" && pk.as_str() == "Hot";
        let is_hot = match &operation.what {
            Resource::Entity(table, key) => hot(table, &key.pk),
            Resource::Partition(table, pk) => hot(table, pk),
            _ => false,
        };
        if is_hot && self.clock.monotonic() < self.until {
            self.refused.fetch_add(1, Ordering::Relaxed);
            FaultDecision::Fail(ErrorClass::Throttled { retry_after: None })
        } else {
            FaultDecision::Execute
        }
    }
}

struct World {
    clock: Arc<PausedClock>,
    faults: Arc<OneBusyPartition>,
    bare: Account,
    worker: Worker,
}

impl World {
    async fn new(busy: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("default.toml"),
            format!("[worker]\nmax_dequeue_count = 1\n{EMPLOYEES}"),
        )
        .unwrap();
        let request = evenkeel_config::Request {
            folder: Folder::Named(folder.path().to_owned()),
            ..evenkeel_config::Request::default()
        };
        let loaded = evenkeel_config::load(&request).unwrap();
        let (main, catalog, settings) = (
            AccountName::main(),
            Arc::new(loaded.catalog),
            loaded.settings,
        );

        let clock = Arc::new(PausedClock(Instant::now()));
        let faults = Arc::new(OneBusyPartition {
            clock: clock.clone(),
            until: busy,
            refused: AtomicU64::new(0),
        });
        let (as_clock, rng): (Arc<dyn Clock>, Arc<dyn Rng>) =
            (clock.clone(), Arc::new(SeededNumbers(AtomicU64::new(7))));
        let bare = SimWorld::new(main.clone(), as_clock.clone(), faults.clone()).account();
        let decorated = decorate(
            &main,
            &bare,
            Grouping::Together,
            settings.worker.storage_retry,
            &as_clock,
            &rng,
        );
        let stores = Stores::new(BTreeMap::from([(main, decorated.account)]));

        for table in catalog
            .tables
            .keys()
            .map(ToString::to_string)
            .chain(["EvenkeelFootprints".to_owned()])
        {
            bare.tables
                .create_table(&TableName::new(table).unwrap())
                .await
                .unwrap();
        }
        bare.queues.create_queue(&queue()).await.unwrap();
        for job in (0..HOT)
            .map(|n| put("Hot", n))
            .chain((0..OTHERS).map(|n| put(&format!("P{}", n % 9), n)))
        {
            bare.queues
                .put(
                    &queue(),
                    &body::encode(&job.to_string()),
                    Duration::ZERO,
                    Ttl::Never,
                )
                .await
                .unwrap();
        }

        let recheck_after = settings.worker.recheck_after;
        let engine = Arc::new(Engine::new(EngineParts {
            stores: stores.clone(),
            catalog,
            clock: as_clock.clone(),
            rng: rng.clone(),
            recheck_after,
        }));
        let keys = engine.clone();
        let worker = Worker::new(WorkerParts {
            stores,
            health: Arc::new(Circuits::new(vec![decorated.circuit])),
            encrypt_bodies: Arc::<Engine>::clone(&engine),
            execute: engine,
            clock: as_clock,
            rng,
            settings: settings.worker,
            queues: settings.queues,
            name: "worker".to_owned(),
            resolve_primaries: Arc::new(move |job| keys.forms_of(job)),
        })
        .unwrap();
        Self {
            clock,
            faults,
            bare,
            worker,
        }
    }

    async fn run(&self, watch: impl Future<Output = ()>) -> RunReport {
        let mode = Mode::UntilIdle {
            quiet: Duration::from_secs(1),
            rechecks: Rechecks::Ignored,
        };
        let (report, ()) = tokio::join!(self.worker.run(mode, CancellationToken::new()), watch);
        report.unwrap()
    }

    async fn employees(&self) -> (u64, u64) {
        let (mut hot, mut others) = (0, 0);
        let mut query = Query::default();
        loop {
            let page = self
                .bare
                .tables
                .query(&TableName::new("Employees").unwrap(), &query)
                .await
                .unwrap();
            for row in page.rows {
                *(if row.entity.key.pk.as_str() == "Hot" {
                    &mut hot
                } else {
                    &mut others
                }) += 1;
            }
            query.continuation = page.continuation;
            if query.continuation.is_none() {
                return (hot, others);
            }
        }
    }

    async fn others_done(&self) -> Duration {
        while self.employees().await.1 < OTHERS {
            sleep(Duration::from_millis(20)).await;
        }
        self.clock.monotonic()
    }
}

fn queue() -> QueueName {
    QueueName::new(QUEUE).unwrap()
}

fn settings() -> QueueSettings {
    QueueSettings::plain(queue())
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_of_503_from_one_partition_poison_nothing_and_cost_the_others_nothing() {
    let calm = World::new(Duration::ZERO).await;
    let mut undisturbed = Duration::ZERO;
    calm.run(async { undisturbed = calm.others_done().await })
        .await;

    let world = World::new(BUSY).await;
    let report = world
        .run(async {
            let disturbed = world.others_done().await;
            assert!(
                disturbed < undisturbed * 3,
                "the other jobs took {undisturbed:?} without and {disturbed:?} with the busy partition"
            );
            sleep(BUSY.saturating_sub(world.clock.monotonic() + Duration::from_secs(1))).await;
            assert_eq!(world.employees().await, (0, OTHERS));
            assert_eq!(
                world.bare.queues.approximate_count(&queue()).await.unwrap(),
                HOT
            );
            let refused = world.faults.refused.load(Ordering::Relaxed);
            assert!(
                refused < 2 * HOT,
                "the busy partition got {refused} requests in ten minutes"
            );
        })
        .await;
    assert_eq!(
        (report.done, report.poisoned, report.lost),
        (HOT + OTHERS, 0, 0)
    );
    assert_eq!(world.employees().await, (HOT, OTHERS));
    let poison = PoisonQueue::new(&world.bare, &settings())
        .unwrap()
        .list(&PoisonFilter::default())
        .await
        .unwrap();
    assert!(poison.entries.is_empty());
}
