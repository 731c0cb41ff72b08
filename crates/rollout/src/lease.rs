//! The lease of a worker's catalog: how long after a read of the record the worker may assume that its catalog is recorded.
//!
//! ```text
//!   worker    reads generation 1 ◀─────── LEASE_DURATION ──────▶ acknowledges nothing until it has read again
//!   another        records generation 2 ◀─────── LEASE_DURATION ──────▶ backfills the new view
//! ```
//!
//! A lease holds for [`LEASE_DURATION`] after the last read of the record began. A run is
//! acknowledged only while the lease holds, and all writes of the run happen before the
//! acknowledgement. Another catalog may have been recorded after the read began. The backfill of
//! its new views starts [`LEASE_DURATION`] after that catalog was recorded, so the backfill sees
//! the writes of the run. A run without a lease is not acknowledged, and its message is delivered
//! again to a worker that has the new views. No two clocks are compared.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::migrations::LEASE_DURATION;
use evenkeel_engine::{CatalogHold, Unread};
use evenkeel_storage::Clock;

/// Maximum time for which a run waits for a read of the record. After that, the run frees its slot,
/// so that jobs of other accounts can run while the account `main` is unavailable.
pub(super) const RECORD_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "could not read the recorded catalog, which may have changed. The job is retried once it can be read"
)]
pub(super) struct RecordUnreadable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogStatus {
    Recorded,
    /// Another catalog is recorded, with this generation.
    Outdated(u32),
}

/// What is known from the last read of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastRead {
    /// Monotonic time at which this worker learned of the record.
    since: Duration,
    /// Monotonic time of the start of the last read that found the worker's catalog.
    confirmed: Duration,
    /// The recorded generation, if another catalog is recorded. It never becomes `None` again.
    newer: Option<u32>,
    /// The record is the first of the account, so no worker can have an older catalog.
    first: bool,
}

pub struct CatalogLease {
    last_read: Mutex<LastRead>,
    /// Wakes all waiters after a change of `last_read`.
    changed: Notify,
    read_wanted: Notify,
    clock: Arc<dyn Clock>,
}

impl CatalogLease {
    /// Creates the lease of a catalog. A read of the record has found this catalog; the read began
    /// at `sent` (monotonic).
    pub fn new(first: bool, sent: Duration, clock: Arc<dyn Clock>) -> Self {
        let last_read = LastRead {
            since: clock.monotonic(),
            confirmed: sent,
            newer: None,
            first,
        };
        Self {
            last_read: Mutex::new(last_read),
            changed: Notify::new(),
            read_wanted: Notify::new(),
            clock,
        }
    }

    fn last_read(&self) -> MutexGuard<'_, LastRead> {
        self.last_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut LastRead)) {
        change(&mut self.last_read());
        self.changed.notify_waiters();
    }

    async fn wait_for<T>(&self, mut select: impl FnMut(&LastRead) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let last_read = *self.last_read();
            if let Some(value) = select(&last_read) {
                return value;
            }
            changed.await;
        }
    }

    /// Confirms the lease: a read that began at `sent` found the same record.
    pub fn confirm(&self, sent: Duration) {
        self.update(|last_read| last_read.confirmed = sent.max(last_read.confirmed));
    }

    /// Confirms the lease with another record of the same catalog, found by a read that began at
    /// `sent`. The time to wait for older workers begins anew, because workers with the former
    /// record may still run.
    pub fn adopt(&self, sent: Duration) {
        let since = self.clock.monotonic();
        self.update(|last_read| {
            *last_read = LastRead {
                since,
                confirmed: sent.max(last_read.confirmed),
                newer: last_read.newer,
                first: false,
            }
        });
    }

    pub fn revoke(&self, recorded: u32) {
        self.update(|last_read| last_read.newer = Some(recorded));
    }

    /// The recorded generation, if another catalog is recorded.
    pub fn newer(&self) -> Option<u32> {
        self.last_read().newer
    }

    /// Waits until another catalog is recorded; returns its generation.
    pub async fn revoked(&self) -> u32 {
        self.wait_for(|last_read| last_read.newer).await
    }

    pub fn request_read(&self) {
        self.read_wanted.notify_one();
    }

    pub async fn read_requested(&self) {
        self.read_wanted.notified().await;
    }

    /// Waits until it is known whether the catalog is the recorded one.
    pub async fn status(&self) -> CatalogStatus {
        self.status_by(|last_read| {
            self.clock.monotonic().saturating_sub(last_read.confirmed) <= LEASE_DURATION
        })
        .await
    }

    /// Like [`status`](Self::status), but the read that confirms the catalog must begin after this call.
    pub async fn status_now(&self) -> CatalogStatus {
        let now = self.clock.monotonic();
        self.status_by(|last_read| last_read.confirmed >= now).await
    }

    async fn status_by(&self, is_fresh: impl Fn(&LastRead) -> bool) -> CatalogStatus {
        self.wait_for(|last_read| {
            if let Some(recorded) = last_read.newer {
                return Some(CatalogStatus::Outdated(recorded));
            }
            if is_fresh(last_read) {
                return Some(CatalogStatus::Recorded);
            }
            self.request_read();
            None
        })
        .await
    }

    /// Time until no worker can acknowledge jobs with an older catalog; `None` if that time is
    /// over.
    pub fn time_until_older_workers_end(&self) -> Option<Duration> {
        let LastRead { since, first, .. } = *self.last_read();
        let left = (since + LEASE_DURATION).saturating_sub(self.clock.monotonic());
        (!first && !left.is_zero()).then_some(left)
    }
}

