//! Gather: documents that many write into one collection at once go in one request.
//!
//! There is no timer: while a request of a collection is under way, new writes gather, and leave together when it has
//! landed. Where one document at a time is written, nothing waits and nothing changes.
//!
//! Each caller gets the result that a request of its own would have had. A request that is refused as a whole because
//! of something in it goes again in halves, until the refused write stands alone. No request has one key twice, so that
//! the writes of one document stay in the order in which they came. A request of unknown outcome leaves every write in
//! it with an unknown outcome. A caller that goes away before its write has left takes it along; one that goes away
//! with a request of others leaves them without an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{Mutex as Turn, oneshot};

use crate::model::{AccountName, CollectionName, DocumentKey, SinkDocument, limits};
use crate::ports::{DocumentWrite, ErrorClass, Sink, StoreError, Subject, What, Written};

/// Bytes of a request that one document takes beside its fields, at most.
const DOCUMENT_OVERHEAD: usize = 2_048;

/// A sink with requests shared by its callers.
pub struct Gathered {
    name: AccountName,
    inner: Arc<dyn Sink>,
    lines: Mutex<BTreeMap<CollectionName, Arc<Line>>>,
}

/// The pending writes into one collection.
#[derive(Default)]
struct Line {
    waiting: Mutex<Vec<Waiting>>,
    turn: Turn<()>,
}

/// The writes of one caller, and the channel for its answer.
struct Waiting {
    writes: Vec<DocumentWrite>,
    tell: oneshot::Sender<Result<Written, StoreError>>,
}

/// Nothing here panics while it holds a lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gathered {
    /// Gathers writes into the collections of a sink.
    pub fn new(name: &AccountName, inner: Arc<dyn Sink>) -> Self {
        Self { name: name.clone(), inner, lines: Mutex::default() }
    }

    /// The error where the caller that sent the request was dropped with it.
    fn left_alone(&self, collection: &CollectionName) -> StoreError {
        let subject = Subject { account: self.name.clone(), what: What::Collection(collection.clone()) };
        StoreError::new(ErrorClass::Ambiguous, "Index Documents", subject, "the request that it went with was given up")
    }

    /// Sends pending writes, up to the capacity of one request each, and answers all callers in it.
    async fn serve(&self, collection: &CollectionName, line: &Line) {
        let mut loads = vec![load(&mut locked(&line.waiting))];
        while let Some(mut load) = loads.pop() {
            let writes: Vec<DocumentWrite> = load.iter().flat_map(|waiting| waiting.writes.iter().cloned()).collect();
            if writes.is_empty() {
                tell(load, Ok(Vec::new()));
                continue;
            }
            match self.inner.write(collection, &writes).await {
                Err(error) if load.len() > 1 && matches!(error.class, ErrorClass::Permanent | ErrorClass::TooLarge) => {
                    let second = load.split_off(load.len() / 2);
                    loads.extend([second, load]);
                }
                result => tell(load, result),
            }
        }
    }
}

/// Takes the writes for one request from those pending, in their order: no caller's twice, and no key twice.
fn load(waiting: &mut Vec<Waiting>) -> Vec<Waiting> {
    waiting.retain(|waiting| !waiting.tell.is_closed());
    let (mut documents, mut bytes) = (0, 0);
    let mut keys: BTreeSet<DocumentKey> = BTreeSet::new();
    let mut taken = 0;
    for one in waiting.iter() {
        documents += one.writes.len();
        bytes += one.writes.iter().map(bytes_of).sum::<usize>();
        let fits = documents <= limits::BATCH_DOCUMENTS && bytes <= limits::BATCH_BYTES;
        let again = one.writes.iter().any(|write| keys.contains(&write.key));
        if taken > 0 && (!fits || again) {
            break;
        }
        keys.extend(one.writes.iter().map(|write| write.key.clone()));
        taken += 1;
    }
    waiting.drain(..taken).collect()
}

fn bytes_of(write: &DocumentWrite) -> usize {
    let fields = |document: &SinkDocument| document.0.iter().map(|(name, value)| name.len() + value.to_string().len() + 4).sum::<usize>();
    DOCUMENT_OVERHEAD + write.document.as_ref().map_or(0, fields)
}

/// Answers each with its part. A caller that was dropped needs no answer.
fn tell(load: Vec<Waiting>, result: Result<Written, StoreError>) {
    match result {
        Ok(written) => {
            let mut written = written.into_iter();
            for Waiting { writes, tell } in load {
                drop(tell.send(Ok(written.by_ref().take(writes.len()).collect())));
            }
        }
        Err(error) => {
            for waiting in load {
                drop(waiting.tell.send(Err(error.told_again())));
            }
        }
    }
}

#[async_trait]
impl Sink for Gathered {
    async fn write(&self, collection: &CollectionName, writes: &[DocumentWrite]) -> Result<Written, StoreError> {
        let line = Arc::clone(locked(&self.lines).entry(collection.clone()).or_default());
        let (tell, mut told) = oneshot::channel();
        locked(&line.waiting).push(Waiting { writes: writes.to_vec(), tell });
        loop {
            let turn = tokio::select! {
                biased;
                told = &mut told => return told.unwrap_or_else(|_| Err(self.left_alone(collection))),
                turn = line.turn.lock() => turn,
            };
            self.serve(collection, &line).await;
            drop(turn);
        }
    }

    async fn get(&self, collection: &CollectionName, key: &DocumentKey) -> Result<Option<SinkDocument>, StoreError> {
        self.inner.get(collection, key).await
    }

    async fn fields(&self, collection: &CollectionName) -> Result<Option<BTreeSet<String>>, StoreError> {
        self.inner.fields(collection).await
    }
}
