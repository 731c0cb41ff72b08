use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::Timestamp;

use super::acknowledged::{Acknowledgements, News};
use super::cost::{CostSeries, Costs};
use super::freshness::{FoundSeries, Freshness};
use super::headline::{self, DriftedView, Headline, HeadlineInputs, Rate, SilentWorker};
use super::hot::{HotPartition, HotSeries};
use super::journal::{JobFilter, JobRecord, Journal};
use super::partition::PartitionNames;
use super::poison::PoisonCounts;
use super::queue::{self, QueueNow, QueueSeries, QueueSlot};
use super::storage::{LimitedScope, StorageHour, StorageMeter, StorageNow, StorageSeries};
use super::view::{ViewNow, ViewSeries};
use super::walks::{WalkNow, Walks};
use super::{SLOT, gauges, measuring};
use tokio::sync::Notify;

use crate::Readiness;
use evenkeel_engine::{AuditRecord, Engine, ItemChange};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{QueueName, ViewName};
use evenkeel_storage::{Clock, StoreHealth};
use evenkeel_worker::{
    DeliveryReport, DeliveryStatus, Doorbell, Observer, QueueKind, StatusBoard, WorkerStatus,
};

pub struct OpsStateParts {
    pub worker: String,
    pub clock: Arc<dyn Clock>,
    /// The catalog at startup.
    pub catalog: Arc<Catalog>,
    pub queues: Vec<QueueSettings>,
    pub readiness: Arc<dyn Readiness>,
    pub health: Arc<dyn StoreHealth>,
    pub meter: Arc<dyn StorageMeter>,
}

/// The running worker.
#[derive(Clone)]
pub struct WorkerHandles {
    pub status: StatusBoard,
    /// The engine, which plans what a job would do with an entity.
    pub engine: Arc<Engine>,
    pub doorbell: Doorbell,
}

/// The state that the dashboard and the API show.
pub struct OpsState {
    parts: OpsStateParts,
    /// Monotonic time at which the program started.
    started: Duration,
    catalog: ArcSwap<Catalog>,
    work: ArcSwapOption<WorkerHandles>,
    journal: Mutex<Journal>,
    queues: Mutex<BTreeMap<QueueName, QueueSeries>>,
    views: Mutex<BTreeMap<ViewName, ViewSeries>>,
    found: Mutex<FoundSeries>,
    storage: Mutex<StorageSeries>,
    walks: Mutex<Walks>,
    poison: Mutex<PoisonCounts>,
    hot: Mutex<HotSeries>,
    costs: Mutex<CostSeries>,
    silent: Mutex<Vec<SilentWorker>>,
    acknowledged: Mutex<Acknowledgements>,
    /// When the last slot was sampled and when poison messages were last counted, each measured from the start of the
    /// program.
    measured: Mutex<(Option<Duration>, Option<Duration>)>,
    /// Notified to count poison messages earlier than at the regular interval.
    pub(super) recount: Notify,
    /// Notified when an audit or backfill ends in this worker, to read audit records earlier than at the regular
    /// interval.
    pub(super) audits: Notify,
}

impl OpsState {
    pub fn new(parts: OpsStateParts) -> Self {
        let started = parts.clock.monotonic();
        Self {
            catalog: ArcSwap::new(Arc::clone(&parts.catalog)),
            parts,
            started,
            work: ArcSwapOption::empty(),
            journal: Mutex::default(),
            queues: Mutex::default(),
            views: Mutex::default(),
            found: Mutex::default(),
            storage: Mutex::default(),
            walks: Mutex::default(),
            poison: Mutex::default(),
            recount: Notify::new(),
            audits: Notify::new(),
            hot: Mutex::default(),
            costs: Mutex::default(),
            silent: Mutex::default(),
            acknowledged: Mutex::default(),
            measured: Mutex::default(),
        }
    }

    /// Sets the running worker. The catalog of its engine replaces the present one.
    pub fn set_worker(&self, work: WorkerHandles) {
        self.catalog.store(Arc::clone(work.engine.catalog()));
        self.work.store(Some(Arc::new(work)));
    }

    pub fn worker(&self) -> &str {
        &self.parts.worker
    }

    /// Returns the engine; `None` as long as the program waits for its stores.
    pub fn engine(&self) -> Option<Arc<Engine>> {
        self.work().map(|work| work.engine)
    }

    pub fn freshness(&self) -> Freshness {
        lock(&self.found).now(self.slot())
    }

    /// Wakes the receivers of one queue, or of all queues, and returns the number of receivers.
    pub fn wake(&self, queue: Option<&QueueName>) -> usize {
        self.work().map_or(0, |work| work.doorbell.ring(queue))
    }

