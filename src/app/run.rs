//! `evenkeel run`: HTTP, migrations, the worker and the watch on the recorded catalog, from start to drain.
//!
//! ```text
//!   signals  first: shutdown ──────────────┐            second: the process ends at once
//!   HTTP     ══ answers from the start ════╪══════════════════▶ stops last
//!   work     configuration read, stores ready, migrated ─▶ worker ─▶ drain ─▶ summary
//!                ▲                                                     │
//!                └── another catalog by SIGHUP, or recorded by others ┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::{Either, ready};
use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::condition::ProgramState;
use super::reload::{Reload, ReloadScope};
use super::signals::{Hangups, Interrupts};
use super::{AppParts, fleet, provision, signals};
use crate::cli::run::RunArgs;
use crate::cli::{Context, Exit, Format, Output, Tone, UsageError};
use evenkeel_config::{Configuration, Request};
use evenkeel_engine::retention::TurnTime;
use evenkeel_model::catalog::Catalog;
use evenkeel_ops::logging::LogControl;
use evenkeel_ops::state::{OpsState, WorkerHandles};
use evenkeel_ops::{Server, ServerError, systemd};
use evenkeel_rollout::{CurrentCatalog, Host, Notice, TermContext};
use evenkeel_telemetry::{announce_start, announce_view};
use evenkeel_worker::{Mode, Rechecks, RunReport, Worker, WorkerParts};

/// Interval of the retention pass, with jitter. The interval is below an hour, which is the
/// shortest period of dated tables.
const RETENTION_INTERVAL: Duration = Duration::from_mins(50);
const RETENTION_RETRY: Duration = Duration::from_mins(2);
/// Maximum time by which the first retention pass delays the first message. If an account does not answer,
/// the worker starts anyway, because most jobs do not need that account.
const RETENTION_GRACE: Duration = Duration::from_secs(10);

