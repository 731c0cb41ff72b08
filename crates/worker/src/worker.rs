use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::adaptive_limit;
use super::backlog::measure_backlogs;
use super::circuit::OpenCircuits;
use super::concurrency_controller::control_concurrency;
use super::consumer::{QueueConsumer, QueueKind};
use super::context::{PrimaryResolver, RunContext, RunReport, Stop, WorkerTally};
use super::decode::{PROPAGATE, SYNC};
use super::doorbell::Doorbell;
use super::drain::drain;
use super::erasure::{ErasureExecutor, PoisonWalks};
use super::idle::{Rechecks, idle};
use super::job_metrics;
use super::keyed_queue::KeyedQueue;
use super::observer::Observer;
use super::quarantine::CrashQuarantine;
use super::receive::receive;
use super::slots::Slots;
use super::status::{QueueBoard, StatusBoard};
use super::tuning::{ReloadableSettings, Tuning};
use super::unsettled::UnsettledMessages;
use evenkeel_engine::{EncryptBodies, Execute, MemoryBudget};
use evenkeel_model::QueueName;
use evenkeel_model::allowed::JobAllowance;
use evenkeel_model::cause;
use evenkeel_model::event::EventMappings;
use evenkeel_model::names::NameError;
use evenkeel_model::settings::{Concurrency, QueueSettings, WorkerSettings};
use evenkeel_storage::stores::UnknownAccount;
use evenkeel_storage::{Clock, ErrorClass, Rng, StoreError, StoreHealth, Stores};

/// Maximum number of rechecks in flight from one queue. Rechecks are few and never urgent.
const RECHECK_SLOTS: usize = 4;
/// Delay before the creation of a queue is retried, and before a task that panicked is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(5);

pub struct WorkerParts {
    pub stores: Stores,
    pub health: Arc<dyn StoreHealth>,
    pub execute: Arc<dyn Execute>,
    pub encrypt_bodies: Arc<dyn EncryptBodies>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    pub settings: WorkerSettings,
    pub queues: Vec<QueueSettings>,
    /// Name of the worker in the poison messages that it puts.
    pub name: String,
    pub resolve_primaries: PrimaryResolver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Forever,
    UntilIdle { quiet: Duration, rechecks: Rechecks },
}

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("invalid name for the poison, recheck or shard queue of {queue}")]
    Name {
        queue: QueueName,
        #[source]
        source: NameError,
    },
    #[error("could not find the account of queue {queue}")]
    Account {
        queue: QueueName,
        #[source]
        source: UnknownAccount,
    },
    #[error("could not create queue {queue}")]
    Create {
        queue: QueueName,
        #[source]
        source: Box<StoreError>,
    },
    /// A newer catalog is recorded. Only a worker that runs until idle returns this error. It would
    /// retry the jobs of that catalog again and again, and never become idle.
    #[error("a newer catalog is recorded in the store. Update the configuration of this worker")]
    OutdatedCatalog,
}

pub struct Worker {
    parts: WorkerParts,
    consumers: Vec<Arc<QueueConsumer>>,
    board: StatusBoard,
    observer: Option<Arc<dyn Observer>>,
    tuning: Option<Arc<Tuning>>,
    memory: Arc<MemoryBudget>,
    events: Arc<EventMappings>,
}

impl Worker {
    /// Creates a worker without starting it.
    pub fn new(parts: WorkerParts) -> Result<Self, WorkerError> {
        let mut consumers = Vec::new();
        for queue in &parts.queues {
            consumers.extend(consumers_of(queue, &parts.stores)?);
        }
        let board = StatusBoard::new(consumers.iter().map(|consumer| Arc::clone(&consumer.board)));
        let memory = Arc::new(MemoryBudget::new(parts.settings.memory));
        Ok(Self {
            parts,
            consumers,
            board,
            observer: None,
            tuning: None,
            memory,
            events: Arc::default(),
        })
    }

    /// Makes the worker share a memory budget with other workers, instead of having its own.
    #[must_use]
    pub fn within(self, memory: Arc<MemoryBudget>) -> Self {
        Self { memory, ..self }
    }

