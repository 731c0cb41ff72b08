//! The world: its state, its clock, and requests still on their way.

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

/// What the fault policy says of a request that it refuses.
pub const REFUSED: &str = "injected before execution";

/// What the fault policy says of a request that it refuses because of one row.
pub const ROW_REFUSED: &str = "injected: this row is refused";

/// One simulated storage account, as one of its callers sees it.
#[derive(Clone)]
pub struct SimWorld {
    pub(super) inner: Arc<Inner>,
    faults: Arc<dyn FaultPolicy>,
    caller: u32,
    /// What answers have told this caller.
    clocks: Arc<ServiceClocks>,
}

pub(super) struct Inner {
    pub(super) account: AccountName,
    clock: Arc<dyn Clock>,
    witness: Option<Arc<dyn Witness>>,
    state: Mutex<AccountState>,
}

/// Everything that the account holds.
#[derive(Default)]
pub(super) struct AccountState {
    pub(super) tables: SimTables,
    pub(super) queues: Queues,
    pub(super) containers: Containers,
    pub(super) files: Files,
    pub(super) collections: Collections,
    /// How many operations were sent.
    sent: u64,
    /// Rises with every write; ETags and receipts are made of it.
    serial: u64,
    /// When the operation under way is executed.
    now: Timestamp,
    /// How far the clocks of the services are off.
    clocks: ClocksOff,
    /// The last time that was given out: Timestamps rise with every write.
    last_write: Option<EdmDateTime>,
    /// What the operation under way has changed; kept where somebody is told.
    changes: Option<Vec<ObservedChange>>,
    /// What the account takes, where that is limited.
    limiter: Option<Limiter>,
    /// What the operation under way turned out to weigh; kept where that is limited.
    weight: Option<Weight>,
    /// Requests on their way, by the number of the operation before which they arrive.
    late: BTreeMap<(u64, u64), LateRequest>,
    /// Requests on their way, by the monotonic time at which they arrive.
    travelling: BTreeMap<(Duration, u64), LateRequest>,
}

/// How far the clocks of the services are off, as far as they tell times.
#[derive(Clone, Copy, Default)]
struct ClocksOff {
    queues: SignedDuration,
    tables: SignedDuration,
}

/// A request that is executed later. Whether its sender has given it up is the sender's to know.
type LateRequest = Box<dyn FnOnce(&mut AccountState, &Inner) + Send>;

/// Where a request that travels leaves its answer. A sender that gave up has let go of it.
type Letterbox<T> = Arc<Mutex<Option<Result<T, StoreError>>>>;

impl AccountState {
    /// A number that was never given before.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// When the operation under way is executed.
    pub(super) const fn now(&self) -> Timestamp {
        self.now
    }

    /// How far the clock of the queues is off.
    pub(super) const fn queues_off(&self) -> SignedDuration {
        self.clocks.queues
    }

    /// The time that an answer of a service tells: in whole seconds, cut off.
    fn date(&self, service: Service) -> Timestamp {
        let off = match service {
            Service::Queue => self.clocks.queues,
            Service::Table => self.clocks.tables,
            Service::Blob | Service::Search => SignedDuration::ZERO,
        };
        let time = self.now.saturating_add(off).unwrap_or(self.now);
        Timestamp::from_second(time.as_second()).unwrap_or(time)
    }

    /// A Timestamp later than every one before.
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

    /// Notes what the operation under way turned out to weigh, where that is limited.
    pub(super) fn weighs(&mut self, weight: Weight) {
        self.weight = self.limiter.as_ref().map(|_| weight);
    }

    /// Whether somebody is told of changes.
    pub(super) const fn is_witnessed(&self) -> bool {
        self.changes.is_some()
    }

    /// Notes a change, where somebody is told.
    pub(super) fn changed(&mut self, change: impl FnOnce() -> ObservedChange) {
        if let Some(changes) = &mut self.changes {
            changes.push(change());
        }
    }

    /// How many changes the operation under way has noted so far.
    pub(super) fn changes_so_far(&self) -> usize {
        self.changes.as_ref().map_or(0, Vec::len)
    }

