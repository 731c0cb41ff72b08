//! A small world for the worker's tests: queues and blobs in memory on the runtime's paused clock, with faults
//! to order, and work that does what a test says.
//!
//! Injected: an error before an operation, or after it took effect (ambiguous), at any operation of any queue;
//! stores that refuse everything; slow requests. Not injected: a queue that loses or invents messages.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Mode, Rechecks, RunReport, Worker, WorkerError, WorkerParts};
use crate::model::job::{self, Primary};
use crate::model::{AccountName, BlobName, ContainerName, ETag, EntityKey, Job, Key, QueueName, TableName, body};
use crate::ports::*;
use crate::reconcile::{Delivery, Execute, Failure, FailureClass, Outcome, Summary, Work};
use crate::settings::{Backoff, PollInterval, QueueSettings, RetryPolicy, WorkerSettings};

pub(crate) struct TestClock(Instant);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        at(self.monotonic())
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

pub(crate) fn at(monotonic: Duration) -> Timestamp {
    "2026-11-20T12:00:00Z".parse::<Timestamp>().unwrap().checked_add(monotonic).unwrap()
}

/// SplitMix64.
pub(crate) struct Seeded(pub(crate) AtomicU64);

impl Chance for Seeded {
    fn next_u64(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A queue operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Put,
    Get,
    Update,
    Delete,
    Count,
    Create,
}

/// Whether a faulty operation takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    Taken,
}

struct Fault {
    op: Op,
    queue: Option<String>,
    left: usize,
    class: ErrorClass,
    effect: Effect,
}

#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) count: u32,
    receipt: u64,
    pub(crate) visible: Duration,
    pub(crate) inserted: Duration,
    pub(crate) expires: Option<Duration>,
}

impl Stored {
    /// Deliveries written off by the note inside.
    pub(crate) fn free(&self) -> u32 {
        job::decode_object(&self.text).ok().and_then(|object| job::note(&object, &self.id)).map_or(0, |note| note.free)
    }
}

/// Until a moment, some requests fail in some way, and some are slow.
struct Storm {
    until: Duration,
    chance: Seeded,
    failing: f64,
}

impl Storm {
    fn fault(&self) -> Option<(ErrorClass, Effect)> {
        if self.chance.unit() >= self.failing {
            return None;
        }
        let retry_after = (self.chance.unit() < 0.3).then_some(SECOND * 3);
        Some(match self.chance.next_u64() % 5 {
            0 => (ErrorClass::Throttled { retry_after }, Effect::None),
            1 => (ErrorClass::Refused, Effect::None),
            2 => (ErrorClass::Transient { retry_after }, Effect::None),
            3 => (ErrorClass::Ambiguous, Effect::None),
            _ => (ErrorClass::Ambiguous, Effect::Taken),
        })
    }

    fn delay(&self) -> Duration {
        if self.chance.unit() < self.failing / 4.0 { SECOND.mul_f64(self.chance.between(0.0, 45.0)) } else { Duration::ZERO }
    }
}

/// What was asked of the queues.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) at: Duration,
    pub(crate) op: Op,
    pub(crate) queue: String,
    /// Messages asked for, by Get.
    pub(crate) max: u32,
    /// Visibility or delay.
    pub(crate) visibility: Duration,
    pub(crate) failed: bool,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<String, Vec<Stored>>,
    faults: Vec<Fault>,
    outage: Option<Range<Duration>>,
    latency: Duration,
    storm: Option<Storm>,
    next: u64,
    calls: Vec<Call>,
}

pub(crate) struct FakeQueues {
    clock: Arc<TestClock>,
    state: Mutex<State>,
}

impl FakeQueues {
    fn new(clock: Arc<TestClock>) -> Self {
        Self { clock, state: Mutex::new(State { latency: Duration::from_millis(2), ..State::default() }) }
    }

    pub(crate) fn fail(&self, op: Op, queue: &str, times: usize, class: ErrorClass, effect: Effect) {
        let queue = Some(queue.to_owned());
        self.state.lock().unwrap().faults.push(Fault { op, queue, left: times, class, effect });
    }

    pub(crate) fn outage(&self, during: Range<Duration>) {
        self.state.lock().unwrap().outage = Some(during);
    }

