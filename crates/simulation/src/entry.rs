//! What is known of one message: what it asks for, its deliveries and its runs.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::asked::{EntityJob, Expectation, ListedKeys};
use super::listed::MessageContent;
use evenkeel_engine::Outcome;
use evenkeel_model::EntityKey;
use evenkeel_storage::Ttl;

/// A message, or one of the jobs of a batch.
#[derive(Debug)]
pub(super) struct LedgerEntry {
    pub(super) expectation: Expectation,
    /// Of a job of a batch: the keys that the message lists.
    pub(super) listed: Option<ListedKeys>,
    /// The client's own name for the job.
    pub(super) client_id: Option<Value>,
    pub(super) enqueued: Timestamp,
    pub(super) content: Arc<MessageContent>,
    pub(super) free: u64,
    pub(super) deliveries: Vec<DeliveryRecord>,
    /// Its own last run that ended well: how it ended.
    pub(super) ended: Option<Outcome>,
    /// Its own runs under way.
    pub(super) running: Vec<ActiveRun>,
    /// Of a delete job: the deliveries for which a primary was deleted.
    pub(super) acted: Vec<u32>,
    /// Runs that panicked.
    pub(super) panics: u32,
    pub(super) poisoned: bool,
    pub(super) gone: bool,
    pub(super) ttl: Ttl,
    /// It is gone since its time was over.
    pub(super) expired: bool,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "five separate facts about one delivery"
)]
#[derive(Debug, Clone, Copy)]
pub(super) struct DeliveryRecord {
    pub(super) tick: u64,
    pub(super) caller: u32,
    /// Attempts so far, this one included: runs that began and whose end nothing tells of.
    pub(super) attempts: u64,
    /// How many there may be: more for a batch, of which a job that takes the process down is to be found.
    pub(super) most: u64,
    /// Of a batch after a run that never ended: whether the job is among the first ones, which alone are run.
    pub(super) has_turn: bool,
    /// A run of it began, or the message says so.
    pub(super) began: bool,
    /// Released in order, and written off.
    pub(super) released: bool,
    /// Something happened that explains why it counts.
    pub(super) explained: bool,
    /// Something happened beside a panic of its run, so that the run may have left no trace.
    pub(super) disturbed: bool,
}

impl DeliveryRecord {
    pub(super) const fn new(tick: u64, caller: u32, explained: bool) -> Self {
        Self {
            tick,
            caller,
            attempts: 0,
            most: 0,
            has_turn: true,
            began: false,
            released: false,
            explained,
            disturbed: explained,
        }
    }
}

/// A run under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ActiveRun {
    pub(super) caller: u32,
    /// Which delivery it belongs to, from 1.
    pub(super) delivery: u32,
}

impl LedgerEntry {
    pub(super) fn new(
        expectation: Expectation,
        listed: Option<ListedKeys>,
        (enqueued, content, ttl): (Timestamp, &Arc<MessageContent>, Ttl),
    ) -> Self {
        Self {
            expectation,
            listed,
            client_id: content.client_id.clone(),
            enqueued,
            content: Arc::clone(content),
            free: 0,
            deliveries: Vec::new(),
            ended: None,
            running: Vec::new(),
            acted: Vec::new(),
            panics: 0,
            poisoned: false,
            gone: false,
            ttl,
            expired: false,
        }
    }

    /// It is got once more. `max`: attempts of a single job.
    pub(super) fn delivered(&mut self, dequeue_count: u32, max: u32, delivery: DeliveryRecord) {
        let attempts = u64::from(dequeue_count)
            .saturating_sub(self.content.free())
            .min(self.content.begun() + 1);
        let (halvings, has_turn) = self
            .listed
            .as_ref()
            .map_or((0, true), |keys| self.content.turn(keys, attempts));
        self.deliveries.push(DeliveryRecord {
            attempts,
            most: u64::from(max) + halvings,
            has_turn,
            ..delivery
        });
    }

    pub(super) fn is(&self, about: &EntityKey, wanted: &str) -> bool {
        matches!(&self.expectation, Expectation::Job(asked) if asked.op == wanted && asked.key == *about)
    }

    /// Whether it has an end.
    pub(super) const fn is_mortal(&self) -> bool {
        matches!(self.ttl, Ttl::After(_))
    }

    /// The n-th delivery, from 1. A run that a redelivered sync shares is told of its number, which may be beyond the message's own.
    pub(super) fn delivery(&mut self, number: u32) -> Option<&mut DeliveryRecord> {
        let last = self.deliveries.len().checked_sub(1)?;
        self.deliveries
            .get_mut(usize::try_from(number).ok()?.checked_sub(1)?.min(last))
    }

    pub(super) fn explain(&mut self, whose: impl Fn(&DeliveryRecord) -> bool) {
        for delivery in self
            .deliveries
            .iter_mut()
            .filter(|delivery| whose(delivery))
        {
            delivery.explained = true;
        }
    }

    /// Something happened to deliveries, so that their runs may leave no trace.
    pub(super) fn disturb(&mut self, whose: impl Fn(&DeliveryRecord) -> bool) {
        for delivery in self
            .deliveries
            .iter_mut()
            .filter(|delivery| whose(delivery))
        {
            delivery.disturbed = true;
        }
    }

    /// Whether redelivered syncs share its runs, each told of the highest of their numbers: any delivery to a worker may be a run's own.
    pub(super) fn shares_runs(&self) -> bool {
        matches!(
            &self.expectation,
            Expectation::Recheck | Expectation::Job(EntityJob { op: "sync", .. })
        )
    }

    /// How many deliveries may have left no trace of their runs.
    pub(super) fn disturbed(&self) -> u32 {
        let ran = |delivery: &DeliveryRecord| delivery.began || self.shares_runs();
        u32::try_from(
            self.deliveries
                .iter()
                .filter(|delivery| ran(delivery) && delivery.disturbed)
                .count(),
        )
        .unwrap_or(u32::MAX)
    }

    pub(super) fn updated(&mut self, content: &Arc<MessageContent>) {
        if content.text == self.content.text {
            return;
        }
        let begun_before = std::mem::replace(&mut self.content, Arc::clone(content)).begun();
        let (free, begun) = (content.free(), content.begun());
        let Some(last) = self.deliveries.last_mut() else {
            return;
        };
        last.began |= begun > begun_before;
        // Some of the batch has ended: the others start anew.
        if self.listed.is_some() && begun == 0 {
            self.panics = 0;
        }
        if free > self.free {
            self.free = free;
            last.released = true;
        }
    }

    /// Whether enough runs began that count, each for a reason. `late`: the poison message arrived when its sender had given it
    /// up, and maybe written the delivery off.
    pub(super) fn is_exhausted(&self, max: usize, late: bool) -> bool {
        let counted: Vec<&DeliveryRecord> = self
            .deliveries
            .iter()
            .filter(|delivery| delivery.began && !delivery.released)
            .collect();
        counted.len() + usize::from(late) >= max
            && counted
                .iter()
                .rev()
                .skip(1)
                .all(|delivery| delivery.explained || delivery.disturbed)
    }
}
