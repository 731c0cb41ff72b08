//! What one seed has of the second world.

use crate::client::EMPLOYEES;
use crate::fault_plan::{Draw, rng};
use evenkeel_account::company::Placement;
use evenkeel_model::{Entity, EntityKey};

/// Which of the views there are, and how they are.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each view is there or not, whatever the others are"
)]
pub(crate) struct PatternsShape {
    /// Employees are listed by their last names.
    pub(super) lists: bool,
    /// The same beside the employees.
    pub(super) near: bool,
    /// Employees are counted.
    pub(super) groups: bool,
    /// Employees are listed by their skills.
    pub(super) skilled: bool,
    /// Photos and resumes lie in blobs.
    pub(super) large: bool,
    /// Employees may take several rows.
    pub(super) wide: bool,
    /// Teams say their names to their employees.
    pub(super) ranges: bool,
    /// Teams lie among their employees, from one of whom on they mean everybody, themselves too by their keys; and their leads say their
    /// versions to them.
    pub(super) together: bool,
    /// The lists by skill have their second definition: other blobs.
    pub(super) anew: bool,
    /// Employees have an encrypted property.
    pub(super) encrypted: bool,
    /// Teams change all the time.
    pub(super) restless: bool,
    /// Some of their changes come in bursts of seconds.
    pub(super) bursts: bool,
    /// Where lists and groups lie.
    pub(crate) placement: Placement,
}

impl PatternsShape {
    /// A client of a wide table sends jobs.
    pub(crate) const fn has_clients_that_write(&self) -> bool {
        !self.wide
    }

    /// What a seed stands for.
    pub(crate) fn of(seed: u64) -> Self {
        let rng = rng(seed, 20);
        let draw = Draw(&rng);
        // Two draws that nothing needs any more: without them every seed would be another world.
        let _ = (draw.below(3), draw.below(4));
        let [lists, near, groups, skilled, large, wide, ranges] =
            [0.4, 0.3, 0.3, 0.4, 0.5, 0.2, 0.3].map(|odds| draw.happens(odds));
        let together = draw.happens(0.5);
        let encrypted = Draw(&self::rng(seed, 24)).happens(0.3);
        let restless = Draw(&self::rng(seed, 25)).happens(0.15);
        // Views set nothing on entities that may take several rows.
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

    /// The views that come and go in the world of the releases.
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

    /// Whether employees may take several rows.
    pub(crate) const fn is_wide(&self) -> bool {
        self.wide
    }

    /// The same, with teams that say something or not.
    pub(crate) const fn with_ranges(self, ranges: bool) -> Self {
        Self { ranges, ..self }
    }

    /// The same, with bursts of changes where teams are restless.
    pub(crate) const fn with_bursts(self) -> Self {
        Self {
            bursts: self.restless && self.ranges,
            ..self
        }
    }

    /// The same, with restless teams.
    pub(crate) const fn with_restless_teams(self) -> Self {
        Self {
            restless: true,
            ..self
        }
    }

    /// Whether teams change all the time.
    pub(crate) const fn is_restless(&self) -> bool {
        self.restless
    }

    pub(crate) const fn has_ranges(&self) -> bool {
        self.ranges
    }

    /// Whether a team of its department means an employee.
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

    /// Whether there are teams among the employees.
    pub(super) const fn has_teams_within(&self) -> bool {
        self.ranges && self.together
    }

    /// The table of the teams.
    pub(crate) const fn teams(&self) -> &'static str {
        if self.together { EMPLOYEES } else { "Teams" }
    }
}