    /// Maps events to jobs. Without mappings, events are poisoned.
    #[must_use]
    pub fn mapping(self, events: Arc<EventMappings>) -> Self {
        Self { events, ..self }
    }

    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The settings that can change while the worker runs.
    pub fn tuning(&mut self) -> Arc<Tuning> {
        Arc::clone(self.tuning.get_or_insert_with(|| {
            Arc::new(Tuning::new(ReloadableSettings::of(&self.parts.settings)))
        }))
    }

    /// The worker's state, which can be read while the worker runs.
    pub fn status(&self) -> StatusBoard {
        self.board.clone()
    }

    /// The doorbell of the job queues, which can be rung while the worker runs.
    pub fn doorbell(&self) -> Doorbell {
        let jobs = self
            .consumers
            .iter()
            .filter(|consumer| consumer.kind == QueueKind::Jobs);
        let bell = |consumer: &Arc<QueueConsumer>| {
            (
                consumer.configured_queue.clone(),
                consumer.queue.clone(),
                Arc::clone(&consumer.bell),
            )
        };
        Doorbell::new(jobs.map(bell))
    }

    /// Creates missing queues, receives messages, and drains at the end. A failure of a store does
    /// not end the run. Only one run at a time is allowed. If the future is dropped, everything
    /// stops at once, as in a crash, and the messages are redelivered.
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
        for consumer in &self.consumers {
            let (context, consumer) = (Arc::clone(&context), Arc::clone(consumer));
            receivers.spawn(async move {
                let receiving = || receive(Arc::clone(&context), Arc::clone(&consumer));
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
            execute: Arc::new(ErasureExecutor {
                execute: Arc::clone(&parts.execute),
                stores: parts.stores.clone(),
                queues: parts.queues.clone(),
                resolve_primaries: Arc::clone(&parts.resolve_primaries),
                events: Arc::clone(&self.events),
                rng: Arc::clone(&parts.rng),
                walks: PoisonWalks::default(),
            }),
            encrypt_bodies: Arc::clone(&parts.encrypt_bodies),
            clock: Arc::clone(&parts.clock),
            rng: Arc::clone(&parts.rng),
            settings: parts.settings.clone(),
            tuning: self
                .tuning
                .clone()
                .unwrap_or_else(|| Arc::new(Tuning::new(ReloadableSettings::of(&parts.settings)))),
            worker: parts.name.clone(),
            resolve_primaries: Arc::clone(&parts.resolve_primaries),
            events: Arc::clone(&self.events),
            keyed_queue: KeyedQueue::new(),
            memory: Arc::clone(&self.memory),
            circuit: OpenCircuits::new(Arc::clone(&parts.health)),
            unsettled: UnsettledMessages::new(),
            quarantine: CrashQuarantine::new(),
            stop: Stop::new(),
            outdated: CancellationToken::new(),
            tally: WorkerTally::default(),
            items: job_metrics::ItemCounters::default(),
            observer: self.observer.clone(),
        }
    }

    /// Starts the tasks that do not handle a message. The task that probes circuit breakers runs
    /// until the last settlement, because a settlement may wait until a circuit breaker is closed.
    /// The other tasks end when receiving stops.
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
            let of_queue = |consumer: &&Arc<QueueConsumer>| {
                consumer.kind == QueueKind::Jobs
                    && consumer.configured_queue == queue.name
                    && consumer.account == queue.account
            };
            let (adapting, consumers): (_, Vec<_>) = (
                Arc::clone(context),
                self.consumers.iter().filter(of_queue).cloned().collect(),
            );
            helpers.spawn(async move {
                let end = adapting.stop.receiving.clone();
                let (memory, clock) = (adapting.settings.memory, adapting.clock.as_ref());
                let control = || control_concurrency(&consumers, memory, clock);
                end.run_until_cancelled(supervised("concurrency", &end, control))
                    .await;
            });
        }
        let (sampling, consumers) = (Arc::clone(context), self.consumers.clone());
        helpers.spawn(async move {
            let end = sampling.stop.receiving.clone();
            let measure =
                || measure_backlogs(&consumers, sampling.clock.as_ref(), sampling.rng.as_ref());
            end.run_until_cancelled(supervised("backlog", &end, measure))
                .await;
        });
    }

    async fn ended(&self, context: &RunContext, mode: Mode) -> Result<(), WorkerError> {
        match mode {
            Mode::Forever => std::future::pending().await,
            Mode::UntilIdle { quiet, rechecks } => tokio::select! {
                biased;
                () = context.outdated.cancelled() => Err(WorkerError::OutdatedCatalog),
                () = idle(&self.consumers, quiet, rechecks, self.parts.clock.as_ref()) => Ok(()),
            },
        }
    }

    /// Creates missing queues. A worker that runs forever waits until its store answers.
    async fn create_queues(&self, mode: Mode) -> Result<(), WorkerError> {
        let needed = self.consumers.iter().flat_map(|consumer| {
            [&consumer.queue, &consumer.poison].map(|queue| (&consumer.account, queue, consumer))
        });
        let needed: BTreeMap<_, _> = needed
            .map(|(account, queue, consumer)| ((account, queue), consumer))
            .collect();
        for ((_, queue), consumer) in needed {
            while let Err(error) = consumer.queues.create_queue(queue).await {
                // In every mode, the worker waits while the service deletes a queue of the same
                // name (409 QueueBeingDeleted). A worker that runs forever also waits during an
                // outage. If the credentials are refused, it waits until an operator corrects them.
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
                tracing::warn!(%queue, error = %cause::chain(&error), "could not create queue {queue}; retrying until it exists");
                let wait = error
                    .class
                    .retry_after()
                    .unwrap_or_default()
                    .max(RESTART_DELAY);
                sleep(self.parts.rng.jittered(wait)).await;
            }
        }
        Ok(())
    }
}

