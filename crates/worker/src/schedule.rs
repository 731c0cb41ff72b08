//! One run per key: which waiting job runs next, and which of them share its run. Pure.
//!
//! ```text
//!   arrive(key) ── free ──▶ runs
//!        └── taken ──▶ waits in order of arrival ── next(key) ──▶ the first one runs; where it is a sync,
//!                                                                 every other waiting sync is folded into it
//! ```
//!
//! A sync that waits when a run starts was received before that run's first read: the run covers it, from any place in
//! the queue, since a run acts on the state of the primary at that time.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Whether a job may share another's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Folding {
    /// A plain sync: one run does for all.
    Folds,
    /// Any other job has a run of its own.
    Alone,
}

/// Outcome for an arriving job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// No run under its key: it runs.
    Runs,
    /// It waits for its turn.
    Waits,
    /// Too many wait under its key already, and would keep other keys' jobs from their slots.
    Crowded,
}

/// The keys with a run in progress, and the jobs waiting behind each.
#[derive(Debug)]
pub(crate) struct Schedule<K, W> {
    running: HashMap<K, VecDeque<(Folding, W)>>,
}

impl<K: Hash + Eq + Clone, W> Schedule<K, W> {
    pub(crate) fn new() -> Self {
        Self {
            running: HashMap::new(),
        }
    }

    /// A job arrives; `waiter` is made and kept only where it has to wait. Syncs always may: one run clears them.
    pub(crate) fn arrive(
        &mut self,
        key: &K,
        folding: Folding,
        most: usize,
        waiter: impl FnOnce() -> W,
    ) -> Arrival {
        let Some(waiting) = self.running.get_mut(key) else {
            self.running.insert(key.clone(), VecDeque::new());
            return Arrival::Runs;
        };
        if folding == Folding::Alone
            && waiting
                .iter()
                .filter(|(folding, _)| *folding == Folding::Alone)
                .count()
                >= most
        {
            return Arrival::Crowded;
        }
        waiting.push_back((folding, waiter()));
        Arrival::Waits
    }

    /// The run under this key has ended: the next to run, and those folded into it. Without one the key is free.
    pub(crate) fn next(&mut self, key: &K) -> Option<(W, Vec<W>)> {
        let waiting = self.running.get_mut(key)?;
        let Some((folding, first)) = waiting.pop_front() else {
            self.running.remove(key);
            return None;
        };
        let shares = folding == Folding::Folds;
        Some((
            first,
            if shares {
                self.take_syncs(key)
            } else {
                Vec::new()
            },
        ))
    }

    /// Takes out every sync that waits under this key, in order.
    pub(crate) fn take_syncs(&mut self, key: &K) -> Vec<W> {
        let Some(waiting) = self.running.get_mut(key) else {
            return Vec::new();
        };
        let (syncs, others): (VecDeque<_>, VecDeque<_>) = waiting
            .drain(..)
            .partition(|(folding, _)| *folding == Folding::Folds);
        *waiting = others;
        syncs.into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// Folded syncs of a run without an answer wait again, before all others, in their old order.
    pub(crate) fn give_back(&mut self, key: &K, folded: Vec<W>) {
        let Some(waiting) = self.running.get_mut(key) else {
            return;
        };
        for waiter in folded.into_iter().rev() {
            waiting.push_front((Folding::Folds, waiter));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(arrivals: &[(Folding, &'static str)]) -> Schedule<u8, &'static str> {
        let mut schedule = Schedule::new();
        for (folding, name) in arrivals {
            schedule.arrive(&1, *folding, 9, || *name);
        }
        schedule
    }

    #[test]
    fn two_jobs_of_one_key_never_run_at_once_and_other_keys_do() {
        let mut schedule = Schedule::<u8, &str>::new();
        assert_eq!(
            schedule.arrive(&1, Folding::Alone, 9, || "b"),
            Arrival::Runs
        );
        assert_eq!(
            schedule.arrive(&1, Folding::Alone, 9, || "b"),
            Arrival::Waits
        );
        assert_eq!(
            schedule.arrive(&2, Folding::Alone, 9, || "c"),
            Arrival::Runs
        );
    }

    #[test]
    fn jobs_run_in_order_of_arrival_and_the_key_is_free_after_the_last() {
        let mut schedule = schedule(&[
            (Folding::Alone, "running"),
            (Folding::Alone, "a"),
            (Folding::Alone, "b"),
        ]);
        assert_eq!(schedule.next(&1), Some(("a", vec![])));
        assert_eq!(schedule.next(&1), Some(("b", vec![])));
        assert_eq!(schedule.next(&1), None);
        assert_eq!(
            schedule.arrive(&1, Folding::Alone, 9, || "c"),
            Arrival::Runs
        );
    }

    #[test]
    fn all_waiting_syncs_are_folded_into_the_first_and_other_ops_are_not() {
        let mut schedule = schedule(&[
            (Folding::Alone, "running"),
            (Folding::Folds, "a"),
            (Folding::Alone, "put"),
            (Folding::Folds, "b"),
            (Folding::Folds, "c"),
        ]);
        assert_eq!(schedule.next(&1), Some(("a", vec!["b", "c"])));
        assert_eq!(schedule.next(&1), Some(("put", vec![])));
        assert_eq!(schedule.next(&1), None);
    }

    #[test]
    fn nothing_is_folded_into_the_run_of_another_op() {
        let mut schedule = schedule(&[
            (Folding::Folds, "running"),
            (Folding::Alone, "put"),
            (Folding::Folds, "sync"),
        ]);
        assert_eq!(schedule.next(&1), Some(("put", vec![])));
        assert_eq!(schedule.next(&1), Some(("sync", vec![])));
    }

    #[test]
    fn syncs_of_a_run_without_an_answer_come_first_again() {
        let mut schedule = schedule(&[
            (Folding::Folds, "running"),
            (Folding::Folds, "a"),
            (Folding::Folds, "b"),
            (Folding::Alone, "put"),
        ]);
        let (_, folded) = schedule.next(&1).unwrap();
        schedule.give_back(&1, folded);
        assert_eq!(schedule.next(&1), Some(("b", vec![])));
        assert_eq!(schedule.next(&1), Some(("put", vec![])));
    }

    #[test]
    fn one_key_does_not_take_all_slots_to_wait_in() {
        let mut schedule = schedule(&[(Folding::Alone, "running")]);
        assert_eq!(
            schedule.arrive(&1, Folding::Alone, 1, || "a"),
            Arrival::Waits
        );
        assert_eq!(
            schedule.arrive(&1, Folding::Alone, 1, || "b"),
            Arrival::Crowded
        );
        assert_eq!(
            schedule.arrive(&1, Folding::Folds, 1, || "c"),
            Arrival::Waits
        );
    }
}
