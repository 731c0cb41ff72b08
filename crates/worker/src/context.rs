//! State shared by all parts of one run of the worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::circuit::OpenCircuits;
use super::count;
use super::decide::Limits;
use super::observer::Observer;
use super::stuck::Stuck;
use super::suspects::Suspects;
use super::tuning::{Tuned, Tuning};
use super::turns::Turns;
use evenkeel_engine::{Execute, MemoryBudget, SealBodies, Work};
use evenkeel_model::Job;
use evenkeel_model::event::EventMappings;
use evenkeel_model::job::Primary;
use evenkeel_model::settings::WorkerSettings;
use evenkeel_storage::{Clock, Rng};

/// Tells which primary a job is about, so that no two jobs of one primary run at once; then, of an archived one, the primaries that it was.
/// None where it cannot be told (an archive that the catalog does not know): such a job runs whenever it comes, and fails.
pub type KeyOf = Arc<dyn Fn(&Job) -> Vec<Primary> + Send + Sync>;

/// Shared by all tasks of one run.
pub(crate) struct RunContext {
    pub(crate) execute: Arc<dyn Execute>,
    pub(crate) seal_bodies: Arc<dyn SealBodies>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) settings: WorkerSettings,
    /// Settings reloadable at run time.
    pub(crate) tuning: Arc<Tuning>,
    pub(crate) worker: String,
    pub(crate) key_of: KeyOf,
    /// How messages that are events become jobs.
    pub(crate) events: Arc<EventMappings>,
    pub(crate) turns: Turns,
    /// Memory budget of its messages.
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) circuit: OpenCircuits,
    pub(crate) stuck: Stuck,
    pub(crate) suspects: Suspects,
    pub(crate) stop: Stop,
    /// Set when a job met data of a later catalog: it is put off until the catalog fits, so that a run until idle would never end.
    pub(crate) outdated: CancellationToken,
    pub(crate) tally: WorkerTally,
    /// Counters of item changes.
    pub(crate) items: count::Items,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

/// The end of a run, in the order in which things stop.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    /// Nothing is received any more, and nothing new is begun.
    pub(crate) receiving: CancellationToken,
    /// Running jobs are cancelled and released.
    pub(crate) runs: CancellationToken,
    /// Settlements that a store keeps from going through are given up.
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

/// Totals so far.
#[derive(Debug, Default)]
pub(crate) struct WorkerTally {
    pub(crate) done: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) poisoned: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// From when to when messages were worked on, by the monotonic clock.
    working: Mutex<Option<(Duration, Duration)>>,
}

/// Totals of a run of the worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RunReport {
    /// Jobs done.
    pub done: u64,
    /// Jobs with an unmet condition, or overtaken by a later change.
    pub skipped: u64,
    /// Deliveries released for another try.
    pub released: u64,
    /// Messages poisoned.
    pub poisoned: u64,
    /// Deliveries that ended without a settlement: the lease was lost, or a store kept it from going through.
    pub lost: u64,
    /// From asking for the first message that was received to settling the last: without the start of the program, and
    /// without noticing that there is nothing left to do.
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

    /// A message that was asked for at `sent` is settled now.
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
        let Tuned {
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

    /// The key under which work is scheduled.
    pub(crate) fn key(&self, work: &Work) -> Option<Primary> {
        match work {
            Work::Job(job) => (self.key_of)(job).into_iter().next(),
            Work::Recheck(recheck) => Some(recheck.primary.clone()),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }
}
