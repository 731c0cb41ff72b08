use evenkeel_engine::{Outcome, Work};
use evenkeel_model::job::WalkProgress;

/// The progress of a table walk; `None` unless the run advanced.
pub(super) fn walked(work: &Work, outcome: &Outcome) -> Option<WalkProgress> {
    match (work, outcome) {
        (Work::Job(job), Outcome::Advanced { fields, .. }) => {
            job.operation().walk_progress(fields.get("cursor")?)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use evenkeel_engine::Summary;
    use evenkeel_model::job;

    fn walked(job: &Value, cursor: Value) -> Option<WalkProgress> {
        let work = Work::Job(job::decode(&job.to_string()).unwrap().job);
        let fields = Map::from_iter([("cursor".to_owned(), cursor)]);
        super::walked(
            &work,
            &Outcome::Advanced {
                fields,
                summary: Summary::default(),
            },
        )
    }

    #[test]
    fn backfills_and_audits_report_progress_and_no_other_job_does() {
        let backfill = walked(
            &json!({"op": "backfill", "view": "by_email"}),
            json!({"done": 250, "failed": 2}),
        )
        .unwrap();
        assert_eq!(
            backfill,
            WalkProgress {
                of: "the view by_email".to_owned(),
                primaries: 250,
                failed: 2,
                wrong: None
            }
        );
        let audit = json!({"op": "audit", "table": "Employees"});
        let part = walked(
            &audit,
            json!({"primaries": 100, "rows": 7, "drift": {"a": 1, "b": 2}}),
        )
        .unwrap();
        assert_eq!(
            part,
            WalkProgress {
                of: "the table Employees".to_owned(),
                primaries: 100,
                failed: 0,
                wrong: Some(3)
            }
        );
        assert_eq!(walked(&audit, json!("nonsense")), None);
        assert_eq!(
            walked(
                &json!({"op": "drop_table", "table": "Logins20260101"}),
                json!({"rows": 3})
            ),
            None
        );
        let done = Work::Job(job::decode(&audit.to_string()).unwrap().job);
        assert_eq!(
            super::walked(&done, &Outcome::Done(Summary::default())),
            None
        );
    }
}
