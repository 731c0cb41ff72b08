//! Runs the jobs of one delivery: waits for their keys, records that a run begins, and applies the
//! time limit. A single job is a batch of one.
//!
//! ```text
//!   message   may it crash the process? ── yes ──▶ quarantine
//!               │                                    │
//!   each job  key ── coalesced into another run ───────────────────────▶ end
//!               │
//!   message     └─ the first job that has its key ──▶ is an earlier delivery unaccounted for?
//!                                                        │ no                      │ yes
//!                                                        │ (recorded by            ▼
//!                                                        │  its first renewal)   record
//!   each job                                            run ◀──────────────────────┘
//! ```
//!
//! The message records its runs when the first of its jobs has its key, so a crash while all jobs
//! wait costs no attempt.
//!
//! A job other than `sync` that has waited for its key begins only after the lease was confirmed
//! again, because another worker may have done the job meanwhile. A `sync` may run at any time.
//!
//! `job_timeout` limits the run's own time. The wait for the key and waits for other runs in this
//! process do not count.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};
use tokio::time::sleep;

use super::batch::{JobOutcome, RunLimit};
use super::decide::{Interruption, Rejection, RunOutcome, RunResult};
use super::decode::{Assignment, Payload, STEP};
use super::delivery::{DeliveryFacts, OpenDelivery, is_throttled};
use super::job_metrics;
use super::keyed_queue::{KeyGuard, KeyTurn, QueuePosition};
use super::lease::{Confirmation, LeaseOutcome, NoteOutcome};
use super::observer::CHANGES;
use super::ordered_watch::OrderedWatch;
use super::poison::Reason;
use super::schedule::Coalescing;
use evenkeel_engine::{Summary, Waits, Work};
use evenkeel_model::cause;

/// Number of jobs of one message that run at once: the maximum number of rows of an entity group
/// transaction.
const AT_ONCE: usize = 100;

struct Start(OrderedWatch<StartPhase>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StartPhase {
    /// No job has its key yet.
    Waiting,
    /// A job has its key and waits until the run is recorded.
    Ready,
    Noted,
}

impl Start {
    const fn new() -> Self {
        Self(OrderedWatch::new(StartPhase::Waiting))
    }

    fn reach(&self, phase: StartPhase) {
        self.0.update(|now| {
            let further = phase > *now;
            *now = phase.max(*now);
            further
        });
    }

    async fn reached(&self, phase: StartPhase) {
        self.0.wait_until(|now| *now >= phase).await;
    }
}

impl OpenDelivery<'_> {
    /// Runs the first jobs of the message under its lease, each as soon as its key is free. Returns
    /// the outcome of each job, or one outcome for the whole message.
    pub(super) async fn run(
        &mut self,
        payload: &Payload,
        run_limit: RunLimit,
    ) -> Result<Vec<JobOutcome>, RunOutcome> {
        if let RunLimit::Exhausted(runs) = run_limit {
            return Ok(vec![JobOutcome {
                at: 0,
                end: RunOutcome::Exhausted(runs),
            }]);
        }
        // The quarantine is entered before any key is taken, because otherwise this message would
        // hold keys while it waits here.
        self.wait_in_quarantine().await?;
        let confirmation = &self.lease.confirmation();
        let (facts, start) = (self.facts, &Start::new());
        let DeliveryFacts { context, .. } = facts;
        let until = context.now() + context.settings.job_timeout / 2;
        let may_begin = |_: &usize| context.now() < until && !context.stop.receiving.is_cancelled();
        let begun = stream::iter((0..run_limit.jobs(payload.len())).take_while(may_begin));
        let facts = &facts;
        let running = begun.map(|at| facts.run_one(payload, at, start, confirmation));
        let mut running = pin!(running.buffer_unordered(AT_ONCE));
        let mut ends = Vec::new();
        let first_turn = async {
            loop {
                tokio::select! {
                    biased;
                    end = running.next() => match end {
                        Some(end) => ends.push(end),
                        None => return false,
                    },
                    () = start.reached(StartPhase::Ready) => return true,
                }
            }
        };
        if held(self.lease.hold(first_turn).await)? {
            self.note().await?;
            start.reach(StartPhase::Noted);
            let rest = async {
                while let Some(end) = running.next().await {
                    ends.push(end);
                }
            };
            held(self.lease.hold(rest).await)?;
        }
        Ok(ends)
    }
}

