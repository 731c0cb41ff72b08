//! The byte budget over everything that jobs hold in memory.
//!
//! The budget is divided into five shares. A job takes at most one part of each share at a time, in this order:
//!
//! ```text
//!   messages ──▶ rows ──▶ bodies ──▶ values ──▶ documents
//!   a message    the        a staged     blocks of large values   lists in blobs and
//!   and its job  primary,   entity, a    on their way, files      archived documents
//!                if large   page of rows of archived tables       while they are read
//! ```
//!
//! A job that has a part of one share waits only for later shares. The last share is therefore always given back, then
//! the one before it, and so on, so no two jobs wait for each other. Requests are served in order. A request for more
//! than a whole share gets the whole share, so its job runs alone. Unknown sizes are estimated upward, and the excess
//! is given back once the size is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use evenkeel_model::settings::DEFAULT_MEMORY;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::env::waiting::{SharePart, exclude_from_timeout, part_of};

/// Bytes per permit of the semaphore. A request for permits is a `u32`, so permits of one byte would limit it to 4 GiB.
const UNIT: u64 = 1 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryShare {
    Messages,
    /// Large primaries of jobs about one primary, and the copies made of them.
    Rows,
    /// Staged entities, and pages of queries of jobs about whole tables.
    Bodies,
    /// Blocks of large values, and files of archived tables.
    Values,
    /// Lists in blobs, and archived documents. A job holds this memory while it reads a list or a document. If the job
    /// changes the list, it holds the memory until the list is written. Such a job first announces the change, then
    /// waits for its turn to write the list (`DocumentTurns`), and only then takes the memory. While a job holds the
    /// memory, it waits only for the store, neither for a turn nor for other memory.
    Documents,
}

impl MemoryShare {
    /// Every share, in the order in which a job takes from them.
    pub const ALL: [Self; 5] = [
        Self::Messages,
        Self::Rows,
        Self::Bodies,
        Self::Values,
        Self::Documents,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Rows => "rows",
            Self::Bodies => "bodies",
            Self::Values => "values",
            Self::Documents => "documents",
        }
    }

    const fn sixteenths(self) -> u64 {
        match self {
            Self::Messages | Self::Bodies => 3,
            Self::Rows | Self::Documents => 2,
            Self::Values => 6,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    pub bytes: u64,
    pub held: u64,
    pub waiting: usize,
}

pub type MemoryListener = Box<dyn Fn(MemoryShare, MemoryUse) + Send + Sync>;

#[derive(Debug)]
pub struct MemoryBudget {
    shares: [Arc<Share>; MemoryShare::ALL.len()],
}

struct Share {
    kind: MemoryShare,
    units: u32,
    free: Arc<Semaphore>,
    held: AtomicU64,
    waiting: AtomicUsize,
    listener: Option<Arc<MemoryListener>>,
}

#[derive(Debug)]
pub struct MemoryGrant {
    share: Arc<Share>,
    permit: Option<OwnedSemaphorePermit>,
    part: Option<SharePart>,
}

struct WaitingJob<'s>(&'s Share);

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(DEFAULT_MEMORY)
    }
}

impl MemoryBudget {
    pub fn new(bytes: u64) -> Self {
        Self::build(bytes, None)
    }

    pub fn with_listener(bytes: u64, listener: MemoryListener) -> Self {
        Self::build(bytes, Some(&Arc::new(listener)))
    }

    fn build(bytes: u64, listener: Option<&Arc<MemoryListener>>) -> Self {
        let share = |share: MemoryShare| {
            let units = u32::try_from(bytes / 16 * share.sixteenths() / UNIT)
                .unwrap_or(u32::MAX)
                .max(1);
            let made = Arc::new(Share {
                kind: share,
                units,
                free: Arc::new(Semaphore::new(units as usize)),
                held: AtomicU64::new(0),
                waiting: AtomicUsize::new(0),
                listener: listener.cloned(),
            });
            made.report();
            made
        };
        Self {
            shares: MemoryShare::ALL.map(share),
        }
    }

