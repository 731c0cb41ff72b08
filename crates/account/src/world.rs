//! The state and clock of the account, and the requests that have not arrived yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;

use super::blobs::Containers;
use super::fault_policy::{FaultDecision, FaultPolicy, OperationInfo};
use super::files::Files;
use super::limits::{Limiter, ServiceLimits, ServiceLoad, Weight};
use super::queues::Queues;
use super::sinks::Collections;
use super::tables::SimTables;
use super::witness::{Execution, ObservedChange, Witness};
use evenkeel_model::{AccountName, EdmDateTime, EntityKey};
use evenkeel_storage::{
    Account, Clock, ErrorClass, FileStore, Resource, Rng, Service, ServiceClocks, Sink, StoreError,
    Subject,
};

/// The message of a request that the fault policy rejects.
pub const REFUSED: &str = "injected before execution";

/// The message of a request that the fault policy rejects because of one row.
pub const ROW_REFUSED: &str = "injected: this row is rejected";

/// A simulated storage account as seen by one of its callers.
#[derive(Clone)]
pub struct SimWorld {
    pub(super) inner: Arc<Inner>,
    faults: Arc<dyn FaultPolicy>,
    caller: u32,
    /// The times that answers have reported to this caller.
    clocks: Arc<ServiceClocks>,
}

pub(super) struct Inner {
    pub(super) account: AccountName,
    clock: Arc<dyn Clock>,
    witness: Option<Arc<dyn Witness>>,
    state: Mutex<AccountState>,
}

#[derive(Default)]
pub(super) struct AccountState {
    pub(super) tables: SimTables,
    pub(super) queues: Queues,
    pub(super) containers: Containers,
    pub(super) files: Files,
    pub(super) collections: Collections,
    /// Number of operations that were sent.
    sent: u64,
    /// A counter of writes for ETags and receipts.
    serial: u64,
    /// The time of the current operation.
    now: Timestamp,
    clocks: ClockOffsets,
    /// The Timestamp of the last write. Timestamps rise with every write.
    last_write: Option<EdmDateTime>,
    /// The changes of the current operation; `None` without a witness.
    changes: Option<Vec<ObservedChange>>,
    limiter: Option<Limiter>,
    /// The weight of the current operation; `None` without a limiter.
    weight: Option<Weight>,
    /// Requests in transit, by the number of the operation before which they arrive.
    late: BTreeMap<(u64, u64), LateRequest>,
    /// Requests in transit, by the monotonic time of their arrival.
    in_transit: BTreeMap<(Duration, u64), LateRequest>,
}

#[derive(Clone, Copy, Default)]
struct ClockOffsets {
    queues: SignedDuration,
    tables: SignedDuration,
}

/// A request that is executed later.
type LateRequest = Box<dyn FnOnce(&mut AccountState, &Inner) + Send>;

/// The place for the answer to a request in transit. If the sender has given up, it has dropped the place, and the answer is lost.
type AnswerSlot<T> = Arc<Mutex<Option<Result<T, StoreError>>>>;

impl AccountState {
    /// A number that was never returned before.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(super) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) const fn queue_clock_offset(&self) -> SignedDuration {
        self.clocks.queues
    }

    /// The time in an answer of a service, truncated to seconds.
    fn date(&self, service: Service) -> Timestamp {
        let off = match service {
            Service::Queue => self.clocks.queues,
            Service::Table => self.clocks.tables,
            Service::Blob | Service::Search => SignedDuration::ZERO,
        };
        let time = self.now.saturating_add(off).unwrap_or(self.now);
        Timestamp::from_second(time.as_second()).unwrap_or(time)
    }

    /// A Timestamp that is later than all before.
    pub(super) fn next_timestamp(&mut self) -> EdmDateTime {
        let now = self
            .now
            .saturating_add(self.clocks.tables)
            .unwrap_or(self.now);
        let now = EdmDateTime::from_timestamp(now).unwrap_or_else(|_| {
            #[expect(clippy::expect_used, reason = "a constant")]
            EdmDateTime::parse("2000-01-01T00:00:00Z").expect("a date")
        });
        let rising = match self.last_write {
            Some(last) if last >= now => EdmDateTime::from_ticks(last.ticks() + 1).unwrap_or(last),
            _ => now,
        };
        self.last_write = Some(rising);
        rising
    }

    /// Records the weight of the current operation if the account has limits.
    pub(super) fn record_weight(&mut self, weight: Weight) {
        self.weight = self.limiter.as_ref().map(|_| weight);
    }

    pub(super) const fn is_witnessed(&self) -> bool {
        self.changes.is_some()
    }

    /// Records a change if there is a witness.
    pub(super) fn record_change(&mut self, change: impl FnOnce() -> ObservedChange) {
        if let Some(changes) = &mut self.changes {
            changes.push(change());
        }
    }

    pub(super) fn change_count(&self) -> usize {
        self.changes.as_ref().map_or(0, Vec::len)
    }

    /// Drops changes that were rolled back.
    pub(super) fn drop_changes_after(&mut self, count: usize) {
        if let Some(changes) = &mut self.changes {
            changes.truncate(count);
        }
    }
}

