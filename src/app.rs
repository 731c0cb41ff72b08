//! Composes the program: parses the command line, reads the configuration, opens the stores and
//! gives each command its context. This is the only module that uses adapters.
//!
//! ```text
//!   arguments ─▶ configuration ─▶ stores (adapter, observe, circuit, pace, retry, group) ─▶ a command ─▶ exit code
//!                                                                    └─▶ run: HTTP, migrations, worker, watch
//! ```
//!
//! This module only connects the parts. The parts make the decisions and are tested by themselves.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use clap::Parser as _;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::{self, Cli, Command, Context, Exit, Global, Output, Warnings, WorkerLogs};
use evenkeel_azure::vault;
use evenkeel_config::{Configuration, Request};
use evenkeel_engine::{
    Engine, EngineParts, MemoryBudget, MemoryListener, MemoryShare, MemoryUse, SigningSecret,
};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::settings::HttpSettings;
use evenkeel_ops::api::{ApiParts, JobBatcher};
use evenkeel_ops::logging::{self, LogControl, Verbosity};
use evenkeel_ops::state::{OpsState, OpsStateParts};
use evenkeel_ops::{Routes, Server, ServerError, api_and_pages};
use evenkeel_rollout::RecordHold;
use evenkeel_storage::system::{SystemClock, SystemRng, half_of_the_cores};
use evenkeel_storage::{Clock, Rng};
use evenkeel_telemetry::{announce_view, names};

#[cfg(feature = "certify")]
mod budget;
#[cfg(feature = "certify")]
mod chaos;
mod condition;
mod connect;
mod demo;
mod ending;
mod fleet;
mod meter;
mod provision;
mod reload;
mod run;
mod scratch;
mod signals;
mod stores;
mod trace;

pub use connect::{AppConnectError, connect, prepare_store};

#[cfg(feature = "certify")]
use budget::Budgeted;
use condition::ProgramState;
use signals::Interrupts;
use stores::OpenedStores;

/// Interval at which the poison queues are counted for the operations state.
const BOARD_EVERY: Duration = Duration::from_secs(15);

/// Maximum time that an interrupted command takes to end by itself.
const INTERRUPT_GRACE: Duration = Duration::from_secs(10);

/// Maximum duration of a part of a walk over a table, in a command that reports its progress after
/// each part.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// At its end, the program waits at most this long for changes that operators started.
const CHANGES_GRACE: Duration = Duration::from_secs(10);

pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(Exit::Usage.code());
            // If standard output or error is closed, nobody reads the message.
            let _ = cli::alternatives::with_alternative(error).print();
            return ExitCode::from(code);
        }
    };
    let (mut out, only_shows) = (
        Output::standard(&cli.global),
        cli.command.traits().only_shows,
    );
    let ended =
        start(cli, &mut out).and_then(|exit| out.flush().map(|()| exit).map_err(Into::into));
    ended
        .unwrap_or_else(|error| ending::report(error, only_shows, &mut out))
        .into()
}

/// The demo and the chaos of `certify` print their own progress, and the chaos causes many
/// failures. So the log lines of their workers are shown only with `-v`.
fn verbosity(cli: &Cli) -> Verbosity {
    let Global { verbose, quiet, .. } = cli.global;
    let quieter = cli.command.traits().logs == WorkerLogs::IfVerbose && verbose == 0;
    Verbosity {
        verbose,
        quiet: if quieter { quiet.max(2) } else { quiet },
    }
}

