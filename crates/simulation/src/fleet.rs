//! The workers, which run the daemon's own code. They are started, crashed, stopped and started again.

use std::collections::BTreeMap;
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
use super::cuts::CutChance;
use super::fault::FaultKind;
use super::fault_plan::{Draw, FaultPlan, JOBS};
use super::injector::FaultInjector;
use super::releases::{ReleaseWorker, Releases, is_refusal};
use super::shared_state::{SharedState, WORKERS, WorkerClock};
use super::sim_accounts::{FaultPolicies, SimulatedAccounts};
use evenkeel_account::company::queue;
use evenkeel_account::{FaultPolicy, REFUSED};
use evenkeel_engine::retention::{Keeper, TurnTime};
use evenkeel_engine::{
    Delivery, EncryptBodies, Engine, EngineParts, Execute, Failure, Outcome, SigningSecret, Work,
};
use evenkeel_layers::circuit::Circuits;
use evenkeel_layers::stack::{Grouping, decorate, decorate_sink};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::Primary;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{AccountName, CatalogOwner};
use evenkeel_storage::{Account, Clock, Rng, Sink, Stores};
use evenkeel_worker::{Mode, PrimaryResolver, Worker, WorkerParts};

/// How long a shutdown may take after the drain: the worker's own limit plus one second.
pub(super) const DRAIN_GRACE: Duration = Duration::from_secs(5);
/// Maximum time until a host starts its next worker, in seconds.
const AWAY: f64 = 120.0;

const TENDED_EVERY: Range<f64> = 30.0..300.0;

pub(super) struct WorkerFleet {
    pub(super) shared_state: Arc<SharedState>,
    pub(super) fault_plan: Arc<FaultPlan>,
    pub(super) abroad: Arc<FaultPlan>,
    pub(super) sim_accounts: SimulatedAccounts,
    pub(super) catalog: Arc<Catalog>,
    pub(super) releases: Option<Releases>,
    pub(super) clocks: Vec<Arc<WorkerClock>>,
    started: AtomicU64,
}

enum WorkerEnd {
    Crashed,
    Stopped(anyhow::Result<()>),
}

pub(super) struct WorkerSetup {
    pub(super) caller: u32,
    number: u64,
    pub(super) stores: Stores,
    circuits: Arc<Circuits>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) rng: Arc<dyn Rng>,
    engines: Arc<dyn Rng>,
    secret: Arc<SigningSecret>,
}

