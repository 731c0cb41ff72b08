//! Settlements that a store keeps from going through.
//!
//! After an outage the messages in flight have long been visible again, but their receipts are good until
//! another receiver gets them. If this worker received before it had settled them, it would get its own messages, and
//! each would have lost an attempt to the outage. So the receiver of their queue waits for them, for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::shown::Shown;
use evenkeel_model::{AccountName, QueueName};

/// How long receivers wait: more than the longest wait between two tries of a settlement.
const PATIENCE: Duration = Duration::from_secs(40);

/// A queue of an account.
type Place = (AccountName, QueueName);

/// The settlements that are stuck.
pub(crate) struct Stuck {
    /// How many, by queue.
    counts: Shown<BTreeMap<Place, usize>>,
    went_through: Notify,
}

/// One stuck settlement.
pub(crate) struct StuckOne<'a> {
    all: &'a Stuck,
    place: Place,
}

impl Stuck {
    pub(crate) fn new() -> Self {
        Self {
            counts: Shown::new(BTreeMap::new()),
            went_through: Notify::new(),
        }
    }

    /// A settlement is stuck: its message may become visible before it is tried again.
    pub(crate) fn enter(&self, account: &AccountName, queue: &QueueName) -> StuckOne<'_> {
        let place = (account.clone(), queue.clone());
        self.counts.change(|counts| {
            *counts.entry(place.clone()).or_default() += 1;
            true
        });
        StuckOne { all: self, place }
    }

    /// Whether any of a queue is stuck.
    pub(crate) fn has(&self, account: &AccountName, queue: &QueueName) -> bool {
        self.counts.look(|counts| {
            !counts.is_empty() && counts.contains_key(&(account.clone(), queue.clone()))
        })
    }

    /// Waits until none of a queue is stuck, a while at most.
    pub(crate) async fn settled(&self, account: &AccountName, queue: &QueueName) {
        let place = (account.clone(), queue.clone());
        drop(
            timeout(
                PATIENCE,
                self.counts.until(|counts| !counts.contains_key(&place)),
            )
            .await,
        );
    }

    /// Waits until another one goes through: the store answers again.
    pub(crate) async fn another(&self) {
        self.went_through.notified().await;
    }
}

impl StuckOne<'_> {
    /// It went through.
    pub(crate) fn through(self) {
        self.all.went_through.notify_waiters();
    }
}

impl Drop for StuckOne<'_> {
    fn drop(&mut self) {
        self.all.counts.change(|counts| {
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
    async fn a_receiver_waits_for_the_settlements_of_its_own_queue_alone() {
        let (stuck, began) = (Stuck::new(), Instant::now());
        let (one, other) = (AccountName::main(), AccountName::new("other").unwrap());
        let queue = |name: &str| QueueName::new(name).unwrap();
        let entered = [
            stuck.enter(&one, &queue("jobs")),
            stuck.enter(&one, &queue("jobs")),
        ];
        for (account, name) in [(&other, "jobs"), (&one, "more-jobs")] {
            stuck.settled(account, &queue(name)).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        let [first, second] = entered;
        first.through();
        stuck.settled(&one, &queue("jobs")).await;
        assert!(began.elapsed() >= PATIENCE, "another one is stuck");
        drop(second);
        let then = began.elapsed();
        stuck.settled(&one, &queue("jobs")).await;
        assert_eq!(began.elapsed(), then);
    }
}
