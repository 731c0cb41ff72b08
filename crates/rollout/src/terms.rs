//! Runs the terms of a worker. A term is the time during which the worker has one catalog. This
//! module is the only way from one term to the next.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::changes::changes;
use super::current::CurrentCatalog;
use super::prepare::prepare_with_retries;
use super::watch::{READ_INTERVAL, RecordWatch};
use crate::migrations::Migrator;
use evenkeel_engine::Engine;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::settings::Settings;
use evenkeel_storage::{Clock, Rng, StoreError, Stores};
use evenkeel_worker::{Mode, RunReport};

/// The program that runs the terms.
pub trait Host {
    /// Reads the configuration, applies the settings that can change while the worker runs, and
    /// returns the catalog. If there is an error, nothing has changed.
    fn read(&self) -> impl Future<Output = anyhow::Result<Arc<Catalog>>>;

    /// Waits for a request to read the configuration again.
    fn reload_requested(&self) -> impl Future<Output = ()>;

    /// Runs a worker with the recorded catalog until `stop`, or until idle.
    fn work(
        &self,
        current: &Arc<CurrentCatalog>,
        stop: &CancellationToken,
    ) -> impl Future<Output = anyhow::Result<RunReport>>;

    /// Receives a notice when something stops the program from working, and when it can continue.
    fn notice(&self, notice: Notice<'_>);
}

#[derive(Debug, Clone, Copy)]
pub enum Notice<'a> {
    Waiting(&'a StoreError),
    /// Another catalog was recorded, with this number. The worker drains.
    Replaced(u32),
    /// The configuration has another catalog. The worker drains.
    Changed,
    /// The worker keeps its catalog. The configuration was read again, and it has the same catalog
    /// or is invalid.
    Kept,
    /// The configured catalog is not the recorded one.
    Refused,
}

pub struct TermContext<'a> {
    pub stores: &'a Stores,
    pub settings: &'a Settings,
    pub clock: &'a Arc<dyn Clock>,
    pub rng: &'a dyn Rng,
    pub engine: Box<dyn Fn(Arc<Catalog>) -> Arc<Engine> + Send + Sync + 'a>,
}

