//! `evenkeel run`: HTTP, migrations, the worker and the watch on the recorded catalog, from start to drain.
//!
//! ```text
//!   signals  first: shutdown ──────────────┐            second: the process ends at once
//!   HTTP     ══ answers from the start ════╪══════════════════▶ stops last
//!   work     configuration read, stores ready, migrated ─▶ worker ─▶ drain ─▶ summary
//!                ▲                                                     │
//!                └── SIGHUP brings another catalog, or one is recorded ┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::{Either, ready};
use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::condition::ProgramState;
use super::reload::{Reload, TakenOver};
use super::signals::{Hangups, Interrupts};
use super::{AppParts, fleet, provision, signals};
use crate::cli::run::RunArgs;
use crate::cli::{Context, Exit, Format, Output, Tone, UsageError};
use evenkeel_config::{Loaded, Request};
use evenkeel_engine::retention::{Keeper, RuleKeeper, TurnTime};
use evenkeel_model::catalog::Catalog;
use evenkeel_ops::board::{Board, WorkerHandles};
use evenkeel_ops::logging::LogControl;
use evenkeel_ops::{Server, ServerError, systemd};
use evenkeel_rollout::{Current, Host, Means, Notice};
use evenkeel_telemetry::{announce_start, announce_view};
use evenkeel_worker::{Mode, Rechecks, RunReport, Worker, WorkerParts};

/// How often the tables by date are seen to, some minutes more or less: an hour is the shortest period that tables are made for.
const TEND_EVERY: Duration = Duration::from_mins(50);
/// How soon again where that failed.
const TEND_AGAIN: Duration = Duration::from_mins(2);
/// How long it holds up the first message: an account that does not answer has no part in most jobs.
const TEND_PATIENCE: Duration = Duration::from_secs(10);

/// Works off the queues until told to stop, or until idle.
pub(super) async fn run(
    args: &RunArgs,
    loaded: Loaded,
    request: Request,
    log: LogControl,
    interrupts: &mut Interrupts,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let hangups = Hangups::listen();
    // Gauges start at zero when stores and workers are made: the recorder comes first. Without a server nothing
    // reads it, and nothing would keep its memory bounded.
    let metrics = if args.no_http {
        None
    } else {
        Some(evenkeel_ops::install()?)
    };
    if let Some(key) = loaded
        .settings
        .encryption
        .missing()
        .filter(|_| !loaded.catalog.encrypted.is_empty())
    {
        let problem = format!(
            "[encryption.keys.{key}] is the current key, and its secret is not set here: no table that encrypts could be written"
        );
        return Err(UsageError::new(problem).into());
    }
    let parts = AppParts::open(loaded, log)?;
    let reload = Reload::new(request, hangups, Arc::clone(&parts.context.catalog));
    let shutdown = CancellationToken::new();
    let condition = Arc::new(ProgramState::new(
        shutdown.clone(),
        Arc::clone(&parts.opened.circuits),
        Arc::clone(&parts.context.clock),
    ));
    let (board, server) = match metrics {
        Some(metrics) => {
            announce_start(parts.context.clock.now());
            let board = parts.board(&condition);
            let server = parts
                .server(&parts.context.settings.http, &condition, &board, metrics)
                .await
                .map_err(server_error)?;
            (Some(board), Some(server))
        }
        None => (None, None),
    };
    announce(&parts, server.as_ref());
    let daemon = Daemon {
        parts: &parts,
        condition,
        board,
        shutdown: shutdown.clone(),
        mode: mode(args),
        reload,
        begun: Notify::new(),
    };
    let summary = tokio::select! {
        biased;
        never = signals::obey(interrupts, &shutdown) => match never {},
        summary = daemon.beside(server) => summary?,
    };
    if args.until_idle.is_some() {
        summary.print(
            if shutdown.is_cancelled() {
                "stopped"
            } else {
                "idle"
            },
            out,
        )?;
    } else {
        tracing::info!(
            done = summary.jobs.done,
            skipped = summary.jobs.skipped,
            released = summary.jobs.released,
            poisoned = summary.jobs.poisoned,
            storage_requests = summary.storage_requests,
            seconds = summary.seconds,
            "stopped"
        );
    }
    Ok(Exit::Done)
}

fn mode(args: &RunArgs) -> Mode {
    let rechecks = if args.rechecks {
        Rechecks::Awaited
    } else {
        Rechecks::Ignored
    };
    args.until_idle
        .map_or(Mode::Forever, |quiet| Mode::UntilIdle { quiet, rechecks })
}

fn server_error(error: ServerError) -> anyhow::Error {
    match error {
        ServerError::TokenNeeded(_) => UsageError::new(error.to_string()).into(),
        ServerError::Bind { .. } => error.into(),
    }
}

