//! One partition of one table: its pending requests, and those under way. Decides which leave together; pure.

use std::collections::{BTreeSet, VecDeque};

use crate::model::{Key, limits};

/// Most bytes that leave together, unless one alone has more. A transaction may hold 4 MiB; a quarter of it is
/// more than any hundred ordinary entities have, and is sent in a quarter of the time for which the others wait.
const LOAD_BYTES: usize = limits::TRANSACTION_BYTES / 4;

/// A pending request.
pub(super) trait PendingRequest: Send + 'static {
    /// How many departures may be under way at once before others wait.
    const UNDER_WAY: usize;

    /// The rows that no other request may have under way.
    fn rows(&self) -> impl Iterator<Item = &Key>;
    /// The bytes it takes of a request.
    fn bytes(&self) -> usize;
    /// Whether it leaves alone.
    fn is_alone(&self) -> bool;
    /// Whether its caller is still there.
    fn is_awaited(&self) -> bool;
}

/// One partition.
#[derive(Debug)]
pub(super) struct PartitionQueue<P> {
    waiting: VecDeque<P>,
    /// Rows of requests under way.
    taken: BTreeSet<Key>,
    /// Departures that hold others back: under way and not slow, or about to load.
    holding: usize,
    /// Departures under way, slow ones included.
    under_way: usize,
    /// One is about to load.
    boarding: bool,
}

impl<P> Default for PartitionQueue<P> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), taken: BTreeSet::new(), holding: 0, under_way: 0, boarding: false }
    }
}

impl<P: PendingRequest> PartitionQueue<P> {
    /// Takes a place at the end of the line.
    pub(super) fn join(&mut self, passenger: P) {
        self.waiting.push_back(passenger);
    }

    /// Whether to [`load`](Self::load) now: `true` once until that has happened.
    pub(super) fn opens(&mut self) -> bool {
        if self.boarding || self.waiting.is_empty() || self.holding >= P::UNDER_WAY {
            return false;
        }
        self.boarding = true;
        self.holding += 1;
        true
    }

    /// Takes the requests that leave together, oldest first. Empty where all pending ones wait for taken rows: then
    /// the holder of these rows opens the lane when it lands.
    pub(super) fn load(&mut self) -> Vec<P> {
        self.boarding = false;
        let (mut load, mut bytes, mut closed) = (Vec::new(), 0, false);
        let mut passed_over = BTreeSet::new();
        let mut stay = VecDeque::new();
        while let Some(passenger) = self.waiting.pop_front() {
            if !passenger.is_awaited() {
                continue;
            }
            let blocked = closed || passenger.rows().any(|row| self.taken.contains(row) || passed_over.contains(row));
            let fits = load.is_empty()
                || (!passenger.is_alone() && load.len() < limits::TRANSACTION_OPERATIONS && bytes + passenger.bytes() <= LOAD_BYTES);
            if blocked || !fits {
                // Writes of one row stay in their order.
                passed_over.extend(passenger.rows().cloned());
                stay.push_back(passenger);
                continue;
            }
            bytes += passenger.bytes();
            closed = passenger.is_alone();
            self.taken.extend(passenger.rows().cloned());
            load.push(passenger);
        }
        self.waiting = stay;
        if load.is_empty() {
            self.holding -= 1;
        } else {
            self.under_way += 1;
        }
        load
    }

    /// A departure has been under way for so long that others no longer wait for it; but for its rows.
    pub(super) const fn overdue(&mut self) {
        self.holding -= 1;
    }

    /// A departure is over, one way or another.
    pub(super) fn land(&mut self, rows: &[Key], overdue: bool) {
        for row in rows {
            self.taken.remove(row);
        }
        self.under_way -= 1;
        if !overdue {
            self.holding -= 1;
        }
    }

