//! Jobs that wait for one partition, and which of them are sent away so that jobs of other partitions have their slots. Pure.
//!
//! A partition that is behind by more than [`PATIENCE`] has enough to do. A job that comes to it anew is sent away, and told when its turn
//! comes: one after the other, as fast as the partition takes them. A begun job goes on, for it would only be done again; so do the
//! other reads of a batch.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use crate::heat::Given;

/// How far behind a partition may be before jobs are sent away: far more than an answer takes, so that it never runs dry.
const PATIENCE: Duration = Duration::from_millis(100);
/// The same for writes, of jobs that have done the rest for nothing then.
const PATIENCE_OF_WRITES: Duration = Duration::from_secs(1);
/// Fewer entities than this hold few slots, however slow the partition is.
const FEW: usize = 16;
/// A job's requests to its busiest partition: its footprint is read, announced and closed (`docs/performance.md`).
const OF_A_JOB: f64 = 3.0;
/// No job is sent away for less: a message comes back in whole seconds, and costs two requests.
const AWAY: Duration = Duration::from_secs(1);
/// Empty crowds that are remembered, for the turns that were given.
const CAPACITY: usize = 10_000;

/// Whether a request reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessKind {
    Read,
    Write,
}

#[derive(Debug, Default)]
struct Crowd {
    /// Entities asked for and not answered.
    waiting: usize,
    /// How many requests each job has here.
    jobs: HashMap<u64, u32, BuildHasherDefault<Given>>,
    /// Until when turns are given away.
    booked: Duration,
}

/// The crowds of an account, by the hash of their partition.
#[derive(Debug, Default)]
pub(super) struct Crowds(HashMap<u64, Crowd, BuildHasherDefault<Given>>);

impl Crowds {
    /// A request of a job comes to a partition that lets in so much a second: it is let in, or comes again after this time.
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
        let behind = Duration::from_secs_f64(crowd.waiting as f64 / per_second);
        let patience = match kind {
            AccessKind::Read => PATIENCE,
            AccessKind::Write => PATIENCE_OF_WRITES,
        };
        if crowd.waiting >= FEW && behind > patience && !crowd.jobs.contains_key(&job) {
            crowd.booked = crowd.booked.max(now + behind).max(now + AWAY)
                + Duration::from_secs_f64(OF_A_JOB / per_second);
            return Err(crowd.booked.saturating_sub(now));
        }
        crowd.waiting += entities;
        *crowd.jobs.entry(job).or_default() += 1;
        Ok(())
    }

    /// A request that was let in is over.
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
    fn a_partition_that_is_behind_sends_new_jobs_away_one_after_the_other_and_no_other_partition_does()
     {
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
        assert!(away[0] >= AWAY && away.is_sorted());
        let spread = away[999].saturating_sub(away[0]);
        assert!(
            (Duration::from_millis(1_450)..Duration::from_millis(1_550)).contains(&spread),
            "{spread:?} for 999 jobs of 3 entities"
        );
        assert_eq!(
            crowds.enter(1, 7, (AccessKind::Read, 1), 2_000.0, NOW),
            Ok(()),
            "a job that is there goes on"
        );
        assert_eq!(
            crowds.enter(1, 300, (AccessKind::Write, 1), 2_000.0, NOW),
            Ok(()),
            "what was begun elsewhere goes on"
        );
        assert_eq!(
            crowds.enter(2, 300, (AccessKind::Read, 1), 2_000.0, NOW),
            Ok(())
        );
    }

    #[test]
    fn memory_follows_what_waits() {
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
