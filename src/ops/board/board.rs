//! The board: what is told to it, and snapshots of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::headline::{self, Headline, Situation};
use super::journal::{JobFilter, JobRecord, Journal};
use super::poison::PoisonCounts;
use super::queue::{self, QueueNow, QueueSeries, QueueSlot};
use super::storage::{StorageHour, StorageMeter, StorageNow, StorageSeries};
use super::view::{ViewNow, ViewSeries};
use super::{SLOT, keep};
use crate::catalog::Catalog;
use crate::model::{QueueName, ViewName};
use crate::ops::{NotReady, Readiness};
use crate::ports::{Clock, StoreHealth};
use crate::reconcile::{Engine, ItemChange};
use crate::settings::QueueSettings;
use crate::worker::{Carries, Delivered, Ending, Observer, StatusBoard, WorkerStatus};

/// What a board is made of.
pub struct BoardParts {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What is derived.
    pub catalog: Arc<Catalog>,
    /// `[[queues]]`
    pub queues: Vec<QueueSettings>,
    /// Whether the program does its work.
    pub readiness: Arc<dyn Readiness>,
    /// Whether the stores answer.
    pub health: Arc<dyn StoreHealth>,
    /// What the stores answered.
    pub meter: Arc<dyn StorageMeter>,
}

/// What there is once the worker runs.
#[derive(Clone)]
pub struct Work {
    /// The worker's state.
    pub status: StatusBoard,
    /// What does the work, for plans.
    pub engine: Arc<Engine>,
}

/// What operators look at.
pub struct Board {
    parts: BoardParts,
    /// When the program started (monotonic).
    started: Duration,
    work: OnceLock<Work>,
    journal: Mutex<Journal>,
    queues: Mutex<BTreeMap<QueueName, QueueSeries>>,
    views: Mutex<BTreeMap<ViewName, ViewSeries>>,
    storage: Mutex<StorageSeries>,
    poison: Mutex<PoisonCounts>,
}

impl Board {
    /// An empty board.
    pub fn new(parts: BoardParts) -> Self {
        let started = parts.clock.monotonic();
        Self {
            parts,
            started,
            work: OnceLock::new(),
            journal: Mutex::default(),
            queues: Mutex::default(),
            views: Mutex::default(),
            storage: Mutex::default(),
            poison: Mutex::default(),
        }
    }

    /// The worker runs. Told once; later calls change nothing.
    pub fn working(&self, work: Work) {
        // The first stays: there is one worker in a program.
        let _ = self.work.set(work);
    }

    /// What does the work; nothing while the program waits for its stores.
    pub fn engine(&self) -> Option<&Arc<Engine>> {
        self.work.get().map(|work| &work.engine)
    }

    /// What is derived.
    pub fn catalog(&self) -> &Catalog {
        &self.parts.catalog
    }

    /// Measures what is not told to it, for ever: sample by sample, and poison by its counts.
    pub async fn keep(&self, stores: &crate::ports::Stores, wait: impl Fn() -> Duration) {
        keep::keep(self, stores, wait).await;
    }

    /// The slot under way.
    pub fn slot(&self) -> u64 {
        self.running().as_secs() / SLOT.as_secs()
    }

    /// How long the program has been running.
    pub fn running(&self) -> Duration {
        self.parts.clock.monotonic().saturating_sub(self.started)
    }

    /// The queues that jobs are sent to, as configured.
    pub fn configured(&self) -> &[QueueSettings] {
        &self.parts.queues
    }

    /// How things stand.
    pub fn headline(&self) -> Headline {
        let queues = self.queues();
        let jobs: Vec<&QueueNow> = queues.iter().filter(|queue| queue.carries == "jobs").collect();
        // A queue's count includes what is in flight; it is measured now and then, what is in flight is known.
        let waiting = |queue: &&&QueueNow| queue.messages.map(|messages| messages.max(queue.in_flight as u64));
        let known = !jobs.is_empty() && jobs.iter().all(|queue| queue.messages.is_some());
        let reasons = self.parts.readiness.reasons();
        let since = reasons.iter().find_map(|reason| match reason {
            NotReady::CircuitOpen { since, .. } => Some(*since),
            _ => None,
        });
        headline::headline(&Situation {
            unreachable_for: since.map(|since| Duration::try_from(self.parts.clock.now().duration_since(since)).unwrap_or_default()),
            reasons,
            jobs: known.then(|| jobs.iter().filter_map(|queue| waiting(&queue)).sum()),
            per_second: jobs.iter().map(|queue| queue.finished_per_second).sum(),
            poisoned: self.poisoned(),
        })
    }

