//! One delivery of a batch: a job for each of many primaries, side by side, each with a turn and an end of its own.
//!
//! ```text
//!   batch ──▶ the first of its jobs ──▶ turn ▸ run, each ──▶ decide, each ──▶ poison messages of single jobs
//!     ▲        (all, or fewer after       100 at once                                │
//!     │         a run that never ended)                                              ▼
//!     └──────────── the message with the jobs that are left ◀──── none left? ── delete
//! ```
//!
//! No job waits for its turn with another's in its hands, so that batches with common primaries cannot wait for each other. How jobs run
//! is no different from a single job (`running`); how their message is settled is.
//!
//! A job that takes the process down would take its batch to the poison queue. So after a run that never ended half of the jobs are run, then
//! a quarter, until one is alone; that one alone is given up, and the others go on as a whole. How many are run at once is noted in the
//! message while it is less than all.

mod decide;

use super::decide::{End, Interruption, Settlement, UNSEEN};
use super::deliver::Concluded;
use super::delivery::{DeliveryFacts, OpenDelivery};
use super::examine::sample;
use super::keys::EndedKeys;
use super::lease::LeaseOutcome;
use super::settle::SettleOutcome;
use evenkeel_model::job::Batch;

use self::decide::BatchDecision;
pub(super) use self::decide::{JobEnd, PoisonedJob, Tries};

/// Settles the message of a batch by the ends of the jobs that were begun, its first ones; or by the end of the whole.
pub(super) async fn settle(
    delivery: &mut OpenDelivery<'_>,
    batch: &Batch,
    tries: Tries,
    ran: Result<Vec<JobEnd>, End>,
) -> Concluded {
    let facts = delivery.facts;
    let DeliveryFacts { context, .. } = facts;
    let mut ends = match ran {
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

impl DeliveryFacts<'_> {
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

/// Puts a poison message for each job that comes to nothing: those of which none could be put.
async fn poison(
    delivery: &mut OpenDelivery<'_>,
    batch: &Batch,
    poisoned: &[PoisonedJob],
) -> LeaseOutcome<Vec<usize>> {
    let OpenDelivery { facts, lease } = delivery;
    let mut not_put = Vec::new();
    for PoisonedJob { at, verdict } in poisoned {
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
