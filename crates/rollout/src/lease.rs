//! The lease of a worker's catalog: how long after a look at the record the worker may take its catalog for the recorded one.
//!
//! ```text
//!   worker    reads generation 1 ◀────────── TRUST ──────────▶ acknowledges nothing more before it has read again
//!   another        records generation 2 ◀────────── TRUST ──────────▶ backfills the new view
//! ```
//!
//! A run may end well only while the lease holds. All that it wrote was written before that, so less than [`TRUST`] after the look was
//! begun, and so less than [`TRUST`] after any later record. A backfill that begins later sees it. A run without a lease is
//! not acknowledged: its message comes again, to a worker that has the new view. No clock is compared with another.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::migrations::TRUST;
use evenkeel_engine::{CatalogHold, Unread};
use evenkeel_storage::Clock;

/// How long a run waits for a look at the record: its own account may work while `main` does not, and it keeps a slot.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The record could not be read for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the recorded catalog could not be read: another one may be recorded by now, and the job is done again when it can be"
)]
pub(super) struct RecordUnread;

/// How the catalog that a run was done by stands to the recorded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is the recorded one.
    Holds,
    /// Another one is in force in this worker by now.
    Exchanged,
    /// It is not the recorded one, which has this generation.
    Outdated(u32),
}

/// Result of the last look at the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastRead {
    /// The generation in force.
    generation: u32,
    /// Since when it is known to be the recorded one.
    since: Duration,
    /// When the last look that found it so was begun.
    confirmed: Duration,
    /// The recorded generation, where the catalog in force does not fit it.
    newer: Option<u32>,
    /// No worker can have an older one: it is the first of all.
    first: bool,
}

pub struct CatalogLease {
    found: Mutex<LastRead>,
    /// Wakes those who wait, in the order in which they began to.
    told: Notify,
    wanted: Notify,
    clock: Arc<dyn Clock>,
}

