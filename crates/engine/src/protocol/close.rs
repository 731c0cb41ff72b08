//! The end of a pass: it queues what follows, then closes the footprint.

use crate::execute::Failure;
use crate::protocol::conflicts;
use crate::protocol::footprint::carries::to_tell;
use crate::protocol::footprint::record;
use crate::protocol::footprint::store;
use crate::protocol::observe::Observation;
use crate::protocol::outbox::Outbox;
use crate::protocol::queueing::{RecheckRequest, RunRechecks};
use crate::protocol::run::pass::Pass;
use crate::protocol::run::stage::{Applied, Followed};
use crate::protocol::scope::Wanted;
use crate::protocol::situation::Situation;
use evenkeel_model::job::ItemReads;

impl Pass<'_> {
    pub(crate) async fn settled(&self, seen: &Observation, wanted: &Wanted) -> Result<(), Failure> {
        let again = self.looks == ItemReads::All;
        let told = wanted.items.keys().filter(|_| again);
        let outbox = Outbox {
            propagations: to_tell(&self.scope, told, &seen.footprint.carries, again),
            rechecks: self
                .doubt
                .rechecks_the_settled()
                .then(|| RecheckRequest::of(Vec::new()))
                .into_iter()
                .collect(),
            ..Outbox::default()
        };
        // A recheck of an earlier round does not suffice, because the unanswered write may be later.
        outbox.send(&self.scope, &mut RunRechecks::default()).await
    }

    /// Queues what follows and closes the footprint, once all followers are done. Returns whether nothing is left to
    /// do.
    pub(crate) async fn close(
        &mut self,
        applied: &Applied<'_>,
        followed: Followed,
    ) -> Result<bool, Failure> {
        let Applied {
            seen,
            wanted,
            plan,
            state,
            etag,
            written,
            ..
        } = applied;
        let scope = &self.scope;
        let run = (&self.values, &self.doubt);
        let situation = Situation::of(scope, run, seen, wanted, state.clone());
        let mut close = record::close(&situation, plan, written, followed.failed.is_empty());
        let again = self.looks == ItemReads::All;
        let told = plan.changed().chain(wanted.items.keys().filter(|_| again));
        let marked = &plan.announce.as_ref().unwrap_or(&seen.footprint).carries;
        let outbox = Outbox {
            propagations: to_tell(scope, told, marked, again),
            rechecks: std::mem::take(&mut close.rechecks),
            syncs: conflicts::given_up(scope, seen, plan, &close.footprint).await?,
            told: conflicts::told(scope, plan, wanted),
        };
        close.leave_to_the_next(followed.failed);
        let is_there = close.is_there(&situation, plan) && !self.doubt.rechecks_the_settled();
        outbox.send(scope, &mut self.doubt.rechecks).await?;
        if !is_there {
            let (footprint, over) = (&close.footprint, etag.as_ref());
            let written = store::write(scope, &mut self.doubt, footprint, over, "closing");
            if written.await?.is_none() {
                return Ok(false);
            }
        }
        self.met.lost_no_race = true;
        conflicts::left_over(&self.scope, plan, wanted, followed.failure)
    }
}
