//! The engine: the catalog, the stores, a clock, and the operations on them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use tokio::sync::OnceCell;

use super::document::Document;
use super::execute::{Delivery, Execute, Failure, FailureClass, Outcome, Summary, Work};
use super::failure::permanent;
use super::log::Lanes;
use super::memory::{MemoryBudget, MemoryShare};
use super::pass::Pass;
use super::report::PlanReport;
use super::shared::Turns;
use super::walk::PART;
use super::{archive, audit, backfill, carry, dated, delete, drop_table, moving, put, restore};
use crate::catalog::{Archive, Catalog, TableRef};
use crate::model::job::Primary;
use crate::model::limits::LATE_REQUEST;
use crate::model::{ItemAddress, Job, TableName, ViewName};
use crate::planted::{Bug, planted};
use crate::ports::{Account, Chance, Clock, ClocksApart, Stores};

/// How far apart two workers' clocks may be: a taint is kept this much longer than a request can live.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(30);
/// How long views may be chained (a view's target that is another view's source).
const LONGEST_CHAIN: u8 = 8;

/// Memory that a job about a whole table takes for its page of rows, by estimate: a thousand of 4 KiB.
const PAGE_BYTES: u64 = 4 << 20;

/// Components of an engine.
pub struct EngineParts {
    /// The accounts.
    pub stores: Stores,
    /// The declared views and their sources.
    pub catalog: Arc<Catalog>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness for tokens.
    pub chance: Arc<dyn Chance>,
    /// How long after a disturbed pass dropped items are looked at again.
    pub recheck_after: Duration,
}

/// Executes jobs by the reconcile protocol.
pub struct Engine {
    pub(super) stores: Stores,
    pub(super) catalog: Arc<Catalog>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) chance: Arc<dyn Chance>,
    pub(super) recheck_after: Duration,
    pub(super) turns: Turns,
    /// How long one part of a walk over a table takes.
    pub(super) part: Duration,
    /// Memory budget of its jobs.
    pub(super) memory: Arc<MemoryBudget>,
    /// Lines of logs that wait to be appended together.
    pub(super) lanes: Lanes,
    /// Key that seals cursors, once it was needed.
    pub(super) secret: OnceCell<[u8; 32]>,
}

/// A job names something that the catalog does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unknown {
    #[error("the catalog has no table {0:?}: name it as a view's or archive's source, or declare [tables.{0}]")]
    Table(TableName),
    #[error("the catalog has no archive {0:?}: declare [archives.{0}]")]
    Archive(ViewName),
    #[error("the catalog has no view {0:?}: declare [views.{0}]")]
    View(ViewName),
    #[error(
        "the table {0} holds rows that views make, and nothing else: change their primaries; if applications keep entities there too, declare [tables.{0}]"
    )]
    ViewTable(TableName),
    #[error("the view {view} is of the tables by date {tables}: say `table`, one of them, in place of `view`")]
    WhichTable { view: ViewName, tables: String },
    #[error("views are chained more than {LONGEST_CHAIN} deep at {0}: the catalog has a cycle")]
    Chain(Primary),
}

