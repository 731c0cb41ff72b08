//! The worker's state as data, for readiness, dashboards and tests.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

use super::consumer::QueueKind;
use super::job_metrics;
use super::slots::{Slot, Slots};
use evenkeel_model::QueueName;
use evenkeel_telemetry::announce_queue;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerStatus {
    pub queues: Vec<QueueStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueStatus {
    pub queue: QueueName,
    pub kind: QueueKind,
    pub state: ReceiverState,
    pub in_flight: usize,
    /// The limit of messages in flight, shared by the shards of a queue.
    pub concurrency: usize,
    /// When the queue last answered a poll; `None` before the first answer.
    pub last_poll: Option<Timestamp>,
    /// The error of the last poll; `None` after a successful one.
    pub last_error: Option<LastError>,
    pub backlog: Option<Backlog>,
    /// Number of renewals since the program started.
    pub renewals: u64,
    /// Number of renewals since the program started that failed or found the lease lost.
    pub failed_renewals: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Backlog {
    pub at: Timestamp,
    /// Approximate number of messages, including hidden ones.
    pub messages: u64,
    /// Age in whole seconds of the oldest of the first visible messages; `None` if no message is
    /// visible.
    pub oldest_age_seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastError {
    pub at: Timestamp,
    pub error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiverState {
    /// The run has not begun or has ended.
    Stopped,
    /// Receiving, or waiting for free slots.
    Receiving,
    /// The queue is not polled, because a store refuses all requests. The store is probed from time
    /// to time.
    PausedByStore,
    /// The answers to polls are lost on the network. The queue is polled seldom and for few
    /// messages.
    AnswersLost,
    /// The program is shutting down and finishes the work in flight.
    Draining,
}

#[derive(Debug, Clone)]
pub struct StatusBoard {
    queues: Arc<[Arc<QueueBoard>]>,
}

impl StatusBoard {
    pub(crate) fn new(queues: impl IntoIterator<Item = Arc<QueueBoard>>) -> Self {
        Self {
            queues: queues.into_iter().collect(),
        }
    }

    pub fn snapshot(&self) -> WorkerStatus {
        WorkerStatus {
            queues: self.queues.iter().map(|board| board.snapshot()).collect(),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.queues.iter().map(|board| board.in_flight()).sum()
    }
}

pub(crate) struct QueueBoard {
    queue: QueueName,
    kind: QueueKind,
    in_flight: AtomicUsize,
    received: AtomicU64,
    renewals: AtomicU64,
    failed_renewals: AtomicU64,
    gauge: metrics::Gauge,
    limit: metrics::Gauge,
    slots: Slots,
    report: Mutex<ReceiverReport>,
}

#[derive(Clone)]
struct ReceiverReport {
    state: ReceiverState,
    last_poll: Option<Timestamp>,
    last_error: Option<LastError>,
    backlog: Option<Backlog>,
}

pub(crate) struct InFlight {
    board: Arc<QueueBoard>,
    _slot: Slot,
}

impl QueueBoard {
    pub(crate) fn new(queue: QueueName, kind: QueueKind, slots: Slots) -> Self {
        announce_queue(queue.as_str(), kind.ops());
        let (gauge, limit) = (
            job_metrics::in_flight(&queue),
            job_metrics::concurrency(&queue),
        );
        let report = Mutex::new(ReceiverReport {
            state: ReceiverState::Stopped,
            last_poll: None,
            last_error: None,
            backlog: None,
        });
        let zero = || AtomicU64::new(0);
        Self {
            queue,
            kind,
            in_flight: AtomicUsize::new(0),
            received: zero(),
            renewals: zero(),
            failed_renewals: zero(),
            gauge,
            limit,
            slots,
            report,
        }
        .resized()
    }

    fn resized(self) -> Self {
        self.set_concurrency_gauge();
        self
    }

    /// Sets the gauge after the number of slots has changed.
    pub(crate) fn set_concurrency_gauge(&self) {
        #[expect(clippy::cast_precision_loss, reason = "a limit is small")]
        self.limit.set(self.slots.count() as f64);
    }

    pub(crate) fn enter(self: &Arc<Self>, slot: Slot) -> InFlight {
        self.received.fetch_add(1, Ordering::SeqCst);
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        self.gauge.increment(1.0);
        InFlight {
            board: Arc::clone(self),
            _slot: slot,
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Number of messages received since the program started.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    pub(crate) fn set_state(&self, state: ReceiverState) {
        self.report().state = state;
    }

    pub(crate) fn polled(&self, at: Timestamp) {
        job_metrics::polled(&self.queue, at);
        let mut report = self.report();
        report.last_poll = Some(at);
        report.last_error = None;
    }

    /// Records that the queue is not polled because all slots are taken. If the last poll
    /// succeeded, this counts as activity, so that the queue does not appear silent.
    pub(crate) fn saturated(&self, at: Timestamp) {
        let answers = {
            let report = self.report();
            report.last_poll.is_some() && report.last_error.is_none()
        };
        if answers {
            job_metrics::polled(&self.queue, at);
        }
    }

    pub(crate) fn failed(&self, at: Timestamp, error: String) {
        self.report().last_error = Some(LastError { at, error });
    }

    pub(crate) fn renewed(&self) {
        self.renewals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn not_renewed(&self) {
        self.failed_renewals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn measured(&self, backlog: Backlog) {
        self.report().backlog = Some(backlog);
    }

    fn snapshot(&self) -> QueueStatus {
        let ReceiverReport {
            state,
            last_poll,
            last_error,
            backlog,
        } = self.report().clone();
        QueueStatus {
            queue: self.queue.clone(),
            kind: self.kind,
            state,
            in_flight: self.in_flight(),
            concurrency: self.slots.count(),
            last_poll,
            last_error,
            backlog,
            renewals: self.renewals.load(Ordering::Relaxed),
            failed_renewals: self.failed_renewals.load(Ordering::Relaxed),
        }
    }

    fn report(&self) -> std::sync::MutexGuard<'_, ReceiverReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for QueueBoard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.snapshot().fmt(f)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.board.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.board.gauge.decrement(1.0);
    }
}
