//! Rules: entities that are archived or deleted once they satisfy a condition.

use std::time::Duration;

use crate::ViewName;
use crate::sweep::Sweep;

/// `[rules.NAME]`: a conditional job that workers send from time to time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name of the rule.
    pub name: ViewName,
    /// The job that is sent.
    pub sweep: Sweep,
    /// The time between two jobs of the rule.
    pub every: Duration,
}
