//! Faults of a single host: a partition that it cannot reach, or slow storage. One kind of fault here affects all
//! hosts: slow answers from the table of range overlays.

use std::ops::Range;
use std::time::Duration;

use super::fault_plan::{Draw, FaultPlan, FaultScope, OutageKind, rng, seconds};
use evenkeel_model::range_overlay::RANGE_OVERLAYS;

/// Maximum delay, in seconds.
const SLOWEST: f64 = 25.0;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct HostSpell {
    pub(super) during: Range<Duration>,
    pub(super) slot: usize,
    pub(super) trouble: HostTrouble,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum HostTrouble {
    Cut(FaultScope, OutageKind),
    /// Requests to tables and blobs, or their answers, take this many seconds. The sender does not time out.
    Slow(Range<f64>),
}

impl HostSpell {
    /// Makes the storage of a host slow in this period. Each request takes at least `least` seconds.
    pub(super) fn slow(during: Range<Duration>, slot: usize, least: f64, draw: &Draw<'_>) -> Self {
        let most = (least * draw.magnitude(1.5, 10.0)).min(SLOWEST);
        Self {
            during,
            slot,
            trouble: HostTrouble::Slow(least..most),
        }
    }
}

impl FaultPlan {
    pub(super) fn draw_slow_overlays(&mut self, seed: u64) {
        let rng = rng(seed, 64);
        let draw = Draw(&rng);
        if draw.happens(0.5) {
            self.slow_answers = Some((RANGE_OVERLAYS, draw.0.between(0.2, 0.5)));
            self.settings.poll.max = Duration::from_secs(1);
            self.workers = self.workers.max(2);
        }
    }

    pub(super) fn draw_slow_host(&mut self, seed: u64, share: f64) {
        let rng = rng(seed, 58);
        let draw = Draw(&rng);
        if !draw.happens(share) {
            return;
        }
        self.workers = self.workers.max(2);
        if draw.happens(0.5) {
            self.clear_faults();
        }
        let start = draw.moment(self.storm / 2);
        let during = start..start + seconds(draw.magnitude(60.0, 900.0));
        self.hosts.push(HostSpell::slow(
            during,
            draw.below(self.workers),
            draw.magnitude(0.1, 5.0),
            &draw,
        ));
    }
}
