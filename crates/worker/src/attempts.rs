//! Deliveries of a message: the service's count, and evenkeel's own note in the message. Pure.
//!
//! The service counts every Get that it executes, also one with a lost answer. So a delivery counts as an attempt
//! only where the message itself says that a run began and nothing says how it ended:
//!
//! | delivery | note |
//! | --- | --- |
//! | the only one that is not accounted for | `begun` 1 with its first renewal: no request of its own |
//! | a further one | `begun` + 1, by a request of its own, before the run |
//! | ended in order, not the job's fault | `free` + 1; of a transient failure, `failing` too |
//! | ended in a panic or a timeout | `begun` as while it ran, `ended` + 1 |
//! | saved its progress | all before it is written off; of a batch, how many of its jobs run at once |
//!
//! A run that takes the process down within the first half of its first lease leaves no trace, so that such a message is
//! poisoned after one run more than `max_dequeue_count`; none is poisoned after fewer.

use jiff::Timestamp;

use evenkeel_model::job::{Note, TransientFailures};

/// Where the note does not fit, a run leaves no trace, and deliveries are all there is to go by: then this many times as many of
/// them are needed. A text has to be within some 80 bytes of the limit though compressed.
const UNTRACED: u32 = 20;

/// The deliveries of one message, the present one included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deliveries {
    count: u32,
    note: Note,
}

impl Deliveries {
    /// Of a message got for the `count`-th time, with this note in it.
    pub(crate) fn new(message_id: &str, count: u32, note: Option<Note>) -> Self {
        let note = note.unwrap_or_else(|| Note {
            id: message_id.to_owned(),
            ..Note::default()
        });
        Self { count, note }
    }

    /// Deliveries that nothing accounts for, this one included.
    const fn unaccounted(&self) -> u32 {
        self.count.saturating_sub(self.note.free)
    }

    /// Earlier deliveries that nothing accounts for.
    pub(crate) const fn earlier(&self) -> u32 {
        self.unaccounted().saturating_sub(1)
    }

    /// Runs with a recorded beginning and no recorded end, including that of this delivery.
    pub(crate) fn attempts(&self) -> u32 {
        self.unaccounted().min(self.note.begun.saturating_add(1))
    }

    /// Whether a run has to be noted in the message before it begins: an earlier one may not have come to its end.
    pub(crate) const fn is_disturbed(&self) -> bool {
        self.unaccounted() > 1
    }

    /// Whether its runs may be what takes the process down: half as many as there may be attempts came to no end that was noted.
    pub(crate) fn are_suspect(&self, max_dequeue_count: u32) -> bool {
        self.is_disturbed()
            && self.attempts().saturating_sub(self.note.ended) > max_dequeue_count / 2
    }

    /// Whether the attempts are used up, so that there is no further run.
    pub(crate) fn are_exhausted(&self, max_dequeue_count: u32) -> bool {
        self.attempts() > max_dequeue_count
    }

    /// The same where no run could be noted.
    pub(crate) const fn are_exhausted_untraced(&self, max_dequeue_count: u32) -> bool {
        self.unaccounted() > max_dequeue_count.saturating_mul(UNTRACED)
    }

    /// The transient failures, this run's included, which ended at this time of the queue.
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

    /// The note while its run is under way.
    pub(crate) fn begun(&self) -> Note {
        Note {
            begun: self.attempts(),
            ..self.note.clone()
        }
    }

    /// The note after a panic or a timeout.
    pub(crate) fn ended(&self) -> Note {
        Note {
            ended: self.note.ended.saturating_add(1),
            ..self.begun()
        }
    }

    /// The note after a delivery that ended in order and is not the job's fault.
    pub(crate) fn written_off(&self) -> Note {
        Note {
            free: self.note.free.saturating_add(1),
            ..self.note.clone()
        }
    }

    /// The same after a transient failure.
    pub(crate) fn failed(&self, failing: TransientFailures) -> Note {
        Note {
            failing: Some(failing),
            ..self.written_off()
        }
    }

    /// The note after a delivery that has saved its progress: the job starts anew from there.
    pub(crate) fn advanced(
        &self,
        at_once: Option<u32>,
        failing: Option<TransientFailures>,
    ) -> Note {
        Note {
            id: self.note.id.clone(),
            free: self.count,
            begun: 0,
            ended: 0,
            at_once,
            failing,
        }
    }

    /// How many jobs of a batch run at once, where that was noted.
    pub(crate) const fn at_once(&self) -> Option<u32> {
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
            "answers of Get Messages that were lost"
        );
        assert_eq!(attempts(40, 39, 0), 1);
        assert_eq!(attempts(6, 0, 5), 6, "runs that never came to their end");
        assert_eq!(attempts(6, 3, 5), 3, "what is written off is none");
    }

    #[test]
    fn a_message_whose_runs_take_the_process_down_is_exhausted_after_as_many_as_are_allowed() {
        for (first_leaves_a_trace, runs) in [(true, 5), (false, 6)] {
            let (mut note, mut count, mut ran) = (None, 1, 0);
            while !Deliveries::new("m1", count, note.clone()).are_exhausted(5) {
                let deliveries = Deliveries::new("m1", count, note.clone());
                assert_eq!(deliveries.is_disturbed(), count > 1);
                if deliveries.is_disturbed() || first_leaves_a_trace {
                    note = Some(deliveries.begun());
                }
                (count, ran) = (count + 1, ran + 1);
            }
            assert_eq!(ran, runs);
        }
    }

    #[test]
    fn a_message_is_suspect_for_runs_that_were_cut_off_and_not_for_those_that_panicked_or_ran_out_of_time()
     {
        let (mut cut_off, mut timed_out) = (None, None);
        for count in 1..=5 {
            let deliveries = Deliveries::new("m1", count, cut_off);
            assert_eq!(deliveries.are_suspect(5), count > 2);
            cut_off = Some(deliveries.begun());
            let deliveries = Deliveries::new("m1", count, timed_out);
            assert_eq!(
                (deliveries.attempts(), deliveries.are_suspect(5)),
                (count, false)
            );
            timed_out = Some(deliveries.ended());
        }
    }

    #[test]
    fn what_is_written_off_costs_no_attempt_and_no_further_note() {
        let mut note = None;
        for count in 1..50 {
            let deliveries = Deliveries::new("m1", count, note);
            assert_eq!(
                (deliveries.attempts(), deliveries.is_disturbed()),
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
            "what was interrupted has not failed"
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
    fn where_nothing_can_be_noted_many_more_deliveries_are_needed() {
        assert!(!Deliveries::new("m1", 100, None).are_exhausted_untraced(5));
        assert!(Deliveries::new("m1", 101, None).are_exhausted_untraced(5));
    }
}