    pub(crate) fn storm(&self, seed: u64, failing: f64, until: Duration) {
        self.state.lock().unwrap().storm = Some(Storm { until, chance: Seeded(AtomicU64::new(seed)), failing });
    }

    pub(crate) fn latency(&self, latency: Duration) {
        self.state.lock().unwrap().latency = latency;
    }

    pub(crate) fn messages(&self, queue: &str) -> Vec<Stored> {
        let mut state = self.state.lock().unwrap();
        let now = self.clock.monotonic();
        let messages = state.queues.entry(queue.to_owned()).or_default();
        messages.retain(|message| message.expires.is_none_or(|expires| expires > now));
        messages.clone()
    }

    pub(crate) fn calls(&self, op: Op, queue: &str) -> Vec<Call> {
        self.state.lock().unwrap().calls.iter().filter(|call| call.op == op && call.queue == queue).cloned().collect()
    }

    pub(crate) fn exists(&self, queue: &str) -> bool {
        self.state.lock().unwrap().queues.contains_key(queue)
    }

    /// Puts without a request.
    pub(crate) fn seed(&self, queue: &str, text: &str, ttl: Option<Duration>) -> String {
        let mut state = self.state.lock().unwrap();
        let now = self.clock.monotonic();
        state.next += 1;
        let stored = Stored {
            id: format!("m{}", state.next),
            text: text.to_owned(),
            count: 0,
            receipt: state.next,
            visible: now,
            inserted: now,
            expires: ttl.map(|ttl| now + ttl),
        };
        let id = stored.id.clone();
        state.queues.entry(queue.to_owned()).or_default().push(stored);
        id
    }

    /// As if another worker had got every message of the queue that anybody could see, or could not.
    pub(crate) fn steal(&self, queue: &str) {
        let mut state = self.state.lock().unwrap();
        state.next += 1;
        let (next, now) = (state.next, self.clock.monotonic());
        for message in state.queues.entry(queue.to_owned()).or_default() {
            message.receipt = 1_000_000 + next;
            message.count += 1;
            message.visible = now + Duration::from_mins(1);
        }
    }

    async fn call<T>(
        &self,
        op: Op,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
        effect: impl FnOnce(&mut State, Duration) -> Result<T, ErrorClass>,
    ) -> Result<T, StoreError> {
        let (latency, fault) = {
            let state = self.state.lock().unwrap();
            let storm = state.storm.as_ref().filter(|storm| self.clock.monotonic() < storm.until);
            (state.latency + storm.map(Storm::delay).unwrap_or_default(), storm.and_then(Storm::fault))
        };
        sleep(latency / 2).await;
        let result = {
            let mut state = self.state.lock().unwrap();
            let now = self.clock.monotonic();
            let refused = state.outage.as_ref().is_some_and(|outage| outage.contains(&now));
            let ordered = state
                .faults
                .iter_mut()
                .find(|fault| fault.left > 0 && fault.op == op && fault.queue.as_deref().is_none_or(|name| name == queue.as_str()))
                .map(|fault| {
                    fault.left -= 1;
                    (fault.class, fault.effect)
                });
            let fault = ordered.or(fault);
            for messages in state.queues.values_mut() {
                messages.retain(|message| message.expires.is_none_or(|expires| expires > now));
            }
            let missing = op != Op::Create && !state.queues.contains_key(queue.as_str());
            let result = match fault {
                _ if refused => Err(ErrorClass::Refused),
                Some((class, Effect::None)) => Err(class),
                Some((class, Effect::Taken)) => effect(&mut state, now).and(Err(class)),
                None if missing => Err(ErrorClass::NotFound(Missing::Container)),
                None => effect(&mut state, now),
            };
            let failed = result.is_err();
            state.calls.push(Call { at: now, op, queue: queue.to_string(), max, visibility, failed });
            result
        };
        sleep(latency / 2).await;
        let subject = Subject { account: AccountName::main(), what: What::Queue(queue.clone()) };
        result.map_err(|class| StoreError::new(class, "Queue Operation", subject, format!("{op:?} was told to fail")))
    }
}

fn find<'a>(state: &'a mut State, queue: &QueueName, id: &str, receipt: &str) -> Result<&'a mut Stored, ErrorClass> {
    let messages = state.queues.get_mut(queue.as_str()).ok_or(ErrorClass::NotFound(Missing::Container))?;
    messages.iter_mut().find(|message| message.id == id && message.receipt.to_string() == receipt).ok_or(ErrorClass::LeaseLost)
}