    /// Every queue now.
    pub fn queues(&self) -> Vec<QueueNow> {
        let (number, running) = (self.slot(), self.running().as_secs_f64());
        let status = self.status();
        let mut series = lock(&self.queues);
        status.queues.iter().map(|status| series.entry(status.queue.clone()).or_default().now(number, running, status)).collect()
    }

    /// The last hour of the job queues together, or of one queue.
    pub fn hour(&self, of: Option<&QueueName>) -> Vec<QueueSlot> {
        let carries: BTreeMap<QueueName, Carries> = self.status().queues.into_iter().map(|status| (status.queue, status.carries)).collect();
        let series = lock(&self.queues);
        let meant = series.iter().filter(|(name, _)| match of {
            Some(queue) => *name == queue,
            None => carries.get(*name) == Some(&Carries::Jobs),
        });
        queue::together(meant.map(|(_, series)| series), self.slot())
    }

    /// The storage services, with their last hour.
    pub fn storage(&self) -> Vec<StorageNow> {
        let open = self.parts.health.open_circuits();
        let series = lock(&self.storage);
        series.now(self.slot(), |account, service| {
            open.iter().find(|open| open.account == *account && open.service.name() == service).map(|open| open.since.to_string())
        })
    }

    /// The last hour of the storage services.
    pub fn storage_hour(&self) -> Vec<StorageHour> {
        lock(&self.storage).hour(self.slot())
    }

    /// Views in the order of their names, after the one with this name; at most so many.
    pub fn views(&self, after: Option<&str>, most: usize) -> Vec<ViewNow> {
        let (number, running) = (self.slot(), self.running().as_secs_f64());
        let mut series = lock(&self.views);
        let views = self.parts.catalog.views.values().filter(|view| after.is_none_or(|after| view.name.as_str() > after));
        views
            .take(most)
            .map(|view| {
                let text = |text: &str| text.to_owned();
                let (name, kind, source) = (text(view.name.as_str()), text(view.kind_name()), view.source.to_string());
                series.entry(view.name.clone()).or_default().now(number, running, name, kind, source)
            })
            .collect()
    }

    /// The newest jobs that are meant.
    pub fn jobs(&self, filter: &JobFilter, most: usize) -> Vec<JobRecord> {
        lock(&self.journal).find(filter, most)
    }

    /// Poisoned messages of all queues; nothing until they were counted.
    pub fn poisoned(&self) -> Option<u64> {
        lock(&self.poison).total()
    }

    /// Poisoned messages of one queue, as configured.
    pub fn poisoned_of(&self, queue: &QueueName) -> Option<u64> {
        lock(&self.poison).of(queue)
    }

    /// A poison queue was counted.
    pub fn counted(&self, queue: &QueueName, messages: u64) {
        lock(&self.poison).counted(queue.clone(), messages);
    }

    /// A slot has ended.
    pub(super) fn sample(&self, ended: u64) {
        let status = self.status();
        let mut series = lock(&self.queues);
        for status in &status.queues {
            series.entry(status.queue.clone()).or_default().sampled(ended, status);
        }
        drop(series);
        lock(&self.storage).sampled(ended, self.parts.meter.tallies());
    }

    fn status(&self) -> WorkerStatus {
        self.work.get().map_or_else(|| WorkerStatus { queues: Vec::new() }, |work| work.status.snapshot())
    }
}

impl Observer for Board {
    fn ended(&self, delivery: Delivered) {
        let number = self.slot();
        lock(&self.queues).entry(delivery.queue.clone()).or_default().ended(number, &delivery);
        if delivery.ending == Ending::Poisoned
            && let Some(queue) = self.configured().iter().find(|queue| belongs(&delivery.queue, &queue.name))
        {
            lock(&self.poison).one_more(&queue.name);
        }
        lock(&self.journal).add(delivery);
    }

    fn changed(&self, changes: &[ItemChange]) {
        let number = self.slot();
        let mut views = lock(&self.views);
        for change in changes {
            views.entry(change.view.clone()).or_default().changed(number, change.action);
        }
    }
}

/// Whether this is the queue as configured, one of its shards, or its recheck queue.
fn belongs(queue: &QueueName, configured: &QueueName) -> bool {
    let rest = queue.as_str().strip_prefix(configured.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest == "-recheck" || (rest.len() == 3 && rest.starts_with('-')))
}

/// Nothing under these locks panics half-way; were it to, figures that are a little off are better than none.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
