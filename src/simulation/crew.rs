//! The workers: the daemon's own code, started, crashed, told to shut down, and started again.

use std::convert::Infallible;
use std::ops::Range;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::archives::SINK;
use super::climate::{Climate, Draw, JOBS, chance};
use super::company::queue;
use super::fault::Fault;
use super::sky::Sky;
use super::stage::{Stage, StageClock, WORKERS};
use crate::adapters::circuit::Circuits;
use crate::adapters::sim::{REFUSED, SimWorld, Weather};
use crate::adapters::system::SeededChance;
use crate::adapters::wear::{Grouping, wear, wear_sink};
use crate::catalog::Catalog;
use crate::model::job::Primary;
use crate::model::{AccountName, cause};
use crate::ports::{Account, Chance, Clock, Sink, Stores};
use crate::reconcile::{Delivery, Engine, EngineParts, Execute, Failure, Outcome, Work};
use crate::retention::Keeper;
use crate::settings::QueueSettings;
use crate::worker::{Mode, Worker, WorkerError, WorkerParts};

/// How long a shutdown may take beyond the drain: what the worker allows itself, and a second.
const DRAIN_GRACE: Duration = Duration::from_secs(5);
/// The longest a worker stays away after its end, in seconds.
const AWAY: f64 = 120.0;

/// How often a worker sees to the tables by date, in seconds. (The daemon does so every hour.)
const TENDED_EVERY: Range<f64> = 30.0..300.0;

/// Everything that workers need.
pub(super) struct Crew {
    pub(super) seed: u64,
    pub(super) stage: Arc<Stage>,
    pub(super) climate: Arc<Climate>,
    pub(super) world: SimWorld,
    pub(super) catalog: Arc<Catalog>,
    pub(super) clocks: Vec<Arc<StageClock>>,
    /// How many workers were started.
    started: AtomicU64,
}

/// How a worker ended.
enum End {
    Crashed,
    Stopped(Result<(), WorkerError>),
}

impl Crew {
    pub(super) fn new(seed: u64, stage: Arc<Stage>, climate: Arc<Climate>, world: SimWorld, catalog: Arc<Catalog>) -> Self {
        let clocks = (0..climate.workers).map(|_| Arc::new(StageClock::new(Arc::clone(&stage)))).collect();
        Self { seed, stage, climate, world, catalog, clocks, started: AtomicU64::new(0) }
    }

    /// One host: a worker, and another after each end, until `curtain` falls.
    pub(super) async fn host(&self, slot: usize, curtain: &CancellationToken) {
        let chance = chance(self.seed, 1_000 + slot as u64);
        let draw = Draw(&chance);
        let mut terms: Vec<Duration> = self.climate.terms.iter().filter(|(_, host)| *host == slot).map(|(at, _)| *at).collect();
        terms.sort_unstable_by(|a, b| b.cmp(a));
        while !curtain.is_cancelled() {
            self.worker(slot, &mut terms, curtain).await;
            let away = Duration::from_secs_f64(draw.0.between(0.0, if self.stage.is_calm() { 2.0 } else { AWAY }));
            curtain.run_until_cancelled(sleep(away)).await;
        }
    }