#[async_trait]
impl QueueStore for FakeQueues {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        self.call(Op::Create, queue, 0, Duration::ZERO, |state, _| {
            let fresh = !state.queues.contains_key(queue.as_str());
            state.queues.entry(queue.to_string()).or_default();
            Ok(fresh)
        })
        .await
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        Ok(self.state.lock().unwrap().queues.remove(queue.as_str()).is_some())
    }

    async fn put(&self, queue: &QueueName, text: &str, delay: Duration, ttl: Ttl) -> Result<SentMessage, StoreError> {
        assert!(text.len() <= 65_536, "too large for a queue");
        self.call(Op::Put, queue, 0, delay, |state, now| {
            state.next += 1;
            let (id, receipt) = (format!("m{}", state.next), state.next);
            let expires = match ttl {
                Ttl::Never => None,
                Ttl::After(ttl) => Some(now + ttl),
            };
            let stored = Stored { id: id.clone(), text: text.to_owned(), count: 0, receipt, visible: now + delay, inserted: now, expires };
            state.queues.entry(queue.to_string()).or_default().push(stored);
            Ok(SentMessage { id, pop_receipt: receipt.to_string() })
        })
        .await
    }

    async fn get(&self, queue: &QueueName, max: u32, visibility: Duration) -> Result<Vec<Message>, StoreError> {
        assert!((1..=32).contains(&max), "asked for {max}");
        self.call(Op::Get, queue, max, visibility, |state, now| {
            let State { queues, next, .. } = state;
            let messages = queues.entry(queue.to_string()).or_default();
            messages.sort_by_key(|message| message.visible);
            let visible = messages.iter_mut().filter(|message| message.visible <= now).take(max as usize);
            Ok(visible
                .map(|message| {
                    *next += 1;
                    message.receipt = *next;
                    message.count += 1;
                    message.visible = now + visibility;
                    Message {
                        id: message.id.clone(),
                        pop_receipt: message.receipt.to_string(),
                        text: MessageText::Readable(message.text.clone()),
                        dequeue_count: message.count,
                        inserted: at(message.inserted),
                        expires: message.expires.map(at),
                        next_visible: at(message.visible),
                    }
                })
                .collect())
        })
        .await
    }

    async fn update(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
        text: &str,
        visibility: Duration,
    ) -> Result<UpdatedMessage, StoreError> {
        assert!(text.len() <= 65_536, "too large for a queue");
        self.call(Op::Update, queue, 0, visibility, |state, now| {
            state.next += 1;
            let next = state.next;
            let message = find(state, queue, id, pop_receipt)?;
            if message.expires.is_some_and(|expires| now + visibility > expires) {
                return Err(ErrorClass::Permanent);
            }
            message.receipt = next;
            message.text = text.to_owned();
            message.visible = now + visibility;
            Ok(UpdatedMessage { pop_receipt: next.to_string(), next_visible: at(message.visible) })
        })
        .await
    }

    async fn delete(&self, queue: &QueueName, id: &str, pop_receipt: &str) -> Result<(), StoreError> {
        self.call(Op::Delete, queue, 0, Duration::ZERO, |state, _| {
            find(state, queue, id, pop_receipt)?;
            state.queues.entry(queue.to_string()).or_default().retain(|message| message.id != id);
            Ok(())
        })
        .await
    }

    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        self.call(Op::Count, queue, max, Duration::ZERO, |state, now| {
            let messages = state.queues.entry(queue.to_string()).or_default();
            Ok(messages
                .iter()
                .filter(|message| message.visible <= now)
                .take(max as usize)
                .map(|message| PeekedMessage {
                    id: message.id.clone(),
                    text: MessageText::Readable(message.text.clone()),
                    dequeue_count: message.count,
                    inserted: at(message.inserted),
                    expires: message.expires.map(at),
                })
                .collect())
        })
        .await
    }

    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError> {
        self.call(Op::Count, queue, 0, Duration::ZERO, |state, _| Ok(state.queues.entry(queue.to_string()).or_default().len() as u64)).await
    }
}