/// Logs the store, the queues to receive from and the address to listen on.
fn announce(parts: &AppParts, server: Option<&Server>) {
    for (account, place) in &parts.opened.places {
        tracing::info!(%account, %place, "stores in");
    }
    for queue in &parts.context.settings.queues {
        tracing::info!(queue = %queue.name, account = %queue.account, concurrency = %queue.concurrency, shards = queue.shards, "receives from");
    }
    if let Some(server) = server {
        tracing::info!(address = %format_args!("http://{}", server.address()), "dashboard, health and metrics at");
    } else {
        tracing::info!("without HTTP: no health, no metrics, no dashboard");
    }
}

struct Daemon<'a> {
    parts: &'a AppParts,
    condition: Arc<ProgramState>,
    board: Option<Arc<Board>>,
    shutdown: CancellationToken,
    mode: Mode,
    reload: Reload,
    /// A worker has begun, so that the store has what it needs.
    begun: Notify,
}

/// Totals of a run.
#[derive(Debug, Clone, Copy, Serialize)]
struct RunTotals {
    #[serde(flatten)]
    jobs: RunReport,
    /// Requests sent to all stores, as they bill them: a transaction is one.
    storage_requests: u64,
    /// How long it took.
    seconds: f64,
}

impl Daemon<'_> {
    /// Works beside the server, which stops when the work has ended.
    async fn beside(&self, server: Option<Server>) -> anyhow::Result<RunTotals> {
        let end = CancellationToken::new();
        let serving = async {
            if let Some(server) = server {
                server.serve(end.clone()).await;
            }
        };
        let working = async {
            let ended = self.work().await;
            systemd::stopping("stopped");
            end.cancel();
            ended
        };
        // The watchdog shares this task with the work: a program that hangs here feeds nothing.
        let keeping = self.parts.keep(self.board.as_deref(), &end);
        let (ended, (), (), ()) = tokio::join!(
            working,
            serving,
            keeping,
            systemd::watchdog(|| true, end.clone())
        );
        ended
    }

    async fn work(&self) -> anyhow::Result<RunTotals> {
        let AppParts {
            context, opened, ..
        } = self.parts;
        let started = context.clock.monotonic();
        let (means, end, name) = (self.parts.means(), CancellationToken::new(), worker_name());
        let receiving = async {
            let report = evenkeel_rollout::work(self, &means, self.mode, &self.shutdown).await;
            end.cancel();
            report
        };
        let beside = async {
            if end
                .run_until_cancelled(self.begun.notified())
                .await
                .is_some()
            {
                fleet::keep(self.parts, &name, self.board.as_deref(), &end).await;
            }
        };
        let (jobs, ()) = tokio::join!(receiving, beside);
        let jobs = jobs?;
        let seconds = context
            .clock
            .monotonic()
            .saturating_sub(started)
            .as_secs_f64();
        Ok(RunTotals {
            jobs,
            storage_requests: opened.requests(),
            seconds,
        })
    }

    /// Maintains the tables by date every hour, after a first time that tells when the next one is due.
    async fn tend_on(
        &self,
        current: &Current,
        first: impl Future<Output = Duration>,
    ) -> std::convert::Infallible {
        let mut wait = first.await;
        loop {
            tokio::time::sleep(wait.mul_f64(self.parts.chance.between(1.0, 1.2))).await;
            wait = self.parts.tend(current).await;
        }
    }
}

impl Host for Daemon<'_> {
    async fn read(&self) -> anyhow::Result<Arc<Catalog>> {
        self.reload.read(self.parts).await
    }

    async fn told(&self) {
        self.reload.told().await;
    }

    fn notice(&self, notice: Notice<'_>) {
        match notice {
            Notice::Waiting(error) => self.condition.waiting(error),
            Notice::Replaced(recorded) => self.condition.outdated(recorded),
            Notice::Refused => self.condition.refused(),
            Notice::Kept => self.reload.tell(self.parts, TakenOver::Tuned),
            Notice::Changed => {}
        }
    }

    async fn work(
        &self,
        current: &Arc<Current>,
        stop: &CancellationToken,
    ) -> anyhow::Result<RunReport> {
        for view in current.engine().catalog().declared().into_keys() {
            announce_view(view.as_str());
        }
        let mut worker = self.parts.worker(current, self.board.as_ref())?;
        self.reload.tune(worker.tuning());
        self.reload.tell(self.parts, TakenOver::All);
        self.begun.notify_one();
        self.condition.working(worker.status());
        // Before the first message is got: a put into today's table finds it there, and `--until-idle` drops tables past their retention
        // (not where an account does not answer).
        let mut tending = Box::pin(self.parts.tend(current));
        let tended = match tokio::time::timeout(TEND_PATIENCE, &mut tending).await {
            Ok(next) => Either::Left(ready(next)),
            // It goes on beside: dropped half-way, a rule that is claimed would be sent when its claim is old.
            Err(_) => Either::Right(tending),
        };
        systemd::ready(&format!(
            "receiving from {} queues",
            self.parts.context.settings.queues.len()
        ));
        tokio::select! {
            biased;
            report = worker.run(self.mode, stop.clone()) => Ok(report?),
            never = self.tend_on(current, tended) => match never {},
            never = provision::watch(self.parts, current, &self.condition) => match never {},
        }
    }
}