    fn work(&self) -> Option<WorkerHandles> {
        self.work.load().as_deref().cloned()
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Samples all measures in every slot, counts poison messages and reads audit records. Never returns.
    pub async fn measure(&self, stores: &evenkeel_storage::Stores, wait: impl Fn() -> Duration) {
        measuring::measure(self, stores, wait).await;
    }

    /// Returns the number of the current slot.
    pub fn slot(&self) -> u64 {
        self.running().as_secs() / SLOT.as_secs()
    }

    /// Returns the time at which the current slot began.
    pub fn slot_began(&self) -> Timestamp {
        let begun = self
            .running()
            .saturating_sub(SLOT * u32::try_from(self.slot()).unwrap_or_default());
        self.now().checked_sub(begun).unwrap_or_else(|_| self.now())
    }

    pub fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    pub fn running(&self) -> Duration {
        self.parts.clock.monotonic().saturating_sub(self.started)
    }

    /// Returns the queues as configured. Shards are not listed separately.
    pub fn job_queues(&self) -> &[QueueSettings] {
        &self.parts.queues
    }

    pub fn headline(&self) -> Headline {
        let queues = self.queues();
        let jobs: Vec<&QueueNow> = queues.iter().filter(|queue| queue.kind == "jobs").collect();
        // The count of messages includes messages in flight, but the count may be outdated. The number of messages in
        // flight is current, so the larger of both numbers is used.
        let waiting = |queue: &&&QueueNow| {
            queue
                .messages
                .map(|messages| messages.max(queue.in_flight as u64))
        };
        let known = !jobs.is_empty() && jobs.iter().all(|queue| queue.messages.is_some());
        headline::headline(&HeadlineInputs {
            now: self.parts.clock.now(),
            reasons: self.parts.readiness.reasons(),
            jobs: known.then(|| jobs.iter().filter_map(|queue| waiting(&queue)).sum()),
            pace: self.pace(&jobs),
            poisoned: lock(&self.poison).by_news(),
            drift: self.drift(),
            silent: lock(&self.silent).clone(),
            acknowledged: *lock(&self.acknowledged),
        })
    }

    /// Returns the value that acknowledges all new poison messages; `None` if there are none.
    pub fn poison_news(&self) -> Option<String> {
        let (new, _) = lock(&self.poison).by_news();
        (new > 0).then(|| News::Poison(new).to_string())
    }

    /// Acknowledges a piece of news by the value of `acknowledge` in its headline or note. Returns false if the news is
    /// not current, because something has happened since the user saw it.
    pub fn acknowledge(&self, news: &str) -> bool {
        let headline = self.headline();
        let current = headline
            .notes
            .iter()
            .filter_map(|note| note.acknowledge.as_deref())
            .chain(headline.acknowledge.as_deref());
        let Some(subject) = current
            .into_iter()
            .find(|current| *current == news)
            .and_then(News::read)
        else {
            return false;
        };
        match subject {
            News::Poison(_) => lock(&self.poison).acknowledge(),
            subject => lock(&self.acknowledged).add(subject),
        }
        true
    }

    /// Sets the list of the other workers of the store that are silent.
    pub fn set_silent_workers(&self, workers: Vec<SilentWorker>) {
        *lock(&self.silent) = workers;
    }

    /// Returns the rate at which the queues with waiting jobs finish jobs.
    fn pace(&self, jobs: &[&QueueNow]) -> Rate {
        let (number, running) = (self.slot(), self.running().as_secs_f64());
        let series = lock(&self.queues);
        let waiting: Vec<&QueueSeries> = jobs
            .iter()
            .filter(|queue| queue.messages.unwrap_or(0) > queue.in_flight as u64)
            .filter_map(|queue| {
                series
                    .iter()
                    .find(|(name, _)| name.as_str() == queue.queue)
                    .map(|(_, series)| series)
            })
            .collect();
        if waiting.is_empty() {
            return Rate::Running;
        }
        let paces: Option<Vec<f64>> = waiting
            .iter()
            .map(|series| series.pace(number, running))
            .collect();
        paces.map_or(Rate::Unknown, |paces| Rate::PerSecond(paces.iter().sum()))
    }

    /// Returns the views whose last audit found wrong items and left them wrong.
    fn drift(&self) -> Vec<DriftedView> {
        let catalog = self.catalog();
        let series = lock(&self.views);
        let declared = series.iter().filter(|(view, _)| catalog.declares(view));
        let drifted = |(view, series): (&ViewName, &ViewSeries)| {
            series.drifted().map(|(items, audited)| DriftedView {
                view: view.to_string(),
                items,
                audited,
            })
        };
        declared.filter_map(drifted).collect()
    }

    pub fn queues(&self) -> Vec<QueueNow> {
        let (number, running) = (self.slot(), self.running().as_secs_f64());
        let status = self.status();
        let mut series = lock(&self.queues);
        status
            .queues
            .iter()
            .map(|status| {
                series.entry(status.queue.clone()).or_default().now(
                    number,
                    running,
                    status,
                    self.parts.clock.now(),
                )
            })
            .collect()
    }

    /// Returns the last hour of one queue, or of all job queues together.
    pub fn hour(&self, of: Option<&QueueName>) -> Vec<QueueSlot> {
        let kinds: BTreeMap<QueueName, QueueKind> = self
            .status()
            .queues
            .into_iter()
            .map(|status| (status.queue, status.kind))
            .collect();
        let series = lock(&self.queues);
        let meant = series.iter().filter(|(name, _)| match of {
            Some(queue) => *name == queue,
            None => kinds.get(*name) == Some(&QueueKind::Jobs),
        });
        queue::together(meant.map(|(_, series)| series), self.slot())
    }

    pub fn storage(&self) -> Vec<StorageNow> {
        let open = self.parts.health.open_circuits();
        let series = lock(&self.storage);
        series.now(self.slot(), |account, service| {
            open.iter()
                .find(|open| open.account == *account && open.service.name() == service)
                .map(|open| open.since.to_string())
        })
    }

    pub fn storage_hour(&self) -> Vec<StorageHour> {
        lock(&self.storage).hour(self.slot())
    }

    /// Returns the busiest partitions and queues of the last hour, the hottest first.
    pub fn hottest(&self, most: usize, names: PartitionNames) -> Vec<HotPartition> {
        let catalog = self.catalog();
        lock(&self.hot).now(self.slot(), catalog.as_ref(), names, most)
    }

    /// Returns the throttle scopes whose requests are paused, the longest pause first, and then the scopes whose
    /// requests are paced.
    pub fn limited_scopes(&self, names: PartitionNames) -> Vec<LimitedScope> {
        let catalog = self.catalog();
        self.parts
            .meter
            .limited_scopes()
            .into_iter()
            .map(|hold| hold.named(names, &catalog))
            .collect()
    }

    pub fn costs(&self) -> Costs {
        lock(&self.costs).now()
    }

    /// Returns the time since the last slot was sampled, and the time since poison messages were last counted.
    pub fn last_measured(&self) -> (Option<Duration>, Option<Duration>) {
        let (sampled, counted) = *lock(&self.measured);
        let ago = |at: Duration| self.running().saturating_sub(at);
        (sampled.map(ago), counted.map(ago))
    }

    pub fn open_circuits(&self) -> usize {
        self.parts.health.open_circuits().len()
    }

    pub fn view_count(&self) -> usize {
        self.catalog().views.len() + self.catalog().dated_views.len()
    }

    /// Returns up to `most` views in alphabetical order. If `after` is given, they begin after the view with that name.
    pub fn views(&self, after: Option<&str>, most: usize) -> Vec<ViewNow> {
        let (number, running) = (self.slot(), self.running().as_secs_f64());
        let mut series = lock(&self.views);
        let after = after
            .and_then(|after| ViewName::new(after).ok())
            .map_or(Bound::Unbounded, Bound::Excluded);
        let catalog = self.catalog();
        let views = catalog.declared();
        views
            .range::<&ViewName, _>((after.as_ref(), Bound::Unbounded))
            .take(most)
            .map(|(view, (kind, source))| {
                let (name, kind, source) =
                    (view.to_string(), (*kind).to_owned(), source.to_string());
                series
                    .entry((*view).clone())
                    .or_default()
                    .now(number, running, name, kind, source)
            })
            .collect()
    }

    /// Records the results of the last audits.
    pub(super) fn audited(&self, records: &[AuditRecord]) {
        let catalog = self.catalog();
        let mut series = lock(&self.views);
        for record in records
            .iter()
            .filter(|record| catalog.declares(&record.view))
        {
            series
                .entry(record.view.clone())
                .or_default()
                .audited(record.drift, record.completed);
            gauges::audit(&record.view, record.drift, record.completed);
        }
    }

    /// Returns the newest matching jobs. Each has at most `keys` keys.
    pub fn jobs(&self, filter: &JobFilter, most: usize, keys: usize) -> Vec<JobRecord> {
        // A search takes some milliseconds. It uses a copy, so that the worker need not wait for the lock.
        let journal = lock(&self.journal).clone();
        journal.find(filter, most, keys)
    }

    /// Returns the unfinished jobs about whole tables that this worker has run a part of.
    pub fn walks(&self) -> Vec<WalkNow> {
        lock(&self.walks).now(self.parts.clock.now())
    }

    /// Returns the number of poisoned messages in all queues; `None` before the first count.
    pub fn poisoned(&self) -> Option<u64> {
        lock(&self.poison).total()
    }

    pub fn poisoned_of(&self, queue: &QueueName) -> Option<u64> {
        lock(&self.poison).of(queue)
    }

    /// Records the number of messages in a poison queue.
    pub fn poison_counted(&self, queue: &QueueName, messages: u64) {
        gauges::poison(queue, messages);
        lock(&self.poison).counted(queue.clone(), messages);
        lock(&self.measured).1 = Some(self.running());
    }

    /// Records the measures of a slot that has ended.
    pub(super) fn sample(&self, ended: u64) {
        let status = self.status();
        let mut series = lock(&self.queues);
        for status in &status.queues {
            series
                .entry(status.queue.clone())
                .or_default()
                .sampled(ended, status);
        }
        drop(series);
        let meter = &self.parts.meter;
        lock(&self.storage).sampled(ended, meter.tallies());
        let busiest = meter.busiest();
        gauges::accounts(
            &meter.accounts(),
            &busiest,
            &meter.limited_scopes(),
            &meter.account_rate_limits(),
        );
        lock(&self.hot).sampled(ended, busiest);
        lock(&self.costs).sampled(ended, meter.billed());
        lock(&self.measured).0 = Some(self.running());
    }

    fn status(&self) -> WorkerStatus {
        self.work().map_or_else(
            || WorkerStatus { queues: Vec::new() },
            |work| work.status.snapshot(),
        )
    }
}

impl Observer for OpsState {
    fn ended(&self, delivery: DeliveryReport) {
        let number = self.slot();
        {
            let mut queues = lock(&self.queues);
            match queues.get_mut(&delivery.queue) {
                Some(series) => series.ended(number, &delivery),
                None => queues
                    .entry(delivery.queue.clone())
                    .or_default()
                    .ended(number, &delivery),
            }
        }
        lock(&self.walks).ended(&delivery);
        match delivery.ending {
            DeliveryStatus::Done | DeliveryStatus::Skipped => {
                lock(&self.costs).finished(delivery.jobs, delivery.trace.billed);
            }
            DeliveryStatus::Retried | DeliveryStatus::Poisoned | DeliveryStatus::Lost => {
                self.record_view_errors(&delivery);
            }
        }
        if delivery.ending == DeliveryStatus::Done && ["audit", "backfill"].contains(&delivery.op) {
            self.audits.notify_one();
        }
        if delivery.ending == DeliveryStatus::Poisoned
            && let Some(queue) = self
                .job_queues()
                .iter()
                .find(|queue| belongs(&delivery.queue, &queue.name))
        {
            lock(&self.poison).one_more(&queue.name);
            // The message may also be in a count that is in progress, and would then be counted twice. Another count
            // corrects this.
            self.recount.notify_one();
        }
        lock(&self.journal).add(delivery);
    }