#[derive(Default)]
pub(crate) struct FakeBlobs {
    blobs: Mutex<BTreeMap<String, BTreeMap<String, Bytes>>>,
}

impl FakeBlobs {
    pub(crate) fn names(&self) -> Vec<String> {
        let blobs = self.blobs.lock().unwrap();
        blobs.iter().flat_map(|(container, blobs)| blobs.keys().map(move |name| format!("{container}/{name}"))).collect()
    }
}

fn etag() -> ETag {
    ETag::new("\"1\"").unwrap()
}

#[async_trait]
impl BlobStore for FakeBlobs {
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        Ok(self.blobs.lock().unwrap().insert(container.to_string(), BTreeMap::new()).is_none())
    }
    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        Ok(self.blobs.lock().unwrap().remove(container.as_str()).is_some())
    }
    async fn put(&self, container: &ContainerName, name: &BlobName, content: Bytes, _: &BlobUpload) -> Result<ETag, StoreError> {
        let mut blobs = self.blobs.lock().unwrap();
        let Some(blobs) = blobs.get_mut(container.as_str()) else {
            let subject = Subject { account: AccountName::main(), what: What::Container(container.clone()) };
            return Err(StoreError::new(ErrorClass::NotFound(Missing::Container), "Put Blob", subject, "no such container"));
        };
        blobs.insert(name.to_string(), content);
        Ok(etag())
    }
    async fn get(&self, container: &ContainerName, name: &BlobName, _: Option<Range<u64>>) -> Result<Option<Blob>, StoreError> {
        let blobs = self.blobs.lock().unwrap();
        Ok(blobs.get(container.as_str()).and_then(|blobs| blobs.get(name.as_str())).map(|content| Blob {
            content: content.clone(),
            properties: BlobProperties {
                etag: etag(),
                length: content.len() as u64,
                content_type: "text/plain".to_owned(),
                metadata: BTreeMap::new(),
            },
        }))
    }
    async fn properties(&self, container: &ContainerName, name: &BlobName) -> Result<Option<BlobProperties>, StoreError> {
        Ok(self.get(container, name, None).await?.map(|blob| blob.properties))
    }
    async fn delete(&self, container: &ContainerName, name: &BlobName, _: Option<&ETag>) -> Result<bool, StoreError> {
        let mut blobs = self.blobs.lock().unwrap();
        Ok(blobs.get_mut(container.as_str()).is_some_and(|blobs| blobs.remove(name.as_str()).is_some()))
    }
    async fn copy(&self, _: (&ContainerName, &BlobName), _: (&ContainerName, &BlobName)) -> Result<ETag, StoreError> {
        unreachable!("the worker copies no blobs")
    }
    async fn list(&self, _: &ContainerName, _: &str, _: Option<&str>) -> Result<BlobPage, StoreError> {
        unreachable!("the worker lists no blobs")
    }
}

/// The worker touches no table.
struct NoTables;

#[async_trait]
impl TableStore for NoTables {
    async fn get(&self, _: &TableName, _: &EntityKey, _: Option<&[String]>) -> Result<Option<crate::model::Row>, StoreError> {
        unreachable!()
    }
    async fn apply(&self, _: &TableName, _: &TableOperation) -> Result<Option<ETag>, StoreError> {
        unreachable!()
    }
    async fn transact(&self, _: &TableName, _: &Key, _: &[TableOperation]) -> Result<Vec<Option<ETag>>, StoreError> {
        unreachable!()
    }
    async fn query(&self, _: &TableName, _: &Query) -> Result<Page, StoreError> {
        unreachable!()
    }
    async fn create_table(&self, _: &TableName) -> Result<bool, StoreError> {
        unreachable!()
    }
    async fn delete_table(&self, _: &TableName) -> Result<bool, StoreError> {
        unreachable!()
    }
    async fn list_tables(&self, _: Option<&str>) -> Result<TablePage, StoreError> {
        unreachable!()
    }
}

/// Circuits as a test opens them; one closes when it is probed after its time.
#[derive(Default)]
pub(crate) struct FakeHealth {
    open_until: Mutex<Option<Instant>>,
    pub(crate) probes: AtomicU64,
}

impl FakeHealth {
    pub(crate) fn open_for(&self, duration: Duration) {
        *self.open_until.lock().unwrap() = Some(Instant::now() + duration);
    }
}

