//! Combines concurrent writes to one collection of a sink into one request.
//!
//! New writes wait while a request to their collection is in flight, and are sent together when it ends (`combine`).
//! Each caller gets the result that its own request would have had: if a request is rejected as a whole because of one
//! write, it is split in halves until that write is alone. No request contains a key twice, so the writes of one
//! document stay in order. If the outcome of a request is unknown, it is unknown for every write in it.
//!
//! Some sinks take each write in its own request. Their writes are not combined: each collection has a fixed number of
//! concurrent requests, and a write waits only for a free one. Writes of one document may then overtake each other, and the
//! sink or its receiver must compare their versions.
//!
//! A write is not sent if its caller was dropped or its deadline has passed. The deadline may pass while the write waits for a
//! retry or behind other requests. Then another run may already have sent a newer write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::future::join_all;
use tokio::sync::Semaphore;

use evenkeel_model::{AccountName, CollectionName, ColumnType, DocumentKey, SinkDocument, limits};
use evenkeel_storage::combine::{Combiner, Pending, Queue, Serve, of_key};
use evenkeel_storage::{
    Clock, DocumentWrite, ErrorClass, Fields, Resource, Sink, SinkBatching, StoreError, Subject,
    WriteResults,
};

/// Maximum number of bytes that a document takes in a request in addition to the bytes of its fields.
const DOCUMENT_OVERHEAD: usize = 2_048;
const WRITE: &str = "Index Documents";

pub struct CombiningSink {
    name: AccountName,
    inner: Arc<dyn Sink>,
    clock: Arc<dyn Clock>,
    requests: Combiner<CollectionName, Writes, Answer>,
    /// Set for a sink that takes each write in its own request.
    slots: Option<RequestSlots>,
}

struct RequestSlots {
    at_once: usize,
    collections: Mutex<BTreeMap<CollectionName, Arc<Semaphore>>>,
}

type Writes = Vec<DocumentWrite>;
type Answer = Result<WriteResults, StoreError>;

struct SinkCollection<'a> {
    owner: &'a CombiningSink,
    name: &'a CollectionName,
}

impl CombiningSink {
    pub fn new(name: &AccountName, inner: Arc<dyn Sink>, clock: Arc<dyn Clock>) -> Self {
        let slots = match inner.batching() {
            SinkBatching::Together => None,
            SinkBatching::Apart { at_once } => Some(RequestSlots {
                at_once,
                collections: Mutex::default(),
            }),
        };
        Self {
            name: name.clone(),
            inner,
            clock,
            requests: Combiner::default(),
            slots,
        }
    }

    /// Sends one write in its own request when its collection has a free place.
    async fn send_alone(
        &self,
        slots: &RequestSlots,
        collection: &CollectionName,
        write: &DocumentWrite,
    ) -> Result<(), StoreError> {
        let slots = slots.of(collection);
        // The semaphores are never closed, so `acquire` cannot fail.
        let _slot = slots.acquire().await;
        if self.is_expired(write) {
            return Err(self.expired(collection));
        }
        let written = self
            .inner
            .write(collection, std::slice::from_ref(write))
            .await?;
        written.into_iter().next().unwrap_or(Ok(()))
    }

    fn is_expired(&self, write: &DocumentWrite) -> bool {
        write
            .deadline
            .is_some_and(|deadline| deadline.is_over(self.clock.as_ref()))
    }

    fn error(
        &self,
        class: ErrorClass,
        collection: &CollectionName,
        message: &'static str,
    ) -> StoreError {
        let subject = Subject {
            account: self.name.clone(),
            resource: Resource::Collection(collection.clone()),
        };
        StoreError::new(class, WRITE, subject, message)
    }

    /// The error if the task that sent the shared request was dropped.
    fn cancelled(&self, collection: &CollectionName) -> StoreError {
        self.error(
            ErrorClass::Ambiguous,
            collection,
            "the shared request was cancelled before an answer arrived",
        )
    }

    /// The error of a write whose deadline passed before it was sent.
    fn expired(&self, collection: &CollectionName) -> StoreError {
        self.error(
            ErrorClass::Precondition,
            collection,
            "not sent: the deadline of the write has passed, and another run may have written since",
        )
    }
}

impl RequestSlots {
    fn of(&self, collection: &CollectionName) -> Arc<Semaphore> {
        of_key(&self.collections, collection.clone(), || {
            Semaphore::new(self.at_once)
        })
    }
}