    fn found(&self, after: Duration) {
        lock(&self.found).found(self.slot(), after);
    }

    fn changed(&self, changes: &[ItemChange]) {
        let number = self.slot();
        let mut views = lock(&self.views);
        for change in changes {
            match views.get_mut(&change.view) {
                Some(series) => series.changed(number, change.action),
                None => views
                    .entry(change.view.clone())
                    .or_default()
                    .changed(number, change.action),
            }
        }
    }
}

impl OpsState {
    /// Records the error of a delivery for each view whose items the delivery left out of step.
    fn record_view_errors(&self, delivery: &DeliveryReport) {
        let Some(error) = &delivery.error else { return };
        let catalog = self.catalog();
        let mut views = lock(&self.views);
        for name in delivery.views.iter().filter(|name| catalog.declares(name)) {
            views
                .entry(name.clone())
                .or_default()
                .failed(delivery.at, error);
        }
    }
}

/// Whether a queue is the configured queue, one of its shards, or its recheck queue.
fn belongs(queue: &QueueName, configured: &QueueName) -> bool {
    let rest = queue.as_str().strip_prefix(configured.as_str());
    rest.is_some_and(|rest| {
        rest.is_empty() || rest == "-recheck" || (rest.len() == 3 && rest.starts_with('-'))
    })
}

/// Locks a mutex even if it is poisoned, because slightly wrong measures are better than none.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
