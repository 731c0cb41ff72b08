//! The requests of one run that may have been executed or may still arrive, and the rechecks that follow from them.

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
    reason = "each has happened in this run or not, whatever else has"
)]
pub(crate) struct UnansweredWrites {
    /// An insert of an item, or a write of the primary, has no answer and may still arrive.
    unanswered: bool,
    /// A write of the footprint has no answer. It may still arrive while the footprint is at the version that it was
    /// sent for.
    footprint_pending: bool,
    /// Another pass has written the footprint since this run read it.
    overtaken: bool,
    /// This run announced over another pass's open announcement. Later rounds find only its own announcement, so this
    /// flag preserves the fact.
    disturbed: bool,
    may_have_written: bool,
    /// A row that the primary's first row does not list was in the way of a new one.
    unlisted_rows: bool,
    announced: Option<ETag>,
    announced_at: Option<SentAt>,
    version: i64,
    pub(crate) rechecks: RunRechecks,
}

impl UnansweredWrites {
    /// An insert of an item has no answer. It may still land at any time, or, if it replaces an item, while that item
    /// is at its version.
    pub(crate) const fn item_unanswered(&mut self) {
        self.unanswered = true;
    }

    /// A write of the primary has no answer. An insert may still arrive at any time, any other write while the primary
    /// is at its ETag, and by then there may be no run to derive its items. It may also arrive between the looks and
    /// the read of the primary. The looks then miss the items that it inserts.
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

    /// Rows that the primary's first row does not list may be left over and must be found.
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

    /// Whether another pass's announcement is open, which another worker or a crash left. This run's own announcement
    /// does not count.
    fn has_foreign_announcement(&self, seen: &Observation) -> bool {
        let own = self.announced.is_some() && self.announced == seen.etag;
        seen.footprint.is_changing() && !own
    }

    /// Whether even a settled footprint needs a recheck: an unanswered write of it may still arrive, and this run
    /// writes nothing after it.
    pub(crate) const fn rechecks_the_settled(&self) -> bool {
        self.footprint_pending
    }

    /// Whether a primary without views needs a recheck: an unanswered write of it may still arrive, without the range
    /// overlays on it.
    pub(crate) const fn rechecks_the_primary(&self) -> bool {
        self.unanswered
    }

    /// Whether the run of a recheck may leave the primary to a faster pass and to the recheck that this run has queued.
    /// By then it has looked at its items and announced all changes to them, and the faster pass has read the
    /// announcement. So a recheck leads to at most one other, however many workers race for its primary.
    pub(crate) const fn gives_way(&self) -> bool {
        self.overtaken && !self.footprint_pending && self.rechecks.are_queued()
    }

    pub(crate) const fn may_have_written(&self) -> bool {
        self.may_have_written
    }

    pub(crate) const fn reads_leftovers(&self) -> bool {
        self.unlisted_rows
    }

    /// Until when an unconditional write may be sent. It has then arrived, or is lost, before the recheck of its
    /// announcement.
    pub(crate) fn deadline(&self, env: &Env) -> Option<Deadline> {
        self.announced_at
            .map(|sent| sent.deadline(env.may_write_for()))
    }

    /// Whether an unconditional write that is sent now arrives, or is lost, before the recheck of its announcement. A
    /// worker that was suspended for long announces again.
    pub(crate) fn is_in_time(&self, env: &Env) -> bool {
        self.deadline(env)
            .is_some_and(|deadline| !deadline.is_over(env.clock.as_ref()))
    }
}