impl SinkCollection<'_> {
    /// Keeps the writes that still have a caller and time left, and answers the late ones.
    fn sendable(&self, batch: Vec<Pending<Writes, Answer>>) -> Vec<Pending<Writes, Answer>> {
        let Self { owner, name } = self;
        let (late, in_time): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .filter(Pending::is_awaited)
            .partition(|one| one.request.iter().any(|write| owner.is_expired(write)));
        for one in late {
            one.tell(Err(owner.expired(name)));
        }
        in_time
    }
}

impl Serve<Writes, Answer> for SinkCollection<'_> {
    /// Sends pending writes in requests of limited size and answers their callers. No request contains a key twice.
    async fn serve(&self, queue: &Queue<Writes, Answer>, (): &mut ()) {
        let (mut documents, mut bytes, mut keys) = (0, 0, BTreeSet::new());
        let mut batches = vec![queue.take(|writes| {
            documents += writes.len();
            bytes += writes.iter().map(bytes_of).sum::<usize>();
            let again = writes.iter().any(|write| keys.contains(&write.key));
            keys.extend(writes.iter().map(|write| write.key.clone()));
            !again && documents <= limits::BATCH_DOCUMENTS && bytes <= limits::BATCH_BYTES
        })];
        while let Some(batch) = batches.pop() {
            let mut batch = self.sendable(batch);
            let writes: Writes = batch
                .iter()
                .flat_map(|one| one.request.iter().cloned())
                .collect();
            if writes.is_empty() {
                answer_callers(batch, Ok(Vec::new()));
                continue;
            }
            match self.owner.inner.write(self.name, &writes).await {
                Err(error)
                    if batch.len() > 1
                        && matches!(error.class, ErrorClass::Permanent | ErrorClass::TooLarge) =>
                {
                    let second = batch.split_off(batch.len() / 2);
                    batches.extend([second, batch]);
                }
                result => answer_callers(batch, result),
            }
        }
    }
}

fn bytes_of(write: &DocumentWrite) -> usize {
    let fields = |document: &SinkDocument| {
        document
            .0
            .iter()
            .map(|(name, value)| name.len() + value.to_string().len() + 4)
            .sum::<usize>()
    };
    DOCUMENT_OVERHEAD + write.document.as_ref().map_or(0, fields)
}

fn answer_callers(batch: Vec<Pending<Writes, Answer>>, result: Answer) {
    match result {
        Ok(written) => {
            let mut written = written.into_iter();
            for one in batch {
                let own = written.by_ref().take(one.request.len()).collect();
                one.tell(Ok(own));
            }
        }
        Err(error) => batch
            .into_iter()
            .for_each(|one| one.tell(Err(error.clone()))),
    }
}

#[async_trait]
impl Sink for CombiningSink {
    fn is_readable(&self) -> bool {
        self.inner.is_readable()
    }

    fn batching(&self) -> SinkBatching {
        self.inner.batching()
    }

    async fn write(
        &self,
        collection: &CollectionName,
        writes: &[DocumentWrite],
    ) -> Result<WriteResults, StoreError> {
        if let Some(slots) = &self.slots {
            // The error of a single write is returned as the error of the request, so that it is retried and counted.
            if let [write] = writes {
                return self
                    .send_alone(slots, collection, write)
                    .await
                    .map(|()| vec![Ok(())]);
            }
            return Ok(join_all(
                writes
                    .iter()
                    .map(|write| self.send_alone(slots, collection, write)),
            )
            .await);
        }
        let served = SinkCollection {
            owner: self,
            name: collection,
        };
        let answer = self
            .requests
            .ask(collection.clone(), writes.to_vec(), &served)
            .await;
        answer.unwrap_or_else(|| Err(self.cancelled(collection)))
    }

    async fn get(
        &self,
        collection: &CollectionName,
        key: &DocumentKey,
    ) -> Result<Option<SinkDocument>, StoreError> {
        self.inner.get(collection, key).await
    }

    async fn fields(&self, collection: &CollectionName) -> Result<Option<Fields>, StoreError> {
        self.inner.fields(collection).await
    }

    async fn define(
        &self,
        collection: &CollectionName,
        fields: &BTreeMap<String, ColumnType>,
    ) -> Result<(), StoreError> {
        self.inner.define(collection, fields).await
    }
}
