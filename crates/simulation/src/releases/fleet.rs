//! Runs a worker as the daemon does. The worker reads its configuration, is notified of new configurations, and drains
//! if another catalog is recorded.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Releases;
use super::timeline::ConfigNotice;
use crate::fleet::{DRAIN_GRACE, WorkerFleet, WorkerSetup};
use crate::rare_event::RareEvent;
use crate::shared_state;
use evenkeel_model::CatalogOwner;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::settings::{
    EncryptionSettings, HttpSettings, LogSettings, MigrateSettings, PaceCeilings, PaceSettings,
    PacedAccounts, Settings, TraceSettings,
};
use evenkeel_rollout::migrations::MigrationError;
use evenkeel_rollout::{CurrentCatalog, Host, Notice, TermContext};
use evenkeel_worker::{Mode, RunReport};

pub(crate) struct ReleaseWorker {
    pub(crate) mode: Mode,
    pub(crate) release: usize,
    pub(crate) slot: Option<usize>,
}

impl WorkerFleet {
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

    pub(crate) async fn released(
        &self,
        setup: &WorkerSetup,
        term: ReleaseWorker,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<RunReport> {
        let Some(releases) = &self.releases else {
            return Ok(RunReport::default());
        };
        self.shared_state.set_receiving_stopped(setup.caller, None);
        let (mode, settings) = (term.mode, self.settings());
        let mut notices: Vec<Duration> = term
            .slot
            .into_iter()
            .flat_map(|slot| releases.notices_of(slot, ConfigNotice::Hangup))
            .filter(|at| *at >= self.shared_state.elapsed())
            .collect();
        notices.sort_unstable_by(|a, b| b.cmp(a));
        let host = ReleaseHost {
            fleet: self,
            setup,
            releases,
            release: Mutex::new((Some(term.release), term.release)),
            slot: term.slot,
            mode,
            notices: Mutex::new(notices),
            was: Mutex::new(PreviousTerm::Start),
        };
        let context = TermContext {
            stores: &setup.stores,
            settings: &settings,
            clock: &setup.clock,
            rng: setup.rng.as_ref(),
            engine: Box::new(|catalog: Arc<Catalog>| self.engine(setup, catalog)),
        };
        evenkeel_rollout::work(&host, &context, mode, shutdown).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PreviousTerm {
    Start,
    Term,
    Refusal,
}

/// The host of a worker. The configuration folder of the host contains one release at a time.
struct ReleaseHost<'a> {
    fleet: &'a WorkerFleet,
    setup: &'a WorkerSetup,
    releases: &'a Releases,
    /// First, the release that the next read must return, if one is given. Second, the release that the last read
    /// returned.
    release: Mutex<(Option<usize>, usize)>,
    slot: Option<usize>,
    mode: Mode,
    /// Times at which the worker is notified of another configuration, latest first.
    notices: Mutex<Vec<Duration>>,
    was: Mutex<PreviousTerm>,
}

impl ReleaseHost<'_> {
    fn replace_previous(&self, now: PreviousTerm) -> PreviousTerm {
        std::mem::replace(
            &mut *self.was.lock().unwrap_or_else(PoisonError::into_inner),
            now,
        )
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        self.fleet
            .shared_state
            .tell(|| format!("{} {what}", shared_state::name(self.setup.caller)));
    }
}

impl Host for ReleaseHost<'_> {
    async fn read(&self) -> anyhow::Result<Arc<Catalog>> {
        let mut release = self.release.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = *release;
        let read = match (first, self.slot) {
            (Some(first), _) => first,
            (None, Some(slot)) => self
                .releases
                .configured(slot, self.fleet.shared_state.elapsed()),
            (None, None) => last,
        };
        *release = (None, read);
        self.say(format_args!("reads its configuration: release {read}"));
        Ok(Arc::clone(&self.releases.catalogs[read]))
    }

    async fn reload_requested(&self) {
        let next = || {
            self.notices
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .last()
                .copied()
        };
        let Some(at) = next() else {
            return std::future::pending().await;
        };
        sleep(at.saturating_sub(self.fleet.shared_state.elapsed())).await;
        self.notices
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
    }

    fn notice(&self, notice: Notice<'_>) {
        let (shared_state, caller) = (&self.fleet.shared_state, self.setup.caller);
        match notice {
            Notice::Waiting(_) => {}
            Notice::Kept => shared_state.see(RareEvent::NotTakenUp),
            Notice::Refused => {
                if self.replace_previous(PreviousTerm::Refusal) == PreviousTerm::Start {
                    shared_state.see(RareEvent::StartRefused);
                }
                // From now on the worker receives no messages. It only polls the record of the catalog.
                shared_state.set_receiving_stopped(caller, Some(shared_state.elapsed()));
                self.say(format_args!("finds that another catalog is recorded"));
            }
            Notice::Replaced(_) | Notice::Changed => {
                if matches!(notice, Notice::Replaced(_)) {
                    shared_state.see(RareEvent::Outdated);
                }
                shared_state.explain(caller);
                let drained =
                    shared_state.elapsed() + self.fleet.fault_plan.settings.drain + DRAIN_GRACE;
                shared_state.set_receiving_stopped(caller, Some(drained));
                self.say(format_args!("drains: {notice:?}"));
            }
        }
    }

    async fn work(
        &self,
        current: &Arc<CurrentCatalog>,
        stop: &CancellationToken,
    ) -> anyhow::Result<RunReport> {
        let shared_state = &self.fleet.shared_state;
        shared_state.set_receiving_stopped(self.setup.caller, None);
        match self.replace_previous(PreviousTerm::Term) {
            PreviousTerm::Start => {}
            PreviousTerm::Term => shared_state.see(RareEvent::TakenUp),
            PreviousTerm::Refusal => shared_state.see(RareEvent::GoesOn),
        }
        self.say(format_args!("uses a recorded catalog"));
        let keys = Arc::clone(current);
        let resolve_primaries = Arc::new(move |job: &_| keys.forms_of(job));
        let Some(worker) = self
            .fleet
            .compose_worker(self.setup, current, resolve_primaries)
        else {
            return Ok(RunReport::default());
        };
        Ok(worker.run(self.mode, stop.clone()).await?)
    }
}

pub(crate) fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(MigrationError::NeedsConsent(_)))
}
