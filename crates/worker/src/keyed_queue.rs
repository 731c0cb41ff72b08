//! Lets jobs wait for the key of their primary. The schedule decides their order.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::decide::RunResult;
use super::schedule::{Arrival, Coalescing, Schedule};
use evenkeel_model::job::Primary;

struct Waiter {
    sender: oneshot::Sender<KeyTurn>,
    dequeue_count: u32,
}

/// The keys of all primaries that this process works on. The lock is held briefly, once when a job
/// arrives and once when it ends.
#[derive(Clone)]
pub(crate) struct KeyedQueue {
    schedule: Arc<Mutex<Schedule<Primary, Waiter>>>,
}

pub(crate) enum KeyTurn {
    /// The job runs, also on behalf of the jobs that were coalesced into it.
    Acquired(KeyGuard),
    /// The job was coalesced into a run that gave this result.
    Coalesced(Arc<RunResult>),
}

pub(crate) enum QueuePosition {
    Acquired(KeyGuard),
    Waiting(oneshot::Receiver<KeyTurn>),
    QueueFull,
}

/// The right to run under a key. When it is dropped, the key passes to the next job.
pub(crate) struct KeyGuard {
    held: Option<(KeyedQueue, Primary)>,
    dequeue_count: u32,
    coalesced: Vec<Waiter>,
}

impl KeyedQueue {
    pub(crate) fn new() -> Self {
        Self {
            schedule: Arc::new(Mutex::new(Schedule::new())),
        }
    }

