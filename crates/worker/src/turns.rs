//! Waiting for one's turn: the schedule, with the waiting done.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::decide::Ran;
use super::schedule::{Arrival, Folding, Schedule};
use evenkeel_model::job::Primary;

/// A job that waits for its turn.
struct Waiter {
    turn: oneshot::Sender<Turn>,
    /// How often its message was got.
    dequeue_count: u32,
}

/// The turns of every primary that this process works on. One short lock per arrival and per end.
#[derive(Clone)]
pub(crate) struct Turns {
    schedule: Arc<Mutex<Schedule<Primary, Waiter>>>,
}

/// Outcome for a waiting job.
pub(crate) enum Turn {
    /// It runs, and those folded into it with it.
    Lead(Lead),
    /// It was folded into a run that gave this answer.
    Folded(Arc<Ran>),
}

/// Outcome for an arriving job.
pub(crate) enum QueuePosition {
    /// Its turn.
    Now(Lead),
    /// Its turn, later.
    Later(oneshot::Receiver<Turn>),
    /// None: too many wait under its key.
    Crowded,
}

/// The right to run under a key. Dropped at any end of the run, it hands the key to the next.
pub(crate) struct Lead {
    held: Option<(Turns, Primary)>,
    dequeue_count: u32,
    folded: Vec<Waiter>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self {
            schedule: Arc::new(Mutex::new(Schedule::new())),
        }
    }

    /// Takes a place under a key. At most `most` jobs that cannot be folded may wait there.
    pub(crate) fn arrive(
        &self,
        key: Primary,
        folding: Folding,
        most: usize,
        dequeue_count: u32,
    ) -> QueuePosition {
        let mut later = None;
        let arrival = self.lock().arrive(&key, folding, most, || {
            let (turn, receiver) = oneshot::channel();
            later = Some(receiver);
            Waiter {
                turn,
                dequeue_count,
            }
        });
        match (arrival, later) {
            (Arrival::Runs, _) => QueuePosition::Now(Lead {
                held: Some((self.clone(), key)),
                dequeue_count,
                folded: Vec::new(),
            }),
            (Arrival::Waits, Some(turn)) => QueuePosition::Later(turn),
            (Arrival::Waits, None) | (Arrival::Crowded, _) => QueuePosition::Crowded,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Schedule<Primary, Waiter>> {
        // Nothing inside can panic half-way; were it to, the schedule is still the best there is.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the key on; `back` are folded jobs of a run that gave no answer.
    fn pass_on(&self, key: &Primary, mut back: Vec<Waiter>) {
        loop {
            let next = {
                let mut schedule = self.lock();
                schedule.give_back(key, std::mem::take(&mut back));
                schedule.next(key)
            };
            let Some((waiter, folded)) = next else { return };
            let lead = Lead {
                held: Some((self.clone(), key.clone())),
                dequeue_count: waiter.dequeue_count,
                folded,
            };
            match waiter.turn.send(Turn::Lead(lead)) {
                Ok(()) | Err(Turn::Folded(_)) => return,
                // It no longer waits (its lease was lost, or it was released): the turn goes on.
                Err(Turn::Lead(mut lead)) => {
                    lead.held = None;
                    back = std::mem::take(&mut lead.folded);
                }
            }
        }
    }
}

impl Lead {
    /// A run without a key, which nothing waits for.
    pub(crate) const fn unkeyed(dequeue_count: u32) -> Self {
        Self {
            held: None,
            dequeue_count,
            folded: Vec::new(),
        }
    }

    /// The highest dequeue count of those that share the run: where one of them was delivered before, requests sent for
    /// it may be on their way still, and the run has to act as a redelivery.
    pub(crate) fn dequeue_count(&self) -> u32 {
        self.folded
            .iter()
            .map(|waiter| waiter.dequeue_count)
            .fold(self.dequeue_count, u32::max)
    }

    /// Gives the run's answer to those folded into it.
    pub(crate) fn finish(mut self, ran: &Arc<Ran>) {
        for waiter in self.folded.drain(..) {
            // One that no longer waits needs no answer.
            drop(waiter.turn.send(Turn::Folded(Arc::clone(ran))));
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some((turns, key)) = self.held.take() {
            turns.pass_on(&key, std::mem::take(&mut self.folded));
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

    fn later(turns: &Turns, folding: Folding) -> oneshot::Receiver<Turn> {
        match turns.arrive(key(), folding, 9, 1) {
            QueuePosition::Later(turn) => turn,
            QueuePosition::Now(_) | QueuePosition::Crowded => panic!("it does not wait"),
        }
    }

    #[test]
    fn a_turn_is_handed_on_when_the_run_ends_or_is_dropped() {
        let turns = Turns::new();
        let QueuePosition::Now(first) = turns.arrive(key(), Folding::Alone, 9, 1) else {
            panic!("it waits")
        };
        let mut second = later(&turns, Folding::Alone);
        assert!(second.try_recv().is_err());
        drop(first);
        assert!(matches!(second.try_recv(), Ok(Turn::Lead(_))));
        assert!(matches!(
            turns.arrive(key(), Folding::Alone, 9, 1),
            QueuePosition::Now(_)
        ));
    }

    #[test]
    fn who_no_longer_waits_is_passed_over_with_those_folded_into_it_kept() {
        let turns = Turns::new();
        let QueuePosition::Now(first) = turns.arrive(key(), Folding::Alone, 9, 1) else {
            panic!("it waits")
        };
        drop(later(&turns, Folding::Folds));
        let mut kept = later(&turns, Folding::Folds);
        drop(first);
        assert!(matches!(kept.try_recv(), Ok(Turn::Lead(_))));
    }

    #[test]
    fn folded_jobs_get_the_answer_or_run_themselves_where_there_was_none() {
        let turns = Turns::new();
        let QueuePosition::Now(first) = turns.arrive(key(), Folding::Folds, 9, 1) else {
            panic!("it waits")
        };
        let (mut a, mut b, mut c) = (
            later(&turns, Folding::Folds),
            later(&turns, Folding::Folds),
            later(&turns, Folding::Folds),
        );
        drop(first);
        let Ok(Turn::Lead(lead)) = a.try_recv() else {
            panic!("not its turn")
        };
        drop(lead);
        let Ok(Turn::Lead(lead)) = b.try_recv() else {
            panic!("not its turn")
        };
        lead.finish(&Arc::new(Ran::Finished(Outcome::Done(Summary::default()))));
        assert!(matches!(c.try_recv(), Ok(Turn::Folded(_))));
    }

    #[test]
    fn a_run_is_a_redelivery_where_one_of_those_folded_into_it_is() {
        let turns = Turns::new();
        let QueuePosition::Now(first) = turns.arrive(key(), Folding::Folds, 9, 1) else {
            panic!("it waits")
        };
        let mut lead = later(&turns, Folding::Folds);
        let QueuePosition::Later(mut folded) = turns.arrive(key(), Folding::Folds, 9, 3) else {
            panic!("it does not wait")
        };
        assert_eq!(first.dequeue_count(), 1);
        drop(first);
        let Ok(Turn::Lead(second)) = lead.try_recv() else {
            panic!("not its turn")
        };
        assert_eq!(second.dequeue_count(), 3);
        drop(second);
        let Ok(Turn::Lead(third)) = folded.try_recv() else {
            panic!("not its turn")
        };
        assert_eq!(third.dequeue_count(), 3, "its own");
    }
}
