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
//!
//! A list in a blob is worked on in windows of lines: each delivery reads one, and it is a batch as any other. The rest of it and the
//! place of the next one are in the message afterwards.

mod decide;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};

use super::context::RunContext;
use super::decide::{End, Interruption, PoisonVerdict, Ran, Rejection, Settlement, UNSEEN, unless_it_expires};
use super::deliver::{Concluded, Incoming, conclude, is_throttled, noticed, situation};
use super::examine::{Assigned, Examined, STEP, piece, sample};
use super::keys::EndedKeys;
use super::lease::{Confirmation, Lease, LeaseOutcome};
use super::observer::CHANGES;
use super::poison::Reason;
use super::running::{Assignment, alone, execute, held, note, turn};
use super::settle::{SettleOutcome, put_poison_of, settle};
use super::source::Intake;
use crate::model::cause;
use crate::model::job::{BATCH_KEYS, Batch, ListedBatch};
use crate::planted::{Bug, planted};
use crate::ports::Message;
use crate::reconcile::{CursorSeal, ListWindow, Outcome, Summary};

pub(super) use self::decide::JobEnd;
use self::decide::{BatchDecision, Tries};

/// Jobs of one batch that run at once: as many rows as an entity group transaction has.
const AT_ONCE: usize = 100;

/// The jobs of one delivery.
struct Jobs<'a> {
    batch: &'a Batch,
    /// The message as the jobs see it: its dequeue count is theirs.
    message: &'a Message,
    /// Seals the place in the list that they come from.
    seal: Option<&'a CursorSeal>,
    /// The message with these jobs as its work: they are given up where it is poisoned as a whole.
    whole: &'a Examined,
}

/// Works on a batch, of which a job may take the process down so many times, and settles its message.
pub(super) async fn work_on(
    context: &RunContext,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (batch, most): (&Batch, u32),
    lease: &mut Lease,
) -> Concluded {
    let jobs = Jobs { batch, message: received.message, seal: None, whole: examined };
    work_on_jobs(context, source, received, examined, (&jobs, most), lease).await
}

/// The same of the next jobs of a list in a blob. The list goes with its last job.
pub(super) async fn work_on_list(
    context: &RunContext,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (list, most): (&ListedBatch, u32),
    lease: &mut Lease,
) -> Concluded {
    let window = match next_window(context, source, received, examined, (list, most), lease).await {
        Ok(window) => window,
        Err(end) => return conclude(context, source, received, examined, end, lease).await,
    };
    if let Some(fields) = window.checked {
        let checked = Ran::Finished(Outcome::Advanced { fields, summary: Summary::default() });
        return conclude(context, source, received, examined, End::Ran(Arc::new(checked)), lease).await;
    }
    let whole = window.batch.map(|batch| Examined { work: Ok(Assigned::Many(batch)), ..examined.clone() });
    let concluded = if let Some(whole) = &whole
        && let Ok(Assigned::Many(batch)) = &whole.work
    {
        let message = Message { dequeue_count: window.dequeue_count, ..received.message.clone() };
        let jobs = Jobs { batch, message: &message, seal: Some(&window.seal), whole };
        work_on_jobs(context, source, received, examined, (&jobs, most), lease).await
    } else {
        let nothing = Ran::Finished(Outcome::Done(Summary::default()));
        conclude(context, source, received, examined, End::Ran(Arc::new(nothing)), lease).await
    };
    let is_gone = matches!(concluded.settled, SettleOutcome::Deleted | SettleOutcome::Poisoned(_));
    if is_gone
        && !lease.is_presumed_gone()
        && matches!(concluded.settlement, Settlement::Delete)
        && let Err(failure) = context.execute.forget(list, &window.version).await
    {
        tracing::warn!(error = failure.chain(), "list of primaries: not deleted; its jobs have ended");
    }
    concluded
}