/// Keeps only as many changes of a job as an observer gets. The metrics have already counted all
/// changes.
fn shortened(end: RunOutcome, most: usize) -> RunOutcome {
    let Some(ran) = end.ran().filter(|ran| ran.summary().changes.len() > most) else {
        return end;
    };
    let mut ran = ran.clone();
    ran.summary_mut().shorten(most);
    RunOutcome::Returned(Arc::new(ran))
}

fn held<T>(hold: LeaseOutcome<T>) -> Result<T, RunOutcome> {
    match hold {
        LeaseOutcome::Finished(finished) => Ok(finished),
        LeaseOutcome::Lost => Err(RunOutcome::LeaseLost),
        LeaseOutcome::Expired => Err(RunOutcome::Interrupted(Interruption::LeaseExpired)),
    }
}

impl DeliveryFacts<'_> {
    async fn run_one(
        &self,
        payload: &Payload,
        at: usize,
        start: &Start,
        confirmation: &Confirmation,
    ) -> JobOutcome {
        // Thousands of jobs may wait for a slot, so the memory of a run is allocated only after its
        // slot was acquired.
        let end = match payload {
            Payload::Single(_) => Box::pin(self.run_job(payload, at, start, confirmation)).await,
            Payload::Batch(batch) => {
                let slots = &self.consumer.batch_slots;
                let _slot = slots.acquire().await;
                let end = Box::pin(self.run_job(payload, at, start, confirmation)).await;
                slots.ended(is_throttled(&end));
                shortened(end, (CHANGES / batch.len()).max(1))
            }
        };
        JobOutcome { at, end }
    }

    async fn run_job(
        &self,
        payload: &Payload,
        at: usize,
        start: &Start,
        confirmation: &Confirmation,
    ) -> RunOutcome {
        // Yields to the runtime now and then. Otherwise a batch whose jobs cannot be decoded would
        // run through without any await.
        tokio::task::consume_budget().await;
        let assignment = match payload.job(at, self.consumer.kind) {
            Ok(assignment) => assignment,
            Err(error) => {
                return RunOutcome::Rejected(Rejection {
                    reason: Reason::Permanent,
                    step: STEP,
                    error,
                });
            }
        };
        let guard = match self.acquire_key(&assignment.work, confirmation).await {
            Ok(guard) => guard,
            Err(end) => return end,
        };
        start.reach(StartPhase::Ready);
        start.reached(StartPhase::Noted).await;
        self.execute(&assignment, guard).await
    }

    /// Waits until the job has its key, or until the run into which the job was coalesced ends.
    async fn acquire_key(
        &self,
        work: &Work,
        confirmation: &Confirmation,
    ) -> Result<KeyGuard, RunOutcome> {
        let coalesces = if let Work::Job(job) = work {
            Some(job.operation().folds())
        } else {
            None
        };
        let coalescing = if coalesces == Some(true) {
            Coalescing::Allowed
        } else {
            Coalescing::Never
        };
        let guard = self.wait_for_key(work, coalescing).await?;
        if coalesces == Some(false) {
            tokio::select! {
                biased;
                () = confirmation.wait_recent() => {}
                () = self.context.stop.receiving.cancelled() => return Err(RunOutcome::Interrupted(Interruption::Drain)),
            }
        }
        Ok(guard)
    }

    async fn wait_for_key(
        &self,
        work: &Work,
        coalescing: Coalescing,
    ) -> Result<KeyGuard, RunOutcome> {
        let Self {
            context,
            consumer,
            message,
            ..
        } = self;
        if context.stop.receiving.is_cancelled() {
            return Err(RunOutcome::Interrupted(Interruption::Drain));
        }
        let Some(key) = context.key(work) else {
            return Ok(KeyGuard::unkeyed(message.dequeue_count));
        };
        match context.keyed_queue.arrive(
            key,
            coalescing,
            consumer.max_waiters(),
            message.dequeue_count,
        ) {
            QueuePosition::Acquired(guard) => Ok(guard),
            QueuePosition::QueueFull => Err(RunOutcome::Interrupted(Interruption::QueueFull)),
            QueuePosition::Waiting(receiver) => {
                let turn = tokio::select! {
                    biased;
                    () = context.stop.receiving.cancelled() => return Err(RunOutcome::Interrupted(Interruption::Drain)),
                    turn = receiver => turn,
                };
                match turn {
                    Ok(KeyTurn::Acquired(guard)) => Ok(guard),
                    Ok(KeyTurn::Coalesced(ran)) => {
                        job_metrics::coalesced(consumer);
                        Err(RunOutcome::Returned(ran))
                    }
                    // The run that held the key was cancelled without passing the key on.
                    Err(_) => Err(RunOutcome::Interrupted(Interruption::QueueFull)),
                }
            }
        }
    }

    async fn execute(&self, assignment: &Assignment<'_>, guard: KeyGuard) -> RunOutcome {
        let Self {
            context,
            consumer,
            message,
            ..
        } = self;
        // Requests of an earlier delivery of any of the coalesced jobs may still be under way, so
        // the highest dequeue count of these jobs applies.
        let delivery = evenkeel_engine::Delivery {
            dequeue_count: guard.dequeue_count(),
            ..consumer.delivery(message, assignment.digest.clone())
        };
        let limit = context.settings.job_timeout;
        let waits = Waits::new(Arc::clone(&context.clock));
        let ended = tokio::select! {
            biased;
            () = context.stop.runs.cancelled() => Err(RunOutcome::Interrupted(Interruption::Drain)),
            ran = waits.of(AssertUnwindSafe(context.execute.execute(&assignment.work, &delivery)).catch_unwind()) => {
                ran.map_err(|payload| RunOutcome::Panicked(cause::panic(&*payload)))
            }
            () = time_up(limit, &waits) => Err(RunOutcome::TimedOut(limit)),
        };
        let mut unreported = Summary {
            changes: waits.unreported(),
            ..Summary::default()
        };
        let ran = ended.map(|ended| match ended {
            Ok(mut outcome) => {
                outcome.summary_mut().add(std::mem::take(&mut unreported));
                RunResult::Finished(outcome)
            }
            Err(failure) => RunResult::Failed(Arc::new(failure), std::mem::take(&mut unreported)),
        });
        let summary = ran.as_ref().map_or(&unreported, RunResult::summary);
        context.items.changed(summary);
        if let Some(observer) = &context.observer
            && !summary.changes.is_empty()
        {
            observer.changed(&summary.changes);
            summary
                .found_after
                .into_iter()
                .for_each(|after| observer.found(after));
        }
        match ran.map(Arc::new) {
            Ok(ran) => {
                guard.finish(&ran);
                RunOutcome::Returned(ran)
            }
            Err(end) => end,
        }
    }
}

