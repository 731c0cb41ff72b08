//! How far a job about a whole table is, as its message says from now on.

use crate::model::Job;
use crate::model::audit::AuditCursor;
use crate::model::backfill::BackfillCursor;
use crate::reconcile::{Outcome, Work};

/// How far a `backfill` or an `audit` job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walked {
    /// What it goes over, in words.
    pub of: String,
    /// Primaries brought in step, or compared.
    pub primaries: u64,
    /// Primaries that could not be.
    pub failed: u64,
    /// Items found wrong and not mended; nothing of a backfill.
    pub wrong: Option<u64>,
}

impl Walked {
    /// Of a run that advanced; nothing for every other.
    pub(crate) fn of(work: &Work, outcome: &Outcome) -> Option<Self> {
        let Outcome::Advanced { fields, .. } = outcome else { return None };
        let cursor = fields.get("cursor")?;
        match work {
            Work::Job(Job::Backfill(backfill)) => {
                let BackfillCursor { done, failed, .. } = serde_json::from_value(cursor.clone()).ok()?;
                Some(Self { of: backfill.scope.to_string(), primaries: done, failed, wrong: None })
            }
            Work::Job(Job::Audit(audit)) => {
                let cursor: AuditCursor = serde_json::from_value(cursor.clone()).ok()?;
                let wrong = Some(cursor.drifted());
                Some(Self { of: format!("the table {}", audit.table), primaries: cursor.primaries, failed: cursor.failed, wrong })
            }
            Work::Job(_) | Work::Recheck(_) => None,
        }
    }
}