impl WorkerFleet {
    pub(super) fn new(
        shared_state: Arc<SharedState>,
        (fault_plan, abroad): (Arc<FaultPlan>, Arc<FaultPlan>),
        sim_accounts: SimulatedAccounts,
        (catalog, releases): (Arc<Catalog>, Option<Releases>),
    ) -> Self {
        let clocks = (0..fault_plan.workers)
            .map(|_| Arc::new(WorkerClock::new(Arc::clone(&shared_state))))
            .collect();
        Self {
            shared_state,
            fault_plan,
            abroad,
            sim_accounts,
            catalog,
            releases,
            clocks,
            started: AtomicU64::new(0),
        }
    }

    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(WorkerClock::new(Arc::clone(&self.shared_state)))
    }

    /// Runs a host, which starts one worker after the other until `stop` is cancelled.
    pub(super) async fn host(&self, slot: usize, stop: &CancellationToken) {
        let rng = self.shared_state.rng(1_000 + slot as u64);
        let draw = Draw(&rng);
        let mut terms: Vec<Duration> = self
            .fault_plan
            .terms
            .iter()
            .filter(|(_, host)| *host == slot)
            .map(|(at, _)| *at)
            .collect();
        terms.extend(
            self.releases
                .iter()
                .flat_map(|releases| releases.restarts(slot)),
        );
        terms.sort_unstable_by(|a, b| b.cmp(a));
        while !stop.is_cancelled() {
            self.worker(slot, &mut terms, stop).await;
            let away = Duration::from_secs_f64(draw.0.between(
                0.0,
                if self.shared_state.is_calm() {
                    2.0
                } else {
                    AWAY
                },
            ));
            stop.run_until_cancelled(sleep(away)).await;
        }
    }

    async fn worker(&self, slot: usize, terms: &mut Vec<Duration>, stop: &CancellationToken) {
        let caller = WORKERS + u32::try_from(slot).unwrap_or(0);
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let injector = Arc::new(FaultInjector::new(
            Arc::clone(&self.shared_state),
            Arc::clone(&self.fault_plan),
            caller,
            self.shared_state.rng(2_000 + number),
        ));
        let beside = Arc::new(injector.beside(
            Arc::clone(&self.abroad),
            self.shared_state.rng(90_000 + number),
        ));
        let policies = FaultPolicies {
            main: Arc::clone(&injector) as _,
            abroad: beside,
        };
        let Some(setup) = self.setup(caller, Some(slot), number, &policies) else {
            return;
        };
        let release = self.releases.as_ref().map(|releases| {
            (
                releases.configured(slot, self.shared_state.elapsed()),
                releases.migrated(),
            )
        });
        self.shared_state
            .tell(|| format!("{} starts", super::shared_state::name(caller)));
        let shutdown = CancellationToken::new();
        let mut stop_requested: Option<Duration> = None;
        let end = {
            let mut running = Box::pin(self.works(
                &setup,
                (
                    Mode::Forever,
                    release.map(|(release, _)| release),
                    Some(slot),
                ),
                &shutdown,
            ));
            let mut tending = pin!(self.maintain_tables(&setup));
            loop {
                let next_term = terms
                    .last()
                    .map(|at| Instant::now() + at.saturating_sub(self.shared_state.elapsed()));
                tokio::select! {
                    biased;
                    () = injector.crashed() => {
                        self.shared_state.explain(caller);
                        break WorkerEnd::Crashed;
                    }
                    ended = &mut running => break WorkerEnd::Stopped(ended),
                    never = &mut tending, if stop_requested.is_none() => match never {},
                    () = stop.cancelled(), if stop_requested.is_none() => {
                        stop_requested = Some(self.shared_state.elapsed());
                        self.shared_state.explain(caller);
                        shutdown.cancel();
                    }
                    () = sleep_until(next_term.unwrap_or_else(Instant::now)), if stop_requested.is_none() && next_term.is_some() => {
                        terms.pop();
                        if self.shared_state.inject(FaultKind::Sigterm) {
                            self.shared_state.tell(|| format!("{} receives SIGTERM", super::shared_state::name(caller)));
                            stop_requested = Some(self.shared_state.elapsed());
                            self.shared_state.explain(caller);
                            shutdown.cancel();
                        }
                    }
                }
            }
        };
        // The messages that the worker did not settle will be delivered again. The end of the worker explains these
        // deliveries.
        self.shared_state.explain(caller);
        self.shared_state.tell(|| {
            format!(
                "{} {}",
                super::shared_state::name(caller),
                if matches!(end, WorkerEnd::Crashed) {
                    "crashes"
                } else {
                    "ends"
                }
            )
        });
        match (end, stop_requested) {
            // The worker could not create its queues, because a request was refused. The host starts the next worker.
            (WorkerEnd::Stopped(Err(error)), _) if format!("{error:#}").contains(REFUSED) => {}
            // A worker may refuse its catalog while releases change. After the last release, a refusal is a violation.
            (WorkerEnd::Stopped(Err(error)), _)
                if error.chain().any(is_refusal)
                    && self.releases.as_ref().is_some_and(|releases| {
                        release != Some((releases.last(), releases.last()))
                    }) => {}
            (WorkerEnd::Stopped(Err(error)), _) => self
                .shared_state
                .violated(format!("a worker ended unexpectedly: {error:#}")),
            (WorkerEnd::Stopped(Ok(())), None) => {
                self.shared_state
                    .violated("a worker ended unexpectedly".to_owned());
            }
            (WorkerEnd::Stopped(Ok(())), Some(stop_requested)) => {
                let took = self.shared_state.elapsed().saturating_sub(stop_requested);
                if took > self.fault_plan.settings.drain + DRAIN_GRACE {
                    self.shared_state
                        .violated(format!("a shutdown took {took:?}, which is too long"));
                }
            }
            (WorkerEnd::Crashed, _) => {}
        }
    }

    pub(super) async fn sweep(&self, mode: Mode, policy: Arc<dyn FaultPolicy>) {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let Some(setup) = self.setup(WORKERS, Some(0), number, &FaultPolicies::same(policy)) else {
            return;
        };
        let release = self.releases.as_ref().map(Releases::last);
        if let Err(error) =
            Box::pin(self.works(&setup, (mode, release, None), &CancellationToken::new())).await
        {
            self.shared_state.violated(format!(
                "a worker failed although no fault is active: {error:#}"
            ));
        }
    }

    async fn works(
        &self,
        setup: &WorkerSetup,
        (mode, release, slot): (Mode, Option<usize>, Option<usize>),
        shutdown: &CancellationToken,
    ) -> anyhow::Result<()> {
        if let Some(release) = release {
            return self
                .released(
                    setup,
                    ReleaseWorker {
                        mode,
                        release,
                        slot,
                    },
                    shutdown,
                )
                .await
                .map(drop);
        }
        let engine = self.engine(setup, Arc::clone(&self.catalog));
        shutdown.run_until_cancelled(engine.read_secret()).await;
        let keys = Arc::clone(&engine);
        let Some(worker) =
            self.compose_worker(setup, &engine, Arc::new(move |job| keys.forms_of(job)))
        else {
            return Ok(());
        };
        worker.run(mode, shutdown.clone()).await?;
        Ok(())
    }

    pub(super) fn setup(
        &self,
        caller: u32,
        slot: Option<usize>,
        number: u64,
        policies: &FaultPolicies,
    ) -> Option<WorkerSetup> {
        let clock: Arc<dyn Clock> = match slot {
            Some(slot) => self.clocks.get(slot)?.clone(),
            None => self.clock(),
        };
        let rng: Arc<dyn Rng> = Arc::new(self.shared_state.rng(3_000 + number));
        let retry = self.fault_plan.settings.storage_retry;
        let seen = self.sim_accounts.for_caller(caller, policies);
        let (mut accounts, mut circuits) = (BTreeMap::new(), Vec::new());
        for (name, bare) in seen.accounts() {
            let decorated = decorate(&name, &bare, Grouping::Together, retry, &clock, &rng);
            accounts.insert(name, decorated.account);
            circuits.push(decorated.circuit);
        }
        let sink = decorate_sink(&sink_name(), seen.main.sink(), retry, &clock, &rng).sink;
        let engines = Arc::new(self.shared_state.rng(6_000 + number));
        let stores = stores(&seen, accounts, sink);
        Some(WorkerSetup {
            caller,
            number,
            stores,
            circuits: Arc::new(Circuits::new(circuits)),
            clock,
            rng,
            engines,
            secret: Arc::default(),
        })
    }

    pub(super) fn engine(&self, setup: &WorkerSetup, catalog: Arc<Catalog>) -> Arc<Engine> {
        let engine = Engine::new(EngineParts {
            stores: setup.stores.clone(),
            catalog,
            clock: Arc::clone(&setup.clock),
            rng: Arc::clone(&setup.engines),
            recheck_after: self.fault_plan.settings.recheck_after,
        });
        Arc::new(engine.signing_by(Arc::clone(&setup.secret)))
    }

    pub(super) fn compose_worker<E: Execute + EncryptBodies + 'static>(
        &self,
        setup: &WorkerSetup,
        engine: &Arc<E>,
        resolve_primaries: PrimaryResolver,
    ) -> Option<Worker> {
        let settings = self.fault_plan.settings.clone();
        let execute = Arc::new(WatchedEngine {
            inner: Arc::<E>::clone(engine),
            resolve_primaries: Arc::clone(&resolve_primaries),
            shared_state: Arc::clone(&self.shared_state),
            caller: setup.caller,
            rng: self.shared_state.rng(4_000 + setup.number),
            fault_plan: Arc::clone(&self.fault_plan),
            job_timeout: settings.job_timeout,
        });
        let parts = WorkerParts {
            stores: setup.stores.clone(),
            health: Arc::<Circuits>::clone(&setup.circuits),
            execute,
            encrypt_bodies: Arc::<E>::clone(engine),
            clock: Arc::clone(&setup.clock),
            rng: Arc::clone(&setup.rng),
            settings,
            queues: vec![self.queue()],
            name: super::shared_state::name(setup.caller),
            resolve_primaries,
        };
        Worker::new(parts)
            .map_err(|error| {
                self.shared_state
                    .violated(format!("cannot create a worker: {error}"));
            })
            .ok()
    }

    pub(super) fn queue(&self) -> QueueSettings {
        QueueSettings {
            concurrency: self.fault_plan.concurrency.into(),
            ..QueueSettings::plain(queue(JOBS))
        }
    }

    async fn maintain_tables(&self, setup: &WorkerSetup) -> Infallible {
        let rng = self.shared_state.rng(7_000 + setup.number);
        if self.catalog.retentions.is_empty() {
            return std::future::pending().await;
        }
        let queues = [self.queue()];
        let keeper = Keeper::new(
            &self.catalog,
            setup.stores.clone(),
            Arc::clone(&setup.clock),
            &queues,
            CatalogOwner::default(),
        );
        loop {
            // If a pass fails, the next pass tries again. Half of the passes ignore the schedule, as an operator may.
            // So jobs that drop the same table run at the same time more often.
            let time = if rng.unit() < 0.5 {
                TurnTime::Due
            } else {
                TurnTime::Now
            };
            drop(keeper.tend(time).await);
            sleep(Duration::from_secs_f64(
                rng.between(TENDED_EVERY.start, TENDED_EVERY.end),
            ))
            .await;
        }
    }

    pub(super) async fn tend(&self, policy: Arc<dyn FaultPolicy>) {
        let seen = self
            .sim_accounts
            .for_caller(WORKERS, &FaultPolicies::same(policy));
        let stores = stores(&seen, seen.accounts(), seen.main.sink());
        let queues = [self.queue()];
        let keeper = Keeper::new(
            &self.catalog,
            stores,
            self.clock(),
            &queues,
            CatalogOwner::default(),
        );
        if let Err(error) = keeper.tend(TurnTime::Now).await {
            self.shared_state.violated(format!(
                "maintaining the dated tables failed although no fault is active: {error}"
            ));
        }
    }
}

