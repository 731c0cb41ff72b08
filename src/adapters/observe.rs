//! Counts and times what is really sent: worn closest to the adapter, below retries and below what is
//! withheld.
//!
//! One call of a port is counted as one request. That is what the services bill, but for blobs over 16 MiB
//! (read and written in several requests) and copies that have to be waited for.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{SharedString, counter, histogram};

use super::layer::{Layer, Op, Request};
use crate::model::AccountName;
use crate::ports::{Clock, ErrorClass, Service, StoreError};
use crate::telemetry::names;

/// Table, queue, blob.
const SERVICES: usize = 3;

/// Counts and times the requests to one account.
pub struct Observe {
    account: SharedString,
    clock: Arc<dyn Clock>,
    counts: Arc<RequestCounts>,
}

impl Observe {
    /// Counts into the metrics and into `counts`.
    pub fn new(account: &AccountName, clock: Arc<dyn Clock>, counts: Arc<RequestCounts>) -> Self {
        Self { account: SharedString::from_shared(Arc::from(account.as_str())), clock, counts }
    }

    fn ended(&self, op: Op, status: SharedString, took: Duration) {
        let labels = [
            metrics::Label::new(names::ACCOUNT, self.account.clone()),
            metrics::Label::new(names::SERVICE, op.service().name()),
            metrics::Label::new(names::OP, op.label()),
            metrics::Label::new(names::STATUS, status),
        ];
        counter!(names::STORAGE_REQUESTS_TOTAL, labels.iter()).increment(1);
        histogram!(names::STORAGE_REQUEST_DURATION, labels.iter()).record(took);
    }
}

impl Layer for Observe {
    async fn call<T: Send>(&self, request: Request<'_>, send: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
        self.counts.sent(&request);
        let mut flight =
            Flight { observe: self, op: request.op, start: self.clock.monotonic(), status: names::CANCELLED.into(), answer: Answer::None };
        let result = send.await;
        flight.status = status(&result);
        flight.answer = answer(&result);
        result
    }
}

/// A request on its way. Ends by being dropped, so that a request whose caller went away is counted too:
/// the service may well have executed it.
struct Flight<'a> {
    observe: &'a Observe,
    op: Op,
    start: Duration,
    status: SharedString,
    answer: Answer,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let took = self.observe.clock.monotonic().saturating_sub(self.start);
        self.observe.ended(self.op, self.status.clone(), took);
        self.observe.counts.answered(self.op.service(), self.answer, took);
    }
}

fn status<T>(result: &Result<T, StoreError>) -> SharedString {
    match result {
        Ok(_) => names::OK.into(),
        Err(error) => error.status.map_or_else(|| error.class.name().into(), |status| status.to_string().into()),
    }
}

/// What came back, coarsely: the metrics have each status.
fn answer<T>(result: &Result<T, StoreError>) -> Answer {
    match result {
        Ok(_) => Answer::Done,
        Err(StoreError { status: Some(429 | 503), .. }) => Answer::Throttled,
        Err(StoreError { status: Some(400..=499), .. }) => Answer::Refused,
        Err(StoreError { status: Some(_), .. }) => Answer::Failed,
        // What is no HTTP has no status: the embedded store.
        Err(error) => match error.class {
            ErrorClass::NotFound(_)
            | ErrorClass::Conflict
            | ErrorClass::Precondition
            | ErrorClass::LeaseLost
            | ErrorClass::Permanent
            | ErrorClass::TooLarge
            | ErrorClass::Unauthorised => Answer::Refused,
            ErrorClass::Throttled { .. } => Answer::Throttled,
            ErrorClass::Transient { .. } => Answer::Failed,
            ErrorClass::Refused | ErrorClass::Ambiguous => Answer::None,
        },
    }
}

/// What came back for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// The service did what was asked.
    Done,
    /// It said no: a conflict, an unmet condition, nothing there (4xx).
    Refused,
    /// It asked to slow down (429, 503).
    Throttled,
    /// It failed (other 5xx).
    Failed,
    /// Nothing: no connection, a timeout, or nobody waited for it.
    None,
}

impl Answer {
    /// Every answer, in order.
    pub const ALL: [Self; 5] = [Self::Done, Self::Refused, Self::Throttled, Self::Failed, Self::None];
}

/// What one service answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerTally {
    /// Answers, in the order of [`Answer::ALL`].
    pub answers: [u64; Answer::ALL.len()],
    /// How long they took together.
    pub took: Duration,
}

#[derive(Debug, Default)]
struct AnswerCounts {
    answers: [AtomicU64; Answer::ALL.len()],
    micros: AtomicU64,
}

/// How many requests were sent to one account, for benchmarks and bills.
#[derive(Debug, Default)]
pub struct RequestCounts {
    requests: [AtomicU64; Op::ALL.len()],
    entities: AtomicU64,
    answers: [AnswerCounts; SERVICES],
}

impl RequestCounts {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn sent(&self, request: &Request<'_>) {
        self.requests[request.op as usize].fetch_add(1, Ordering::Relaxed);
        self.entities.fetch_add(request.entities as u64, Ordering::Relaxed);
    }

    fn answered(&self, service: Service, answer: Answer, took: Duration) {
        let counts = &self.answers[service as usize];
        counts.answers[answer as usize].fetch_add(1, Ordering::Relaxed);
        counts.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What a service answered so far. Requests under way are not counted yet.
    pub fn answers(&self, service: Service) -> AnswerTally {
        let counts = &self.answers[service as usize];
        AnswerTally {
            answers: std::array::from_fn(|answer| counts.answers[answer].load(Ordering::Relaxed)),
            took: Duration::from_micros(counts.micros.load(Ordering::Relaxed)),
        }
    }

    /// What was counted so far.
    pub fn snapshot(&self) -> RequestTally {
        let requests = Op::ALL.iter().map(|op| (*op, self.requests[*op as usize].load(Ordering::Relaxed))).filter(|(_, n)| *n > 0);
        RequestTally { requests: requests.collect(), entities: self.entities.load(Ordering::Relaxed) }
    }
}

/// Requests by operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestTally {
    /// Requests by operation; operations that were not used are left out.
    pub requests: BTreeMap<Op, u64>,
    /// Entities written, deleted and read by key. What queries return is not counted.
    pub entities: u64,
}

impl RequestTally {
    /// Storage transactions, as the services bill them: all requests. An entity group transaction is one.
    pub fn transactions(&self) -> u64 {
        self.requests.values().sum()
    }

    /// Requests to one service.
    pub fn of_service(&self, service: Service) -> u64 {
        self.requests.iter().filter(|(op, _)| op.service() == service).map(|(_, n)| n).sum()
    }

    /// What came after an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |op: &Op| earlier.requests.get(op).copied().unwrap_or(0);
        Self {
            requests: self.requests.iter().map(|(op, n)| (*op, n.saturating_sub(before(op)))).filter(|(_, n)| *n > 0).collect(),
            entities: self.entities.saturating_sub(earlier.entities),
        }
    }
}
