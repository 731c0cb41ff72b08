//! The worker from start to end.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::adapt::adapt;
use super::circuit::OpenCircuits;
use super::concurrency;
use super::context::{KeyOf, RunContext, RunReport, Stop, WorkerTally};
use super::count;
use super::doorbell::Doorbell;
use super::drain::drain;
use super::erasing::{Erasing, PoisonWalks};
use super::examine::{CARRY, SYNC};
use super::idle::{Rechecks, idle};
use super::observer::Observer;
use super::receive::receive;
use super::sample::sample;
use super::slots::Slots;
use super::source::{Carries, Intake};
use super::status::{QueueBoard, StatusBoard};
use super::stuck::Stuck;
use super::suspects::Suspects;
use super::tuning::{Tuned, Tuning};
use super::turns::Turns;
use evenkeel_engine::{Execute, MemoryBudget, SealBodies};
use evenkeel_model::QueueName;
use evenkeel_model::allowed::JobAllowance;
use evenkeel_model::cause;
use evenkeel_model::event::EventMappings;
use evenkeel_model::names::NameError;
use evenkeel_model::settings::{Concurrency, QueueSettings, WorkerSettings};
use evenkeel_storage::stores::UnknownAccount;
use evenkeel_storage::{Clock, ErrorClass, Rng, StoreError, StoreHealth, Stores};

/// Rechecks in flight from one queue: they are few and never urgent.
const RECHECK_SLOTS: usize = 4;
/// The wait before a queue that could not be created at the start is tried again, and before a task that
/// panicked is begun anew.
const AGAIN: Duration = Duration::from_secs(5);

/// Components of a worker.
pub struct WorkerParts {
    /// The accounts.
    pub stores: Stores,
    /// Whether they answer.
    pub health: Arc<dyn StoreHealth>,
    /// Executor of the work.
    pub execute: Arc<dyn Execute>,
    /// Seals the bodies of poison messages.
    pub seal_bodies: Arc<dyn SealBodies>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub rng: Arc<dyn Rng>,
    /// `[worker]`
    pub settings: WorkerSettings,
    /// `[[queues]]`
    pub queues: Vec<QueueSettings>,
    /// This worker's name in poison messages.
    pub name: String,
    /// Which primary a job is about.
    pub key_of: KeyOf,
}

/// How long a worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Until it is shut down.
    Forever,
    /// Until there is nothing left to do.
    UntilIdle {
        /// How long every queue must have stayed empty.
        quiet: Duration,
        /// Whether rechecks are waited for.
        rechecks: Rechecks,
    },
}

/// Why a worker cannot run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A poison, recheck or shard queue would have an impossible name.
    #[error("a queue cannot be named after {queue}")]
    Name {
        /// The queue as configured.
        queue: QueueName,
        /// Why.
        #[source]
        source: NameError,
    },
    /// A queue lies in an account that is not configured.
    #[error("the queue {queue} cannot be found")]
    Account {
        /// The queue as configured.
        queue: QueueName,
        /// Why.
        #[source]
        source: UnknownAccount,
    },
    /// A queue is missing and cannot be created.
    #[error("the queue {queue} cannot be created")]
    Create {
        /// The queue.
        queue: QueueName,
        /// Why.
        #[source]
        source: Box<StoreError>,
    },
    /// The data was written by a newer catalog, so that a run until idle would never end.
    #[error("the data was written by a newer catalog than this worker's: update its configuration")]
    OutdatedCatalog,
}

/// Takes messages from queues and drives their work.
pub struct Worker {
    parts: WorkerParts,
    sources: Vec<Arc<Intake>>,
    board: StatusBoard,
    observer: Option<Arc<dyn Observer>>,
    tuning: Option<Arc<Tuning>>,
    memory: Arc<MemoryBudget>,
    events: Arc<EventMappings>,
}

impl Worker {
    /// A worker over these queues. Nothing is started.
    pub fn new(parts: WorkerParts) -> Result<Self, WorkerError> {
        let mut sources = Vec::new();
        for queue in &parts.queues {
            sources.extend(sources_of(queue, &parts.stores)?);
        }
        let board = StatusBoard::new(sources.iter().map(|source| Arc::clone(&source.board)));
        let memory = Arc::new(MemoryBudget::new(parts.settings.memory));
        Ok(Self {
            parts,
            sources,
            board,
            observer: None,
            tuning: None,
            memory,
            events: Arc::default(),
        })
    }

    /// Within a budget of memory that others share, in place of one of its own.
    #[must_use]
    pub fn within(self, memory: Arc<MemoryBudget>) -> Self {
        Self { memory, ..self }
    }

    /// With mappings of events to jobs. Without, an event is poisoned.
    #[must_use]
    pub fn mapping(self, events: Arc<EventMappings>) -> Self {
        Self { events, ..self }
    }

