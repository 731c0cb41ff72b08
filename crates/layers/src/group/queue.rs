//! The queue of one partition: pending requests and rows in flight. Decides which requests are sent together.

use std::collections::{BTreeSet, VecDeque};

use evenkeel_model::{Key, limits};

/// Maximum size of a combined request, unless a single write is larger. A transaction may hold 4 MiB. A quarter of this is
/// enough for any hundred ordinary entities. Other requests wait while it is sent, and a full 4 MiB would take four times as
/// long.
const BATCH_BYTES: usize = limits::TRANSACTION_BYTES / 4;

pub(super) trait PendingRequest: Send + 'static {
    /// If this many batches are in flight, further requests wait.
    const IN_FLIGHT: usize;

    fn rows(&self) -> impl Iterator<Item = &Key>;
    fn bytes(&self) -> usize;
    /// Whether the request is never combined with others.
    fn is_alone(&self) -> bool;
    fn is_awaited(&self) -> bool;

    /// Called if more requests wait than fit in a batch: moves the best companions of the oldest request to the front.
    fn arrange(_waiting: &mut VecDeque<Self>)
    where
        Self: Sized,
    {
    }
}

#[derive(Debug)]
pub(super) struct PartitionQueue<P> {
    waiting: VecDeque<P>,
    rows_in_flight: BTreeSet<Key>,
    /// Number of batches that make others wait: those about to start, and those in flight that are not overdue.
    blocking_batches: usize,
    /// Number of batches in flight, overdue ones included.
    in_flight: usize,
    starting: bool,
}

impl<P> Default for PartitionQueue<P> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            rows_in_flight: BTreeSet::new(),
            blocking_batches: 0,
            in_flight: 0,
            starting: false,
        }
    }
}

impl<P: PendingRequest> PartitionQueue<P> {
    pub(super) fn join(&mut self, request: P) {
        self.waiting.push_back(request);
    }

    /// Whether to start a batch now. After it has returned `true`, it returns `false` until [`take_batch`](Self::take_batch) is
    /// called.
    pub(super) fn may_start(&mut self) -> bool {
        if self.starting || self.waiting.is_empty() || self.blocking_batches >= P::IN_FLIGHT {
            return false;
        }
        self.starting = true;
        self.blocking_batches += 1;
        true
    }

