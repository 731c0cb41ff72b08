//! The end of a pass: it queues messages for later work, then closes the footprint.

use crate::execute::Failure;
use crate::protocol::conflicts;
use crate::protocol::footprint::propagations::ranges_to_propagate;
use crate::protocol::footprint::record;
use crate::protocol::footprint::store;
use crate::protocol::observe::Observation;
use crate::protocol::outbox::Outbox;
use crate::protocol::plan_input::PlanInput;
use crate::protocol::queueing::{RecheckRequest, RunRechecks};
use crate::protocol::run::pass::Pass;
use crate::protocol::run::stage::{Applied, FollowerOutcome};
use crate::protocol::scope::Desired;
use evenkeel_model::job::ItemReads;

impl Pass<'_> {
    pub(crate) async fn settled(
        &self,
        seen: &Observation,
        desired: &Desired,
    ) -> Result<(), Failure> {
        let is_thorough = self.reads == ItemReads::All;
        let items = desired.items.keys().filter(|_| is_thorough);
        let outbox = Outbox {
            propagations: ranges_to_propagate(
                &self.scope,
                items,
                &seen.footprint.propagations,
                is_thorough,
            ),
            rechecks: self
                .unanswered
                .rechecks_the_settled()
                .then(|| RecheckRequest::of(Vec::new()))
                .into_iter()
                .collect(),
            ..Outbox::default()
        };
        // A recheck that an earlier round queued may be older than the unanswered write of the footprint. Such a
        // recheck does not suffice, so none is reused here.
        outbox.send(&self.scope, &mut RunRechecks::default()).await
    }

    /// Queues messages for later work and closes the footprint, after all followers are done. Returns whether nothing
    /// is left to do.
    pub(crate) async fn close(
        &mut self,
        applied: &Applied<'_>,
        followed: FollowerOutcome,
    ) -> Result<bool, Failure> {
        let Applied {
            seen,
            desired,
            plan,
            state,
            etag,
            written,
            ..
        } = applied;
        let scope = &self.scope;
        let input = PlanInput::of(
            scope,
            &self.values,
            &self.unanswered,
            seen,
            desired,
            state.clone(),
        );
        let mut close = record::close(&input, plan, written, followed.failed.is_empty());
        let is_thorough = self.reads == ItemReads::All;
        let items = plan
            .changed()
            .chain(desired.items.keys().filter(|_| is_thorough));
        let marked = &plan
            .announce
            .as_ref()
            .unwrap_or(&seen.footprint)
            .propagations;
        let outbox = Outbox {
            propagations: ranges_to_propagate(scope, items, marked, is_thorough),
            rechecks: std::mem::take(&mut close.rechecks),
            syncs: conflicts::contenders_to_sync(scope, seen, plan, &close.footprint).await?,
            taken_keys: conflicts::taken_keys_digest(scope, plan, desired),
        };
        close.leave_to_next_pass(followed.failed);
        let is_stored = close.is_stored(&input, plan) && !self.unanswered.rechecks_the_settled();
        outbox.send(scope, &mut self.unanswered.rechecks).await?;
        if !is_stored {
            let (footprint, over) = (&close.footprint, etag.as_ref());
            let written = store::write(scope, &mut self.unanswered, footprint, over, "closing");
            if written.await?.is_none() {
                return Ok(false);
            }
        }
        self.tracker.begin_at_once = true;
        conflicts::leaves_nothing_to_do(&self.scope, plan, desired, followed.failure)
    }
}
