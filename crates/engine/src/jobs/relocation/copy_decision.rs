//! Decides what a relocation does with its target, by comparing the versions of the source and of the copy.

use jiff::SignedDuration;

use crate::execute::{Delivery, Failure};
use crate::jobs::since::{DatedRow, is_written_since, may_be_since};
use evenkeel_model::item::{SOURCE_ETAG, SOURCE_JOB, SOURCE_SHARED};
use evenkeel_model::job::Stamp;
use evenkeel_model::{ETag, EdmValue, Entity, Row};

pub(crate) const ARCHIVED_AT: &str = "ek_archived_at";
/// Maximum time between two messages that a sender sends for the same job. It covers the sender's retries and the delay
/// of a request.
const TWINS_APART: SignedDuration = SignedDuration::from_mins(20);

/// Whether the copy is marked as shared: a second run, besides the one that wrote the copy, relies on it, and may have
/// deleted the source.
pub(crate) fn is_shared(copy: &Entity) -> bool {
    copy.get(SOURCE_SHARED).is_some()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyDecision {
    Insert,
    /// Replaces a copy that another job archived earlier, or this job's copy of an earlier version of the source.
    Replace(ETag),
    Copied,
    /// The source stays, because it does not match `if_match`, does not satisfy `when`, or may be newer than the entity
    /// for which this job was sent.
    Skip(String),
}

pub(crate) fn decide(
    dated: DatedRow<'_>,
    archived: Option<&Row>,
    delivery: &Delivery,
    source_delete_impossible: bool,
) -> Result<CopyDecision, Failure> {
    let source = dated.row;
    let stamp = &delivery.stamp;
    let Some(archived) = archived else {
        // An earlier delivery or message of this job may have relocated the entity, and a `restore` or `move` may have
        // brought it back. `SOURCE_JOB` names the job that wrote such an entity at its previous place. If that job is
        // the present one, or was enqueued later, the entity is not relocated again. If both jobs were enqueued in the
        // same second, a redelivery assumes that the present job came first.
        let came_later = |by: &Stamp| {
            by.enqueued > stamp.enqueued
                || (by.enqueued == stamp.enqueued && delivery.dequeue_count > 1)
        };
        let brought_back = Stamp::under(SOURCE_JOB, &source.entity)
            .is_some_and(|by| by.is_same_job(stamp) || came_later(&by));
        return Ok(if brought_back {
            CopyDecision::Skip("a later job has brought the entity back".to_owned())
        } else {
            CopyDecision::Insert
        });
    };
    Ok(match Stamp::of(&archived.entity) {
        Some(written) if written.is_same_job(stamp) => {
            if archived.entity.text(SOURCE_ETAG) == Some(source.etag.as_str()) {
                return Ok(CopyDecision::Copied);
            }
            // If `SOURCE_ETAG` is missing, a run of this job gave up and removed it. That run had certainly not deleted
            // the source.
            let reopened = archived.entity.get(SOURCE_ETAG).is_none();
            // The source has another version than the copy. There are two possible reasons: the source was updated
            // after it was copied, or this job deleted the source, and the entity was created anew. The time of the
            // copy does not show which it is, because others may have written to the copy since.
            if source_delete_impossible && !is_shared(&archived.entity) || reopened {
                CopyDecision::Replace(archived.etag.clone())
            } else {
                CopyDecision::Skip("another delivery copied another version, so this may be a new entity. Send a new job to relocate it".to_owned())
            }
        }
        Some(written) if written.enqueued > stamp.enqueued => {
            CopyDecision::Skip("a later job has relocated the entity, and the present entity was created after that".to_owned())
        }
        // The sender may have sent this job twice, and the run of the other message may have relocated the previous
        // entity.
        Some(written) if stamp.enqueued.duration_since(written.enqueued) <= TWINS_APART && is_written_since(dated, delivery)? => {
            CopyDecision::Skip("a job enqueued shortly before this one has relocated the entity, and the present entity was written after that. Send a new job to relocate it".to_owned())
        }
        Some(_) | None => CopyDecision::Replace(archived.etag.clone()),
    })
}

/// Returns `true` if an earlier delivery of this job may have archived the entity, and another job then archived the
/// version in `archived`. The archived row names only the last job, so the times decide. Returns `false` if the source,
/// or the copy of the other job, was written before this job was enqueued.
pub(crate) fn may_have_archived(
    source: DatedRow<'_>,
    archived: DatedRow<'_>,
    delivery: &Delivery,
) -> bool {
    let kept = archived.row;
    let is_own = delivery.stamp.is_on(&kept.entity);
    let is_this_version = kept.entity.text(SOURCE_ETAG) == Some(source.row.etag.as_str());
    let archived_at = match kept.entity.get(ARCHIVED_AT) {
        Some(EdmValue::DateTime(at)) => Some(at.timestamp()),
        _ => None,
    };
    let enqueued = delivery.stamp.enqueued;
    let acted =
        || may_be_since(source, None, enqueued) && may_be_since(archived, archived_at, enqueued);
    delivery.dequeue_count > 1 && !is_own && !is_this_version && acted()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use evenkeel_model::{EdmDateTime, Entity, EntityKey};
    use evenkeel_storage::ClockSkew;

    const fn dated(row: &Row) -> DatedRow<'_> {
        DatedRow {
            row,
            skew: ClockSkew::NOT,
        }
    }

    fn decide(
        source: &Row,
        archived: Option<&Row>,
        delivery: &Delivery,
        source_delete_impossible: bool,
    ) -> Result<CopyDecision, Failure> {
        super::decide(dated(source), archived, delivery, source_delete_impossible)
    }

    fn stamp(id: &str, second: i64) -> Stamp {
        Stamp {
            message_id: id.to_owned(),
            enqueued: jiff::Timestamp::from_second(second).unwrap(),
            job: None,
        }
    }

    fn delivered(job: &Stamp, dequeue_count: u32) -> Delivery {
        Delivery {
            stamp: job.clone(),
            dequeue_count,
            account: evenkeel_model::AccountName::main(),
            propagation_queue: evenkeel_model::QueueName::new("jobs").unwrap(),
            sync_queue: evenkeel_model::QueueName::new("jobs").unwrap(),
            recheck_queue: evenkeel_model::QueueName::new("jobs-recheck").unwrap(),
            tables: None,
        }
    }

    fn row(etag: &str, written: &str) -> Row {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap());
        Row {
            entity,
            etag: ETag::new(etag).unwrap(),
            timestamp: Some(EdmDateTime::parse(written).unwrap()),
        }
    }

    fn kept(by: &Stamp, source_etag: &str, written: &str) -> Row {
        let mut kept = row("kept", written);
        kept.entity = by.on(kept.entity).with(SOURCE_ETAG, source_etag);
        kept
    }

    const EARLY: &str = "2026-11-20T15:00:00Z";
    const LATE: &str = "2026-11-20T16:00:00Z";

    #[test]
    fn an_archived_row_is_inserted_or_replaced_at_its_own_etag() {
        // This job comes long after the one that archived the previous entity, so it is not a duplicate.
        let job = stamp("m", 10_000);
        assert_eq!(
            decide(&row("e1", EARLY), None, &delivered(&job, 2), false).unwrap(),
            CopyDecision::Insert
        );
        assert_eq!(
            decide(
                &row("e1", EARLY),
                Some(&kept(&stamp("old", 50), "e0", EARLY)),
                &delivered(&job, 2),
                false
            )
            .unwrap(),
            CopyDecision::Replace(ETag::new("kept").unwrap())
        );
        assert_eq!(
            decide(
                &row("e1", EARLY),
                Some(&row("kept", EARLY)),
                &delivered(&job, 2),
                false
            )
            .unwrap(),
            CopyDecision::Replace(ETag::new("kept").unwrap())
        );
    }

    #[test]
    fn a_version_that_this_job_has_copied_is_not_copied_again() {
        let job = stamp("m", 100);
        assert_eq!(
            decide(
                &row("e1", EARLY),
                Some(&kept(&job, "e1", LATE)),
                &delivered(&job, 2),
                false
            )
            .unwrap(),
            CopyDecision::Copied
        );
    }

    #[test]
    fn an_update_that_raced_is_copied_over_the_earlier_copy() {
        let job = stamp("m", 100);
        assert_eq!(
            decide(
                &row("e2", LATE),
                Some(&kept(&job, "e1", EARLY)),
                &delivered(&job, 2),
                true
            )
            .unwrap(),
            CopyDecision::Replace(ETag::new("kept").unwrap())
        );
    }

    #[test]
    fn a_shared_copy_is_not_overwritten() {
        let job = stamp("m", 100);
        let mut shared = kept(&job, "e1", EARLY);
        shared.entity = shared.entity.with(SOURCE_SHARED, true);
        let delivered = delivered(&job, 1);
        assert!(matches!(
            decide(&row("e2", LATE), Some(&shared), &delivered, true).unwrap(),
            CopyDecision::Skip(_)
        ));
        assert_eq!(
            decide(&row("e1", LATE), Some(&shared), &delivered, true).unwrap(),
            CopyDecision::Copied
        );
    }

    #[test]
    fn a_later_write_of_the_copy_does_not_make_a_new_entity_look_older() {
        // The last write of the copy is later than the new entity, because a view has set properties on the copy.
        let job = stamp("m", 100);
        assert!(matches!(
            decide(
                &row("e2", EARLY),
                Some(&kept(&job, "e1", LATE)),
                &delivered(&job, 2),
                false
            )
            .unwrap(),
            CopyDecision::Skip(_)
        ));
    }

    #[test]
    fn a_job_that_may_have_archived_before_skips_if_another_job_archived_since() {
        let (job, at) = (stamp("m", 10_000), |second: i64| {
            EdmDateTime::from_timestamp(jiff::Timestamp::from_second(second).unwrap()).unwrap()
        });
        let source = row("e2", LATE);
        for other in [stamp("same", 10_000), stamp("earlier", 50)] {
            let copied = |second: i64| kept(&other, "e1", &at(second).to_string());
            for (second, deliveries, expected) in [
                (10_030, 2, true),
                (9_991, 2, true),
                (9_950, 2, false),
                (10_030, 1, false),
            ] {
                assert_eq!(
                    may_have_archived(
                        dated(&source),
                        dated(&copied(second)),
                        &delivered(&job, deliveries)
                    ),
                    expected,
                    "{other} at {second}"
                );
            }
            // The table clock of the archive's account is 50 s behind the queue's clock. A copy written at 9,950 by the
            // table clock was thus written at 10,000 by the queue's clock: when the job was enqueued.
            let behind = ClockSkew {
                least: SignedDuration::from_secs(49),
                most: SignedDuration::from_secs(51),
            };
            assert!(
                may_have_archived(
                    dated(&source),
                    DatedRow {
                        row: &copied(9_950),
                        skew: behind
                    },
                    &delivered(&job, 2)
                ),
                "{other} by another clock"
            );
            assert!(
                !may_have_archived(
                    dated(&row("e1", LATE)),
                    dated(&copied(10_030)),
                    &delivered(&job, 2)
                ),
                "the copy has this version"
            );
            let old = row("e2", &at(9_950).to_string());
            assert!(
                !may_have_archived(dated(&old), dated(&copied(10_030)), &delivered(&job, 2)),
                "the source is older than the job"
            );
            // For a document, the service reports no time. Only the archiving worker's clock gives a time, and it may
            // be wrong.
            let filed = |second: Option<i64>| {
                let mut row = Row {
                    timestamp: None,
                    ..copied(0)
                };
                row.entity = second.into_iter().fold(row.entity, |entity, second| {
                    entity.with(ARCHIVED_AT, at(second))
                });
                row
            };
            for (second, expected) in [(Some(9_100), true), (Some(9_000), false), (None, true)] {
                assert_eq!(
                    may_have_archived(dated(&source), dated(&filed(second)), &delivered(&job, 2)),
                    expected,
                    "{other} at {second:?}"
                );
            }
        }
        assert!(
            !may_have_archived(
                dated(&source),
                dated(&kept(&job, "e1", LATE)),
                &delivered(&job, 2)
            ),
            "a copy of this job"
        );
    }

    #[test]
    fn a_reopened_copy_is_replaced() {
        let job = stamp("m", 100);
        let mut reopened = kept(&job, "e1", EARLY);
        reopened.entity.properties.remove(SOURCE_ETAG);
        assert_eq!(
            decide(
                &row("e2", LATE),
                Some(&reopened),
                &delivered(&job, 2),
                false
            )
            .unwrap(),
            CopyDecision::Replace(ETag::new("kept").unwrap())
        );
    }

    #[test]
    fn a_new_entity_is_left_to_a_later_job() {
        let job = stamp("m", 100);
        assert!(matches!(
            decide(
                &row("e2", LATE),
                Some(&kept(&job, "e1", EARLY)),
                &delivered(&job, 2),
                false
            )
            .unwrap(),
            CopyDecision::Skip(_)
        ));
        assert!(matches!(
            decide(
                &row("e2", LATE),
                Some(&kept(&stamp("later", 200), "e1", EARLY)),
                &delivered(&job, 2),
                false
            )
            .unwrap(),
            CopyDecision::Skip(_)
        ));
    }

    #[test]
    fn a_duplicate_message_leaves_an_entity_that_was_created_since() {
        let (first, double) = (stamp("m", 100), stamp("n", 101));
        let at = |second: i64| {
            EdmDateTime::from_timestamp(jiff::Timestamp::from_second(second).unwrap())
                .unwrap()
                .to_string()
        };
        for deliveries in [1, 2] {
            let delivered = &delivered(&double, deliveries);
            let anew = row("e2", &at(200));
            assert!(matches!(
                decide(&anew, Some(&kept(&first, "e1", &at(150))), delivered, false).unwrap(),
                CopyDecision::Skip(_)
            ));
            // The source was written before the second message was sent. So it does not count as an entity that was
            // created after the first message had been handled.
            let before = row("e2", &at(101));
            assert!(matches!(
                decide(
                    &before,
                    Some(&kept(&first, "e1", &at(90))),
                    delivered,
                    false
                )
                .unwrap(),
                CopyDecision::Replace(_)
            ));
        }
        // The job id shows that both messages are the same job, whatever the clocks show.
        let job = evenkeel_model::job::JobDigest::of(
            serde_json::json!({"op": "archive", "id": "x"})
                .as_object()
                .unwrap(),
        );
        let (first, double) = (
            Stamp {
                job: job.clone(),
                ..first
            },
            Stamp { job, ..double },
        );
        let before = row("e2", &at(101));
        assert!(matches!(
            decide(
                &before,
                Some(&kept(&first, "e1", &at(90))),
                &delivered(&double, 1),
                false
            )
            .unwrap(),
            CopyDecision::Skip(_)
        ));
        assert_eq!(
            decide(
                &before,
                Some(&kept(&first, "e2", &at(90))),
                &delivered(&double, 1),
                false
            )
            .unwrap(),
            CopyDecision::Copied
        );
    }

    #[test]
    fn an_entity_that_a_later_job_brought_back_stays() {
        let job = stamp("m", 100);
        let mut source = row("e2", LATE);
        source.entity = stamp("later", 200)
            .on(source.entity)
            .with(SOURCE_ETAG, "kept")
            .with(SOURCE_JOB, job.to_string());
        // A first delivery skips too, because the sender may have sent the job twice.
        for deliveries in [1, 2] {
            assert!(matches!(
                decide(&source, None, &delivered(&job, deliveries), false).unwrap(),
                CopyDecision::Skip(_)
            ));
        }
        source.entity = source
            .entity
            .with(SOURCE_JOB, stamp("after", 150).to_string());
        assert!(
            matches!(
                decide(&source, None, &delivered(&job, 2), false).unwrap(),
                CopyDecision::Skip(_)
            ),
            "a later job has relocated it since"
        );
    }

    #[test]
    fn an_entity_restored_before_this_job_is_relocated() {
        let job = stamp("m", 100);
        // The entity was archived and restored long ago. This job's first delivery was lost. Then a later put merged
        // into the entity.
        let mut source = row("e2", LATE);
        source.entity = stamp("put", 200)
            .on(source.entity)
            .with(SOURCE_ETAG, "kept")
            .with(SOURCE_JOB, stamp("old", 50).to_string());
        assert_eq!(
            decide(&source, None, &delivered(&job, 2), false).unwrap(),
            CopyDecision::Insert
        );
        // Without `SOURCE_JOB`, the entity was never relocated, so the write of the later job was an ordinary update.
        source.entity.properties.remove(SOURCE_JOB);
        assert_eq!(
            decide(&source, None, &delivered(&job, 2), false).unwrap(),
            CopyDecision::Insert
        );
    }
}