    /// Takes the requests that are sent together, oldest first. The result is empty if all pending requests wait for
    /// rows in flight. In this case, the batch in flight starts the next batch when it ends.
    pub(super) fn take_batch(&mut self) -> Vec<P> {
        self.starting = false;
        let (mut batch, mut bytes, mut closed) = (Vec::new(), 0, false);
        let mut passed_over = BTreeSet::new();
        let mut left = VecDeque::new();
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
                    .any(|row| self.rows_in_flight.contains(row) || passed_over.contains(row));
            let fits = batch.is_empty()
                || (!request.is_alone()
                    && batch.len() < limits::TRANSACTION_OPERATIONS
                    && bytes + request.bytes() <= BATCH_BYTES);
            if blocked || !fits {
                // Later requests for these rows must wait too, so that writes of one row stay in order.
                passed_over.extend(request.rows().cloned());
                left.push_back(request);
                continue;
            }
            bytes += request.bytes();
            closed = request.is_alone();
            self.rows_in_flight.extend(request.rows().cloned());
            batch.push(request);
        }
        self.waiting = left;
        if batch.is_empty() {
            self.blocking_batches -= 1;
        } else {
            self.in_flight += 1;
        }
        batch
    }

    /// Other requests stop waiting for a slow batch, except for requests for its rows.
    pub(super) const fn overdue(&mut self) {
        self.blocking_batches -= 1;
    }

    pub(super) fn end(&mut self, rows: &[Key], overdue: bool) {
        for row in rows {
            self.rows_in_flight.remove(row);
        }
        self.in_flight -= 1;
        if !overdue {
            self.blocking_batches -= 1;
        }
    }

    /// Cancels the starting batch. Returns the pending requests.
    pub(super) fn close(&mut self) -> VecDeque<P> {
        self.starting = false;
        self.blocking_batches -= 1;
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0 && !self.starting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Clone)]
    struct TestRequest {
        rows: Vec<Key>,
        bytes: usize,
        alone: bool,
        awaited: bool,
    }

    impl PendingRequest for TestRequest {
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

    fn request(names: &str) -> TestRequest {
        TestRequest {
            rows: rows(names),
            bytes: 100,
            alone: false,
            awaited: true,
        }
    }

    fn queue(requests: impl IntoIterator<Item = TestRequest>) -> PartitionQueue<TestRequest> {
        let mut queue = PartitionQueue::default();
        requests.into_iter().for_each(|request| queue.join(request));
        queue
    }

    fn take_rows(queue: &mut PartitionQueue<TestRequest>) -> String {
        assert!(queue.may_start(), "no batch may start");
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
    fn waiting_requests_are_sent_together_in_order() {
        let mut queue = queue([request("a"), request("b"), request("c")]);
        assert_eq!(take_rows(&mut queue), "a b c");
        queue.end(&rows("a b c"), false);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_second_write_of_a_row_waits_until_the_first_has_ended() {
        let mut queue = queue([request("a"), request("a"), request("b"), request("a")]);
        assert_eq!(take_rows(&mut queue), "a b");
        assert!(queue.may_start(), "another batch may start");
        assert!(
            queue.take_batch().is_empty(),
            "but no request is free to be sent"
        );
        queue.end(&rows("a b"), false);
        assert_eq!(take_rows(&mut queue), "a");
        queue.end(&rows("a"), false);
        assert_eq!(take_rows(&mut queue), "a");
    }

    #[test]
    fn two_batches_are_in_flight_at_most_and_one_starts_at_a_time() {
        let mut queue = queue([request("a")]);
        assert!(queue.may_start());
        queue.join(request("b"));
        assert!(!queue.may_start(), "the starting batch will take it");
        assert_eq!(queue.take_batch().len(), 2);
        queue.join(request("c"));
        assert_eq!(take_rows(&mut queue), "c");
        queue.join(request("d"));
        assert!(!queue.may_start(), "two are in flight");
        queue.end(&rows("c"), false);
        assert_eq!(take_rows(&mut queue), "d");
    }

    #[test]
    fn an_overdue_batch_blocks_only_requests_for_its_rows() {
        let mut queue = queue([request("a")]);
        take_rows(&mut queue);
        queue.join(request("b"));
        take_rows(&mut queue);
        queue.join(request("a"));
        queue.join(request("c"));
        assert!(!queue.may_start());
        queue.overdue();
        assert_eq!(take_rows(&mut queue), "c");
        queue.end(&rows("a"), true);
        assert!(
            !queue.may_start(),
            "two batches are in flight that are not overdue"
        );
        queue.end(&rows("b"), false);
        assert_eq!(take_rows(&mut queue), "a");
        queue.end(&rows("a"), false);
        queue.end(&rows("c"), false);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_transaction_of_a_caller_is_sent_alone_and_shares_no_row() {
        let own = |names| TestRequest {
            alone: true,
            ..request(names)
        };
        let mut queue = queue([request("a"), own("b c"), request("c"), request("d")]);
        assert_eq!(
            take_rows(&mut queue),
            "a d",
            "the request for c must not overtake the transaction of b and c"
        );
        assert_eq!(take_rows(&mut queue), "b+c");
        queue.end(&rows("a d"), false);
        assert!(queue.may_start() && queue.take_batch().is_empty());
        queue.end(&rows("b c"), false);
        assert_eq!(take_rows(&mut queue), "c");
    }

    #[test]
    fn a_batch_has_at_most_a_hundred_operations_and_a_mebibyte() {
        let many: Vec<String> = (0..130).map(|n| format!("r{n}")).collect();
        let mut full = queue(many.iter().map(|name| request(name)));
        assert!(full.may_start());
        assert_eq!(full.take_batch().len(), 100);
        assert!(full.may_start());
        assert_eq!(full.take_batch().len(), 30);
        let large = |name| TestRequest {
            bytes: BATCH_BYTES / 2,
            ..request(name)
        };
        let mut queue = queue([
            large("a"),
            large("b"),
            request("c"),
            TestRequest {
                bytes: BATCH_BYTES + 1,
                ..request("d")
            },
        ]);
        assert_eq!(take_rows(&mut queue), "a b");
        assert_eq!(take_rows(&mut queue), "c");
        queue.end(&rows("a b"), false);
        assert_eq!(take_rows(&mut queue), "d", "a larger one is sent alone");
    }

    #[test]
    fn requests_of_dropped_callers_are_discarded() {
        let gone = TestRequest {
            awaited: false,
            ..request("a")
        };
        let mut queue = queue([gone.clone(), request("b"), gone]);
        assert_eq!(take_rows(&mut queue), "b");
        queue.end(&rows("b"), false);
        assert!(queue.is_empty());
    }
}
