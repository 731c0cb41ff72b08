//! The configuration of the `patterns` world in one seed.

use crate::client::EMPLOYEES;
use crate::fault_plan::{Draw, rng};
use evenkeel_account::company::Placement;
use evenkeel_model::{Entity, EntityKey};

#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each view exists or not, independently of the others"
)]
pub(crate) struct PatternsShape {
    pub(super) lists: bool,
    /// Whether employees are listed by last name in their own partition.
    pub(super) near: bool,
    pub(super) groups: bool,
    pub(super) skilled: bool,
    pub(super) large: bool,
    pub(super) wide: bool,
    /// Whether teams set their names on their employees.
    pub(super) ranges: bool,
    /// Whether a team is in the partition of its employees. If so, the team's range has no upper end: it includes every
    /// row key from the team's prefix on, even the row key of the team. In this case, the lead of the team sets a
    /// property on the team.
    pub(super) together: bool,
    /// Whether the view `by_skill` has its second definition, which writes to other blobs.
    pub(super) anew: bool,
    pub(super) encrypted: bool,
    pub(super) restless: bool,
    /// Whether some teams change several times within seconds.
    pub(super) bursts: bool,
    pub(crate) placement: Placement,
}

impl PatternsShape {
    /// Whether clients write entities directly. If the table is wide, they send jobs instead.
    pub(crate) const fn has_clients_that_write(&self) -> bool {
        !self.wide
    }

    pub(crate) fn of(seed: u64) -> Self {
        let rng = rng(seed, 20);
        let draw = Draw(&rng);
        // These two numbers are drawn but not used, so that the later draws of each seed stay the same.
        let _ = (draw.below(3), draw.below(4));
        let [lists, near, groups, skilled, large, wide, ranges] =
            [0.4, 0.3, 0.3, 0.4, 0.5, 0.2, 0.3].map(|odds| draw.happens(odds));
        let together = draw.happens(0.5);
        let encrypted = Draw(&self::rng(seed, 24)).happens(0.3);
        let restless = Draw(&self::rng(seed, 25)).happens(0.15);
        // Views cannot set properties on wide entities.
        Self {
            lists,
            near,
            groups,
            skilled,
            large,
            wide,
            ranges: (ranges || restless) && !wide,
            restless,
            bursts: false,
            together,
            anew: false,
            encrypted,
            placement: Placement::Main,
        }
    }

    pub(crate) fn parts(&mut self) -> [&mut bool; 6] {
        let Self {
            lists,
            near,
            groups,
            skilled,
            ranges,
            anew,
            ..
        } = self;
        [lists, near, groups, skilled, ranges, anew]
    }

    pub(crate) const fn is_wide(&self) -> bool {
        self.wide
    }

    pub(crate) const fn with_ranges(self, ranges: bool) -> Self {
        Self { ranges, ..self }
    }

    /// Adds bursts of changes if this seed has ranges and teams that change often.
    pub(crate) const fn with_bursts(self) -> Self {
        Self {
            bursts: self.restless && self.ranges,
            ..self
        }
    }

    pub(crate) const fn with_restless_teams(self) -> Self {
        Self {
            restless: true,
            ..self
        }
    }

    pub(crate) const fn is_restless(&self) -> bool {
        self.restless
    }

    pub(crate) const fn has_ranges(&self) -> bool {
        self.ranges
    }

    /// Whether an employee is in the department and in the range of a team.
    pub(crate) fn means(&self, team: &Entity, employee: &EntityKey) -> bool {
        let Some(prefix) = team.text("Prefix") else {
            return false;
        };
        let rk = employee.rk.as_str();
        team.key.pk == employee.pk
            && if self.together {
                team.key != *employee && rk >= prefix
            } else {
                rk.starts_with(prefix)
            }
    }

    pub(super) const fn has_teams_within(&self) -> bool {
        self.ranges && self.together
    }

    pub(crate) const fn teams(&self) -> &'static str {
        if self.together { EMPLOYEES } else { "Teams" }
    }
}
