//! The jobs. Each job runs one or more passes over primaries.
//!
//! Each job has a file, or a folder if it has several parts (`relocation`, `log`, `retention`). Jobs over a whole table
//! use `walk`. This module may use `env`, `protocol`, `items`, `encryption` and `permit`. Only `engine` uses this
//! module.

pub(crate) mod audit;
pub(crate) mod audit_records;
pub(crate) mod backfill;
mod checks;
mod content;
pub(crate) mod context;
pub(crate) mod dated;
mod delete;
mod drop_table;
pub(crate) mod erase;
pub(crate) mod log;
mod marks;
mod newer;
mod propagate;
mod put;
mod relocation;
mod restore;
pub mod retention;
#[cfg(feature = "samples")]
mod sample_touch;
mod since;
pub(crate) mod staging;
pub(crate) mod subject;
pub(crate) mod sweep;
mod sync;
mod table_archive;
pub(crate) mod values_left;
mod walk;

use futures::future::BoxFuture;

use crate::env::memory::MemoryShare;
use crate::env::signature::{keyed, signed, verified};
use crate::execute::{Delivery, Failure, FailureClass, Outcome, Work};
use crate::jobs::context::JobContext;
use crate::jobs::subject::primaries_of;
use crate::permit::{permit, permit_job};
use crate::protocol::conflicts;
use crate::protocol::queueing::queue_whole_recheck;
use crate::protocol::recheck;
use crate::protocol::run::passes::{pass_over, pass_with};
use crate::protocol::scope::PassOptions;
use evenkeel_model::Job;

/// Memory that a job over many entities reserves for a page of rows. This is enough for a thousand rows of 4 KiB.
const PAGE_BYTES: u64 = 4 << 20;

pub(crate) trait RunJob {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure>;
}

/// Executes a job or a recheck from the beginning. The future is boxed, because a sweep calls this function for each of
/// its entities.
pub(crate) fn execute<'c>(
    cx: &'c JobContext,
    work: &'c Work,
    delivery: &'c Delivery,
) -> BoxFuture<'c, Result<Outcome, Failure>> {
    Box::pin(async move {
        permit(&cx.env, work, delivery)?;
        let ended = bring_to_an_end(cx, work, delivery).await;
        let may_have_written_nothing = match &ended {
            Ok(Outcome::Skipped { .. }) => true,
            Err(failure) => failure.class == FailureClass::Permanent,
            Ok(Outcome::Done(summary)) => !summary.has_changed_its_own(),
            Ok(Outcome::Advanced { .. }) => false,
        };
        if let Work::Job(job) = work
            && may_have_written_nothing
            && delivery.dequeue_count > 1
        {
            let conflict_digest = ended.as_ref().err().and_then(conflicts::digest);
            queue_rechecks_of(cx, job, conflict_digest.as_deref(), delivery).await?;
        }
        ended
    })
}

pub(crate) async fn give_up(
    cx: &JobContext,
    work: &Work,
    delivery: &Delivery,
) -> Result<(), Failure> {
    match work {
        // A job that `permit_job` rejects has sent no request, so nothing has to be rechecked.
        Work::Job(job) if permit_job(&cx.env, job, delivery).is_err() => Ok(()),
        Work::Job(job) => queue_rechecks_of(cx, job, None, delivery).await,
        // A recheck that is given up is not queued again. Otherwise, a recheck that can never complete would be queued
        // forever.
        Work::Recheck(_) => Ok(()),
    }
}

/// Runs the work. If it fails because a dated table is missing, `dated::judge` decides the outcome.
async fn bring_to_an_end(
    cx: &JobContext,
    work: &Work,
    delivery: &Delivery,
) -> Result<Outcome, Failure> {
    match run(cx, work, delivery).await {
        Err(failure) => dated::judge(&cx.env, work, failure).await,
        ended => ended,
    }
}

async fn run(cx: &JobContext, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
    let job = match work {
        Work::Recheck(recheck) => {
            // If this run queues another recheck, `chained` makes the delay of that recheck longer. With equal delays,
            // many simultaneous rechecks on a slow store would make each other lose races, and each would queue another
            // recheck, forever.
            let options = PassOptions {
                met: recheck.items.iter().cloned().collect(),
                chained: recheck.chained.saturating_add(1),
                ..PassOptions::default()
            };
            let reconciler = pass_with(&cx.env, &recheck.primary, Some(delivery), options)?;
            return recheck::run(reconciler, recheck, delivery)
                .await
                .map(Outcome::Done);
        }
        Work::Job(job) if job.key().is_some() => {
            return run_job(cx, job, &*keyed(&cx.env, delivery).await?).await;
        }
        Work::Job(job) => job,
    };
    let _page = cx
        .env
        .memory
        .take_untimed(MemoryShare::Bodies, PAGE_BYTES)
        .await;
    let trusted = verified(&cx.env, job, delivery).await?;
    let outcome = run_job(cx, &trusted, delivery).await?;
    signed(&cx.env, job, outcome, delivery).await
}

async fn run_job(cx: &JobContext, job: &Job, delivery: &Delivery) -> Result<Outcome, Failure> {
    evenkeel_model::each_operation!(job, job => Box::pin(job.run(cx, delivery)).await)
}

/// Queues rechecks of the job's primaries if the job is given up, or if a redelivery ends and may have written nothing.
/// In both cases, requests of an earlier delivery may still arrive. The rechecks are due when such requests can no
/// longer arrive, and sync the items.
async fn queue_rechecks_of(
    cx: &JobContext,
    job: &Job,
    conflict_digest: Option<&str>,
    delivery: &Delivery,
) -> Result<(), Failure> {
    for primary in primaries_of(&cx.env.catalog, job) {
        queue_whole_recheck(
            pass_over(&cx.env, &primary, Some(delivery))?.scope(),
            conflict_digest,
        )
        .await?;
    }
    Ok(())
}