    /// Cancels the load. Returns the requests that waited for it.
    pub(super) fn close(&mut self) -> VecDeque<P> {
        self.boarding = false;
        self.holding -= 1;
        std::mem::take(&mut self.waiting)
    }

    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0 && !self.boarding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Clone)]
    struct Someone {
        rows: Vec<Key>,
        bytes: usize,
        alone: bool,
        awaited: bool,
    }

    impl PendingRequest for Someone {
        const UNDER_WAY: usize = 2;

        fn rows(&self) -> impl Iterator<Item = &Key> {
            self.rows.iter()
        }
        fn bytes(&self) -> usize {
            self.bytes
        }
        fn is_alone(&self) -> bool {
            self.alone
        }
        fn is_awaited(&self) -> bool {
            self.awaited
        }
    }

    fn rows(names: &str) -> Vec<Key> {
        names.split_whitespace().map(|name| Key::new(name).unwrap()).collect()
    }

    fn someone(names: &str) -> Someone {
        Someone { rows: rows(names), bytes: 100, alone: false, awaited: true }
    }

    fn lane(passengers: impl IntoIterator<Item = Someone>) -> PartitionQueue<Someone> {
        let mut lane = PartitionQueue::default();
        passengers.into_iter().for_each(|passenger| lane.join(passenger));
        lane
    }

    /// The rows of the next load.
    fn leaving(lane: &mut PartitionQueue<Someone>) -> String {
        assert!(lane.opens(), "nobody may leave");
        lane.load().into_iter().map(|one| one.rows.iter().map(Key::as_str).collect::<Vec<_>>().join("+")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn all_that_wait_leave_together_in_their_order() {
        let mut lane = lane([someone("a"), someone("b"), someone("c")]);
        assert_eq!(leaving(&mut lane), "a b c");
        lane.land(&rows("a b c"), false);
        assert!(lane.is_empty());
    }

    #[test]
    fn a_second_write_of_a_row_waits_until_the_first_has_landed() {
        let mut lane = lane([someone("a"), someone("a"), someone("b"), someone("a")]);
        assert_eq!(leaving(&mut lane), "a b");
        assert!(lane.opens(), "another may look");
        assert!(lane.load().is_empty(), "and finds nobody who may leave");
        lane.land(&rows("a b"), false);
        assert_eq!(leaving(&mut lane), "a");
        lane.land(&rows("a"), false);
        assert_eq!(leaving(&mut lane), "a");
    }

    #[test]
    fn two_are_under_way_at_most_and_only_one_loads_at_a_time() {
        let mut lane = lane([someone("a")]);
        assert!(lane.opens());
        lane.join(someone("b"));
        assert!(!lane.opens(), "whoever loads next takes it along");
        assert_eq!(lane.load().len(), 2);
        lane.join(someone("c"));
        assert_eq!(leaving(&mut lane), "c");
        lane.join(someone("d"));
        assert!(!lane.opens(), "two are under way");
        lane.land(&rows("c"), false);
        assert_eq!(leaving(&mut lane), "d");
    }

    #[test]
    fn a_slow_departure_holds_nobody_back_but_whoever_wants_its_rows() {
        let mut lane = lane([someone("a")]);
        leaving(&mut lane);
        lane.join(someone("b"));
        leaving(&mut lane);
        lane.join(someone("a"));
        lane.join(someone("c"));
        assert!(!lane.opens());
        lane.overdue();
        assert_eq!(leaving(&mut lane), "c");
        lane.land(&rows("a"), true);
        assert!(!lane.opens(), "two are under way that are not slow");
        lane.land(&rows("b"), false);
        assert_eq!(leaving(&mut lane), "a");
        lane.land(&rows("a"), false);
        lane.land(&rows("c"), false);
        assert!(lane.is_empty());
    }

    #[test]
    fn a_callers_own_transaction_leaves_alone_and_shares_no_row() {
        let own = |names| Someone { alone: true, ..someone(names) };
        let mut lane = lane([someone("a"), own("b c"), someone("c"), someone("d")]);
        assert_eq!(leaving(&mut lane), "a d", "c comes after the transaction that has it");
        assert_eq!(leaving(&mut lane), "b+c");
        lane.land(&rows("a d"), false);
        assert!(lane.opens() && lane.load().is_empty());
        lane.land(&rows("b c"), false);
        assert_eq!(leaving(&mut lane), "c");
    }

    #[test]
    fn a_hundred_and_a_mebibyte_are_the_most() {
        let many: Vec<String> = (0..130).map(|n| format!("r{n}")).collect();
        let mut full = lane(many.iter().map(|name| someone(name)));
        assert!(full.opens());
        assert_eq!(full.load().len(), 100);
        assert!(full.opens());
        assert_eq!(full.load().len(), 30);
        let large = |name| Someone { bytes: LOAD_BYTES / 2, ..someone(name) };
        let mut lane = lane([large("a"), large("b"), someone("c"), Someone { bytes: LOAD_BYTES + 1, ..someone("d") }]);
        assert_eq!(leaving(&mut lane), "a b");
        assert_eq!(leaving(&mut lane), "c");
        lane.land(&rows("a b"), false);
        assert_eq!(leaving(&mut lane), "d", "what is larger leaves alone");
    }

    #[test]
    fn whoever_gave_up_is_left_behind() {
        let gone = Someone { awaited: false, ..someone("a") };
        let mut lane = lane([gone.clone(), someone("b"), gone]);
        assert_eq!(leaving(&mut lane), "b");
        lane.land(&rows("b"), false);
        assert!(lane.is_empty());
    }
}
