//! Time that a run spends waiting for other runs of its process. This time does not count as the run's own time.
//!
//! `worker.job_timeout` stops runs that hang or never end. A run that waits for memory, or for a lock of another run,
//! neither hangs nor goes on for ever, so such waits do not count towards the timeout. They must end before the run
//! announces anything, because `recheck_after` is based on the assumption that no run works for longer than
//! `job_timeout` after its announcement.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::execute::{ItemChange, Summary};
use evenkeel_storage::Clock;

tokio::task_local! {
    static WAITS: Waits;
}

#[derive(Clone)]
pub struct Waits {
    clock: Arc<dyn Clock>,
    spent: Arc<Mutex<WaitTotal>>,
    shares: Arc<Shares>,
    /// The run has read its primary, or is about to.
    has_read_primary: Arc<AtomicBool>,
    /// Changes to items that no job outcome reports, because the passes that made them failed or were dropped.
    unreported: Arc<Mutex<Vec<ItemChange>>>,
}

/// For each `MemoryShare`, whether the run has a part of it. The share's discriminant is the index; five of eight are
/// used.
type Shares = [AtomicBool; 8];

/// Marks that the run has a part of a memory share. Until the mark is dropped, the run takes no other part of the
/// share.
#[derive(Debug)]
pub(crate) struct SharePart(Option<(Arc<Shares>, usize)>);

/// Marks that this run takes a part of a share. `None` if the run already has a part of the share: if it waited for
/// another part, it could wait for itself.
pub(crate) fn part_of(share: usize) -> Option<SharePart> {
    let Ok(shares) = WAITS.try_with(|waits| Arc::clone(&waits.shares)) else {
        return Some(SharePart(None));
    };
    let had = shares[share].swap(true, Ordering::SeqCst);
    (!had).then(|| SharePart(Some((shares, share))))
}

/// Returns `true` once in each run, at its first read of a primary, and only if the run has no part of any share.
/// `false` outside a run.
pub(crate) fn is_first_read() -> bool {
    let is_first = |waits: &Waits| !waits.has_read_primary.swap(true, Ordering::SeqCst);
    let has_no_part = |waits: &Waits| waits.shares.iter().all(|part| !part.load(Ordering::SeqCst));
    WAITS
        .try_with(|waits| is_first(waits) && has_no_part(waits))
        .unwrap_or(false)
}

impl Drop for SharePart {
    fn drop(&mut self) {
        if let Some((shares, share)) = &self.0 {
            shares[*share].store(false, Ordering::SeqCst);
        }
    }
}

#[derive(Default)]
struct WaitTotal {
    finished: Duration,
    /// Number of waits under way.
    under_way: usize,
    /// Monotonic time at which `under_way` last rose from zero.
    since: Duration,
}

struct ActiveWait(Waits);

impl Waits {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            spent: Arc::default(),
            shares: Arc::default(),
            has_read_primary: Arc::default(),
            unreported: Arc::default(),
        }
    }

    pub async fn of<T>(&self, run: impl Future<Output = T>) -> T {
        WAITS.scope(self.clone(), run).await
    }

    pub fn so_far(&self) -> Duration {
        let spent = self.spent();
        let now = if spent.under_way > 0 {
            self.clock.monotonic().saturating_sub(spent.since)
        } else {
            Duration::ZERO
        };
        spent.finished + now
    }

    pub fn unreported(&self) -> Vec<ItemChange> {
        std::mem::take(
            &mut self
                .unreported
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn begin(&self) -> ActiveWait {
        let now = self.clock.monotonic();
        let mut spent = self.spent();
        if spent.under_way == 0 {
            spent.since = now;
        }
        spent.under_way += 1;
        drop(spent);
        ActiveWait(self.clone())
    }

    fn spent(&self) -> MutexGuard<'_, WaitTotal> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ActiveWait {
    fn drop(&mut self) {
        let so_far = self.0.so_far();
        let mut spent = self.0.spent();
        spent.under_way = spent.under_way.saturating_sub(1);
        if spent.under_way == 0 {
            spent.finished = so_far;
        }
    }
}

/// Records changes to items that no job outcome reports. No-op outside a run.
pub fn record_unreported(changes: Vec<ItemChange>) {
    let _ = WAITS.try_with(|waits| {
        waits
            .unreported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(changes);
    });
}

/// The changes that a run over many primaries has made so far. If the run fails or is dropped, no outcome reports these
/// changes, so they are recorded as unreported.
#[derive(Debug, Default)]
pub(crate) struct RunSummary(pub(crate) Summary);

impl RunSummary {
    pub(crate) fn take(&mut self) -> Summary {
        std::mem::take(&mut self.0)
    }
}

impl Drop for RunSummary {
    fn drop(&mut self) {
        record_unreported(self.take().changes);
    }
}

pub(crate) fn waited() -> Duration {
    WAITS.try_with(Waits::so_far).unwrap_or_default()
}

/// Awaits something that depends on other runs of this process. The wait does not count towards the run's timeout.
pub async fn exclude_from_timeout<T>(wait: impl Future<Output = T>) -> T {
    let waiting = WAITS.try_with(Waits::begin).ok();
    let waited = wait.await;
    drop(waiting);
    waited
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::Action;
    use evenkeel_model::{AccountName, ViewName};

    struct Paused(Instant);

    impl Clock for Paused {
        fn now(&self) -> jiff::Timestamp {
            jiff::Timestamp::UNIX_EPOCH
        }
        fn monotonic(&self) -> Duration {
            self.0.elapsed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_waits_count_once_and_work_does_not_count() {
        let second = Duration::from_secs(1);
        let waits = Waits::new(Arc::new(Paused(Instant::now())));
        let run = async {
            sleep(5 * second).await;
            exclude_from_timeout(sleep(3 * second)).await;
            assert_eq!(waits.so_far(), 3 * second);
            tokio::join!(
                exclude_from_timeout(sleep(4 * second)),
                exclude_from_timeout(sleep(6 * second)),
                sleep(20 * second)
            );
        };
        let watch = async {
            sleep(10 * second).await;
            assert_eq!(
                waits.so_far(),
                5 * second,
                "a wait under way counts up to now"
            );
        };
        tokio::join!(waits.of(run), watch);
        assert_eq!(waits.so_far(), 9 * second);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_counts_until_it_is_given_up_and_only_inside_a_run() {
        let second = Duration::from_secs(1);
        let waits = Waits::new(Arc::new(Paused(Instant::now())));
        let given_up = waits
            .of(tokio::time::timeout(
                2 * second,
                exclude_from_timeout(std::future::pending::<()>()),
            ))
            .await;
        assert!(given_up.is_err());
        sleep(second).await;
        assert_eq!(waits.so_far(), 2 * second);
        exclude_from_timeout(sleep(second)).await;
        assert_eq!(waits.so_far(), 2 * second);
    }

    #[tokio::test]
    async fn changes_that_no_outcome_takes_are_recorded_as_unreported() {
        let waits = Waits::new(Arc::new(Paused(Instant::now())));
        let (view, account) = (ViewName::new("staff").unwrap(), AccountName::main());
        let summary = || Summary {
            changes: vec![ItemChange {
                view: view.clone(),
                account: account.clone(),
                action: Action::Create,
            }],
            ..Summary::default()
        };
        let reported = waits.of(async {
            let (mut taken, mut failed) = (RunSummary::default(), RunSummary::default());
            taken.0.add(summary());
            failed.0.add(summary());
            failed.0.add(summary());
            taken.take()
        });
        assert_eq!(
            (reported.await.changes.len(), waits.unreported().len()),
            (1, 2)
        );
    }
}
