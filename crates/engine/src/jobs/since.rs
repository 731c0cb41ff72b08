//! Decides whether an entity was written after a job was enqueued, within the precision of the clocks. This module is
//! pure: it makes no requests and reads no clock.
//!
//! A sender that retries may send a message twice, and the duplicate may be delivered for the first time long after the
//! job is done. So every delivery checks, not only redeliveries. Two clocks are compared: the table service sets a
//! row's `Timestamp`, and the queue service sets the time of enqueueing, truncated to whole seconds. The answers of
//! both services show how far their clocks differ ([`ClockSkew`]). The result is precise to fractions of a second, or
//! less precise if answers are slow.
//!
//! ```text
//!   written        ──────────────┬──────────────────┬─────────────────────────▶
//!                             enqueued            + margin
//!      before: acted upon        │  acted upon      │  since: left alone, unless an older job wrote it
//! ```
//!
//! The first delivery has the wider margin. If a client writes an entity and sends the job at once, a slow clock of the
//! queue service must not make the entity look newer than the job. A redelivery has no margin beyond the precision of
//! the clocks, because an earlier delivery may have done the job.
//!
//! In the first seconds of a process, the difference of the clocks is not known precisely. If a redelivery cannot
//! decide for this reason, its job is retried a little later.
//!
//! A document in a container or a folder has no `Timestamp`. Its stamp names the job that wrote it. If that job was
//! enqueued after the present one, the document counts as written since. Both times come from queue services.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::execute::{Delivery, Failure, FailureClass};
use crate::jobs::content::is_as_left;
use evenkeel_model::Row;
use evenkeel_model::job::Stamp;
use evenkeel_storage::ClockSkew;

/// Precision of the times that queue services report. A write in the same second as the enqueueing counts as earlier.
const QUEUE_CLOCK: SignedDuration = SignedDuration::from_secs(1);
/// The first delivery of a job acts on an entity that was written just before the job was sent, even if the clocks of
/// the table and of the queue differ by up to this much. Clocks of one region agree within fractions of a second, so
/// ten seconds suffice.
const CLOCKS_APART: SignedDuration = SignedDuration::from_secs(10);

/// Maximum uncertainty of the clock difference. If the uncertainty is greater, a redelivery waits for a more precise
/// difference. One answer of each service leaves an uncertainty of at least two seconds.
const KNOWN_WELL: SignedDuration = SignedDuration::from_millis(500);
/// Delivery count from which a job no longer waits for a more precise clock difference. If the difference is still
/// imprecise, the services answer too slowly to measure it.
const LEARNING: u32 = 5;
/// Delay before the retry of a job that waits for a more precise clock difference. Meanwhile, answers to other requests
/// of the worker make the difference more precise.
const LEARNS_WITHIN: Duration = Duration::from_secs(1);

/// Largest error of a worker's clock. The service refuses requests that are signed with a time further off.
const WORKER_OFF: SignedDuration = SignedDuration::from_mins(15);

/// A row, and by how much the clock of the job's queue service is ahead of the clock of the row's table service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatedRow<'r> {
    pub(crate) row: &'r Row,
    pub(crate) skew: ClockSkew,
}

/// Whether a row may have been written since the job was enqueued. `by_worker` is the time of the write by a worker's
/// clock. It is used for documents, for which the service reports no time.
pub(crate) fn may_be_since(
    DatedRow { row, skew }: DatedRow<'_>,
    by_worker: Option<Timestamp>,
    enqueued: Timestamp,
) -> bool {
    let enqueued = enqueued.saturating_sub(skew.most).unwrap_or(enqueued);
    let (written, margin) = match (&row.timestamp, by_worker) {
        (Some(written), _) => (written.timestamp(), CLOCKS_APART),
        (None, Some(written)) => (written, CLOCKS_APART.saturating_add(WORKER_OFF)),
        (None, None) => return true,
    };
    written
        .saturating_add(margin)
        .is_ok_and(|written| written >= enqueued)
}

