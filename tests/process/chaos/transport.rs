//! Every operation of the Azure adapter with every network fault. The error must have the right class, and the request
//! must be sent only once. With retries, an operation that may be repeated must succeed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_layers::retry::around;
use evenkeel_model::settings::{Backoff, RetryPolicy};
use evenkeel_model::{BlobName, ContainerName, ETag, Entity, EntityKey, QueueName, TableName};
use evenkeel_storage::system::SeededRng;
use evenkeel_storage::{
    Account, BlobCopy, BlobUpload, BlockId, ErrorClass, IfMatch, Message, Query, Rng, StoreError,
    TableOperation, Ttl,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::support::azurite::{self, Ports};
use crate::support::stub::{Reply, Stub};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    DroppedBefore,
    DroppedAfter,
    TooManyRequests,
    Busy,
    BusyWithRetryAfter,
    TimedOut,
    CutOff,
}

const FAULTS: [Fault; 7] = [
    Fault::DroppedBefore,
    Fault::DroppedAfter,
    Fault::TooManyRequests,
    Fault::Busy,
    Fault::BusyWithRetryAfter,
    Fault::TimedOut,
    Fault::CutOff,
];

impl Fault {
    fn reply(self) -> Reply {
        match self {
            Self::DroppedBefore => Reply::Reset,
            Self::DroppedAfter => Reply::ForwardThenReset,
            Self::TooManyRequests => Reply::status(429).like_azure().into(),
            Self::Busy => Reply::status(503).like_azure().into(),
            Self::BusyWithRetryAfter => Reply::status(503)
                .like_azure()
                .header("Retry-After", "1")
                .into(),
            Self::TimedOut => {
                let body = "<?xml version=\"1.0\"?><Error><Code>OperationTimedOut</Code><Message>No.</Message></Error>";
                Reply::status(500)
                    .like_azure()
                    .header("Content-Type", "application/xml")
                    .body(body)
                    .into()
            }
            Self::CutOff => Reply::status(200)
                .like_azure()
                .body("{\"value\":[{\"PartitionKey\":\"p\"")
                .cut_after(9)
                .into(),
        }
    }

    fn class(self, kind: Kind) -> ErrorClass {
        match (self, kind) {
            (Self::TooManyRequests | Self::Busy, _) => ErrorClass::Throttled { retry_after: None },
            (Self::BusyWithRetryAfter, _) => ErrorClass::Throttled {
                retry_after: Some(Duration::from_secs(1)),
            },
            (_, Kind::Reads) => ErrorClass::Transient { retry_after: None },
            (_, Kind::Repeats | Kind::Surfaces) => ErrorClass::Ambiguous,
        }
    }
}

/// What a retry may do with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The operation changes nothing.
    Reads,
    /// The operation changes something. Repeating it is harmless, or shows the result of the first attempt.
    Repeats,
    /// The operation must not be repeated: the caller has to find out whether it was executed.
    Surfaces,
}

struct Prepared {
    table: TableName,
    etag: ETag,
    queue: QueueName,
    message: Message,
    container: ContainerName,
    blob: BlobName,
    fresh: String,
}

type Run = for<'a> fn(&'a Account, &'a Prepared) -> BoxFuture<'a, Result<(), StoreError>>;

fn key() -> EntityKey {
    EntityKey::new("p", "r").unwrap()
}

fn entity(rk: &str) -> Entity {
    Entity::new(EntityKey::new("p", rk).unwrap()).with("Name", "x")
}

async fn prepare(account: &Account) -> Prepared {
    let fresh = format!("x{}", uuid::Uuid::new_v4().simple());
    let (table, queue, container) = (
        TableName::new(fresh.as_str()).unwrap(),
        QueueName::new(fresh.as_str()).unwrap(),
        ContainerName::new(fresh.as_str()).unwrap(),
    );
    let blob = BlobName::new("a/b.bin").unwrap();
    account.tables.create_table(&table).await.unwrap();
    let etag = account
        .tables
        .apply(&table, &TableOperation::Insert(entity("r")))
        .await
        .unwrap()
        .unwrap();
    account.queues.create_queue(&queue).await.unwrap();
    account
        .queues
        .put(&queue, "one", Duration::ZERO, Ttl::Never)
        .await
        .unwrap();
    let message = account
        .queues
        .get(&queue, 1, Duration::from_mins(1))
        .await
        .unwrap()
        .remove(0);
    account
        .queues
        .put(&queue, "two", Duration::ZERO, Ttl::Never)
        .await
        .unwrap();
    account.blobs.create_container(&container).await.unwrap();
    account
        .blobs
        .put_block(
            &container,
            &blob,
            BlockId::numbered(0),
            Bytes::from_static(b"content"),
        )
        .await
        .unwrap();
    account
        .blobs
        .put_block_list(
            &container,
            &blob,
            &[BlockId::numbered(0)],
            &BlobUpload::default(),
        )
        .await
        .unwrap();
    Prepared {
        table,
        etag,
        queue,
        message,
        container,
        blob,
        fresh,
    }
}

