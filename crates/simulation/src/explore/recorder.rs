//! An account that records each request and waits for its answer, so that a run can be polled by hand.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;

use evenkeel_model::{AccountName, ETag, EntityKey, Key, QueueName, Row, TableName};
use evenkeel_storage::{
    Account, BlobStore, ErrorClass, Message, Page, PeekedMessage, Query, QueueStore, Resource,
    SentMessage, Service, StoreError, Subject, TableOperation, TablePage, TableStore, Ttl,
    UpdatedMessage,
};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum StoreRequest {
    Get(TableName, EntityKey, Option<Vec<String>>),
    Apply(TableName, TableOperation),
    Transact(TableName, Vec<TableOperation>),
    Put(String),
}

#[derive(Debug)]
pub(super) enum StoreReply {
    Row(Option<Row>),
    Written(Vec<Option<ETag>>),
    Queued,
    /// The error, and in a transaction the index of the operation that failed.
    Failed(ErrorClass, Option<usize>),
}

#[derive(Default)]
pub(super) struct RequestRecorder(Mutex<Vec<RequestSlot>>);

#[derive(Default)]
struct RequestSlot {
    request: Option<StoreRequest>,
    reply: Option<StoreReply>,
    waker: Option<Waker>,
}

impl RequestRecorder {
    fn slots(&self) -> MutexGuard<'_, Vec<RequestSlot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an account whose table and queue requests are recorded. Requests to blobs are not recorded, because no
    /// search uses blobs.
    pub(super) fn account(self: &Arc<Self>, blobs: Arc<dyn BlobStore>) -> Account {
        let stores = Arc::new(RecordingStores(Arc::clone(self)));
        Account {
            tables: Arc::clone(&stores) as Arc<dyn TableStore>,
            queues: stores,
            blobs,
            clocks: Arc::default(),
        }
    }

    pub(super) fn clear(&self) {
        self.slots().clear();
    }

    pub(super) fn len(&self) -> usize {
        self.slots().len()
    }

    pub(super) fn request(&self, n: usize) -> Option<StoreRequest> {
        self.slots().get(n).and_then(|slot| slot.request.clone())
    }

    pub(super) fn answer(&self, n: usize, reply: StoreReply) {
        let waker = self.slots().get_mut(n).and_then(|slot| {
            slot.reply = Some(reply);
            slot.waker.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn ask(&self, request: StoreRequest) -> impl Future<Output = StoreReply> + Send + '_ {
        let mut number = None;
        let mut request = Some(request);
        poll_fn(move |context| {
            let mut slots = self.slots();
            let number = *number.get_or_insert_with(|| {
                slots.push(RequestSlot {
                    request: request.take(),
                    ..RequestSlot::default()
                });
                slots.len() - 1
            });
            let Some(slot) = slots.get_mut(number) else {
                return Poll::Pending;
            };
            if let Some(reply) = slot.reply.take() {
                return Poll::Ready(reply);
            }
            slot.waker = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

struct RecordingStores(Arc<RequestRecorder>);

fn error(class: ErrorClass, index: Option<usize>) -> StoreError {
    let subject = Subject {
        account: AccountName::main(),
        resource: Resource::Service(Service::Table),
    };
    StoreError::new(class, "request", subject, "simulated by the search").with_index(index)
}

/// Refuses a request that the protocol never sends. The permanent error poisons the message, which the search reports
/// as a violation.
fn unknown<T>() -> Result<T, StoreError> {
    Err(error(ErrorClass::Permanent, None))
}

#[async_trait]
impl TableStore for RecordingStores {
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError> {
        match self
            .0
            .ask(StoreRequest::Get(
                table.clone(),
                key.clone(),
                select.map(<[String]>::to_vec),
            ))
            .await
        {
            StoreReply::Row(row) => Ok(row),
            StoreReply::Failed(class, index) => Err(error(class, index)),
            StoreReply::Written(_) | StoreReply::Queued => unknown(),
        }
    }

    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        match self
            .0
            .ask(StoreRequest::Apply(table.clone(), operation.clone()))
            .await
        {
            StoreReply::Written(etags) => Ok(etags.into_iter().next().flatten()),
            StoreReply::Failed(class, _) => Err(error(class, None)),
            StoreReply::Row(_) | StoreReply::Queued => unknown(),
        }
    }

    async fn transact(
        &self,
        table: &TableName,
        _: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        match self
            .0
            .ask(StoreRequest::Transact(table.clone(), operations.to_vec()))
            .await
        {
            StoreReply::Written(etags) => Ok(etags),
            StoreReply::Failed(class, index) => Err(error(class, index)),
            StoreReply::Row(_) | StoreReply::Queued => unknown(),
        }
    }

    async fn query(&self, _: &TableName, _: &Query) -> Result<Page, StoreError> {
        unknown()
    }

    async fn create_table(&self, _: &TableName) -> Result<bool, StoreError> {
        unknown()
    }

    async fn delete_table(&self, _: &TableName) -> Result<bool, StoreError> {
        unknown()
    }

    async fn list_tables(&self, _: Option<&str>) -> Result<TablePage, StoreError> {
        unknown()
    }
}

#[async_trait]
impl QueueStore for RecordingStores {
    async fn put(
        &self,
        _: &QueueName,
        text: &str,
        _: Duration,
        _: Ttl,
    ) -> Result<SentMessage, StoreError> {
        match self.0.ask(StoreRequest::Put(text.to_owned())).await {
            StoreReply::Queued => Ok(SentMessage {
                id: String::new(),
                pop_receipt: String::new(),
            }),
            StoreReply::Failed(class, index) => Err(error(class, index)),
            StoreReply::Row(_) | StoreReply::Written(_) => unknown(),
        }
    }

    async fn create_queue(&self, _: &QueueName) -> Result<bool, StoreError> {
        unknown()
    }

    async fn delete_queue(&self, _: &QueueName) -> Result<bool, StoreError> {
        unknown()
    }

    async fn get(&self, _: &QueueName, _: u32, _: Duration) -> Result<Vec<Message>, StoreError> {
        unknown()
    }

    async fn update(
        &self,
        _: &QueueName,
        _: &str,
        _: &str,
        _: &str,
        _: Duration,
    ) -> Result<UpdatedMessage, StoreError> {
        unknown()
    }

    async fn delete(&self, _: &QueueName, _: &str, _: &str) -> Result<(), StoreError> {
        unknown()
    }

    async fn peek(&self, _: &QueueName, _: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        unknown()
    }

    async fn approximate_count(&self, _: &QueueName) -> Result<u64, StoreError> {
        unknown()
    }
}
