//! The queues that a worker receives from.

use std::sync::Arc;

use tokio::sync::Notify;

use super::decode::{CARRY, SYNC};
use super::job_metrics;
use super::slots::Slots;
use super::status::QueueBoard;
use evenkeel_engine::Delivery;
use evenkeel_model::allowed::JobAllowance;
use evenkeel_model::job::{JobDigest, OPS, RECHECK, Stamp};
use evenkeel_model::{AccountName, QueueName};
use evenkeel_storage::{BlobStore, Message, QueueStore};

/// Kind of messages on a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueKind {
    /// Jobs that clients sent.
    Jobs,
    /// Rechecks that earlier runs asked for, and the jobs that their queue does not carry.
    Rechecks,
}

impl QueueKind {
    /// The operations of its messages, as metrics name them.
    pub(crate) const fn ops(self) -> &'static [&'static str] {
        match self {
            Self::Jobs => OPS,
            Self::Rechecks => &[SYNC, CARRY, RECHECK],
        }
    }
}

/// One queue that is received from: a job queue, one of its shards, or a recheck queue.
pub(crate) struct QueueConsumer {
    pub(crate) queue: QueueName,
    /// The queue as configured, of which it may be a shard.
    pub(crate) configured_queue: QueueName,
    pub(crate) kind: QueueKind,
    pub(crate) account: AccountName,
    /// Where its poison goes: `<name>-poison` of the queue as configured, for all its shards.
    pub(crate) poison: QueueName,
    /// Where its rechecks go, likewise.
    pub(crate) recheck: QueueName,
    /// Where the syncs go that its jobs ask for.
    pub(crate) sync_queue: QueueName,
    /// Where the carries go that they ask for.
    pub(crate) carry_queue: QueueName,
    /// Limits of its jobs; none on a recheck queue, which workers alone write.
    pub(crate) allowed: JobAllowance,
    pub(crate) queues: Arc<dyn QueueStore>,
    pub(crate) blobs: Arc<dyn BlobStore>,
    /// Shared by the shards of a queue.
    pub(crate) slots: Slots,
    /// Of the jobs of its batches: each has a pass of its own, beside the slot of its message. Shared likewise.
    pub(crate) batch_slots: Slots,
    /// Rings when there is something in it.
    pub(crate) bell: Arc<Notify>,
    pub(crate) board: Arc<QueueBoard>,
    /// Counters of its deliveries.
    pub(crate) counters: job_metrics::QueueCounters,
}

impl QueueConsumer {
    /// How many jobs that cannot be folded may wait under one key: half of the slots stay for other keys.
    pub(crate) fn max_waiters(&self) -> usize {
        self.slots.count().div_ceil(2)
    }

    /// The delivery of a message from here, as the engine gets it.
    pub(crate) fn delivery(&self, message: &Message, job: Option<JobDigest>) -> Delivery {
        Delivery {
            stamp: Stamp {
                message_id: message.id.clone(),
                enqueued: message.inserted,
                job,
            },
            dequeue_count: message.dequeue_count,
            account: self.account.clone(),
            carry_queue: self.carry_queue.clone(),
            sync_queue: self.sync_queue.clone(),
            recheck_queue: self.recheck.clone(),
            tables: self.allowed.tables.clone(),
        }
    }
}
