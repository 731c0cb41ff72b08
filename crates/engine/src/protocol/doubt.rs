//! Doubt: the requests of one run that may have been executed, or may still arrive, and the rechecks that follow from that.

use crate::env::Env;
use crate::protocol::footprint::Footprint;
use crate::protocol::observe::Observation;
use crate::protocol::queueing::RunRechecks;
use crate::protocol::sent_at::SentAt;
use evenkeel_model::ETag;
use evenkeel_storage::Deadline;

/// The doubt that one run is in.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each has happened in this run or not, whatever else has"
)]
pub(crate) struct Doubt {
    /// The creation of an item, or a write of the primary, has no answer: it may still arrive.
    unanswered: bool,
    /// A write of the footprint has no answer: it may still arrive while the footprint is at the version that it was for.
    unheard: bool,
    /// The last write of the footprint failed its condition: another pass has written it since.
    overtaken: bool,
    /// This run has announced over another pass's open announcement: from then on that is its own, and the content of
    /// that announcement is not forgotten in later rounds.
    disturbed: bool,
    /// A request to write the primary was executed, or may have been.
    may_have_written: bool,
    /// A row that the primary's first row does not tell of was in the way of a new one.
    rows_in_the_way: bool,
    /// The ETag of this run's own last announcement.
    announced: Option<ETag>,
    announced_at: Option<SentAt>,
    /// The version of documents in it.
    version: i64,
    pub(crate) rechecks: RunRechecks,
}

impl Doubt {
    /// An item was created without an answer: it may come to be at any time, or while the item in its place is at its version.
    pub(crate) const fn item_unanswered(&mut self) {
        self.unanswered = true;
    }

    /// The primary was written without an answer. It may still arrive: an insert at any time, anything else while the
    /// primary is at its ETag, and by then there may be no run to derive its items. Or it may arrive just after the looks and before the
    /// primary is read, so that the looks have missed the items that it inserts.
    pub(crate) const fn primary_unanswered(&mut self) {
        self.may_have_written = true;
        self.unanswered = true;
    }

    /// The primary was written.
    pub(crate) const fn primary_written(&mut self) {
        self.may_have_written = true;
    }

    /// A row that was not read is in the way of the primary's.
    pub(crate) const fn row_in_the_way(&mut self) {
        self.rows_in_the_way = true;
    }

    /// Rows that the primary's first row does not tell of may be left, and are to be found.
    pub(crate) const fn rows_may_be_left(&mut self) {
        self.rows_in_the_way = true;
    }

    /// The footprint was written.
    pub(crate) const fn footprint_written(&mut self) {
        self.overtaken = false;
    }

    /// The footprint was not written: another pass was faster.
    pub(crate) const fn footprint_overtaken(&mut self) {
        self.overtaken = true;
    }

    /// The footprint was written without an answer.
    pub(crate) const fn footprint_unanswered(&mut self) {
        self.unheard = true;
    }

    /// The footprint has an announcement of this run, written over `seen`.
    pub(crate) fn announced(
        &mut self,
        seen: &Observation,
        footprint: &Footprint,
        etag: ETag,
        sent: SentAt,
    ) {
        self.version = footprint.version;
        self.disturbed |= self.meets_a_stranger(seen);
        self.announced_at = Some(sent);
        self.announced = Some(etag);
    }

    /// The announcement was written once more.
    pub(crate) fn announced_again(&mut self, etag: ETag) {
        self.announced = Some(etag);
    }

    /// The version of documents that are written now.
    pub(crate) const fn version(&self) -> i64 {
        self.version
    }

    /// The ETag of this run's own last announcement.
    pub(crate) const fn announcement(&self) -> Option<&ETag> {
        self.announced.as_ref()
    }

    /// Whether an old write may be under way: another pass's, or one of this run.
    pub(crate) fn is_disturbed(&self, seen: &Observation) -> bool {
        self.unanswered || self.disturbed || self.meets_a_stranger(seen)
    }

    /// Whether another pass's announcement is open. Changes that this run announced itself are no sign of one; a crash
    /// or another pass is.
    fn meets_a_stranger(&self, seen: &Observation) -> bool {
        let own = self.announced.is_some() && self.announced == seen.etag;
        seen.footprint.is_changing() && !own
    }

    /// Whether a settled footprint asks for a recheck nevertheless: an unanswered write of it may still land, and this run writes nothing after it.
    pub(crate) const fn rechecks_the_settled(&self) -> bool {
        self.unheard
    }

    /// Whether a primary without views asks for a recheck: a write of it that may still arrive implies nothing about the claims of others.
    pub(crate) const fn rechecks_the_primary(&self) -> bool {
        self.unanswered
    }

    /// Whether the run of a recheck leaves the primary to a faster pass, and to the recheck in its place. It has looked at its items by
    /// then, and announced all changes of them; the faster pass has read the announcement. So a recheck leaves one other at most, however
    /// many workers race for its primary.
    pub(crate) const fn gives_way(&self) -> bool {
        self.overtaken && !self.unheard && self.rechecks.are_queued()
    }

    /// Whether this run has written the primary, or may have.
    pub(crate) const fn may_have_written(&self) -> bool {
        self.may_have_written
    }

    /// Whether the primary is read with rows that its first row does not tell of.
    pub(crate) const fn reads_leftovers(&self) -> bool {
        self.rows_in_the_way
    }

    /// Until when an unconditional write may be sent: it has arrived, or is lost, before the recheck of its announcement.
    pub(crate) fn deadline(&self, env: &Env) -> Option<Deadline> {
        self.announced_at
            .map(|sent| sent.deadline(env.may_write_for()))
    }

    /// Whether an unconditional write now has arrived, or is lost, before the recheck of its announcement. A worker that
    /// was suspended for long announces again.
    pub(crate) fn is_in_time(&self, env: &Env) -> bool {
        self.deadline(env)
            .is_some_and(|deadline| !deadline.is_over(env.clock.as_ref()))
    }
}
