//! Schedules one run per key: which waiting job runs next, and which jobs share its run. Pure.
//!
//! ```text
//!   arrive(key) ── free ──▶ runs
//!        └── taken ──▶ waits in order of arrival ── next(key) ──▶ the first one runs; if it is a sync,
//!                                                                 every other waiting sync is coalesced into it
//! ```
//!
//! If a sync waits when a run starts, the sync was received before the first read of that run. The
//! run acts on the state of the primary at that time, so it covers the sync, even if other jobs
//! wait before the sync.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coalescing {
    /// The job is a plain sync. One run serves all plain syncs of a key.
    Allowed,
    /// The job is not a plain sync and needs a run of its own.
    Never,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Runs,
    Waits,
    /// Too many jobs already wait for this key. Further jobs would take the slots that jobs of other keys need.
    QueueFull,
}

/// The keys with a run in progress, and the jobs that wait for each.
#[derive(Debug)]
pub(crate) struct Schedule<K, W> {
    running: HashMap<K, VecDeque<(Coalescing, W)>>,
}

impl<K: Hash + Eq + Clone, W> Schedule<K, W> {
    pub(crate) fn new() -> Self {
        Self {
            running: HashMap::new(),
        }
    }

    /// Registers a job. `waiter` is called only if the job has to wait. Any number of syncs may
    /// wait, because one run covers them all.
    pub(crate) fn arrive(
        &mut self,
        key: &K,
        coalescing: Coalescing,
        most: usize,
        waiter: impl FnOnce() -> W,
    ) -> Arrival {
        let Some(waiting) = self.running.get_mut(key) else {
            self.running.insert(key.clone(), VecDeque::new());
            return Arrival::Runs;
        };
        if coalescing == Coalescing::Never
            && waiting
                .iter()
                .filter(|(coalescing, _)| *coalescing == Coalescing::Never)
                .count()
                >= most
        {
            return Arrival::QueueFull;
        }
        waiting.push_back((coalescing, waiter()));
        Arrival::Waits
    }

    /// Ends the run under this key. Returns the next job to run, with the jobs that are coalesced
    /// into it. If no job waits, frees the key and returns `None`.
    pub(crate) fn next(&mut self, key: &K) -> Option<(W, Vec<W>)> {
        let waiting = self.running.get_mut(key)?;
        let Some((coalescing, first)) = waiting.pop_front() else {
            self.running.remove(key);
            return None;
        };
        let shares = coalescing == Coalescing::Allowed;
        Some((
            first,
            if shares {
                self.take_coalescible(key)
            } else {
                Vec::new()
            },
        ))
    }

    pub(crate) fn take_coalescible(&mut self, key: &K) -> Vec<W> {
        let Some(waiting) = self.running.get_mut(key) else {
            return Vec::new();
        };
        let (syncs, others): (VecDeque<_>, VecDeque<_>) = waiting
            .drain(..)
            .partition(|(coalescing, _)| *coalescing == Coalescing::Allowed);
        *waiting = others;
        syncs.into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// Returns syncs to the queue because the run that they were coalesced into gave no result. They wait before
    /// all other jobs, in their old order.
    pub(crate) fn give_back(&mut self, key: &K, coalesced: Vec<W>) {
        let Some(waiting) = self.running.get_mut(key) else {
            return;
        };
        for waiter in coalesced.into_iter().rev() {
            waiting.push_front((Coalescing::Allowed, waiter));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(arrivals: &[(Coalescing, &'static str)]) -> Schedule<u8, &'static str> {
        let mut schedule = Schedule::new();
        for (coalescing, name) in arrivals {
            schedule.arrive(&1, *coalescing, 9, || *name);
        }
        schedule
    }

    #[test]
    fn two_jobs_of_one_key_never_run_at_once_and_other_keys_do() {
        let mut schedule = Schedule::<u8, &str>::new();
        assert_eq!(
            schedule.arrive(&1, Coalescing::Never, 9, || "b"),
            Arrival::Runs
        );
        assert_eq!(
            schedule.arrive(&1, Coalescing::Never, 9, || "b"),
            Arrival::Waits
        );
        assert_eq!(
            schedule.arrive(&2, Coalescing::Never, 9, || "c"),
            Arrival::Runs
        );
    }

    #[test]
    fn jobs_run_in_order_of_arrival_and_the_key_is_free_after_the_last() {
        let mut schedule = schedule(&[
            (Coalescing::Never, "running"),
            (Coalescing::Never, "a"),
            (Coalescing::Never, "b"),
        ]);
        assert_eq!(schedule.next(&1), Some(("a", vec![])));
        assert_eq!(schedule.next(&1), Some(("b", vec![])));
        assert_eq!(schedule.next(&1), None);
        assert_eq!(
            schedule.arrive(&1, Coalescing::Never, 9, || "c"),
            Arrival::Runs
        );
    }

    #[test]
    fn all_waiting_syncs_are_coalesced_into_the_first_and_other_ops_are_not() {
        let mut schedule = schedule(&[
            (Coalescing::Never, "running"),
            (Coalescing::Allowed, "a"),
            (Coalescing::Never, "put"),
            (Coalescing::Allowed, "b"),
            (Coalescing::Allowed, "c"),
        ]);
        assert_eq!(schedule.next(&1), Some(("a", vec!["b", "c"])));
        assert_eq!(schedule.next(&1), Some(("put", vec![])));
        assert_eq!(schedule.next(&1), None);
    }

    #[test]
    fn nothing_is_coalesced_into_the_run_of_another_op() {
        let mut schedule = schedule(&[
            (Coalescing::Allowed, "running"),
            (Coalescing::Never, "put"),
            (Coalescing::Allowed, "sync"),
        ]);
        assert_eq!(schedule.next(&1), Some(("put", vec![])));
        assert_eq!(schedule.next(&1), Some(("sync", vec![])));
    }

    #[test]
    fn syncs_of_a_run_without_a_result_wait_first_again() {
        let mut schedule = schedule(&[
            (Coalescing::Allowed, "running"),
            (Coalescing::Allowed, "a"),
            (Coalescing::Allowed, "b"),
            (Coalescing::Never, "put"),
        ]);
        let (_, coalesced) = schedule.next(&1).unwrap();
        schedule.give_back(&1, coalesced);
        assert_eq!(schedule.next(&1), Some(("b", vec![])));
        assert_eq!(schedule.next(&1), Some(("put", vec![])));
    }

    #[test]
    fn one_key_does_not_take_all_slots_to_wait_in() {
        let mut schedule = schedule(&[(Coalescing::Never, "running")]);
        assert_eq!(
            schedule.arrive(&1, Coalescing::Never, 1, || "a"),
            Arrival::Waits
        );
        assert_eq!(
            schedule.arrive(&1, Coalescing::Never, 1, || "b"),
            Arrival::QueueFull
        );
        assert_eq!(
            schedule.arrive(&1, Coalescing::Allowed, 1, || "c"),
            Arrival::Waits
        );
    }
}
