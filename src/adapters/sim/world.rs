//! The world: its state, its clock, its weather, and requests still on their way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::blobs::Containers;
use super::queues::Queues;
use super::tables::Tables;
use super::weather::{OperationInfo, Verdict, Weather};
use crate::model::{AccountName, EdmDateTime};
use crate::ports::{Account, Clock, ErrorClass, StoreError, Subject, What};

/// One simulated storage account.
#[derive(Clone)]
pub struct SimWorld {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) account: AccountName,
    clock: Arc<dyn Clock>,
    weather: Arc<dyn Weather>,
    state: Mutex<State>,
}

/// Everything that the account holds.
#[derive(Default)]
pub(super) struct State {
    pub(super) tables: Tables,
    pub(super) queues: Queues,
    pub(super) containers: Containers,
    /// How many operations were sent.
    sent: u64,
    /// Rises with every write; ETags and receipts are made of it.
    serial: u64,
    /// The last time that was given out: Timestamps rise with every write.
    last_write: Option<EdmDateTime>,
    /// Requests on their way, by the number of the operation before which they arrive.
    late: BTreeMap<(u64, u64), LateRequest>,
}

/// A request that its sender has given up.
type LateRequest = Box<dyn FnOnce(&mut State, &Inner) + Send>;

impl State {
    /// A number that was never given before.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// A Timestamp later than every one before.
    pub(super) fn next_timestamp(&mut self, now: EdmDateTime) -> EdmDateTime {
        let rising = match self.last_write {
            Some(last) if last >= now => EdmDateTime::from_ticks(last.ticks() + 1).unwrap_or(last),
            _ => now,
        };
        self.last_write = Some(rising);
        rising
    }
}

impl Inner {
    pub(super) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    pub(super) fn edm_now(&self) -> EdmDateTime {
        EdmDateTime::from_timestamp(self.now()).unwrap_or_else(|_| {
            #[expect(clippy::expect_used, reason = "a constant")]
            EdmDateTime::parse("2000-01-01T00:00:00Z").expect("a date")
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn error(&self, class: ErrorClass, name: &'static str, what: What, message: &str) -> StoreError {
        StoreError::new(class, name, Subject { account: self.account.clone(), what }, message)
    }

    /// Sends an operation through the weather.
    pub(super) async fn send<T: 'static>(
        &self,
        name: &'static str,
        what: What,
        writes: bool,
        operation: impl FnOnce(&mut State, &Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let number = {
            let mut state = self.lock();
            state.sent += 1;
            state.sent
        };
        let verdict = self.weather.before(&OperationInfo { number, name, what: what.clone(), writes }).await;
        let mut state = self.lock();
        self.let_arrive(&mut state);
        match verdict {
            Verdict::Execute => operation(&mut state, self),
            Verdict::Fail(class) => Err(self.error(class, name, what, "injected before execution")),
            Verdict::LoseAnswer => {
                let result = operation(&mut state, self);
                drop(result);
                Err(self.error(ErrorClass::Ambiguous, name, what, "injected: the answer was lost"))
            }
            Verdict::ArriveLater(operations) => {
                let (due, tie) = (state.sent + operations, state.next_serial());
                state.late.insert((due, tie), Box::new(move |state, inner| drop(operation(state, inner))));
                Err(self.error(ErrorClass::Ambiguous, name, what, "injected: the request is still on its way"))
            }
        }
    }

    fn let_arrive(&self, state: &mut State) {
        while let Some(entry) = state.late.first_entry()
            && entry.key().0 <= state.sent
        {
            let request = entry.remove();
            request(state, self);
        }
    }
}

impl SimWorld {
    /// An empty account.
    pub fn new(account: AccountName, clock: Arc<dyn Clock>, weather: Arc<dyn Weather>) -> Self {
        Self { inner: Arc::new(Inner { account, clock, weather, state: Mutex::new(State::default()) }) }
    }

    /// The account as the program sees it.
    pub fn account(&self) -> Account {
        Account { tables: Arc::new(self.clone()), queues: Arc::new(self.clone()), blobs: Arc::new(self.clone()) }
    }

    /// How many operations were sent so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.inner.lock().sent
    }

    /// Lets every request arrive that is still on its way.
    pub fn settle(&self) {
        let mut state = self.inner.lock();
        let late = std::mem::take(&mut state.late);
        for request in late.into_values() {
            request(&mut state, &self.inner);
        }
    }
}