macro_rules! writes {
    ($prepared:ident, $account:ident, $operation:expr) => {
        async move {
            $account
                .tables
                .apply(&$prepared.table, &$operation)
                .await
                .map(drop)
        }
        .boxed()
    };
}

const OPERATIONS: &[(&str, Kind, Run)] = &[
    ("get entity", Kind::Reads, |a, p| {
        async move { a.tables.get(&p.table, &key(), None).await.map(drop) }.boxed()
    }),
    ("query", Kind::Reads, |a, p| {
        async move { a.tables.query(&p.table, &Query::default()).await.map(drop) }.boxed()
    }),
    ("list tables", Kind::Reads, |a, _| {
        async move { a.tables.list_tables(None).await.map(drop) }.boxed()
    }),
    ("insert", Kind::Surfaces, |a, p| {
        writes!(p, a, TableOperation::Insert(entity("new")))
    }),
    ("insert or replace", Kind::Surfaces, |a, p| {
        writes!(p, a, TableOperation::InsertOrReplace(entity("r")))
    }),
    ("insert or merge", Kind::Surfaces, |a, p| {
        writes!(p, a, TableOperation::InsertOrMerge(entity("r")))
    }),
    ("replace", Kind::Surfaces, |a, p| {
        writes!(
            p,
            a,
            TableOperation::Replace(entity("r"), IfMatch::Matches(p.etag.clone()))
        )
    }),
    ("merge", Kind::Surfaces, |a, p| {
        writes!(
            p,
            a,
            TableOperation::Merge(entity("r"), IfMatch::Matches(p.etag.clone()))
        )
    }),
    ("delete at an ETag", Kind::Repeats, |a, p| {
        writes!(
            p,
            a,
            TableOperation::Delete(key(), IfMatch::Matches(p.etag.clone()))
        )
    }),
    ("delete whatever is there", Kind::Surfaces, |a, p| {
        writes!(p, a, TableOperation::Delete(key(), IfMatch::Any))
    }),
    ("transaction", Kind::Surfaces, |a, p| {
        async move {
            let operations = [
                TableOperation::Insert(entity("a")),
                TableOperation::Insert(entity("b")),
            ];
            a.tables
                .transact(&p.table, &key().pk, &operations)
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("create table", Kind::Repeats, |a, p| {
        async move {
            a.tables
                .create_table(&TableName::new(format!("{}2", p.fresh)).unwrap())
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete table", Kind::Repeats, |a, p| {
        async move { a.tables.delete_table(&p.table).await.map(drop) }.boxed()
    }),
    ("create queue", Kind::Repeats, |a, p| {
        async move {
            a.queues
                .create_queue(&QueueName::new(format!("{}2", p.fresh)).unwrap())
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete queue", Kind::Repeats, |a, p| {
        async move { a.queues.delete_queue(&p.queue).await.map(drop) }.boxed()
    }),
    ("put message", Kind::Repeats, |a, p| {
        async move {
            a.queues
                .put(&p.queue, "new", Duration::ZERO, Ttl::Never)
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("get messages", Kind::Surfaces, |a, p| {
        async move {
            a.queues
                .get(&p.queue, 32, Duration::from_mins(1))
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("update message", Kind::Surfaces, |a, p| {
        async move {
            a.queues
                .update(
                    &p.queue,
                    &p.message.id,
                    &p.message.pop_receipt,
                    "new",
                    Duration::from_mins(1),
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete message", Kind::Repeats, |a, p| {
        async move {
            a.queues
                .delete(&p.queue, &p.message.id, &p.message.pop_receipt)
                .await
        }
        .boxed()
    }),
    ("peek", Kind::Reads, |a, p| {
        async move { a.queues.peek(&p.queue, 32).await.map(drop) }.boxed()
    }),
    ("count messages", Kind::Reads, |a, p| {
        async move { a.queues.approximate_count(&p.queue).await.map(drop) }.boxed()
    }),
    ("create container", Kind::Repeats, |a, p| {
        async move {
            a.blobs
                .create_container(&ContainerName::new(format!("{}2", p.fresh)).unwrap())
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("delete container", Kind::Repeats, |a, p| {
        async move { a.blobs.delete_container(&p.container).await.map(drop) }.boxed()
    }),
    ("put blob", Kind::Repeats, |a, p| {
        async move {
            a.blobs
                .put(
                    &p.container,
                    &p.blob,
                    Bytes::from_static(b"new"),
                    &BlobUpload::default(),
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("get blob", Kind::Reads, |a, p| {
        async move { a.blobs.get(&p.container, &p.blob, None).await.map(drop) }.boxed()
    }),
    ("blob properties", Kind::Reads, |a, p| {
        async move { a.blobs.properties(&p.container, &p.blob).await.map(drop) }.boxed()
    }),
    ("delete blob", Kind::Surfaces, |a, p| {
        async move { a.blobs.delete(&p.container, &p.blob, None).await.map(drop) }.boxed()
    }),
    ("copy blob", Kind::Repeats, |a, p| {
        async move {
            a.blobs
                .copy(
                    (&p.container, &p.blob),
                    (&p.container, &BlobName::new("copy.bin").unwrap()),
                    &BlobCopy::default(),
                )
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("put block", Kind::Repeats, |a, p| {
        async move {
            a.blobs
                .put_block(
                    &p.container,
                    &p.blob,
                    BlockId::numbered(0),
                    Bytes::from_static(b"x"),
                )
                .await
        }
        .boxed()
    }),
    ("put block list", Kind::Repeats, |a, p| {
        async move {
            a.blobs
                .put_block_list(&p.container, &p.blob, &[], &BlobUpload::default())
                .await
                .map(drop)
        }
        .boxed()
    }),
    ("list blobs", Kind::Reads, |a, p| {
        async move { a.blobs.list(&p.container, "", None).await.map(drop) }.boxed()
    }),
];

/// The emulator behind three stubs. Each stub applies the fault to its first request.
struct FaultyLine(Stub, Stub, Stub);

impl FaultyLine {
    fn with(fault: Fault, behind: Ports) -> Self {
        let stub = |port| {
            Stub::start(move |request| {
                if request.number == 0 {
                    fault.reply()
                } else {
                    Reply::Forward
                }
            })
            .forward_to(port)
        };
        Self(stub(behind.blob), stub(behind.queue), stub(behind.table))
    }

    fn connect(&self) -> Account {
        Ports {
            blob: self.0.port(),
            queue: self.1.port(),
            table: self.2.port(),
        }
        .connect()
    }

    fn sent(&self) -> usize {
        [&self.0, &self.1, &self.2]
            .into_iter()
            .map(|stub| stub.requests().len())
            .sum()
    }
}

/// Whether the operation can have the fault. The answer to a HEAD request has no body that could be cut off. The
/// adapter itself repeats a request for several messages that fails with 500: it then gets the messages one by one,
/// because one bad message would block all others.
fn makes_sense(name: &str, fault: Fault) -> bool {
    match fault {
        Fault::CutOff => !matches!(name, "blob properties" | "count messages"),
        Fault::TimedOut => name != "get messages",
        _ => true,
    }
}

#[tokio::test]
async fn every_fault_at_every_operation_is_taken_for_what_it_is_and_sent_once() {
    let azurite = azurite::shared();
    let plain = azurite.connect();
    let mut wrong = Vec::new();
    for (name, kind, run) in OPERATIONS {
        for fault in FAULTS.into_iter().filter(|fault| makes_sense(name, *fault)) {
            let prepared = prepare(&plain).await;
            let line = FaultyLine::with(fault, azurite);
            let result = run(&line.connect(), &prepared).await;
            let expected = fault.class(*kind);
            let class = result.as_ref().map_err(|error| error.class);
            if class != Err(expected) || line.sent() != 1 {
                wrong.push(format!(
                    "{name}, {fault:?}: {class:?} after {} requests, not {expected:?} after one",
                    line.sent()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn decorated(account: &Account) -> Account {
    let backoff = Backoff {
        min: Duration::from_millis(1),
        base: Duration::from_millis(1),
        max: Duration::from_secs(2),
    };
    let policy = RetryPolicy::growing(backoff, 3);
    let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(1));
    around(account, policy, &rng)
}

#[tokio::test]
async fn one_fault_at_any_operation_is_survived_where_it_may_be_repeated_and_told_where_not() {
    let azurite = azurite::shared();
    let plain = azurite.connect();
    let mut wrong = Vec::new();
    for (name, kind, run) in OPERATIONS {
        for fault in FAULTS.into_iter().filter(|fault| makes_sense(name, *fault)) {
            let prepared = prepare(&plain).await;
            let line = FaultyLine::with(fault, azurite);
            let result = run(&decorated(&line.connect()), &prepared).await;
            let surfaces = *kind == Kind::Surfaces && fault.class(*kind) == ErrorClass::Ambiguous;
            let well = match &result {
                Ok(()) => !surfaces && line.sent() == 2,
                Err(error) => surfaces && error.class == ErrorClass::Ambiguous && line.sent() == 1,
            };
            if !well {
                wrong.push(format!(
                    "{name}, {fault:?}: {result:?} after {} requests",
                    line.sent()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
