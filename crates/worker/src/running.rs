//! One run: waiting for its turn, noting that it begins, and its time.
//!
//! ```text
//!   suspect? ── yes ──▶ alone among suspects
//!     │                   │
//!   turn ── folded into another run ────────────────────────────▶ end
//!     │
//!     └─ leads ──▶ an earlier delivery unaccounted for? ── no ──▶ run, noted by its first renewal
//!                                  └─ yes ──▶ note ──▶ run
//! ```
//!
//! A job that acts once and has waited begins under a lease that was confirmed since: the work that its message asks for may have been
//! done elsewhere meanwhile. `sync` may run at any time.
//!
//! `job_timeout` counts the run's own time: neither its turn nor its waits in this process.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::sleep;

use super::count;
use super::decide::{End, Interruption, Ran};
use super::delivery::{DeliveryFacts, OpenDelivery};
use super::lease::{Confirmation, LeaseOutcome, Traced};
use super::schedule::Folding;
use super::turns::{Lead, QueuePosition, Turn};
use evenkeel_engine::{Summary, Waits, Work};
use evenkeel_model::cause;
use evenkeel_model::job::JobDigest;

/// The work that one job of a message asks for.
pub(crate) struct Assignment<'a> {
    pub(crate) work: &'a Work,
    /// Digest common to all messages of its job.
    pub(crate) digest: Option<&'a JobDigest>,
}

/// Runs the work under its lease, or shares a run.
pub(super) async fn run(delivery: &mut OpenDelivery<'_>, assignment: &Assignment<'_>) -> End {
    // Before the turn of its key, which others may hold while they wait here.
    if let Err(end) = delivery.alone().await {
        return end;
    }
    let confirmation = delivery.lease.confirmation();
    let facts = &delivery.facts;
    let lead = match held(
        delivery
            .lease
            .hold(facts.turn(assignment, &confirmation))
            .await,
    ) {
        Ok(Ok(lead)) => lead,
        Ok(Err(end)) | Err(end) => return end,
    };
    if let Err(end) = delivery.note().await {
        return end;
    }
    let facts = &delivery.facts;
    held(delivery.lease.hold(facts.execute(assignment, lead)).await).unwrap_or_else(|end| end)
}

/// The result of work under a lease.
pub(super) fn held<T>(hold: LeaseOutcome<T>) -> Result<T, End> {
    match hold {
        LeaseOutcome::Finished(finished) => Ok(finished),
        LeaseOutcome::Lost => Err(End::LeaseLost),
        LeaseOutcome::Over => Err(End::Interrupted(Interruption::LeaseOver)),
    }
}

