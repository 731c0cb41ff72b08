//! Counts the attempts of a message, from the service's dequeue count and from evenkeel's own note
//! in the message. Pure.
//!
//! The service counts every Get Messages request that it executes, even if the answer is lost. So a
//! delivery alone is not an attempt. A run is an attempt if the note records its beginning, unless
//! its delivery was written off later:
//!
//! | event | change of the note |
//! | --- | --- |
//! | a run begins, and no earlier run can have been cut off | the first renewal sets `begun` to 1; this costs no request |
//! | a run begins, and an earlier run may have been cut off | a separate request before the run increases `begun` by 1 |
//! | a run panics or times out | `begun` keeps its value, and `ended` increases by 1 |
//! | a run saves its progress | all deliveries so far are written off; a batch keeps how many of its jobs a delivery may run (`at_once`) |
//! | the delivery is settled in any other way | it is written off: `free` increases by 1; after a transient failure `failing` is updated too |
//!
//! A run that crashes the process within the first half of its first lease leaves no record. Such a
//! message is poisoned after `max_dequeue_count` + 1 runs. No message is poisoned after fewer than
//! `max_dequeue_count` runs.

use jiff::Timestamp;

use evenkeel_model::job::{Note, TransientFailures};

/// Limit for messages that have no room for a note, as a multiple of `max_dequeue_count`. Their
/// runs cannot be recorded, so every delivery counts, even if its answer was lost. Such messages
/// are rare: the text must be within some 80 bytes of the limit even when compressed.
const UNRECORDED_FACTOR: u32 = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deliveries {
    count: u32,
    note: Note,
}

impl Deliveries {
    pub(crate) fn new(message_id: &str, count: u32, note: Option<Note>) -> Self {
        let note = note.unwrap_or_else(|| Note {
            id: message_id.to_owned(),
            ..Note::default()
        });
        Self { count, note }
    }

    /// Deliveries that were not written off, including the present one.
    const fn unaccounted(&self) -> u32 {
        self.count.saturating_sub(self.note.free)
    }

    /// Deliveries before the present one that were not written off.
    pub(crate) const fn earlier(&self) -> u32 {
        self.unaccounted().saturating_sub(1)
    }

    /// Number of runs that began and were then cut off by a crash, a panic or a timeout. The run of
    /// the present delivery is included.
    pub(crate) fn attempts(&self) -> u32 {
        self.unaccounted().min(self.note.begun.saturating_add(1))
    }

    /// Whether an earlier run may have been cut off. If so, the present run must be recorded in the
    /// message before it begins.
    pub(crate) const fn has_unaccounted_delivery(&self) -> bool {
        self.unaccounted() > 1
    }

    /// Whether the runs of this message may be crashing the process: more than half of the allowed
    /// attempts have no recorded end.
    pub(crate) fn is_crash_suspect(&self, max_dequeue_count: u32) -> bool {
        self.has_unaccounted_delivery()
            && self.attempts().saturating_sub(self.note.ended) > max_dequeue_count / 2
    }

    pub(crate) fn is_exhausted(&self, max_dequeue_count: u32) -> bool {
        self.attempts() > max_dequeue_count
    }

    /// Like [`is_exhausted`](Self::is_exhausted), but for a message whose runs cannot be recorded.
    pub(crate) const fn is_exhausted_unrecorded(&self, max_dequeue_count: u32) -> bool {
        self.unaccounted() > max_dequeue_count.saturating_mul(UNRECORDED_FACTOR)
    }

    /// The transient failures so far, including a run that failed at `now` (the queue's clock).
    pub(crate) fn failing(&self, now: Timestamp) -> TransientFailures {
        match self.note.failing {
            Some(TransientFailures { since, runs }) => TransientFailures {
                since,
                runs: runs.saturating_add(1),
            },
            None => TransientFailures {
                since: Timestamp::from_second(now.as_second()).unwrap_or(now),
                runs: 1,
            },
        }
    }

    pub(crate) fn begun(&self) -> Note {
        Note {
            begun: self.attempts(),
            ..self.note.clone()
        }
    }

    pub(crate) fn ended(&self) -> Note {
        Note {
            ended: self.note.ended.saturating_add(1),
            ..self.begun()
        }
    }

    /// The note after a delivery that ended in order and was not the job's fault.
    pub(crate) fn written_off(&self) -> Note {
        Note {
            free: self.note.free.saturating_add(1),
            ..self.note.clone()
        }
    }

    pub(crate) fn failed(&self, failing: TransientFailures) -> Note {
        Note {
            failing: Some(failing),
            ..self.written_off()
        }
    }