/// Returns `true` if the entity was written after the job was enqueued, and not by an older job. An earlier message or
/// delivery of this job may then have removed the previous entity, and the job must not remove a second one. Fails
/// transiently if the clock difference is not yet precise enough to decide.
pub(crate) fn is_written_since(
    DatedRow { row, skew }: DatedRow<'_>,
    delivery: &Delivery,
) -> Result<bool, Failure> {
    let enqueued = delivery.stamp.enqueued;
    // Queues do not keep the order of messages, so an older `put` may have written the entity after this job was
    // enqueued. This job then applies to that entity. If a client has changed the entity after the `put`, the stamp of
    // the `put` is still there, but its digest no longer matches the content.
    let by = Stamp::of(&row.entity);
    let is_as_left = || row.timestamp.is_none() || is_as_left(&row.entity);
    let by_an_older_job = by
        .as_ref()
        .is_some_and(|written| written.enqueued <= enqueued)
        && is_as_left();
    if by_an_older_job {
        return Ok(false);
    }
    let Some(written) = row.timestamp else {
        return Ok(by.is_some());
    };
    let is_after = |margin| {
        enqueued
            .saturating_add(margin)
            .is_ok_and(|since| written.timestamp() >= since)
    };
    if delivery.dequeue_count == 1 {
        return Ok(is_after(
            QUEUE_CLOCK
                .saturating_add(CLOCKS_APART)
                .saturating_sub(skew.surely()),
        ));
    }
    let (may_be, is_surely) = (
        is_after(QUEUE_CLOCK.saturating_sub(skew.most)),
        is_after(QUEUE_CLOCK.saturating_sub(skew.least)),
    );
    if may_be && !is_surely && skew.within() > KNOWN_WELL && delivery.dequeue_count < LEARNING {
        let step = format!(
            "checking whether {} was written before the job was sent",
            row.entity.key
        );
        let class = FailureClass::Transient {
            retry_after: Some(LEARNS_WITHIN),
        };
        return Err(Failure::new(
            class,
            step,
            "the clock difference between the queue and the table service is not measured precisely yet. The job will be retried",
        ));
    }
    Ok(may_be)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{AccountName, ETag, EdmDateTime, Entity, EntityKey, QueueName};

    fn stamp(enqueued: &str) -> Stamp {
        Stamp {
            message_id: "m".to_owned(),
            enqueued: enqueued.parse().unwrap(),
            job: None,
        }
    }

    fn is_since(written: &str, by: Option<&str>, dequeue_count: u32) -> bool {
        is_since_apart(written, by, dequeue_count, (0, 0))
    }

    fn is_since_apart(
        written: &str,
        by: Option<&str>,
        dequeue_count: u32,
        skew: (i64, i64),
    ) -> bool {
        try_is_since_apart(written, by, dequeue_count, skew).unwrap()
    }

    /// `least` and `most` bound the difference of the services' clocks, in seconds. If `written` is empty, the row is a
    /// document.
    fn try_is_since_apart(
        written: &str,
        by: Option<&str>,
        dequeue_count: u32,
        (least, most): (i64, i64),
    ) -> Result<bool, Failure> {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap());
        let entity = by.map_or_else(
            || entity.clone(),
            |by| {
                Stamp {
                    message_id: "o".to_owned(),
                    ..stamp(by)
                }
                .on(entity.clone())
            },
        );
        let row = Row {
            entity,
            etag: ETag::new("e1").unwrap(),
            timestamp: EdmDateTime::parse(written).ok(),
        };
        let delivery = Delivery {
            stamp: stamp("2026-11-20T15:00:00Z"),
            dequeue_count,
            account: AccountName::main(),
            propagation_queue: QueueName::new("jobs").unwrap(),
            sync_queue: QueueName::new("jobs").unwrap(),
            recheck_queue: QueueName::new("jobs-recheck").unwrap(),
            tables: None,
        };
        let skew = ClockSkew {
            least: SignedDuration::from_secs(least),
            most: SignedDuration::from_secs(most),
        };
        is_written_since(DatedRow { row: &row, skew }, &delivery)
    }

    #[test]
    fn every_delivery_acts_on_an_entity_written_before_the_job() {
        for deliveries in [1, 2] {
            assert!(!is_since("2026-11-20T14:00:00Z", None, deliveries));
            assert!(
                !is_since("2026-11-20T15:00:00.9Z", None, deliveries),
                "written in the second in which the job was enqueued"
            );
        }
    }

    #[test]
    fn every_delivery_leaves_an_entity_written_since_alone() {
        for deliveries in [1, 2] {
            assert!(is_since("2026-11-20T15:01:00Z", None, deliveries));
        }
    }

    #[test]
    fn only_a_first_delivery_tolerates_clock_differences() {
        for (written, first, again) in [
            ("2026-11-20T15:00:01Z", false, true),
            ("2026-11-20T15:00:10.9Z", false, true),
            ("2026-11-20T15:00:11Z", true, true),
        ] {
            assert_eq!(
                (is_since(written, None, 1), is_since(written, None, 2)),
                (first, again),
                "{written}"
            );
        }
    }

    #[test]
    fn a_known_clock_difference_is_subtracted() {
        for (skew, written, first, again) in [
            // The queue's clock is 40 s ahead: by the table's clock the job was enqueued at 14:59:20.
            ((39, 41), "2026-11-20T14:59:19Z", false, false),
            ((39, 41), "2026-11-20T14:59:20Z", false, true),
            ((39, 41), "2026-11-20T14:59:31.9Z", false, true),
            ((39, 41), "2026-11-20T14:59:32Z", true, true),
            // The queue's clock is 40 s behind: by the table's clock the job was enqueued at 15:00:40.
            ((-41, -39), "2026-11-20T15:00:39.9Z", false, false),
            ((-41, -39), "2026-11-20T15:00:40Z", false, true),
            ((-41, -39), "2026-11-20T15:00:49.9Z", false, true),
            ((-41, -39), "2026-11-20T15:00:50Z", true, true),
            // It is unknown which clock is ahead.
            ((-30, 30), "2026-11-20T14:59:30Z", false, false),
            ((-30, 30), "2026-11-20T14:59:31Z", false, true),
            ((-30, 30), "2026-11-20T15:00:10.9Z", false, true),
        ] {
            let is_since = |deliveries| is_since_apart(written, None, deliveries, skew);
            assert_eq!(
                (is_since(1), is_since(LEARNING)),
                (first, again),
                "{written}, {skew:?} s apart"
            );
        }
    }

    #[test]
    fn an_entity_written_late_by_an_older_job_counts_as_older() {
        for deliveries in [1, 2] {
            assert!(!is_since(
                "2026-11-20T16:00:00Z",
                Some("2026-11-20T14:59:59Z"),
                deliveries
            ));
            assert!(
                !is_since(
                    "2026-11-20T16:00:00Z",
                    Some("2026-11-20T15:00:00Z"),
                    deliveries
                ),
                "the order of the two jobs is unknown"
            );
            assert!(is_since(
                "2026-11-20T16:00:00Z",
                Some("2026-11-20T15:00:01Z"),
                deliveries
            ));
        }
    }

    #[test]
    fn a_document_is_newer_if_a_later_job_archived_it() {
        for deliveries in [1, 2] {
            assert!(is_since("", Some("2026-11-20T15:00:01Z"), deliveries));
            assert!(
                !is_since("", Some("2026-11-20T15:00:00Z"), deliveries),
                "the order of the two jobs is unknown"
            );
            assert!(!is_since("", None, deliveries), "no worker archived it");
        }
    }

    #[test]
    fn a_redelivery_waits_for_the_clock_difference_if_it_decides() {
        // By the table's clock, the job was enqueued at 14:59:59 at the earliest, and at 15:00:03 at the latest.
        for (written, decided) in [
            ("2026-11-20T14:59:58.9Z", Some(false)),
            ("2026-11-20T15:00:00Z", None),
            ("2026-11-20T15:00:03Z", Some(true)),
        ] {
            assert_eq!(
                try_is_since_apart(written, None, 2, (-2, 2)).ok(),
                decided,
                "{written}"
            );
            assert!(
                try_is_since_apart(written, None, LEARNING, (-2, 2)).is_ok(),
                "delivery {LEARNING} decides without a more precise difference"
            );
        }
    }
}
