//! Counts and times the requests that are sent. It is the layer next to the adapter, below retries and below the layers
//! that withhold requests.
//!
//! One call of a port counts as one request. The services bill it the same way, except for blobs over 16 MiB (several
//! requests) and copies that are polled.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Histogram, SharedString, counter, histogram};
use tracing::Instrument as _;

use super::heat::Heat;
use super::layer::{Layer, Op, Request};
use evenkeel_model::AccountName;
use evenkeel_storage::{Clock, ErrorClass, Service, StoreError};
use evenkeel_telemetry::job_trace::{self, Bill, Billed, Step};
use evenkeel_telemetry::latency::{Latencies, LatencyCounts};
use evenkeel_telemetry::{names, traces};

/// Table, queue, blob and search.
const SERVICES: usize = 4;

pub struct Observe {
    account: SharedString,
    /// Cached metrics of successful requests, the common case.
    successes: [OnceLock<(Counter, Histogram)>; Op::ALL.len()],
    entities: OnceLock<Counter>,
    clock: Arc<dyn Clock>,
    counts: Arc<RequestCounts>,
}

impl Observe {
    /// Writes to the metrics and to `counts`.
    pub fn new(account: &AccountName, clock: Arc<dyn Clock>, counts: Arc<RequestCounts>) -> Self {
        let successes = std::array::from_fn(|_| OnceLock::new());
        Self {
            account: SharedString::from_shared(Arc::from(account.as_str())),
            successes,
            entities: OnceLock::new(),
            clock,
            counts,
        }
    }

    fn record_end(&self, op: Op, reported_result: ReportedResult, took: Duration) {
        if reported_result.answer == names::OK {
            let (requests, durations) =
                self.successes[op as usize].get_or_init(|| self.handles(op, names::OK.into()));
            requests.increment(1);
            durations.record(took);
            return;
        }
        let status = reported_result.status.map_or_else(
            || reported_result.answer.into(),
            |status| SharedString::from(status.to_string()),
        );
        let (requests, durations) = self.handles(op, status);
        requests.increment(1);
        durations.record(took);
    }

    /// Counts the entities of a table request, the unit of the account's limit.
    fn count_entities(&self, entities: usize) {
        let counter =
            || counter!(names::TABLE_ENTITIES_TOTAL, names::ACCOUNT => self.account.clone());
        self.entities
            .get_or_init(counter)
            .increment(entities as u64);
    }

    fn handles(&self, op: Op, status: SharedString) -> (Counter, Histogram) {
        let labels = [
            metrics::Label::new(names::ACCOUNT, self.account.clone()),
            metrics::Label::new(names::SERVICE, op.service().name()),
            metrics::Label::new(names::OP, op.label()),
            metrics::Label::new(names::STATUS, status),
        ];
        (
            counter!(names::STORAGE_REQUESTS_TOTAL, labels.iter()),
            histogram!(names::STORAGE_REQUEST_DURATION, labels.iter()),
        )
    }
}

impl Layer for Observe {
    async fn call<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
    ) -> Result<T, StoreError> {
        self.counts.sent(&request);
        let start = self.clock.monotonic();
        let mut flight = RequestInFlight {
            observe: self,
            request,
            start,
            reported_result: ReportedResult::CANCELLED,
            answer: AnswerKind::None,
        };
        let span = traces::request_span(
            &self.account,
            flight.request.op.service().name(),
            flight.request.op.label(),
            flight.request.target.name(),
        );
        let result = send().instrument(span.clone()).await;
        let error = flight.request.error(&result);
        (flight.reported_result, flight.answer) = (reported_result(error), answer(error));
        traces::record_answer(
            &span,
            flight.reported_result.answer,
            flight.reported_result.status,
        );
        result
    }
}

/// A request in flight. It is counted on drop, because the service may have executed the request of a dropped caller.
struct RequestInFlight<'a> {
    observe: &'a Observe,
    request: Request<'a>,
    start: Duration,
    reported_result: ReportedResult,
    answer: AnswerKind,
}

impl Drop for RequestInFlight<'_> {
    fn drop(&mut self) {
        let took = self.observe.clock.monotonic().saturating_sub(self.start);
        let Self {
            observe,
            request,
            reported_result,
            answer,
            ..
        } = self;
        let op = request.op;
        observe.record_end(op, *reported_result, took);
        let weight = request.weight();
        if op.service() == Service::Table {
            observe.count_entities(weight);
        }
        observe.counts.answered(op.service(), *answer, took, weight);
        observe.counts.heat.count_request(
            &request.target,
            weight,
            *answer == AnswerKind::Throttled,
        );
        job_trace::record(bill(op), || Step {
            op: op.label(),
            target: request.target.name().to_owned(),
            answer: reported_result.answer,
            status: reported_result.status,
            took,
        });
    }
}

#[derive(Debug, Clone, Copy)]
struct ReportedResult {
    answer: &'static str,
    status: Option<u16>,
}

impl ReportedResult {
    const CANCELLED: Self = Self {
        answer: names::CANCELLED,
        status: None,
    };
}

fn reported_result(error: Option<&StoreError>) -> ReportedResult {
    match error {
        None => ReportedResult {
            answer: names::OK,
            status: None,
        },
        Some(error) => ReportedResult {
            answer: error.class.name(),
            status: error.status,
        },
    }
}

