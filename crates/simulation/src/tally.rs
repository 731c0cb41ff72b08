//! Statistics of many runs.

use std::time::Duration;

use super::fault::{FaultCounts, FaultKind};
use super::rare_event::{RareEvent, RareEvents};
use super::run::SimulationReport;
use super::world::World;
use evenkeel_account::{Execution, ObservedChange};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupedRequests {
    pub writes: u64,
    /// Number of the writes that arrived after their sender had given up.
    pub late: u64,
    pub reads: u64,
}

impl GroupedRequests {
    pub(super) fn add(&mut self, execution: &Execution<'_>) {
        let rows = execution
            .changes
            .iter()
            .filter(|change| matches!(change, ObservedChange::Row { .. }))
            .count();
        self.writes += u64::from(rows > 1);
        self.late += u64::from(rows > 1 && execution.late);
        self.reads += u64::from(execution.operation.name == "Query Entities");
    }

    fn absorb(&mut self, other: Self) {
        self.writes += other.writes;
        self.late += other.late;
        self.reads += other.reads;
    }
}

#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub seeds: u64,
    pub failed: Vec<(u64, String)>,
    pub faults: FaultCounts,
    pub operations: u64,
    /// Number of operations that read a queue and changed nothing.
    pub polls: u64,
    pub together: GroupedRequests,
    pub rare_events: RareEvents,
    pub jobs: u64,
    pub sent_on: u64,
    pub done: u64,
    pub poisoned: u64,
    /// Number of deliveries after the first delivery of a message.
    pub redelivered: u64,
    pub rechecks: u64,
    /// Number of late inserts that restored a deleted entity, which is the known limit.
    pub resurrections: u64,
    pub virtual_time: Duration,
    each: Vec<RunMeasures>,
}

#[derive(Debug, Clone, Copy)]
struct RunMeasures {
    jobs: u64,
    operations: u64,
    faults: u64,
    drained_after: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Median {
    pub jobs: u64,
    pub operations: u64,
    pub faults: u64,
}

impl Tally {
    pub fn add(&mut self, report: &SimulationReport) {
        self.seeds += 1;
        if let Some(violation) = &report.violation {
            self.failed.push((report.seed, violation.clone()));
        }
        self.faults.absorb(&report.faults);
        self.operations += report.operations;
        self.polls += report.polls;
        self.together.absorb(report.together);
        self.rare_events.absorb(&report.rare_events);
        self.jobs += report.jobs;
        self.sent_on += report.sent_on;
        self.done += report.done;
        self.poisoned += report.poisoned;
        self.redelivered += report.redelivered;
        self.rechecks += report.rechecks;
        self.resurrections += report.resurrections;
        self.virtual_time += report.virtual_time;
        self.each.push(RunMeasures {
            jobs: report.jobs,
            operations: report.operations - report.polls,
            faults: report.faults.total(),
            drained_after: report.drained_after,
        });
    }

    pub fn absorb(&mut self, other: Self) {
        let Self {
            seeds,
            failed,
            faults,
            operations,
            polls,
            together,
            rare_events,
            jobs,
            sent_on,
            done,
            poisoned,
            redelivered,
            rechecks,
            resurrections,
            virtual_time,
            each,
        } = other;
        self.seeds += seeds;
        self.failed.extend(failed);
        self.failed.sort();
        self.faults.absorb(&faults);
        self.operations += operations;
        self.polls += polls;
        self.together.absorb(together);
        self.rare_events.absorb(&rare_events);
        self.jobs += jobs;
        self.sent_on += sent_on;
        self.done += done;
        self.poisoned += poisoned;
        self.redelivered += redelivered;
        self.rechecks += rechecks;
        self.resurrections += resurrections;
        self.virtual_time += virtual_time;
        self.each.extend(each);
    }

    /// Returns the kinds of faults that can occur in this world, but did not occur in any run.
    pub fn never_hit(&self, world: World) -> Vec<FaultKind> {
        FaultKind::ALL
            .into_iter()
            .filter(|fault| fault.occurs_in(world) && self.faults.of(*fault) == 0)
            .collect()
    }

    /// Returns the rare events that should occur in runs of this world, but did not.
    pub fn never_seen(&self, world: World) -> Vec<RareEvent> {
        RareEvent::ALL
            .into_iter()
            .filter(|rare_event| {
                rare_event.belongs_to(world) && self.rare_events.of(*rare_event) == 0
            })
            .collect()
    }

    pub fn median(&self) -> Median {
        Median {
            jobs: self.quantile(0.5, |each| each.jobs),
            operations: self.quantile(0.5, |each| each.operations),
            faults: self.quantile(0.5, |each| each.faults),
        }
    }

    /// Returns the time within which this share of the runs drained the backlog after the storm.
    pub fn drained_after(&self, share: f64) -> Duration {
        self.quantile(share, |each| each.drained_after)
    }

    fn quantile<T: Ord + Default + Copy>(
        &self,
        share: f64,
        figure: impl Fn(&RunMeasures) -> T,
    ) -> T {
        let mut figures: Vec<T> = self.each.iter().map(figure).collect();
        figures.sort_unstable();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index of a list in memory"
        )]
        let at = (share.clamp(0.0, 1.0) * figures.len().saturating_sub(1) as f64).round() as usize;
        figures.get(at).copied().unwrap_or_default()
    }
}
