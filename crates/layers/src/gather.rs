//! Gather: documents that many write into one collection at once go in one request.
//!
//! While a request of a collection is under way, new writes gather, and leave together when it has landed (`combine`). Each caller
//! gets the result that a request of its own would have had: a request that is refused as a whole because of something in it goes
//! again in halves, until the refused write stands alone. No request has one key twice, so that the writes of one document stay in
//! order. A request of unknown outcome leaves every write in it with an unknown outcome.
//!
//! Of a sink that takes each write in a request of its own nothing is gathered: as many of a collection as it takes are under way at once,
//! and no write waits for the answer to another before that, nor ever for one of another collection. Those of one document have no order
//! then, and it is for their versions to give it.
//!
//! A write with its deadline over by the time that its request would leave does not leave: it waited for a repetition, or behind other
//! requests, and a newer one may have been written meanwhile. Neither does one with its caller gone.

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

/// Bytes of a request that one document takes beside its fields, at most.
const DOCUMENT_OVERHEAD: usize = 2_048;
const WRITE: &str = "Index Documents";

/// A sink with requests shared by its callers.
pub struct Gathered {
    name: AccountName,
    inner: Arc<dyn Sink>,
    clock: Arc<dyn Clock>,
    requests: Combiner<CollectionName, Writes, Answer>,
    /// Of a sink that takes each write in a request of its own.
    places: Option<Places>,
}

/// Places of requests under way, by collection.
struct Places {
    at_once: usize,
    collections: Mutex<BTreeMap<CollectionName, Arc<Semaphore>>>,
}

/// The writes of one caller.
type Writes = Vec<DocumentWrite>;
type Answer = Result<WriteResults, StoreError>;

/// One collection of the sink.
struct SinkCollection<'a> {
    gathered: &'a Gathered,
    name: &'a CollectionName,
}

impl Gathered {
    /// Gathers writes into the collections of a sink.
    pub fn new(name: &AccountName, inner: Arc<dyn Sink>, clock: Arc<dyn Clock>) -> Self {
        let places = match inner.batching() {
            SinkBatching::Together => None,
            SinkBatching::Apart { at_once } => Some(Places {
                at_once,
                collections: Mutex::default(),
            }),
        };
        Self {
            name: name.clone(),
            inner,
            clock,
            requests: Combiner::default(),
            places,
        }
    }

    /// Sends a write in a request of its own, as soon as its collection has a free place.
    async fn send_alone(
        &self,
        places: &Places,
        collection: &CollectionName,
        write: &DocumentWrite,
    ) -> Result<(), StoreError> {
        let places = places.of(collection);
        // They are never closed.
        let _place = places.acquire().await;
        if self.is_over(write) {
            return Err(self.too_late(collection));
        }
        let written = self
            .inner
            .write(collection, std::slice::from_ref(write))
            .await?;
        written.into_iter().next().unwrap_or(Ok(()))
    }

    fn is_over(&self, write: &DocumentWrite) -> bool {
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

    /// The error where the caller that sent the request was dropped with it.
    fn left_alone(&self, collection: &CollectionName) -> StoreError {
        self.error(
            ErrorClass::Ambiguous,
            collection,
            "the request that it went with was given up",
        )
    }

    /// The error of a write that was not sent in its time.
    fn too_late(&self, collection: &CollectionName) -> StoreError {
        self.error(
            ErrorClass::Precondition,
            collection,
            "not sent: its announcement is so old that another run may have written since",
        )
    }
}

impl Places {
    fn of(&self, collection: &CollectionName) -> Arc<Semaphore> {
        of_key(&self.collections, collection.clone(), || {
            Semaphore::new(self.at_once)
        })
    }
}

impl SinkCollection<'_> {
    /// The writes that are sent now: they have a caller, and their time is not over.
    fn sendable(&self, batch: Vec<Pending<Writes, Answer>>) -> Vec<Pending<Writes, Answer>> {
        let Self { gathered, name } = self;
        let (late, in_time): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .filter(Pending::is_awaited)
            .partition(|one| one.request.iter().any(|write| gathered.is_over(write)));
        for one in late {
            one.tell(Err(gathered.too_late(name)));
        }
        in_time
    }
}

impl Serve<Writes, Answer> for SinkCollection<'_> {
    /// Sends pending writes, up to the capacity of one request each, and answers all callers in it. No request has a key twice.
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
                tell(batch, Ok(Vec::new()));
                continue;
            }
            match self.gathered.inner.write(self.name, &writes).await {
                Err(error)
                    if batch.len() > 1
                        && matches!(error.class, ErrorClass::Permanent | ErrorClass::TooLarge) =>
                {
                    let second = batch.split_off(batch.len() / 2);
                    batches.extend([second, batch]);
                }
                result => tell(batch, result),
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

/// Answers each with its part.
fn tell(batch: Vec<Pending<Writes, Answer>>, result: Answer) {
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
            .for_each(|one| one.tell(Err(error.without_cause()))),
    }
}

#[async_trait]
impl Sink for Gathered {
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
        if let Some(places) = &self.places {
            // The failure of a single one is the request's own: it is repeated, and counted.
            if let [write] = writes {
                return self
                    .send_alone(places, collection, write)
                    .await
                    .map(|()| vec![Ok(())]);
            }
            return Ok(join_all(
                writes
                    .iter()
                    .map(|write| self.send_alone(places, collection, write)),
            )
            .await);
        }
        let served = SinkCollection {
            gathered: self,
            name: collection,
        };
        let answer = self
            .requests
            .ask(collection.clone(), writes.to_vec(), &served)
            .await;
        answer.unwrap_or_else(|| Err(self.left_alone(collection)))
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
