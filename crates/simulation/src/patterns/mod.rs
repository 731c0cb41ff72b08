//! The second world: what does not lie in one row, and the jobs that the company's client does not send.
//!
//! | view | source | target | |
//! |---|---|---|---|
//! | `by_last_name` | Employees | Lists | a list for each last name |
//! | `by_last_name_near` | Employees | Employees | the same in the primaries' own partition |
//! | `headcount` | Employees | Groups | figures of each department |
//! | `by_skill` | Employees | `skilled` | a list in a blob for each skill |
//! | `photos`, `former_photos` | Employees, FormerEmployees | `large`, `former-large` | large values, which a put brings or finds staged |
//! | `team_name` | Teams, or Employees | Employees | what a team says to a range of employees, which it may lie in |
//! | `lead` | Employees | Employees | what one of these says to the team beside it |
//!
//! Employees and those who left may be wide. In some seeds jobs bring an encrypted property. They are archived, restored and moved to other keys; whole tables are audited and gone
//! through again meanwhile.

mod catalog;
mod oracle;
mod script;
mod shape;

use super::fault_plan::{FaultScope, JOBS};
use evenkeel_model::claim::CLAIMS;
use evenkeel_model::large::STAGING;
use evenkeel_model::settled::FOOTPRINTS;

pub(super) use catalog::catalog;
pub(super) use oracle::{Excused, judge};
pub(super) use script::{LARGE_PROPERTIES, said, steps};
pub(super) use shape::PatternsShape;

/// Every table, footprints included.
pub(super) const TABLES: [&str; 8] = [
    "Employees",
    "FormerEmployees",
    "Lists",
    "Groups",
    "Teams",
    CLAIMS,
    "EvenkeelAudits",
    FOOTPRINTS,
];
/// The row key of a team.
pub(crate) const TEAM: &str = "team";
/// The row key of the lead of a team.
const LEAD: &str = "1";
/// The container of lists of employees by skill.
const SKILLED: &str = "skilled";
/// The container of large values.
const LARGE: &str = "large";
/// The container of large values of those who left.
const FORMER_LARGE: &str = "former-large";
/// Every container.
pub(super) const CONTAINERS: [&str; 4] = [SKILLED, LARGE, FORMER_LARGE, STAGING];

/// What is throttled by itself.
pub(super) const LANES: [FaultScope; 7] = [
    FaultScope::Partition("Employees", "Sales"),
    FaultScope::Partition("EvenkeelFootprints", "Employees~Sales"),
    FaultScope::Partition("Lists", "list"),
    FaultScope::Partition("FormerEmployees", "Sales"),
    FaultScope::Partition("Groups", "group"),
    FaultScope::Queue(JOBS),
    FaultScope::Queue("jobs-recheck"),
];