pub(super) fn stores(
    seen: &SimulatedAccounts,
    accounts: BTreeMap<AccountName, Account>,
    sink: Arc<dyn Sink>,
) -> Stores {
    let stores = Stores::new(accounts)
        .with_sinks([(sink_name(), sink)].into())
        .with_files(seen.main.files());
    stores.with_vault(Some(Arc::clone(&seen.vault) as _))
}

#[expect(clippy::expect_used, reason = "the constant is a valid name")]
fn sink_name() -> AccountName {
    AccountName::new(SINK).expect("a valid name")
}

struct WatchedEngine {
    inner: Arc<dyn Execute>,
    resolve_primaries: PrimaryResolver,
    shared_state: Arc<SharedState>,
    caller: u32,
    rng: CutChance,
    fault_plan: Arc<FaultPlan>,
    job_timeout: Duration,
}

/// An active run. If this value is dropped before the run has ended, the run was cancelled, timed out or panicked.
struct RunGuard<'a> {
    watched: &'a WatchedEngine,
    primary: Option<Primary>,
    queue: &'a str,
    message: &'a str,
    delivery: u32,
    began: Duration,
    ended: bool,
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        let took = self
            .watched
            .shared_state
            .elapsed()
            .saturating_sub(self.began);
        let dropped = !self.ended && took < self.watched.job_timeout;
        self.watched.shared_state.run_ends(
            self.watched.caller,
            self.primary.as_ref(),
            (self.queue, self.message, self.delivery),
            dropped,
        );
        if !self.ended {
            self.watched.shared_state.explain_message(self.message);
        }
    }
}

