//! Wakes the receiver of an idle queue when a message has arrived.
//!
//! An idle queue is polled seldom, because each request costs money. A program that has sent a
//! message, or knows of one, may ring the doorbell. The queue is then polled at once, and
//! frequently for a while, as after a job. A needless ring costs some requests, but never more than
//! polling at the fastest rate. The doorbell does not shorten a wait that a service asked for, or
//! that follows a failure.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use evenkeel_model::QueueName;

#[derive(Debug, Clone)]
pub struct Doorbell {
    bells: Arc<[(QueueName, QueueName, Arc<Notify>)]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiverWait {
    /// A fixed time that the doorbell does not shorten, because the store asked for it or failed.
    Fixed(Duration),
    /// The receiver waits for the first duration, or until the doorbell rings. A ring takes effect
    /// only after the second duration has passed.
    UntilBell(Duration, Duration),
}

impl Doorbell {
    /// Each item has the name of the configured queue, the name of the queue or shard that is
    /// polled, and the bell of its receiver.
    pub(crate) fn new(
        bells: impl IntoIterator<Item = (QueueName, QueueName, Arc<Notify>)>,
    ) -> Self {
        Self {
            bells: bells.into_iter().collect(),
        }
    }

    /// Rings for one queue or shard, or for all queues if `queue` is `None`. Returns the number of
    /// receivers that were notified.
    pub fn ring(&self, queue: Option<&QueueName>) -> usize {
        let bells = self.bells.iter().filter(|(configured, own, _)| {
            queue.is_none_or(|queue| queue == configured || queue == own)
        });
        bells.map(|(.., bell)| bell.notify_one()).count()
    }
}

impl ReceiverWait {
    /// Returns whether the doorbell rang.
    pub(crate) async fn wait(self, bell: &Notify) -> bool {
        match self {
            Self::Fixed(wait) => {
                sleep(wait).await;
                false
            }
            Self::UntilBell(wait, deaf) => {
                let rung = async {
                    sleep(deaf).await;
                    bell.notified().await;
                };
                tokio::select! {
                    biased;
                    () = sleep(wait) => false,
                    () = rung => true,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_bell_cuts_the_wait_for_an_empty_queue_short_and_no_other() {
        let bell = Notify::new();
        let began = Instant::now();
        bell.notify_one();
        assert!(!ReceiverWait::Fixed(SECOND).wait(&bell).await);
        assert_eq!(began.elapsed(), SECOND);
        assert!(
            ReceiverWait::UntilBell(5 * SECOND, SECOND)
                .wait(&bell)
                .await,
            "the earlier ring must end the wait"
        );
        assert_eq!(
            began.elapsed(),
            2 * SECOND,
            "the ring must take effect only after the shortest wait"
        );
        assert!(
            !ReceiverWait::UntilBell(5 * SECOND, SECOND)
                .wait(&bell)
                .await,
            "once"
        );
        assert_eq!(began.elapsed(), 7 * SECOND);
    }

    #[test]
    fn it_rings_at_a_queue_at_one_of_its_shards_or_at_all() {
        let bells = [("a", "a"), ("b", "b-00"), ("b", "b-01")].map(|(configured, own)| {
            (
                queue(&format!("{configured}-jobs")),
                queue(&format!("{own}-jobs")),
                Arc::default(),
            )
        });
        let doorbell = Doorbell::new(bells);
        let ring = |name: &str| doorbell.ring(Some(&queue(name)));
        assert_eq!(
            (
                ring("a-jobs"),
                ring("b-jobs"),
                ring("b-01-jobs"),
                ring("c-jobs")
            ),
            (1, 2, 1, 0)
        );
        assert_eq!(doorbell.ring(None), 3);
    }
}
