//! The ledger entry of one message, or of one job of a batch: the expectation, the deliveries and the runs.

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
    /// The keys of this job in the list of its batch, or `None` if the message is not a batch.
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
    /// Number of attempts so far: the earlier runs that began without a recorded end, plus this delivery.
    pub(super) attempts: u64,
    /// Maximum number of attempts. It is higher for a batch, because more attempts are needed to find the job that
    /// crashes the process.
    pub(super) most: u64,
    /// Whether this job of a batch runs in this delivery. After a run that never ended, only the first jobs of the
    /// batch run.
    pub(super) has_turn: bool,
    /// Whether a run began in this delivery, or the message records that a run began.
    pub(super) began: bool,
    /// Whether the worker released the message, so that the delivery does not count as an attempt.
    pub(super) released: bool,
    /// Whether an observed event explains why this delivery counts as an attempt.
    pub(super) explained: bool,
    /// Whether a fault other than a panic affected the run. If so, the run is perhaps not recorded as an attempt in the
    /// message.
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

    /// Returns the delivery with this number, counted from 1, or the last delivery if the number is too high. The
    /// number can be too high if several sync messages share a run: it is then the highest delivery number of all these
    /// messages.
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

    /// Whether several messages may share a run of this job. The number of a shared run is the highest delivery number
    /// of these messages, so the run may belong to any delivery of this message.
    pub(super) fn shares_runs(&self) -> bool {
        matches!(
            &self.expectation,
            Expectation::Recheck | Expectation::Job(EntityJob { op: "sync", .. })
        )
    }

    /// Number of deliveries whose runs are perhaps not recorded as attempts.
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

    /// Whether the message may be poisoned as exhausted. At least `max` runs must have begun, and every run except the
    /// last must be explained or disturbed. Released deliveries do not count.
    ///
    /// If `late`, the request that poisoned the message arrived after its sender had given up. The worker may have
    /// released the last delivery in between, so one run fewer is enough.
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
