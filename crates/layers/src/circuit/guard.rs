//! The layer that asks a breaker before each request and records the result.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt, TryFutureExt, join_all};
use jiff::Timestamp;
use metrics::gauge;

use super::breaker::{Admission, Breaker, Transition};
use crate::layer::{Evidence, Layer, Request, ThrottleScope};
use evenkeel_model::{AccountName, ContainerName, QueueName};
use evenkeel_storage::{
    Account, Clock, ErrorClass, OpenCircuit, Service, StoreError, StoreHealth, Withheld,
};
use evenkeel_telemetry::names;

/// Error code of a request that was not sent because the circuit of its service is open.
pub const CIRCUIT_OPEN: &str = "CircuitOpen";

/// Name of the queue and the container that a probe reads. They need not exist, because a 404 is an answer.
const PROBE_NAME: &str = "evenkeel-probe";
/// Timeout of a probe. A service that takes longer for the cheapest request counts as unavailable.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

enum ProbeTarget {
    Account(Account),
    /// A sink is not probed: a webhook would act on the event, and a database that answers a read may still reject writes.
    Sink,
}

impl ProbeTarget {
    const fn services(&self) -> &'static [Service] {
        match self {
            Self::Account(_) => &[Service::Table, Service::Queue, Service::Blob],
            Self::Sink => &[Service::Search],
        }
    }
}

/// The circuits of one account (one per service) or of one sink.
pub struct Circuit {
    account: AccountName,
    clock: Arc<dyn Clock>,
    inner: ProbeTarget,
    names: ProbeNames,
    tables: Mutex<BreakerState>,
    queues: Mutex<BreakerState>,
    blobs: Mutex<BreakerState>,
    search: Mutex<BreakerState>,
}

struct ProbeNames {
    queue: QueueName,
    container: ContainerName,
}

#[expect(clippy::expect_used, reason = "a constant")]
fn probe_names() -> ProbeNames {
    ProbeNames {
        queue: QueueName::new(PROBE_NAME).expect("a queue name"),
        container: ContainerName::new(PROBE_NAME).expect("a container name"),
    }
}

#[derive(Default)]
struct BreakerState {
    breaker: Breaker,
    since: Timestamp,
    reason: String,
}

impl Circuit {
    /// Creates closed circuits. Probes are sent to `inner` directly.
    pub fn new(account: &AccountName, inner: Account, clock: Arc<dyn Clock>) -> Self {
        Self::around(account, ProbeTarget::Account(inner), clock)
    }

    /// Creates a closed circuit for a sink. It is not probed; [`lapse`](Self::lapse) closes it.
    pub fn of_sink(name: &AccountName, clock: Arc<dyn Clock>) -> Self {
        Self::around(name, ProbeTarget::Sink, clock)
    }

    fn around(account: &AccountName, inner: ProbeTarget, clock: Arc<dyn Clock>) -> Self {
        let circuit = Self {
            account: account.clone(),
            clock,
            inner,
            names: probe_names(),
            tables: Mutex::default(),
            queues: Mutex::default(),
            blobs: Mutex::default(),
            search: Mutex::default(),
        };
        for service in circuit.inner.services() {
            circuit.set_gauge(*service, 0.0);
        }
        circuit
    }

    fn state(&self, service: Service) -> MutexGuard<'_, BreakerState> {
        let state = match service {
            Service::Table => &self.tables,
            Service::Queue => &self.queues,
            Service::Blob => &self.blobs,
            Service::Search => &self.search,
        };
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_gauge(&self, service: Service, open: f64) {
        gauge!(names::CIRCUIT_OPEN, names::ACCOUNT => self.account.to_string(), names::SERVICE => service.name()).set(open);
    }

    fn record(
        &self,
        service: Service,
        scope: impl FnOnce() -> ThrottleScope,
        error: Option<&StoreError>,
    ) {
        let mut state = self.state(service);
        let transition = state
            .breaker
            .record(Evidence::of(error), scope, self.clock.monotonic());
        if let (Some(error), true) = (error, state.breaker.is_open()) {
            state.reason = error.to_string();
        }
        match transition {
            None => {}
            Some(Transition::Opened) => {
                state.since = self.clock.now();
                self.set_gauge(service, 1.0);
                tracing::warn!(account = %self.account, service = service.name(), reason = %state.reason,
                    "circuit of {} {} opened: {}; requests are paused until the service answers",
                    self.account, service.name(), state.reason);
            }
            Some(Transition::Closed) => {
                self.set_gauge(service, 0.0);
                tracing::info!(account = %self.account, service = service.name(), since = %state.since,
                    "circuit of {} {} closed: the service answers again", self.account, service.name());
            }
        }
    }

    /// Closes circuits that have had no request for a long time, so that they do not report an outage that may be over.
    pub fn lapse(&self) {
        for service in self.inner.services() {
            let mut state = self.state(*service);
            if state.breaker.lapse(self.clock.monotonic()) {
                self.set_gauge(*service, 0.0);
                tracing::info!(account = %self.account, service = service.name(), since = %state.since,
                    "circuit of {} {} closed: it had no request for a long time; the state of the service is unknown",
                    self.account, service.name());
            }
        }
    }

    async fn probe_service(&self, service: Service) {
        if !self.state(service).breaker.is_open() {
            return;
        }
        let request: BoxFuture<'_, Result<(), StoreError>> = match (service, &self.inner) {
            (Service::Table, ProbeTarget::Account(account)) => {
                account.tables.list_tables(None).map_ok(drop).boxed()
            }
            (Service::Queue, ProbeTarget::Account(account)) => account
                .queues
                .approximate_count(&self.names.queue)
                .map_ok(drop)
                .boxed(),
            (Service::Blob, ProbeTarget::Account(account)) => account
                .blobs
                .list(&self.names.container, "", None)
                .map_ok(drop)
                .boxed(),
            (_, ProbeTarget::Sink) | (Service::Search, ProbeTarget::Account(_)) => return,
        };
        // A probe that timed out is not recorded; the circuit stays as it is.
        if let Ok(result) = tokio::time::timeout(PROBE_TIMEOUT, request).await {
            self.record(
                service,
                || ThrottleScope::Service(service),
                result.as_ref().err(),
            );
        }
    }
}

impl Layer for Circuit {
    async fn call<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
    ) -> Result<T, StoreError> {
        let service = request.op.service();
        let admission = self.state(service).breaker.admit(self.clock.monotonic());
        if let Admission::Withheld(next_trial) = admission {
            let message = format!(
                "not sent: the {} service is unavailable ({})",
                service.name(),
                self.state(service).reason
            );
            let class = ErrorClass::Transient {
                retry_after: Some(next_trial),
            };
            let error = StoreError::new(
                class,
                request.op.operation(),
                request.target.subject(&self.account),
                message,
            );
            return Err(error.not_sent(Withheld::CircuitOpen, CIRCUIT_OPEN));
        }
        let result = send().await;
        self.record(service, || request.target.scope(), request.error(&result));
        result
    }
}

#[async_trait]
impl StoreHealth for Circuit {
    fn open_circuits(&self) -> Vec<OpenCircuit> {
        let open = |service: &Service| {
            let service = *service;
            let state = self.state(service);
            let circuit = || OpenCircuit {
                account: self.account.clone(),
                service,
                since: state.since,
                reason: state.reason.clone(),
            };
            state.breaker.is_open().then(circuit)
        };
        self.inner.services().iter().filter_map(open).collect()
    }

    async fn probe(&self) {
        join_all(
            self.inner
                .services()
                .iter()
                .map(|service| self.probe_service(*service)),
        )
        .await;
    }
}
