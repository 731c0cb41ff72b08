//! How far a job about a whole table is, as its message says from now on.

use crate::model::Job;
use crate::model::audit::AuditCursor;
use crate::model::backfill::BackfillCursor;
use crate::reconcile::{Outcome, Work};

/// How far a `backfill` or an `audit` job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walked {
    /// Scope of the walk, in words.
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

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::model::job;
    use crate::reconcile::Summary;

    fn walked(job: &Value, cursor: Value) -> Option<Walked> {
        let work = Work::Job(job::decode(&job.to_string()).unwrap().job);
        let fields = Map::from_iter([("cursor".to_owned(), cursor)]);
        Walked::of(&work, &Outcome::Advanced { fields, summary: Summary::default() })
    }

    #[test]
    fn a_part_of_a_backfill_or_an_audit_tells_how_far_it_is_and_nothing_else_does() {
        let backfill = walked(&json!({"op": "backfill", "view": "by_email"}), json!({"done": 250, "failed": 2})).unwrap();
        assert_eq!(backfill, Walked { of: "the view by_email".to_owned(), primaries: 250, failed: 2, wrong: None });
        let audit = json!({"op": "audit", "table": "Employees"});
        let part = walked(&audit, json!({"primaries": 100, "rows": 7, "drift": {"a": 1, "b": 2}})).unwrap();
        assert_eq!(part, Walked { of: "the table Employees".to_owned(), primaries: 100, failed: 0, wrong: Some(3) });
        assert_eq!(walked(&audit, json!("nonsense")), None);
        assert_eq!(walked(&json!({"op": "drop_table", "table": "Logins20260101"}), json!({"rows": 3})), None);
        let done = Work::Job(job::decode(&audit.to_string()).unwrap().job);
        assert_eq!(Walked::of(&done, &Outcome::Done(Summary::default())), None);
    }
}
