//! Rules: entities that are archived or deleted once they satisfy a condition.

use std::time::Duration;

use crate::ViewName;
use crate::sweep::Sweep;

/// `[rules.NAME]`: a conditional job that workers send from time to time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: ViewName,
    /// The job.
    pub sweep: Sweep,
    /// How long after one sending the next follows.
    pub every: Duration,
}