    /// Sets an observer of this worker. Without one, no reports are built.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Its settings that are reloadable at run time.
    pub fn tuning(&mut self) -> Arc<Tuning> {
        Arc::clone(
            self.tuning
                .get_or_insert_with(|| Arc::new(Tuning::new(Tuned::of(&self.parts.settings)))),
        )
    }

    /// Where the worker's state can be seen, also while it runs.
    pub fn status(&self) -> StatusBoard {
        self.board.clone()
    }

    /// The doorbell of its job queues, also for use while it runs.
    pub fn doorbell(&self) -> Doorbell {
        let jobs = self
            .sources
            .iter()
            .filter(|source| source.carries == Carries::Jobs);
        let bell = |source: &Arc<Intake>| {
            (
                source.configured.clone(),
                source.queue.clone(),
                Arc::clone(&source.bell),
            )
        };
        Doorbell::new(jobs.map(bell))
    }

    /// Runs: creates missing queues, receives, and at the end drains. Failing stores do not end it. One run at
    /// a time. Dropping the future is like a crash: everything stops at once, and messages come again.
    pub async fn run(
        &self,
        mode: Mode,
        shutdown: CancellationToken,
    ) -> Result<RunReport, WorkerError> {
        if let Some(created) = shutdown.run_until_cancelled(self.create_queues(mode)).await {
            created?;
        } else {
            return Ok(RunReport::default());
        }
        let context = Arc::new(self.context());
        let mut receivers = JoinSet::new();
        for source in &self.sources {
            let (context, source) = (Arc::clone(&context), Arc::clone(source));
            receivers.spawn(async move {
                let receiving = || receive(Arc::clone(&context), Arc::clone(&source));
                supervised("receiver", &context.stop.receiving, receiving).await;
            });
        }
        let mut helpers = JoinSet::new();
        self.start_helpers(&context, &mut helpers);

        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            ended = self.ended(&context, mode) => ended,
        };
        drain(
            &mut receivers,
            &context.stop,
            &self.board,
            self.parts.settings.drain,
        )
        .await;
        context.stop.settling.cancel();
        while helpers.join_next().await.is_some() {}
        ended.map(|()| context.tally.report())
    }

    fn context(&self) -> RunContext {
        let parts = &self.parts;
        RunContext {
            execute: Arc::new(Erasing {
                execute: Arc::clone(&parts.execute),
                stores: parts.stores.clone(),
                queues: parts.queues.clone(),
                key_of: Arc::clone(&parts.key_of),
                events: Arc::clone(&self.events),
                rng: Arc::clone(&parts.rng),
                walks: PoisonWalks::default(),
            }),
            seal_bodies: Arc::clone(&parts.seal_bodies),
            clock: Arc::clone(&parts.clock),
            rng: Arc::clone(&parts.rng),
            settings: parts.settings.clone(),
            tuning: self
                .tuning
                .clone()
                .unwrap_or_else(|| Arc::new(Tuning::new(Tuned::of(&parts.settings)))),
            worker: parts.name.clone(),
            key_of: Arc::clone(&parts.key_of),
            events: Arc::clone(&self.events),
            turns: Turns::new(),
            memory: Arc::clone(&self.memory),
            circuit: OpenCircuits::new(Arc::clone(&parts.health)),
            stuck: Stuck::new(),
            suspects: Suspects::new(),
            stop: Stop::new(),
            outdated: CancellationToken::new(),
            tally: WorkerTally::default(),
            items: count::Items::default(),
            observer: self.observer.clone(),
        }
    }

    /// Tasks that help and own nothing: they run until the last settlement, since that may wait for a circuit.
    fn start_helpers(&self, context: &Arc<RunContext>, helpers: &mut JoinSet<()>) {
        let watching = Arc::clone(context);
        helpers.spawn(async move {
            let end = watching.stop.settling.clone();
            let watch = || watching.circuit.watch(watching.rng.as_ref());
            end.run_until_cancelled(supervised("circuit", &end, watch))
                .await;
        });
        for queue in self
            .parts
            .queues
            .iter()
            .filter(|queue| queue.concurrency == Concurrency::Auto)
        {
            let of_queue = |source: &&Arc<Intake>| {
                source.carries == Carries::Jobs
                    && source.configured == queue.name
                    && source.account == queue.account
            };
            let (adapting, sources): (_, Vec<_>) = (
                Arc::clone(context),
                self.sources.iter().filter(of_queue).cloned().collect(),
            );
            helpers.spawn(async move {
                let end = adapting.stop.receiving.clone();
                let (memory, clock) = (adapting.settings.memory, adapting.clock.as_ref());
                let adapt = || adapt(&sources, memory, clock);
                end.run_until_cancelled(supervised("concurrency", &end, adapt))
                    .await;
            });
        }
        let (sampling, sources) = (Arc::clone(context), self.sources.clone());
        helpers.spawn(async move {
            let end = sampling.stop.receiving.clone();
            let measure = || sample(&sources, sampling.clock.as_ref(), sampling.rng.as_ref());
            end.run_until_cancelled(supervised("backlog", &end, measure))
                .await;
        });
    }

    /// Waits until the run ends by itself.
    async fn ended(&self, context: &RunContext, mode: Mode) -> Result<(), WorkerError> {
        match mode {
            Mode::Forever => std::future::pending().await,
            Mode::UntilIdle { quiet, rechecks } => tokio::select! {
                biased;
                () = context.outdated.cancelled() => Err(WorkerError::OutdatedCatalog),
                () = idle(&self.sources, quiet, rechecks, self.parts.clock.as_ref()) => Ok(()),
            },
        }
    }

    /// Creates the queues that are missing. A worker without a scheduled end waits for its store.
    async fn create_queues(&self, mode: Mode) -> Result<(), WorkerError> {
        let needed = self.sources.iter().flat_map(|source| {
            [&source.queue, &source.poison].map(|queue| (&source.account, queue, source))
        });
        let needed: BTreeMap<_, _> = needed
            .map(|(account, queue, source)| ((account, queue), source))
            .collect();
        for ((_, queue), source) in needed {
            while let Err(error) = source.queues.create_queue(queue).await {
                // A queue under deletion (409 QueueBeingDeleted) is waited for in every mode. Refused credentials are waited
                // for like an outage by a worker without a scheduled end: an operator corrects them.
                let is_waited_for = match mode {
                    Mode::Forever => {
                        error.class.is_transient() || error.class == ErrorClass::Unauthorised
                    }
                    Mode::UntilIdle { .. } => error.class.slow_subject_wait().is_some(),
                };
                if !is_waited_for {
                    return Err(WorkerError::Create {
                        queue: queue.clone(),
                        source: Box::new(error),
                    });
                }
                tracing::warn!(%queue, error = %cause::chain(&error), "creating the queue failed: tried again until it succeeds");
                let wait = error.class.retry_after().unwrap_or_default().max(AGAIN);
                sleep(self.parts.rng.jittered(wait)).await;
            }
        }
        Ok(())
    }
}

