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

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};

use super::context::RunContext;
use super::decide::{End, Interruption, PoisonVerdict, Rejection, Settlement, UNSEEN};
use super::deliver::{Concluded, Incoming, conclude, is_throttled, noticed, situation};
use super::examine::{Examined, STEP, piece, sample};
use super::keys::EndedKeys;
use super::lease::{Confirmation, Lease, LeaseOutcome};
use super::observer::CHANGES;
use super::poison::Reason;
use super::running::{Assignment, alone, execute, held, note, turn};
use super::settle::{SettleOutcome, put_poison_of, settle};
use super::source::Intake;
use evenkeel_model::job::Batch;
use evenkeel_model::planted::{Bug, planted};

pub(super) use self::decide::JobEnd;
use self::decide::{BatchDecision, Tries};

/// Jobs of one batch that run at once: as many rows as an entity group transaction has.
const AT_ONCE: usize = 100;

/// Works on a batch, of which a job may take the process down so many times, and settles its message.
pub(super) async fn work_on(
    context: &RunContext,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (batch, most): (&Batch, u32),
    lease: &mut Lease,
) -> Concluded {
    let tries = Tries::of(batch.len(), &examined.deliveries, most);
    let mut ends = match run(context, source, received, examined, (batch, tries), lease).await {
        Ok(ends) => ends,
        Err(end) => {
            let concluded = conclude(context, source, received, examined, end, lease).await;
            return Concluded {
                keys: keys(context, source, batch, (&[], &[]), concluded.settled),
                ..concluded
            };
        }
    };
    let ended = context.now();
    noticed(context, source, ends.iter().map(|end| &end.end));
    let situation = situation(context, received, examined, ends.iter().map(|end| &end.end));
    // Jobs not begun end as well, each with a poison message, where no worker would see them again.
    if situation.expires_within(UNSEEN) {
        ends.extend((ends.len()..batch.len()).map(|at| JobEnd {
            at,
            end: End::Interrupted(Interruption::Drain),
        }));
    }
    let mut decision = BatchDecision::of(&ends, tries, &situation, &context.limits());
    let end = decision.telling(&ends);
    let LeaseOutcome::Finished(not_put) = poison(
        context,
        source,
        received,
        examined,
        (batch, &decision),
        lease,
    )
    .await
    else {
        let jobs = Some(decision.jobs(batch));
        let settled = SettleOutcome::Lost;
        let keys = keys(context, source, batch, (&ends, &[]), settled);
        return Concluded {
            end,
            ended,
            settlement: Settlement::Abandon,
            settled,
            jobs,
            keys,
        };
    };
    decision.come_again(
        &not_put,
        context
            .limits()
            .retry_delay
            .wait(received.message.dequeue_count, situation.unit),
    );
    let settlement = decision.settlement(batch);
    decision.report(batch, &ends, &settlement);
    let settled = settle(
        context,
        source,
        lease,
        received.message,
        examined,
        &settlement,
    )
    .await;
    let settled = match decision.poisoned.first() {
        Some((_, verdict)) if settled == SettleOutcome::Deleted => {
            SettleOutcome::Poisoned(verdict.reason)
        }
        _ => settled,
    };
    let keys = keys(context, source, batch, (&ends, &decision.poisoned), settled);
    Concluded {
        end,
        ended,
        settlement,
        settled,
        jobs: Some(decision.jobs(batch)),
        keys,
    }
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
    let table = any
        .and_then(|work| context.key(&work))
        .map(|primary| primary.table);
    EndedKeys::of(batch, table, ends, poisoned, settled)
}

/// Runs jobs of a batch under the lease of its message: their ends, the first jobs of the batch; or the end of the whole.
async fn run(
    context: &RunContext,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (batch, tries): (&Batch, Tries),
    lease: &mut Lease,
) -> Result<Vec<JobEnd>, End> {
    if let Tries::UsedUp(runs) = tries {
        return Ok(vec![JobEnd {
            at: 0,
            end: End::Exhausted(runs),
        }]);
    }
    alone(context, source, lease, &examined.deliveries).await?;
    note(context, lease, &examined.deliveries).await?;
    let until = context.now() + context.settings.job_timeout / 2;
    let confirmation = &lease.confirmation();
    let ends = async {
        let may_begin = |_: &usize| context.now() < until && !context.stop.receiving.is_cancelled();
        let begun = stream::iter((0..tries.jobs(batch.len())).take_while(may_begin));
        let running = begun.map(|at| async move {
            let _slot = source.of_batches.one().await;
            // Thousands of jobs may wait for a slot: each takes the memory of its run with its slot.
            Box::pin(run_one(
                context,
                source,
                received,
                examined,
                (batch, at),
                confirmation,
            ))
            .await
        });
        running.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await
    };
    held(lease.hold(ends).await)
}

async fn run_one(
    context: &RunContext,
    source: &Intake,
    received: &Incoming<'_>,
    examined: &Examined,
    (batch, at): (&Batch, usize),
    confirmation: &Confirmation,
) -> JobEnd {
    // A batch of which no job can be decoded would else be one step for the runtime.
    tokio::task::consume_budget().await;
    let (work, digest) = match piece(batch, at, source.carries) {
        Ok(piece) => piece,
        Err(error) => {
            return JobEnd {
                at,
                end: End::Rejected(Rejection {
                    reason: Reason::Permanent,
                    step: STEP,
                    error,
                }),
            };
        }
    };
    let assignment = Assignment {
        message: received.message,
        work: &work,
        digest: digest.as_ref(),
        deliveries: &examined.deliveries,
    };
    let end = match turn(context, source, &assignment, confirmation).await {
        Ok(lead) => execute(context, source, &assignment, lead).await,
        Err(end) => end,
    };
    source.of_batches.ended(is_throttled(&end));
    JobEnd {
        at,
        end: shortened(end, (CHANGES / batch.len()).max(1)),
    }
}

/// The end of a job as it is kept until the message is settled: with as many changes as an observer is told of. Metrics have had all.
fn shortened(end: End, most: usize) -> End {
    let Some(ran) = end.ran().filter(|ran| ran.summary().changes.len() > most) else {
        return end;
    };
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
        match lease
            .hold_past_expiry(put_poison_of(
                context,
                source,
                received.message,
                examined,
                (batch, *at),
                verdict,
            ))
            .await
        {
            LeaseOutcome::Finished(true) => {}
            LeaseOutcome::Finished(false) | LeaseOutcome::Over => not_put.push(*at),
            LeaseOutcome::Lost => return LeaseOutcome::Lost,
        }
    }
    LeaseOutcome::Finished(not_put)
}
