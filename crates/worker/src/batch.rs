//! Handles one delivery of a batch, which is a message with a job for each of many primaries. The
//! jobs run concurrently, and each has its own key and outcome.
//!
//! ```text
//!   batch ──▶ the first of its jobs ──▶ key ▸ run ──▶ decide ──▶ poison messages of single jobs
//!     ▲        (all, or fewer after      100 at once                       │
//!     │         a run was cut off)                                         ▼
//!     └──────── the message with the remaining jobs ◀──── none left? ── delete
//! ```
//!
//! No job waits for its key while it holds another key, so batches with common primaries cannot
//! deadlock. A job runs in the same way as a single one (`job_runs`); only the settlement of the
//! message differs.
//!
//! A job that crashes the process must not take its whole batch to the poison queue. So after a run
//! that was cut off, the next delivery runs half of the jobs, then a quarter, until a single job runs
//! alone. If that job still crashes, it is given up, and all other jobs continue together. While a
//! delivery may not run all jobs, the message records how many it may run.

mod decide;

use super::decide::{Interruption, RunOutcome, Settlement, UNSEEN};
use super::decode::sample_work;
use super::deliver::Completion;
use super::delivery::{DeliveryFacts, OpenDelivery};
use super::key_outcomes::KeyOutcomes;
use super::lease::LeaseOutcome;
use super::settle::SettleOutcome;
use evenkeel_model::job::Batch;

use self::decide::BatchDecision;
pub(super) use self::decide::{JobOutcome, PoisonedJob, RunLimit};

pub(super) async fn settle(
    delivery: &mut OpenDelivery<'_>,
    batch: &Batch,
    run_limit: RunLimit,
    ran: Result<Vec<JobOutcome>, RunOutcome>,
) -> Completion {
    let facts = delivery.facts;
    let DeliveryFacts { context, .. } = facts;
    let mut ends = match ran {
        Ok(ends) => ends,
        Err(end) => {
            let concluded = delivery.conclude(end).await;
            return Completion {
                keys: facts.keys(batch, &[], &[], concluded.settled),
                ..concluded
            };
        }
    };
    let ended = context.now();
    facts.record_obstacles(ends.iter().map(|end| &end.end));
    let input = facts.input(ends.iter().map(|end| &end.end));
    // If no worker would see the message again before it expires, the jobs that were not started
    // are poisoned too.
    if input.expires_within(UNSEEN) {
        ends.extend((ends.len()..batch.len()).map(|at| JobOutcome {
            at,
            end: RunOutcome::Interrupted(Interruption::NotStarted),
        }));
    }
    let mut decision = BatchDecision::of(&ends, run_limit, &input, &context.limits());
    let end = decision.overall_outcome(&ends);
    let LeaseOutcome::Finished(not_put) = poison(delivery, batch, &decision.poisoned).await else {
        let settled = SettleOutcome::Lost;
        return Completion {
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
        .wait(facts.message.dequeue_count, input.unit);
    decision.retry_unpoisoned(&not_put, delay);
    let settlement = decision.settlement(batch);
    decision.report(batch, &ends, &settlement);
    let settled = match (
        delivery.settle(&settlement).await,
        decision.poisoned.first(),
    ) {
        (SettleOutcome::Deleted, Some(job)) => SettleOutcome::Poisoned(job.verdict.reason),
        (settled, _) => settled,
    };
    Completion {
        end,
        ended,
        settlement,
        settled,
        jobs: Some(decision.jobs(batch)),
        keys: facts.keys(batch, &ends, &decision.poisoned, settled),
    }
}

impl DeliveryFacts<'_> {
    fn keys(
        &self,
        batch: &Batch,
        ends: &[JobOutcome],
        poisoned: &[PoisonedJob],
        settled: SettleOutcome,
    ) -> KeyOutcomes {
        if self.context.observer.is_none() {
            return KeyOutcomes::default();
        }
        // All jobs of a batch target the same table.
        let any = sample_work(batch, self.consumer.kind).ok();
        let table = any
            .and_then(|work| self.context.key(&work))
            .map(|primary| primary.table);
        KeyOutcomes::of(batch, table, ends, poisoned, settled)
    }
}

/// Puts a poison message for each failed job. Returns the jobs whose poison message could not be
/// put.
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
            LeaseOutcome::Finished(false) | LeaseOutcome::Expired => not_put.push(*at),
            LeaseOutcome::Lost => return LeaseOutcome::Lost,
        }
    }
    LeaseOutcome::Finished(not_put)
}