    /// Waits for this many bytes of a share, or for the whole share if it is smaller.
    pub async fn take(&self, share: MemoryShare, bytes: u64) -> MemoryGrant {
        let share = &self.shares[share as usize];
        let units = u32::try_from(bytes.div_ceil(UNIT))
            .unwrap_or(u32::MAX)
            .clamp(1, share.units);
        let permit = if let Ok(permit) = Arc::clone(&share.free).try_acquire_many_owned(units) {
            Some(permit)
        } else {
            let _waiting = WaitingJob::new(share);
            // An error would mean that the semaphore is closed, which never happens.
            Arc::clone(&share.free).acquire_many_owned(units).await.ok()
        };
        let grant = MemoryGrant {
            share: Arc::clone(share),
            permit,
            part: None,
        };
        share.held.fetch_add(grant.bytes(), Ordering::SeqCst);
        share.report();
        grant
    }

    /// Like [`take`](Self::take), for a run that has not announced anything yet. The wait does not count towards the
    /// run's timeout. A run that already has a part of the share gets nothing and does not wait.
    pub(crate) async fn take_untimed(&self, share: MemoryShare, bytes: u64) -> MemoryGrant {
        let Some(part) = part_of(share as usize) else {
            return MemoryGrant {
                share: Arc::clone(&self.shares[share as usize]),
                permit: None,
                part: None,
            };
        };
        let mut grant = exclude_from_timeout(self.take(share, bytes)).await;
        grant.part = Some(part);
        grant
    }

    pub fn used(&self, share: MemoryShare) -> MemoryUse {
        self.shares[share as usize].used()
    }
}

impl Share {
    fn used(&self) -> MemoryUse {
        MemoryUse {
            bytes: u64::from(self.units) * UNIT,
            held: self.held.load(Ordering::SeqCst),
            waiting: self.waiting.load(Ordering::SeqCst),
        }
    }

    fn report(&self) {
        if let Some(listener) = &self.listener {
            listener(self.kind, self.used());
        }
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.kind.name(), self.used())
    }
}

impl MemoryGrant {
    pub fn bytes(&self) -> u64 {
        self.permit
            .as_ref()
            .map_or(0, |permit| permit.num_permits() as u64 * UNIT)
    }

    pub fn shrink(&mut self, bytes: u64) {
        let Some(permit) = &mut self.permit else {
            return;
        };
        let keep = usize::try_from(bytes.div_ceil(UNIT))
            .unwrap_or(usize::MAX)
            .max(1);
        let surplus = permit.num_permits().saturating_sub(keep);
        if let Some(surplus) = permit.split(surplus).filter(|_| surplus > 0) {
            self.share
                .held
                .fetch_sub(surplus.num_permits() as u64 * UNIT, Ordering::SeqCst);
            drop(surplus);
            self.share.report();
        }
    }
}

impl Drop for MemoryGrant {
    fn drop(&mut self) {
        self.share.held.fetch_sub(self.bytes(), Ordering::SeqCst);
        (self.permit, self.part) = (None, None);
        self.share.report();
    }
}

impl<'s> WaitingJob<'s> {
    fn new(share: &'s Share) -> Self {
        share.waiting.fetch_add(1, Ordering::SeqCst);
        share.report();
        Self(share)
    }
}

