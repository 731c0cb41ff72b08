//! The lease of a worker's catalog: how long after a read of the record the worker may assume that its catalog is recorded.
//!
//! ```text
//!   worker    reads generation 1 ◀────────── TRUST ──────────▶ acknowledges nothing until it has read again
//!   another        records generation 2 ◀────────── TRUST ──────────▶ backfills the new view
//! ```
//!
//! A run is acknowledged only while the lease holds. All its writes came before that, so less than [`TRUST`] after the read began, and so less than
//! [`TRUST`] after any later record. A backfill that begins later sees them. A run without a lease is not acknowledged: its message is
//! delivered again, to a worker that has the new view. No two clocks are compared.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::migrations::TRUST;
use evenkeel_engine::{CatalogHold, Unread};
use evenkeel_storage::Clock;

/// Maximum wait of a run for a read of the record. The run keeps a slot meanwhile, and its own account may work while
/// `main` does not.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "could not read the recorded catalog, which may have changed. The job is retried once it can be read"
)]
pub(super) struct RecordUnread;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Holds,
    /// Another catalog is recorded, with this generation.
    Outdated(u32),
}

/// Result of the last read of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastRead {
    /// When the record became known.
    since: Duration,
    /// Start of the last read that found the record unchanged.
    confirmed: Duration,
    /// The recorded generation, if another catalog is recorded. It never becomes `None` again.
    newer: Option<u32>,
    /// The record is the first of the account, so no worker can have an older catalog.
    first: bool,
}

pub struct CatalogLease {
    found: Mutex<LastRead>,
    /// Wakes all waiters after a change of `found`.
    told: Notify,
    wanted: Notify,
    clock: Arc<dyn Clock>,
}

impl CatalogLease {
    /// A catalog that a read begun at `sent` (monotonic) found recorded.
    pub fn new(first: bool, sent: Duration, clock: Arc<dyn Clock>) -> Self {
        let found = LastRead {
            since: clock.monotonic(),
            confirmed: sent,
            newer: None,
            first,
        };
        Self {
            found: Mutex::new(found),
            told: Notify::new(),
            wanted: Notify::new(),
            clock,
        }
    }

    fn found(&self) -> MutexGuard<'_, LastRead> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: impl FnOnce(&mut LastRead)) {
        change(&mut self.found());
        self.told.notify_waiters();
    }

    /// Waits until `says` returns a value.
    async fn until<T>(&self, mut says: impl FnMut(&LastRead) -> Option<T>) -> T {
        loop {
            let mut told = pin!(self.told.notified());
            told.as_mut().enable();
            let found = *self.found();
            if let Some(said) = says(&found) {
                return said;
            }
            told.await;
        }
    }

    /// A read begun at `sent` found the same record.
    pub fn confirm(&self, sent: Duration) {
        self.tell(|found| found.confirmed = sent.max(found.confirmed));
    }

    /// A read begun at `sent` found another record of the same catalog. Workers with the former one may still run,
    /// whatever its number.
    pub fn take_over(&self, sent: Duration) {
        let since = self.clock.monotonic();
        self.tell(|found| {
            *found = LastRead {
                since,
                confirmed: sent.max(found.confirmed),
                newer: found.newer,
                first: false,
            }
        });
    }

    pub fn revoke(&self, recorded: u32) {
        self.tell(|found| found.newer = Some(recorded));
    }

    /// The recorded generation, if another catalog is recorded.
    pub fn newer(&self) -> Option<u32> {
        self.found().newer
    }

    /// Waits until another catalog is recorded; returns its generation.
    pub async fn revoked(&self) -> u32 {
        self.until(|found| found.newer).await
    }

    /// Requests a read of the record.
    pub fn ask(&self) {
        self.wanted.notify_one();
    }

    /// Waits until a read is requested.
    pub async fn asked(&self) {
        self.wanted.notified().await;
    }

    /// Waits until it is known whether the catalog is the recorded one.
    pub async fn standing(&self) -> Standing {
        self.judged(|found| self.clock.monotonic().saturating_sub(found.confirmed) <= TRUST)
            .await
    }

    /// As [`standing`](Self::standing), by a read that begins from now on.
    pub async fn standing_now(&self) -> Standing {
        let now = self.clock.monotonic();
        self.judged(|found| found.confirmed >= now).await
    }

    async fn judged(&self, is_fresh: impl Fn(&LastRead) -> bool) -> Standing {
        self.until(|found| {
            if let Some(recorded) = found.newer {
                return Some(Standing::Outdated(recorded));
            }
            if is_fresh(found) {
                return Some(Standing::Holds);
            }
            self.ask();
            None
        })
        .await
    }

    /// Time until no worker can acknowledge jobs with an older catalog; `None` if none can already.
    pub fn older_ones_for(&self) -> Option<Duration> {
        let LastRead { since, first, .. } = *self.found();
        let left = (since + TRUST).saturating_sub(self.clock.monotonic());
        (!first && !left.is_zero()).then_some(left)
    }
}

#[async_trait]
impl CatalogHold for CatalogLease {
    async fn holds(&self) -> Result<bool, Unread> {
        let standing = timeout(PATIENCE, self.standing())
            .await
            .map_err(|_| RecordUnread)?;
        Ok(standing == Standing::Holds)
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
    async fn a_lease_holds_for_its_time_after_the_look_was_begun_and_then_asks_for_another() {
        let (lease, clock) = lease();
        advance(TRUST).await;
        assert_eq!(lease.standing().await, Standing::Holds);
        advance(SECOND).await;
        assert!(
            timeout(SECOND, lease.standing()).await.is_err(),
            "nobody has looked again"
        );
        lease.asked().await;
        lease.confirm(clock.monotonic());
        assert_eq!(lease.standing().await, Standing::Holds);
        lease.revoke(3);
        assert_eq!(
            (lease.standing().await, lease.newer()),
            (Standing::Outdated(3), Some(3))
        );
        lease.confirm(clock.monotonic());
        lease.take_over(clock.monotonic());
        assert_eq!(
            lease.standing().await,
            Standing::Outdated(3),
            "whoever has it begins anew"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_to_be_known_now_is_not_answered_from_before() {
        let (lease, clock) = lease();
        advance(SECOND).await;
        let asked = async {
            lease.asked().await;
            let sent = clock.monotonic();
            advance(SECOND).await;
            lease.confirm(sent);
        };
        let (standing, ()) = tokio::join!(lease.standing_now(), asked);
        assert_eq!(standing, Standing::Holds);
    }

    #[tokio::test(start_paused = true)]
    async fn older_catalogs_are_waited_for_once_a_record_is_known_and_never_for_the_first() {
        let (lease, clock) = lease();
        assert_eq!(lease.older_ones_for(), Some(TRUST));
        advance(SECOND).await;
        lease.confirm(clock.monotonic());
        assert_eq!(
            lease.older_ones_for(),
            TRUST.checked_sub(SECOND),
            "counted from the first look that found it"
        );
        advance(TRUST).await;
        assert_eq!(lease.older_ones_for(), None);
        let sent = clock.monotonic();
        advance(SECOND).await;
        lease.take_over(sent);
        assert_eq!(
            lease.older_ones_for(),
            Some(TRUST),
            "it may have been recorded while the answer was waited for"
        );
        let first = CatalogLease::new(true, clock.monotonic(), Arc::clone(&clock));
        assert_eq!(first.older_ones_for(), None);
        first.take_over(clock.monotonic());
        assert_eq!(
            first.older_ones_for(),
            Some(TRUST),
            "made anew, it is not the first of all"
        );
    }
}