async fn next_window(
    context: &RunContext,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (list, most): (&ListedBatch, u32),
    lease: &mut Lease,
) -> Result<ListWindow, End> {
    let deliveries = &examined.deliveries;
    // More than the jobs of a window use up, and as many more as the worker's own mishaps may: the list itself takes the process down.
    if deliveries.are_exhausted(2 * most + usize::BITS - BATCH_KEYS.leading_zeros() + 1) {
        return Err(End::Exhausted(deliveries.attempts().saturating_sub(1)));
    }
    alone(context, source, lease, deliveries).await?;
    note(context, lease, deliveries).await?;
    let delivery = source.delivery(received.message, None);
    let read = async {
        tokio::select! {
            biased;
            () = context.stop.runs.cancelled() => Err(End::Interrupted(Interruption::Drain)),
            read = AssertUnwindSafe(context.execute.window(list, &delivery)).catch_unwind() => match read {
                Ok(Ok(window)) => Ok(window),
                Ok(Err(failure)) => Err(End::Ran(Arc::new(Ran::Failed(Arc::new(failure), Summary::default())))),
                Err(payload) => Err(End::Panicked(cause::panic(&*payload))),
            },
        }
    };
    held(lease.hold(read).await)?
}

async fn work_on_jobs(
    context: &RunContext,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (jobs, most): (&Jobs<'_>, u32),
    lease: &mut Lease,
) -> Concluded {
    let batch = jobs.batch;
    let tries = Tries::of(batch.len(), &examined.deliveries, most);
    let mut ends = match run(context, source, examined, (jobs, tries), lease).await {
        Ok(ends) => ends,
        Err(end) => {
            let concluded = conclude(context, source, received, jobs.whole, end, lease).await;
            return Concluded { keys: keys(context, source, batch, (&[], &[]), concluded.settled), ..concluded };
        }
    };
    let ended = context.now();
    noticed(context, source, ends.iter().map(|end| &end.end));
    let situation = situation(context, received, examined, ends.iter().map(|end| &end.end));
    // Jobs not begun end as well, each with a poison message, where no worker would see them again.
    if !batch.is_of_a_list() && situation.expires_within(UNSEEN) {
        ends.extend((ends.len()..batch.len()).map(|at| JobEnd { at, end: End::Interrupted(Interruption::Drain) }));
    }
    let mut decision = BatchDecision::of(&ends, tries, &situation, &context.limits());
    let end = decision.telling(batch, &ends);
    let LeaseOutcome::Finished(not_put) = poison(context, source, received, examined, (batch, &decision), lease).await else {
        let jobs = Some(decision.jobs(batch));
        let settled = SettleOutcome::Lost;
        let keys = keys(context, source, batch, (&ends, &[]), settled);
        return Concluded { end, ended, settlement: Settlement::Abandon, settled, jobs, keys };
    };
    decision.come_again(&not_put, context.limits().retry_delay.wait(received.message.dequeue_count, situation.unit));
    let mut settlement = decision.settlement(batch);
    // Its lines may be millions: they go to the poison queue as the one message that names them.
    if batch.is_of_a_list() {
        settlement = unless_it_expires(settlement, &end, &situation);
    }
    if let (Settlement::Advance(progress), Some(seal)) = (&mut settlement, jobs.seal) {
        seal.seal(&mut progress.fields);
    }
    decision.report(batch, &ends, &settlement);
    // Of jobs not begun an earlier delivery may have sent requests. Each that failed has been given up with its own poison message.
    let may_be_under_way = jobs.message.dequeue_count > 1 && ends.len() < batch.len();
    let examined = if may_be_under_way { jobs.whole } else { examined };
    let settled = settle(context, source, lease, received.message, examined, &settlement).await;
    let settled = match decision.poisoned.first() {
        Some((_, verdict)) if settled == SettleOutcome::Deleted => SettleOutcome::Poisoned(verdict.reason),
        _ => settled,
    };
    let keys = keys(context, source, batch, (&ends, &decision.poisoned), settled);
    let mut jobs = decision.jobs(batch);
    if matches!((&settlement, settled), (Settlement::Poison(_), SettleOutcome::Poisoned(_))) {
        jobs.poisoned += std::mem::take(&mut jobs.left).max(1);
    }
    Concluded { end, ended, settlement, settled, jobs: Some(jobs), keys }
}

/// The keys of a batch as an observer is told of them, if there is one.
fn keys(
    context: &RunContext,
    source: &Intake,
    batch: &Batch,
    (ends, poisoned): (&[JobEnd], &[(usize, PoisonVerdict)]),
    settled: SettleOutcome,
) -> EndedKeys {
    if context.observer.is_none() {
        return EndedKeys::default();
    }
    // Of one table are all, whichever field or archive names it.
    let any = sample(batch, source.carries).ok();
    let table = any.and_then(|work| context.key(&work)).map(|primary| primary.table);
    EndedKeys::of(batch, table, ends, poisoned, settled)
}

/// Runs jobs of a batch under the lease of its message: their ends, the first jobs of the batch; or the end of the whole.
async fn run(
    context: &RunContext,
    source: &Intake,
    examined: &Examined,
    (jobs, tries): (&Jobs<'_>, Tries),
    lease: &mut Lease,
) -> Result<Vec<JobEnd>, End> {
    if let Tries::UsedUp(runs) = tries {
        return Ok(vec![JobEnd { at: 0, end: End::Exhausted(runs) }]);
    }
    // That of a list is noted before the list is read.
    if jobs.seal.is_none() {
        alone(context, source, lease, &examined.deliveries).await?;
        note(context, lease, &examined.deliveries).await?;
    }
    let until = context.now() + context.settings.job_timeout / 2;
    let confirmation = &lease.confirmation();
    let ends = async {
        let may_begin = |_: &usize| context.now() < until && !context.stop.receiving.is_cancelled();
        let begun = stream::iter((0..tries.jobs(jobs.batch.len())).take_while(may_begin));
        let running = begun.map(|at| async move {
            let _slot = source.of_batches.one().await;
            // Thousands of jobs may wait for a slot: each takes the memory of its run with its slot.
            Box::pin(run_one(context, source, examined, (jobs, at), confirmation)).await
        });
        running.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await
    };
    held(lease.hold(ends).await)
}

async fn run_one(
    context: &RunContext,
    source: &Intake,
    examined: &Examined,
    (jobs, at): (&Jobs<'_>, usize),
    confirmation: &Confirmation,
) -> JobEnd {
    // A batch of which no job can be decoded would else be one step for the runtime.
    tokio::task::consume_budget().await;
    let (work, digest) = match piece(jobs.batch, at, source.carries) {
        Ok(piece) => piece,
        Err(error) => return JobEnd { at, end: End::Rejected(Rejection { reason: Reason::Permanent, step: STEP, error }) },
    };
    let assignment = Assignment { message: jobs.message, work: &work, digest: digest.as_ref(), deliveries: &examined.deliveries };
    let end = match turn(context, source, &assignment, confirmation).await {
        Ok(lead) => execute(context, source, &assignment, lead).await,
        Err(end) => end,
    };
    source.of_batches.ended(is_throttled(&end));
    JobEnd { at, end: shortened(end, (CHANGES / jobs.batch.len()).max(1)) }
}

/// The end of a job as it is kept until the message is settled: with as many changes as an observer is told of. Metrics have had all.
fn shortened(end: End, most: usize) -> End {
    let Some(ran) = end.ran().filter(|ran| ran.summary().changes.len() > most) else { return end };
    let mut ran = ran.clone();
    ran.summary_mut().shorten(most);
    End::Ran(Arc::new(ran))
}

/// Puts a poison message for each job that comes to nothing: those of which none could be put.
async fn poison(
    context: &RunContext,
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
        match lease.hold_past_expiry(put_poison_of(context, source, received.message, examined, (batch, *at), verdict)).await {
            LeaseOutcome::Finished(true) => {}
            LeaseOutcome::Finished(false) | LeaseOutcome::Over => not_put.push(*at),
            LeaseOutcome::Lost => return LeaseOutcome::Lost,
        }
    }
    LeaseOutcome::Finished(not_put)
}