impl Inner {
    pub(super) fn lock(&self) -> MutexGuard<'_, AccountState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn error(
        &self,
        class: ErrorClass,
        name: &'static str,
        what: Resource,
        message: &str,
    ) -> StoreError {
        StoreError::new(
            class,
            name,
            Subject {
                account: self.account.clone(),
                resource: what,
            },
            message,
        )
    }

    /// Executes an operation at the time in `state.now`.
    fn execute<T>(
        &self,
        state: &mut AccountState,
        caller: u32,
        info: &OperationInfo,
        late: bool,
        operation: impl FnOnce(&mut AccountState, &Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let result = operation(state, self);
        if let Some(witness) = &self.witness {
            let changes = state.changes.take().unwrap_or_default();
            let outcome = result.as_ref().map(|_| ()).map_err(|error| error.class);
            let account = &self.account;
            witness.executed(&Execution {
                account,
                caller,
                operation: info,
                at: state.now,
                late,
                result: outcome,
                changes: &changes,
            });
            state.changes = Some(Vec::new());
        }
        result
    }

    /// Advances to the present: requests that have arrived meanwhile are executed, each at its time of arrival.
    pub(super) fn catch_up(&self, state: &mut AccountState) {
        let (monotonic, now) = (self.clock.monotonic(), self.clock.now());
        while let Some(entry) = state.in_transit.first_entry()
            && entry.key().0 <= monotonic
        {
            let ago = SignedDuration::try_from(monotonic.saturating_sub(entry.key().0))
                .unwrap_or(SignedDuration::MAX);
            let request = entry.remove();
            state.now = now.saturating_sub(ago).unwrap_or(now);
            request(state, self);
        }
        state.now = now;
        while let Some(entry) = state.late.first_entry()
            && entry.key().0 <= state.sent
        {
            let request = entry.remove();
            request(state, self);
        }
    }
}

fn service_clocks(clock: &Arc<dyn Clock>) -> Arc<ServiceClocks> {
    let clock = Arc::clone(clock);
    Arc::new(ServiceClocks::timed_by(move || clock.monotonic()))
}

impl SimWorld {
    /// An empty account.
    pub fn new(account: AccountName, clock: Arc<dyn Clock>, faults: Arc<dyn FaultPolicy>) -> Self {
        Self::build(account, clock, faults, None)
    }

    /// An empty account with a witness.
    pub fn with_witness(
        account: AccountName,
        clock: Arc<dyn Clock>,
        faults: Arc<dyn FaultPolicy>,
        witness: Arc<dyn Witness>,
    ) -> Self {
        Self::build(account, clock, faults, Some(witness))
    }

    fn build(
        account: AccountName,
        clock: Arc<dyn Clock>,
        faults: Arc<dyn FaultPolicy>,
        witness: Option<Arc<dyn Witness>>,
    ) -> Self {
        let state = AccountState {
            changes: witness.as_ref().map(|_| Vec::new()),
            ..AccountState::default()
        };
        let clocks = service_clocks(&clock);
        Self {
            inner: Arc::new(Inner {
                account,
                clock,
                witness,
                state: Mutex::new(state),
            }),
            faults,
            caller: 0,
            clocks,
        }
    }

