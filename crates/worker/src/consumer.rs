//! The queues that a worker receives from.

use std::sync::Arc;

use tokio::sync::Notify;

use super::decode::{PROPAGATE, SYNC};
use super::job_metrics;
use super::slots::Slots;
use super::status::QueueBoard;
use evenkeel_engine::Delivery;
use evenkeel_model::allowed::JobAllowance;
use evenkeel_model::job::{JobDigest, OPS, RECHECK, Stamp};
use evenkeel_model::{AccountName, QueueName};
use evenkeel_storage::{BlobStore, Message, QueueStore};

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueKind {
    Jobs,
    /// The queue has rechecks that earlier runs requested. It also has sync and carry jobs that
    /// runs have queued although the job queue does not accept them.
    Rechecks,
}

impl QueueKind {
    pub(crate) const fn ops(self) -> &'static [&'static str] {
        match self {
            Self::Jobs => OPS,
            Self::Rechecks => &[SYNC, PROPAGATE, RECHECK],
        }
    }
}

pub(crate) struct QueueConsumer {
    pub(crate) queue: QueueName,
    /// The queue as configured. `queue` is this queue or one of its shards.
    pub(crate) configured_queue: QueueName,
    pub(crate) kind: QueueKind,
    pub(crate) account: AccountName,
    /// `<name>-poison` of the configured queue, shared by its shards.
    pub(crate) poison: QueueName,
    /// `<name>-recheck` of the configured queue, shared by its shards.
    pub(crate) recheck: QueueName,
    pub(crate) sync_queue: QueueName,
    pub(crate) propagation_queue: QueueName,
    /// The jobs that the queue accepts. A recheck queue has no limits, because only workers write
    /// to it.
    pub(crate) allowed: JobAllowance,
    pub(crate) queues: Arc<dyn QueueStore>,
    pub(crate) blobs: Arc<dyn BlobStore>,
    /// Slots for messages. The shards of a queue share them.
    pub(crate) slots: Slots,
    /// Slots for the jobs of batches, in addition to the slot of their message. Shared by the
    /// shards of a queue.
    pub(crate) batch_slots: Slots,
    pub(crate) bell: Arc<Notify>,
    pub(crate) board: Arc<QueueBoard>,
    pub(crate) counters: job_metrics::QueueCounters,
}

impl QueueConsumer {
    /// Maximum number of jobs that may wait for one key. Jobs that can be coalesced do not count.
    /// Half of the slots stay free for other keys.
    pub(crate) fn max_waiters(&self) -> usize {
        self.slots.count().div_ceil(2)
    }

    pub(crate) fn delivery(&self, message: &Message, job: Option<JobDigest>) -> Delivery {
        Delivery {
            stamp: Stamp {
                message_id: message.id.clone(),
                enqueued: message.inserted,
                job,
            },
            dequeue_count: message.dequeue_count,
            account: self.account.clone(),
            propagation_queue: self.propagation_queue.clone(),
            sync_queue: self.sync_queue.clone(),
            recheck_queue: self.recheck.clone(),
            tables: self.allowed.tables.clone(),
        }
    }
}
