//! Decides whether a job may regard a write as older or as later than its message. The clocks of the services differ.

use jiff::{SignedDuration, Timestamp};

use super::{Author, EntityJob, Expectation, JobCondition, Ledger};
use crate::entry::LedgerEntry;

/// Queues report times in whole seconds, rounded down. A job may be enqueued at any moment of its second, so a write in
/// the same second counts as earlier than the job.
const QUEUE_CLOCK: SignedDuration = SignedDuration::from_secs(1);

/// The tolerated difference between the clocks of two services (ten seconds), plus the second that queues cut off.
const SERVICES_APART: SignedDuration = SignedDuration::from_secs(11);

/// A worker estimates the difference between the clocks of the services from their answers. This is the maximum error
/// right after the worker's start, with one answer of each service. Each answer may have taken 30 seconds (the timeout
/// of a request), and gives the time in whole seconds.
const APART_WITHIN: SignedDuration = SignedDuration::from_secs(62);

#[derive(Debug, Clone, Copy)]
pub(crate) struct LastWrite<'k> {
    pub(crate) etag: Option<&'k str>,
    pub(crate) at: Timestamp,
    /// The message in the job stamp of the content.
    pub(crate) by: Option<&'k str>,
    /// When a client last merged a property into the content that the job of message `by` wrote. A merge does not
    /// change the job stamp.
    pub(crate) merged: Option<Timestamp>,
}

impl Ledger {
    /// Returns the time since which a job may regard writes as later than the job's message. This time can be before
    /// the message was enqueued, for two reasons. If the clock of the table service is ahead of the clock of the queue
    /// service, a write seems later than it was. A redelivery relies on its worker's estimate of the difference of the
    /// clocks, and this estimate may be wrong by `APART_WITHIN`.
    pub(super) fn enqueued_before(&self, entry: &LedgerEntry) -> Timestamp {
        let behind = self.clocks_apart.max(SignedDuration::ZERO);
        let unsure = if entry.deliveries.len() > 1 {
            APART_WITHIN
        } else {
            SignedDuration::ZERO
        };
        entry
            .enqueued
            .saturating_sub(behind.saturating_add(unsure))
            .unwrap_or(entry.enqueued)
    }

    /// Returns the time since which a job may regard copies as later than the job's message. For copies, this time is
    /// earlier than for writes, because a job tolerates a further difference of ten seconds between the clocks of the
    /// services.
    pub(super) fn may_be_copied_after(&self, entry: &LedgerEntry) -> Timestamp {
        let before = self.enqueued_before(entry);
        before.saturating_sub(SERVICES_APART).unwrap_or(before)
    }

    /// Whether a first delivery may regard a write as older than its message. The write may be later than the message
    /// by up to `SERVICES_APART`. If the clock of the queue service is ahead and the worker does not know this, the
    /// write may be later by that difference, too.
    fn may_seem_before(&self, entry: &LedgerEntry, written: Timestamp) -> bool {
        let ahead = SignedDuration::ZERO
            .saturating_sub(self.clocks_apart)
            .max(SignedDuration::ZERO);
        entry
            .enqueued
            .saturating_add(SERVICES_APART.saturating_add(ahead))
            .is_ok_and(|since| written < since)
    }

    /// Whether a delivery of a delete job may have deleted an employee. `last` is the employee's last write. A first
    /// delivery may delete once, whoever wrote last. A redelivery may delete only content that was written before the
    /// job was enqueued, or by an older job. If a client has merged a property after the job was enqueued, no delivery
    /// may delete the employee.
    pub(crate) fn may_have_deleted(&self, author: &Author, last: LastWrite<'_>) -> bool {
        self.entry(&author.message).is_some_and(|entry| {
            let guarded = match &entry.expectation {
                Expectation::Job(EntityJob {
                    guard: Some(JobCondition::Match(wanted)),
                    ..
                }) => last.etag != Some(wanted.as_str()),
                _ => false,
            };
            let older = entry
                .enqueued
                .saturating_add(QUEUE_CLOCK)
                .is_ok_and(|enqueued| last.at < enqueued);
            let by = last.by.filter(|_| last.merged.is_none());
            let for_older = by.is_some_and(|by| {
                self.entry(by).is_some() && !self.was_enqueued_later(by, &author.message)
            });
            let unmerged = last
                .merged
                .is_none_or(|merged| self.may_seem_before(entry, merged));
            let first = author.delivery == 1 && !entry.acted.contains(&1) && unmerged;
            !guarded && (first || older || for_older)
        })
    }

    pub(crate) fn has_deleted(&mut self, author: &Author) {
        for (_, entry) in self
            .messages
            .iter_mut()
            .filter(|((_, id), _)| *id == author.message)
        {
            entry.acted.push(author.delivery);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::listed::MessageContent;
    use evenkeel_model::EntityKey;
    use evenkeel_storage::Ttl;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_795_000_000_000 + millis).unwrap()
    }

    /// A put that was enqueued at 90 s, and a delete of the same employee at 100 s. The clock of the queue service is
    /// `ahead` seconds ahead.
    fn ledger(ahead: i64) -> Ledger {
        let key = EntityKey::new("Sales", "1").unwrap();
        let mut ledger = Ledger {
            clocks_apart: SignedDuration::from_secs(-ahead),
            ..Ledger::new(5)
        };
        for (id, op, enqueued) in [("p", "put", 90_000), ("d", "delete", 100_000)] {
            let content = Arc::new(MessageContent::of("{}", id));
            let asked = Expectation::Job(EntityJob::plain(op, "Employees", key.clone()));
            let entry = LedgerEntry::new(asked, None, (at(enqueued), &content, Ttl::Never));
            ledger
                .messages
                .insert(("jobs".to_owned(), id.to_owned()), entry);
        }
        ledger
    }

    fn may_delete(ledger: &Ledger, delivery: u32, written: i64, merged: bool) -> bool {
        let (at, author) = (
            at(written),
            Author {
                message: "d".to_owned(),
                delivery,
            },
        );
        ledger.may_have_deleted(
            &author,
            LastWrite {
                etag: None,
                at,
                by: Some("p"),
                merged: merged.then_some(at),
            },
        )
    }

    #[test]
    fn a_delete_covers_late_writes_of_older_jobs_but_not_later_merges() {
        let ledger = ledger(0);
        for delivery in [1, 2] {
            assert!(
                may_delete(&ledger, delivery, 200_000, false),
                "delivery {delivery}"
            );
            assert!(
                !may_delete(&ledger, delivery, 200_000, true),
                "delivery {delivery}"
            );
            assert!(
                may_delete(&ledger, delivery, 100_900, true),
                "delivery {delivery}"
            );
        }
        assert!(may_delete(&ledger, 1, 110_900, true) && !may_delete(&ledger, 2, 110_900, true));
        assert!(!may_delete(&ledger, 1, 111_000, true));
    }

    #[test]
    fn a_first_delivery_may_not_know_that_the_queues_clock_is_ahead() {
        let ledger = ledger(40);
        assert!(may_delete(&ledger, 1, 150_900, true) && !may_delete(&ledger, 1, 151_000, true));
        assert!(!may_delete(&ledger, 2, 110_000, true));
    }
}