    /// One worker, from its start to its end.
    async fn worker(&self, slot: usize, terms: &mut Vec<Duration>, curtain: &CancellationToken) {
        let caller = WORKERS + u32::try_from(slot).unwrap_or(0);
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let sky = Arc::new(Sky::new(Arc::clone(&self.stage), Arc::clone(&self.climate), caller, chance(self.seed, 2_000 + number)));
        let Some((worker, keeper)) = self.build(caller, slot, number, Arc::clone(&sky) as Arc<dyn Weather>) else { return };
        self.stage.tell(|| format!("{} starts", super::stage::name(caller)));
        let shutdown = CancellationToken::new();
        let mut told: Option<Duration> = None;
        let end = {
            let mut running = pin!(worker.run(Mode::Forever, shutdown.clone()));
            let mut tending = pin!(self.tend_on(keeper, number));
            loop {
                let next_term = terms.last().map(|at| Instant::now() + at.saturating_sub(self.stage.elapsed()));
                tokio::select! {
                    biased;
                    () = sky.crashed() => {
                        self.stage.explain(caller);
                        break End::Crashed;
                    }
                    ended = &mut running => break End::Stopped(ended.map(drop)),
                    never = &mut tending, if told.is_none() => match never {},
                    () = curtain.cancelled(), if told.is_none() => {
                        told = Some(self.stage.elapsed());
                        self.stage.explain(caller);
                        shutdown.cancel();
                    }
                    () = sleep_until(next_term.unwrap_or_else(Instant::now)), if told.is_none() && next_term.is_some() => {
                        terms.pop();
                        if self.stage.strike(Fault::Sigterm) {
                            self.stage.tell(|| format!("{} is told to shut down", super::stage::name(caller)));
                            told = Some(self.stage.elapsed());
                            self.stage.explain(caller);
                            shutdown.cancel();
                        }
                    }
                }
            }
        };
        // What it had and did not settle will be delivered again, and that is nobody's fault.
        self.stage.explain(caller);
        self.stage.tell(|| format!("{} {}", super::stage::name(caller), if matches!(end, End::Crashed) { "crashes" } else { "ends" }));
        match (end, told) {
            // Whoever starts it starts it again: its queues could not be created, for a request was refused.
            (End::Stopped(Err(error)), _) if cause::chain(&error).contains(REFUSED) => {}
            (End::Stopped(Err(error)), _) => self.stage.violated(format!("a worker ended by itself: {error}")),
            (End::Stopped(Ok(())), None) => self.stage.violated("a worker ended by itself".to_owned()),
            (End::Stopped(Ok(())), Some(told)) => {
                let took = self.stage.elapsed().saturating_sub(told);
                if took > self.climate.settings.drain + DRAIN_GRACE {
                    self.stage.violated(format!("a shutdown took {took:?}"));
                }
            }
            (End::Crashed, _) => {}
        }
    }

    /// A worker that runs until there is nothing left to do, in fair weather.
    pub(super) async fn sweep(&self, mode: Mode, weather: Arc<dyn Weather>) {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let Some((worker, _)) = self.build(WORKERS, 0, number, weather) else { return };
        if let Err(error) = worker.run(mode, CancellationToken::new()).await {
            self.stage.violated(format!("the last worker ended badly: {error}"));
        }
    }

    /// The daemon as `app` composes it.
    fn build(&self, caller: u32, slot: usize, number: u64, weather: Arc<dyn Weather>) -> Option<(Worker, Option<Keeper<'_>>)> {
        let clock: Arc<dyn Clock> = self.clocks.get(slot)?.clone();
        let chance: Arc<dyn Chance> = Arc::new(chance(self.seed, 3_000 + number));
        let settings = self.climate.settings.clone();
        let seen = self.world.seen_by(caller, weather);
        let worn = wear(&AccountName::main(), &seen.account(), Grouping::Together, settings.storage_retry, &clock, &chance);
        let sink = wear_sink(&sink_name(), seen.sink(), settings.storage_retry, &clock, &chance).sink;
        let stores = stores(&seen, &worn.account, sink);
        let engine = Arc::new(Engine::new(EngineParts {
            stores: stores.clone(),
            catalog: Arc::clone(&self.catalog),
            clock: Arc::clone(&clock),
            chance: Arc::new(self::chance(self.seed, 6_000 + number)),
            recheck_after: settings.recheck_after,
        }));
        let keys = Arc::clone(&engine);
        let execute = Arc::new(Watched {
            engine,
            stage: Arc::clone(&self.stage),
            caller,
            chance: self::chance(self.seed, 4_000 + number),
            panics: self.climate.rates[Fault::Panic as usize],
            pills: self.climate.rates[Fault::Pill as usize],
            job_timeout: settings.job_timeout,
        });
        let keeper =
            (!self.catalog.retentions.is_empty()).then(|| Keeper::new(&self.catalog, stores.clone(), Arc::clone(&clock), &[self.queue()]));
        let parts = WorkerParts {
            stores,
            health: Arc::new(Circuits::new(vec![worn.circuit])),
            execute,
            clock,
            chance,
            settings,
            queues: vec![self.queue()],
            name: super::stage::name(caller),
            key_of: Arc::new(move |job| keys.primary_of(job)),
        };
        let worker = Worker::new(parts).map_err(|error| self.stage.violated(format!("a worker cannot be made: {error}"))).ok()?;
        Some((worker, keeper))
    }

    fn queue(&self) -> QueueSettings {
        QueueSettings { concurrency: self.climate.concurrency.into(), ..QueueSettings::plain(queue(JOBS)) }
    }

