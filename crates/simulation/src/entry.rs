//! The record of one message: its expectation, its deliveries and its runs.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::expectation::{EntityJob, Expectation, ListedKeys};
use super::listed::MessageContent;
use evenkeel_engine::Outcome;
use evenkeel_model::EntityKey;
use evenkeel_storage::Ttl;

#[derive(Debug)]
pub(super) struct LedgerEntry {
    pub(super) expectation: Expectation,
    /// The keys in the batch's list, if this is one job of a batch.
    pub(super) listed: Option<ListedKeys>,
    pub(super) client_id: Option<Value>,
    pub(super) enqueued: Timestamp,
    pub(super) content: Arc<MessageContent>,
    pub(super) free: u64,
    pub(super) deliveries: Vec<DeliveryRecord>,
    pub(super) ended: Option<Outcome>,
    pub(super) running: Vec<ActiveRun>,
    pub(super) acted: Vec<u32>,
    pub(super) panics: u32,
    pub(super) poisoned: bool,
    pub(super) gone: bool,
    pub(super) ttl: Ttl,
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
    /// Number of attempts so far, including this one: runs that began and have no recorded end.
    pub(super) attempts: u64,
    /// Maximum number of attempts. A batch has more attempts, because the job that crashes the process has to be found.
    pub(super) most: u64,
    /// Whether this job of a batch runs in this delivery. After a run that never ended, only the first jobs of the
    /// batch run.
    pub(super) has_turn: bool,
    /// Whether a run began, or the note in the message records one.
    pub(super) began: bool,
    /// Whether the worker released the message and wrote off the delivery.
    pub(super) released: bool,
    /// Whether an observed event explains why this delivery counts as an attempt.
    pub(super) explained: bool,
    /// Whether something other than a panic happened to the run, so that it may have left no trace.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ActiveRun {
    pub(super) caller: u32,
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

    /// Records a delivery. `max` is the maximum number of attempts of a single job.
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

    pub(super) const fn can_expire(&self) -> bool {
        matches!(self.ttl, Ttl::After(_))
    }

    /// Returns the delivery with this number, counted from 1, or the last delivery if the number is higher. Several
    /// sync messages may share one run, which has the highest of their delivery numbers. This message may have fewer
    /// deliveries.
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

    pub(super) fn disturb(&mut self, whose: impl Fn(&DeliveryRecord) -> bool) {
        for delivery in self
            .deliveries
            .iter_mut()
            .filter(|delivery| whose(delivery))
        {
            delivery.disturbed = true;
        }
    }

    /// Whether runs of this message may be shared by redelivered syncs. A shared run has the highest number of its
    /// deliveries, so it may be this message's own run under any delivery.
    pub(super) fn shares_runs(&self) -> bool {
        matches!(
            &self.expectation,
            Expectation::Recheck | Expectation::Job(EntityJob { op: "sync", .. })
        )
    }

    /// Number of deliveries whose runs may have left no trace.
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
        // Some jobs of the batch have ended, so the attempts of the other jobs count from zero again.
        if self.listed.is_some() && begun == 0 {
            self.panics = 0;
        }
        if free > self.free {
            self.free = free;
            last.released = true;
        }
    }

    /// Whether at least `max` runs began, and each of them except the last is explained or disturbed. Runs of released
    /// deliveries do not count. `late` counts as one more run: the request that poisoned the message arrived after its
    /// sender had given up, so the worker may have written off the delivery.
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
