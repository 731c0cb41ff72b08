//! A store for tests of the decorators: gives scripted answers and records requests with their times.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use tokio::time::Instant;

use super::layer::{Layer, Layered, Op, Request, ThrottleScope};
use evenkeel_model::{
    AccountName, BlobName, ContainerName, ETag, EntityKey, Key, QueueName, Row, TableName,
};
use evenkeel_storage::{
    Account, Blob, BlobCopy, BlobPage, BlobProperties, BlobStore, BlobUpload, BlockId, ErrorClass,
    Message, Page, PeekedMessage, Query, QueueStore, SentMessage, StoreError, TableOperation,
    TablePage, TableStore, Ttl, UpdatedMessage,
};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    Ok,
    Err(ErrorClass, Option<u16>),
    Silence,
}

impl From<ErrorClass> for Answer {
    fn from(class: ErrorClass) -> Self {
        Self::Err(class, None)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub op: Op,
    pub scope: ThrottleScope,
    pub at: Duration,
}

type Rule = Box<dyn Fn(&Arrival) -> Answer + Send + Sync>;

pub(crate) struct Scripted {
    account: AccountName,
    start: Instant,
    next: Mutex<VecDeque<Answer>>,
    then: Rule,
    arrived: Mutex<Vec<Arrival>>,
}

impl Scripted {
    pub(crate) fn by(
        then: impl Fn(&Arrival) -> Answer + Send + Sync + 'static,
    ) -> (Account, Arc<Self>) {
        Self::over(Arc::new(NullStore::default()), [], then)
    }

    /// Creates an account that gives the listed answers first and then executes every request.
    pub(crate) fn listed(answers: impl IntoIterator<Item = Answer>) -> (Account, Arc<Self>) {
        Self::over(Arc::new(NullStore::default()), answers, |_| Answer::Ok)
    }

    /// Like [`listed`](Self::listed), but whatever is created exists already and whatever is deleted is already gone.
    pub(crate) fn listed_after_the_fact(
        answers: impl IntoIterator<Item = Answer>,
    ) -> (Account, Arc<Self>) {
        let blank = NullStore::default();
        blank.after_the_fact.store(true, Ordering::Relaxed);
        Self::over(Arc::new(blank), answers, |_| Answer::Ok)
    }

    fn over(
        blank: Arc<NullStore>,
        answers: impl IntoIterator<Item = Answer>,
        then: impl Fn(&Arrival) -> Answer + Send + Sync + 'static,
    ) -> (Account, Arc<Self>) {
        let scripted = Arc::new(Self {
            account: AccountName::main(),
            start: Instant::now(),
            next: Mutex::new(answers.into_iter().collect()),
            then: Box::new(then),
            arrived: Mutex::default(),
        });
        let account = Account {
            tables: Arc::new(Layered::<dyn TableStore, _>::new(
                blank.clone(),
                scripted.clone(),
            )),
            queues: Arc::new(Layered::<dyn QueueStore, _>::new(
                blank.clone(),
                scripted.clone(),
            )),
            blobs: Arc::new(Layered::<dyn BlobStore, _>::new(blank, scripted.clone())),
            clocks: Arc::default(),
        };
        (account, scripted)
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.arrived.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.arrived.lock().unwrap().len()
    }
}

impl Layer for Scripted {
    async fn call<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
    ) -> Result<T, StoreError> {
        let arrival = Arrival {
            op: request.op,
            scope: request.target.scope(),
            at: self.start.elapsed(),
        };
        self.arrived.lock().unwrap().push(arrival.clone());
        let listed = self.next.lock().unwrap().pop_front();
        match listed.unwrap_or_else(|| (self.then)(&arrival)) {
            Answer::Ok => send().await,
            Answer::Err(class, status) => {
                let mut error = StoreError::new(
                    class,
                    request.op.operation(),
                    request.target.subject(&self.account),
                    "scripted failure",
                );
                error.status = status;
                Err(error)
            }
            Answer::Silence => std::future::pending().await,
        }
    }
}

/// Executes every request without storing anything.
#[derive(Default)]
struct NullStore {
    after_the_fact: AtomicBool,
}

impl NullStore {
    fn fresh(&self) -> bool {
        !self.after_the_fact.load(Ordering::Relaxed)
    }
}

fn etag() -> ETag {
    ETag::new("\"1\"").unwrap()
}

fn properties() -> BlobProperties {
    BlobProperties {
        etag: etag(),
        length: 0,
        content_type: String::new(),
        cache_control: None,
        metadata: BTreeMap::new(),
    }
}