impl Engine {
    /// An engine.
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts { stores, catalog, clock, chance, recheck_after } = parts;
        Self {
            stores,
            catalog,
            clock,
            chance,
            recheck_after,
            turns: Turns::default(),
            lanes: Lanes::default(),
            secret: OnceCell::new(),
            part: PART,
            memory: Arc::default(),
        }
    }

    /// As this one, but walks over tables stop about so often, to tell how far they are.
    #[must_use]
    pub fn in_parts_of(self, part: Duration) -> Self {
        Self { part, ..self }
    }

    /// The same, within a budget of memory that others share.
    #[must_use]
    pub fn within(self, memory: Arc<MemoryBudget>) -> Self {
        Self { memory, ..self }
    }

    /// The primary that a job is about, its table spelled as declared; `None` where the catalog does not
    /// know it, and where the job is about many. Jobs of one primary are to run one after the other.
    pub fn primary_of(&self, job: &Job) -> Option<Primary> {
        let table = match job {
            Job::Sync { primary, .. } | Job::Delete { primary, .. } | Job::Move { primary, .. } => &primary.table,
            Job::Put(put) => &put.table,
            Job::Archive { archive, .. } | Job::Restore { archive, .. } => &self.catalog.archives.get(archive)?.source.table,
            Job::Backfill(_) | Job::Audit(_) | Job::Carry(_) | Job::DropTable(_) => return None,
        };
        Some(Primary { table: self.catalog.table(table)?.table.clone(), key: job.key()?.clone() })
    }

    /// The primaries that a job writes or brings in step, their tables spelled as declared: none where it is about many.
    pub fn primaries_of(&self, job: &Job) -> Vec<Primary> {
        let Some(source) = self.primary_of(job) else { return Vec::new() };
        let kept = match job {
            Job::Archive { archive, key, .. } | Job::Restore { archive, key } => {
                let filing = self.catalog.filing_of(archive).map(|filing| &filing.table);
                let target = filing.or_else(|| self.catalog.archives.get(archive)?.target.table());
                target.map(|target| Primary { table: target.table.clone(), key: key.clone() })
            }
            Job::Move { to, .. } => Some(to.clone()),
            Job::Sync { .. } | Job::Put(_) | Job::Delete { .. } => None,
            Job::Backfill(_) | Job::Audit(_) | Job::Carry(_) | Job::DropTable(_) => return Vec::new(),
        };
        [Some(source), kept].into_iter().flatten().collect()
    }

    /// The catalog of its views.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The plan of reconciling a primary now.
    pub async fn plan(&self, primary: &Primary) -> Result<PlanReport, Failure> {
        match self.pass_over(primary, None)?.report().await {
            Ok(report) => Ok(report),
            Err(failure) => Err(dated::explained(self, &primary.table, failure).await),
        }
    }

    pub(super) fn table(&self, name: &TableName) -> Result<&TableRef, Failure> {
        self.catalog.table(name).ok_or_else(|| permanent("finding the table", Unknown::Table(name.clone())))
    }

    /// Refuses jobs that write entities of a table that only views write.
    pub(super) fn refuse_view_tables(&self, name: &TableName) -> Result<(), Failure> {
        let table = self.table(name)?;
        if self.catalog.is_for_views_alone(table) {
            return Err(permanent("finding the table", Unknown::ViewTable(table.table.clone())));
        }
        Ok(())
    }

    /// How a job ends that met a table that is not there.
    async fn bring_to_an_end(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        match self.run(work, delivery).await {
            Err(failure) => dated::judge(self, work, failure).await,
            ended => ended,
        }
    }

    pub(super) fn archive(&self, name: &ViewName) -> Result<&Archive, Failure> {
        let archive = self.catalog.archives.get(name);
        archive.map(AsRef::as_ref).ok_or_else(|| permanent("finding the archive", Unknown::Archive(name.clone())))
    }

    pub(super) fn account(&self, table: &TableRef) -> Result<&Account, Failure> {
        self.stores.account(&table.account).map_err(|error| permanent("finding the account", error))
    }

    /// How far the clock of the queue that a job came from is ahead of that of a table.
    pub(super) fn clocks_apart(&self, delivery: &Delivery, table: &TableRef) -> ClocksApart {
        let clocks = |account| self.stores.account(account).map(|account| Arc::clone(&account.clocks));
        match (clocks(&delivery.account), clocks(&table.account)) {
            (Ok(queues), Ok(tables)) => ClocksApart::between(&queues, &tables),
            _ => ClocksApart::NOT,
        }
    }

    /// How long a taint lasts: as long as an old request may live, however the clocks differ.
    pub(super) fn taint_for(&self) -> SignedDuration {
        taint_for(self.recheck_after)
    }

    /// How long after its announcement a pass may write to a sink: a pass that finds the announcement open looks again
    /// `recheck_after` later, and by then none of its requests may be on its way.
    pub(super) fn may_write_for(&self) -> Duration {
        self.recheck_after.saturating_sub(LATE_REQUEST)
    }

    /// A pass over one primary on behalf of a delivery.
    pub(super) fn pass<'e>(&'e self, primary: &Primary, delivery: &'e Delivery) -> Result<Pass<'e>, Failure> {
        self.table(&primary.table)?;
        self.pass_over(primary, Some(delivery))
    }

    /// As [`pass`](Self::pass), also over an archived entity that has a document in the place of a row.
    pub(super) fn pass_over<'e>(&'e self, primary: &Primary, delivery: Option<&'e Delivery>) -> Result<Pass<'e>, Failure> {
        let Some(filing) = self.catalog.filings.get(&primary.table) else {
            let source = self.table(&primary.table)?;
            self.check_key(source, &primary.key)?;
            let primary = Primary { table: source.table.clone(), key: primary.key.clone() };
            return Ok(Pass::new(self, source, primary, delivery));
        };
        let document = Document::filed(self, self.archive(&filing.archive)?, &primary.key)?;
        let primary = Primary { table: filing.table.table.clone(), key: primary.key.clone() };
        let mut pass = Pass::new(self, &filing.table, primary, delivery);
        pass.folder = document.folder();
        pass.document = Some(document);
        Ok(pass)
    }

    /// Brings every item of a primary in step with it, from inside another pass; `met` is one that was met and
    /// that its footprint may not list.
    pub(super) fn nested<'a>(
        &'a self,
        primary: &'a Primary,
        met: Option<ItemAddress>,
        delivery: Option<&'a Delivery>,
        depth: u8,
    ) -> BoxFuture<'a, Result<Summary, Failure>> {
        Box::pin(async move {
            if depth > LONGEST_CHAIN {
                return Err(permanent("reconciling a chain of views", Unknown::Chain(primary.clone())));
            }
            let source = self.table(&primary.table)?;
            let primary = Primary { table: source.table.clone(), key: primary.key.clone() };
            let mut pass = Pass::new(self, source, primary, delivery);
            pass.depth = depth;
            pass.touched.extend(met);
            pass.reconcile().await
        })
    }
}

