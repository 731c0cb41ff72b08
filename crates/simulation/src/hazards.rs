//! The rates and times of faults that last for a while, or that follow from other faults. This module does no I/O.
//!
//! These faults have their own random numbers, so that the rest of a seed does not depend on them.

use std::ops::Range;
use std::time::Duration;

use super::client::EMPLOYEES;
use super::fault::FaultKind;
use super::fault_plan::{Draw, Outage, OutageKind, rng, seconds};
use super::oracle::escaped;
use super::world::World;
use evenkeel_model::settled::FOOTPRINTS;
use evenkeel_model::{EntityKey, TableName};
use evenkeel_storage::{ErrorClass, Rng};

/// Maximum duration of a fault, in seconds.
const LONGEST: f64 = 10.0 * 60.0;
/// Maximum error of a service's clock, in seconds.
const SERVICE_SKEW: f64 = 90.0;
/// Rate of refused first attempts, as a fraction of the rate of refused repetitions.
pub(super) const FIRST_ATTEMPT: f64 = 0.01;
/// How long a name that is being deleted stays unavailable (Azure: at least 40 s).
const BEING_DELETED: Duration = Duration::from_secs(40);

pub(super) const REFUSALS: [(FaultKind, ErrorClass); 4] = [
    (FaultKind::Forbidden, ErrorClass::Unauthorised),
    (
        FaultKind::BeingDeleted,
        ErrorClass::Transient {
            retry_after: Some(BEING_DELETED),
        },
    ),
    (FaultKind::BadRequest, ErrorClass::Permanent),
    (FaultKind::TooLarge, ErrorClass::TooLarge),
];

#[derive(Debug, Clone)]
pub(super) struct Hazards {
    pub(super) lost_polls: Vec<LostPolls>,
    pub(super) gateways: Vec<Range<Duration>>,
    /// Offsets of the clocks of the queue service and the table service, in seconds.
    pub(super) service_clocks: Option<(i64, i64)>,
    pub(super) refused_row: Option<RefusedRow>,
    pub(super) backlog: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusedRow {
    pub(super) during: Range<Duration>,
    pub(super) employee: EntityKey,
    row: EmployeeRow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EmployeeRow {
    Primary,
    Footprint,
    Manager,
}

impl RefusedRow {
    pub(super) fn is(&self, table: &TableName, key: &EntityKey) -> bool {
        let EntityKey { pk, rk } = &self.employee;
        match self.row {
            EmployeeRow::Primary => table.as_str() == EMPLOYEES && *key == self.employee,
            EmployeeRow::Footprint => {
                table.as_str() == FOOTPRINTS
                    && key.rk == *rk
                    && key.pk.as_str() == format!("{EMPLOYEES}~{pk}")
            }
            EmployeeRow::Manager => {
                table.as_str() == "Managers" && key.rk.as_str() == escaped(&format!("{pk}_{rk}"))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LostPolls {
    pub(super) during: Range<Duration>,
    pub(super) slow: bool,
}

impl Hazards {
    /// Draws the hazards of a seed, and adds their rates and outages to the existing ones.
    pub(super) fn of(
        seed: u64,
        (world, employees): (World, &[EntityKey]),
        storm: Duration,
        rates: &mut [f64; FaultKind::ALL.len()],
        outages: &mut Vec<Outage>,
    ) -> Self {
        let rng = rng(seed, 7);
        let draw = Draw(&rng);
        let during = |longest: f64| {
            let start = draw.moment(storm);
            start..start + seconds(draw.magnitude(5.0, longest))
        };
        let some = |odds: f64, most: usize| {
            if draw.happens(odds) {
                1 + draw.below(most)
            } else {
                0
            }
        };
        for (fault, odds, low, high) in [
            (FaultKind::Forbidden, 0.15, 0.02, 0.5),
            (FaultKind::BeingDeleted, 0.1, 0.02, 0.5),
            (FaultKind::BadRequest, 0.15, 0.02, 0.3),
            (FaultKind::TooLarge, 0.1, 0.02, 0.3),
            (FaultKind::Recreated, 0.25, 0.1, 1.0),
            (FaultKind::ShortPage, 0.2, 0.05, 0.6),
            (FaultKind::Doubled, 0.2, 0.05, 0.5),
            (FaultKind::Expiry, 0.15, 0.05, 0.5),
            (FaultKind::AlwaysPanics, 0.15, 0.01, 0.1),
        ] {
            if draw.happens(odds) {
                rates[fault as usize] = draw.magnitude(low, high);
            }
        }
        let deaf = (0..some(0.15, 2)).map(|_| Outage {
            during: during(LONGEST / 2.0),
            service: *draw.of(world.services()),
            refusal: *draw.of(&[OutageKind::Reset, OutageKind::Deaf]),
        });
        outages.extend(deaf);
        let off = |rng: &dyn Rng| {
            #[expect(clippy::cast_possible_truncation, reason = "at most 90 seconds")]
            let seconds = rng.between(-SERVICE_SKEW, SERVICE_SKEW) as i64;
            seconds
        };
        let lost_polls = (0..some(0.2, 2))
            .map(|_| LostPolls {
                during: during(LONGEST),
                slow: draw.happens(0.5),
            })
            .collect();
        let gateways = (0..some(0.2, 3)).map(|_| during(60.0)).collect();
        let behind = draw.happens(0.2).then(|| {
            let (one, other) = (off(draw.0), off(draw.0));
            (one.min(other), one.max(other))
        });
        // These offsets have their own random numbers, so that the other draws of a seed are unchanged.
        let others = self::rng(seed, 17);
        let ahead = Draw(&others).happens(0.12).then(|| {
            let (one, other) = (off(&others), off(&others));
            (one.max(other), one.min(other))
        });
        Self {
            lost_polls,
            gateways,
            service_clocks: ahead.or(behind),
            refused_row: (!employees.is_empty() && draw.happens(0.15)).then(|| RefusedRow {
                during: during(LONGEST),
                employee: draw.of(employees).clone(),
                row: *draw.of(&[
                    EmployeeRow::Primary,
                    EmployeeRow::Footprint,
                    EmployeeRow::Manager,
                ]),
            }),
            backlog: if draw.happens(0.1) {
                Duration::from_hours(7)
            } else {
                Duration::ZERO
            },
        }
    }
}