#[async_trait]
impl StoreHealth for FakeHealth {
    fn open_circuits(&self) -> Vec<OpenCircuit> {
        let open = self.open_until.lock().unwrap().is_some();
        open.then(|| OpenCircuit {
            account: AccountName::main(),
            service: Service::Queue,
            since: at(Duration::ZERO),
            reason: "503".to_owned(),
        })
        .into_iter()
        .collect()
    }
    async fn probe(&self) {
        self.probes.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open_until.lock().unwrap();
        if open.is_some_and(|until| Instant::now() >= until) {
            *open = None;
        }
    }
}

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Ran {
    pub(crate) message: String,
    pub(crate) rk: String,
    pub(crate) from: Duration,
    /// `None` where it was dropped half-way.
    pub(crate) to: Option<Duration>,
    /// When it gave its answer or was dropped.
    ended: Option<Duration>,
}

/// Notes the end of a run, whichever it is.
struct Ending<'a>(&'a Scripted, usize);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.runs.lock().unwrap()[self.1].ended = Some(self.0.clock.monotonic());
    }
}

type Answer = Result<Outcome, Failure>;
type Script = dyn Fn(usize, &Work, &Delivery) -> BoxFuture<'static, Answer> + Send + Sync;

/// Does what a test says, and keeps what was run.
pub(crate) struct Scripted {
    clock: Arc<TestClock>,
    script: Mutex<Arc<Script>>,
    runs: Mutex<Vec<Ran>>,
}

impl Scripted {
    pub(crate) fn runs(&self) -> Vec<Ran> {
        self.runs.lock().unwrap().clone()
    }

    /// Most runs at one time.
    pub(crate) fn most_at_once(&self, of: impl Fn(&Ran) -> bool) -> usize {
        let runs: Vec<Ran> = self.runs().into_iter().filter(of).collect();
        let live = |run: &Ran, at: Duration| run.from <= at && run.ended.is_none_or(|ended| ended > at);
        runs.iter().map(|run| runs.iter().filter(|other| live(other, run.from)).count()).max().unwrap_or(0)
    }
}

#[async_trait]
impl Execute for Scripted {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Answer {
        let rk = match work {
            Work::Job(job) => job.key().rk.to_string(),
            Work::Recheck(recheck) => recheck.primary.key.rk.to_string(),
        };
        let number = {
            let mut runs = self.runs.lock().unwrap();
            runs.push(Ran { message: delivery.stamp.message_id.clone(), rk, from: self.clock.monotonic(), to: None, ended: None });
            runs.len() - 1
        };
        let ending = Ending(self, number);
        let script = Arc::clone(&self.script.lock().unwrap());
        let answer = script(number, work, delivery).await;
        self.runs.lock().unwrap()[number].to = Some(self.clock.monotonic());
        drop(ending);
        answer
    }
}

/// From one moment to a later one.
pub(crate) fn from_to(earlier: Duration, later: Duration) -> Duration {
    later.checked_sub(earlier).expect("the moments are in order")
}

#[expect(clippy::unnecessary_wraps, reason = "a script's answer")]
pub(crate) fn done() -> Answer {
    Ok(Outcome::Done(Summary::default()))
}

pub(crate) fn transient() -> Answer {
    Err(Failure::new(FailureClass::Transient { retry_after: None }, "writing the copy", std::io::Error::other("503")))
}

pub(crate) fn permanent() -> Answer {
    Err(Failure::new(FailureClass::Permanent, "reading the primary", std::io::Error::other("no such table")))
}