impl OpenDelivery<'_> {
    /// If this message may be crashing the process, waits until no other such message runs.
    async fn wait_in_quarantine(&mut self) -> Result<(), RunOutcome> {
        let DeliveryFacts {
            context,
            consumer,
            decoded,
            ..
        } = self.facts;
        let (deliveries, lease) = (&decoded.deliveries, &mut self.lease);
        if deliveries.is_crash_suspect(context.limits().max_dequeue_count) {
            let permit = held(
                lease
                    .hold(
                        context
                            .quarantine
                            .enter(consumer.max_waiters(), &context.stop.receiving),
                    )
                    .await,
            )??;
            lease.keep_quarantine_permit(permit);
        }
        Ok(())
    }

    /// Records in the message that a run begins. If no earlier run can have been cut off, the first
    /// renewal records it at no cost. Otherwise a separate request records it before the run.
    async fn note(&mut self) -> Result<(), RunOutcome> {
        let DeliveryFacts {
            context, decoded, ..
        } = self.facts;
        let (deliveries, lease) = (&decoded.deliveries, &mut self.lease);
        if !deliveries.has_unaccounted_delivery() {
            lease.note_later(deliveries.begun());
            return Ok(());
        }
        match lease.note_now(&deliveries.begun()).await {
            NoteOutcome::NoRoom
                if deliveries.is_exhausted_unrecorded(context.limits().max_dequeue_count) =>
            {
                Err(RunOutcome::Exhausted(deliveries.earlier()))
            }
            NoteOutcome::Noted | NoteOutcome::NoRoom => Ok(()),
            NoteOutcome::Failed => Err(RunOutcome::Interrupted(Interruption::NotRecorded)),
            NoteOutcome::Lost => Err(RunOutcome::LeaseLost),
        }
    }
}

/// Waits until a run has used up its time, not counting its waits for other runs in this process.
async fn time_up(limit: Duration, waits: &Waits) {
    let mut excluded = Duration::ZERO;
    let mut left = limit;
    while !left.is_zero() {
        sleep(left).await;
        let so_far = waits.so_far();
        left = so_far.saturating_sub(excluded);
        excluded = so_far;
    }
}