/// How an operation is billed (Azure: Storage pricing, general purpose v2).
pub(super) const fn bill(op: Op) -> Bill {
    match op.service() {
        Service::Table => Bill::Table,
        Service::Queue => Bill::Queue,
        Service::Blob => match op {
            Op::GetBlob | Op::GetBlobProperties => Bill::BlobRead,
            Op::DeleteBlob | Op::DeleteContainer => Bill::Free,
            _ => Bill::BlobWrite,
        },
        // A search service is billed by the hour (Azure AI Search pricing).
        Service::Search => Bill::Free,
    }
}

/// The kind of a result. The metrics have the exact status.
fn answer(error: Option<&StoreError>) -> AnswerKind {
    match error {
        None => AnswerKind::Done,
        Some(StoreError {
            status: Some(429 | 503),
            ..
        }) => AnswerKind::Throttled,
        Some(StoreError {
            status: Some(400..=499),
            ..
        }) => AnswerKind::Refused,
        Some(StoreError {
            status: Some(_), ..
        }) => AnswerKind::Failed,
        // An error of the embedded store has no HTTP status.
        Some(error) => match error.class {
            ErrorClass::Throttled { .. } => AnswerKind::Throttled,
            ErrorClass::Transient { .. } => AnswerKind::Failed,
            ErrorClass::Refused | ErrorClass::Ambiguous => AnswerKind::None,
            _ => AnswerKind::Refused,
        },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerKind {
    Done,
    /// A conflict, an unmet condition, or a missing object (4xx).
    Refused,
    Throttled,
    Failed,
    /// No connection, a timeout, or a dropped caller.
    None,
}

impl AnswerKind {
    pub const ALL: [Self; 5] = [
        Self::Done,
        Self::Refused,
        Self::Throttled,
        Self::Failed,
        Self::None,
    ];
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerTally {
    /// Counts in the order of [`AnswerKind::ALL`].
    pub answers: [u64; AnswerKind::ALL.len()],
    pub took: Duration,
    pub latencies: Latencies,
    /// Entities or messages that the requests named or returned, at least one for each request.
    pub entities: u64,
}

#[derive(Debug, Default)]
struct AnswerCounts {
    answers: [AtomicU64; AnswerKind::ALL.len()],
    micros: AtomicU64,
    latencies: LatencyCounts,
    entities: AtomicU64,
}

/// Requests by operation. (`Default` is not implemented for arrays of more than 32.)
#[derive(Debug)]
struct SentCounts([AtomicU64; Op::ALL.len()]);

impl Default for SentCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Number of requests to one account, for benchmarks and costs.
#[derive(Debug, Default)]
pub struct RequestCounts {
    requests: SentCounts,
    entities: AtomicU64,
    answers: [AnswerCounts; SERVICES],
    heat: Heat,
}

impl RequestCounts {
    pub fn new() -> Self {
        Self::default()
    }

    fn sent(&self, request: &Request<'_>) {
        self.requests.0[request.op as usize].fetch_add(1, Ordering::Relaxed);
        self.entities
            .fetch_add(request.entities as u64, Ordering::Relaxed);
    }

    fn answered(&self, service: Service, answer: AnswerKind, took: Duration, entities: usize) {
        let counts = &self.answers[service as usize];
        counts.answers[answer as usize].fetch_add(1, Ordering::Relaxed);
        counts.micros.fetch_add(
            u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        counts.latencies.add(took);
        counts
            .entities
            .fetch_add(entities as u64, Ordering::Relaxed);
    }

    pub const fn heat(&self) -> &Heat {
        &self.heat
    }

    pub fn billed(&self) -> Billed {
        let mut billed = Billed::default();
        for op in Op::ALL {
            billed.add(
                bill(*op),
                self.requests.0[*op as usize].load(Ordering::Relaxed),
            );
        }
        billed
    }

    /// Answers of a service so far. Requests in flight are not included.
    pub fn answers(&self, service: Service) -> AnswerTally {
        let counts = &self.answers[service as usize];
        AnswerTally {
            answers: std::array::from_fn(|answer| counts.answers[answer].load(Ordering::Relaxed)),
            took: Duration::from_micros(counts.micros.load(Ordering::Relaxed)),
            latencies: counts.latencies.snapshot(),
            entities: counts.entities.load(Ordering::Relaxed),
        }
    }

    pub fn snapshot(&self) -> RequestTally {
        let requests = Op::ALL
            .iter()
            .map(|op| (*op, self.requests.0[*op as usize].load(Ordering::Relaxed)))
            .filter(|(_, n)| *n > 0);
        RequestTally {
            requests: requests.collect(),
            entities: self.entities.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestTally {
    /// Operations without requests are absent.
    pub requests: BTreeMap<Op, u64>,
    /// Entities written, deleted and read by key. Rows returned by queries are not included.
    pub entities: u64,
}

impl RequestTally {
    /// Number of storage transactions as billed: one for each request, also for an entity group transaction.
    pub fn transactions(&self) -> u64 {
        self.requests.values().sum()
    }

    pub fn of_service(&self, service: Service) -> u64 {
        self.requests
            .iter()
            .filter(|(op, _)| op.service() == service)
            .map(|(_, n)| n)
            .sum()
    }

    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |op: &Op| earlier.requests.get(op).copied().unwrap_or(0);
        Self {
            requests: self
                .requests
                .iter()
                .map(|(op, n)| (*op, n.saturating_sub(before(op))))
                .filter(|(_, n)| *n > 0)
                .collect(),
            entities: self.entities.saturating_sub(earlier.entities),
        }
    }
}