fn consumers_of(
    queue: &QueueSettings,
    stores: &Stores,
) -> Result<Vec<Arc<QueueConsumer>>, WorkerError> {
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
    let consumer = |name: QueueName, kind, (slots, batch_slots): (&Slots, &Slots)| {
        let own = match kind {
            QueueKind::Jobs => &name,
            QueueKind::Rechecks => jobs.first().unwrap_or(&queue.name),
        };
        let follow_up_queue = |op| queue.follow_up_queue(op, own, &recheck).clone();
        let (sync_queue, propagation_queue) = (follow_up_queue(SYNC), follow_up_queue(PROPAGATE));
        Arc::new(QueueConsumer {
            board: Arc::new(QueueBoard::new(name.clone(), kind, slots.clone())),
            configured_queue: queue.name.clone(),
            queue: name,
            kind,
            account: queue.account.clone(),
            poison: poison.clone(),
            recheck: recheck.clone(),
            sync_queue,
            propagation_queue,
            allowed: match kind {
                QueueKind::Jobs => queue.allowed.clone(),
                QueueKind::Rechecks => JobAllowance::default(),
            },
            queues: Arc::clone(&account.queues),
            blobs: Arc::clone(&account.blobs),
            slots: slots.clone(),
            batch_slots: batch_slots.clone(),
            bell: Arc::default(),
            counters: job_metrics::QueueCounters::default(),
        })
    };
    let slots = Slots::new(match queue.concurrency {
        Concurrency::Fixed(jobs) => jobs,
        Concurrency::Auto => adaptive_limit::START,
    });
    let batch_slots = Slots::new(adaptive_limit::BATCH_START);
    let mut consumers: Vec<Arc<QueueConsumer>> = jobs
        .iter()
        .map(|name| consumer(name.clone(), QueueKind::Jobs, (&slots, &batch_slots)))
        .collect();
    consumers.push(consumer(
        recheck.clone(),
        QueueKind::Rechecks,
        (
            &Slots::new(RECHECK_SLOTS),
            &Slots::new(adaptive_limit::BATCH_START),
        ),
    ));
    Ok(consumers)
}

/// Restarts a task after a panic, until `end` is cancelled.
async fn supervised<F: Future<Output = ()>>(
    name: &'static str,
    end: &CancellationToken,
    begin: impl Fn() -> F,
) {
    while let Err(payload) = AssertUnwindSafe(begin()).catch_unwind().await {
        tracing::error!(
            task = name,
            panic = cause::panic(&*payload),
            "worker task {name} panicked; restarting it"
        );
        if end
            .run_until_cancelled(sleep(RESTART_DELAY))
            .await
            .is_none()
        {
            return;
        }
    }
}