#[async_trait]
impl Execute for WatchedEngine {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        let (primary, queue) = match work {
            Work::Job(job) => ((self.resolve_primaries)(job).into_iter().next(), JOBS),
            Work::Recheck(recheck) => (
                Some(recheck.primary.clone()),
                delivery.recheck_queue.as_str(),
            ),
        };
        let key = match work {
            Work::Job(job) => job.key(),
            Work::Recheck(recheck) => Some(&recheck.primary.key),
        };
        let entry = self
            .shared_state
            .records()
            .ledger
            .entry_of(&delivery.stamp.message_id, key);
        let message = entry.as_str();
        let began = self.shared_state.run_begins(
            self.caller,
            primary.as_ref(),
            (queue, message, delivery.dequeue_count),
            || format!("{work:?} {delivery:?}"),
        );
        let began_at = self.shared_state.elapsed();
        let mut running = RunGuard {
            watched: self,
            primary,
            queue,
            message,
            delivery: delivery.dequeue_count,
            began: began_at,
            ended: false,
        };
        let [panics, always] = [FaultKind::Panic, FaultKind::AlwaysPanics]
            .map(|fault| self.fault_plan.rate(fault, began_at));
        if always > 0.0
            && self
                .shared_state
                .always_panics(message, || self.rng.unit() < always)
        {
            self.panic("like each run of its message", message);
        }
        let panics =
            panics > 0.0 && self.rng.unit() < panics && self.shared_state.inject(FaultKind::Panic);
        if panics && self.rng.unit() < 0.5 {
            self.panic("before it begins", message);
        }
        let result = self.inner.execute(work, delivery).await;
        if panics {
            self.panic("after it has ended", message);
        }
        match &result {
            Ok(outcome) => {
                running.ended = true;
                self.shared_state
                    .run_ended_well(self.caller, queue, message, began, outcome);
                self.shared_state.tell(|| {
                    format!(
                        "{} run ended: {outcome:?}",
                        super::shared_state::name(self.caller)
                    )
                });
            }
            Err(failure) => {
                running.ended = true;
                let words = failure.chain();
                if words.starts_with("reconciling ")
                    && words.contains("other writers changed the data during each of")
                {
                    self.shared_state
                        .lost_every_round(self.caller, began, &words);
                }
                self.shared_state.tell(|| {
                    format!(
                        "{} run failed: {:?} {}",
                        super::shared_state::name(self.caller),
                        failure.class,
                        words
                    )
                });
            }
        }
        result
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        self.inner.give_up(work, delivery).await
    }
}

impl WatchedEngine {
    /// Panics without the panic hook, which would print a message.
    fn panic(&self, when: &str, message: &str) -> ! {
        self.shared_state.panicked(message);
        self.shared_state.tell(|| {
            format!(
                "{} FAULT the run panics {when}",
                super::shared_state::name(self.caller)
            )
        });
        resume_unwind(Box::new("injected"))
    }
}
