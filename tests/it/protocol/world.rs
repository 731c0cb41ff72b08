//! The lab: a simulated account, an engine on it, a clock, and faults that strike at one operation.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use evenkeel_account::company::Placement;
use evenkeel_account::company::{CONTAINER, FOLDER, Shape, catalog, department};
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo, SimWorld};
use evenkeel_azure::vault::LocalVault;
use evenkeel_config::{Folder, Request};
use evenkeel_engine::{
    Delivery, Engine, EngineParts, Execute, Failure, FailureClass, ItemChange, MemoryBudget,
    Outcome, Recheck, SigningSecret, Waits, Work, footprint,
};
use evenkeel_layers::stack::{Grouping, decorate, decorate_sink};
use evenkeel_model::KeyBytes;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::{self, JobRequest, Stamp};
use evenkeel_model::range_overlay;
use evenkeel_model::settings::{Backoff, RetryPolicy};
use evenkeel_model::{
    AccountName, BlobName, ContainerName, Entity, EntityKey, Job, QueueName, Row, TableName,
    document,
};
use evenkeel_storage::vault::Vault;
use evenkeel_storage::{
    Account, Clock, ErrorClass, FilePlace, MessageText, Query, Resource, Rng, Sink, Stores,
    TableOperation,
};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::sync::Notify;

pub(crate) const RECHECK_AFTER: Duration = Duration::from_mins(26);
/// The first number of the operations on the second account.
const BESIDE: u64 = 1 << 40;
/// Maximum length of a chain of queued jobs in a story.
const MOST_QUEUED: u32 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturbance {
    Crash,
    Refuse,
    Throttle,
    LoseAnswer,
    /// The sender gives up, and the request is executed this many operations later.
    ArriveLater(u64),
    /// A client or another worker acts before the operation.
    Meddle,
}

type Meddling = BoxFuture<'static, ()>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    Never,
    During,
    /// The request arrived after the end of the run, or has not arrived yet.
    After,
}

/// A delete that is executed, but whose answer is lost.
enum LostDelete {
    Awaited {
        table: &'static str,
        then: Option<ErrorClass>,
        meddling: Meddling,
    },
    Executed {
        table: &'static str,
        then: Option<ErrorClass>,
        meddling: Meddling,
    },
}

fn deletes(operation: &OperationInfo, table: &str) -> bool {
    match &operation.what {
        Resource::Entity(name, _) => name.as_str() == table && operation.name == "Delete Entity",
        Resource::Partition(name, _) => name.as_str() == table && operation.writes,
        _ => false,
    }
}

#[derive(Default)]
pub(crate) struct FaultInjector {
    at: Mutex<BTreeMap<u64, Disturbance>>,
    counted: AtomicU64,
    calm: AtomicBool,
    /// Number of the operation before which the last late request arrives.
    due: Mutex<Option<u64>>,
    crashed: Notify,
    meddling: Mutex<VecDeque<Meddling>>,
    unheard: Mutex<Option<LostDelete>>,
    /// Whether every operation first yields to the other tasks.
    turns: AtomicBool,
    slow: AtomicBool,
    page: Mutex<Option<usize>>,
    writes: Mutex<BTreeMap<String, u64>>,
    reads: Mutex<BTreeMap<String, u64>>,
    /// Every request, in order, as `read` or `write` and the table and key.
    requests: Mutex<Vec<String>>,
    losing: Mutex<BTreeMap<String, u64>>,
    names: Mutex<BTreeMap<u64, &'static str>>,
    totals: Mutex<BTreeMap<&'static str, u64>>,
}

impl FaultInjector {
    pub(crate) fn arm(&self, at: u64, disturbance: Disturbance) {
        self.at.lock().unwrap().insert(at, disturbance);
        *self.due.lock().unwrap() = None;
        self.counted.store(0, Ordering::SeqCst);
        self.calm.store(false, Ordering::SeqCst);
    }

    pub(crate) fn meddle(&self, meddling: Meddling) {
        self.meddling.lock().unwrap().push_back(meddling);
    }

