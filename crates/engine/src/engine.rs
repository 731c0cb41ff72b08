//! The engine: the way into the protocol for those who run jobs, and for commands.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;

use crate::env::memory::MemoryBudget;
use crate::env::recheck_queue::RecheckQueues;
use crate::env::row_memory::RowSizes;
use crate::env::seal;
use crate::env::secret::SealSecret;
use crate::env::{CatalogHold, Env, PART};
use crate::execute::{Delivery, Execute, Failure, Outcome, SealBodies, Work};
use crate::items::shared::DocumentTurns;
use crate::jobs;
use crate::jobs::audit::{self, AuditPass};
use crate::jobs::backfill::{self, BackfillPass};
use crate::jobs::context::JobContext;
use crate::jobs::dated;
use crate::jobs::erase::{self, Erasure};
use crate::jobs::log::lane::LogLanes;
use crate::jobs::subject;
use crate::jobs::sweep::{self, SweepPage};
use crate::protocol::report::{PlanReport, report};
use crate::protocol::run::passes::pass_over;
use evenkeel_model::audit::Audit;
use evenkeel_model::backfill::{Backfill, BackfillCursor};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::Primary;
use evenkeel_model::sweep::Sweep;
use evenkeel_model::{Job, ViewName};
use evenkeel_storage::{Clock, Rng, Stores};

/// Components of an engine.
pub struct EngineParts {
    /// The accounts.
    pub stores: Stores,
    /// The declared views and their sources.
    pub catalog: Arc<Catalog>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness for tokens.
    pub rng: Arc<dyn Rng>,
    /// How long after a disturbed pass dropped items are looked at again.
    pub recheck_after: Duration,
}

/// Executes jobs by the reconcile protocol.
pub struct Engine(JobContext);

#[async_trait]
impl Execute for Engine {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        jobs::execute(&self.0, work, delivery).await
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        jobs::give_up(&self.0, work, delivery).await
    }
}

#[async_trait]
impl SealBodies for Engine {
    async fn seal_body(&self, body: &str) -> Result<Option<String>, Failure> {
        self.0.encryption().sealed_body(body).await
    }
}

impl Engine {
    /// An engine.
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts {
            stores,
            catalog,
            clock,
            rng,
            recheck_after,
        } = parts;
        let env = Env {
            stores,
            catalog,
            clock,
            rng,
            recheck_after,
            turns: DocumentTurns::default(),
            memory: Arc::default(),
            row_sizes: RowSizes::default(),
            rechecks: RecheckQueues::default(),
            secret: Arc::default(),
            recorded: OnceLock::new(),
        };
        Self(JobContext {
            env,
            part: PART,
            lanes: LogLanes::default(),
            hash_keys: Mutex::default(),
        })
    }

    /// What its jobs work with.
    #[cfg(test)]
    pub(crate) const fn context(&self) -> &JobContext {
        &self.0
    }

    /// As this one, but walks over tables stop about so often, to tell how far they are.
    #[must_use]
    pub fn in_parts_of(mut self, part: Duration) -> Self {
        self.0.part = part;
        self
    }

    /// The same, within a budget of memory that others share.
    #[must_use]
    pub fn within(mut self, memory: Arc<MemoryBudget>) -> Self {
        self.0.env.memory = memory;
        self
    }

    /// The same, with a secret of seals that others share.
    #[must_use]
    pub fn sealing_by(mut self, secret: Arc<SealSecret>) -> Self {
        self.0.env.secret = secret;
        self
    }

    /// Lets the engine close no pass by a replaced catalog. The first record stays.
    pub fn stop_when_replaced(&self, recorded: Arc<dyn CatalogHold>) {
        self.0.env.recorded.get_or_init(|| recorded);
    }

    /// Refuses a step by a replaced catalog.
    pub async fn refuse_replaced(&self, step: impl FnOnce() -> String) -> Result<(), Failure> {
        self.0.env.refuse_replaced(step).await
    }

    /// The catalog of its views.
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.0.env.catalog
    }

    /// The primary that a job is about, its table spelled as declared; `None` where the catalog does not
    /// know it, and where the job is about many. Jobs of one primary are to run one after the other.
    pub fn primary_of(&self, job: &Job) -> Option<Primary> {
        subject::primary_of(self.catalog(), job)
    }

    /// The primary that a job is about; then, of an archived one, the primaries that it was.
    pub fn forms_of(&self, job: &Job) -> Vec<Primary> {
        subject::forms_of(self.catalog(), job)
    }

    /// The primaries that a job writes or brings in step, their tables spelled as declared: none where it is about many.
    pub fn primaries_of(&self, job: &Job) -> Vec<Primary> {
        subject::primaries_of(self.catalog(), job)
    }

    /// Reads the secret of seals, unless that was done. Footprints go without seals where it cannot be read.
    pub async fn read_secret(&self) {
        seal::read_secret(&self.0.env).await;
    }

    /// The plan of reconciling a primary now.
    pub async fn plan(&self, primary: &Primary) -> Result<PlanReport, Failure> {
        let env = &self.0.env;
        match report(pass_over(env, primary, None)?).await {
            Ok(report) => Ok(report),
            Err(failure) => Err(dated::explained(env, &primary.table, failure).await),
        }
    }

    /// Brings primaries in step from a cursor on, for about ten seconds or to the end. `None` where the table has no views.
    pub async fn backfill(
        &self,
        backfill: &Backfill,
        delivery: &Delivery,
    ) -> Result<Option<BackfillPass>, Failure> {
        backfill::backfill(&self.0, backfill, delivery).await
    }

    /// A backfill has been over all of its table: corrects what audits found wrong before it began.
    pub async fn backfilled(
        &self,
        backfill: &Backfill,
        cursor: &BackfillCursor,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        backfill::backfilled(&self.0.env, backfill, cursor, delivery).await
    }

    /// Compares from a cursor on, for about ten seconds or to the end. `None` where the table has no views.
    pub async fn audit(
        &self,
        audit: &Audit,
        delivery: &Delivery,
    ) -> Result<Option<AuditPass>, Failure> {
        self.audit_of(audit, None, delivery).await
    }

    /// As [`Self::audit`]; of a view alone the findings are kept of that one.
    pub async fn audit_of(
        &self,
        audit: &Audit,
        view: Option<&ViewName>,
        delivery: &Delivery,
    ) -> Result<Option<AuditPass>, Failure> {
        audit::audit(&self.0, audit, view, delivery).await
    }

    /// Removes a primary with everything that is kept of it. `erasure` holds the removals so far, also after a failure or a drop.
    pub async fn erase(
        &self,
        primary: &Primary,
        delivery: &Delivery,
        erasure: &mut Erasure,
    ) -> Result<(), Failure> {
        erase::erase(&self.0, primary, delivery, erasure).await
    }

    /// A page of the entities that a sweep which is sent now would act on, without acting on any.
    pub async fn would_sweep(
        &self,
        sweep: &Sweep,
        from: &(Option<String>, Option<String>),
    ) -> Result<SweepPage, Failure> {
        sweep::would_sweep(&self.0.env, sweep, from).await
    }

    /// What keeps the condition of a sweep from being met, by the first rows of its range. Reads one page.
    pub async fn sweep_unmet(&self, sweep: &Sweep) -> Result<Vec<String>, Failure> {
        sweep::sweep_unmet(&self.0.env, sweep).await
    }
}
