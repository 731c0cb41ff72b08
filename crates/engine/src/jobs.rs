//! The jobs: each operation's run, by passes over its primaries.

use async_trait::async_trait;

use super::conflicts;
use super::dated;
use super::document::ArchiveDocument;
use super::engine::Engine;
use super::execute::{Delivery, Execute, Failure, FailureClass, Outcome, SealBodies, Work};
use super::memory::MemoryShare;
use super::queueing::look_again;
use super::reconciler::{PassOptions, Reconciler};
use super::report::{PlanReport, report};
use super::second_look;
use evenkeel_model::Job;
use evenkeel_model::job::Primary;
use evenkeel_model::planted::{Bug, planted};

/// Memory that a job about a whole table takes for its page of rows, by estimate: a thousand of 4 KiB.
const PAGE_BYTES: u64 = 4 << 20;

/// How an operation is carried out.
pub(super) trait RunJob {
    /// Runs a job to its end, or a part of it.
    async fn run(&self, engine: &Engine, delivery: &Delivery) -> Result<Outcome, Failure>;
}

#[async_trait]
impl Execute for Engine {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        self.permit(work, delivery)?;
        let ended = self.bring_to_an_end(work, delivery).await;
        let wrote_nothing = match &ended {
            Ok(Outcome::Skipped { .. }) => true,
            Err(failure) => failure.class == FailureClass::Permanent,
            Ok(Outcome::Done(summary)) => !summary.has_changed_its_own(),
            Ok(Outcome::Advanced { .. }) => false,
        };
        if let Work::Job(job) = work
            && wrote_nothing
            && delivery.dequeue_count > 1
        {
            let told = ended.as_ref().err().and_then(conflicts::digest);
            self.look_again(job, told.as_deref(), delivery).await?;
        }
        ended
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        match work {
            // One that was refused has sent no request.
            Work::Job(job)
                if planted(Bug::GivenUpUnchecked) || self.permit_job(job, delivery).is_err() =>
            {
                Ok(())
            }
            Work::Job(job) => self.look_again(job, None, delivery).await,
            // One that never ends would be queued and given up again and again.
            Work::Recheck(_) => Ok(()),
        }
    }
}

#[async_trait]
impl SealBodies for Engine {
    async fn seal_body(&self, body: &str) -> Result<Option<String>, Failure> {
        self.sealed_body(body).await
    }
}

impl Engine {
    /// How a job ends that met a table that is not there.
    async fn bring_to_an_end(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        match self.run(work, delivery).await {
            Err(failure) => dated::judge(self, work, failure).await,
            ended => ended,
        }
    }

    async fn run(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        let job = match work {
            Work::Recheck(recheck) => {
                // Rechecks of its run come later than it did: many at once on slow stores disturb each other, and would each ask for another
                // for ever.
                let options = PassOptions {
                    met: recheck.items.iter().cloned().collect(),
                    chained: recheck.chained.saturating_add(1),
                    ..PassOptions::default()
                };
                let reconciler = self.pass_with(&recheck.primary, Some(delivery), options)?;
                return second_look::run(reconciler, recheck, delivery)
                    .await
                    .map(Outcome::Done);
            }
            Work::Job(job) if job.key().is_some() => {
                return self.run_job(job, &*self.keyed(delivery).await?).await;
            }
            Work::Job(job) => job,
        };
        let _page = self
            .memory
            .take_aside(MemoryShare::Bodies, PAGE_BYTES)
            .await;
        let outcome = self
            .run_job(&self.believed(job, delivery).await?, delivery)
            .await?;
        self.sealed(job, outcome, delivery).await
    }

    async fn run_job(&self, job: &Job, delivery: &Delivery) -> Result<Outcome, Failure> {
        evenkeel_model::each_operation!(job, job => Box::pin(job.run(self, delivery)).await)
    }

    /// For a job that ends without its write and was delivered before, or that is given up: requests of an earlier
    /// delivery may be on their way still, and arrive with no run left to derive their items. The primaries that the
    /// job may be about are looked at again when such requests can no longer arrive.
    async fn look_again(
        &self,
        job: &Job,
        told: Option<&str>,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        for primary in self.primaries_of(job) {
            look_again(self.pass_over(&primary, Some(delivery))?.scope(), told).await?;
        }
        Ok(())
    }
}

impl Engine {
    /// The plan of reconciling a primary now.
    pub async fn plan(&self, primary: &Primary) -> Result<PlanReport, Failure> {
        match report(self.pass_over(primary, None)?).await {
            Ok(report) => Ok(report),
            Err(failure) => Err(dated::explained(self, &primary.table, failure).await),
        }
    }

    /// A pass over one primary on behalf of a delivery.
    pub(super) fn pass<'e>(
        &'e self,
        primary: &Primary,
        delivery: &'e Delivery,
    ) -> Result<Reconciler<'e>, Failure> {
        self.table(&primary.table)?;
        self.pass_over(primary, Some(delivery))
    }

    /// As [`pass`](Self::pass), also over an archived entity that has a document in the place of a row.
    pub(super) fn pass_over<'e>(
        &'e self,
        primary: &Primary,
        delivery: Option<&'e Delivery>,
    ) -> Result<Reconciler<'e>, Failure> {
        self.pass_with(primary, delivery, PassOptions::default())
    }

    /// As [`pass_over`](Self::pass_over), with what else is asked of it.
    pub(super) fn pass_with<'e>(
        &'e self,
        primary: &Primary,
        delivery: Option<&'e Delivery>,
        options: PassOptions<'e>,
    ) -> Result<Reconciler<'e>, Failure> {
        let Some(filing) = self.catalog.filings.get(&primary.table) else {
            let source = self.table(&primary.table)?;
            self.check_key(source, &primary.key)?;
            let primary = Primary {
                table: source.table.clone(),
                key: primary.key.clone(),
            };
            return Ok(Reconciler::new(self, source, primary, delivery, options));
        };
        let document = ArchiveDocument::filed(self, self.archive(&filing.archive)?, &primary.key)?;
        let primary = Primary {
            table: filing.table.table.clone(),
            key: primary.key.clone(),
        };
        let options = PassOptions {
            document: Some(document),
            ..options
        };
        Ok(Reconciler::new(
            self,
            &filing.table,
            primary,
            delivery,
            options,
        ))
    }
}