#[derive(Debug, thiserror::Error)]
#[error("timed out waiting for the configured catalog to be the recorded one")]
pub struct CatalogNotRecorded(#[source] anyhow::Error);

struct Term {
    migrator: Migrator,
    /// The catalog as it was configured, without generations.
    declared: Arc<Catalog>,
    current: Arc<CurrentCatalog>,
}

/// Runs a worker as long as the configured catalog is the recorded one. Then runs another worker
/// with the next catalog. Ends on shutdown or when idle. If the configured catalog is not the recorded
/// one, waits as long as the settings allow, then returns an error. In a mode that ends when idle,
/// the error is returned at once.
pub async fn work(
    host: &impl Host,
    context: &TermContext<'_>,
    mode: Mode,
    shutdown: &CancellationToken,
) -> anyhow::Result<RunReport> {
    let (mut total, mut before) = (RunReport::default(), None);
    while let Some(term) = shutdown
        .run_until_cancelled(wait_for_recorded(host, context, mode, before.as_deref()))
        .await
        .transpose()?
    {
        let stop = shutdown.child_token();
        total += term.serve(host, context, &stop).await?;
        if shutdown.is_cancelled() || !stop.is_cancelled() {
            break;
        }
        before = Some(Arc::clone(term.current.engine().catalog()));
    }
    Ok(total)
}

async fn wait_for_recorded(
    host: &impl Host,
    context: &TermContext<'_>,
    mode: Mode,
    before: Option<&Catalog>,
) -> anyhow::Result<Term> {
    let (mut since, mut reported) = (None, String::new());
    loop {
        let refusal = match prepared(host, context, before).await {
            Ok(term) => {
                if since.is_some() {
                    tracing::info!("the configured catalog is recorded; receiving jobs again");
                }
                return Ok(term);
            }
            Err(refusal) => refusal,
        };
        let longest = match mode {
            Mode::Forever => context.settings.migrate.outdated_exit_after,
            Mode::UntilIdle { .. } => return Err(refusal),
        };
        host.notice(Notice::Refused);
        let now = context.clock.monotonic();
        let left = (*since.get_or_insert(now) + longest).saturating_sub(now);
        if left.is_zero() {
            return Err(CatalogNotRecorded(refusal).into());
        }
        let reason = format!("{refusal:#}");
        if reported != reason {
            tracing::error!(
                %reason, exits_in_seconds = left.as_secs_f64(),
                "the configured catalog is not the recorded one: {reason}; receiving no jobs, and exiting in {:.0} s unless it is recorded by then",
                left.as_secs_f64()
            );
            reported = reason;
        }
        tokio::select! {
            () = host.reload_requested() => {}
            () = tokio::time::sleep(left.min(context.rng.jittered(READ_INTERVAL))) => {}
        }
    }
}

/// Reads the configuration and records additions. Returns the term if the configured catalog is
/// then the recorded one.
async fn prepared(
    host: &impl Host,
    context: &TermContext<'_>,
    before: Option<&Catalog>,
) -> anyhow::Result<Term> {
    let TermContext {
        stores,
        settings,
        clock,
        rng,
        engine,
    } = context;
    let declared = host.read().await?;
    let migrator = Migrator::new(
        Stores::clone(stores),
        settings,
        Arc::clone(&declared),
        Arc::clone(clock),
    )?;
    let on_record = prepare_with_retries(
        &migrator,
        &settings.migrate,
        clock.as_ref(),
        *rng,
        |error| host.notice(Notice::Waiting(error)),
    )
    .await?;
    let current = CurrentCatalog::begin(&on_record, &declared, before, engine, clock);
    Ok(Term {
        migrator,
        declared,
        current: Arc::new(current),
    })
}

impl Term {
    /// Runs the worker until `stop` is cancelled. Cancels `stop` itself if another catalog is
    /// recorded or configured.
    async fn serve(
        &self,
        host: &impl Host,
        context: &TermContext<'_>,
        stop: &CancellationToken,
    ) -> anyhow::Result<RunReport> {
        // The secret is read before the first job, so that no job waits for it.
        stop.run_until_cancelled(self.current.engine().read_secret())
            .await;
        let watch = RecordWatch {
            migrator: &self.migrator,
            current: &self.current,
            clock: context.clock.as_ref(),
            rng: context.rng,
        };
        let over = async {
            let notice = tokio::select! {
                biased;
                recorded = self.current.lease().revoked() => Notice::Replaced(recorded),
                () = self.changed(host) => Notice::Changed,
            };
            host.notice(notice);
            stop.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            report = host.work(&self.current, stop) => report,
            // The watch continues while the worker drains, because a finished run is acknowledged
            // only with a valid lease.
            never = watch.keep() => match never {},
            () = over => Ok(RunReport::default()),
        }
    }

    /// Waits until the configuration has another catalog. An invalid configuration is ignored.
    async fn changed(&self, host: &impl Host) {
        loop {
            host.reload_requested().await;
            self.current.lease().request_read();
            match host.read().await {
                Ok(catalog) => {
                    let changed = changes(&self.declared, &catalog);
                    if !changed.is_empty() {
                        tracing::info!(
                            changed = changed.join(", "),
                            "another catalog is configured; draining, then continuing with it if it is recorded"
                        );
                        return;
                    }
                }
                Err(error) => {
                    tracing::error!(error = %format_args!("{error:#}"), "could not use the reloaded configuration: {error:#}; keeping the current catalog");
                }
            }
            host.notice(Notice::Kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use anyhow::bail;
    use tokio::sync::Notify;
    use tokio::time::Instant;

    use super::*;
    use crate::migrations::MigrationError;
    use crate::migrations::testing::{catalog, migrator, up, world};
    use evenkeel_account::{NoFaults, SimWorld};
    use evenkeel_engine::EngineParts;
    use evenkeel_model::AccountName;
    use evenkeel_storage::system::{SeededRng, SystemClock};

    type Views = &'static [(&'static str, &'static str)];
    const NAME: Views = &[("name", "{Name}")];
    const BOTH: Views = &[("name", "{Name}"), ("mail", "{Mail}")];

    /// A program for tests. The test sets its configuration, and its worker does nothing until it
    /// is stopped.
    struct Program {
        world: SimWorld,
        /// The configured views; `None` stands for an invalid configuration.
        folder: Mutex<Option<Views>>,
        hangup: Notify,
        shutdown: CancellationToken,
        story: Mutex<VecDeque<String>>,
        happened: Notify,
    }

    impl Program {
        fn new(folder: Views) -> Self {
            Self {
                world: world(Arc::new(NoFaults)),
                folder: Mutex::new(Some(folder)),
                hangup: Notify::new(),
                shutdown: CancellationToken::new(),
                story: Mutex::default(),
                happened: Notify::new(),
            }
        }

        fn configure(&self, folder: Option<Views>) {
            *self.folder.lock().unwrap() = folder;
        }

        async fn migrate(&self, views: Views) {
            up(&migrator(&self.world, &catalog(views))).await;
        }

        fn record(&self, what: impl Into<String>) {
            self.story.lock().unwrap().push_back(what.into());
            self.happened.notify_one();
        }

        async fn next(&self) -> String {
            loop {
                if let Some(event) = self.story.lock().unwrap().pop_front() {
                    return event;
                }
                self.happened.notified().await;
            }
        }

        /// Runs the program concurrently with a test.
        async fn beside(&self, mode: Mode, test: impl Future<Output = ()>) -> anyhow::Result<()> {
            let stores = Stores::new([(AccountName::main(), self.world.account())].into());
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            let (settings, rng) = (Settings::default(), SeededRng::new(1));
            let context = TermContext {
                stores: &stores,
                settings: &settings,
                clock: &clock,
                rng: &rng,
                engine: Box::new(|catalog| {
                    Arc::new(Engine::new(EngineParts {
                        stores: stores.clone(),
                        catalog,
                        clock: Arc::clone(&clock),
                        rng: Arc::new(SeededRng::new(2)),
                        recheck_after: std::time::Duration::from_mins(26),
                    }))
                }),
            };
            let (ended, ()) = tokio::join!(work(self, &context, mode, &self.shutdown), test);
            ended.map(drop)
        }
    }

    impl Host for Program {
        async fn read(&self) -> anyhow::Result<Arc<Catalog>> {
            let Some(views) = *self.folder.lock().unwrap() else {
                bail!("a mistake");
            };
            Ok(catalog(views))
        }

        async fn reload_requested(&self) {
            self.hangup.notified().await;
        }

        fn notice(&self, notice: Notice<'_>) {
            self.record(format!("{notice:?}"));
        }

        async fn work(
            &self,
            current: &Arc<CurrentCatalog>,
            stop: &CancellationToken,
        ) -> anyhow::Result<RunReport> {
            let catalog = current.engine().catalog();
            self.record(format!("{} views", catalog.views.len()));
            stop.cancelled().await;
            self.record("drained");
            Ok(RunReport::default())
        }
    }

    async fn follows(program: &Program, story: &[&str]) {
        for what in story {
            assert_eq!(program.next().await, *what);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_changes_to_a_recorded_catalog_on_request_or_by_itself() {
        let program = Program::new(NAME);
        let test = async {
            follows(&program, &["1 views"]).await;
            // The worker itself records the added view.
            program.configure(Some(BOTH));
            program.hangup.notify_one();
            follows(&program, &["Changed", "drained", "2 views"]).await;
            // Each time, an operator records the removal of a view, or its restoration.
            for _ in 0..50 {
                program.configure(Some(NAME));
                program.migrate(NAME).await;
                program.hangup.notify_one();
                follows(&program, &["Changed", "drained", "1 views"]).await;
                program.configure(Some(BOTH));
                program.migrate(BOTH).await;
                program.hangup.notify_one();
                follows(&program, &["Changed", "drained", "2 views"]).await;
            }
            // The watch finds the new record without a reload request.
            program.configure(Some(NAME));
            program.migrate(NAME).await;
            let replaced = program.next().await;
            assert!(replaced.starts_with("Replaced("), "{replaced}");
            follows(&program, &["drained", "1 views"]).await;
            program.shutdown.cancel();
            follows(&program, &["drained"]).await;
        };
        program.beside(Mode::Forever, test).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_mistake_and_the_same_catalog_change_nothing() {
        let program = Program::new(NAME);
        let test = async {
            follows(&program, &["1 views"]).await;
            for folder in [None, Some(NAME)] {
                program.configure(folder);
                program.hangup.notify_one();
                follows(&program, &["Kept"]).await;
            }
            program.shutdown.cancel();
            follows(&program, &["drained"]).await;
        };
        program.beside(Mode::Forever, test).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_configured_catalog_that_is_not_recorded_ends_the_program_after_a_minute() {
        let program = Program::new(BOTH);
        let replaced = Mutex::new(None);
        let test = async {
            follows(&program, &["2 views"]).await;
            program.migrate(NAME).await;
            assert!(program.next().await.starts_with("Replaced("));
            follows(&program, &["drained", "Refused"]).await;
            // The configuration is corrected within the minute.
            program.configure(None);
            follows(&program, &["Refused"]).await;
            program.configure(Some(NAME));
            while program.next().await != "1 views" {}
            // An operator changes the configuration, but does not record it.
            program.configure(Some(&[("name", "{Mail}")]));
            program.hangup.notify_one();
            follows(&program, &["Changed", "drained", "Refused"]).await;
            *replaced.lock().unwrap() = Some(Instant::now());
        };
        let error = program.beside(Mode::Forever, test).await.unwrap_err();
        assert!(error.is::<CatalogNotRecorded>(), "{error:#}");
        assert!(
            error
                .chain()
                .any(|cause| matches!(cause.downcast_ref(), Some(MigrationError::NeedsConsent(_)))),
            "{error:#}"
        );
        let took = replaced.lock().unwrap().unwrap().elapsed();
        assert_eq!(took.as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_ends_when_idle_does_not_wait_for_its_catalog() {
        let program = Program::new(NAME);
        program.migrate(BOTH).await;
        let mode = Mode::UntilIdle {
            quiet: std::time::Duration::ZERO,
            rechecks: evenkeel_worker::Rechecks::Ignored,
        };
        let error = program.beside(mode, async {}).await.unwrap_err();
        assert!(!error.is::<CatalogNotRecorded>(), "{error:#}");
        assert!(program.story.lock().unwrap().is_empty());
    }
}
