//! When the operator migrates, when each host gets each catalog, and how the workers are notified.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::ReleasesShape;
use crate::client::ClientStep;
use crate::fault_plan::{Draw, FaultPlan, rng, seconds};
use evenkeel_model::catalog::Catalog;

const HOSTS: usize = 3;

const NONE: usize = usize::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigNotice {
    Hangup,
    Restart,
    /// The worker is not notified, and keeps its configuration until it ends.
    Nothing,
}

pub(crate) struct Releases {
    pub(super) catalogs: Vec<Arc<Catalog>>,
    /// Whether the first catalog is recorded before the first worker starts.
    pub(super) founded: bool,
    /// The times at which the operator migrates to the second and each further catalog.
    pub(super) migrates: Vec<Duration>,
    /// The times at which each host gets the second and each further catalog, and how its worker is notified.
    pub(super) arrives: [Vec<(Duration, ConfigNotice)>; HOSTS],
    /// How long a worker waits before it exits, if its catalog is not the recorded one.
    pub(super) patience: Duration,
    migrated: AtomicUsize,
}

impl Releases {
    /// The releases of a seed. Most migrations happen in the middle of the client's script.
    pub(crate) fn of(
        seed: u64,
        fault_plan: &FaultPlan,
        shape: &ReleasesShape,
        steps: &[ClientStep],
    ) -> Self {
        let rng = rng(seed, 51);
        let draw = Draw(&rng);
        let mut migrates: Vec<Duration> = (1..shape.count())
            .map(|_| moment(&draw, fault_plan, steps))
            .collect();
        migrates.sort_unstable();
        let arrives = [(); HOSTS].map(|()| {
            let mut last = Duration::ZERO;
            let arrives = migrates.iter().map(|at| {
                let off = seconds(if draw.happens(0.6) {
                    draw.magnitude(0.02, 5.0)
                } else {
                    draw.magnitude(1.0, 120.0)
                });
                let at = if draw.happens(0.4) {
                    at.saturating_sub(off)
                } else {
                    *at + off
                };
                last = last.max(at.min(fault_plan.storm));
                (
                    last,
                    *draw.of(&[
                        ConfigNotice::Hangup,
                        ConfigNotice::Hangup,
                        ConfigNotice::Restart,
                        ConfigNotice::Nothing,
                    ]),
                )
            });
            arrives.collect()
        });
        let founded = draw.happens(0.75);
        Self {
            catalogs: shape.catalogs(),
            founded,
            migrates,
            arrives,
            patience: Duration::from_secs(*draw.of(&[5, 60, 60])),
            migrated: AtomicUsize::new(if founded { 0 } else { NONE }),
        }
    }

    pub(crate) const fn last(&self) -> usize {
        self.migrates.len()
    }

    pub(crate) fn migrated(&self) -> usize {
        self.migrated.load(Ordering::Relaxed)
    }

    pub(super) fn has_migrated(&self, to: usize) {
        self.migrated.store(to, Ordering::Relaxed);
    }

    /// The number of the catalog in the configuration of a host. A host is at most one catalog ahead of the operator's
    /// last migration.
    pub(crate) fn configured(&self, slot: usize, now: Duration) -> usize {
        let arrived = self
            .arrives
            .get(slot)
            .into_iter()
            .flatten()
            .filter(|(at, _)| *at <= now)
            .count();
        arrived
            .min(self.migrated().wrapping_add(1))
            .min(self.last())
    }

    pub(super) fn notices_of(
        &self,
        slot: usize,
        how: ConfigNotice,
    ) -> impl Iterator<Item = Duration> {
        self.arrives
            .get(slot)
            .into_iter()
            .flatten()
            .filter(move |(_, notice)| *notice == how)
            .map(|(at, _)| *at)
    }

    pub(crate) fn restarts(&self, slot: usize) -> impl Iterator<Item = Duration> {
        self.notices_of(slot, ConfigNotice::Restart)
    }
}

/// A time at which the operator migrates, usually while the client is busy.
fn moment(draw: &Draw<'_>, fault_plan: &FaultPlan, steps: &[ClientStep]) -> Duration {
    if steps.is_empty() || draw.happens(0.25) {
        return draw.moment(fault_plan.storm);
    }
    let (busy, off) = (draw.of(steps).at, seconds(draw.magnitude(0.02, 5.0)));
    let at = if draw.happens(0.5) {
        busy.saturating_sub(off)
    } else {
        busy + off
    };
    at.min(fault_plan.storm)
}
