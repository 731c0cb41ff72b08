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

use super::decide::{End, Interruption, Rejection, Settlement, UNSEEN};
use super::deliver::Concluded;
use super::delivery::{DeliveryFacts, OpenDelivery, is_throttled};
use super::examine::{STEP, piece, sample};
use super::keys::EndedKeys;
use super::lease::{Confirmation, LeaseOutcome};
use super::observer::CHANGES;
use super::poison::Reason;
use super::running::{Assignment, held};
use super::settle::SettleOutcome;
use evenkeel_model::job::Batch;
use evenkeel_model::planted::{Bug, planted};

use self::decide::{BatchDecision, Tries};
pub(super) use self::decide::{JobEnd, PoisonedJob};

/// Jobs of one batch that run at once: as many rows as an entity group transaction has.
const AT_ONCE: usize = 100;

/// Works on a batch, of which a job may take the process down so many times, and settles its message.
pub(super) async fn work_on(
    delivery: &mut OpenDelivery<'_>,
    batch: &Batch,
    most: u32,
) -> Concluded {
    let facts = delivery.facts;
    let DeliveryFacts { context, .. } = facts;
    let tries = Tries::of(batch.len(), &facts.examined.deliveries, most);
    let mut ends = match run(delivery, batch, tries).await {
        Ok(ends) => ends,
        Err(end) => {
            let concluded = delivery.conclude(end).await;
            return Concluded {
                keys: facts.keys(batch, &[], &[], concluded.settled),
                ..concluded
            };
        }
    };
    let ended = context.now();
    facts.notice(ends.iter().map(|end| &end.end));
    let situation = facts.situation(ends.iter().map(|end| &end.end));
    // Jobs not begun end as well, each with a poison message, if no worker would see them again.
    if situation.expires_within(UNSEEN) {
        ends.extend((ends.len()..batch.len()).map(|at| JobEnd {
            at,
            end: End::Interrupted(Interruption::Drain),
        }));
    }
    let mut decision = BatchDecision::of(&ends, tries, &situation, &context.limits());
    let end = decision.telling(&ends);
    let LeaseOutcome::Finished(not_put) = poison(delivery, batch, &decision.poisoned).await else {
        let settled = SettleOutcome::Lost;
        return Concluded {
            end,
            ended,
            settlement: Settlement::Abandon,
            settled,
            jobs: Some(decision.jobs(batch)),
            keys: facts.keys(batch, &ends, &[], settled),
        };
    };
    let delay = context
        .limits()
        .retry_delay
        .wait(facts.message.dequeue_count, situation.unit);
    decision.come_again(&not_put, delay);
    let settlement = decision.settlement(batch);
    decision.report(batch, &ends, &settlement);
    let settled = match (
        delivery.settle(&settlement).await,
        decision.poisoned.first(),
    ) {
        (SettleOutcome::Deleted, Some(job)) => SettleOutcome::Poisoned(job.verdict.reason),
        (settled, _) => settled,
    };
    Concluded {
        end,
        ended,
        settlement,
        settled,
        jobs: Some(decision.jobs(batch)),
        keys: facts.keys(batch, &ends, &decision.poisoned, settled),
    }
}

/// Runs jobs of a batch under the lease of its message: their ends, the first jobs of the batch; or the end of the whole.
async fn run(
    delivery: &mut OpenDelivery<'_>,
    batch: &Batch,
    tries: Tries,
) -> Result<Vec<JobEnd>, End> {
    if let Tries::UsedUp(runs) = tries {
        return Ok(vec![JobEnd {
            at: 0,
            end: End::Exhausted(runs),
        }]);
    }
    delivery.alone().await?;
    delivery.note().await?;
    let facts = &delivery.facts;
    let DeliveryFacts {
        context, source, ..
    } = *facts;
    let until = context.now() + context.settings.job_timeout / 2;
    let confirmation = &delivery.lease.confirmation();
    let ends = async {
        let may_begin = |_: &usize| context.now() < until && !context.stop.receiving.is_cancelled();
        let begun = stream::iter((0..tries.jobs(batch.len())).take_while(may_begin));
        let running = begun.map(|at| async move {
            let _slot = source.of_batches.one().await;
            // Thousands of jobs may wait for a slot: each takes the memory of its run with its slot.
            Box::pin(facts.run_one(batch, at, confirmation)).await
        });
        running.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await
    };
    held(delivery.lease.hold(ends).await)
}

impl DeliveryFacts<'_> {
    async fn run_one(&self, batch: &Batch, at: usize, confirmation: &Confirmation) -> JobEnd {
        // A batch of which no job can be decoded would else be one step for the runtime.
        tokio::task::consume_budget().await;
        let (work, digest) = match piece(batch, at, self.source.carries) {
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
            work: &work,
            digest: digest.as_ref(),
        };
        let end = match self.turn(&assignment, confirmation).await {
            Ok(lead) => self.execute(&assignment, lead).await,
            Err(end) => end,
        };
        self.source.of_batches.ended(is_throttled(&end));
        JobEnd {
            at,
            end: shortened(end, (CHANGES / batch.len()).max(1)),
        }
    }

    /// The keys of a batch as an observer is told of them, if there is one.
    fn keys(
        &self,
        batch: &Batch,
        ends: &[JobEnd],
        poisoned: &[PoisonedJob],
        settled: SettleOutcome,
    ) -> EndedKeys {
        if self.context.observer.is_none() {
            return EndedKeys::default();
        }
        // All jobs of a batch are of one table, whichever field or archive names it.
        let any = sample(batch, self.source.carries).ok();
        let table = any
            .and_then(|work| self.context.key(&work))
            .map(|primary| primary.table);
        EndedKeys::of(batch, table, ends, poisoned, settled)
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
    delivery: &mut OpenDelivery<'_>,
    batch: &Batch,
    poisoned: &[PoisonedJob],
) -> LeaseOutcome<Vec<usize>> {
    let OpenDelivery { facts, lease } = delivery;
    let mut not_put = Vec::new();
    for PoisonedJob { at, verdict } in poisoned {
        if planted(Bug::FailedJobOfABatchNotPoisoned) {
            break;
        }
        match lease
            .hold_past_expiry(facts.put_poison_of(batch, *at, verdict))
            .await
        {
            LeaseOutcome::Finished(true) => {}
            LeaseOutcome::Finished(false) | LeaseOutcome::Over => not_put.push(*at),
            LeaseOutcome::Lost => return LeaseOutcome::Lost,
        }
    }
    LeaseOutcome::Finished(not_put)
}