fn start(cli: Cli, out: &mut Output) -> anyhow::Result<Exit> {
    // The handlers of signals are installed first, so that a worker also ends in order while it
    // reads its configuration.
    let early = if matches!(cli.command, Command::Run(_)) {
        Some(SignalledRuntime::begin()?)
    } else {
        None
    };
    // The configuration of a long-running command is read first, because it configures logs and
    // traces.
    let loaded = match &cli.command {
        Command::Run(_) => Some(load(&cli.global, out, Warnings::Omitted)?),
        _ => None,
    };
    let traces = loaded
        .as_ref()
        .map(|loaded| trace::begin(&loaded.settings.traces))
        .transpose()?
        .flatten();
    let log = logging::init(verbosity(&cli), traces.as_ref())?;
    if let Some(loaded) = &loaded {
        log.configured(&loaded.settings.log.level)?;
        tracing::info!(place = %request(&cli.global).folder, "configuration loaded");
        for warning in &loaded.warnings {
            tracing::warn!("configuration: {warning}");
        }
    }
    match &cli.command {
        Command::Schema(_) => cli::schema::schema(out),
        Command::Completions(args) => cli::completions::completions(args, out),
        Command::Docs(args) => cli::docs::docs(args, out),
        Command::Config(args) => cli::config::config(args, &request(&cli.global), out),
        Command::Events(args) => cli::events::events(args, &request(&cli.global), out),
        _ => {
            let SignalledRuntime {
                runtime,
                mut interrupts,
            } = early.map_or_else(SignalledRuntime::begin, Ok)?;
            let ended = runtime.block_on(dispatch(cli, loaded, log, &mut interrupts, out));
            // A thread that reads standard input cannot be interrupted, so it is not awaited.
            runtime.shutdown_background();
            ended
        }
    }
}

/// A runtime, and the signals that interrupt its command.
struct SignalledRuntime {
    runtime: Runtime,
    interrupts: Interrupts,
}

impl SignalledRuntime {
    fn begin() -> anyhow::Result<Self> {
        let runtime = runtime().context("could not start the runtime")?;
        let within = runtime.enter();
        let interrupts = Interrupts::listen();
        drop(within);
        Ok(Self {
            runtime,
            interrupts,
        })
    }
}

/// Creates a runtime with half as many threads as the machine has cores, but at least one, unless
/// `TOKIO_WORKER_THREADS` is set.
///
/// More threads wake each other for requests that one thread could send alone. On two cores, two threads take a third
/// more processor time per job than one, and do no more jobs per second. The store's threads and the kernel use the
/// other cores.
fn runtime() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if env::var_os("TOKIO_WORKER_THREADS").is_none() {
        builder.worker_threads(half_of_the_cores());
    }
    builder.enable_all().build()
}

async fn dispatch(
    cli: Cli,
    loaded: Option<Configuration>,
    log: LogControl,
    interrupts: &mut Interrupts,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    match (cli.command, loaded) {
        (Command::Demo(args), _) => {
            Box::pin(demo::demo(
                &args,
                &request(&cli.global),
                log,
                interrupts,
                out,
            ))
            .await
        }
        (Command::Run(args), Some(loaded)) => {
            Box::pin(run::run(
                &args,
                loaded,
                request(&cli.global),
                log,
                interrupts,
                out,
            ))
            .await
        }
        (command, _) => {
            let traits = command.traits();
            let loaded = load(&cli.global, out, traits.warnings)?;
            if !traits.creates_stores {
                stores::refuse_missing_stores(&loaded.settings, &request(&cli.global).folder)?;
            }
            let parts = AppParts::open(loaded, log)?;
            let mut ended = Box::pin(one_shot(&command, &parts, out));
            tokio::select! {
                biased;
                _ = interrupts.next() => {}
                ended = &mut ended => return ended,
            }
            if !traits.ends_in_order {
                return Ok(Exit::Interrupted);
            }
            // The first signal asks the command to end, and the command then reports what it has
            // done. A second signal ends the program at once.
            parts.context.stop.cancel();
            tokio::select! {
                biased;
                _ = interrupts.next() => Ok(Exit::Interrupted),
                ended = ended => ended,
                () = tokio::time::sleep(INTERRUPT_GRACE) => Ok(Exit::Interrupted),
            }
        }
    }
}

