//! Rules: entities that leave by themselves when they satisfy a condition.

use std::time::Duration;

use crate::ViewName;
use crate::sweep::Sweep;

/// `[rules.NAME]`: a job by condition that workers send from time to time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: ViewName,
    /// The job.
    pub sweep: Sweep,
    /// How long after it was sent it is sent again.
    pub every: Duration,
}
