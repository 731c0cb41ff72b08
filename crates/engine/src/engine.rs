//! The engine: the entry point to the protocol and its jobs, for workers and commands.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;

use crate::env::memory::MemoryBudget;
use crate::env::recheck_queue::RecheckQueues;
use crate::env::row_memory::RowSizes;
use crate::env::secret::SigningSecret;
use crate::env::signature;
use crate::env::{CatalogHold, Env, PART};
use crate::execute::{Delivery, EncryptBodies, Execute, Failure, Outcome, Work};
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

pub struct EngineParts {
    pub stores: Stores,
    pub catalog: Arc<Catalog>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    /// Delay before a recheck, without the margin that `delay_of` adds.
    pub recheck_after: Duration,
}

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
impl EncryptBodies for Engine {
    async fn encrypt_body(&self, body: &str) -> Result<Option<String>, Failure> {
        self.0.encryption().encrypted_body(body).await
    }
}

impl Engine {
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

    #[cfg(test)]
    pub(crate) const fn context(&self) -> &JobContext {
        &self.0
    }

    /// Makes each walk over a table return after about this time, so that the caller can report progress.
    #[must_use]
    pub fn in_parts_of(mut self, part: Duration) -> Self {
        self.0.part = part;
        self
    }

    #[must_use]
    pub fn within(mut self, memory: Arc<MemoryBudget>) -> Self {
        self.0.env.memory = memory;
        self
    }

    #[must_use]
    pub fn signing_by(mut self, secret: Arc<SigningSecret>) -> Self {
        self.0.env.secret = secret;
        self
    }

    /// From now on, a pass that changed items fails before its close if a catalog other than the engine's is recorded.
    /// Only the first call has an effect.
    pub fn stop_when_replaced(&self, recorded: Arc<dyn CatalogHold>) {
        self.0.env.recorded.get_or_init(|| recorded);
    }

    pub async fn refuse_replaced(&self, step: impl FnOnce() -> String) -> Result<(), Failure> {
        self.0.env.refuse_replaced(step).await
    }

    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.0.env.catalog
    }

    /// Lists the primary that a job concerns. If the table of a listed primary is the target of an archive, the next
    /// primary of the list has the same key in the source table of that archive.
    pub fn forms_of(&self, job: &Job) -> Vec<Primary> {
        subject::forms_of(self.catalog(), job)
    }

    /// The primaries that a job writes or brings in step, with the tables' names spelled as in the catalog. Empty if
    /// the job is about many primaries.
    pub fn primaries_of(&self, job: &Job) -> Vec<Primary> {
        subject::primaries_of(self.catalog(), job)
    }

    pub async fn read_secret(&self) {
        signature::read_secret(&self.0.env).await;
    }

    pub async fn plan(&self, primary: &Primary) -> Result<PlanReport, Failure> {
        let env = &self.0.env;
        match report(pass_over(env, primary, None)?).await {
            Ok(report) => Ok(report),
            Err(failure) => Err(dated::explained(env, &primary.table, failure).await),
        }
    }

    /// Brings primaries in step, from the cursor on, for about ten seconds or until the end of the table. `None` if the
    /// table has no views.
    pub async fn backfill(
        &self,
        backfill: &Backfill,
        delivery: &Delivery,
    ) -> Result<Option<BackfillPass>, Failure> {
        backfill::backfill(&self.0, backfill, delivery).await
    }

    /// Must be called when a backfill has covered its whole table. Subtracts the repaired items from the results of
    /// earlier audits.
    pub async fn backfilled(
        &self,
        backfill: &Backfill,
        cursor: &BackfillCursor,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        backfill::backfilled(&self.0.env, backfill, cursor, delivery).await
    }

    /// Compares stored items with what the views derive, from the cursor on, for about ten seconds or until the end of
    /// the table. `None` if the table has no views.
    pub async fn audit(
        &self,
        audit: &Audit,
        delivery: &Delivery,
    ) -> Result<Option<AuditPass>, Failure> {
        self.audit_of(audit, None, delivery).await
    }

    /// Like [`Self::audit`]. With a view, only the findings of that view are kept.
    pub async fn audit_of(
        &self,
        audit: &Audit,
        view: Option<&ViewName>,
        delivery: &Delivery,
    ) -> Result<Option<AuditPass>, Failure> {
        audit::audit(&self.0, audit, view, delivery).await
    }

    /// Removes a primary and everything that is stored for it. `erasure` lists the removals so far, even if the call
    /// fails or is dropped.
    pub async fn erase(
        &self,
        primary: &Primary,
        delivery: &Delivery,
        erasure: &mut Erasure,
    ) -> Result<(), Failure> {
        erase::erase(&self.0, primary, delivery, erasure).await
    }

    /// A page of the entities that a sweep would change if it were sent now. Nothing is changed.
    pub async fn would_sweep(
        &self,
        sweep: &Sweep,
        from: &(Option<String>, Option<String>),
    ) -> Result<SweepPage, Failure> {
        sweep::would_sweep(&self.0.env, sweep, from).await
    }

    /// Probable mistakes in the condition of a sweep, such as a property that no entity has. They are found in the
    /// first page of the sweep's range.
    pub async fn sweep_unmet(&self, sweep: &Sweep) -> Result<Vec<String>, Failure> {
        sweep::sweep_unmet(&self.0.env, sweep).await
    }
}