/// Runs a command that uses the stores and ends by itself.
async fn one_shot(command: &Command, parts: &AppParts, out: &mut Output) -> anyhow::Result<Exit> {
    let context = &parts.context;
    match command {
        Command::Submit(args) => cli::submit::submit(args, context, out).await,
        Command::Get(args) => cli::get::get(args, context, out).await,
        Command::Find(args) => cli::find::find(args, context, out).await,
        Command::Wait(args) => cli::wait::wait(args, context, out).await,
        Command::Logs(args) => cli::logs::logs(args, context, out).await,
        Command::Lookup(args) => cli::lookup::lookup(args, context, out).await,
        Command::Poison(args) => cli::poison::poison(args, context, out).await,
        Command::Migrate(args) => cli::migrate::migrate(args, context, out).await,
        Command::Sas(args) => {
            let now = context.clock.now();
            cli::sas::sas(
                args,
                context,
                async |grant, expires| stores::issue(&context.settings, grant, now, expires).await,
                out,
            )
            .await
        }
        Command::Keys(args) => {
            cli::keys::keys(
                args,
                context,
                async |name, by| Ok(vault::draw(name, by).await?),
                out,
            )
            .await
        }
        Command::Doctor(args) => {
            let facts = async || stores::facts(&context.settings, context.clock.now()).await;
            cli::doctor::doctor(
                args,
                context,
                &parts.opened.direct(),
                facts,
                async || fleet::seen(context).await,
                out,
            )
            .await
        }
        Command::Stress(args) => {
            cli::stress::stress(args, context, &parts.opened.direct(), out).await
        }
        #[cfg(feature = "certify")]
        Command::Certify(args) => {
            let place = parts
                .opened
                .places
                .get(&args.account)
                .map_or("", String::as_str);
            let direct = parts.opened.direct();
            let within = |dollars| Budgeted::within(&args.account, &direct, dollars);
            cli::certify::certify(args, context, place, within, out).await
        }
        Command::Plan(args) => {
            let engine = parts.engine(parts.recorded_catalog().await?);
            cli::plan::plan(args, context, &engine, out).await
        }
        Command::DeleteWhere(args) => {
            let engine = parts.engine(parts.recorded_catalog().await?);
            cli::sweep::delete_where(args, context, &engine, out).await
        }
        Command::ArchiveWhere(args) => {
            let engine = parts.engine(parts.recorded_catalog().await?);
            cli::sweep::archive_where(args, context, &engine, out).await
        }
        Command::Erase(args) => {
            let engine = parts.engine(parts.recorded_catalog().await?);
            cli::erase::erase(
                args,
                context,
                &engine,
                async || parts.refuse_other_declarations().await,
                out,
            )
            .await
        }
        Command::Retention(args) => {
            let engine = parts.engine(parts.recorded_catalog().await?);
            cli::retention::retention(
                args,
                context,
                &engine,
                async || parts.refuse_other_declarations().await,
                out,
            )
            .await
        }
        Command::Backfill(args) => {
            let (context, engine) = parts.whole_table_context().await?;
            let ready = async |out: &mut Output| parts.wait_for_older_workers(out).await;
            cli::backfill::backfill(args, &context, &engine, ready, out).await
        }
        Command::Audit(args) => {
            let (context, engine) = parts.whole_table_context().await?;
            let ready = async |_: &mut Output| parts.refuse_unrecorded().await;
            cli::audit::audit(args, &context, &engine, ready, out).await
        }
        Command::Run(_)
        | Command::Demo(_)
        | Command::Schema(_)
        | Command::Completions(_)
        | Command::Docs(_)
        | Command::Config(_)
        | Command::Events(_) => Ok(Exit::Usage),
    }
}

fn request(global: &Global) -> Request {
    // Container templates set unused variables to an empty text, so an empty variable counts as
    // unset.
    let folder = global
        .config
        .clone()
        .filter(|folder| !folder.as_os_str().is_empty());
    let profile = global.profile.clone().filter(|profile| !profile.is_empty());
    Request {
        account_check: Some(stores::check),
        ..Request::of_process(folder, profile, global.set.clone())
    }
}