/// Processes the queues until the program is stopped or idle.
pub(super) async fn run(
    args: &RunArgs,
    loaded: Configuration,
    request: Request,
    log: LogControl,
    interrupts: &mut Interrupts,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let hangups = Hangups::listen();
    // The recorder must exist before stores and workers are created, because they set gauges to
    // zero. If there is no server, no recorder is installed, because nobody would read it and its
    // memory would grow without limit.
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
            "the secret of the current key [encryption.keys.{key}] is not set, so no encrypted table could be written"
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
    let (ops_state, server) = match metrics {
        Some(metrics) => {
            announce_start(parts.context.clock.now());
            let ops_state = parts.ops_state(&condition);
            let server = parts
                .server(
                    &parts.context.settings.http,
                    &condition,
                    &ops_state,
                    metrics,
                )
                .await
                .map_err(server_error)?;
            (Some(ops_state), Some(server))
        }
        None => (None, None),
    };
    announce(&parts, server.as_ref());
    let daemon = Daemon {
        parts: &parts,
        condition,
        ops_state,
        shutdown: shutdown.clone(),
        mode: mode(args),
        reload,
        worker_started: Notify::new(),
    };
    let summary = tokio::select! {
        biased;
        never = signals::obey(interrupts, &shutdown) => match never {},
        summary = daemon.with_server(server) => summary?,
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

fn announce(parts: &AppParts, server: Option<&Server>) {
    for (account, place) in &parts.opened.places {
        tracing::info!(%account, %place, "account opened");
    }
    for queue in &parts.context.settings.queues {
        tracing::info!(queue = %queue.name, account = %queue.account, concurrency = %queue.concurrency, shards = queue.shards, "receiving from queue");
    }
    if let Some(server) = server {
        tracing::info!(address = %format_args!("http://{}", server.address()), "serving dashboard, health and metrics");
    } else {
        tracing::info!("HTTP is off: no dashboard, health or metrics");
    }
}

struct Daemon<'a> {
    parts: &'a AppParts,
    condition: Arc<ProgramState>,
    ops_state: Option<Arc<OpsState>>,
    shutdown: CancellationToken,
    mode: Mode,
    reload: Reload,
    /// Notified when a worker has started. The store then has everything that a worker needs.
    worker_started: Notify,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct RunTotals {
    #[serde(flatten)]
    jobs: RunReport,
    /// Number of storage requests as they are billed. A transaction counts as one request.
    storage_requests: u64,
    seconds: f64,
}

impl Daemon<'_> {
    /// Does the work while the server runs. The server stops when the work has ended.
    async fn with_server(&self, server: Option<Server>) -> anyhow::Result<RunTotals> {
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
        // The watchdog runs in the same task as the work. If the work blocks this task, the
        // notifications stop, and systemd learns that the program hangs.
        let keeping = self.parts.keep(self.ops_state.as_deref(), &end);
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
        let (means, end, name) = (
            self.parts.term_context(),
            CancellationToken::new(),
            worker_name(),
        );
        let receiving = async {
            let report = evenkeel_rollout::work(self, &means, self.mode, &self.shutdown).await;
            end.cancel();
            report
        };
        let presence = async {
            if end
                .run_until_cancelled(self.worker_started.notified())
                .await
                .is_some()
            {
                fleet::keep(self.parts, &name, self.ops_state.as_deref(), &end).await;
            }
        };
        let (jobs, ()) = tokio::join!(receiving, presence);
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

    /// Runs a retention pass about every hour. `first` is the pass that is already running. It returns the
    /// delay before the next pass.
    async fn repeat_retention(
        &self,
        current: &CurrentCatalog,
        first: impl Future<Output = Duration>,
    ) -> std::convert::Infallible {
        let mut wait = first.await;
        loop {
            tokio::time::sleep(wait.mul_f64(self.parts.rng.between(1.0, 1.2))).await;
            wait = self.parts.retention_pass(current).await;
        }
    }
}

impl Host for Daemon<'_> {
    async fn read(&self) -> anyhow::Result<Arc<Catalog>> {
        self.reload.read(self.parts).await
    }

    async fn reload_requested(&self) {
        self.reload.requested().await;
    }

    fn notice(&self, notice: Notice<'_>) {
        match notice {
            Notice::Waiting(error) => self.condition.waiting(error),
            Notice::Replaced(recorded) => self.condition.outdated(recorded),
            Notice::Refused => self.condition.refused(),
            Notice::Kept => self.reload.report(self.parts, ReloadScope::Settings),
            Notice::Changed => {}
        }
    }

    async fn work(
        &self,
        current: &Arc<CurrentCatalog>,
        stop: &CancellationToken,
    ) -> anyhow::Result<RunReport> {
        for view in current.engine().catalog().declared().into_keys() {
            announce_view(view.as_str());
        }
        let mut worker = self.parts.worker(current, self.ops_state.as_ref())?;
        self.reload.tune(worker.tuning());
        self.reload.report(self.parts, ReloadScope::All);
        self.worker_started.notify_one();
        self.condition.working(worker.status());
        // The first retention pass runs before the first message is received, so that a put into
        // today's table finds the table, and that `--until-idle` drops expired tables. If an
        // account does not answer, the pass is not awaited.
        let mut tending = Box::pin(self.parts.retention_pass(current));
        let tended = match tokio::time::timeout(RETENTION_GRACE, &mut tending).await {
            Ok(next) => Either::Left(ready(next)),
            // The pass continues in the background. If it were dropped after it had claimed a rule,
            // no worker would send the job of the rule until the claim expired.
            Err(_) => Either::Right(tending),
        };
        systemd::ready(&format!(
            "receiving from {} queues",
            self.parts.context.settings.queues.len()
        ));
        tokio::select! {
            biased;
            report = worker.run(self.mode, stop.clone()) => Ok(report?),
            never = self.repeat_retention(current, tended) => match never {},
            never = provision::watch(self.parts, current, &self.condition) => match never {},
        }
    }
}

impl AppParts {
    /// Maintains the dated tables and sends the jobs of due rules. Returns the delay until the
    /// next pass.
    async fn retention_pass(&self, current: &CurrentCatalog) -> Duration {
        let engine = current.engine();
        let keeper = self.context.keeper(engine.catalog());
        let tended = keeper.tend(TurnTime::Due).await;
        let Err(error) = tended.and(keeper.send_due_rules().await) else {
            return RETENTION_INTERVAL;
        };
        let wait = error.slow_subject_wait().unwrap_or(RETENTION_RETRY);
        let error = anyhow::Error::new(error);
        tracing::warn!(
            error = %format_args!("{error:#}"), retry_in_seconds = wait.as_secs(),
            "retention pass failed: {error:#}; retrying in {} s", wait.as_secs()
        );
        wait
    }

    fn term_context(&self) -> TermContext<'_> {
        let Context {
            settings,
            stores,
            clock,
            ..
        } = &self.context;
        TermContext {
            stores,
            settings,
            clock,
            rng: self.rng.as_ref(),
            engine: Box::new(|catalog| self.engine(catalog)),
        }
    }

    /// Creates a worker with this catalog, which reports to the operations state.
    pub(super) fn worker(
        &self,
        current: &Arc<CurrentCatalog>,
        ops_state: Option<&Arc<OpsState>>,
    ) -> anyhow::Result<Worker> {
        let context = &self.context;
        let keys: Arc<CurrentCatalog> = Arc::clone(current);
        let worker = Worker::new(WorkerParts {
            stores: context.stores.clone(),
            health: Arc::<evenkeel_layers::circuit::Circuits>::clone(&self.opened.circuits),
            execute: Arc::<CurrentCatalog>::clone(current),
            encrypt_bodies: Arc::<CurrentCatalog>::clone(current),
            clock: Arc::clone(&context.clock),
            rng: Arc::clone(&self.rng),
            settings: context.settings.worker.clone(),
            queues: context.settings.queues.clone(),
            name: worker_name(),
            resolve_primaries: Arc::new(move |job| keys.forms_of(job)),
        })
        .context("could not set up the worker")?
        .within(Arc::clone(&self.memory))
        .mapping(Arc::clone(&context.settings.events));
        let Some(ops_state) = ops_state else {
            return Ok(worker);
        };
        ops_state.set_worker(WorkerHandles {
            status: worker.status(),
            engine: Arc::clone(current.engine()),
            doorbell: worker.doorbell(),
        });
        Ok(worker.observed_by(Arc::<OpsState>::clone(ops_state)))
    }
}

/// Name of this worker in poison messages: host and process id.
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
    /// Prints the totals of the run. `how` is one word for the way in which the run ended.
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
