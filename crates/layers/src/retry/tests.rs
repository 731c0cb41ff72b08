//! Each class of failure for each operation, and the waits between attempts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use tokio::time::Instant;

use super::around;
use crate::testing::{Answer, Scripted};
use evenkeel_model::settings::{Backoff, RetryPolicy};
use evenkeel_model::{BlobName, ContainerName, ETag, Entity, EntityKey, QueueName, TableName};
use evenkeel_storage::system::SeededRng;
use evenkeel_storage::{
    Account, BlobCondition, BlobCopy, BlobUpload, BlockId, ErrorClass, IfMatch, Missing, Query,
    Rng, StoreError, TableOperation, Ttl,
};

const THROTTLED: ErrorClass = ErrorClass::Throttled { retry_after: None };
const TRANSIENT: ErrorClass = ErrorClass::Transient { retry_after: None };
const FINAL: [ErrorClass; 8] = [
    ErrorClass::NotFound(Missing::Container),
    ErrorClass::NotFound(Missing::Item),
    ErrorClass::Conflict,
    ErrorClass::Precondition,
    ErrorClass::LeaseLost,
    ErrorClass::Permanent,
    ErrorClass::Unauthorised,
    ErrorClass::TooLarge,
];

fn policy() -> RetryPolicy {
    let backoff = Backoff {
        min: Duration::from_millis(50),
        base: Duration::from_millis(100),
        max: Duration::from_secs(5),
    };
    RetryPolicy::growing(backoff, 6)
}

fn with_retries(bare: &Account, policy: RetryPolicy) -> Account {
    let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(7));
    around(bare, policy, &rng)
}

/// Every operation of every port, in the variants that retries treat differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Do {
    GetEntity,
    Insert,
    InsertOrReplace,
    InsertOrMerge,
    Replace,
    Merge,
    DeleteAtETag,
    DeleteAnyway,
    Transact,
    QueryEntities,
    CreateTable,
    DeleteTable,
    ListTables,
    CreateQueue,
    DeleteQueue,
    PutMessage,
    GetMessages,
    UpdateMessage,
    DeleteMessage,
    Peek,
    Count,
    CreateContainer,
    DeleteContainer,
    PutBlob,
    PutBlobIfAbsent,
    PutBlobAtETag,
    GetBlob,
    BlobProperties,
    DeleteBlobAnyway,
    DeleteBlobAtETag,
    CreateAppend,
    CreateAppendIfAbsent,
    Append,
    SetMetadata,
    CopyBlob,
    CopyBlobIfAbsent,
    GetBlobAt,
    PutBlock,
    PutBlockList,
    PutBlockListIfAbsent,
    ListBlobs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Repeated,
    Ambiguous,
}

use Do::*;
use Expect::{Ambiguous, Repeated};

const EVERYTHING: [(Do, Expect); 41] = [
    (GetEntity, Repeated),
    (Insert, Ambiguous),
    (InsertOrReplace, Ambiguous),
    (InsertOrMerge, Ambiguous),
    (Replace, Ambiguous),
    (Merge, Ambiguous),
    (DeleteAtETag, Repeated),
    (DeleteAnyway, Ambiguous),
    (Transact, Ambiguous),
    (QueryEntities, Repeated),
    (CreateTable, Repeated),
    (DeleteTable, Repeated),
    (ListTables, Repeated),
    (CreateQueue, Repeated),
    (DeleteQueue, Repeated),
    (PutMessage, Repeated),
    (GetMessages, Ambiguous),
    (UpdateMessage, Ambiguous),
    (DeleteMessage, Repeated),
    (Peek, Repeated),
    (Count, Repeated),
    (CreateContainer, Repeated),
    (DeleteContainer, Repeated),
    (PutBlob, Repeated),
    (PutBlobIfAbsent, Ambiguous),
    (PutBlobAtETag, Ambiguous),
    (GetBlob, Repeated),
    (BlobProperties, Repeated),
    (DeleteBlobAnyway, Ambiguous),
    (DeleteBlobAtETag, Repeated),
    (CreateAppend, Repeated),
    (CreateAppendIfAbsent, Ambiguous),
    (Append, Ambiguous),
    (SetMetadata, Ambiguous),
    (CopyBlob, Repeated),
    (CopyBlobIfAbsent, Ambiguous),
    (GetBlobAt, Repeated),
    (PutBlock, Repeated),
    (PutBlockList, Repeated),
    (PutBlockListIfAbsent, Ambiguous),
    (ListBlobs, Repeated),
];

const READS: [Do; 9] = [
    GetEntity,
    QueryEntities,
    ListTables,
    Peek,
    Count,
    GetBlob,
    GetBlobAt,
    BlobProperties,
    ListBlobs,
];

