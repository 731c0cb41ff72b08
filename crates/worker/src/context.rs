use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::circuit::OpenCircuits;
use super::decide::Limits;
use super::job_metrics;
use super::keyed_queue::KeyedQueue;
use super::observer::Observer;
use super::quarantine::CrashQuarantine;
use super::tuning::{ReloadableSettings, Tuning};
use super::unsettled::UnsettledMessages;
use evenkeel_engine::{EncryptBodies, Execute, MemoryBudget, Work};
use evenkeel_model::Job;
use evenkeel_model::event::EventMappings;
use evenkeel_model::job::Primary;
use evenkeel_model::settings::WorkerSettings;
use evenkeel_storage::{Clock, Rng};

/// Resolves the primary of a job, which is the first of the returned primaries. No two jobs with
/// the same primary run at once. If the table of the primary is the target of an archive, the
/// primary in the archive's source follows. The list is empty if the job concerns many primaries,
/// or if its table or archive is not in the catalog. Such a job does not wait for a key.
pub type PrimaryResolver = Arc<dyn Fn(&Job) -> Vec<Primary> + Send + Sync>;

pub(crate) struct RunContext {
    pub(crate) execute: Arc<dyn Execute>,
    pub(crate) encrypt_bodies: Arc<dyn EncryptBodies>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) settings: WorkerSettings,
    pub(crate) tuning: Arc<Tuning>,
    pub(crate) worker: String,
    pub(crate) resolve_primaries: PrimaryResolver,
    pub(crate) events: Arc<EventMappings>,
    pub(crate) keyed_queue: KeyedQueue,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) circuit: OpenCircuits,
    pub(crate) unsettled: UnsettledMessages,
    pub(crate) quarantine: CrashQuarantine,
    pub(crate) stop: Stop,
    /// Cancelled when a job finds data of a later catalog. Such a job is retried until the worker
    /// has that catalog. A worker that runs until idle ends instead, because it would never become
    /// idle.
    pub(crate) outdated: CancellationToken,
    pub(crate) tally: WorkerTally,
    pub(crate) items: job_metrics::ItemCounters,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

/// Signals that end a run. They are sent in this order.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    /// When this is cancelled, no message is received and no job is started any more.
    pub(crate) receiving: CancellationToken,
    /// When this is cancelled, running jobs are cancelled and their messages released.
    pub(crate) runs: CancellationToken,
    /// When this is cancelled, settlements that a store does not accept are given up.
    pub(crate) settling: CancellationToken,
}

impl Stop {
    pub(crate) fn new() -> Self {
        Self {
            receiving: CancellationToken::new(),
            runs: CancellationToken::new(),
            settling: CancellationToken::new(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct WorkerTally {
    pub(crate) done: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) poisoned: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// Monotonic times of the first request and of the last settlement.
    working: Mutex<Option<(Duration, Duration)>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RunReport {
    pub done: u64,
    /// Jobs that were skipped because their condition was not met, or because a later change had
    /// overtaken them.
    pub skipped: u64,
    pub released: u64,
    pub poisoned: u64,
    /// Deliveries that were not settled: the lease was lost, or the store did not accept the
    /// settlement.
    pub lost: u64,
    /// Time from the request for the first message to the last settlement. It includes neither the
    /// start of the program nor the wait until the worker counts as idle.
    #[serde(rename = "working_seconds", serialize_with = "as_seconds")]
    pub working: Duration,
}

fn as_seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

impl std::ops::AddAssign for RunReport {
    fn add_assign(&mut self, other: Self) {
        let Self {
            done,
            skipped,
            released,
            poisoned,
            lost,
            working,
        } = other;
        self.done += done;
        self.skipped += skipped;
        self.released += released;
        self.poisoned += poisoned;
        self.lost += lost;
        self.working += working;
    }
}

impl WorkerTally {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_many(counter: &AtomicU64, many: usize) {
        counter.fetch_add(many as u64, Ordering::Relaxed);
    }

    pub(crate) fn worked(&self, sent: Duration, now: Duration) {
        let mut working = self.working();
        let (from, to) = working.unwrap_or((sent, now));
        *working = Some((from.min(sent), to.max(now)));
    }

    fn working(&self) -> MutexGuard<'_, Option<(Duration, Duration)>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report(&self) -> RunReport {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RunReport {
            done: read(&self.done),
            skipped: read(&self.skipped),
            released: read(&self.released),
            poisoned: read(&self.poisoned),
            lost: read(&self.lost),
            working: self
                .working()
                .map(|(from, to)| to.saturating_sub(from))
                .unwrap_or_default(),
        }
    }
}

impl RunContext {
    pub(crate) fn limits(&self) -> Limits {
        let ReloadableSettings {
            max_dequeue_count,
            retry_delay,
            give_up_after,
            ..
        } = self.tuning.now();
        Limits {
            max_dequeue_count,
            retry_delay,
            give_up_after,
        }
    }

    pub(crate) fn key(&self, work: &Work) -> Option<Primary> {
        match work {
            Work::Job(job) => (self.resolve_primaries)(job).into_iter().next(),
            Work::Recheck(recheck) => Some(recheck.primary.clone()),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }
}
