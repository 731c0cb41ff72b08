//! The slots of a queue: how many of its messages are in flight at most.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::model::limits;

/// How long a receiver waits for half of the slots before it makes do with fewer: quick jobs free half in
/// less, and slow ones must not keep the free slots empty.
const PATIENCE: Duration = Duration::from_secs(1);

/// The slots that the shards of one queue share.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    refill: u32,
    count: usize,
}

/// The most messages that one Get returns.
pub(crate) const BATCH: usize = limits::QUEUE_BATCH as usize;

impl Slots {
    /// At least one slot.
    pub(crate) fn new(count: usize) -> Self {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        let refill = u32::try_from(count.div_ceil(2).min(BATCH)).unwrap_or(limits::QUEUE_BATCH);
        Self { free: Arc::new(Semaphore::new(count)), refill, count }
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Waits until half of the slots, or a batch, are free, a second at most, else until one is; then takes
    /// what is free, up to a batch. Safe to drop. `None` never happens: the slots are not closed.
    pub(crate) async fn refill(&self) -> Option<OwnedSemaphorePermit> {
        let half = timeout(PATIENCE, Arc::clone(&self.free).acquire_many_owned(self.refill)).await;
        let mut taken = match half {
            Ok(taken) => taken.ok()?,
            Err(_) => Arc::clone(&self.free).acquire_owned().await.ok()?,
        };
        let more = self.free.available_permits().min(BATCH.saturating_sub(taken.num_permits()));
        if let Ok(more) = u32::try_from(more)
            && more > 0
            && let Ok(more) = Arc::clone(&self.free).try_acquire_many_owned(more)
        {
            taken.merge(more);
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_taken_when_half_is_free() {
        let slots = Slots::new(64);
        let first = slots.refill().await.unwrap();
        let mut second = slots.refill().await.unwrap();
        assert_eq!((first.num_permits(), second.num_permits()), (32, 32));
        drop(second.split(31));
        assert!(timeout(Duration::from_millis(500), slots.refill()).await.is_err(), "31 of 64 are not half");
        drop(second);
        assert_eq!(slots.refill().await.unwrap().num_permits(), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_jobs_do_not_keep_the_other_slots_empty() {
        let slots = Slots::new(4);
        let mut slow = slots.refill().await.unwrap();
        assert_eq!(slow.num_permits(), 4);
        drop(slow.split(1));
        assert_eq!(slots.refill().await.unwrap().num_permits(), 1);
    }
}
