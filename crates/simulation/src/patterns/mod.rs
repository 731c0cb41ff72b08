//! The `patterns` world: views whose items are not single rows, and jobs that the client of the `company` world does not send.
//!
//! | view | source | target | |
//! |---|---|---|---|
//! | `by_last_name` | Employees | Lists | a list for each last name |
//! | `by_last_name_near` | Employees | Employees | a list for each last name, in the primaries' own partition |
//! | `headcount` | Employees | Groups | totals of each department |
//! | `by_skill` | Employees | `skilled` | a list in a blob for each skill |
//! | `photos`, `former_photos` | Employees, FormerEmployees | `large`, `former-large` | large values, which the put contains or which are staged before the put |
//! | `team_name` | Teams, or Employees | Employees | the name that a team sets on a range of employees; the range may include the team's own key |
//! | `lead` | Employees | Employees | a property that one employee, the lead, sets on the team in the same partition |
//!
//! In some seeds, employees and former employees are wide entities, which take several rows, or jobs write an encrypted property. Employees
//! are archived, restored and moved to other keys, while audits and backfills process whole tables.

mod catalog;
mod oracle;
mod script;
mod shape;

use super::fault_plan::{FaultScope, JOBS};
use evenkeel_model::large::STAGING;
use evenkeel_model::range_overlay::RANGE_OVERLAYS;
use evenkeel_model::settled::FOOTPRINTS;

pub(super) use catalog::catalog;
pub(super) use oracle::{Excused, judge};
pub(super) use script::{LARGE_PROPERTIES, sent_values, steps};
pub(super) use shape::PatternsShape;

pub(super) const TABLES: [&str; 8] = [
    "Employees",
    "FormerEmployees",
    "Lists",
    "Groups",
    "Teams",
    RANGE_OVERLAYS,
    "EvenkeelAudits",
    FOOTPRINTS,
];
pub(crate) const TEAM: &str = "team";
const LEAD: &str = "1";
const SKILLED: &str = "skilled";
const LARGE: &str = "large";
const FORMER_LARGE: &str = "former-large";
pub(super) const CONTAINERS: [&str; 4] = [SKILLED, LARGE, FORMER_LARGE, STAGING];

pub(super) const SCOPES: [FaultScope; 7] = [
    FaultScope::Partition("Employees", "Sales"),
    FaultScope::Partition("EvenkeelFootprints", "Employees~Sales"),
    FaultScope::Partition("Lists", "list"),
    FaultScope::Partition("FormerEmployees", "Sales"),
    FaultScope::Partition("Groups", "group"),
    FaultScope::Queue(JOBS),
    FaultScope::Queue("jobs-recheck"),
];