impl AppParts {
    /// The keeper of a catalog's tables by date.
    pub(super) fn keeper<'c>(&'c self, catalog: &'c Catalog) -> Keeper<'c> {
        let Context {
            settings,
            stores,
            clock,
            ..
        } = &self.context;
        Keeper::new(
            catalog,
            stores.clone(),
            Arc::clone(clock),
            &settings.queues,
            settings.migrate.owner.clone(),
        )
    }

    /// Maintains the tables by date and sends the jobs of rules, once, by the catalog in force; returns when to do so again.
    async fn tend(&self, current: &Current) -> Duration {
        let engine = current.engine();
        let Context {
            settings,
            stores,
            clock,
            ..
        } = &self.context;
        let owner = settings.migrate.owner.clone();
        let rules = RuleKeeper::new(
            engine.catalog(),
            stores.clone(),
            Arc::clone(clock),
            &settings.queues,
            owner,
        );
        let tended = self.keeper(engine.catalog()).tend(TurnTime::Due).await;
        let Err(error) = tended.and(rules.tend().await) else {
            return TEND_EVERY;
        };
        let wait = error.takes_its_time().unwrap_or(TEND_AGAIN);
        let error = anyhow::Error::new(error);
        tracing::warn!(
            error = %format_args!("{error:#}"), again_in_seconds = wait.as_secs(),
            "a retention or a rule could not be seen to: trying again then"
        );
        wait
    }

    /// The means of a worker's terms.
    fn means(&self) -> Means<'_> {
        let Context {
            settings,
            stores,
            clock,
            ..
        } = &self.context;
        Means {
            stores,
            settings,
            clock,
            chance: self.chance.as_ref(),
            engine: Box::new(|catalog| self.engine(catalog)),
        }
    }

    /// A worker with a catalog; it reports to the board.
    pub(super) fn worker(
        &self,
        current: &Arc<Current>,
        board: Option<&Arc<Board>>,
    ) -> anyhow::Result<Worker> {
        let context = &self.context;
        let keys: Arc<Current> = Arc::clone(current);
        let worker = Worker::new(WorkerParts {
            stores: context.stores.clone(),
            health: Arc::<evenkeel_layers::circuit::Circuits>::clone(&self.opened.circuits),
            execute: Arc::<Current>::clone(current),
            seal_bodies: Arc::<Current>::clone(current),
            clock: Arc::clone(&context.clock),
            chance: Arc::clone(&self.chance),
            settings: context.settings.worker.clone(),
            queues: context.settings.queues.clone(),
            name: worker_name(),
            key_of: Arc::new(move |job| keys.forms_of(job)),
        })
        .context("setting up the worker")?
        .within(Arc::clone(&self.memory))
        .mapping(Arc::clone(&context.settings.events));
        let Some(board) = board else {
            return Ok(worker);
        };
        board.working(WorkerHandles {
            status: worker.status(),
            engine: Arc::clone(current.engine()),
            doorbell: worker.doorbell(),
        });
        Ok(worker.observed_by(Arc::<Board>::clone(board)))
    }
}

/// This worker's name in poison messages: where it runs, and which process it is.
pub(super) fn worker_name() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host
        .map(|host| host.trim().to_owned())
        .filter(|host| !host.is_empty());
    format!(
        "{}-{}",
        host.as_deref().unwrap_or("evenkeel"),
        std::process::id()
    )
}

impl RunTotals {
    /// `how` it ended, in a word.
    fn print(&self, how: &str, out: &mut Output) -> anyhow::Result<()> {
        if out.format() == Format::Json {
            out.value(self)?;
            return Ok(());
        }
        let Self {
            jobs,
            storage_requests,
            seconds,
        } = self;
        let poisoned = format!("{} poisoned", jobs.poisoned);
        let poisoned = if jobs.poisoned > 0 {
            out.tone(Tone::Bad, poisoned)
        } else {
            poisoned
        };
        out.line(format_args!(
            "{how}: {} done, {} skipped, {poisoned}; {storage_requests} storage requests in {seconds:.1} s",
            jobs.done, jobs.skipped
        ))?;
        Ok(())
    }
}