    /// The same account for another caller, with its own fault policy.
    #[must_use]
    pub fn for_caller(&self, caller: u32, faults: Arc<dyn FaultPolicy>) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            faults,
            caller,
            clocks: service_clocks(&self.inner.clock),
        }
    }

    pub fn account(&self) -> Account {
        let (tables, queues, blobs) = (
            Arc::new(self.clone()),
            Arc::new(self.clone()),
            Arc::new(self.clone()),
        );
        Account {
            tables,
            queues,
            blobs,
            clocks: Arc::clone(&self.clocks),
        }
    }

    /// Shared folders with the same fault policy.
    pub fn files(&self) -> Arc<dyn FileStore> {
        Arc::new(self.clone())
    }

    /// Documents of a sink with the same fault policy.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.clone())
    }

    /// Number of operations that were sent.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.inner.lock().sent
    }

    /// The monotonic time at which the last request in transit arrives.
    #[must_use]
    pub fn last_arrival(&self) -> Option<Duration> {
        self.inner
            .lock()
            .in_transit
            .last_key_value()
            .map(|((due, _), _)| *due)
    }

    /// Sets the next number of operations and writes, so that several accounts have different numbers.
    pub fn number_from(&self, number: u64) {
        let mut state = self.inner.lock();
        (state.sent, state.serial) = (number, number);
    }

    /// Executes the requests that have arrived. Every operation does this first.
    pub fn catch_up(&self) {
        let mut state = self.inner.lock();
        self.inner.catch_up(&mut state);
    }

    /// Executes all requests in transit.
    pub fn settle(&self) {
        let mut state = self.inner.lock();
        self.inner.catch_up(&mut state);
        let late = std::mem::take(&mut state.late);
        let in_transit = std::mem::take(&mut state.in_transit);
        for request in in_transit.into_values().chain(late.into_values()) {
            request(&mut state, &self.inner);
        }
    }

    pub(super) fn page(&self, what: &Resource) -> Option<usize> {
        self.faults.page(what)
    }

    /// Sets the offsets of the clocks of queues and tables.
    pub fn set_service_clocks(&self, queues: SignedDuration, tables: SignedDuration) {
        self.inner.lock().clocks = ClockOffsets { queues, tables };
    }

    /// Sets rate limits and latencies. They apply only to operations for which the fault policy decides `Execute`.
    pub fn limit(&self, limits: ServiceLimits, rng: Arc<dyn Rng>) {
        self.inner.lock().limiter = Some(Limiter::new(limits, rng));
    }

    /// The load since the limits were set.
    #[must_use]
    pub fn load(&self) -> ServiceLoad {
        self.inner
            .lock()
            .limiter
            .as_ref()
            .map(Limiter::load)
            .unwrap_or_default()
    }

    /// Sends an operation through the fault policy.
    pub(super) async fn send<T: Send + 'static>(
        &self,
        name: &'static str,
        what: Resource,
        writes: bool,
        operation: impl FnOnce(&mut AccountState, &Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.send_rows(name, what, writes, Vec::new(), operation)
            .await
    }

    /// Sends an operation on these rows through the fault policy, and records the time of the service in its answer.
    pub(super) async fn send_rows<T: Send + 'static>(
        &self,
        name: &'static str,
        what: Resource,
        writes: bool,
        rows: Vec<EntityKey>,
        operation: impl FnOnce(&mut AccountState, &Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (service, sent) = (what.service(), self.inner.clock.monotonic());
        let dated = move |state: &mut AccountState, inner: &Inner| {
            operation(state, inner).map(|value| (state.date(service), value))
        };
        let (date, value) = self.exchange(name, what, writes, rows, dated).await?;
        self.clocks
            .record(service, date, (sent, self.inner.clock.monotonic()));
        Ok(value)
    }

    async fn exchange<T: Send + 'static>(
        &self,
        name: &'static str,
        what: Resource,
        writes: bool,
        rows: Vec<EntityKey>,
        operation: impl FnOnce(&mut AccountState, &Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let number = {
            let mut state = self.inner.lock();
            state.sent += 1;
            state.sent
        };
        let info = OperationInfo {
            number,
            name,
            what,
            writes,
            rows,
        };
        let decision = self.faults.before(&info).await;
        match decision {
            FaultDecision::Execute => self.serve(info, operation).await,
            FaultDecision::Fail(class) => {
                self.catch_up();
                Err(self.inner.error(class, name, info.what, REFUSED))
            }
            FaultDecision::RefuseRow(class, index) => {
                self.catch_up();
                Err(self
                    .inner
                    .error(class, name, info.what, ROW_REFUSED)
                    .with_index(index))
            }
            FaultDecision::LoseAnswer => {
                drop(self.execute_now(&info, operation));
                Err(self.unanswered(info, "injected: the answer was lost"))
            }
            FaultDecision::NeverAnswer => {
                drop(self.execute_now(&info, operation));
                std::future::pending().await
            }
            FaultDecision::AnswerLate { answers, timeout } => {
                let result = self.execute_now(&info, operation);
                sleep(answers.min(timeout)).await;
                if answers <= timeout {
                    result
                } else {
                    Err(self.unanswered(info, "injected: the answer is still in transit"))
                }
            }
            FaultDecision::ArriveLater(operations) => {
                let mut state = self.inner.lock();
                self.inner.catch_up(&mut state);
                let (due, tie, caller, late) = (
                    state.sent + operations,
                    state.next_serial(),
                    self.caller,
                    info.clone(),
                );
                let request = move |state: &mut AccountState, inner: &Inner| {
                    drop(inner.execute(state, caller, &late, true, operation));
                };
                state.late.insert((due, tie), Box::new(request));
                drop(state);
                Err(self.unanswered(info, "injected: the request is still in transit"))
            }
            FaultDecision::Delayed { arrives, timeout } => {
                let answer_slot = self.send_delayed(&info, arrives, operation);
                sleep(arrives.min(timeout)).await;
                if arrives <= timeout {
                    self.catch_up();
                    let answer = answer_slot
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .take();
                    return answer.unwrap_or_else(|| {
                        Err(self.unanswered(info, "the request arrived but was not answered"))
                    });
                }
                Err(self.unanswered(info, "injected: the request is still in transit"))
            }
        }
    }

    /// Sends a request that arrives later.
    fn send_delayed<T: Send + 'static>(
        &self,
        info: &OperationInfo,
        arrives: Duration,
        operation: impl FnOnce(&mut AccountState, &Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> AnswerSlot<T> {
        let answer_slot = AnswerSlot::<T>::default();
        let sender = Arc::downgrade(&answer_slot);
        let (caller, info) = (self.caller, info.clone());
        let request = move |state: &mut AccountState, inner: &Inner| {
            // A read without a sender has no effect.
            let sender = sender.upgrade();
            if sender.is_none() && !info.writes {
                return;
            }
            let result = inner.execute(state, caller, &info, sender.is_none(), operation);
            if let Some(sender) = sender {
                *sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }
        };
        let mut state = self.inner.lock();
        self.inner.catch_up(&mut state);
        let due = (self.inner.clock.monotonic() + arrives, state.next_serial());
        state.in_transit.insert(due, Box::new(request));
        answer_slot
    }

    /// Executes an operation within the limits of the account.
    async fn serve<T>(
        &self,
        info: OperationInfo,
        operation: impl FnOnce(&mut AccountState, &Inner) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (result, latency) = {
            let mut state = self.inner.lock();
            self.inner.catch_up(&mut state);
            let now = self.inner.clock.monotonic();
            let admission = state
                .limiter
                .as_mut()
                .map(|limiter| (limiter.admit(&info.what, now), limiter.latency()));
            let Some((admitted, latency)) = admission else {
                return self
                    .inner
                    .execute(&mut state, self.caller, &info, false, operation);
            };
            let result = if admitted {
                let result = self
                    .inner
                    .execute(&mut state, self.caller, &info, false, operation);
                let weight = state.weight.take();
                if let Some(limiter) = &mut state.limiter {
                    limiter.charge(&info, weight, now);
                }
                result
            } else {
                let busy = ErrorClass::Throttled { retry_after: None };
                let error = self
                    .inner
                    .error(busy, info.name, info.what, "the server is busy");
                Err(error.with_status(503, Some("ServerBusy".to_owned())))
            };
            (result, latency)
        };
        sleep(latency).await;
        result
    }

    fn execute_now<T>(
        &self,
        info: &OperationInfo,
        operation: impl FnOnce(&mut AccountState, &Inner) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.inner.lock();
        self.inner.catch_up(&mut state);
        self.inner
            .execute(&mut state, self.caller, info, false, operation)
    }

    fn unanswered(&self, info: OperationInfo, message: &str) -> StoreError {
        self.inner
            .error(ErrorClass::Ambiguous, info.name, info.what, message)
    }
}
