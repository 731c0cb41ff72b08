//! `delete`: deletes a primary, if it exists, and its derived items.
//!
//! The job must not delete a second entity with the same key, even if it is delivered twice. So it skips a primary that
//! may have been created after the job was enqueued. It also skips a primary that may have been created after a delete
//! request of this run got no answer.
//!
//! The job may name a property that grows with every change (`newer_by`). The values of this property then decide
//! instead of the clocks. If they are equal or one of them is missing, the clocks decide.

use std::cmp::Ordering;

use crate::execute::{Delivery, Failure, Outcome};
use crate::failure::permanent;
use crate::jobs::RunJob;
use crate::jobs::checks::{refuse_derived, unsatisfied};
use crate::jobs::context::JobContext;
use crate::jobs::newer::compared;
use crate::jobs::since::{DatedRow, is_written_since};
use crate::protocol::change::{Change, Commit};
use crate::protocol::run::passes::pass;
use evenkeel_model::job::DeleteJob;
use evenkeel_model::{ETag, Row};

impl RunJob for DeleteJob {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        cx.env.refuse_view_tables(&self.primary.table)?;
        let mut reconciler = pass(&cx.env, &self.primary, delivery)?;
        let source = reconciler.scope().source;
        let when = cx
            .env
            .condition_at(source, self.when.as_ref(), delivery.stamp.enqueued)?;
        if let Some((property, _)) = &self.newer_by {
            cx.encryption()
                .refuse_encrypted_order(source, &self.primary, property)?;
        }
        // The version for which a delete request of this run got no answer.
        let mut unanswered: Option<ETag> = None;
        loop {
            reconciler.next_round().await?;
            let seen = reconciler.observe().await?;
            refuse_derived(&seen, &self.primary)?;
            let Some(row) = seen.row() else {
                reconciler.settle_from(&seen).await?;
                return Ok(Outcome::Done(reconciler.take_summary()));
            };
            let skew = cx.env.clocks_apart(delivery, reconciler.scope().source);
            let unsatisfied = unsatisfied(row, when.as_ref());
            let age = age(self, row)?;
            if let Some(reason) = unmet(
                DatedRow { row, skew },
                age,
                self.if_match.as_ref(),
                unsatisfied,
                unanswered.as_ref(),
                delivery,
            )? {
                reconciler.settle_from(&seen).await?;
                return Ok(Outcome::Skipped {
                    reason,
                    summary: reconciler.take_summary(),
                });
            }
            match reconciler
                .commit(
                    &seen,
                    &Change::Delete(row.entity.key.clone(), row.etag.clone()),
                )
                .await?
            {
                Commit::Closed => return Ok(Outcome::Done(reconciler.take_summary())),
                Commit::Committed => {
                    reconciler.settle().await?;
                    return Ok(Outcome::Done(reconciler.take_summary()));
                }
                Commit::Unanswered => unanswered = Some(row.etag.clone()),
                Commit::Lost => {}
            }
        }
    }
}

/// Whether the deletion is newer than the stored entity, by the property that the job names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    Newer,
    /// Older than the stored entity, or one of the values is NaN.
    Older,
    /// The values are equal, or one of them is missing, so the clocks decide.
    Undecided,
}

fn age(job: &DeleteJob, row: &Row) -> Result<Age, Failure> {
    let Some((property, new)) = &job.newer_by else {
        return Ok(Age::Undecided);
    };
    let Some(stored) = row.entity.get(property) else {
        return Ok(Age::Undecided);
    };
    let ordering = compared(property, new, stored)
        .map_err(|error| permanent(format!("deleting {}", job.primary), error))?;
    Ok(match ordering {
        Some(Ordering::Greater) => Age::Newer,
        Some(Ordering::Equal) => Age::Undecided,
        Some(Ordering::Less) | None => Age::Older,
    })
}

