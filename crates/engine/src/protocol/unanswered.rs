//! The requests of one run that got no answer, and the rechecks that the run has queued. A request without an answer
//! may have been executed, or may still arrive.

use crate::env::Env;
use crate::protocol::footprint::Footprint;
use crate::protocol::observe::Observation;
use crate::protocol::queueing::RunRechecks;
use crate::protocol::sent_at::SentAt;
use evenkeel_model::ETag;
use evenkeel_storage::Deadline;

#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each flag records one event of the run, independent of the others"
)]
pub(crate) struct UnansweredWrites {
    /// An insert of an item, or a write of the primary, got no answer and may still arrive.
    unanswered: bool,
    /// A write of the footprint got no answer. The write may still arrive until the footprint's ETag changes.
    footprint_pending: bool,
    /// Another pass has written the footprint since this run read it.
    overtaken: bool,
    /// This run has overwritten another pass's open announcement with its own. Later rounds find only this run's
    /// announcement, so this flag records that the other pass was interrupted or is still at work.
    disturbed: bool,
    may_have_written: bool,
    /// Rows may exist that the first row of a wide primary does not list. Such rows may be in the way of new rows.
    unlisted_rows: bool,
    announced: Option<ETag>,
    announced_at: Option<SentAt>,
    version: i64,
    pub(crate) rechecks: RunRechecks,
}

impl UnansweredWrites {
    /// Records that the request which creates an item got no answer. An insert may still arrive at any time. A write
    /// over another owner's item may arrive until that item's ETag changes.
    pub(crate) const fn item_unanswered(&mut self) {
        self.unanswered = true;
    }

    /// Records that a write of the primary got no answer. An insert may still arrive at any time. Any other write may
    /// still arrive until the primary's ETag changes. This has two consequences:
    ///
    /// - When the write arrives, there may be no run that derives the primary's items.
    /// - The write may arrive after a pass has looked at items and before the pass reads the primary. The pass then
    ///   does not see the items that the write inserts.
    pub(crate) const fn primary_unanswered(&mut self) {
        self.may_have_written = true;
        self.unanswered = true;
    }

    pub(crate) const fn primary_written(&mut self) {
        self.may_have_written = true;
    }

    pub(crate) const fn unlisted_row_found(&mut self) {
        self.unlisted_rows = true;
    }

    /// Records that rows may exist that the primary's first row does not list. Later reads include such rows.
    pub(crate) const fn rows_may_be_left(&mut self) {
        self.unlisted_rows = true;
    }

    pub(crate) const fn footprint_written(&mut self) {
        self.overtaken = false;
    }

    pub(crate) const fn footprint_overtaken(&mut self) {
        self.overtaken = true;
    }

    pub(crate) const fn footprint_unanswered(&mut self) {
        self.footprint_pending = true;
    }

    pub(crate) fn announced(
        &mut self,
        seen: &Observation,
        footprint: &Footprint,
        etag: ETag,
        sent: SentAt,
    ) {
        self.version = footprint.version;
        self.disturbed |= self.has_foreign_announcement(seen);
        self.announced_at = Some(sent);
        self.announced = Some(etag);
    }

    pub(crate) fn announced_again(&mut self, etag: ETag) {
        self.announced = Some(etag);
    }

    pub(crate) const fn version(&self) -> i64 {
        self.version
    }

    pub(crate) const fn announcement(&self) -> Option<&ETag> {
        self.announced.as_ref()
    }

    pub(crate) fn is_disturbed(&self, seen: &Observation) -> bool {
        self.unanswered || self.disturbed || self.has_foreign_announcement(seen)
    }

    /// Whether the footprint has an open announcement of another run. That run is still at work, or it has crashed.
    fn has_foreign_announcement(&self, seen: &Observation) -> bool {
        let own = self.announced.is_some() && self.announced == seen.etag;
        seen.footprint.is_changing() && !own
    }

    /// Whether even a settled footprint needs a recheck, because an unanswered write of the footprint may still arrive
    /// and overwrite it.
    pub(crate) const fn rechecks_the_settled(&self) -> bool {
        self.footprint_pending
    }

    /// Whether a primary without views needs a recheck. It does if an unanswered write of the primary may still arrive,
    /// because the written entity does not have the properties that range overlays set.
    pub(crate) const fn rechecks_the_primary(&self) -> bool {
        self.unanswered
    }

    /// Whether the run of a recheck may end early. It may if another pass has overtaken it, no write of the footprint
    /// is unanswered, and this run has queued a recheck. This run announced all changes to its items before it queued
    /// the recheck, and the other pass has read the announcement. So the other pass and the queued recheck do the rest.
    /// In this way a recheck leads to at most one more recheck, even if many workers race for the same primary.
    pub(crate) const fn gives_way(&self) -> bool {
        self.overtaken && !self.footprint_pending && self.rechecks.are_queued()
    }

    pub(crate) const fn may_have_written(&self) -> bool {
        self.may_have_written
    }

    pub(crate) const fn reads_leftovers(&self) -> bool {
        self.unlisted_rows
    }

    /// Time until which this run may send an unconditional write. Another pass that finds this run's announcement open
    /// queues a recheck. A write that is sent in time arrives before that recheck, or never.
    pub(crate) fn deadline(&self, env: &Env) -> Option<Deadline> {
        self.announced_at
            .map(|sent| sent.deadline(env.may_write_for()))
    }

    /// Whether an unconditional write may still be sent (see [`Self::deadline`]). If not, for example because the
    /// worker was suspended for long, the run announces again.
    pub(crate) fn is_in_time(&self, env: &Env) -> bool {
        self.deadline(env)
            .is_some_and(|deadline| !deadline.is_over(env.clock.as_ref()))
    }
}
