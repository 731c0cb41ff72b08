//! One partition of one table: its pending requests, and those in flight. Decides which are sent together; pure.

use std::collections::{BTreeSet, VecDeque};

use evenkeel_model::{Key, limits};

/// Most bytes that are sent together, unless one alone has more. A transaction may hold 4 MiB; a quarter of it is
/// more than any hundred ordinary entities have, and is sent in a quarter of the time for which the others wait.
const BATCH_BYTES: usize = limits::TRANSACTION_BYTES / 4;

/// A pending request.
pub(super) trait PendingRequest: Send + 'static {
    /// How many batches may be in flight at once before others wait.
    const IN_FLIGHT: usize;

    /// The rows that no other request may have in flight.
    fn rows(&self) -> impl Iterator<Item = &Key>;
    /// The bytes it takes of a request.
    fn bytes(&self) -> usize;
    /// Whether it is sent alone.
    fn is_alone(&self) -> bool;
    /// Whether its caller is still there.
    fn is_awaited(&self) -> bool;

    /// Where more wait than a batch takes: moves those to the front that go best with the oldest.
    fn arrange(_waiting: &mut VecDeque<Self>)
    where
        Self: Sized,
    {
    }
}

/// One partition.
#[derive(Debug)]
pub(super) struct PartitionQueue<P> {
    waiting: VecDeque<P>,
    /// Rows of requests in flight.
    taken: BTreeSet<Key>,
    /// Batches that hold others back: in flight and not slow, or about to take their requests.
    holding: usize,
    /// Batches in flight, slow ones included.
    in_flight: usize,
    /// One is about to take its requests.
    starting: bool,
}

impl<P> Default for PartitionQueue<P> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            taken: BTreeSet::new(),
            holding: 0,
            in_flight: 0,
            starting: false,
        }
    }
}

impl<P: PendingRequest> PartitionQueue<P> {
    /// Adds a request at the end of the queue.
    pub(super) fn join(&mut self, request: P) {
        self.waiting.push_back(request);
    }

    /// Whether to [`take_batch`](Self::take_batch) now: `true` once until that has happened.
    pub(super) fn may_start(&mut self) -> bool {
        if self.starting || self.waiting.is_empty() || self.holding >= P::IN_FLIGHT {
            return false;
        }
        self.starting = true;
        self.holding += 1;
        true
    }

    /// Takes the requests that are sent together, oldest first. Empty where all pending ones wait for taken rows: then
    /// the holder of these rows starts the next batch when it ends.
    pub(super) fn take_batch(&mut self) -> Vec<P> {
        self.starting = false;
        let (mut batch, mut bytes, mut closed) = (Vec::new(), 0, false);
        let mut passed_over = BTreeSet::new();
        let mut stay = VecDeque::new();
        if self.waiting.len() > limits::TRANSACTION_OPERATIONS {
            P::arrange(&mut self.waiting);
        }
        while let Some(request) = self.waiting.pop_front() {
            if !request.is_awaited() {
                continue;
            }
            let blocked = closed
                || request
                    .rows()
                    .any(|row| self.taken.contains(row) || passed_over.contains(row));
            let fits = batch.is_empty()
                || (!request.is_alone()
                    && batch.len() < limits::TRANSACTION_OPERATIONS
                    && bytes + request.bytes() <= BATCH_BYTES);
            if blocked || !fits {
                // Writes of one row stay in their order.
                passed_over.extend(request.rows().cloned());
                stay.push_back(request);
                continue;
            }
            bytes += request.bytes();
            closed = request.is_alone();
            self.taken.extend(request.rows().cloned());
            batch.push(request);
        }
        self.waiting = stay;
        if batch.is_empty() {
            self.holding -= 1;
        } else {
            self.in_flight += 1;
        }
        batch
    }

    /// A batch has been in flight for so long that others no longer wait for it; but for its rows.
    pub(super) const fn overdue(&mut self) {
        self.holding -= 1;
    }

    /// A batch is over, one way or another.
    pub(super) fn end(&mut self, rows: &[Key], overdue: bool) {
        for row in rows {
            self.taken.remove(row);
        }
        self.in_flight -= 1;
        if !overdue {
            self.holding -= 1;
        }
    }

    /// Cancels the batch. Returns the requests that waited for it.
    pub(super) fn close(&mut self) -> VecDeque<P> {
        self.starting = false;
        self.holding -= 1;
        std::mem::take(&mut self.waiting)
    }

