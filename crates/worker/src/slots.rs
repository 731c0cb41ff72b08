//! The slots of a queue. Each message in flight, or each running job of a batch, takes one slot.
//! The slots also measure throughput, so that their number can be adapted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::adaptive_limit::Window;
use evenkeel_model::limits;

/// How long a receiver waits for half of the slots. Short jobs free this many slots sooner. With
/// long jobs, the receiver then takes the slots that are free, so that they do not stay unused.
const MAX_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct Slots(Arc<SlotsState>);

#[derive(Debug)]
struct SlotsState {
    free: Arc<Semaphore>,
    count: AtomicUsize,
    /// Slots in use beyond the limit. Each is removed when its user frees it.
    surplus: AtomicUsize,
    ended: AtomicU64,
    throttled: AtomicU64,
    /// Whether a receiver had to wait because no slot was free.
    full: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Slot {
    permit: Option<OwnedSemaphorePermit>,
    slots: Slots,
}

pub(crate) const BATCH: usize = limits::QUEUE_BATCH as usize;

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(SlotsState {
            free: Arc::new(Semaphore::new(count)),
            count: AtomicUsize::new(count),
            surplus: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            full: AtomicBool::new(false),
        }))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Changes the number of slots. If more slots are in use, surplus slots are removed when they
    /// become free.
    pub(crate) fn resize(&self, count: usize) {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        let before = self.0.count.swap(count, Ordering::SeqCst);
        if count > before {
            let kept = self.take_surplus(count - before);
            self.0.free.add_permits(count - before - kept);
        } else {
            self.0.surplus.fetch_add(before - count, Ordering::SeqCst);
            self.drop_surplus();
        }
    }

    pub(crate) fn drop_surplus(&self) {
        let surplus = self.take_surplus(usize::MAX);
        let left = surplus - self.0.free.forget_permits(surplus);
        self.0.surplus.fetch_add(left, Ordering::SeqCst);
    }

    /// Reduces the surplus by at most `most`. Returns the number by which it was reduced.
    fn take_surplus(&self, most: usize) -> usize {
        let taken = self
            .0
            .surplus
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |surplus| {
                Some(surplus - surplus.min(most))
            });
        taken.unwrap_or_else(|surplus| surplus).min(most)
    }

    /// Counts a run that ended. `throttled` is true if a store asked the run to retry later.
    pub(crate) fn ended(&self, throttled: bool) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
        self.0
            .throttled
            .fetch_add(u64::from(throttled), Ordering::Relaxed);
    }

    /// Measurements since the last [`reset`](Self::reset), `length` ago.
    pub(crate) fn window(&self, length: Duration) -> Window {
        let SlotsState {
            ended,
            throttled,
            full,
            ..
        } = self.0.as_ref();
        Window {
            length,
            ended: ended.load(Ordering::Relaxed),
            throttled: throttled.load(Ordering::Relaxed),
            full: full.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn reset(&self) {
        self.0.ended.store(0, Ordering::Relaxed);
        self.0.throttled.store(0, Ordering::Relaxed);
        self.0.full.store(false, Ordering::Relaxed);
    }

    /// Wraps a permit taken by [`acquire_batch`](Self::acquire_batch).
    pub(crate) fn slot(&self, permit: OwnedSemaphorePermit) -> Slot {
        Slot {
            permit: Some(permit),
            slots: self.clone(),
        }
    }

    /// Waits for one slot. Cancel-safe. Never returns `None`, because the semaphore is never
    /// closed.
    pub(crate) async fn acquire(&self) -> Option<Slot> {
        let free = || Arc::clone(&self.0.free);
        if let Ok(permit) = free().try_acquire_owned() {
            return Some(self.slot(permit));
        }
        self.0.full.store(true, Ordering::Relaxed);
        free()
            .acquire_owned()
            .await
            .ok()
            .map(|permit| self.slot(permit))
    }

    /// Waits until half of the slots, or enough slots for a whole batch, are free. After a second,
    /// a single free slot is enough. Takes all free slots, up to a batch. Cancel-safe. Never
    /// returns `None`, because the semaphore is never closed.
    pub(crate) async fn acquire_batch(&self) -> Option<OwnedSemaphorePermit> {
        let free = || Arc::clone(&self.0.free);
        let refill =
            u32::try_from(self.count().div_ceil(2).min(BATCH)).unwrap_or(limits::QUEUE_BATCH);
        let mut taken = if let Ok(taken) = free().try_acquire_many_owned(refill) {
            taken
        } else {
            self.0.full.store(true, Ordering::Relaxed);
            match timeout(MAX_WAIT, free().acquire_many_owned(refill)).await {
                Ok(taken) => taken.ok()?,
                Err(_) => free().acquire_owned().await.ok()?,
            }
        };
        let more = self
            .0
            .free
            .available_permits()
            .min(BATCH.saturating_sub(taken.num_permits()));
        if let Ok(more) = u32::try_from(more)
            && more > 0
            && let Ok(more) = free().try_acquire_many_owned(more)
        {
            taken.merge(more);
        }
        Some(taken)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        if self.slots.take_surplus(1) == 1 {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_taken_when_half_is_free() {
        let slots = Slots::new(64);
        let first = slots.acquire_batch().await.unwrap();
        let mut second = slots.acquire_batch().await.unwrap();
        assert_eq!((first.num_permits(), second.num_permits()), (32, 32));
        drop(second.split(31));
        assert!(
            timeout(Duration::from_millis(500), slots.acquire_batch())
                .await
                .is_err(),
            "31 of 64 are not half"
        );
        drop(second);
        assert_eq!(slots.acquire_batch().await.unwrap().num_permits(), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_jobs_do_not_keep_the_other_slots_empty() {
        let slots = Slots::new(4);
        let mut slow = slots.acquire_batch().await.unwrap();
        assert_eq!(slow.num_permits(), 4);
        drop(slow.split(1));
        assert_eq!(slots.acquire_batch().await.unwrap().num_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn slots_are_added_at_once_and_removed_as_they_become_free() {
        let slots = Slots::new(4);
        let mut taken = slots.acquire_batch().await.unwrap();
        let mut used: Vec<Slot> = std::iter::from_fn(|| taken.split(1))
            .map(|permit| slots.slot(permit))
            .collect();
        assert_eq!(used.len(), 4);
        slots.resize(6);
        assert_eq!(slots.0.free.available_permits(), 2);
        slots.resize(3);
        assert_eq!((slots.count(), slots.0.free.available_permits()), (3, 0));
        used.pop();
        assert_eq!(slots.0.free.available_permits(), 0, "three are in use");
        slots.resize(4);
        assert_eq!(slots.0.free.available_permits(), 1);
        slots.resize(2);
        drop(used);
        assert_eq!(slots.0.free.available_permits(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_is_taken_and_a_wait_shows() {
        let slots = Slots::new(2);
        let (first, _second) = (
            slots.acquire().await.unwrap(),
            slots.acquire().await.unwrap(),
        );
        assert!(!slots.window(MAX_WAIT).full);
        assert!(
            timeout(Duration::from_secs(1), slots.acquire())
                .await
                .is_err()
        );
        assert!(slots.window(MAX_WAIT).full);
        drop(first);
        slots.acquire().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_waits_for_slots_marks_the_window_as_full() {
        let slots = Slots::new(2);
        let first = slots.acquire_batch().await.unwrap();
        assert!(!slots.window(MAX_WAIT).full);
        assert!(
            timeout(Duration::from_secs(3), slots.acquire_batch())
                .await
                .is_err()
        );
        slots.ended(false);
        slots.ended(true);
        assert_eq!(
            slots.window(MAX_WAIT),
            Window {
                length: MAX_WAIT,
                ended: 2,
                throttled: 1,
                full: true
            }
        );
        slots.reset();
        assert_eq!(
            slots.window(MAX_WAIT),
            Window {
                length: MAX_WAIT,
                ended: 0,
                throttled: 0,
                full: false
            }
        );
        drop(first);
    }
}