impl CatalogLease {
    /// Of a generation that a look begun at `sent` (monotonic) found recorded, and that may be the first of all.
    pub fn new(generation: u32, first: bool, sent: Duration, clock: Arc<dyn Clock>) -> Self {
        let found = LastRead {
            generation,
            since: sent,
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

    /// Waits for a finding of this kind.
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

    /// A look begun at `sent` found this generation recorded, or one that the catalog in force fits as well.
    pub fn confirm(&self, generation: u32, sent: Duration) {
        self.tell(|found| {
            let is_same = found.generation == generation;
            let since = if is_same && found.newer.is_none() {
                found.since
            } else {
                sent
            };
            *found = LastRead {
                generation,
                since,
                confirmed: sent.max(since),
                newer: None,
                first: found.first && is_same,
            };
        });
    }

    /// A look begun at `sent` found another record than before, of this generation, and it is in force from now on. One that was made anew
    /// may repeat a number: workers with the former one may be about.
    pub fn take_over(&self, generation: u32, sent: Duration) {
        self.tell(|found| {
            *found = LastRead {
                generation,
                since: sent,
                confirmed: sent,
                newer: None,
                first: false,
            }
        });
    }

    /// A look found a catalog recorded that is not the one in force.
    pub fn revoke(&self, recorded: u32) {
        self.tell(|found| found.newer = Some(recorded));
    }

    /// The recorded generation, where the catalog in force does not fit it.
    pub fn newer(&self) -> Option<u32> {
        self.found().newer
    }

    /// Waits until the catalog in force is not the recorded one; the recorded generation.
    pub async fn revoked(&self) -> u32 {
        self.until(|found| found.newer).await
    }

    /// Waits until the catalog in force is the recorded one again.
    pub async fn restored(&self) {
        self.until(|found| found.newer.is_none().then_some(()))
            .await;
    }

    /// Asks for a look.
    pub fn ask(&self) {
        self.wanted.notify_one();
    }

    /// Waits until a look is asked for.
    pub async fn asked(&self) {
        self.wanted.notified().await;
    }

    /// How a run by this generation stands, as soon as that is known.
    pub async fn standing(&self, generation: u32) -> Standing {
        self.judged(generation, |found| {
            self.clock.monotonic().saturating_sub(found.confirmed) <= TRUST
        })
        .await
    }

    /// As [`standing`](Self::standing), by a look that begins from now on.
    pub async fn standing_now(&self, generation: u32) -> Standing {
        let now = self.clock.monotonic();
        self.judged(generation, |found| found.confirmed >= now)
            .await
    }

    async fn judged(&self, generation: u32, is_fresh: impl Fn(&LastRead) -> bool) -> Standing {
        self.until(|found| {
            if let Some(recorded) = found.newer {
                return Some(Standing::Outdated(recorded));
            }
            if found.generation != generation {
                return Some(Standing::Exchanged);
            }
            if is_fresh(found) {
                return Some(Standing::Holds);
            }
            self.ask();
            None
        })
        .await
    }

    /// How long until no worker acknowledges by an older catalog any more; `None` where that is so.
    pub fn older_ones_for(&self) -> Option<Duration> {
        let LastRead { since, first, .. } = *self.found();
        let left = (since + TRUST).saturating_sub(self.clock.monotonic());
        (!first && !left.is_zero()).then_some(left)
    }
}

/// The lease, as the engine of one generation asks for it.
pub(super) struct HeldCatalog {
    pub(super) lease: Arc<CatalogLease>,
    pub(super) generation: u32,
}

#[async_trait]
impl CatalogHold for HeldCatalog {
    async fn holds(&self) -> Result<bool, Unread> {
        let standing = timeout(PATIENCE, self.lease.standing(self.generation))
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
            CatalogLease::new(2, false, clock.monotonic(), Arc::clone(&clock)),
            clock,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_holds_for_its_time_after_the_look_was_begun_and_then_asks_for_another() {
        let (lease, clock) = lease();
        advance(TRUST).await;
        assert_eq!(lease.standing(2).await, Standing::Holds);
        advance(SECOND).await;
        assert!(
            timeout(SECOND, lease.standing(2)).await.is_err(),
            "nobody has looked again"
        );
        lease.asked().await;
        lease.confirm(2, clock.monotonic());
        assert_eq!(lease.standing(2).await, Standing::Holds);
        assert_eq!(lease.standing(1).await, Standing::Exchanged);
        lease.revoke(3);
        assert_eq!(
            (lease.standing(2).await, lease.newer()),
            (Standing::Outdated(3), Some(3))
        );
        lease.confirm(3, clock.monotonic());
        assert_eq!(lease.standing(3).await, Standing::Holds);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_to_be_known_now_is_not_answered_from_before() {
        let (lease, clock) = lease();
        advance(SECOND).await;
        let asked = async {
            lease.asked().await;
            let sent = clock.monotonic();
            advance(SECOND).await;
            lease.confirm(2, sent);
        };
        let (standing, ()) = tokio::join!(lease.standing_now(2), asked);
        assert_eq!(standing, Standing::Holds);
    }

    #[tokio::test(start_paused = true)]
    async fn older_catalogs_are_waited_for_once_a_generation_is_known_and_never_for_the_first() {
        let (lease, clock) = lease();
        assert_eq!(lease.older_ones_for(), Some(TRUST));
        advance(SECOND).await;
        lease.confirm(2, clock.monotonic());
        assert_eq!(
            lease.older_ones_for(),
            TRUST.checked_sub(SECOND),
            "counted from the first look that found it"
        );
        advance(TRUST).await;
        assert_eq!(lease.older_ones_for(), None);
        lease.take_over(2, clock.monotonic());
        assert_eq!(
            lease.older_ones_for(),
            Some(TRUST),
            "another record of the same number"
        );
        lease.confirm(3, clock.monotonic());
        assert_eq!(lease.older_ones_for(), Some(TRUST));
        let first = CatalogLease::new(1, true, clock.monotonic(), Arc::clone(&clock));
        assert_eq!(first.older_ones_for(), None);
        first.take_over(1, clock.monotonic());
        assert_eq!(
            first.older_ones_for(),
            Some(TRUST),
            "made anew, it is not the first of all"
        );
    }
}