    /// The note after a delivery that saved its progress. Attempts are counted from zero again.
    pub(crate) fn advanced(
        &self,
        jobs_per_delivery: Option<u32>,
        failing: Option<TransientFailures>,
    ) -> Note {
        Note {
            id: self.note.id.clone(),
            free: self.count,
            begun: 0,
            ended: 0,
            at_once: jobs_per_delivery,
            failing,
        }
    }

    pub(crate) const fn jobs_per_delivery(&self) -> Option<u32> {
        self.note.at_once
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(free: u32, begun: u32) -> Note {
        Note {
            id: "m1".to_owned(),
            free,
            begun,
            ..Note::default()
        }
    }

    fn attempts(count: u32, free: u32, begun: u32) -> u32 {
        Deliveries::new("m1", count, Some(note(free, begun))).attempts()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_795_000_000 + seconds).unwrap()
    }

    #[test]
    fn only_runs_that_began_are_attempts() {
        assert_eq!(Deliveries::new("m1", 1, None).attempts(), 1);
        assert_eq!(
            attempts(40, 0, 0),
            1,
            "deliveries without a recorded run are not attempts"
        );
        assert_eq!(attempts(40, 39, 0), 1);
        assert_eq!(
            attempts(6, 0, 5),
            6,
            "recorded runs without an end are attempts"
        );
        assert_eq!(
            attempts(6, 3, 5),
            3,
            "deliveries that were written off are not attempts"
        );
    }

    #[test]
    fn a_message_whose_runs_crash_the_process_is_exhausted_after_the_allowed_number() {
        for (first_leaves_a_trace, runs) in [(true, 5), (false, 6)] {
            let (mut note, mut count, mut ran) = (None, 1, 0);
            while !Deliveries::new("m1", count, note.clone()).is_exhausted(5) {
                let deliveries = Deliveries::new("m1", count, note.clone());
                assert_eq!(deliveries.has_unaccounted_delivery(), count > 1);
                if deliveries.has_unaccounted_delivery() || first_leaves_a_trace {
                    note = Some(deliveries.begun());
                }
                (count, ran) = (count + 1, ran + 1);
            }
            assert_eq!(ran, runs);
        }
    }

    #[test]
    fn only_runs_that_were_cut_off_make_a_message_suspect() {
        let (mut cut_off, mut timed_out) = (None, None);
        for count in 1..=5 {
            let deliveries = Deliveries::new("m1", count, cut_off);
            assert_eq!(deliveries.is_crash_suspect(5), count > 2);
            cut_off = Some(deliveries.begun());
            let deliveries = Deliveries::new("m1", count, timed_out);
            assert_eq!(
                (deliveries.attempts(), deliveries.is_crash_suspect(5)),
                (count, false)
            );
            timed_out = Some(deliveries.ended());
        }
    }

    #[test]
    fn a_delivery_written_off_costs_no_attempt_and_no_further_note() {
        let mut note = None;
        for count in 1..50 {
            let deliveries = Deliveries::new("m1", count, note);
            assert_eq!(
                (deliveries.attempts(), deliveries.has_unaccounted_delivery()),
                (1, false)
            );
            note = Some(deliveries.written_off());
        }
    }

    #[test]
    fn failures_are_counted_from_the_first_one_until_the_job_advances() {
        let first = Deliveries::new("m1", 1, None);
        let failing = first.failing(at(100));
        assert_eq!(
            failing,
            TransientFailures {
                since: at(100),
                runs: 1
            }
        );
        let second = Deliveries::new("m1", 2, Some(first.failed(failing)));
        assert_eq!(
            second.failing(at(700)),
            TransientFailures {
                since: at(100),
                runs: 2
            }
        );
        let third = Deliveries::new("m1", 3, Some(second.written_off()));
        assert_eq!(
            third.failing(at(800)).runs,
            2,
            "an interrupted delivery is not a failure"
        );
        let fourth = Deliveries::new("m1", 4, Some(third.advanced(None, None)));
        assert_eq!(
            (fourth.failing(at(900)), fourth.attempts()),
            (
                TransientFailures {
                    since: at(900),
                    runs: 1
                },
                1
            )
        );
    }

    #[test]
    fn if_no_run_can_be_recorded_many_more_deliveries_are_needed() {
        assert!(!Deliveries::new("m1", 100, None).is_exhausted_unrecorded(5));
        assert!(Deliveries::new("m1", 101, None).is_exhausted_unrecorded(5));
    }
}