    /// Executes the next delete of a row of this table, and loses the answer. `meddling` runs before the next request.
    /// If that request repeats the delete, it is refused with the class `then`. Without `then` it reaches the store.
    pub(crate) fn lose_the_deletion_of(
        &self,
        table: &'static str,
        then: Option<ErrorClass>,
        meddling: Meddling,
    ) {
        *self.unheard.lock().unwrap() = Some(LostDelete::Awaited {
            table,
            then,
            meddling,
        });
    }

    /// Returns `true` if such a delete was sent, and after it another request.
    pub(crate) fn has_lost_it(&self) -> bool {
        self.unheard.lock().unwrap().is_none()
    }

    async fn unheard(&self, operation: &OperationInfo) -> Option<FaultDecision> {
        let unheard = self.unheard.lock().unwrap().take()?;
        match unheard {
            LostDelete::Awaited {
                table,
                then,
                meddling,
            } if deletes(operation, table) => {
                *self.unheard.lock().unwrap() = Some(LostDelete::Executed {
                    table,
                    then,
                    meddling,
                });
                Some(FaultDecision::LoseAnswer)
            }
            awaited @ LostDelete::Awaited { .. } => {
                *self.unheard.lock().unwrap() = Some(awaited);
                None
            }
            LostDelete::Executed {
                table,
                then,
                meddling,
            } => {
                meddling.await;
                then.filter(|_| deletes(operation, table))
                    .map(FaultDecision::Fail)
            }
        }
    }

    /// Makes every operation yield to the other tasks first, as a network does.
    pub(crate) fn take_turns(&self) {
        self.turns.store(true, Ordering::SeqCst);
    }

    pub(crate) fn take_time(&self) {
        self.slow.store(true, Ordering::SeqCst);
    }

    pub(crate) fn writes_to(&self, table: &str) -> u64 {
        self.writes.lock().unwrap().get(table).copied().unwrap_or(0)
    }

    pub(crate) fn reads_of(&self, table: &str, pk: &str, rk: &str) -> u64 {
        let row = format!("{table} {pk} {rk}");
        self.reads.lock().unwrap().get(&row).copied().unwrap_or(0)
    }

    /// Returns the requests since the last call, such as `read Employees Sales 1`.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    /// The next `times` writes of this row fail, as if another writer had been faster.
    pub(crate) fn lose_races(&self, table: &str, pk: &str, rk: &str, times: u64) {
        let row = format!("{table} {pk} {rk}");
        self.losing.lock().unwrap().insert(row, times);
    }

    fn loses(&self, row: &str) -> bool {
        let mut losing = self.losing.lock().unwrap();
        let Some(left) = losing.get_mut(row).filter(|left| **left > 0) else {
            return false;
        };
        *left -= 1;
        true
    }

    /// When the last late request arrived, if it has arrived yet.
    pub(crate) fn arrival(&self) -> Arrival {
        match *self.due.lock().unwrap() {
            None => Arrival::Never,
            Some(due) if due <= self.counted() => Arrival::During,
            Some(_) => Arrival::After,
        }
    }