impl DeliveryFacts<'_> {
    /// Waits for the turn of the work's key, or for the end of the run that it was folded into.
    pub(super) async fn turn(
        &self,
        assignment: &Assignment<'_>,
        confirmation: &Confirmation,
    ) -> Result<Lead, End> {
        let job_folds = if let Work::Job(job) = assignment.work {
            Some(job.operation().folds())
        } else {
            None
        };
        let folding = if job_folds == Some(true) {
            Folding::Folds
        } else {
            Folding::Alone
        };
        let lead = self.lead(assignment.work, folding).await?;
        if job_folds == Some(false) {
            tokio::select! {
                biased;
                () = confirmation.fresh() => {}
                () = self.context.stop.receiving.cancelled() => return Err(End::Interrupted(Interruption::Drain)),
            }
        }
        Ok(lead)
    }

    async fn lead(&self, work: &Work, folding: Folding) -> Result<Lead, End> {
        let Self {
            context,
            source,
            message,
            ..
        } = self;
        if context.stop.receiving.is_cancelled() {
            return Err(End::Interrupted(Interruption::Drain));
        }
        let Some(key) = context.key(work) else {
            return Ok(Lead::unkeyed(message.dequeue_count));
        };
        match context
            .turns
            .arrive(key, folding, source.crowd(), message.dequeue_count)
        {
            QueuePosition::Now(lead) => Ok(lead),
            QueuePosition::Crowded => Err(End::Interrupted(Interruption::Crowded)),
            QueuePosition::Later(turn) => {
                let turn = tokio::select! {
                    biased;
                    () = context.stop.receiving.cancelled() => return Err(End::Interrupted(Interruption::Drain)),
                    turn = turn => turn,
                };
                match turn {
                    Ok(Turn::Lead(lead)) => Ok(lead),
                    Ok(Turn::Folded(ran)) => {
                        count::folded(source);
                        Err(End::Ran(ran))
                    }
                    // The holder of the key was torn down without handing it on: the message comes again.
                    Err(_) => Err(End::Interrupted(Interruption::Crowded)),
                }
            }
        }
    }

    /// Runs the work, for all that were folded into it.
    pub(super) async fn execute(&self, assignment: &Assignment<'_>, lead: Lead) -> End {
        let Self {
            context,
            source,
            message,
            ..
        } = self;
        // Requests sent for any of them may be on their way still.
        let delivery = evenkeel_engine::Delivery {
            dequeue_count: lead.dequeue_count(),
            ..source.delivery(message, assignment.digest.cloned())
        };
        let limit = context.settings.job_timeout;
        let waits = Waits::new(Arc::clone(&context.clock));
        let ended = tokio::select! {
            biased;
            () = context.stop.runs.cancelled() => Err(End::Interrupted(Interruption::Drain)),
            ran = waits.of(AssertUnwindSafe(context.execute.execute(assignment.work, &delivery)).catch_unwind()) => {
                ran.map_err(|payload| End::Panicked(cause::panic(&*payload)))
            }
            () = time_up(limit, &waits) => Err(End::TimedOut(limit)),
        };
        let mut untold = Summary {
            changes: waits.untold(),
            ..Summary::default()
        };
        let ran = ended.map(|ended| match ended {
            Ok(mut outcome) => {
                outcome.summary_mut().add(std::mem::take(&mut untold));
                Ran::Finished(outcome)
            }
            Err(failure) => Ran::Failed(Arc::new(failure), std::mem::take(&mut untold)),
        });
        let summary = ran.as_ref().map_or(&untold, Ran::summary);
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
                lead.finish(&ran);
                End::Ran(ran)
            }
            Err(end) => end,
        }
    }
}

impl OpenDelivery<'_> {
    /// Waits until no other message runs that may take the process down, where this one may.
    pub(super) async fn alone(&mut self) -> Result<(), End> {
        let DeliveryFacts {
            context,
            source,
            examined,
            ..
        } = self.facts;
        let (deliveries, lease) = (&examined.deliveries, &mut self.lease);
        if deliveries.are_suspect(context.limits().max_dequeue_count) {
            let turn = held(
                lease
                    .hold(
                        context
                            .suspects
                            .turn(source.crowd(), &context.stop.receiving),
                    )
                    .await,
            )??;
            lease.keep_turn(turn);
        }
        Ok(())
    }

    /// Leaves a trace in the message that a run begins: at no cost where no earlier one can have come to no end, else before the run.
    pub(super) async fn note(&mut self) -> Result<(), End> {
        let DeliveryFacts {
            context, examined, ..
        } = self.facts;
        let (deliveries, lease) = (&examined.deliveries, &mut self.lease);
        if !deliveries.is_disturbed() {
            lease.note_later(deliveries.begun());
            return Ok(());
        }
        match lease.note_now(&deliveries.begun()).await {
            Traced::NoRoom
                if deliveries.are_exhausted_untraced(context.limits().max_dequeue_count) =>
            {
                Err(End::Exhausted(deliveries.earlier()))
            }
            Traced::Noted | Traced::NoRoom => Ok(()),
            Traced::Failed => Err(End::Interrupted(Interruption::Untraced)),
            Traced::Lost => Err(End::LeaseLost),
        }
    }
}

/// Waits until a run has used up its time, not counting its waits for others.
async fn time_up(limit: Duration, waits: &Waits) {
    let mut set_aside = Duration::ZERO;
    let mut left = limit;
    while !left.is_zero() {
        sleep(left).await;
        let so_far = waits.so_far();
        left = so_far.saturating_sub(set_aside);
        set_aside = so_far;
    }
}
