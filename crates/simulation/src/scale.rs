//! Measures the throughput of workers on a simulated account that has Azure's published limits. It uses virtual time,
//! so the speed of the machine does not matter.
//!
//! When the workers start, a backlog of `sync` jobs is queued, as after an outage. There is one view, which lists
//! employees by e-mail address in another table and partition. Everything except the store, the clock and the random
//! numbers is the daemon's own code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use evenkeel_account::{NoFaults, SimWorld};
use evenkeel_layers::circuit::Circuits;
use evenkeel_layers::observe::{AnswerKind, RequestCounts};
use evenkeel_layers::stack::{Grouping, decorate_within};
use evenkeel_model::catalog::{Catalog, OnConflict, SecondaryIndex, TableRef, View, ViewKind};
use evenkeel_storage::system::SeededRng;

use evenkeel_engine::{Delivery, Engine, EngineParts, Execute, Failure, Outcome, Work};
use evenkeel_model::settings::{Concurrency, PaceCeilings, QueueSettings, WorkerSettings};
use evenkeel_model::settled::FOOTPRINTS;
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, Entity, EntityKey, QueueName, ViewName, body, shard};
use evenkeel_storage::{Account, Clock, Rng, Service, Stores, TableOperation, Ttl};
use evenkeel_worker::{Mode, Rechecks, Worker, WorkerParts};
use futures::StreamExt as _;
use futures::future::{join_all, try_join_all};
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::arrivals::Arrivals;
use evenkeel_account::company::{queue, table};

pub use evenkeel_account::{ServiceLimits, ServiceLoad};