    pub(crate) fn named(&self, number: u64) -> Option<&'static str> {
        self.names.lock().unwrap().get(&number).copied()
    }

    pub(crate) fn total(&self, name: &str) -> u64 {
        self.totals.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    pub(crate) async fn crash(&self) {
        self.crashed.notified().await;
    }

    pub(crate) fn shorten_pages(&self, most: Option<usize>) {
        *self.page.lock().unwrap() = most;
    }

    pub(crate) fn calm(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    /// Ends the calm, so that armed disturbances take effect again.
    pub(crate) fn go_on(&self) {
        self.calm.store(false, Ordering::SeqCst);
    }

    pub(crate) fn counted(&self) -> u64 {
        self.counted.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl FaultPolicy for FaultInjector {
    fn page(&self, _what: &Resource) -> Option<usize> {
        *self.page.lock().unwrap()
    }

    async fn before(&self, operation: &OperationInfo) -> FaultDecision {
        if let (Resource::Entity(table, _), true) = (&operation.what, operation.writes) {
            *self
                .writes
                .lock()
                .unwrap()
                .entry(table.to_string())
                .or_default() += 1;
        }
        let about = match &operation.what {
            Resource::Entity(table, key) => format!("{table} {} {}", key.pk, key.rk),
            other => format!("{other:?}"),
        };
        let doing = if operation.writes { "write" } else { "read" };
        self.requests
            .lock()
            .unwrap()
            .push(format!("{doing} {about}"));
        if operation.writes && self.loses(&about) {
            return FaultDecision::Fail(ErrorClass::Precondition);
        }
        if let (Resource::Entity(..), false) = (&operation.what, operation.writes) {
            *self.reads.lock().unwrap().entry(about).or_default() += 1;
        }
        *self
            .totals
            .lock()
            .unwrap()
            .entry(operation.name)
            .or_default() += 1;
        if self.turns.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        if self.slow.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if let Some(verdict) = self.unheard(operation).await {
            return verdict;
        }
        if self.calm.load(Ordering::SeqCst) {
            return FaultDecision::Execute;
        }
        let number = self.counted.fetch_add(1, Ordering::SeqCst) + 1;
        self.names.lock().unwrap().insert(number, operation.name);
        let disturbance = self.at.lock().unwrap().remove(&number);
        match disturbance {
            None => FaultDecision::Execute,
            Some(Disturbance::Crash) => {
                self.crashed.notify_one();
                std::future::pending().await
            }
            Some(Disturbance::Refuse) => FaultDecision::Fail(ErrorClass::Refused),
            Some(Disturbance::Throttle) => {
                FaultDecision::Fail(ErrorClass::Throttled { retry_after: None })
            }
            // A read changes nothing, so a read without an answer simply fails.
            Some(Disturbance::LoseAnswer | Disturbance::ArriveLater(_)) if !operation.writes => {
                FaultDecision::Fail(ErrorClass::Transient { retry_after: None })
            }
            Some(Disturbance::LoseAnswer) => FaultDecision::LoseAnswer,
            Some(Disturbance::ArriveLater(operations)) => {
                *self.due.lock().unwrap() = Some(number.saturating_add(operations));
                FaultDecision::ArriveLater(operations)
            }
            Some(Disturbance::Meddle) => {
                let meddling = self.meddling.lock().unwrap().pop_front();
                if let Some(meddling) = meddling {
                    self.calm.store(true, Ordering::SeqCst);
                    meddling.await;
                    self.calm.store(false, Ordering::SeqCst);
                }
                FaultDecision::Execute
            }
        }
    }
}

/// A clock that advances a little at each read, and as much as a test requests.
#[derive(Default)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(1_795_000_000_000 + self.0.fetch_add(1, Ordering::SeqCst))
            .unwrap()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst).unsigned_abs())
    }
}

struct UniqueRng;

impl Rng for UniqueRng {
    fn next_u64(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::SeqCst)
    }
}

struct SpreadRng(AtomicU64);

impl Rng for SpreadRng {
    fn next_u64(&self) -> u64 {
        // A Weyl sequence: each step adds the golden ratio, so that the numbers spread evenly.
        self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst)
    }
}

pub(crate) const SHAPE: Shape = Shape {
    former_index: false,
    chain: false,
    lists: true,
    near: true,
    sets: true,
    groups: true,
    apart: false,
    last_writer: false,
    targets: false,
    anew: false,
    crowd: false,
    encrypted: false,
    twins: false,
    placement: Placement::Main,
};
/// Fewer views, for tests in which each additional operation causes many additional runs.
pub(crate) const SMALL: Shape = Shape {
    lists: false,
    sets: false,
    groups: false,
    ..SHAPE
};

#[derive(Clone)]
pub(crate) struct Lab {
    pub(crate) shape: Shape,
    pub(crate) sim: SimWorld,
    pub(crate) beside: Option<SimWorld>,
    pub(crate) account: Account,
    pub(crate) engine: Arc<Engine>,
    meddler: Arc<Engine>,
    pub(crate) faults: Arc<FaultInjector>,
    clock: Arc<TestClock>,
    secret: Arc<SigningSecret>,
    messages: Arc<AtomicU64>,
    /// The last write of the meddling client: row key and e-mail address.
    pub(crate) last_client_write: Arc<Mutex<Option<(String, String)>>>,
    /// Jobs that `finish` sends before the final checks.
    pub(crate) sync_later: Arc<Mutex<Vec<Job>>>,
}