pub(crate) const JOBS: &str = "evenkeel-jobs";
pub(crate) const POISON: &str = "evenkeel-jobs-poison";
pub(crate) const RECHECK: &str = "evenkeel-jobs-recheck";
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A sync job of one of many primaries.
pub(crate) fn sync(rk: impl std::fmt::Display) -> String {
    body::encode(&format!(r#"{{"op":"sync","table":"Employees","pk":"p","rk":"{rk}"}}"#))
}

/// A put job, which is never folded.
pub(crate) fn put(rk: impl std::fmt::Display) -> String {
    body::encode(&format!(r#"{{"op":"put","table":"Employees","entity":{{"PartitionKey":"p","RowKey":"{rk}"}}}}"#))
}

/// One account, one worker.
pub(crate) struct World {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) queues: Arc<FakeQueues>,
    pub(crate) blobs: Arc<FakeBlobs>,
    pub(crate) health: Arc<FakeHealth>,
    pub(crate) work: Arc<Scripted>,
    pub(crate) settings: WorkerSettings,
    pub(crate) queue: QueueSettings,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        let queues = Arc::new(FakeQueues::new(Arc::clone(&clock)));
        let script: Arc<Script> = Arc::new(|_, _, _| Box::pin(async { done() }));
        let work = Arc::new(Scripted { clock: Arc::clone(&clock), script: Mutex::new(script), runs: Mutex::default() });
        let backoff = Backoff { min: 2 * SECOND, base: 2 * SECOND, max: Duration::from_mins(10) };
        let settings = WorkerSettings {
            lease: Duration::from_mins(1),
            max_dequeue_count: 5,
            retry_delay: backoff,
            job_timeout: Duration::from_mins(10),
            recheck_after: Duration::from_mins(26),
            give_up_after: Duration::from_hours(6),
            drain: Duration::from_secs(25),
            poll: PollInterval { min: Duration::from_millis(100), max: Duration::from_secs(5) },
            storage_retry: RetryPolicy { backoff, attempts: 6 },
        };
        let queue =
            QueueSettings { name: QueueName::new(JOBS).unwrap(), account: AccountName::main(), concurrency: 64, shards: 1, allow: None };
        Self { clock, queues, blobs: Arc::default(), health: Arc::default(), work, settings, queue }
    }

    /// What runs do: a function of the run's number (from 0), the work and its delivery.
    pub(crate) fn script<F, R>(&self, script: F)
    where
        F: Fn(usize, &Work, &Delivery) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        *self.work.script.lock().unwrap() = Arc::new(move |number, work, delivery| Box::pin(script(number, work, delivery)));
    }

    pub(crate) fn account(&self) -> Account {
        let (queues, blobs) = (Arc::clone(&self.queues), Arc::clone(&self.blobs));
        Account { tables: Arc::new(NoTables), queues, blobs }
    }

    pub(crate) fn worker(&self) -> Worker {
        let stores = Stores::new(BTreeMap::from([(AccountName::main(), self.account())]));
        Worker::new(WorkerParts {
            stores,
            health: Arc::clone(&self.health) as Arc<dyn StoreHealth>,
            execute: Arc::clone(&self.work) as Arc<dyn Execute>,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            chance: Arc::new(Seeded(AtomicU64::new(7))),
            settings: self.settings.clone(),
            queues: vec![self.queue.clone()],
            name: "w1".to_owned(),
            key_of: Arc::new(|job| match job {
                Job::Sync(primary) | Job::Delete { primary, .. } => Some(primary.clone()),
                Job::Put(put) => Some(Primary { table: put.table.clone(), key: put.entity.key.clone() }),
                Job::Archive { .. } | Job::Restore { .. } => None,
            }),
        })
        .unwrap()
    }

    /// Runs until nothing is left.
    pub(crate) async fn until_idle(&self) -> Result<RunReport, WorkerError> {
        let mode = Mode::UntilIdle { quiet: SECOND, rechecks: Rechecks::Ignored };
        self.worker().run(mode, CancellationToken::new()).await
    }

    /// Runs for so long, then shuts down.
    pub(crate) async fn run_for(&self, duration: Duration) -> RunReport {
        let shutdown = CancellationToken::new();
        let worker = self.worker();
        let stop = async {
            sleep(duration).await;
            shutdown.cancel();
        };
        tokio::join!(worker.run(Mode::Forever, shutdown.clone()), stop).0.unwrap()
    }

    /// Runs for so long, then crashes.
    pub(crate) async fn crash_after(&self, duration: Duration) {
        let worker = self.worker();
        let crashed = tokio::time::timeout(duration, worker.run(Mode::Forever, CancellationToken::new())).await;
        assert!(crashed.is_err(), "the worker ended by itself");
    }

    /// Poison messages as tools show them.
    pub(crate) async fn poisoned(&self) -> Vec<super::poison::PoisonEntry> {
        let poison = super::poison::PoisonQueue::new(&self.account(), &self.queue.name).unwrap();
        poison.list(&super::poison::PoisonFilter::default()).await.unwrap()
    }
}