#[async_trait]
impl TableStore for NullStore {
    async fn get(
        &self,
        _: &TableName,
        _: &EntityKey,
        _: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(None)
    }
    async fn apply(
        &self,
        _: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        Ok(operation.entity().map(|_| etag()))
    }
    async fn transact(
        &self,
        _: &TableName,
        _: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        Ok(operations
            .iter()
            .map(|operation| operation.entity().map(|_| etag()))
            .collect())
    }
    async fn query(&self, _: &TableName, _: &Query) -> Result<Page, StoreError> {
        Ok(Page {
            rows: Vec::new(),
            continuation: None,
        })
    }
    async fn create_table(&self, _: &TableName) -> Result<bool, StoreError> {
        Ok(self.fresh())
    }
    async fn delete_table(&self, _: &TableName) -> Result<bool, StoreError> {
        Ok(self.fresh())
    }
    async fn list_tables(&self, _: Option<&str>) -> Result<TablePage, StoreError> {
        Ok(TablePage {
            tables: Vec::new(),
            continuation: None,
        })
    }
}

#[async_trait]
impl QueueStore for NullStore {
    async fn create_queue(&self, _: &QueueName) -> Result<bool, StoreError> {
        Ok(self.fresh())
    }
    async fn delete_queue(&self, _: &QueueName) -> Result<bool, StoreError> {
        Ok(self.fresh())
    }
    async fn put(
        &self,
        _: &QueueName,
        _: &str,
        _: Duration,
        _: Ttl,
    ) -> Result<SentMessage, StoreError> {
        Ok(SentMessage {
            id: "id".to_owned(),
            pop_receipt: "receipt".to_owned(),
        })
    }
    async fn get(&self, _: &QueueName, _: u32, _: Duration) -> Result<Vec<Message>, StoreError> {
        Ok(Vec::new())
    }
    async fn update(
        &self,
        _: &QueueName,
        _: &str,
        _: &str,
        _: &str,
        _: Duration,
    ) -> Result<UpdatedMessage, StoreError> {
        Ok(UpdatedMessage {
            pop_receipt: "receipt".to_owned(),
            next_visible: Timestamp::UNIX_EPOCH,
        })
    }
    async fn delete(&self, _: &QueueName, _: &str, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
    async fn peek(&self, _: &QueueName, _: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        Ok(Vec::new())
    }
    async fn approximate_count(&self, _: &QueueName) -> Result<u64, StoreError> {
        Ok(0)
    }
}

#[async_trait]
impl BlobStore for NullStore {
    async fn create_container(&self, _: &ContainerName) -> Result<bool, StoreError> {
        Ok(self.fresh())
    }
    async fn delete_container(&self, _: &ContainerName) -> Result<bool, StoreError> {
        Ok(self.fresh())
    }
    async fn put(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: Bytes,
        _: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        Ok(etag())
    }
    async fn get(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: Option<Range<u64>>,
    ) -> Result<Option<Blob>, StoreError> {
        Ok(None)
    }
    async fn get_at(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: Range<u64>,
        _: &ETag,
    ) -> Result<Bytes, StoreError> {
        Ok(Bytes::new())
    }
    async fn properties(
        &self,
        _: &ContainerName,
        _: &BlobName,
    ) -> Result<Option<BlobProperties>, StoreError> {
        Ok(Some(properties()))
    }
    async fn delete(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: Option<&ETag>,
    ) -> Result<bool, StoreError> {
        Ok(self.fresh())
    }
    async fn create_append(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        Ok(etag())
    }
    async fn append(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: Bytes,
        _: u64,
    ) -> Result<ETag, StoreError> {
        Ok(etag())
    }
    async fn put_block(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: BlockId,
        _: Bytes,
    ) -> Result<(), StoreError> {
        Ok(())
    }
    async fn put_block_list(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: &[BlockId],
        _: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        Ok(etag())
    }
    async fn set_metadata(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: &BTreeMap<String, String>,
        _: &ETag,
    ) -> Result<ETag, StoreError> {
        Ok(etag())
    }
    async fn copy(
        &self,
        _: (&ContainerName, &BlobName),
        _: (&ContainerName, &BlobName),
        _: &BlobCopy,
    ) -> Result<ETag, StoreError> {
        Ok(etag())
    }
    async fn list(
        &self,
        _: &ContainerName,
        _: &str,
        _: Option<&str>,
    ) -> Result<BlobPage, StoreError> {
        Ok(BlobPage {
            blobs: Vec::new(),
            marker: None,
        })
    }
}