    /// Registers a job for a key. The job gets the key, waits for it, or is refused because `most`
    /// jobs that cannot be coalesced already wait for it.
    pub(crate) fn arrive(
        &self,
        key: Primary,
        coalescing: Coalescing,
        most: usize,
        dequeue_count: u32,
    ) -> QueuePosition {
        let mut later = None;
        let arrival = self.lock().arrive(&key, coalescing, most, || {
            let (sender, receiver) = oneshot::channel();
            later = Some(receiver);
            Waiter {
                sender,
                dequeue_count,
            }
        });
        match (arrival, later) {
            (Arrival::Runs, _) => QueuePosition::Acquired(KeyGuard {
                held: Some((self.clone(), key)),
                dequeue_count,
                coalesced: Vec::new(),
            }),
            (Arrival::Waits, Some(receiver)) => QueuePosition::Waiting(receiver),
            (Arrival::Waits, None) | (Arrival::QueueFull, _) => QueuePosition::QueueFull,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Schedule<Primary, Waiter>> {
        // No code under the lock is expected to panic. If some code did, the schedule would still
        // be usable.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the key to the next job. `back` holds the jobs that were coalesced into a run that
    /// gave no result.
    fn pass_on(&self, key: &Primary, mut back: Vec<Waiter>) {
        loop {
            let next = {
                let mut schedule = self.lock();
                schedule.give_back(key, std::mem::take(&mut back));
                schedule.next(key)
            };
            let Some((waiter, coalesced)) = next else {
                return;
            };
            let guard = KeyGuard {
                held: Some((self.clone(), key.clone())),
                dequeue_count: waiter.dequeue_count,
                coalesced,
            };
            match waiter.sender.send(KeyTurn::Acquired(guard)) {
                Ok(()) | Err(KeyTurn::Coalesced(_)) => return,
                // The next job no longer waits, because its lease was lost or its message released.
                // The key passes to the job after it.
                Err(KeyTurn::Acquired(mut guard)) => {
                    guard.held = None;
                    back = std::mem::take(&mut guard.coalesced);
                }
            }
        }
    }
}

impl KeyGuard {
    /// A guard for work without a key. No other job waits for it.
    pub(crate) const fn unkeyed(dequeue_count: u32) -> Self {
        Self {
            held: None,
            dequeue_count,
            coalesced: Vec::new(),
        }
    }

    /// The highest dequeue count of the jobs that share the run. If one of them was delivered
    /// before, requests of that delivery may still be under way, so the run must act as a
    /// redelivery.
    pub(crate) fn dequeue_count(&self) -> u32 {
        self.coalesced
            .iter()
            .map(|waiter| waiter.dequeue_count)
            .fold(self.dequeue_count, u32::max)
    }

    /// Gives the result to the jobs that were coalesced into this run.
    pub(crate) fn finish(mut self, ran: &Arc<RunResult>) {
        for waiter in self.coalesced.drain(..) {
            // A job that no longer waits needs no result, so an error of `send` is ignored.
            drop(waiter.sender.send(KeyTurn::Coalesced(Arc::clone(ran))));
        }
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        if let Some((keyed_queue, key)) = self.held.take() {
            keyed_queue.pass_on(&key, std::mem::take(&mut self.coalesced));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_engine::{Outcome, Summary};
    use evenkeel_model::{EntityKey, TableName};

    fn key() -> Primary {
        Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new("p", "r").unwrap(),
        }
    }

    fn later(keyed_queue: &KeyedQueue, coalescing: Coalescing) -> oneshot::Receiver<KeyTurn> {
        match keyed_queue.arrive(key(), coalescing, 9, 1) {
            QueuePosition::Waiting(turn) => turn,
            QueuePosition::Acquired(_) | QueuePosition::QueueFull => panic!("it does not wait"),
        }
    }

    #[test]
    fn a_key_is_passed_on_when_the_run_ends_or_is_dropped() {
        let keyed_queue = KeyedQueue::new();
        let QueuePosition::Acquired(first) = keyed_queue.arrive(key(), Coalescing::Never, 9, 1)
        else {
            panic!("it waits")
        };
        let mut second = later(&keyed_queue, Coalescing::Never);
        assert!(second.try_recv().is_err());
        drop(first);
        assert!(matches!(second.try_recv(), Ok(KeyTurn::Acquired(_))));
        assert!(matches!(
            keyed_queue.arrive(key(), Coalescing::Never, 9, 1),
            QueuePosition::Acquired(_)
        ));
    }

    #[test]
    fn a_job_that_no_longer_waits_is_skipped_and_jobs_coalesced_into_it_are_kept() {
        let keyed_queue = KeyedQueue::new();
        let QueuePosition::Acquired(first) = keyed_queue.arrive(key(), Coalescing::Never, 9, 1)
        else {
            panic!("it waits")
        };
        drop(later(&keyed_queue, Coalescing::Allowed));
        let mut kept = later(&keyed_queue, Coalescing::Allowed);
        drop(first);
        assert!(matches!(kept.try_recv(), Ok(KeyTurn::Acquired(_))));
    }

    #[test]
    fn coalesced_jobs_get_the_result_or_run_themselves_if_there_is_none() {
        let keyed_queue = KeyedQueue::new();
        let QueuePosition::Acquired(first) = keyed_queue.arrive(key(), Coalescing::Allowed, 9, 1)
        else {
            panic!("it waits")
        };
        let (mut a, mut b, mut c) = (
            later(&keyed_queue, Coalescing::Allowed),
            later(&keyed_queue, Coalescing::Allowed),
            later(&keyed_queue, Coalescing::Allowed),
        );
        drop(first);
        let Ok(KeyTurn::Acquired(guard)) = a.try_recv() else {
            panic!("it did not get the key")
        };
        drop(guard);
        let Ok(KeyTurn::Acquired(guard)) = b.try_recv() else {
            panic!("it did not get the key")
        };
        guard.finish(&Arc::new(RunResult::Finished(Outcome::Done(
            Summary::default(),
        ))));
        assert!(matches!(c.try_recv(), Ok(KeyTurn::Coalesced(_))));
    }

    #[test]
    fn a_run_is_a_redelivery_if_one_of_its_coalesced_jobs_is() {
        let keyed_queue = KeyedQueue::new();
        let QueuePosition::Acquired(first) = keyed_queue.arrive(key(), Coalescing::Allowed, 9, 1)
        else {
            panic!("it waits")
        };
        let mut guard = later(&keyed_queue, Coalescing::Allowed);
        let QueuePosition::Waiting(mut coalesced) =
            keyed_queue.arrive(key(), Coalescing::Allowed, 9, 3)
        else {
            panic!("it does not wait")
        };
        assert_eq!(first.dequeue_count(), 1);
        drop(first);
        let Ok(KeyTurn::Acquired(second)) = guard.try_recv() else {
            panic!("it did not get the key")
        };
        assert_eq!(second.dequeue_count(), 3);
        drop(second);
        let Ok(KeyTurn::Acquired(third)) = coalesced.try_recv() else {
            panic!("it did not get the key")
        };
        assert_eq!(third.dequeue_count(), 3, "its own");
    }
}
