//! Counts the poisoned messages of each queue.

use std::collections::BTreeMap;

use evenkeel_model::QueueName;

/// The last counts of the poison queues. If a queue cannot be counted, its last count is kept.
#[derive(Debug, Default)]
pub(super) struct PoisonCounts(BTreeMap<QueueName, PoisonCount>);

#[derive(Debug, Default)]
struct PoisonCount {
    messages: u64,
    acknowledged: u64,
}

impl PoisonCounts {
    pub(super) fn counted(&mut self, queue: QueueName, messages: u64) {
        let count = self.0.entry(queue).or_default();
        count.messages = messages;
        // Acknowledged messages may have been requeued or discarded. Without this limit, new messages would then count
        // as acknowledged.
        count.acknowledged = count.acknowledged.min(messages);
    }

    /// Adds a message that this worker has poisoned. The next count corrects the number.
    pub(super) fn one_more(&mut self, queue: &QueueName) {
        self.0.entry(queue.clone()).or_default().messages += 1;
    }

    pub(super) fn acknowledge(&mut self) {
        self.0
            .values_mut()
            .for_each(|count| count.acknowledged = count.messages);
    }

    /// Returns the sum of all queues; `None` before the first count.
    pub(super) fn total(&self) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.values().map(|count| count.messages).sum())
    }

    /// Returns the number of messages that have not been acknowledged, and of those that have.
    pub(super) fn by_news(&self) -> (u64, u64) {
        let new = self
            .0
            .values()
            .map(|count| count.messages.saturating_sub(count.acknowledged))
            .sum();
        (new, self.0.values().map(|count| count.acknowledged).sum())
    }

    pub(super) fn of(&self, queue: &QueueName) -> Option<u64> {
        self.0.get(queue).map(|count| count.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_poison_is_news_again_after_one_more_message() {
        let (mut counts, jobs) = (PoisonCounts::default(), QueueName::new("jobs").unwrap());
        counts.counted(jobs.clone(), 3);
        assert_eq!(counts.by_news(), (3, 0));
        counts.acknowledge();
        assert_eq!((counts.by_news(), counts.total()), ((0, 3), Some(3)));
        counts.one_more(&jobs);
        assert_eq!(counts.by_news(), (1, 3));
        counts.counted(jobs.clone(), 2);
        assert_eq!(
            counts.by_news(),
            (0, 2),
            "two of four messages disappeared, and the new message is assumed to be one of the two"
        );
        counts.counted(jobs, 3);
        assert_eq!(counts.by_news(), (1, 2), "one message was poisoned later");
    }
}