const JOBS: &str = "jobs";
const EMPLOYEES: &str = "Employees";
const BY_EMAIL: &str = "ByEmail";
/// Interval of the application's requests to the hot partition.
const TICK: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleRequest {
    pub workers: usize,
    pub shards: u32,
    /// Number of primaries per message, all in one partition.
    pub batch: usize,
    /// Number of primaries. Each of them has one job.
    pub primaries: usize,
    pub partitions: usize,
    pub hot: Option<HotSpot>,
    pub limits: ServiceLimits,
    pub paced: bool,
    /// Number of primaries that an application writes per second, each with its own message. If `None`, all primaries
    /// exist from the start.
    pub arrivals: Option<f64>,
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HotSpot {
    /// One in this many jobs is for the hot partition.
    pub one_in: usize,
    /// Number of reads per second that an application sends to the footprints of the hot partition.
    pub others: u32,
    /// Whether the application reads another partition of the footprint table instead, for comparison. No job uses that
    /// partition.
    pub apart: bool,
}

impl Default for ScaleRequest {
    fn default() -> Self {
        Self {
            workers: 1,
            shards: 1,
            batch: 1,
            primaries: 20_000,
            partitions: 64,
            hot: None,
            limits: ServiceLimits::AZURE,
            paced: true,
            arrivals: None,
            seed: 1,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScaleReport {
    /// Primaries per second, measured over the middle half of the primaries.
    pub primaries_per_second: f64,
    pub took: Duration,
    /// If one partition is hot, the time until the last primary of the other partitions was done.
    pub cold_took: Duration,
    /// Number of requests per primary, including the put of its message.
    pub requests_each: f64,
    /// Number of requests to queues per primary.
    pub queue_requests_each: f64,
    pub refused: f64,
    /// Load of the busiest queue, the busiest partition and the account, as a share of their limits, measured over the
    /// middle half of the primaries.
    pub load: ScaleLoad,
    /// Jain's fairness index of the workers, measured over the middle half of the primaries. It is 1 if all workers
    /// have done the same number of primaries.
    pub fair_workers: f64,
    pub fair_partitions: f64,
    /// With `arrivals`, the median and the 99th percentile of the time from the write of a primary to the end of its
    /// job.
    pub found_within: Option<(Duration, Duration)>,
    pub seconds: Vec<ServiceLoad>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ScaleLoad {
    pub queue: f64,
    pub partition: f64,
    pub account: f64,
}

impl ScaleLoad {
    /// Returns the bottleneck: the limit with the highest load, or `workers` if no load is near its limit.
    pub fn wall(&self) -> &'static str {
        const FULL: f64 = 0.85;
        let all = [
            (self.queue, "queue"),
            (self.partition, "partition"),
            (self.account, "account"),
        ];
        let most = all
            .into_iter()
            .max_by(|one, other| one.0.total_cmp(&other.0));
        most.filter(|(share, _)| *share >= FULL)
            .map_or("workers", |(_, name)| name)
    }
}

struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        let start = Timestamp::UNIX_EPOCH
            .saturating_add(SignedDuration::from_hours(24 * 365 * 56))
            .unwrap_or(Timestamp::UNIX_EPOCH);
        start
            .saturating_add(SignedDuration::try_from(self.monotonic()).unwrap_or_default())
            .unwrap_or(start)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

type FinishedPrimary = (Duration, usize, String);

#[derive(Debug, Clone, Default)]
struct FinishedWork {
    done: Arc<Mutex<Vec<FinishedPrimary>>>,
    arrivals: Arc<Arrivals>,
}

struct CountedEngine {
    inner: Arc<Engine>,
    clock: Arc<dyn Clock>,
    worker: usize,
    records: FinishedWork,
}

#[async_trait]
impl Execute for CountedEngine {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        let outcome = self.inner.execute(work, delivery).await?;
        if let Work::Job(job) = work
            && let Some(key) = job.key()
        {
            let now = self.clock.monotonic();
            self.records.arrivals.is_found(key, now);
            let done = (now, self.worker, key.pk.to_string());
            self.records
                .done
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(done);
        }
        Ok(outcome)
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        self.inner.give_up(work, delivery).await
    }
}

pub fn scale(request: &ScaleRequest) -> anyhow::Result<ScaleReport> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    runtime.block_on(measured(request))
}

async fn measured(request: &ScaleRequest) -> anyhow::Result<ScaleReport> {
    let clock: Arc<dyn Clock> = Arc::new(PausedClock(Instant::now()));
    let world = SimWorld::new(AccountName::main(), Arc::clone(&clock), Arc::new(NoFaults));
    let catalog = Arc::new(catalog()?);
    let queues = QueueSettings {
        shards: request.shards,
        concurrency: Concurrency::Auto,
        ..QueueSettings::plain(queue(JOBS))
    };
    prepare(&world.account(), &queues).await?;
    if request.arrivals.is_none() {
        fill(request, &world.account(), &queues).await?;
    }
    world.limit(request.limits, Arc::new(SeededRng::new(request.seed)));
    let (done, over) = (FinishedWork::default(), CancellationToken::new());
    let (workers, counts): (Vec<Worker>, Vec<Arc<RequestCounts>>) = (0..request.workers)
        .map(|number| worker(request, number, &world, (&clock, &catalog, &queues), &done))
        .collect::<anyhow::Result<Vec<_>>>()?
        .into_iter()
        .unzip();
    let work = async {
        let mode = || Mode::UntilIdle {
            quiet: Duration::from_secs(1),
            rechecks: Rechecks::Ignored,
        };
        let ended = join_all(
            workers
                .iter()
                .map(|worker| worker.run(mode(), CancellationToken::new())),
        )
        .await;
        over.cancel();
        ended
    };
    let mut seconds = Vec::new();
    let watch = async {
        loop {
            seconds.push((clock.monotonic(), world.load()));
            sleep(Duration::from_secs(1)).await;
        }
    };
    let account = world.account();
    let arrive = arrive(request, &account, &queues, (clock.as_ref(), &done.arrivals));
    let (ended, arrived, _, _) = tokio::join!(
        work,
        arrive,
        over.run_until_cancelled(watch),
        over.run_until_cancelled(load_hot_partition(request, world.account()))
    );
    arrived?;
    ended.into_iter().collect::<Result<Vec<_>, _>>()?;
    let found_within = done
        .arrivals
        .percentile(50)
        .zip(done.arrivals.percentile(99));
    let mut done = std::mem::take(&mut *done.done.lock().unwrap_or_else(PoisonError::into_inner));
    done.sort_unstable();
    anyhow::ensure!(
        done.len() >= request.primaries,
        "only {} of {} primaries are done",
        done.len(),
        request.primaries
    );
    Ok(ScaleReport {
        found_within,
        ..judged(request, &done, &seconds, &counts)
    })
}

#[expect(clippy::cast_precision_loss, reason = "measured counts are small")]
fn judged(
    request: &ScaleRequest,
    done: &[FinishedPrimary],
    seconds: &[(Duration, ServiceLoad)],
    counts: &[Arc<RequestCounts>],
) -> ScaleReport {
    let (from, to) = (done.len() / 4, done.len() * 3 / 4);
    let middle = &done[from..to];
    let (begins, ends) = (done[from].0, done[to].0);
    let at = |time: Duration| {
        seconds
            .iter()
            .find(|(at, _)| *at >= time)
            .or_else(|| seconds.last())
            .copied()
            .unwrap_or_default()
    };
    let (mut early, mut late) = (at(begins), at(ends));
    if late.0 <= early.0 {
        (early, late) = (
            seconds.first().copied().unwrap_or_default(),
            seconds.last().copied().unwrap_or_default(),
        );
    }
    let length = late.0.saturating_sub(early.0).as_secs_f64().max(0.001);
    let share = |of: fn(&ServiceLoad) -> u64, takes: f64| {
        of(&late.1).saturating_sub(of(&early.1)) as f64 / length / takes
    };
    let primaries = request.primaries as f64;
    let sent: u64 = counts
        .iter()
        .map(|counts| counts.snapshot().transactions())
        .sum();
    let of_queues: u64 = counts
        .iter()
        .map(|counts| counts.snapshot().of_service(Service::Queue))
        .sum();
    let refused: u64 = [Service::Table, Service::Queue]
        .into_iter()
        .flat_map(|service| {
            counts
                .iter()
                .map(move |counts| counts.answers(service).answers[AnswerKind::Throttled as usize])
        })
        .sum();
    let puts = (request.primaries as f64 / request.batch as f64).ceil();
    let tally = |key: fn(&FinishedPrimary) -> String| {
        let mut tally = BTreeMap::<String, f64>::new();
        for done in middle {
            *tally.entry(key(done)).or_default() += 1.0;
        }
        tally.into_values().collect::<Vec<f64>>()
    };
    ScaleReport {
        primaries_per_second: middle.len() as f64
            / ends.saturating_sub(begins).as_secs_f64().max(0.001),
        took: done.last().map(|done| done.0).unwrap_or_default(),
        cold_took: done
            .iter()
            .rev()
            .find(|done| done.2 != partition(0))
            .map(|done| done.0)
            .unwrap_or_default(),
        requests_each: (sent as f64 + puts) / primaries,
        queue_requests_each: (of_queues as f64 + puts) / primaries,
        refused: refused as f64 / (sent as f64).max(1.0),
        load: ScaleLoad {
            queue: share(|load| load.queue, request.limits.queue),
            partition: share(|load| load.partition, request.limits.partition),
            account: share(|load| load.requests - load.refused, request.limits.account),
        },
        fair_workers: jain(&tally(|done| done.1.to_string()), request.workers),
        fair_partitions: jain(&tally(|done| done.2.clone()), request.partitions),
        found_within: None,
        seconds: seconds.iter().map(|(_, load)| *load).collect(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "measured counts are small")]
fn jain(has: &[f64], of: usize) -> f64 {
    let (sum, squares) = has.iter().fold((0.0, 0.0), |(sum, squares), one| {
        (sum + one, one.mul_add(*one, squares))
    });
    if squares > 0.0 {
        sum * sum / (of.max(1) as f64 * squares)
    } else {
        1.0
    }
}

async fn load_hot_partition(request: &ScaleRequest, account: Account) {
    let Some(HotSpot { others, apart, .. }) = request.hot else {
        return;
    };
    let pk = if apart {
        "others".to_owned()
    } else {
        format!("{EMPLOYEES}~{}", partition(0))
    };
    let Ok(key) = EntityKey::new(pk, "others") else {
        return;
    };
    let (each, table, mut under_way) = (
        others.div_ceil(100),
        table(FOOTPRINTS),
        FuturesUnordered::new(),
    );
    loop {
        under_way.extend((0..each).map(|_| account.tables.get(&table, &key, None)));
        let answers = async {
            while under_way.next().await.is_some() {}
            std::future::pending::<()>().await;
        };
        drop(timeout(TICK, answers).await);
    }
}

fn partition(number: usize) -> String {
    format!("p{number:02}")
}

async fn prepare(account: &Account, queues: &QueueSettings) -> anyhow::Result<()> {
    for name in [EMPLOYEES, BY_EMAIL, FOOTPRINTS] {
        account.tables.create_table(&table(name)).await?;
    }
    for name in queues
        .shard_names()
        .iter()
        .chain([&queue("jobs-poison"), &queue("jobs-recheck")])
    {
        account.queues.create_queue(name).await?;
    }
    Ok(())
}

fn employee(request: &ScaleRequest, number: usize) -> anyhow::Result<Entity> {
    let cold = 1 + number % request.partitions.saturating_sub(1).max(1);
    let pk = match request.hot {
        Some(hot) if number.is_multiple_of(hot.one_in.max(1)) => partition(0),
        Some(_) => partition(cold),
        None => partition(number % request.partitions.max(1)),
    };
    let rk = format!("{number:07}");
    Ok(Entity::new(EntityKey::new(pk, &rk)?)
        .with("Email", format!("{rk}@contoso.com"))
        .with("FirstName", "Ann"))
}

/// Writes `request.arrivals` employees per second, as an application would, and sends a message after each write.
async fn arrive(
    request: &ScaleRequest,
    account: &Account,
    queues: &QueueSettings,
    (clock, arrivals): (&dyn Clock, &Arrivals),
) -> anyhow::Result<()> {
    let Some(a_second) = request.arrivals else {
        return Ok(());
    };
    let (shards, employees) = (queues.shard_names(), table(EMPLOYEES));
    let comes = async |number: usize| -> anyhow::Result<()> {
        let entity = employee(request, number)?;
        let EntityKey { pk, rk } = entity.key.clone();
        #[expect(
            clippy::cast_precision_loss,
            reason = "the number of primaries is small"
        )]
        sleep(Duration::from_secs_f64(number as f64 / a_second)).await;
        account
            .tables
            .apply(&employees, &TableOperation::Insert(entity))
            .await?;
        arrivals.was_written(
            EntityKey {
                pk: pk.clone(),
                rk: rk.clone(),
            },
            clock.monotonic(),
        );
        post(account, &shards, pk.as_str(), vec![rk.to_string()]).await
    };
    try_join_all((0..request.primaries).map(comes))
        .await
        .map(drop)
}

async fn fill(
    request: &ScaleRequest,
    account: &Account,
    queues: &QueueSettings,
) -> anyhow::Result<()> {
    let (shards, employees) = (queues.shard_names(), table(EMPLOYEES));
    let mut batches = BTreeMap::<String, Vec<String>>::new();
    for number in 0..request.primaries {
        let entity = employee(request, number)?;
        let (pk, rk) = (entity.key.pk.to_string(), entity.key.rk.to_string());
        account
            .tables
            .apply(&employees, &TableOperation::Insert(entity))
            .await?;
        let batch = batches.entry(pk.clone()).or_default();
        batch.push(rk);
        if batch.len() >= request.batch {
            let rks = std::mem::take(batch);
            post(account, &shards, &pk, rks).await?;
        }
    }
    for (pk, rks) in batches.into_iter().filter(|(_, rks)| !rks.is_empty()) {
        post(account, &shards, &pk, rks).await?;
    }
    Ok(())
}

async fn post(
    account: &Account,
    shards: &[QueueName],
    pk: &str,
    rks: Vec<String>,
) -> anyhow::Result<()> {
    let key = EntityKey::new(pk, rks.first().map_or("", String::as_str))?;
    let count = u32::try_from(shards.len()).unwrap_or(1);
    let number = shard(&table(EMPLOYEES), &key, count) as usize;
    let text = match rks.as_slice() {
        [rk] => json!({"op": "sync", "table": EMPLOYEES, "pk": pk, "rk": rk}),
        rks => json!({"op": "sync", "table": EMPLOYEES, "pk": pk, "rks": rks}),
    };
    account
        .queues
        .put(
            &shards[number % shards.len()],
            &body::encode(&text.to_string()),
            Duration::ZERO,
            Ttl::Never,
        )
        .await?;
    Ok(())
}

fn catalog() -> anyhow::Result<Catalog> {
    let place = |name: &str| TableRef {
        account: AccountName::main(),
        table: table(name),
    };
    let (employees, copies) = (place(EMPLOYEES), place(BY_EMAIL));
    let view = View {
        name: ViewName::new("by_email")?,
        source: employees.clone(),
        when: None,
        kind: ViewKind::SecondaryIndex(SecondaryIndex {
            target: copies.clone().into(),
            partition_key: Template::parse("email_{PartitionKey}")?,
            row_key: Template::parse("{Email}")?,
            select: None,
        }),
        on_conflict: OnConflict::Reject,
    };
    Ok(Catalog {
        tables: [employees, copies]
            .into_iter()
            .map(|table| (table.table.clone(), table))
            .collect(),
        views: [(view.name.clone(), Arc::new(view))].into(),
        ..Catalog::default()
    })
}

/// Composes a worker as `app` does, with default settings.
fn worker(
    request: &ScaleRequest,
    number: usize,
    world: &SimWorld,
    (clock, catalog, queues): (&Arc<dyn Clock>, &Arc<Catalog>, &QueueSettings),
    records: &FinishedWork,
) -> anyhow::Result<(Worker, Arc<RequestCounts>)> {
    let settings = WorkerSettings::default();
    let seed = request.seed.wrapping_mul(1_000).wrapping_add(number as u64);
    let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(seed));
    let caller = u32::try_from(number).unwrap_or(u32::MAX);
    let account = world.for_caller(caller, Arc::new(NoFaults)).account();
    let ceilings = request.paced.then_some(PaceCeilings::AZURE);
    let decorated = decorate_within(
        &AccountName::main(),
        &account,
        Grouping::Together,
        ceilings,
        settings.storage_retry,
        clock,
        &rng,
    );
    let stores = Stores::new([(AccountName::main(), decorated.account)].into());
    let engine = Arc::new(Engine::new(EngineParts {
        stores: stores.clone(),
        catalog: Arc::clone(catalog),
        clock: Arc::clone(clock),
        rng: Arc::clone(&rng),
        recheck_after: settings.recheck_after,
    }));
    let keys = Arc::clone(&engine);
    let counted = CountedEngine {
        inner: Arc::clone(&engine),
        clock: Arc::clone(clock),
        worker: number,
        records: records.clone(),
    };
    let worker = Worker::new(WorkerParts {
        stores,
        health: Arc::new(Circuits::new(vec![decorated.circuit])),
        execute: Arc::new(counted),
        encrypt_bodies: engine,
        clock: Arc::clone(clock),
        rng,
        settings,
        queues: vec![queues.clone()],
        name: format!("w{number}"),
        resolve_primaries: Arc::new(move |job| keys.forms_of(job)),
    })?;
    Ok((worker, decorated.counts))
}
