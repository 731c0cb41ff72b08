//! Settlements that a store did not accept before their leases ended.
//!
//! After an outage the messages in flight have long been visible again, but their pop receipts stay
//! valid until another receiver gets them. Before this worker polls a queue again, it must settle
//! these messages. Otherwise it would receive them itself, and the outage would cost each message
//! an attempt. So the receiver of a queue waits for a limited time until the messages of that queue
//! are settled.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::ordered_watch::OrderedWatch;
use evenkeel_model::{AccountName, QueueName};

/// Maximum wait for stuck settlements. It is longer than the longest wait between two attempts of a
/// settlement.
const MAX_WAIT: Duration = Duration::from_secs(40);

type Place = (AccountName, QueueName);

pub(crate) struct UnsettledMessages {
    counts: OrderedWatch<BTreeMap<Place, usize>>,
    went_through: Notify,
}

pub(crate) struct UnsettledMessage<'a> {
    all: &'a UnsettledMessages,
    place: Place,
}

impl UnsettledMessages {
    pub(crate) fn new() -> Self {
        Self {
            counts: OrderedWatch::new(BTreeMap::new()),
            went_through: Notify::new(),
        }
    }

    /// Registers a settlement whose message may become visible before the next attempt.
    pub(crate) fn enter(&self, account: &AccountName, queue: &QueueName) -> UnsettledMessage<'_> {
        let place = (account.clone(), queue.clone());
        self.counts.update(|counts| {
            *counts.entry(place.clone()).or_default() += 1;
            true
        });
        UnsettledMessage { all: self, place }
    }

    pub(crate) fn has(&self, account: &AccountName, queue: &QueueName) -> bool {
        self.counts.read(|counts| {
            !counts.is_empty() && counts.contains_key(&(account.clone(), queue.clone()))
        })
    }

    /// Waits until all messages of the queue are settled, or `MAX_WAIT` is over.
    pub(crate) async fn wait_settled(&self, account: &AccountName, queue: &QueueName) {
        let place = (account.clone(), queue.clone());
        drop(
            timeout(
                MAX_WAIT,
                self.counts
                    .wait_until(|counts| !counts.contains_key(&place)),
            )
            .await,
        );
    }

    /// Waits until another settlement succeeds, which means that the store answers again.
    pub(crate) async fn wait_for_another(&self) {
        self.went_through.notified().await;
    }
}

impl UnsettledMessage<'_> {
    /// Wakes all other settlements. The success of this settlement shows that the store answers
    /// again.
    pub(crate) fn report_settled(self) {
        self.all.went_through.notify_waiters();
    }
}

impl Drop for UnsettledMessage<'_> {
    fn drop(&mut self) {
        self.all.counts.update(|counts| {
            match counts.get_mut(&self.place) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(counts.remove(&self.place)),
            }
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_receiver_waits_for_the_settlements_of_its_own_queue_only() {
        let (unsettled, began) = (UnsettledMessages::new(), Instant::now());
        let (one, other) = (AccountName::main(), AccountName::new("other").unwrap());
        let queue = |name: &str| QueueName::new(name).unwrap();
        let entered = [
            unsettled.enter(&one, &queue("jobs")),
            unsettled.enter(&one, &queue("jobs")),
        ];
        for (account, name) in [(&other, "jobs"), (&one, "more-jobs")] {
            unsettled.wait_settled(account, &queue(name)).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        let [first, second] = entered;
        first.report_settled();
        unsettled.wait_settled(&one, &queue("jobs")).await;
        assert!(began.elapsed() >= MAX_WAIT, "another one is stuck");
        drop(second);
        let then = began.elapsed();
        unsettled.wait_settled(&one, &queue("jobs")).await;
        assert_eq!(began.elapsed(), then);
    }
}