    /// Whether nothing waits and nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0 && !self.starting
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
        const IN_FLIGHT: usize = 2;

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
        names
            .split_whitespace()
            .map(|name| Key::new(name).unwrap())
            .collect()
    }

    fn someone(names: &str) -> Someone {
        Someone {
            rows: rows(names),
            bytes: 100,
            alone: false,
            awaited: true,
        }
    }

    fn queue(requests: impl IntoIterator<Item = Someone>) -> PartitionQueue<Someone> {
        let mut queue = PartitionQueue::default();
        requests.into_iter().for_each(|request| queue.join(request));
        queue
    }

    /// The rows of the next batch.
    fn take_rows(queue: &mut PartitionQueue<Someone>) -> String {
        assert!(queue.may_start(), "nobody may leave");
        queue
            .take_batch()
            .into_iter()
            .map(|one| {
                one.rows
                    .iter()
                    .map(Key::as_str)
                    .collect::<Vec<_>>()
                    .join("+")
            })
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn all_that_wait_leave_together_in_their_order() {
        let mut queue = queue([someone("a"), someone("b"), someone("c")]);
        assert_eq!(take_rows(&mut queue), "a b c");
        queue.end(&rows("a b c"), false);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_second_write_of_a_row_waits_until_the_first_has_ended() {
        let mut queue = queue([someone("a"), someone("a"), someone("b"), someone("a")]);
        assert_eq!(take_rows(&mut queue), "a b");
        assert!(queue.may_start(), "another may look");
        assert!(
            queue.take_batch().is_empty(),
            "and finds nobody who may leave"
        );
        queue.end(&rows("a b"), false);
        assert_eq!(take_rows(&mut queue), "a");
        queue.end(&rows("a"), false);
        assert_eq!(take_rows(&mut queue), "a");
    }

    #[test]
    fn two_are_under_way_at_most_and_only_one_loads_at_a_time() {
        let mut queue = queue([someone("a")]);
        assert!(queue.may_start());
        queue.join(someone("b"));
        assert!(!queue.may_start(), "whoever loads next takes it along");
        assert_eq!(queue.take_batch().len(), 2);
        queue.join(someone("c"));
        assert_eq!(take_rows(&mut queue), "c");
        queue.join(someone("d"));
        assert!(!queue.may_start(), "two are under way");
        queue.end(&rows("c"), false);
        assert_eq!(take_rows(&mut queue), "d");
    }

    #[test]
    fn a_slow_batch_holds_nobody_back_but_whoever_wants_its_rows() {
        let mut queue = queue([someone("a")]);
        take_rows(&mut queue);
        queue.join(someone("b"));
        take_rows(&mut queue);
        queue.join(someone("a"));
        queue.join(someone("c"));
        assert!(!queue.may_start());
        queue.overdue();
        assert_eq!(take_rows(&mut queue), "c");
        queue.end(&rows("a"), true);
        assert!(!queue.may_start(), "two are under way that are not slow");
        queue.end(&rows("b"), false);
        assert_eq!(take_rows(&mut queue), "a");
        queue.end(&rows("a"), false);
        queue.end(&rows("c"), false);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_callers_own_transaction_leaves_alone_and_shares_no_row() {
        let own = |names| Someone {
            alone: true,
            ..someone(names)
        };
        let mut queue = queue([someone("a"), own("b c"), someone("c"), someone("d")]);
        assert_eq!(
            take_rows(&mut queue),
            "a d",
            "c comes after the transaction that has it"
        );
        assert_eq!(take_rows(&mut queue), "b+c");
        queue.end(&rows("a d"), false);
        assert!(queue.may_start() && queue.take_batch().is_empty());
        queue.end(&rows("b c"), false);
        assert_eq!(take_rows(&mut queue), "c");
    }

    #[test]
    fn a_hundred_and_a_mebibyte_are_the_most() {
        let many: Vec<String> = (0..130).map(|n| format!("r{n}")).collect();
        let mut full = queue(many.iter().map(|name| someone(name)));
        assert!(full.may_start());
        assert_eq!(full.take_batch().len(), 100);
        assert!(full.may_start());
        assert_eq!(full.take_batch().len(), 30);
        let large = |name| Someone {
            bytes: BATCH_BYTES / 2,
            ..someone(name)
        };
        let mut queue = queue([
            large("a"),
            large("b"),
            someone("c"),
            Someone {
                bytes: BATCH_BYTES + 1,
                ..someone("d")
            },
        ]);
        assert_eq!(take_rows(&mut queue), "a b");
        assert_eq!(take_rows(&mut queue), "c");
        queue.end(&rows("a b"), false);
        assert_eq!(take_rows(&mut queue), "d", "what is larger leaves alone");
    }

    #[test]
    fn whoever_gave_up_is_left_behind() {
        let gone = Someone {
            awaited: false,
            ..someone("a")
        };
        let mut queue = queue([gone.clone(), someone("b"), gone]);
        assert_eq!(take_rows(&mut queue), "b");
        queue.end(&rows("b"), false);
        assert!(queue.is_empty());
    }
}
