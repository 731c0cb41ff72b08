//! Runs the chaos of `certify`. An application makes changes while workers are killed and requests
//! fail. Then a worker without faults completes all jobs, and all data is checked.
//!
//! ```text
//!   application ──▶ primaries, jobs ◀── two workers, each killed after some seconds and started again
//!                         │                  └ one request of ten fails, is late, or loses its answer
//!                         ▼ time is over: a worker without faults, until nothing is left to do
//!   no message is poisoned · primaries are as the application left them · all derived data agrees with them
//! ```

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use async_trait::async_trait;
use serde::Serialize;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::company::{ChaosCompany, CompanyChange, EMPLOYEES, FORMER, compare};
use super::{BudgetedAccount, RuleOutcome};
use crate::cli::output::printable;
use crate::cli::progress::Progress;
use crate::cli::verify::{scan, verify};
use crate::cli::{Context, Output};
use evenkeel_model::catalog::{Catalog, TableRef};
use evenkeel_model::{AccountName, ItemAddress, QueueName, TableName, body};
use evenkeel_ops::numbers::Counted as _;
use evenkeel_storage::{Account, MessageText, Rng, Stores, TableOperation, Ttl};
use evenkeel_telemetry::job_trace::Billed;
use evenkeel_worker::{Mode, Rechecks};

/// Configuration of the workers, without the account.
pub const CHAOS_CONFIGURATION: &str = include_str!("chaos.toml");

