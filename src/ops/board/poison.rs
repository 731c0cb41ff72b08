//! How many messages are poisoned, by queue.

use std::collections::BTreeMap;

use crate::model::QueueName;

/// Counts of the poison queues when they were last asked. One that could not be asked keeps its last count.
#[derive(Debug, Default)]
pub(super) struct PoisonCounts(BTreeMap<QueueName, u64>);

impl PoisonCounts {
    pub(super) fn counted(&mut self, queue: QueueName, messages: u64) {
        self.0.insert(queue, messages);
    }

    /// This worker poisoned one since the queue was asked. The next count says how many there really are.
    pub(super) fn one_more(&mut self, queue: &QueueName) {
        *self.0.entry(queue.clone()).or_default() += 1;
    }

    /// Of all queues; nothing until one was asked.
    pub(super) fn total(&self) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.values().sum())
    }

    pub(super) fn of(&self, queue: &QueueName) -> Option<u64> {
        self.0.get(queue).copied()
    }
}
