//! Settlements that a store keeps from going through.
//!
//! After an outage the messages in flight have long been visible again, but their receipts are good until
//! another receiver gets them. If this worker received before it had settled them, it would get its own messages, and
//! each would have lost an attempt to the outage. So receivers wait for them, for a while.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::shown::Shown;

/// How long receivers wait: more than the longest wait between two tries of a settlement.
const PATIENCE: Duration = Duration::from_secs(40);

/// The settlements that are stuck.
pub(crate) struct Stuck {
    count: Shown<usize>,
    went_through: Notify,
}

/// One stuck settlement.
pub(crate) struct StuckOne<'a>(&'a Stuck);

impl Stuck {
    pub(crate) fn new() -> Self {
        Self { count: Shown::new(0), went_through: Notify::new() }
    }

    /// A settlement is stuck: its message may become visible before it is tried again.
    pub(crate) fn enter(&self) -> StuckOne<'_> {
        self.count.change(|count| {
            *count += 1;
            true
        });
        StuckOne(self)
    }

    /// Waits until none is stuck, a while at most.
    pub(crate) async fn settled(&self) {
        drop(timeout(PATIENCE, self.count.until(|count| *count == 0)).await);
    }

    /// Waits until another one goes through: the store answers again.
    pub(crate) async fn another(&self) {
        self.went_through.notified().await;
    }
}

impl StuckOne<'_> {
    /// It went through.
    pub(crate) fn through(self) {
        self.0.went_through.notify_waiters();
    }
}

impl Drop for StuckOne<'_> {
    fn drop(&mut self) {
        self.0.count.change(|count| {
            *count = count.saturating_sub(1);
            true
        });
    }
}
