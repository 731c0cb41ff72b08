//! One delivery of a batch: a job for each of many primaries, side by side, each with a turn and an end of its own.
//!
//! ```text
//!   batch ──▶ the first of its jobs ──▶ turn ▸ run, each ──▶ decide, each ──▶ poison messages of single jobs
//!     ▲        (all, or fewer after       100 at once                                │
//!     │         a run that never ended)                                              ▼
//!     └──────────── the message with the jobs that are left ◀──── none left? ── delete
//! ```
//!
//! No job waits for its turn with another's in its hands, so that batches with common primaries cannot wait for each other.
//!
//! A job that takes the process down would take its batch to the poison queue. So after a run that never ended half of the jobs are run, then
//! a quarter, until one is alone; that one alone is given up, and the others go on as a whole. How many are run at once is noted in the
//! message while it is less than all.

mod decide;

use futures::stream::{self, StreamExt as _};

use super::decide::{End, Rejection, Settlement};
use super::deliver::{Concluded, Incoming, conclude, noticed, situation};
use super::engine::Core;
use super::examine::{Examined, STEP};
use super::lease::{Confirmation, Lease, LeaseOutcome};
use super::poison::Reason;
use super::running::{Assignment, execute, held, note, turn};
use super::settle::{SettleOutcome, put_poison_of, settle};
use super::source::Intake;
use crate::model::cause;
use crate::model::job::Batch;
use crate::planted::{Bug, planted};
use crate::reconcile::Work;

use self::decide::{BatchDecision, JobEnd, Tries};

/// Jobs of one batch that run at once: as many rows as an entity group transaction has.
const AT_ONCE: usize = 100;

/// Works on a batch, of which a job may take the process down so many times, and settles its message.
pub(super) async fn work_on(
    engine: &Core,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (batch, most): (&Batch, u32),
    lease: &mut Lease,
) -> Concluded {
    let tries = Tries::of(batch.len(), &examined.deliveries, most);
    let ends = match run(engine, source, received, examined, (batch, tries), lease).await {
        Ok(ends) => ends,
        Err(end) => return conclude(engine, source, received, examined, end, lease).await,
    };
    let ended = engine.now();
    noticed(engine, source, ends.iter().map(|end| &end.end));
    let situation = situation(engine, received, examined, ends.iter().map(|end| &end.end));
    let mut decision = BatchDecision::of(&ends, tries, &situation, &engine.limits());
    let end = decision.telling(&ends);
    let LeaseOutcome::Finished(not_put) = poison(engine, source, received, examined, (batch, &decision), lease).await else {
        let jobs = Some(decision.jobs(batch));
        return Concluded { end, ended, settlement: Settlement::Abandon, settled: SettleOutcome::Lost, jobs };
    };
    decision.come_again(&not_put, engine.limits().retry_delay.wait(received.message.dequeue_count, situation.unit));
    let settlement = decision.settlement(batch);
    let settled = settle(engine, source, lease, received.message, examined, &settlement).await;
    let settled = match decision.poisoned.first() {
        Some((_, verdict)) if settled == SettleOutcome::Deleted => SettleOutcome::Poisoned(verdict.reason),
        _ => settled,
    };
    Concluded { end, ended, settlement, settled, jobs: Some(decision.jobs(batch)) }
}

/// Runs jobs of a batch under the lease of its message: their ends, the first jobs of the batch; or the end of the whole.
async fn run(
    engine: &Core,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (batch, tries): (&Batch, Tries),
    lease: &mut Lease,
) -> Result<Vec<JobEnd>, End> {
    if let Tries::UsedUp(runs) = tries {
        return Ok(vec![JobEnd { at: 0, end: End::Exhausted(runs) }]);
    }
    note(engine, lease, &examined.deliveries).await?;
    let until = engine.now() + engine.settings.job_timeout / 2;
    let confirmation = lease.confirmation();
    let jobs = async {
        let may_begin = |_: &usize| engine.now() < until && !engine.stop.receiving.is_cancelled();
        let begun = stream::iter((0..tries.jobs(batch.len())).take_while(may_begin));
        let running = begun.map(|at| run_one(engine, source, received, examined, (batch, at), &confirmation));
        running.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await
    };
    held(lease.hold(jobs).await)
}

async fn run_one(
    engine: &Core,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (batch, at): (&Batch, usize),
    confirmation: &Confirmation,
) -> JobEnd {
    let _begun = source.slots.job_of_a_batch().await;
    let envelope = match batch.job(at) {
        Ok(envelope) => envelope,
        Err(error) => {
            let rejection = Rejection { reason: Reason::Permanent, step: STEP, error: cause::chain(&error) };
            return JobEnd { at, end: End::Rejected(rejection) };
        }
    };
    let work = Work::Job(envelope.job);
    let assignment =
        Assignment { message: received.message, work: &work, digest: envelope.digest.as_ref(), deliveries: &examined.deliveries };
    let end = match turn(engine, source, &assignment, confirmation).await {
        Ok(lead) => execute(engine, source, &assignment, lead).await,
        Err(end) => end,
    };
    JobEnd { at, end }
}

/// Puts a poison message for each job that comes to nothing: those of which none could be put.
async fn poison(
    engine: &Core,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (batch, decision): (&Batch, &BatchDecision),
    lease: &mut Lease,
) -> LeaseOutcome<Vec<usize>> {
    let mut not_put = Vec::new();
    for (at, verdict) in &decision.poisoned {
        if planted(Bug::FailedJobOfABatchNotPoisoned) {
            break;
        }
        match lease.hold(put_poison_of(engine, source, received.message, examined, (batch, *at), verdict)).await {
            LeaseOutcome::Finished(true) => {}
            LeaseOutcome::Finished(false) | LeaseOutcome::Over => not_put.push(*at),
            LeaseOutcome::Lost => return LeaseOutcome::Lost,
        }
    }
    LeaseOutcome::Finished(not_put)
}