#[async_trait]
impl Execute for Engine {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        let ended = self.bring_to_an_end(work, delivery).await;
        let wrote_nothing = match &ended {
            Ok(Outcome::Skipped { .. }) => true,
            Err(failure) => failure.class == FailureClass::Permanent,
            Ok(Outcome::Done(summary)) => summary.changes.is_empty(),
            Ok(Outcome::Advanced { .. }) => false,
        };
        if wrote_nothing && delivery.dequeue_count > 1 {
            match work {
                Work::Job(job) => self.look_again(job, delivery).await?,
                Work::Recheck(recheck) => self.pass_over(&recheck.primary, Some(delivery))?.look_again().await?,
            }
        }
        ended
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        match work {
            Work::Job(job) => self.look_again(job, delivery).await,
            // One that never ends would be queued and given up again and again.
            Work::Recheck(_) => Ok(()),
        }
    }
}

impl Engine {
    async fn run(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        let Work::Job(job @ (Job::Backfill(_) | Job::Audit(_) | Job::Carry(_) | Job::DropTable(_))) = work else {
            return self.run_one(work, delivery).await;
        };
        let _page = self.memory.take_aside(MemoryShare::Bodies, PAGE_BYTES).await;
        let outcome = self.run_one(&Work::Job(self.believed(job, delivery).await?), delivery).await?;
        self.sealed(job, outcome, delivery).await
    }

    async fn run_one(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        match work {
            Work::Job(Job::Sync { primary, looks }) => {
                let mut pass = self.pass_over(primary, Some(delivery))?;
                pass.looks = *looks;
                pass.reconcile().await.map(Outcome::Done)
            }
            Work::Job(Job::Put(put)) => put::run(self, put, delivery).await,
            Work::Job(Job::Delete { primary, if_match }) => delete::run(self, primary, if_match.as_ref(), delivery).await,
            Work::Job(Job::Archive { archive, key, if_match }) => {
                archive::run(self, self.archive(archive)?, key, if_match.as_ref(), delivery).await
            }
            Work::Job(Job::Move { primary, to }) => moving::run(self, primary, to, delivery).await,
            Work::Job(Job::Restore { archive, key }) => restore::run(self, self.archive(archive)?, key, delivery).await,
            Work::Job(Job::Backfill(backfill)) => Box::pin(backfill::run(self, backfill, delivery)).await,
            Work::Job(Job::Audit(audit)) => Box::pin(audit::run(self, audit, delivery)).await,
            Work::Job(Job::Carry(carry)) => Box::pin(carry::run(self, carry, delivery)).await,
            Work::Job(Job::DropTable(job)) => Box::pin(drop_table::run(self, job, delivery)).await,
            Work::Recheck(recheck) => self.pass_over(&recheck.primary, Some(delivery))?.recheck(recheck).await.map(Outcome::Done),
        }
    }

    /// For a job that ends without its write and was delivered before, or that is given up: requests of an earlier
    /// delivery may be on their way still, and arrive with no run left to derive their items. The primaries that the
    /// job may be about are looked at again when such requests can no longer arrive.
    async fn look_again(&self, job: &Job, delivery: &Delivery) -> Result<(), Failure> {
        for primary in self.primaries_of(job) {
            self.pass_over(&primary, Some(delivery))?.look_again().await?;
        }
        Ok(())
    }
}

/// How long a taint lasts, where rechecks follow after this.
fn taint_for(recheck_after: Duration) -> SignedDuration {
    let skew = if planted(Bug::TaintForgetsClocks) { SignedDuration::ZERO } else { CLOCK_SKEW };
    SignedDuration::try_from(recheck_after).unwrap_or(SignedDuration::MAX).saturating_add(skew)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taint_outlasts_an_old_request_by_the_clocks_of_two_workers_that_are_half_an_hour_apart() {
        let recheck_after = Duration::from_mins(26);
        assert!(taint_for(recheck_after) >= SignedDuration::from_mins(26 + 30));
        assert_eq!(taint_for(Duration::MAX), SignedDuration::MAX);
    }
}