pub(crate) fn table(name: &str) -> TableName {
    TableName::new(name).unwrap()
}

pub(crate) fn recheck_queue() -> QueueName {
    QueueName::new("jobs-recheck").unwrap()
}

pub(crate) fn vault() -> Arc<dyn Vault> {
    Arc::new(LocalVault::new(
        "k1",
        [("k1".to_owned(), KeyBytes([7; 32]))],
    ))
}

fn account(sim: &SimWorld, clock: &Arc<TestClock>, decorators: Option<Grouping>) -> Account {
    let Some(grouping) = decorators else {
        return sim.account();
    };
    let (clock, rng): (Arc<dyn Clock>, Arc<dyn Rng>) = (clock.clone(), Arc::new(UniqueRng));
    decorate(
        &AccountName::main(),
        &sim.account(),
        grouping,
        retries(),
        &clock,
        &rng,
    )
    .account
}

fn sink(
    sim: &SimWorld,
    clock: &Arc<TestClock>,
    decorators: Option<Grouping>,
) -> (AccountName, Arc<dyn Sink>) {
    let name = AccountName::new("catalog").unwrap();
    if decorators.is_none() {
        return (name, sim.sink());
    }
    let (clock, rng): (Arc<dyn Clock>, Arc<dyn Rng>) = (clock.clone(), Arc::new(UniqueRng));
    let decorated = decorate_sink(&name, sim.sink(), retries(), &clock, &rng).sink;
    (name, decorated)
}

fn retries() -> RetryPolicy {
    let backoff = Backoff {
        min: Duration::from_millis(50),
        base: Duration::from_millis(100),
        max: Duration::from_secs(5),
    };
    RetryPolicy::growing(backoff, 6)
}

pub(crate) fn other() -> AccountName {
    AccountName::new("other").unwrap()
}

