//! Decides how long to wait before a queue is polled again. Pure.

use std::time::Duration;

use evenkeel_model::limits;
use evenkeel_model::settings::{PollInterval, WaitPolicy};

/// Waits after failed polls. They are short, so that receiving resumes soon after an outage ends.
const FAILED: WaitPolicy = WaitPolicy::doubling(Duration::from_secs(1), Duration::from_secs(30));

/// After this many polls in a row without an answer, the answers are assumed to be lost on the
/// network.
const LOST_ANSWERS: u32 = 2;
/// While answers are lost, each batch is smaller than the previous one by this factor: 32, 8, 2, 1.
const SHRINK_FACTOR: u32 = 4;

/// The polling interval and batch size of one queue.
///
/// If the answer to a Get Messages request is lost, the service has hidden the messages for a whole
/// lease and has counted a delivery of each. So a lost answer makes the next batches small, and
/// every answer doubles them again. Some networks lose only long answers; the answer to a small
/// batch still arrives.
#[derive(Debug, Clone)]
pub(crate) struct PollBackoff {
    poll: PollInterval,
    empty: u32,
    failures: u32,
    /// Number of polls in a row whose answer was lost.
    unanswered: u32,
    batch: u32,
}

impl PollBackoff {
    pub(crate) const fn new(poll: PollInterval) -> Self {
        Self {
            poll,
            empty: 0,
            failures: 0,
            unanswered: 0,
            batch: limits::QUEUE_BATCH,
        }
    }

    pub(crate) fn follow(&mut self, poll: PollInterval) {
        if self.poll != poll {
            *self = Self {
                poll,
                empty: 0,
                ..*self
            };
        }
    }

    /// Applies a ring of the doorbell: the queue is polled frequently for a while, because the
    /// messages may become visible a little later.
    pub(crate) const fn reset(&mut self) {
        self.empty = 0;
    }

    pub(crate) const fn shortest_wait(&self) -> Duration {
        self.poll.min
    }

    pub(crate) const fn batch(&self) -> u32 {
        self.batch
    }

    pub(crate) const fn loses_answers(&self) -> bool {
        self.unanswered >= LOST_ANSWERS
    }

    /// The wait after an answer with `got` of the `requested` messages; `unit` is a random number
    /// in 0..1.
    ///
    /// After a full batch there are probably more messages. After a part of a batch the queue is
    /// nearly empty. After an empty answer the queue may stay empty.
    pub(crate) fn answered(&mut self, got: usize, requested: usize, unit: f64) -> Duration {
        (self.failures, self.unanswered) = (0, 0);
        self.batch = (self.batch * 2).min(limits::QUEUE_BATCH);
        let waits = WaitPolicy::doubling(self.poll.min, self.poll.max);
        if got > 0 {
            self.empty = 0;
            return if got >= requested {
                Duration::ZERO
            } else {
                waits.wait(1, unit)
            };
        }
        self.empty = self.empty.saturating_add(1);
        waits.wait(self.empty, unit)
    }

    pub(crate) fn unanswered(&mut self, unit: f64) -> Duration {
        self.unanswered = self.unanswered.saturating_add(1);
        self.batch = (self.batch / SHRINK_FACTOR).max(1);
        self.failed(None, unit)
    }

    /// The wait after a failed poll, at least as long as the service asked for.
    pub(crate) fn failed(&mut self, retry_after: Option<Duration>, unit: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        FAILED
            .wait(self.failures, unit)
            .max(retry_after.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff() -> PollBackoff {
        PollBackoff::new(PollInterval {
            min: Duration::from_millis(100),
            max: Duration::from_secs(5),
        })
    }

    #[test]
    fn an_empty_queue_is_polled_less_and_less_up_to_the_maximum() {
        let mut backoff = backoff();
        let waits: Vec<u128> = (0..8)
            .map(|_| backoff.answered(0, 32, 0.5).as_millis())
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    }

    #[test]
    fn a_queue_is_polled_often_after_a_ring() {
        let mut backoff = backoff();
        for _ in 0..8 {
            backoff.answered(0, 32, 0.5);
        }
        backoff.reset();
        let waits: Vec<u128> = (0..4)
            .map(|_| backoff.answered(0, 32, 0.5).as_millis())
            .collect();
        assert_eq!(waits, [100, 200, 400, 800]);
    }

    #[test]
    fn a_full_batch_is_followed_by_another_at_once_and_a_part_of_one_by_the_shortest_wait() {
        let mut backoff = backoff();
        for _ in 0..5 {
            backoff.answered(0, 32, 0.5);
        }
        assert_eq!(backoff.answered(32, 32, 0.5), Duration::ZERO);
        assert_eq!(backoff.answered(7, 7, 0.5), Duration::ZERO);
        assert_eq!(backoff.answered(7, 32, 0.5), Duration::from_millis(100));
        assert_eq!(backoff.answered(0, 32, 0.5), Duration::from_millis(100));
    }

    #[test]
    fn lost_answers_shrink_the_next_batches_and_each_answer_doubles_them() {
        let mut backoff = backoff();
        let mut batches = vec![backoff.batch()];
        for _ in 0..4 {
            assert_eq!(
                backoff.loses_answers(),
                batches.len() > LOST_ANSWERS as usize
            );
            backoff.unanswered(0.5);
            batches.push(backoff.batch());
        }
        backoff.failed(None, 0.5);
        assert!(
            backoff.loses_answers(),
            "a request that was not executed does not show whether answers arrive"
        );
        while backoff.batch() < 32 {
            backoff.answered(1, 1, 0.5);
            batches.push(backoff.batch());
        }
        assert_eq!(batches, [32, 8, 2, 1, 1, 2, 4, 8, 16, 32]);
        assert!(!backoff.loses_answers());
    }

    #[test]
    fn another_pace_counts_from_the_next_answer_on() {
        let mut backoff = backoff();
        for _ in 0..8 {
            backoff.answered(0, 32, 0.5);
        }
        backoff.follow(PollInterval {
            min: Duration::from_millis(100),
            max: Duration::from_secs(5),
        });
        assert_eq!(
            backoff.answered(0, 32, 0.5),
            Duration::from_secs(5),
            "the same interval must not reset the backoff"
        );
        backoff.follow(PollInterval {
            min: Duration::from_millis(50),
            max: Duration::from_millis(70),
        });
        assert_eq!(
            [50, 70, 70].map(Duration::from_millis),
            [(); 3].map(|()| backoff.answered(0, 32, 0.5))
        );
    }

    #[test]
    fn jitter_stays_within_a_fifth() {
        assert_eq!(backoff().answered(0, 32, 0.0), Duration::from_millis(80));
        assert!(backoff().answered(0, 32, 0.999_999) <= Duration::from_millis(120));
    }

    #[test]
    fn failed_polls_back_off_to_half_a_minute_and_honour_retry_after() {
        let mut backoff = backoff();
        let waits: Vec<u64> = (0..7)
            .map(|_| backoff.failed(None, 0.5).as_secs())
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(
            backoff.failed(Some(Duration::from_mins(2)), 0.5),
            Duration::from_mins(2)
        );
        backoff.answered(0, 32, 0.5);
        assert_eq!(backoff.failed(None, 0.5), Duration::from_secs(1));
    }
}