/// The queue or its shards, and its recheck queue.
fn sources_of(queue: &QueueSettings, stores: &Stores) -> Result<Vec<Arc<Intake>>, WorkerError> {
    let name = |source| WorkerError::Name {
        queue: queue.name.clone(),
        source,
    };
    let account = stores
        .account(&queue.account)
        .map_err(|source| WorkerError::Account {
            queue: queue.name.clone(),
            source,
        })?;
    let poison = queue.name.with_suffix("-poison").map_err(name)?;
    let recheck = queue.name.with_suffix("-recheck").map_err(name)?;
    let jobs = queue.shard_names();
    let source = |name: QueueName, carries, (slots, of_batches): (&Slots, &Slots)| {
        let own = match carries {
            Carries::Jobs => &name,
            Carries::Rechecks => jobs.first().unwrap_or(&queue.name),
        };
        let follow_up_queue = |op| queue.follow_up_queue(op, own, &recheck).clone();
        let (syncs, carry_queue) = (follow_up_queue(SYNC), follow_up_queue(CARRY));
        Arc::new(Intake {
            board: Arc::new(QueueBoard::new(name.clone(), carries, slots.clone())),
            configured: queue.name.clone(),
            queue: name,
            carries,
            account: queue.account.clone(),
            poison: poison.clone(),
            recheck: recheck.clone(),
            syncs,
            carry_queue,
            allowed: match carries {
                Carries::Jobs => queue.allowed.clone(),
                Carries::Rechecks => JobAllowance::default(),
            },
            queues: Arc::clone(&account.queues),
            blobs: Arc::clone(&account.blobs),
            slots: slots.clone(),
            of_batches: of_batches.clone(),
            bell: Arc::default(),
            found: count::QueueCounters::default(),
        })
    };
    let slots = Slots::new(match queue.concurrency {
        Concurrency::Fixed(jobs) => jobs,
        Concurrency::Auto => concurrency::START,
    });
    let of_batches = Slots::new(concurrency::START_OF_BATCHES);
    let mut sources: Vec<Arc<Intake>> = jobs
        .iter()
        .map(|name| source(name.clone(), Carries::Jobs, (&slots, &of_batches)))
        .collect();
    sources.push(source(
        recheck.clone(),
        Carries::Rechecks,
        (
            &Slots::new(RECHECK_SLOTS),
            &Slots::new(concurrency::START_OF_BATCHES),
        ),
    ));
    Ok(sources)
}

/// Runs a task that must not end before its time: after a panic it is begun anew.
async fn supervised<F: Future<Output = ()>>(
    name: &'static str,
    end: &CancellationToken,
    begin: impl Fn() -> F,
) {
    while let Err(payload) = AssertUnwindSafe(begin()).catch_unwind().await {
        tracing::error!(
            task = name,
            panic = cause::panic(&*payload),
            "a task of the worker panicked"
        );
        if end.run_until_cancelled(sleep(AGAIN)).await.is_none() {
            return;
        }
    }
}