/// Runs one operation. Some results are reduced to whether something existed.
fn perform(account: &Account, what: Do) -> BoxFuture<'_, Result<Option<bool>, StoreError>> {
    async move {
        let (tables, queues, blobs) = (&account.tables, &account.queues, &account.blobs);
        let table = TableName::new("Employees").unwrap();
        let key = EntityKey::new("Sales", "7").unwrap();
        let entity = Entity::new(key.clone());
        let queue = QueueName::new("evenkeel-jobs").unwrap();
        let container = ContainerName::new("employee-large").unwrap();
        let blob = BlobName::new("7/photo").unwrap();
        let (etag, block) = (ETag::new("\"1\"").unwrap(), BlockId::numbered(0));
        let at = IfMatch::Matches(etag.clone());
        let minute = Duration::from_mins(1);
        let upload = |condition| BlobUpload {
            condition,
            ..BlobUpload::default()
        };
        let write = |operation| async move {
            tables
                .apply(&TableName::new("Employees").unwrap(), &operation)
                .await
                .map(|_| None)
        };
        match what {
            GetEntity => tables.get(&table, &key, None).await.map(|_| None),
            Insert => write(TableOperation::Insert(entity)).await,
            InsertOrReplace => write(TableOperation::InsertOrReplace(entity)).await,
            InsertOrMerge => write(TableOperation::InsertOrMerge(entity)).await,
            Replace => write(TableOperation::Replace(entity, at)).await,
            Merge => write(TableOperation::Merge(entity, at)).await,
            DeleteAtETag => write(TableOperation::Delete(key, at)).await,
            DeleteAnyway => write(TableOperation::Delete(key, IfMatch::Any)).await,
            Transact => tables
                .transact(&table, &key.pk, &[TableOperation::Insert(entity)])
                .await
                .map(|_| None),
            QueryEntities => tables.query(&table, &Query::default()).await.map(|_| None),
            CreateTable => tables.create_table(&table).await.map(Some),
            DeleteTable => tables.delete_table(&table).await.map(Some),
            ListTables => tables.list_tables(None).await.map(|_| None),
            CreateQueue => queues.create_queue(&queue).await.map(Some),
            DeleteQueue => queues.delete_queue(&queue).await.map(Some),
            PutMessage => queues
                .put(&queue, "{}", Duration::ZERO, Ttl::Never)
                .await
                .map(|_| None),
            GetMessages => queues.get(&queue, 32, minute).await.map(|_| None),
            UpdateMessage => queues
                .update(&queue, "id", "receipt", "{}", minute)
                .await
                .map(|_| None),
            DeleteMessage => queues.delete(&queue, "id", "receipt").await.map(|()| None),
            Peek => queues.peek(&queue, 32).await.map(|_| None),
            Count => queues.approximate_count(&queue).await.map(|_| None),
            CreateContainer => blobs.create_container(&container).await.map(Some),
            DeleteContainer => blobs.delete_container(&container).await.map(Some),
            PutBlob => blobs
                .put(
                    &container,
                    &blob,
                    Bytes::new(),
                    &upload(BlobCondition::None),
                )
                .await
                .map(|_| None),
            PutBlobIfAbsent => blobs
                .put(
                    &container,
                    &blob,
                    Bytes::new(),
                    &upload(BlobCondition::Absent),
                )
                .await
                .map(|_| None),
            PutBlobAtETag => blobs
                .put(
                    &container,
                    &blob,
                    Bytes::new(),
                    &upload(BlobCondition::Matches(etag)),
                )
                .await
                .map(|_| None),
            GetBlob => blobs.get(&container, &blob, None).await.map(|_| None),
            BlobProperties => blobs.properties(&container, &blob).await.map(|_| None),
            DeleteBlobAnyway => blobs.delete(&container, &blob, None).await.map(Some),
            DeleteBlobAtETag => blobs.delete(&container, &blob, Some(&etag)).await.map(Some),
            CreateAppend => blobs
                .create_append(&container, &blob, &upload(BlobCondition::None))
                .await
                .map(|_| None),
            CreateAppendIfAbsent => blobs
                .create_append(&container, &blob, &upload(BlobCondition::Absent))
                .await
                .map(|_| None),
            Append => blobs
                .append(&container, &blob, Bytes::new(), 0)
                .await
                .map(|_| None),
            SetMetadata => blobs
                .set_metadata(&container, &blob, &BTreeMap::new(), &etag)
                .await
                .map(|_| None),
            CopyBlob => blobs
                .copy(
                    (&container, &blob),
                    (&container, &blob),
                    &BlobCopy::default(),
                )
                .await
                .map(|_| None),
            CopyBlobIfAbsent => {
                let copying = BlobCopy {
                    condition: BlobCondition::Absent,
                    ..BlobCopy::default()
                };
                blobs
                    .copy((&container, &blob), (&container, &blob), &copying)
                    .await
                    .map(|_| None)
            }
            GetBlobAt => blobs
                .get_at(&container, &blob, 0..1, &etag)
                .await
                .map(|_| None),
            PutBlock => blobs
                .put_block(&container, &blob, block, Bytes::new())
                .await
                .map(|()| None),
            PutBlockList => blobs
                .put_block_list(&container, &blob, &[block], &upload(BlobCondition::None))
                .await
                .map(|_| None),
            PutBlockListIfAbsent => blobs
                .put_block_list(&container, &blob, &[block], &upload(BlobCondition::Absent))
                .await
                .map(|_| None),
            ListBlobs => blobs.list(&container, "", None).await.map(|_| None),
        }
    }
    .boxed()
}