fn engine(
    (sim, beside): (&SimWorld, Option<&SimWorld>),
    (clock, secret): (&Arc<TestClock>, &Arc<SigningSecret>),
    catalog: &Arc<Catalog>,
    decorators: Option<Grouping>,
    rng: Arc<dyn Rng>,
) -> Arc<Engine> {
    let sinks: BTreeMap<AccountName, Arc<dyn Sink>> = [sink(sim, clock, decorators)].into();
    let beside = beside.map(|sim| (other(), sim.account()));
    let accounts = [(AccountName::main(), account(sim, clock, decorators))]
        .into_iter()
        .chain(beside);
    let stores = Stores::new(accounts.collect())
        .with_files(sim.files())
        .with_sinks(sinks);
    let stores = stores.with_vault(Some(vault()));
    let (catalog, clock) = (Arc::clone(catalog), Arc::clone(clock));
    let engine = Engine::new(EngineParts {
        stores,
        catalog,
        clock,
        rng,
        recheck_after: RECHECK_AFTER,
    });
    Arc::new(engine.signing_by(Arc::clone(secret)))
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::of(SHAPE)
    }

    pub(crate) fn of(shape: Shape) -> Self {
        Self::with(shape, catalog(shape))
    }

    /// A lab whose account and sink have the decorators of production.
    pub(crate) fn decorated(shape: Shape, catalog: Catalog, grouping: Grouping) -> Self {
        Self::build(shape, catalog, Some(grouping), false)
    }

    pub(crate) fn over_two(catalog: Catalog) -> Self {
        Self::build(SMALL, catalog, None, true)
    }

    pub(crate) fn with(shape: Shape, catalog: Catalog) -> Self {
        Self::build(shape, catalog, None, false)
    }

    pub(crate) fn within(mut self, memory: Arc<MemoryBudget>) -> Self {
        let own = std::mem::replace(&mut self.engine, Arc::clone(&self.meddler));
        self.engine = Arc::new(Arc::into_inner(own).unwrap().within(memory));
        self
    }

    fn build(shape: Shape, catalog: Catalog, decorators: Option<Grouping>, two: bool) -> Self {
        let (clock, faults) = (
            Arc::new(TestClock::default()),
            Arc::new(FaultInjector::default()),
        );
        faults.calm();
        let sim = SimWorld::new(AccountName::main(), clock.clone(), faults.clone());
        let beside = two.then(|| SimWorld::new(other(), clock.clone(), faults.clone()));
        if let Some(beside) = &beside {
            beside.number_from(BESIDE);
        }
        let account = sim.account();
        let (declared, secret) = (Arc::new(catalog), Arc::default());
        let lab = Self {
            shape,
            engine: engine(
                (&sim, beside.as_ref()),
                (&clock, &secret),
                &declared,
                decorators,
                Arc::new(UniqueRng),
            ),
            meddler: engine(
                (&sim, beside.as_ref()),
                (&clock, &secret),
                &declared,
                None,
                Arc::new(UniqueRng),
            ),
            sim,
            beside,
            account,
            faults,
            clock,
            secret,
            messages: Arc::default(),
            last_client_write: Arc::default(),
            sync_later: Arc::default(),
        };
        futures::executor::block_on(async {
            for name in declared.tables.keys().chain([
                &footprint::table(),
                &range_overlay::table(),
                &table("EvenkeelAudits"),
                &table("Departments"),
            ]) {
                lab.account.tables.create_table(name).await.unwrap();
            }
            lab.account
                .tables
                .apply(&table("Departments"), &TableOperation::Insert(department()))
                .await
                .unwrap();
            for queue in [recheck_queue(), QueueName::new("jobs").unwrap()] {
                lab.account.queues.create_queue(&queue).await.unwrap();
            }
            lab.account
                .blobs
                .create_container(&ContainerName::new(CONTAINER).unwrap())
                .await
                .unwrap();
            // Workers read the secret before their first jobs. Both engines share the secret, so one read is enough.
            // The read is unconstrained because this code runs outside a runtime, where the budget of a task is never
            // renewed.
            tokio::task::unconstrained(lab.meddler.read_secret()).await;
        });
        lab
    }

    pub(crate) fn under(&self, catalog: Catalog) -> Self {
        let catalog = Arc::new(catalog);
        let engine = || {
            engine(
                (&self.sim, self.beside.as_ref()),
                (&self.clock, &self.secret),
                &catalog,
                None,
                Arc::new(UniqueRng),
            )
        };
        Self {
            engine: engine(),
            meddler: engine(),
            ..self.clone()
        }
    }

    /// The same lab, used by another worker, which acts while the first one waits for an answer.
    pub(crate) fn of_another_worker(&self) -> Self {
        Self {
            engine: Arc::clone(&self.meddler),
            ..self.clone()
        }
    }

    pub(crate) fn of_a_racing_worker(&self) -> Self {
        let rng = SpreadRng(AtomicU64::new(UniqueRng.next_u64() << 40));
        let engine = engine(
            (&self.sim, self.beside.as_ref()),
            (&self.clock, &self.secret),
            self.engine.catalog(),
            None,
            Arc::new(rng),
        );
        Self {
            engine,
            ..self.clone()
        }
    }

    /// The same lab, used by a new worker that has not received any answer yet.
    pub(crate) fn of_a_new_worker(&self) -> Self {
        let sim = self.sim.for_caller(1, self.faults.clone());
        let beside = self
            .beside
            .as_ref()
            .map(|beside| beside.for_caller(1, self.faults.clone()));
        let engine = || {
            engine(
                (&sim, beside.as_ref()),
                (&self.clock, &self.secret),
                self.engine.catalog(),
                None,
                Arc::new(UniqueRng),
            )
        };
        Self {
            engine: engine(),
            meddler: engine(),
            account: sim.account(),
            sim: sim.clone(),
            beside: beside.clone(),
            ..self.clone()
        }
    }

    /// The same lab, used by a worker that has just started and has no state.
    pub(crate) fn of_a_restarted_worker(&self) -> Self {
        Self {
            secret: Arc::default(),
            ..self.clone()
        }
        .of_a_new_worker()
    }

    pub(crate) fn wait(&self, duration: Duration) {
        self.clock.0.fetch_add(
            i64::try_from(duration.as_millis()).unwrap(),
            Ordering::SeqCst,
        );
    }

    pub(crate) async fn write(&self, entity: Entity) {
        self.account
            .tables
            .apply(
                &table("Employees"),
                &TableOperation::InsertOrReplace(entity),
            )
            .await
            .unwrap();
    }

    /// A client writes an employee, and records this as the last write.
    pub(crate) async fn client_writes(&self, rk: &str, email: &str) {
        self.write(employee(rk, email, "Meddled")).await;
        *self.last_client_write.lock().unwrap() = Some((rk.to_owned(), email.to_owned()));
    }

    pub(crate) async fn remove(&self, pk: &str, rk: &str) {
        self.delete_row("Employees", pk, rk).await;
    }

    pub(crate) async fn delete_row(&self, name: &str, pk: &str, rk: &str) {
        let key = EntityKey::new(pk, rk).unwrap();
        let operation = TableOperation::Delete(key, evenkeel_storage::IfMatch::Any);
        drop(self.account.tables.apply(&table(name), &operation).await);
    }

    pub(crate) async fn read(&self, name: &str, pk: &str, rk: &str) -> Option<Row> {
        self.account
            .tables
            .get(&table(name), &EntityKey::new(pk, rk).unwrap(), None)
            .await
            .unwrap()
    }

    pub(crate) async fn document(&self, rk: &str) -> Option<Entity> {
        let name = BlobName::new(format!("Sales/{rk}.json")).unwrap();
        let blob = self
            .account
            .blobs
            .get(&ContainerName::new(CONTAINER).unwrap(), &name, None)
            .await
            .unwrap();
        let file = self
            .sim
            .files()
            .read(&FilePlace {
                dir: FOLDER.to_owned(),
                name,
            })
            .await
            .unwrap();
        let content = blob
            .map(|blob| blob.content)
            .or_else(|| file.map(|file| file.content))?;
        Some(document::decode(&content, &EntityKey::new("Sales", rk).unwrap()).unwrap())
    }

    pub(crate) async fn lines(&self) -> Vec<serde_json::Value> {
        let container = ContainerName::new(CONTAINER).unwrap();
        let mut lines = Vec::new();
        for blob in self
            .account
            .blobs
            .list(&container, "logs/", None)
            .await
            .unwrap()
            .blobs
        {
            let blob = self
                .account
                .blobs
                .get(&container, &blob.name, None)
                .await
                .unwrap()
                .unwrap();
            let text = String::from_utf8(blob.content.to_vec()).unwrap();
            lines.extend(text.lines().map(|line| serde_json::from_str(line).unwrap()));
        }
        lines
    }

    pub(crate) async fn rows(&self, name: &str) -> Vec<Row> {
        self.account
            .tables
            .query(&table(name), &Query::default())
            .await
            .unwrap()
            .rows
    }

    pub(crate) fn delivery(&self) -> Delivery {
        let number = self.messages.fetch_add(1, Ordering::SeqCst);
        Delivery {
            stamp: Stamp {
                message_id: format!("m{number}"),
                enqueued: self.clock.now(),
                job: None,
            },
            dequeue_count: 1,
            account: AccountName::main(),
            propagation_queue: QueueName::new("jobs").unwrap(),
            sync_queue: QueueName::new("jobs").unwrap(),
            recheck_queue: recheck_queue(),
            tables: None,
        }
    }

    pub(crate) fn message(&self, job: &serde_json::Value) -> (Job, Delivery) {
        let envelope = job::decode(&job.to_string()).unwrap();
        let mut delivery = self.delivery();
        delivery.stamp.job = envelope.digest;
        (envelope.job, delivery)
    }

    /// Puts a message on the queue. Returns its job and first delivery as the queue reports them.
    pub(crate) async fn queued(&self, job: &serde_json::Value) -> (Job, Delivery) {
        let queue = QueueName::new("jobs").unwrap();
        self.account
            .queues
            .put(
                &queue,
                &job.to_string(),
                Duration::ZERO,
                evenkeel_storage::Ttl::Never,
            )
            .await
            .unwrap();
        let got = self
            .account
            .queues
            .get(&queue, 1, Duration::from_hours(24))
            .await
            .unwrap()
            .remove(0);
        let (job, delivery) = self.message(job);
        let stamp = Stamp {
            message_id: got.id,
            enqueued: got.inserted,
            job: delivery.stamp.job,
        };
        (
            job,
            Delivery {
                stamp,
                dequeue_count: got.dequeue_count,
                ..delivery
            },
        )
    }

    pub(crate) async fn run(&self, (job, delivery): &(Job, Delivery)) -> Result<Outcome, Failure> {
        self.engine.execute(&Work::Job(job.clone()), delivery).await
    }

    /// Runs a job to its end as an undisturbed worker would, with redeliveries after temporary failures.
    pub(crate) async fn work(&self, job: &Job) -> Result<Outcome, Failure> {
        let mut delivery = self.delivery();
        loop {
            match self
                .engine
                .execute(&Work::Job(job.clone()), &delivery)
                .await
            {
                Err(failure)
                    if matches!(failure.class, FailureClass::Transient { .. })
                        && delivery.dequeue_count < 20 =>
                {
                    delivery.dequeue_count += 1;
                }
                result => return result,
            }
        }
    }

    /// Does a job like `work`, and also returns the changes that no outcome reports.
    pub(crate) async fn work_untold(
        &self,
        job: &Job,
    ) -> (Result<Outcome, Failure>, Vec<ItemChange>) {
        let waits = Waits::new(self.clock.clone());
        (waits.of(self.work(job)).await, waits.unreported())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn deliver(
        &self,
        job: &Job,
        dequeue_count: u32,
    ) -> Option<Result<Outcome, Failure>> {
        let delivery = self.delivered(dequeue_count);
        let work = Work::Job(job.clone());
        tokio::select! {
            biased;
            () = self.faults.crashed.notified() => None,
            result = self.engine.execute(&work, &delivery) => Some(result),
        }
    }

    /// Gives up a delivered job, as the worker does when its message has no attempts left.
    pub(crate) async fn give_up(&self, job: &Job) {
        self.engine
            .give_up(&Work::Job(job.clone()), &self.delivered(1))
            .await
            .unwrap();
    }

    fn delivered(&self, dequeue_count: u32) -> Delivery {
        Delivery {
            dequeue_count,
            stamp: Stamp {
                message_id: "the-job".to_owned(),
                enqueued: start(),
                job: None,
            },
            ..self.delivery()
        }
    }

    pub(crate) async fn operations_of(&self, job: &Job) -> u64 {
        self.faults.arm(u64::MAX, Disturbance::Crash);
        self.deliver(job, 1)
            .await
            .expect("not disturbed")
            .expect("the job succeeds");
        let operations = self.faults.counted();
        self.faults.calm();
        operations
    }

    /// Delivers a job until it is done. Returns `None` if it fails permanently and would be poisoned.
    pub(crate) async fn deliver_until_done(&self, job: &Job) -> Option<Outcome> {
        for dequeue_count in 1..=20 {
            match self.deliver(job, dequeue_count).await {
                Some(Ok(outcome)) => return Some(outcome),
                Some(Err(failure)) if failure.class == FailureClass::Permanent => return None,
                Some(Err(_)) | None => {}
            }
        }
        panic!("{job:?} is not done after 20 deliveries");
    }

    pub(crate) async fn do_queued(&self) {
        let queue = QueueName::new("jobs").unwrap();
        let mut done = 0;
        loop {
            let messages = self
                .account
                .queues
                .get(&queue, 32, Duration::from_mins(1))
                .await
                .unwrap();
            if messages.is_empty() {
                return;
            }
            for message in messages {
                done += 1;
                assert!(done < MOST_QUEUED, "jobs keep queueing jobs: {message:?}");
                let MessageText::Readable(text) = &message.text else {
                    panic!("job cannot be decoded")
                };
                for queued in jobs_of(text) {
                    match self.work(&queued).await {
                        Ok(Outcome::Done(_)) => {}
                        ended => panic!("{queued:?} ended as {ended:?}"),
                    }
                }
                self.account
                    .queues
                    .delete(&queue, &message.id, &message.pop_receipt)
                    .await
                    .unwrap();
            }
        }
    }

    /// The queued rechecks, at most 32.
    pub(crate) async fn rechecks(&self) -> Vec<Recheck> {
        // A recheck that another recheck has queued waits twice as long.
        self.wait(2 * (RECHECK_AFTER + Duration::from_mins(2)));
        let messages = self
            .account
            .queues
            .get(&recheck_queue(), 32, Duration::from_mins(1))
            .await
            .unwrap();
        let text = |text: MessageText| {
            if let MessageText::Readable(text) = text {
                text
            } else {
                panic!("recheck cannot be decoded")
            }
        };
        messages
            .into_iter()
            .flat_map(|message| Recheck::decode_all(&text(message.text)).unwrap())
            .collect()
    }

    pub(crate) async fn recheck(&self) {
        let messages = self
            .account
            .queues
            .get(&recheck_queue(), 32, Duration::from_mins(1))
            .await
            .unwrap();
        for message in messages {
            let MessageText::Readable(text) = &message.text else {
                panic!("recheck cannot be decoded")
            };
            let delivery = Delivery {
                stamp: Stamp {
                    message_id: message.id.clone(),
                    enqueued: message.inserted,
                    job: None,
                },
                dequeue_count: message.dequeue_count,
                ..self.delivery()
            };
            for recheck in Recheck::decode_all(text).unwrap() {
                match self
                    .engine
                    .execute(&Work::Recheck(recheck), &delivery)
                    .await
                {
                    Ok(_) => {}
                    Err(failure) if failure.class == FailureClass::Permanent => {}
                    Err(failure) => panic!("a recheck failed: {}", failure.chain()),
                }
            }
            self.account
                .queues
                .delete(&recheck_queue(), &message.id, &message.pop_receipt)
                .await
                .unwrap();
        }
    }

    /// Lets late requests arrive, time pass and rechecks run, until no recheck is queued.
    pub(crate) async fn finish(&self) {
        self.sim.settle();
        self.beside.iter().for_each(SimWorld::settle);
        let later = std::mem::take(&mut *self.sync_later.lock().unwrap());
        for job in later {
            drop(self.work(&job).await);
        }
        for round in 0..20_u32 {
            self.wait((RECHECK_AFTER + Duration::from_mins(2)) * (1 << round.min(5)));
            if self.sim.messages(&recheck_queue()).is_empty() {
                return;
            }
            self.recheck().await;
        }
        let left = self
            .account
            .queues
            .get(&recheck_queue(), 32, Duration::from_mins(1))
            .await
            .unwrap();
        let footprints = self.rows(footprint::FOOTPRINTS).await;
        panic!("rechecks do not come to an end: {left:?}, {footprints:?}");
    }
}