#[async_trait]
impl CatalogHold for CatalogLease {
    async fn holds(&self) -> Result<bool, Unread> {
        let status = timeout(RECORD_TIMEOUT, self.status())
            .await
            .map_err(|_| RecordUnreadable)?;
        Ok(status == CatalogStatus::Recorded)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::{advance, timeout};

    use super::*;
    use evenkeel_storage::system::SystemClock;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease() -> (CatalogLease, Arc<dyn Clock>) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        (
            CatalogLease::new(false, clock.monotonic(), Arc::clone(&clock)),
            clock,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_holds_for_its_duration_after_the_read_began_and_then_requests_another() {
        let (lease, clock) = lease();
        advance(LEASE_DURATION).await;
        assert_eq!(lease.status().await, CatalogStatus::Recorded);
        advance(SECOND).await;
        assert!(
            timeout(SECOND, lease.status()).await.is_err(),
            "no read has confirmed the lease"
        );
        lease.read_requested().await;
        lease.confirm(clock.monotonic());
        assert_eq!(lease.status().await, CatalogStatus::Recorded);
        lease.revoke(3);
        assert_eq!(
            (lease.status().await, lease.newer()),
            (CatalogStatus::Outdated(3), Some(3))
        );
        lease.confirm(clock.monotonic());
        lease.adopt(clock.monotonic());
        assert_eq!(
            lease.status().await,
            CatalogStatus::Outdated(3),
            "a revoked lease stays revoked"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_as_of_now_needs_a_read_that_begins_now() {
        let (lease, clock) = lease();
        advance(SECOND).await;
        let read = async {
            lease.read_requested().await;
            let sent = clock.monotonic();
            advance(SECOND).await;
            lease.confirm(sent);
        };
        let (status, ()) = tokio::join!(lease.status_now(), read);
        assert_eq!(status, CatalogStatus::Recorded);
    }

    #[tokio::test(start_paused = true)]
    async fn older_workers_are_waited_for_after_a_record_and_never_after_the_first() {
        let (lease, clock) = lease();
        assert_eq!(lease.time_until_older_workers_end(), Some(LEASE_DURATION));
        advance(SECOND).await;
        lease.confirm(clock.monotonic());
        assert_eq!(
            lease.time_until_older_workers_end(),
            LEASE_DURATION.checked_sub(SECOND),
            "the time counts from the first read that found the record"
        );
        advance(LEASE_DURATION).await;
        assert_eq!(lease.time_until_older_workers_end(), None);
        let sent = clock.monotonic();
        advance(SECOND).await;
        lease.adopt(sent);
        assert_eq!(
            lease.time_until_older_workers_end(),
            Some(LEASE_DURATION),
            "the record may have been written after the read began"
        );
        let first = CatalogLease::new(true, clock.monotonic(), Arc::clone(&clock));
        assert_eq!(first.time_until_older_workers_end(), None);
        first.adopt(clock.monotonic());
        assert_eq!(
            first.time_until_older_workers_end(),
            Some(LEASE_DURATION),
            "a recreated record is not the account's first"
        );
    }
}