    /// Forgets changes that were taken back.
    pub(super) fn forget_changes_after(&mut self, count: usize) {
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

    /// Executes an operation as of now, or as of the moment at which it arrived.
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

    /// Brings the world to the present: what has arrived meanwhile is executed, each at its own time.
    pub(super) fn catch_up(&self, state: &mut AccountState) {
        let (monotonic, now) = (self.clock.monotonic(), self.clock.now());
        while let Some(entry) = state.travelling.first_entry()
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

/// What a caller learns of the services' clocks, by this one.
fn service_clocks(clock: &Arc<dyn Clock>) -> Arc<ServiceClocks> {
    let clock = Arc::clone(clock);
    Arc::new(ServiceClocks::timed_by(move || clock.monotonic()))
}

impl SimWorld {
    /// An empty account.
    pub fn new(account: AccountName, clock: Arc<dyn Clock>, faults: Arc<dyn FaultPolicy>) -> Self {
        Self::build(account, clock, faults, None)
    }

    /// An empty account, with somebody who is told of everything.
    pub fn witnessed(
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

    /// The same account, as another caller sees it, under a fault policy of its own.
    #[must_use]
    pub fn seen_by(&self, caller: u32, faults: Arc<dyn FaultPolicy>) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            faults,
            caller,
            clocks: service_clocks(&self.inner.clock),
        }
    }

    /// The account as the program sees it.
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

    /// The shared folders beside the account, under the same faults.
    pub fn files(&self) -> Arc<dyn FileStore> {
        Arc::new(self.clone())
    }

    /// Another store's documents, under the same faults.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.clone())
    }

    /// How many operations were sent so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.inner.lock().sent
    }

    /// When the last request that is still on its way arrives, by the monotonic clock.
    #[must_use]
    pub fn last_arrival(&self) -> Option<Duration> {
        self.inner
            .lock()
            .travelling
            .last_key_value()
            .map(|((due, _), _)| *due)
    }

    /// Numbers operations and writes from here on, so that those of several accounts are told apart.
    pub fn number_from(&self, number: u64) {
        let mut state = self.inner.lock();
        (state.sent, state.serial) = (number, number);
    }

    /// Executes what has arrived by now. Every operation does so before it is executed itself.
    pub fn catch_up(&self) {
        let mut state = self.inner.lock();
        self.inner.catch_up(&mut state);
    }

    /// Lets every request arrive that is still on its way.
    pub fn settle(&self) {
        let mut state = self.inner.lock();
        self.inner.catch_up(&mut state);
        let late = std::mem::take(&mut state.late);
        let travelling = std::mem::take(&mut state.travelling);
        for request in travelling.into_values().chain(late.into_values()) {
            request(&mut state, &self.inner);
        }
    }

    /// How many rows a page of a query has at most, where the fault policy makes it short.
    pub(super) fn page(&self, what: &Resource) -> Option<usize> {
        self.faults.page(what)
    }

    /// Sets the clocks of the queues and of the tables off: the times that they tell.
    pub fn set_service_clocks(&self, queues: SignedDuration, tables: SignedDuration) {
        self.inner.lock().clocks = ClocksOff { queues, tables };
    }

    /// From now on the account takes no more than this, and its answers need their time, but for operations to which the fault policy does
    /// something.
    pub fn limit(&self, limits: ServiceLimits, rng: Arc<dyn Rng>) {
        self.inner.lock().limiter = Some(Limiter::new(limits, rng));
    }

    /// What was asked of the account since it was limited.
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

    /// Sends a transaction about these rows through the fault policy. Its answer tells the time of the service.
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
        let verdict = self.faults.before(&info).await;
        match verdict {
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
            FaultDecision::AnswerLate { answers, patience } => {
                let result = self.execute_now(&info, operation);
                sleep(answers.min(patience)).await;
                if answers <= patience {
                    result
                } else {
                    Err(self.unanswered(info, "injected: the answer is still on its way"))
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
                Err(self.unanswered(info, "injected: the request is still on its way"))
            }
            FaultDecision::Delayed { arrives, patience } => {
                let letterbox = self.send_off(&info, arrives, operation);
                sleep(arrives.min(patience)).await;
                if arrives <= patience {
                    self.catch_up();
                    let answer = letterbox
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .take();
                    return answer.unwrap_or_else(|| {
                        Err(self.unanswered(info, "the request arrived and was not answered"))
                    });
                }
                Err(self.unanswered(info, "injected: the request is still on its way"))
            }
        }
    }

    /// Puts a request on its way.
    fn send_off<T: Send + 'static>(
        &self,
        info: &OperationInfo,
        arrives: Duration,
        operation: impl FnOnce(&mut AccountState, &Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Letterbox<T> {
        let letterbox = Letterbox::<T>::default();
        let sender = Arc::downgrade(&letterbox);
        let (caller, info) = (self.caller, info.clone());
        let request = move |state: &mut AccountState, inner: &Inner| {
            // Nobody reads what is not a write once its sender is gone.
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
        state.travelling.insert(due, Box::new(request));
        letterbox
    }

    /// Executes an operation within what the account takes.
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
