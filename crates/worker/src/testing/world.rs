use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::queues::FakeQueues;
use super::stores::{FakeBlobs, FakeHealth, NoTables};
use super::time::{SECOND, Seeded, TestClock};
use super::work::{Answer, NoSecrets, Script, Scripted, done};
use crate::{Mode, Rechecks, RunReport, Worker, WorkerError, WorkerParts, poison};
use evenkeel_engine::{Delivery, Execute, Work};
use evenkeel_model::job::{JobSubject, Primary};
use evenkeel_model::settings::{Backoff, PollInterval, QueueSettings, RetryPolicy, WorkerSettings};
use evenkeel_model::{AccountName, QueueName, body};
use evenkeel_storage::*;

pub(crate) const JOBS: &str = "evenkeel-jobs";
pub(crate) const POISON: &str = "evenkeel-jobs-poison";
pub(crate) const RECHECK: &str = "evenkeel-jobs-recheck";

pub(crate) fn sync(rk: impl std::fmt::Display) -> String {
    body::encode(&format!(
        r#"{{"op":"sync","table":"Employees","pk":"p","rk":"{rk}"}}"#
    ))
}

/// A put job, which is never coalesced.
pub(crate) fn put(rk: impl std::fmt::Display) -> String {
    body::encode(&format!(
        r#"{{"op":"put","table":"Employees","entity":{{"PartitionKey":"p","RowKey":"{rk}"}}}}"#
    ))
}

pub(crate) struct World {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) queues: Arc<FakeQueues>,
    pub(crate) blobs: Arc<FakeBlobs>,
    pub(crate) health: Arc<FakeHealth>,
    pub(crate) work: Arc<Scripted>,
    pub(crate) settings: WorkerSettings,
    pub(crate) queue: QueueSettings,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        let queues = Arc::new(FakeQueues::new(Arc::clone(&clock)));
        let script: Arc<Script> = Arc::new(|_, _, _| Box::pin(async { done() }));
        let work = Arc::new(Scripted::new(Arc::clone(&clock), script));
        let backoff = Backoff {
            min: 2 * SECOND,
            base: 2 * SECOND,
            max: Duration::from_mins(10),
        };
        let settings = WorkerSettings {
            poll: PollInterval {
                min: Duration::from_millis(100),
                max: 5 * SECOND,
            },
            storage_retry: RetryPolicy::growing(backoff, 6),
            ..WorkerSettings::default()
        };
        let queue = QueueSettings {
            concurrency: 64_usize.into(),
            ..QueueSettings::plain(QueueName::new(JOBS).unwrap())
        };
        Self {
            clock,
            queues,
            blobs: Arc::default(),
            health: Arc::default(),
            work,
            settings,
            queue,
        }
    }

    /// Sets the script. It gets the number of the run (from 0), the work and its delivery.
    pub(crate) fn script<F, R>(&self, script: F)
    where
        F: Fn(usize, &Work, &Delivery) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        *self.work.script.lock().unwrap() =
            Arc::new(move |number, work, delivery| Box::pin(script(number, work, delivery)));
    }

    pub(crate) fn account(&self) -> Account {
        let (queues, blobs) = (Arc::clone(&self.queues), Arc::clone(&self.blobs));
        Account {
            tables: Arc::new(NoTables),
            queues,
            blobs,
            clocks: Arc::default(),
        }
    }

    pub(crate) fn worker(&self) -> Worker {
        let stores = Stores::new(BTreeMap::from([(AccountName::main(), self.account())]));
        Worker::new(WorkerParts {
            stores,
            health: Arc::clone(&self.health) as Arc<dyn StoreHealth>,
            execute: Arc::clone(&self.work) as Arc<dyn Execute>,
            encrypt_bodies: Arc::new(NoSecrets),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            rng: Arc::new(Seeded(AtomicU64::new(7))),
            settings: self.settings.clone(),
            queues: vec![self.queue.clone()],
            name: "w1".to_owned(),
            resolve_primaries: Arc::new(|job| match job.operation().subject() {
                JobSubject::Primary(table, key) => vec![Primary {
                    table: table.clone(),
                    key: key.clone(),
                }],
                JobSubject::Moved(from, _) => vec![from.clone()],
                _ => Vec::new(),
            }),
        })
        .unwrap()
    }

    pub(crate) async fn until_idle(&self) -> Result<RunReport, WorkerError> {
        let mode = Mode::UntilIdle {
            quiet: SECOND,
            rechecks: Rechecks::Ignored,
        };
        self.worker().run(mode, CancellationToken::new()).await
    }

    pub(crate) async fn run_for(&self, duration: Duration) -> RunReport {
        let shutdown = CancellationToken::new();
        let worker = self.worker();
        let stop = async {
            sleep(duration).await;
            shutdown.cancel();
        };
        tokio::join!(worker.run(Mode::Forever, shutdown.clone()), stop)
            .0
            .unwrap()
    }

    pub(crate) async fn crash_after(&self, duration: Duration) {
        let worker = self.worker();
        let crashed = tokio::time::timeout(
            duration,
            worker.run(Mode::Forever, CancellationToken::new()),
        )
        .await;
        assert!(crashed.is_err(), "the worker must not end by itself");
    }

    pub(crate) async fn poisoned(&self) -> Vec<poison::PoisonEntry> {
        let poison = poison::PoisonQueue::new(&self.account(), &self.queue).unwrap();
        poison
            .list(&poison::PoisonFilter::default())
            .await
            .unwrap()
            .entries
    }
}