pub(crate) fn declared(text: &str) -> Catalog {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("default.toml"), text).unwrap();
    let request = Request {
        folder: Folder::Named(folder.path().to_owned()),
        ..Request::default()
    };
    evenkeel_config::load(&request)
        .unwrap_or_else(|errors| panic!("{errors}"))
        .catalog
}

/// The time at which a scenario's job was enqueued, before any change of the data.
fn start() -> Timestamp {
    Timestamp::from_millisecond(1_795_000_000_000)
        .unwrap()
        .saturating_add(SignedDuration::from_secs(30))
        .unwrap()
}

pub(crate) fn jobs_of(text: &str) -> Vec<Job> {
    match job::decode_request(job::decode_object(text).unwrap()).unwrap() {
        JobRequest::Job(envelope) => vec![envelope.job],
        JobRequest::Batch(batch) => (0..batch.len())
            .map(|at| batch.job(at).unwrap().job)
            .collect(),
    }
}

pub(crate) fn job(value: &serde_json::Value) -> Job {
    job::decode(&value.to_string()).unwrap().job
}

pub(crate) fn sync(pk: &str, rk: &str) -> Job {
    job(&json!({"op": "sync", "table": "Employees", "pk": pk, "rk": rk}))
}

pub(crate) fn employee(rk: &str, email: &str, last_name: &str) -> Entity {
    Entity::new(EntityKey::new("Sales", rk).unwrap())
        .with("FirstName", "Ada")
        .with("LastName", last_name)
        .with("Email", email)
}
