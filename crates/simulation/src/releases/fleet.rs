//! A worker as the daemon runs it: prepared, watched, reloaded, drained when another catalog is recorded.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::timeline::ConfigNotice;
use crate::fleet::{DRAIN_GRACE, WorkerFleet, WorkerSetup};
use crate::scene::Scene;
use crate::stage;
use evenkeel_model::CatalogOwner;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::settings::{
    EncryptionSettings, HttpSettings, LogSettings, MigrateSettings, PaceCeilings, PaceSettings,
    PacedAccounts, Settings, TraceSettings,
};
use evenkeel_rollout::migrations::MigrationError;
use evenkeel_rollout::{Current, Means, Watch, receive_by};
use evenkeel_worker::{Mode, RunReport};

/// How a worker of a release runs.
pub(crate) struct ReleaseWorker {
    pub(crate) mode: Mode,
    /// The catalog that it begins with.
    pub(crate) release: usize,
    /// Its host, where that gets further releases.
    pub(crate) slot: Option<usize>,
}

impl WorkerFleet {
    /// Everything but the catalog, as a configuration has it.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            accounts: Vec::new(),
            worker: self.fault_plan.settings.clone(),
            sinks: Vec::new(),
            queues: vec![self.queue()],
            http: HttpSettings::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            migrate: MigrateSettings {
                auto: true,
                owner: CatalogOwner::default(),
                outdated_exit_after: self
                    .releases
                    .as_ref()
                    .map(|releases| releases.patience)
                    .unwrap_or_default(),
            },
            log: LogSettings {
                level: "info".to_owned(),
            },
            traces: TraceSettings {
                endpoint: None,
                headers: None,
                sample_percent: 0,
            },
            pace: PaceSettings {
                accounts: PacedAccounts::None,
                ceilings: PaceCeilings::AZURE,
            },
            sas: Vec::new(),
            events: Arc::default(),
            encryption: EncryptionSettings::default(),
        }
    }

    /// One worker of a release, from its start to its end.
    pub(crate) async fn released(
        &self,
        setup: &WorkerSetup,
        term: ReleaseWorker,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<RunReport> {
        let Some(releases) = &self.releases else {
            return Ok(RunReport::default());
        };
        self.stage.stands_still(setup.caller, None);
        let (settings, catalog) = (self.settings(), &releases.catalogs[term.release]);
        let migrator = self.migrator(&setup.stores, term.release)?;
        let time_and_chance = (setup.clock.as_ref(), setup.chance.as_ref());
        let ready =
            evenkeel_rollout::persistently(&migrator, &settings.migrate, time_and_chance, |_| {});
        let Some(prepared) = shutdown.run_until_cancelled(ready).await else {
            return Ok(RunReport::default());
        };
        let prepared = prepared.inspect_err(|error| {
            if cannot_start(error) {
                self.stage.see(Scene::StartRefused);
            }
        })?;
        let engine = |catalog: Arc<Catalog>| self.engine(setup, catalog);
        let current = Arc::new(Current::begin(&prepared, catalog, engine, &setup.clock));
        let keys = Arc::clone(&current);
        let Some(worker) = self.dress(setup, &current, Arc::new(move |job| keys.forms_of(job)))
        else {
            return Ok(RunReport::default());
        };
        self.stage.tell(|| {
            format!(
                "{} works by release {}, generation {}",
                stage::name(setup.caller),
                term.release,
                prepared.record.generation
            )
        });
        let told = |_| {
            self.stage.see(Scene::TakenUp);
            self.stage
                .tell(|| format!("{} has taken up another catalog", stage::name(setup.caller)));
        };
        let (stores, clock, chance) = (&setup.stores, &setup.clock, setup.chance.as_ref());
        let means = Means {
            stores,
            settings: &settings,
            clock,
            chance,
            engine: Box::new(engine),
            told: Box::new(told),
        };
        let watch = Watch {
            means,
            migrator: &migrator,
            current: &current,
            changing: tokio::sync::Mutex::default(),
        };
        let tells = |recorded: Option<u32>| {
            self.stage.see(if recorded.is_some() {
                Scene::Outdated
            } else {
                Scene::GoesOn
            });
            self.stage.explain(setup.caller);
            let drained = self.stage.elapsed() + self.fault_plan.settings.drain + DRAIN_GRACE;
            self.stage
                .stands_still(setup.caller, recorded.map(|_| drained));
            self.stage.tell(|| {
                format!(
                    "{} has another catalog than the recorded one: {recorded:?}",
                    stage::name(setup.caller)
                )
            });
        };
        tokio::select! {
            biased;
            never = self.hangups(&watch, setup, term.slot) => match never {},
            never = watch.keep() => match never {},
            report = receive_by(&current, &worker, (term.mode, releases.patience), shutdown, &tells) => report,
        }
    }

    /// Has a worker read its configuration again whenever its host is told to.
    async fn hangups(
        &self,
        watch: &Watch<'_>,
        setup: &WorkerSetup,
        slot: Option<usize>,
    ) -> Infallible {
        if let (Some(releases), Some(slot)) = (&self.releases, slot) {
            for at in releases.told(slot, ConfigNotice::Hangup) {
                let Some(wait) = at.checked_sub(self.stage.elapsed()) else {
                    continue;
                };
                sleep(wait).await;
                let release = releases.configured(slot, self.stage.elapsed());
                self.stage.tell(|| {
                    format!(
                        "{} reads its configuration again: release {release}",
                        stage::name(setup.caller)
                    )
                });
                let taken =
                    Box::pin(evenkeel_rollout::grow(watch, &releases.catalogs[release])).await;
                if !taken {
                    self.stage.see(Scene::NotTakenUp);
                }
                watch.current.lease().ask();
            }
        }
        std::future::pending().await
    }
}

/// Whether a worker may not work by its catalog.
pub(crate) fn cannot_start<E: std::error::Error + 'static>(error: &E) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if is_refusal(error) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether an error says that the record is of another catalog.
pub(crate) fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(
        error.downcast_ref(),
        Some(MigrationError::NeedsConsent(_) | MigrationError::Outdated { .. })
    )
}
