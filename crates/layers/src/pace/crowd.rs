//! Jobs that wait for one partition. New jobs of an overloaded partition are delayed so that other partitions get their slots.
//!
//! If the queue of a partition is longer than [`MAX_BACKLOG`], a job that makes its first request there is delayed. The delayed
//! jobs return one after the other, at the rate of the partition. A job that has already begun continues, because a delay would
//! make it repeat its work. For the same reason, the other reads of a batch continue once one of them was admitted.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use crate::heat::PrehashedHasher;

/// Length of a partition's queue from which new jobs are delayed. It is much longer than a request takes, so that the partition
/// never runs idle.
const MAX_BACKLOG: Duration = Duration::from_millis(100);
/// Like [`MAX_BACKLOG`], for writes. It is larger, because a job that is delayed at its first write has already read in vain.
const MAX_WRITE_BACKLOG: Duration = Duration::from_secs(1);
/// Jobs are not delayed while fewer entities than this wait: their jobs hold few slots, even if the partition is slow.
const MIN_WAITING: usize = 16;
/// Requests of a job to its busiest partition: a footprint is read, announced and closed (`docs/performance.md`).
const REQUESTS_PER_JOB: f64 = 3.0;
/// Minimum delay of a job: a message is hidden for whole seconds, and a delay costs two requests.
const MIN_DELAY: Duration = Duration::from_secs(1);
/// If this many crowds are remembered, those with neither waiting entities nor future turns are removed.
const CAPACITY: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessKind {
    Read,
    Write,
}

#[derive(Debug, Default)]
struct Crowd {
    waiting: usize,
    jobs: HashMap<u64, u32, BuildHasherDefault<PrehashedHasher>>,
    /// Time until which turns are booked.
    booked: Duration,
}

/// The crowds of an account by the hash of their partition.
#[derive(Debug, Default)]
pub(super) struct Crowds(HashMap<u64, Crowd, BuildHasherDefault<PrehashedHasher>>);

impl Crowds {
    /// Admits a request to a partition with this rate, or returns the delay of its job.
    pub(super) fn enter(
        &mut self,
        partition: u64,
        job: u64,
        (kind, entities): (AccessKind, usize),
        per_second: f64,
        now: Duration,
    ) -> Result<(), Duration> {
        if self.0.len() >= CAPACITY {
            self.0
                .retain(|_, crowd| crowd.waiting > 0 || now < crowd.booked);
        }
        let crowd = self.0.entry(partition).or_default();
        #[expect(clippy::cast_precision_loss, reason = "requests in flight are few")]
        let backlog = Duration::from_secs_f64(crowd.waiting as f64 / per_second);
        let max_backlog = match kind {
            AccessKind::Read => MAX_BACKLOG,
            AccessKind::Write => MAX_WRITE_BACKLOG,
        };
        if crowd.waiting >= MIN_WAITING && backlog > max_backlog && !crowd.jobs.contains_key(&job) {
            crowd.booked = crowd.booked.max(now + backlog).max(now + MIN_DELAY)
                + Duration::from_secs_f64(REQUESTS_PER_JOB / per_second);
            return Err(crowd.booked.saturating_sub(now));
        }
        crowd.waiting += entities;
        *crowd.jobs.entry(job).or_default() += 1;
        Ok(())
    }

    pub(super) fn leave(&mut self, partition: u64, job: u64, entities: usize, now: Duration) {
        let Some(crowd) = self.0.get_mut(&partition) else {
            return;
        };
        crowd.waiting = crowd.waiting.saturating_sub(entities);
        if let Some(requests) = crowd.jobs.get_mut(&job) {
            *requests -= 1;
            if *requests == 0 {
                crowd.jobs.remove(&job);
            }
        }
        if crowd.waiting == 0 && now >= crowd.booked {
            self.0.remove(&partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn only_an_overloaded_partition_delays_new_jobs_one_after_the_other() {
        let mut crowds = Crowds::default();
        for job in 0..201 {
            assert_eq!(
                crowds.enter(1, job, (AccessKind::Read, 1), 2_000.0, NOW),
                Ok(()),
                "{job}"
            );
        }
        let away: Vec<Duration> = (300..1_300)
            .map(|job| {
                crowds
                    .enter(1, job, (AccessKind::Read, 1), 2_000.0, NOW)
                    .unwrap_err()
            })
            .collect();
        assert!(away[0] >= MIN_DELAY && away.is_sorted());
        let spread = away[999].saturating_sub(away[0]);
        assert!(
            (Duration::from_millis(1_450)..Duration::from_millis(1_550)).contains(&spread),
            "{spread:?} for 999 jobs of 3 entities"
        );
        assert_eq!(
            crowds.enter(1, 7, (AccessKind::Read, 1), 2_000.0, NOW),
            Ok(()),
            "a job that is already there continues"
        );
        assert_eq!(
            crowds.enter(1, 300, (AccessKind::Write, 1), 2_000.0, NOW),
            Ok(()),
            "a job that has begun elsewhere continues"
        );
        assert_eq!(
            crowds.enter(2, 300, (AccessKind::Read, 1), 2_000.0, NOW),
            Ok(())
        );
    }

    #[test]
    fn memory_is_bounded_by_waiting_requests() {
        let mut crowds = Crowds::default();
        for partition in 0..100 {
            assert_eq!(
                crowds.enter(partition, 1, (AccessKind::Write, 1), 2_000.0, NOW),
                Ok(())
            );
        }
        assert_eq!(crowds.0.len(), 100);
        (0..100).for_each(|partition| crowds.leave(partition, 1, 1, NOW));
        assert!(crowds.0.is_empty());
    }
}