/// Returns the reason to skip the job, if there is one. `unsatisfied` contains a reason if the entity does not satisfy
/// the job's condition. `unanswered` is the version for which a delete request got no answer.
fn unmet(
    stored: DatedRow<'_>,
    age: Age,
    if_match: Option<&ETag>,
    unsatisfied: Option<String>,
    unanswered: Option<&ETag>,
    delivery: &Delivery,
) -> Result<Option<String>, Failure> {
    let row = stored.row;
    if let Some(expected) = if_match
        && row.etag != *expected
    {
        return Ok(Some(format!(
            "if_match: the entity is at {}, not at {expected}",
            row.etag
        )));
    }
    if unsatisfied.is_some() {
        return Ok(unsatisfied);
    }
    match age {
        Age::Older => return Ok(Some("newer_by: the stored entity is newer".to_owned())),
        // The values of `newer_by` alone decide. Neither the clocks nor an unanswered request matter.
        Age::Newer => return Ok(None),
        Age::Undecided => {}
    }
    // `unanswered` is the version that an unanswered request of this run may have deleted. If the present version is
    // another one, it was written after this run read `unanswered`, whatever the clocks show.
    if unanswered.is_some_and(|unanswered| *unanswered != row.etag) {
        return Ok(Some(
            "a delete request got no answer, and the entity was written after that request, so it may be another entity. Send a new job to delete it"
                .to_owned(),
        ));
    }
    Ok(is_written_since(stored, delivery)?.then(|| {
        "the entity was written after this job was enqueued, so it may be another entity. Send a new job to delete it".to_owned()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::job::{Primary, Stamp};
    use evenkeel_model::{
        AccountName, EdmDateTime, EdmValue, Entity, EntityKey, QueueName, TableName,
    };
    use evenkeel_storage::ClockSkew;

    fn row(written: &str) -> Row {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap());
        Row {
            entity,
            etag: ETag::new("e1").unwrap(),
            timestamp: Some(EdmDateTime::parse(written).unwrap()),
        }
    }

    fn dated(row: &Row) -> DatedRow<'_> {
        DatedRow {
            row,
            skew: ClockSkew::NOT,
        }
    }

    fn delivery(dequeue_count: u32) -> Delivery {
        Delivery {
            stamp: Stamp {
                message_id: "m".to_owned(),
                enqueued: "2026-11-20T15:00:00Z".parse().unwrap(),
                job: None,
            },
            dequeue_count,
            account: AccountName::main(),
            propagation_queue: QueueName::new("jobs").unwrap(),
            sync_queue: QueueName::new("jobs").unwrap(),
            recheck_queue: QueueName::new("jobs-recheck").unwrap(),
            tables: None,
        }
    }

    /// A sender may send a message twice, so even a first delivery may be a duplicate.
    #[test]
    fn no_delivery_deletes_an_entity_written_since() {
        for dequeue_count in [1, 2] {
            assert!(
                unmet(
                    dated(&row("2026-11-20T16:00:00Z")),
                    Age::Undecided,
                    None,
                    None,
                    None,
                    &delivery(dequeue_count)
                )
                .unwrap()
                .is_some()
            );
            assert_eq!(
                unmet(
                    dated(&row("2026-11-20T15:00:00.9Z")),
                    Age::Undecided,
                    None,
                    None,
                    None,
                    &delivery(dequeue_count)
                )
                .unwrap(),
                None
            );
        }
        assert!(
            unmet(
                dated(&row("2026-11-20T15:00:01Z")),
                Age::Undecided,
                None,
                None,
                None,
                &delivery(2)
            )
            .unwrap()
            .is_some()
        );
    }

    #[test]
    fn after_an_unanswered_delete_another_version_is_left_alone() {
        let (same, other) = (ETag::new("e1").unwrap(), ETag::new("e0").unwrap());
        assert_eq!(
            unmet(
                dated(&row("2026-11-20T14:00:00Z")),
                Age::Undecided,
                None,
                None,
                Some(&same),
                &delivery(1)
            )
            .unwrap(),
            None
        );
        assert!(
            unmet(
                dated(&row("2026-11-20T14:00:00Z")),
                Age::Undecided,
                None,
                None,
                Some(&other),
                &delivery(1)
            )
            .unwrap()
            .is_some()
        );
    }

    #[test]
    fn a_stale_etag_skips_the_job() {
        assert!(
            unmet(
                dated(&row("2026-11-20T14:00:00Z")),
                Age::Undecided,
                Some(&ETag::new("e2").unwrap()),
                None,
                None,
                &delivery(1)
            )
            .unwrap()
            .is_some()
        );
        assert_eq!(
            unmet(
                dated(&row("2026-11-20T14:00:00Z")),
                Age::Undecided,
                Some(&ETag::new("e1").unwrap()),
                None,
                None,
                &delivery(1)
            )
            .unwrap(),
            None
        );
    }

    #[test]
    fn newer_by_decides_without_clocks_unless_the_values_are_equal() {
        let delete = |value: EdmValue| {
            let primary = Primary {
                table: TableName::new("Portraits").unwrap(),
                key: EntityKey::new("p", "r").unwrap(),
            };
            DeleteJob {
                primary,
                if_match: None,
                when: None,
                newer_by: Some(("V".to_owned(), value)),
            }
        };
        let stored = |written: &str, value: Option<EdmValue>| {
            let mut row = row(written);
            row.entity
                .properties
                .extend(value.map(|value| ("V".to_owned(), value)));
            row
        };
        let (before, since) = ("2026-11-20T14:00:00Z", "2026-11-20T16:00:00Z");
        for (written, value, is_deleted) in [
            (before, Some(2.into()), false),
            (since, Some(2.into()), false),
            (before, Some(f64::NAN.into()), false),
            (since, Some(0.into()), true),
            (since, Some(0.5.into()), true),
            (before, Some(1_i64.into()), true),
            (since, Some(1_i64.into()), false),
            (before, None, true),
            (since, None, false),
        ] {
            let row = stored(written, value.clone());
            let age = super::age(&delete(1.into()), &row).unwrap();
            let kept = unmet(dated(&row), age, None, None, None, &delivery(2)).unwrap();
            assert_eq!(kept.is_none(), is_deleted, "{written} {value:?}: {kept:?}");
        }
        assert!(super::age(&delete("1".into()), &stored(before, Some(1.into()))).is_err());
    }
}