const WORKERS: usize = 2;
/// Minimum and maximum lifetime of a worker, in seconds.
const WORKER_LIFETIME: (f64, f64) = (0.5, 4.0);
/// Pause between two changes of the application, with jitter.
const PACE: Duration = Duration::from_millis(300);
/// How long every queue must stay empty at the end.
const QUIET: Duration = Duration::from_secs(2);
/// Maximum time that the last worker takes to complete all jobs. It waits less than a minute for
/// leases and rechecks.
const CALM: Duration = Duration::from_mins(10);
const MAX_FINDINGS: usize = 10;
/// Estimated requests before and after the changes. Like [`COST_PER_MINUTE`], the numbers are somewhat
/// higher than the counts in `tests/process/end_to_end/certifying.rs`.
const BASE_COST: Billed = Billed {
    table: 1_500,
    queue: 700,
    blob_writes: 60,
    blob_reads: 60,
};
const COST_PER_MINUTE: Billed = Billed {
    table: 4_000,
    queue: 2_500,
    blob_writes: 60,
    blob_reads: 60,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFaults {
    /// Some requests fail or are delayed on purpose.
    Injected,
    /// No request fails on purpose.
    Off,
}

/// A namespace inside the budgeted account, with the catalog of [`CHAOS_CONFIGURATION`].
#[async_trait]
pub trait ChaosStage: Send + Sync {
    /// The stores as an application uses them, without injected failures.
    fn stores(&self) -> &Stores;
    fn catalog(&self) -> &Catalog;
    fn queue(&self) -> &QueueName;
    fn rng(&self) -> &dyn Rng;
    async fn prepare(&self) -> anyhow::Result<()>;
    /// Runs a worker from start to end. Dropping the future kills it.
    async fn work(&self, faults: RequestFaults, mode: Mode) -> anyhow::Result<()>;
    /// Number of requests that [`RequestFaults::Injected`] has failed or delayed.
    fn faults(&self) -> u64;
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ChaosReport {
    #[serde(flatten)]
    pub(super) outcome: RuleOutcome,
    seconds: f64,
    pub(super) jobs: u64,
    pub(super) kills: u64,
    /// Number of requests that failed or were delayed on purpose.
    pub(super) faults: u64,
    pub(super) primaries: u64,
    /// Number of correct derived items.
    pub(super) items: u64,
}

impl ChaosReport {
    pub(super) fn summary(&self) -> String {
        let Self {
            jobs,
            kills,
            faults,
            primaries,
            items,
            ..
        } = self;
        let run = format!(
            "{} under {} of workers and {}",
            jobs.of("job"),
            kills.of("kill"),
            faults.of("fault")
        );
        match &self.outcome {
            RuleOutcome::Holds => {
                format!(
                    "{run}: none lost, {} and {} correct",
                    primaries.of("entity").replace("entitys", "entities"),
                    items.of("derived item")
                )
            }
            RuleOutcome::Broken { .. } => format!("{run}: broken"),
            RuleOutcome::NotRun => format!("{run}: not finished"),
        }
    }
}

/// Estimates the requests that a chaos of this duration sends.
pub(super) fn cost(duration: Duration) -> Billed {
    (0..duration.as_secs().div_ceil(60)).fold(BASE_COST, |cost, _| cost.plus(COST_PER_MINUTE))
}

/// Runs the chaos for this duration, then checks all data. The budget may end it earlier.
pub(super) async fn chaos(
    duration: Duration,
    budgeted: &dyn BudgetedAccount,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<ChaosReport> {
    let began = context.clock.monotonic();
    let stage = budgeted.chaos()?;
    let mut run = ChaosRun {
        stage: stage.as_ref(),
        company: ChaosCompany::default(),
        jobs: 0,
        kills: 0,
    };
    let mut seen = ChaosFindings::default();
    let ended = async {
        run.run_for(duration, budgeted, context, out).await?;
        run.check_all().await
    };
    let outcome = match ended.await {
        _ if budgeted.is_spent() => RuleOutcome::NotRun,
        Err(error) => RuleOutcome::Broken {
            found: printable(&format!("{error:#}")),
        },
        Ok(found) => {
            seen = found;
            seen.outcome()
        }
    };
    Ok(ChaosReport {
        outcome,
        seconds: context
            .clock
            .monotonic()
            .saturating_sub(began)
            .as_secs_f64(),
        jobs: run.jobs,
        kills: run.kills,
        faults: stage.faults(),
        primaries: seen.primaries,
        items: seen.items,
    })
}

/// A run of the chaos, until no work is left.
struct ChaosRun<'a> {
    stage: &'a dyn ChaosStage,
    company: ChaosCompany,
    jobs: u64,
    kills: u64,
}

#[derive(Debug, Default)]
struct ChaosFindings {
    primaries: u64,
    items: u64,
    findings: Vec<String>,
}

impl ChaosFindings {
    fn outcome(&self) -> RuleOutcome {
        if self.findings.is_empty() {
            return RuleOutcome::Holds;
        }
        let mut found: Vec<String> = self
            .findings
            .iter()
            .take(MAX_FINDINGS)
            .map(|finding| printable(finding))
            .collect();
        if self.findings.len() > MAX_FINDINGS {
            found.push(format!("and {} more", self.findings.len() - MAX_FINDINGS));
        }
        RuleOutcome::Broken {
            found: found.join("; "),
        }
    }
}

impl ChaosRun<'_> {
    fn account(&self) -> anyhow::Result<&Account> {
        Ok(self.stage.stores().account(&AccountName::main())?)
    }

    /// Makes changes and kills workers for this duration, then lets one worker run until nothing is
    /// left to do.
    async fn run_for(
        &mut self,
        duration: Duration,
        budgeted: &dyn BudgetedAccount,
        context: &Context,
        out: &mut Output,
    ) -> anyhow::Result<()> {
        let stage = self.stage;
        stage
            .prepare()
            .await
            .context("could not create tables, queues and containers")?;
        let end = CancellationToken::new();
        let workers = futures::future::try_join_all((0..WORKERS).map(|_| killed(stage, &end)));
        let application = async {
            let ended = self.changes(duration, budgeted, context, out).await;
            end.cancel();
            ended
        };
        let (kills, ()) = futures::future::try_join(workers, application).await?;
        self.kills = kills.into_iter().sum();
        let idle = Mode::UntilIdle {
            quiet: QUIET,
            rechecks: Rechecks::Awaited,
        };
        let calm = timeout(CALM, stage.work(RequestFaults::Off, idle)).await;
        calm.map_err(|_| {
            anyhow!(
                "jobs were still queued or running {} s after the last change",
                CALM.as_secs()
            )
        })?
    }

    async fn changes(
        &mut self,
        duration: Duration,
        budgeted: &dyn BudgetedAccount,
        context: &Context,
        out: &mut Output,
    ) -> anyhow::Result<()> {
        let mut progress = Progress::begin(
            "chaos",
            "seconds",
            Some(duration.as_secs()),
            out,
            &context.clock,
        );
        let began = context.clock.monotonic();
        loop {
            let passed = context.clock.monotonic().saturating_sub(began);
            progress.set(passed.as_secs(), out)?;
            if passed >= duration || budgeted.is_spent() {
                progress.end();
                return Ok(());
            }
            let change = self.company.change(self.stage.rng(), passed)?;
            self.make(change)
                .await
                .context("a request of the application failed")?;
            sleep(self.stage.rng().jittered(PACE)).await;
        }
    }

    /// Makes a change in the order in which applications do: it writes the primary first, then
    /// sends the message.
    async fn make(&mut self, CompanyChange { write, job }: CompanyChange) -> anyhow::Result<()> {
        let account = self.account()?;
        if let Some((table, entity)) = write {
            account
                .tables
                .apply(
                    &TableName::new(table)?,
                    &TableOperation::InsertOrMerge(entity),
                )
                .await?;
        }
        account
            .queues
            .put(
                self.stage.queue(),
                &body::encode(&job.to_string()),
                Duration::ZERO,
                Ttl::Never,
            )
            .await?;
        self.jobs += 1;
        Ok(())
    }

    /// Compares all data with its expected state.
    async fn check_all(&self) -> anyhow::Result<ChaosFindings> {
        let (stores, catalog) = (self.stage.stores(), self.stage.catalog());
        let derived = verify(stores, catalog).await?;
        let mut findings = self.poisoned().await?;
        let places = |all: &[ItemAddress], how| {
            all.iter()
                .map(|item| format!("{item}: {how}"))
                .collect::<Vec<_>>()
        };
        findings.extend(places(&derived.missing, "is missing"));
        findings.extend(places(&derived.different, "differs from its primary"));
        findings.extend(
            derived
                .stale
                .iter()
                .map(|(_, site)| format!("{site}: is stale, because no primary derives it")),
        );
        findings.extend(
            derived.taken.iter().map(|(primary, item)| {
                format!("{item}: belongs to another primary than {primary}")
            }),
        );
        let (here, archived) = self.company.staff()?;
        for (table, wanted) in [(EMPLOYEES, here), (FORMER, archived)] {
            let rows = scan(
                stores,
                &TableRef {
                    account: AccountName::main(),
                    table: TableName::new(table)?,
                },
            )
            .await?;
            findings.extend(compare(
                table,
                wanted,
                rows.into_iter().map(|row| row.entity).collect(),
            ));
        }
        Ok(ChaosFindings {
            primaries: derived.primaries as u64,
            items: derived.right as u64,
            findings,
        })
    }

    /// Describes the messages on the poison queue. There must be none.
    async fn poisoned(&self) -> anyhow::Result<Vec<String>> {
        let poison = self.stage.queue().with_suffix("-poison")?;
        let messages = self.account()?.queues.peek(&poison, 32).await?;
        let texts = messages.into_iter().map(|message| match message.text {
            MessageText::Readable(text) => format!(
                "poisoned: {}",
                body::decode(&text).map_or(text, |body| body.text)
            ),
            MessageText::Unreadable { reason, .. } => format!("poisoned: {reason}"),
        });
        Ok(texts.collect())
    }
}

/// Starts a worker and kills it again and again until `end` is cancelled. Returns the number of
/// kills.
async fn killed(stage: &dyn ChaosStage, end: &CancellationToken) -> anyhow::Result<u64> {
    let mut kills = 0;
    loop {
        let life =
            Duration::from_secs_f64(stage.rng().between(WORKER_LIFETIME.0, WORKER_LIFETIME.1));
        tokio::select! {
            biased;
            () = end.cancelled() => return Ok(kills),
            ended = stage.work(RequestFaults::Injected, Mode::Forever) => {
                ended.context("a worker ended unexpectedly")?;
                bail!("a worker ended unexpectedly");
            }
            () = sleep(life) => kills += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::cli::Format;
    use crate::cli::output::tests::TextBuffer;
    use evenkeel_account::{NoFaults, SimWorld};
    use evenkeel_config::{Folder, Request};
    use evenkeel_model::settings::Settings;
    use evenkeel_rollout::migrations::{Consent, Migrator};
    use evenkeel_storage::system::{SeededRng, SystemClock};
    use evenkeel_storage::{Clock, Service};

    /// A stage whose workers receive no message.
    struct Idle {
        stores: Stores,
        settings: Settings,
        catalog: Arc<Catalog>,
        rng: SeededRng,
        spent: AtomicBool,
    }

    impl Idle {
        fn new() -> Arc<Self> {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            let world = SimWorld::new(AccountName::main(), clock, Arc::new(NoFaults));
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("default.toml"), CHAOS_CONFIGURATION).unwrap();
            let named = Folder::Named(folder.path().to_owned());
            let loaded = evenkeel_config::load(&Request {
                folder: named,
                ..Request::default()
            })
            .unwrap();
            Arc::new(Self {
                stores: Stores::new([(AccountName::main(), world.account())].into()),
                settings: loaded.settings,
                catalog: Arc::new(loaded.catalog),
                rng: SeededRng::new(1),
                spent: AtomicBool::new(false),
            })
        }

        async fn seen(self: &Arc<Self>) -> ChaosReport {
            let clock = Arc::new(SystemClock::new());
            let (stores, stop) = (self.stores.clone(), CancellationToken::new());
            let context = Context {
                settings: Arc::default(),
                catalog: Arc::clone(&self.catalog),
                stores,
                clock,
                stop,
            };
            let mut out = Output::to(
                Box::new(TextBuffer::default()),
                Box::new(TextBuffer::default()),
                Format::Text,
            );
            chaos(Duration::from_secs(1), self, &context, &mut out)
                .await
                .unwrap()
        }
    }

    impl BudgetedAccount for Arc<Idle> {
        fn account(&self) -> Account {
            self.stores.account(&AccountName::main()).unwrap().clone()
        }

        fn billed(&self) -> Billed {
            Billed::default()
        }

        fn is_spent(&self) -> bool {
            self.spent.load(Ordering::Relaxed)
        }

        fn created(&self) -> Vec<(Service, String)> {
            Vec::new()
        }

        fn chaos(&self) -> anyhow::Result<Box<dyn ChaosStage>> {
            Ok(Box::new(Self::clone(self)))
        }
    }

    #[async_trait]
    impl ChaosStage for Arc<Idle> {
        fn stores(&self) -> &Stores {
            &self.stores
        }

        fn catalog(&self) -> &Catalog {
            &self.catalog
        }

        fn queue(&self) -> &QueueName {
            &self.settings.queues[0].name
        }

        fn rng(&self) -> &dyn Rng {
            &self.rng
        }

        async fn prepare(&self) -> anyhow::Result<()> {
            let migrator = Migrator::new(
                self.stores.clone(),
                &self.settings,
                Arc::clone(&self.catalog),
                Arc::new(SystemClock::new()),
            )?;
            let poison = self.settings.queues[0].name.with_suffix("-poison")?;
            migrator.up(Consent::Additions, |_| {}).await?;
            self.account()
                .queues
                .put(
                    &poison,
                    r#"{"reason":"exhausted"}"#,
                    Duration::ZERO,
                    Ttl::Never,
                )
                .await?;
            Ok(())
        }

        async fn work(&self, faults: RequestFaults, _: Mode) -> anyhow::Result<()> {
            if faults == RequestFaults::Injected {
                std::future::pending().await
            } else {
                Ok(())
            }
        }

        fn faults(&self) -> u64 {
            0
        }
    }

    #[tokio::test]
    async fn chaos_finds_idle_workers_and_poisoned_messages() {
        let idle = Idle::new();
        let ChaosReport {
            outcome,
            jobs,
            primaries,
            ..
        } = idle.seen().await;
        let RuleOutcome::Broken { found } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(
            found.contains("is missing") && found.contains("poisoned: {\"reason\":\"exhausted\"}"),
            "{found}"
        );
        assert!(jobs > 1 && primaries > 0, "{jobs} {primaries}");
    }

    #[tokio::test]
    async fn a_spent_budget_ends_the_chaos_without_a_verdict() {
        let idle = Idle::new();
        idle.spent.store(true, Ordering::Relaxed);
        assert_eq!(idle.seen().await.outcome, RuleOutcome::NotRun);
    }

    #[test]
    fn the_cost_of_the_chaos_grows_with_its_duration() {
        assert!(cost(Duration::from_secs(5)).dollars() < 0.01);
        assert!(
            (0.01..0.045).contains(&cost(Duration::from_mins(10)).dollars()),
            "{}",
            cost(Duration::from_mins(10)).dollars()
        );
    }
}
