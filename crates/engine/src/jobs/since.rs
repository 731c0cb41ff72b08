//! Detection of writes since a job was enqueued, within the precision of the clocks. Pure.
//!
//! A message may be doubled by its sender's own retries, and the double is delivered for the first time when the job is long done. So
//! every delivery asks, not only those that come again. Two clocks are compared: a row's `Timestamp` is the table service's, the time
//! of the enqueueing the queue service's, in whole seconds, cut off. How far the two are apart is known from the answers of both
//! ([`ClockSkew`]), to some fractions of a second, or worse after slow answers.
//!
//! ```text
//!   written        ──────────────┬──────────────────┬─────────────────────────▶
//!                             enqueued            + margin
//!     before it: acted upon      │  acted upon      │  since: left alone, unless an older job left it so
//! ```
//!
//! The first delivery has the wider margin: a client that writes an entity and sends the job at once must not be told that the entity was
//! written since, because the queue service's clock is behind. A delivery that comes again keeps to the precision of the clocks: an
//! earlier one may have done the job. Where the write lies within what the answers leave open, and they leave much open, as in the first
//! seconds of a process, the job is tried again a little later: it knows more by then.
//!
//! A document in a container or a folder has no `Timestamp`. Its stamp names the job behind it: one enqueued later has
//! archived an entity written since. Both times are a queue service's.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::execute::{Delivery, Failure, FailureClass};
use crate::jobs::content::is_as_left;
use evenkeel_model::Row;
use evenkeel_model::job::Stamp;
use evenkeel_storage::ClockSkew;

/// Queues tell times in whole seconds, cut off: a write within the second of the enqueueing counts as before it.
const QUEUE_CLOCK: SignedDuration = SignedDuration::from_secs(1);
/// How far the clocks of a table and a queue service may be apart for the first delivery of a job to act on an entity written just
/// before it was sent. Servers of one region agree within fractions of a second; ten are an order of magnitude more.
const CLOCKS_APART: SignedDuration = SignedDuration::from_secs(10);

/// How well it must be known how far the two are apart to leave an entity alone for it: a quarter of what two answers leave open.
const KNOWN_WELL: SignedDuration = SignedDuration::from_millis(500);
/// Deliveries by which it is known well, or services answer too slowly for it.
const LEARNING: u32 = 5;
/// Delay before a job is tried again: some requests of a worker under way.
const LEARNS_WITHIN: Duration = Duration::from_secs(1);

/// How far a worker's clock may be off: the service refuses signatures of one that is further off.
const WORKER_OFF: SignedDuration = SignedDuration::from_mins(15);

/// A row, and how far the clock of the job's queue service is ahead of that of the row's table service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatedRow<'r> {
    pub(crate) row: &'r Row,
    pub(crate) skew: ClockSkew,
}

/// Whether a row may have been written since the job was enqueued. `by_worker`: when it was, by a worker's clock, where no service says so.
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

/// Whether the entity was written since the job was enqueued, and not by a job that was enqueued before it: an earlier
/// message of the job, or an earlier delivery, may have taken away the previous one. Fails for now where another delivery will know better.
pub(crate) fn is_written_since(
    DatedRow { row, skew }: DatedRow<'_>,
    delivery: &Delivery,
) -> Result<bool, Failure> {
    let enqueued = delivery.stamp.enqueued;
    // Queues keep no order: a put that was sent before a delete and runs after it has written the entity that the delete means. A client
    // that has written some of it since has left the stamp as it was.
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
            "asking whether {} was written before the job was sent",
            row.entity.key
        );
        let class = FailureClass::Transient {
            retry_after: Some(LEARNS_WITHIN),
        };
        return Err(Failure::new(
            class,
            step,
            "the answers so far do not tell well enough how far the services' clocks are apart; the job is tried again",
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
        apart: (i64, i64),
    ) -> bool {
        asked(written, by, dequeue_count, apart).unwrap()
    }

    /// The services' clocks are apart by this many seconds. Without a time the row is a document.
    fn asked(
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
            carry_queue: QueueName::new("jobs").unwrap(),
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
    fn what_was_written_before_the_job_was_enqueued_is_meant_by_every_delivery() {
        for deliveries in [1, 2] {
            assert!(!is_since("2026-11-20T14:00:00Z", None, deliveries));
            assert!(
                !is_since("2026-11-20T15:00:00.9Z", None, deliveries),
                "within the second that queues tell"
            );
        }
    }

    #[test]
    fn what_was_written_since_is_left_alone_by_every_delivery() {
        for deliveries in [1, 2] {
            assert!(is_since("2026-11-20T15:01:00Z", None, deliveries));
        }
    }

    #[test]
    fn a_first_delivery_allows_for_clocks_that_differ_and_one_that_comes_again_does_not() {
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
    fn clocks_that_are_known_to_differ_are_allowed_for() {
        for (apart, written, first, again) in [
            // The queue's is 40 s ahead: it was enqueued at 14:59:20 by the table's.
            ((39, 41), "2026-11-20T14:59:19Z", false, false),
            ((39, 41), "2026-11-20T14:59:20Z", false, true),
            ((39, 41), "2026-11-20T14:59:31.9Z", false, true),
            ((39, 41), "2026-11-20T14:59:32Z", true, true),
            // It is 40 s behind: at 15:00:40.
            ((-41, -39), "2026-11-20T15:00:39.9Z", false, false),
            ((-41, -39), "2026-11-20T15:00:40Z", false, true),
            ((-41, -39), "2026-11-20T15:00:49.9Z", false, true),
            ((-41, -39), "2026-11-20T15:00:50Z", true, true),
            // Unknown which is ahead.
            ((-30, 30), "2026-11-20T14:59:30Z", false, false),
            ((-30, 30), "2026-11-20T14:59:31Z", false, true),
            ((-30, 30), "2026-11-20T15:00:10.9Z", false, true),
        ] {
            let is_since = |deliveries| is_since_apart(written, None, deliveries, apart);
            assert_eq!(
                (is_since(1), is_since(LEARNING)),
                (first, again),
                "{written}, {apart:?} s apart"
            );
        }
    }

    #[test]
    fn what_an_older_job_wrote_late_is_meant_and_what_a_later_one_wrote_is_not() {
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
                "nobody knows which came first"
            );
            assert!(is_since(
                "2026-11-20T16:00:00Z",
                Some("2026-11-20T15:00:01Z"),
                deliveries
            ));
        }
    }

    #[test]
    fn a_document_was_written_since_where_a_later_job_archived_it() {
        for deliveries in [1, 2] {
            assert!(is_since("", Some("2026-11-20T15:00:01Z"), deliveries));
            assert!(
                !is_since("", Some("2026-11-20T15:00:00Z"), deliveries),
                "nobody knows which came first"
            );
            assert!(!is_since("", None, deliveries), "no worker archived it");
        }
    }

    #[test]
    fn a_delivery_that_comes_again_waits_until_the_clocks_are_known_where_that_decides() {
        // By 14:59:59 it was enqueued at the earliest, by 15:00:03 at the latest.
        for (written, decided) in [
            ("2026-11-20T14:59:58.9Z", Some(false)),
            ("2026-11-20T15:00:00Z", None),
            ("2026-11-20T15:00:03Z", Some(true)),
        ] {
            assert_eq!(asked(written, None, 2, (-2, 2)).ok(), decided, "{written}");
            assert!(
                asked(written, None, LEARNING, (-2, 2)).is_ok(),
                "it is not known better by a {LEARNING}th delivery"
            );
        }
    }
}
