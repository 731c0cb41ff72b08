//! Runs workers for the chaos of `certify`. The workers are composed as in `run`, but use a
//! namespace inside the account, and some of their requests fail.
//!
//! ```text
//!   application ─▶ retry … ──────────────▶ namespace ─▶ budget ─▶ the account
//!   worker ──────▶ retry … ─▶ unreliable ─▶
//! ```

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::run::worker_name;
use super::scratch::ScratchFolder;
use crate::cli::certify::{CHAOS_CONFIGURATION, ChaosStage, RequestFaults};
use evenkeel_engine::{Engine, EngineParts};
use evenkeel_layers::circuit::Circuits;
use evenkeel_layers::namespace::Namespace;
use evenkeel_layers::stack::{DecoratedAccount, Grouping, decorate_within, layered};
use evenkeel_layers::unreliable::Unreliable;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::settings::{PaceCeilings, Settings};
use evenkeel_model::{AccountName, QueueName};
use evenkeel_rollout::migrations::{Consent, Migrator};
use evenkeel_storage::system::{SystemClock, SystemRng};
use evenkeel_storage::{Account, Clock, Rng, Stores};
use evenkeel_worker::{Mode, Worker, WorkerParts};

/// Enough for a job, which sends a few requests. Each is delayed by at most a second.
const JOB_TIMEOUT: Duration = Duration::from_secs(15);
/// After a worker was killed, the table service may still execute its last requests for this time
/// (Azure: query timeout and pagination).
const LATE_REQUEST: Duration = Duration::from_secs(30);
/// Workers are killed so often that a job may be delivered many times. The limit is so high that no
/// job is given up.
const DELIVERIES: u32 = 1_000;

pub(super) struct Chaos {
    settings: Settings,
    catalog: Arc<Catalog>,
    queue: QueueName,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// The account, limited to the namespace.
    account: Account,
    unreliable: Arc<Unreliable>,
    /// The stores as an application uses them, without injected failures.
    stores: Stores,
}

impl Chaos {
    pub(super) fn within(account: &Account) -> anyhow::Result<Self> {
        let loaded = ScratchFolder::fresh()?.load(CHAOS_CONFIGURATION, &[])?;
        let mut settings = loaded.settings;
        settings.worker.job_timeout = JOB_TIMEOUT;
        settings.worker.recheck_after = JOB_TIMEOUT + LATE_REQUEST;
        settings.worker.max_dequeue_count = DELIVERIES;
        let queue = settings
            .queues
            .first()
            .map(|queue| queue.name.clone())
            .ok_or_else(|| anyhow::anyhow!("the configuration has no queue"))?;
        let (clock, rng): (Arc<dyn Clock>, Arc<dyn Rng>) =
            (Arc::new(SystemClock::new()), Arc::new(SystemRng::new()));
        // If a run is killed, `doctor` finds its remaining tables by this name.
        let id = format!("{:08x}", rng.next_u64() >> 32);
        let namespace = Namespace::new(
            AccountName::main(),
            &format!("EvenkeelScratch{id}"),
            &format!("evenkeel-scratch-{id}-"),
        );
        let account = namespace.within(account);
        let unreliable = Arc::new(Unreliable::new(AccountName::main(), Arc::clone(&rng)));
        let stores = stores(decorated(&account, &settings, &clock, &rng).account);
        Ok(Self {
            settings,
            catalog: Arc::new(loaded.catalog),
            queue,
            clock,
            rng,
            account,
            unreliable,
            stores,
        })
    }
}

fn decorated(
    bare: &Account,
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> DecoratedAccount {
    decorate_within(
        &AccountName::main(),
        bare,
        Grouping::Together,
        Some(PaceCeilings::AZURE),
        settings.worker.storage_retry,
        clock,
        rng,
    )
}

fn stores(account: Account) -> Stores {
    Stores::new([(AccountName::main(), account)].into())
}

#[async_trait]
impl ChaosStage for Chaos {
    fn stores(&self) -> &Stores {
        &self.stores
    }

    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn queue(&self) -> &QueueName {
        &self.queue
    }

    fn rng(&self) -> &dyn Rng {
        self.rng.as_ref()
    }

    async fn prepare(&self) -> anyhow::Result<()> {
        let migrator = Migrator::new(
            self.stores.clone(),
            &self.settings,
            Arc::clone(&self.catalog),
            Arc::clone(&self.clock),
        )?;
        Ok(migrator.up(Consent::Additions, |_| {}).await?)
    }

    async fn work(&self, faults: RequestFaults, mode: Mode) -> anyhow::Result<()> {
        let bare = match faults {
            RequestFaults::Injected => layered(&self.account, &self.unreliable),
            RequestFaults::Off => self.account.clone(),
        };
        let decorated = decorated(&bare, &self.settings, &self.clock, &self.rng);
        let stores = stores(decorated.account);
        let engine = Arc::new(Engine::new(EngineParts {
            stores: stores.clone(),
            catalog: Arc::clone(&self.catalog),
            clock: Arc::clone(&self.clock),
            rng: Arc::clone(&self.rng),
            recheck_after: self.settings.worker.recheck_after,
        }));
        let keys = Arc::clone(&engine);
        let worker = Worker::new(WorkerParts {
            stores,
            health: Arc::new(Circuits::new(vec![decorated.circuit])),
            encrypt_bodies: Arc::<Engine>::clone(&engine),
            execute: engine,
            clock: Arc::clone(&self.clock),
            rng: Arc::clone(&self.rng),
            settings: self.settings.worker.clone(),
            queues: self.settings.queues.clone(),
            name: worker_name(),
            resolve_primaries: Arc::new(move |job| keys.forms_of(job)),
        })?;
        worker.run(mode, CancellationToken::new()).await?;
        Ok(())
    }

    fn faults(&self) -> u64 {
        self.unreliable.met()
    }
}