impl Drop for WaitingJob<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.report();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::task::JoinSet;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::env::waiting::Waits;

    const MIB: u64 = 1 << 20;

    fn budget() -> MemoryBudget {
        MemoryBudget::new(16 * MIB)
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_waits_until_enough_bytes_are_given_back() {
        let budget = budget();
        let first = budget.take(MemoryShare::Bodies, 2 * MIB).await;
        let mut waits = Box::pin(budget.take(MemoryShare::Bodies, 2 * MIB));
        assert!(timeout(Duration::from_secs(1), &mut waits).await.is_err());
        assert_eq!(
            budget.used(MemoryShare::Bodies),
            MemoryUse {
                bytes: 3 * MIB,
                held: 2 * MIB,
                waiting: 1
            }
        );
        drop(first);
        let second = waits.await;
        assert_eq!(second.bytes(), 2 * MIB);
        assert_eq!(budget.used(MemoryShare::Bodies).waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_bigger_than_the_share_runs_alone() {
        let budget = budget();
        let giant = budget.take(MemoryShare::Bodies, 1 << 50).await;
        assert_eq!(giant.bytes(), 3 * MIB);
        assert!(
            timeout(Duration::from_secs(1), budget.take(MemoryShare::Bodies, 1))
                .await
                .is_err()
        );
        assert_eq!(
            budget.take(MemoryShare::Values, MIB).await.bytes(),
            MIB,
            "the other shares are still free"
        );
        drop(giant);
        budget.take(MemoryShare::Bodies, 1).await;
    }

    #[tokio::test(start_paused = true)]
    async fn surplus_bytes_go_to_waiting_jobs() {
        let budget = budget();
        let mut grant = budget.take(MemoryShare::Messages, 3 * MIB).await;
        let waits = budget.take(MemoryShare::Messages, 2 * MIB);
        grant.shrink(MIB);
        assert_eq!(waits.await.bytes(), 2 * MIB);
        grant.shrink(9 * MIB);
        assert_eq!(grant.bytes(), MIB, "`shrink` must not enlarge a grant");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_given_up_holds_no_bytes() {
        let budget = budget();
        let held = budget.take(MemoryShare::Values, 6 * MIB).await;
        assert!(
            timeout(
                Duration::from_secs(1),
                budget.take(MemoryShare::Values, MIB)
            )
            .await
            .is_err()
        );
        drop(held);
        assert_eq!(
            budget.used(MemoryShare::Values),
            MemoryUse {
                bytes: 6 * MIB,
                held: 0,
                waiting: 0
            }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_has_a_part_of_a_share_never_waits_for_another() {
        let budget = budget();
        let waits = Waits::new(Arc::new(evenkeel_storage::system::SystemClock::new()));
        let run = async {
            let first = budget.take_untimed(MemoryShare::Values, 6 * MIB).await;
            assert_eq!(
                budget.take_untimed(MemoryShare::Values, MIB).await.bytes(),
                0
            );
            drop(first);
            assert_eq!(
                budget.take_untimed(MemoryShare::Values, MIB).await.bytes(),
                MIB,
                "the first grant was returned, so the run may take again"
            );
        };
        timeout(Duration::from_secs(1), waits.of(run))
            .await
            .expect("the run waits for its own grant");
    }

    #[test]
    fn every_change_is_reported() {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&reported);
        let listener = move |share, used: MemoryUse| seen.lock().unwrap().push((share, used.held));
        let budget = MemoryBudget::with_listener(16 * MIB, Box::new(listener));
        reported.lock().unwrap().clear();
        drop(futures::executor::block_on(
            budget.take(MemoryShare::Bodies, MIB),
        ));
        assert_eq!(
            *reported.lock().unwrap(),
            [(MemoryShare::Bodies, MIB), (MemoryShare::Bodies, 0)]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Jobs that take from the shares in order all end, whatever they need, and never hold more than the budget.
        #[test]
        fn no_jobs_wait_for_each_other(jobs in proptest::collection::vec(([0_u64..6_000, 0_u64..3_000, 0_u64..6_000, 0_u64..9_000, 0_u64..6_000], 1_u64..50), 1..40)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let budget = Arc::new(budget());
                let mut running = JoinSet::new();
                for (needs, took) in jobs {
                    let budget = Arc::clone(&budget);
                    running.spawn(async move {
                        let mut grants = Vec::new();
                        for (share, kib) in MemoryShare::ALL.into_iter().zip(needs) {
                            grants.push(budget.take(share, kib << 10).await);
                            let used = budget.used(share);
                            assert!(used.held <= used.bytes, "{used:?}");
                            sleep(Duration::from_millis(took)).await;
                        }
                    });
                }
                while let Some(ended) = timeout(Duration::from_mins(1), running.join_next()).await.expect("the jobs wait for each other") {
                    ended.unwrap();
                }
                for share in MemoryShare::ALL {
                    assert_eq!(budget.used(share).held, 0);
                }
            });
        }
    }
}