fn load(global: &Global, out: &mut Output, warnings: Warnings) -> anyhow::Result<Configuration> {
    let request = request(global);
    let loaded = evenkeel_config::load(&request)?;
    if warnings == Warnings::Printed {
        if let Some(absent) = request.folder.missing_default() {
            out.write_note(format_args!(
                "There is no configuration folder {}. Using the built-in configuration.",
                absent.display()
            ))?;
        }
        for warning in &loaded.warnings {
            out.write_note(format_args!("warning: {warning}"))?;
        }
    }
    Ok(loaded)
}

/// A loaded configuration with its opened stores. A server must install its metrics recorder before
/// these parts are created, because they set gauges to zero.
struct AppParts {
    context: Context,
    opened: OpenedStores,
    rng: Arc<dyn Rng>,
    /// The configuration in force, with secrets hidden.
    config: Arc<ArcSwap<serde_json::Value>>,
    log: LogControl,
    /// Changes that operators started through the API.
    changes: TaskTracker,
    /// Memory budget of all jobs, shared by workers with different catalogs.
    memory: Arc<MemoryBudget>,
    /// The signing secret of all engines.
    secret: Arc<SigningSecret>,
}

impl AppParts {
    fn open(loaded: Configuration, log: LogControl) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let config = Arc::new(ArcSwap::from_pointee(evenkeel_config::show_json(&loaded)));
        let rng: Arc<dyn Rng> = Arc::new(SystemRng::new());
        let opened = stores::open(&loaded.settings, &clock, &rng)?;
        let context = Context {
            settings: Arc::new(loaded.settings),
            catalog: Arc::new(loaded.catalog),
            stores: opened.stores.clone(),
            clock,
            stop: CancellationToken::new(),
        };
        for view in context.catalog.declared().into_keys() {
            announce_view(view.as_str());
        }
        let memory = Arc::new(MemoryBudget::with_listener(
            context.settings.worker.memory,
            memory_gauges(),
        ));
        Ok(Self {
            context,
            opened,
            rng,
            config,
            log,
            changes: TaskTracker::new(),
            memory,
            secret: Arc::default(),
        })
    }

    /// The configured catalog with its recorded generations.
    async fn recorded_catalog(&self) -> anyhow::Result<Arc<Catalog>> {
        let mut catalog = Catalog::clone(&self.context.catalog);
        catalog.generations = self
            .context
            .migrator()?
            .catalog_record()
            .await?
            .generations(&catalog);
        Ok(Arc::new(catalog))
    }

    /// Context and engine for commands that walk over whole tables. Such commands report progress
    /// often, know retired views, and end if another catalog is recorded.
    async fn whole_table_context(&self) -> anyhow::Result<(Context, Arc<Engine>)> {
        let migrator = self.context.migrator()?;
        let record = migrator.catalog_record().await?;
        let mut catalog = Catalog::clone(&self.context.catalog);
        catalog.generations = record.generations(&catalog);
        let (catalog, clock) = (Arc::new(catalog), Arc::clone(&self.context.clock));
        let engine = self
            .plain_engine(Arc::clone(&catalog))
            .in_parts_of(PROGRESS_INTERVAL);
        engine.stop_when_replaced(Arc::new(RecordHold::new(
            migrator,
            Arc::clone(&catalog),
            record.etag,
            clock,
        )));
        Ok((
            Context {
                catalog,
                ..self.context.clone()
            },
            Arc::new(engine),
        ))
    }

    /// Returns an error if the configured catalog is not the recorded one.
    async fn refuse_unrecorded(&self) -> anyhow::Result<()> {
        Ok(self.context.migrator()?.refuse_unrecorded().await?)
    }

    /// Returns an error if the configured catalog, including its archives, retentions and rules, is
    /// not the recorded one.
    async fn refuse_other_declarations(&self) -> anyhow::Result<()> {
        Ok(self.context.migrator()?.refuse_other_declarations().await?)
    }

    /// Waits until no worker can acknowledge jobs with an older catalog. Such a worker does not
    /// write items of a new view. If it reconciled a primary that the walk has already passed, the
    /// new view would not get the items of this version. Returns an error if the configured catalog
    /// is not the recorded one.
    async fn wait_for_older_workers(&self, out: &mut Output) -> anyhow::Result<()> {
        let migrator = self.context.migrator()?;
        migrator.refuse_unrecorded().await?;
        let wait = migrator.time_until_older_workers_end().await?;
        if !wait.is_zero() {
            out.write_note(format_args!(
                "The catalog was recorded just now. Waiting {:.0} s until no worker can acknowledge jobs with an older one.",
                wait.as_secs_f64().ceil()
            ))?;
            out.flush()?;
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    async fn server(
        &self,
        settings: &HttpSettings,
        condition: &Arc<ProgramState>,
        ops_state: &Arc<OpsState>,
        metrics: PrometheusHandle,
    ) -> Result<Server, ServerError> {
        let routes = Routes {
            readiness: Arc::<ProgramState>::clone(condition),
            metrics,
            clock: Arc::clone(&self.context.clock),
        };
        let api = ApiParts {
            ops_state: Arc::clone(ops_state),
            settings: Arc::clone(&self.context.settings),
            stores: self.context.stores.clone(),
            config: Arc::clone(&self.config),
            log: self.log.clone(),
            changes: self.changes.clone(),
            batcher: JobBatcher::default(),
        };
        Server::bind(settings, routes, {
            let api = Arc::new(api);
            api_and_pages(api)
        })
        .await
    }

    fn ops_state(&self, condition: &Arc<ProgramState>) -> Arc<OpsState> {
        Arc::new(OpsState::new(OpsStateParts {
            worker: run::worker_name(),
            clock: Arc::clone(&self.context.clock),
            catalog: Arc::clone(&self.context.catalog),
            queues: self.context.settings.queues.clone(),
            readiness: Arc::<ProgramState>::clone(condition),
            health: Arc::<evenkeel_layers::circuit::Circuits>::clone(&self.opened.circuits),
            meter: Arc::new(self.opened.meter()),
        }))
    }

    /// Updates the operations state, and closes circuits of unused sinks, until `end` is cancelled.
    /// Then waits for the changes that operators have started.
    async fn keep(&self, ops_state: Option<&OpsState>, end: &CancellationToken) {
        if let Some(ops_state) = ops_state {
            let wait = || self.rng.jittered(BOARD_EVERY);
            let keeping = async {
                tokio::join!(
                    ops_state.measure(&self.context.stores, wait),
                    self.opened.lapse(wait)
                )
            };
            end.run_until_cancelled(keeping).await;
            self.changes.close();
            if tokio::time::timeout(CHANGES_GRACE, self.changes.wait())
                .await
                .is_err()
            {
                tracing::warn!(
                    "API requests did not finish before the exit: their poisoned messages reappear within two minutes, and some of their jobs may not be sent"
                );
            }
        }
    }

    fn engine(&self, catalog: Arc<Catalog>) -> Arc<Engine> {
        Arc::new(self.plain_engine(catalog))
    }

    fn plain_engine(&self, catalog: Arc<Catalog>) -> Engine {
        let parts = EngineParts {
            stores: self.context.stores.clone(),
            catalog,
            clock: Arc::clone(&self.context.clock),
            rng: Arc::clone(&self.rng),
            recheck_after: self.context.settings.worker.recheck_after,
        };
        Engine::new(parts)
            .within(Arc::clone(&self.memory))
            .signing_by(Arc::clone(&self.secret))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of jobs")]
fn memory_gauges() -> MemoryListener {
    let gauges = MemoryShare::ALL
        .map(|share| metrics::gauge!(names::MEMORY_WAITING, names::SHARE => share.name()));
    Box::new(move |share, used: MemoryUse| gauges[share as usize].set(used.waiting as f64))
}