/// Runs an operation against scripted answers. Returns its result and the number of requests sent.
async fn run(
    what: Do,
    answers: impl IntoIterator<Item = ErrorClass>,
) -> (Result<Option<bool>, ErrorClass>, usize) {
    let (bare, script) = Scripted::listed(answers.into_iter().map(Answer::from));
    let result = perform(&with_retries(&bare, policy()), what).await;
    (result.map_err(|error| error.class), script.requests())
}

#[tokio::test(start_paused = true)]
async fn every_operation_that_was_not_executed_is_repeated() {
    for (what, _) in EVERYTHING {
        for class in [ErrorClass::Refused, THROTTLED, TRANSIENT] {
            let (result, requests) = run(what, [class, class, class]).await;
            assert!(result.is_ok(), "{what:?} {class:?}: {result:?}");
            assert_eq!(requests, 4, "{what:?} {class:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded_and_the_last_failure_is_returned() {
    for (what, _) in EVERYTHING {
        for class in [ErrorClass::Refused, THROTTLED, TRANSIENT] {
            assert_eq!(run(what, [class; 20]).await, (Err(class), 6), "{what:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_will_not_change_is_never_requested_twice() {
    for (what, _) in EVERYTHING {
        for class in FINAL {
            assert_eq!(run(what, [class]).await, (Err(class), 1), "{what:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_attempt_is_repeated_only_if_harmless_or_conclusive() {
    for (what, expect) in EVERYTHING {
        let (result, requests) = run(what, [ErrorClass::Ambiguous]).await;
        match expect {
            Repeated => assert!(
                result.is_ok() && requests == 2,
                "{what:?}: {result:?} after {requests}"
            ),
            Ambiguous => assert_eq!(
                (result, requests),
                (Err(ErrorClass::Ambiguous), 1),
                "{what:?}"
            ),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_have_been_executed_once_never_ends_as_not_executed() {
    for (what, expect) in EVERYTHING {
        if expect == Repeated && !READS.contains(&what) {
            let answers = [ErrorClass::Ambiguous].into_iter().chain([THROTTLED; 20]);
            assert_eq!(
                run(what, answers).await,
                (Err(ErrorClass::Ambiguous), 6),
                "{what:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_attempt_is_credited_with_the_result() {
    for what in [
        CreateTable,
        DeleteTable,
        CreateQueue,
        DeleteQueue,
        CreateContainer,
        DeleteContainer,
        DeleteBlobAtETag,
    ] {
        for (answers, mine) in [
            (vec![], false),
            (vec![TRANSIENT.into()], false),
            (vec![ErrorClass::Ambiguous.into()], true),
        ] {
            let (bare, _) = Scripted::listed_after_the_fact(answers);
            let result = perform(&with_retries(&bare, policy()), what).await;
            assert_eq!(result.unwrap(), Some(mine), "{what:?}");
        }
    }
    let gone = ErrorClass::NotFound(Missing::Item);
    assert_eq!(
        run(DeleteAtETag, [ErrorClass::Ambiguous, gone]).await,
        (Ok(None), 2)
    );
    assert_eq!(run(DeleteAtETag, [TRANSIENT, gone]).await, (Err(gone), 2));
    assert_eq!(
        run(
            DeleteMessage,
            [ErrorClass::Ambiguous, ErrorClass::LeaseLost]
        )
        .await,
        (Ok(None), 2)
    );
    assert_eq!(
        run(DeleteMessage, [TRANSIENT, ErrorClass::LeaseLost]).await,
        (Err(ErrorClass::LeaseLost), 2)
    );
}

/// An unanswered attempt may have deleted the entity, and another client may have created a new one, which makes the
/// repetition fail. A caller that took that failure for a lost race would delete the new entity.
#[tokio::test(start_paused = true)]
async fn after_an_unanswered_attempt_every_refusal_but_gone_leaves_the_outcome_unknown() {
    let writes: Vec<Do> = EVERYTHING
        .into_iter()
        .filter(|(what, expect)| *expect == Repeated && !READS.contains(what))
        .map(|(what, _)| what)
        .collect();
    assert!(
        writes.contains(&DeleteAtETag)
            && writes.contains(&DeleteBlobAtETag)
            && writes.contains(&DeleteMessage)
    );
    for what in writes {
        for class in FINAL {
            let gone = matches!(class, ErrorClass::NotFound(_) | ErrorClass::LeaseLost);
            for between in [None, Some(THROTTLED), Some(ErrorClass::Refused)] {
                let answers = [ErrorClass::Ambiguous]
                    .into_iter()
                    .chain(between)
                    .chain([class]);
                let (result, _) = run(what, answers).await;
                match result {
                    Err(ended) if gone => assert_eq!(ended, class, "{what:?}"),
                    Ok(_) => assert!(gone, "{what:?} {class:?}: taken for done"),
                    Err(ended) => assert_eq!(ended, ErrorClass::Ambiguous, "{what:?} {class:?}"),
                }
                // No attempt was unanswered, so the rejection is the result.
                assert_eq!(
                    run(what, between.into_iter().chain([class])).await.0,
                    Err(class),
                    "{what:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_deletion_after_an_unanswered_one_does_not_count_as_done() {
    // A container under a legal hold, or a gateway that answers for the service.
    for class in [ErrorClass::Permanent, ErrorClass::Ambiguous] {
        for what in [DeleteTable, DeleteQueue, DeleteContainer] {
            let refused = (0..10).map(|_| Answer::Err(class, Some(409)));
            let (bare, _) = Scripted::listed(
                std::iter::once(Answer::from(ErrorClass::Ambiguous)).chain(refused),
            );
            let error = perform(&with_retries(&bare, policy()), what)
                .await
                .unwrap_err();
            assert_eq!(error.class, ErrorClass::Ambiguous, "{what:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_tried_again_at_once_and_then_with_growing_waits() {
    let (bare, script) = Scripted::listed([ErrorClass::Refused; 5].map(Answer::from));
    perform(&with_retries(&bare, policy()), GetEntity)
        .await
        .unwrap();
    let at: Vec<_> = script.arrivals().iter().map(|arrival| arrival.at).collect();
    let waits: Vec<_> = at
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]).as_secs_f64())
        .collect();
    // min + rand(0.8, 1.2) · base · (2ⁿ − 1) with min 50 ms and base 100 ms. Timers tick in whole milliseconds.
    let bounds = [
        (0.0, 0.0),
        (0.13, 0.17),
        (0.29, 0.41),
        (0.61, 0.89),
        (1.25, 1.85),
    ];
    for (wait, (low, high)) in waits.iter().zip(bounds) {
        assert!((low..=high + 0.002).contains(wait), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn listed_waits_are_waited_in_their_order_and_then_the_request_ends() {
    let listed: [u32; 4] = [2, 4, 10, 30];
    let policy = RetryPolicy::listed(&listed.map(|secs| Duration::from_secs(secs.into()))).unwrap();
    let (bare, script) = Scripted::listed([TRANSIENT; 6].map(Answer::from));
    assert!(
        perform(&with_retries(&bare, policy), GetEntity)
            .await
            .is_err()
    );
    let at: Vec<_> = script.arrivals().iter().map(|arrival| arrival.at).collect();
    assert_eq!(at.len(), 5);
    for (pair, listed) in at.windows(2).zip(listed.map(f64::from)) {
        let wait = pair[1].saturating_sub(pair[0]).as_secs_f64();
        assert!(
            (0.8 * listed..=1.2 * listed + 0.002).contains(&wait),
            "{listed}: {wait}"
        );
    }

    let throttled = |secs| ErrorClass::Throttled {
        retry_after: Some(Duration::from_secs(secs)),
    };
    for (secs, requests) in [(20, 2), (31, 1)] {
        let (bare, script) = Scripted::listed([Answer::from(throttled(secs))]);
        assert_eq!(
            perform(&with_retries(&bare, policy), GetEntity)
                .await
                .is_ok(),
            requests == 2
        );
        assert_eq!(script.requests(), requests);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_is_waited_for_and_one_beyond_the_longest_wait_ends_the_request_at_once() {
    let throttled = |secs| ErrorClass::Throttled {
        retry_after: Some(Duration::from_secs(secs)),
    };
    let start = Instant::now();
    assert_eq!(run(GetEntity, [throttled(3)]).await, (Ok(None), 2));
    assert!(
        (3.0..3.1).contains(&start.elapsed().as_secs_f64()),
        "{:?}",
        start.elapsed()
    );

    let start = Instant::now();
    assert_eq!(run(GetEntity, [throttled(6)]).await, (Err(throttled(6)), 1));
    assert_eq!(start.elapsed(), Duration::ZERO);
}