    /// Sees to the tables by date again and again, where there are any.
    async fn tend_on(&self, keeper: Option<Keeper<'_>>, number: u64) -> Infallible {
        let chance = chance(self.seed, 7_000 + number);
        let Some(keeper) = keeper else { return std::future::pending().await };
        loop {
            // What fails is tried again.
            drop(keeper.tend().await);
            sleep(Duration::from_secs_f64(chance.between(TENDED_EVERY.start, TENDED_EVERY.end))).await;
        }
    }

    /// Sees to the tables by date once, by the right clock.
    pub(super) async fn tend(&self, weather: Arc<dyn Weather>) {
        let seen = self.world.seen_by(WORKERS, weather);
        let clock = Arc::new(StageClock::new(Arc::clone(&self.stage)));
        let keeper = Keeper::new(&self.catalog, stores(&seen, &seen.account(), seen.sink()), clock, &[self.queue()]);
        if let Err(error) = keeper.tend().await {
            self.stage.violated(format!("the tables by date could not be seen to in fair weather: {error}"));
        }
    }
}

/// An account with what lies beside it: a search service and shared folders.
pub(super) fn stores(seen: &SimWorld, account: &Account, sink: Arc<dyn Sink>) -> Stores {
    let stores = Stores::new([(AccountName::main(), account.clone())].into());
    stores.with_sinks([(sink_name(), sink)].into()).with_files(seen.files())
}

#[expect(clippy::expect_used, reason = "a constant, which every run uses")]
fn sink_name() -> AccountName {
    AccountName::new(SINK).expect("a name")
}

/// The engine, with somebody who notes when its runs begin and how they end, and who makes some panic.
struct Watched {
    engine: Arc<Engine>,
    stage: Arc<Stage>,
    caller: u32,
    chance: SeededChance,
    panics: f64,
    pills: f64,
    job_timeout: Duration,
}

/// A run under way. Dropped before it has ended: it was cancelled, timed out or panicked.
struct Running<'a> {
    watched: &'a Watched,
    primary: Option<Primary>,
    queue: &'a str,
    message: &'a str,
    delivery: u32,
    began: Duration,
    /// It gave an answer, or panicked.
    ended: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let took = self.watched.stage.elapsed().saturating_sub(self.began);
        let dropped = !self.ended && took < self.watched.job_timeout;
        self.watched.stage.run_ends(self.watched.caller, self.primary.as_ref(), (self.queue, self.message, self.delivery), dropped);
        if !self.ended {
            self.watched.stage.explain_message(self.message);
        }
    }
}

#[async_trait]
impl Execute for Watched {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        let (primary, queue) = match work {
            Work::Job(job) => (self.engine.primary_of(job), JOBS),
            Work::Recheck(recheck) => (Some(recheck.primary.clone()), delivery.recheck_queue.as_str()),
        };
        let message = delivery.stamp.message_id.as_str();
        let began = self
            .stage
            .run_begins(self.caller, primary.as_ref(), (queue, message, delivery.dequeue_count), || format!("{work:?} {delivery:?}"));
        let began_at = self.stage.elapsed();
        let mut running =
            Running { watched: self, primary, queue, message, delivery: delivery.dequeue_count, began: began_at, ended: false };
        if self.pills > 0.0 && self.stage.is_pill(message, || self.chance.unit() < self.pills) {
            self.panic("as always", message);
        }
        let panics = self.panics > 0.0 && self.chance.unit() < self.panics && self.stage.strike(Fault::Panic);
        if panics && self.chance.unit() < 0.5 {
            self.panic("before it began", message);
        }
        let result = self.engine.execute(work, delivery).await;
        if panics {
            self.panic("after it had ended", message);
        }
        match &result {
            Ok(outcome) => {
                running.ended = true;
                self.stage.run_ended_well(self.caller, queue, message, began, outcome);
                self.stage.tell(|| format!("{} run ended: {outcome:?}", super::stage::name(self.caller)));
            }
            Err(failure) => {
                running.ended = true;
                self.stage.tell(|| format!("{} run failed: {:?} {}", super::stage::name(self.caller), failure.class, failure.chain()));
            }
        }
        result
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        self.engine.give_up(work, delivery).await
    }
}

impl Watched {
    /// Without the panic hook, which would print.
    fn panic(&self, when: &str, message: &str) -> ! {
        self.stage.panicked(message);
        self.stage.tell(|| format!("{} FAULT the run panics {when}", super::stage::name(self.caller)));
        resume_unwind(Box::new("injected"))
    }
}
