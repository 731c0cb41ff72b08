//! Tests beyond the contract suite: files, processes, and internal state.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::Connection;

use super::readers::Readers;
use super::{EmbeddedStore, OpenError, schema};
use evenkeel_model::{
    AccountName, BlobName, ContainerName, EdmValue, Entity, EntityKey, Key, QueueName, TableName,
};
use evenkeel_storage::{
    Account, BlobCopy, BlobUpload, BlockId, Clock, ErrorClass, IfMatch, MessageText, Query,
    TableOperation, Ttl,
};

#[derive(Debug, Default)]
pub(super) struct ManualClock(AtomicI64);

impl ManualClock {
    fn turn(&self, duration: Duration) {
        self.0.fetch_add(
            i64::try_from(duration.as_millis()).unwrap(),
            Ordering::SeqCst,
        );
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(1_795_000_000_000 + self.0.load(Ordering::SeqCst)).unwrap()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst).unsigned_abs())
    }
}

/// A file in its own folder, and a clock.
struct File {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl File {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock: Arc::default(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data").join("store.db")
    }

    fn open(&self) -> Account {
        EmbeddedStore::open(&self.path(), AccountName::main(), self.clock.clone()).unwrap()
    }

    /// The number of rows in one of the store's SQL tables.
    fn rows(&self, table: &str) -> i64 {
        let connection = Connection::open(self.path()).unwrap();
        connection
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
                row.get(0)
            })
            .unwrap()
    }
}

fn table() -> TableName {
    TableName::new("Employees").unwrap()
}

fn queue() -> QueueName {
    QueueName::new("jobs").unwrap()
}

fn container() -> ContainerName {
    ContainerName::new("photos").unwrap()
}

fn entity(rk: &str) -> Entity {
    Entity::new(EntityKey::new("p", rk).unwrap())
}

fn large(rk: &str) -> Entity {
    entity(rk).with("Photo", EdmValue::Binary(vec![7; 20_000]))
}

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn two_stores_on_one_file_see_each_others_writes() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    assert!(one.tables.create_table(&table()).await.unwrap());
    assert!(!other.tables.create_table(&table()).await.unwrap());
    let etag = other
        .tables
        .apply(&table(), &TableOperation::Insert(entity("r")))
        .await
        .unwrap()
        .unwrap();
    let replaced = one
        .tables
        .apply(
            &table(),
            &TableOperation::Replace(entity("r"), IfMatch::Matches(etag.clone())),
        )
        .await
        .unwrap();
    assert_ne!(replaced, Some(etag));
    assert_eq!(
        other
            .tables
            .get(&table(), &entity("r").key, None)
            .await
            .unwrap()
            .map(|row| row.etag),
        replaced
    );

    one.queues.create_queue(&queue()).await.unwrap();
    let sent = one
        .queues
        .put(&queue(), "job", Duration::ZERO, Ttl::Never)
        .await
        .unwrap();
    let got = other
        .queues
        .get(&queue(), 1, MINUTE)
        .await
        .unwrap()
        .remove(0);
    assert_eq!(
        (
            &got.id,
            one.queues.get(&queue(), 1, MINUTE).await.unwrap().len()
        ),
        (&sent.id, 0)
    );
    one.queues
        .delete(&queue(), &got.id, &got.pop_receipt)
        .await
        .unwrap();
    assert_eq!(other.queues.approximate_count(&queue()).await.unwrap(), 0);
}

#[tokio::test]
async fn two_stores_that_write_at_once_lose_nothing() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    one.tables.create_table(&table()).await.unwrap();
    let write = |store: &Account, name: &'static str| {
        let tables = store.tables.clone();
        async move {
            for number in 0..100 {
                tables
                    .apply(
                        &table(),
                        &TableOperation::Insert(entity(&format!("{name}{number}"))),
                    )
                    .await
                    .unwrap();
            }
        }
    };
    futures::join!(write(&one, "one"), write(&other, "other"));
    let rows = one
        .tables
        .query(&table(), &Query::default())
        .await
        .unwrap()
        .rows;
    assert_eq!(rows.len(), 200);
    let etags = rows
        .iter()
        .map(|row| &row.etag)
        .collect::<std::collections::BTreeSet<_>>();
    assert_eq!(etags.len(), 200, "an ETag was given twice");
}

#[tokio::test]
async fn what_was_written_is_there_when_the_file_is_opened_again() {
    let file = File::new();
    let store = file.open();
    store.tables.create_table(&table()).await.unwrap();
    let etag = store
        .tables
        .apply(
            &table(),
            &TableOperation::Insert(large("r").with("N", f64::NAN)),
        )
        .await
        .unwrap()
        .unwrap();
    store.queues.create_queue(&queue()).await.unwrap();
    store
        .queues
        .put(&queue(), "job", Duration::ZERO, Ttl::Never)
        .await
        .unwrap();
    let held = store
        .queues
        .get(&queue(), 1, MINUTE)
        .await
        .unwrap()
        .remove(0);
    drop(store);
    let store = file.open();
    let row = store
        .tables
        .get(&table(), &entity("r").key, None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (row.entity, &row.etag),
        (large("r").with("N", f64::NAN), &etag)
    );
    // The clock stands still, but versions increase across openings.
    let later = store
        .tables
        .apply(
            &table(),
            &TableOperation::Replace(entity("r"), IfMatch::Matches(etag.clone())),
        )
        .await
        .unwrap()
        .unwrap();
    assert_ne!(later, etag);
    store
        .queues
        .delete(&queue(), &held.id, &held.pop_receipt)
        .await
        .unwrap();
}

#[tokio::test]
async fn deleted_and_replaced_values_are_overwritten_in_the_file() {
    let (file, mark) = (File::new(), "MARK-of-what-is-erased");
    let store = file.open();
    store.tables.create_table(&table()).await.unwrap();
    store.queues.create_queue(&queue()).await.unwrap();
    store.blobs.create_container(&container()).await.unwrap();
    let blob = BlobName::new("photo").unwrap();
    let beside =
        |rk: &str| TableOperation::InsertOrReplace(entity(rk).with("Note", "x".repeat(300)));
    for n in 0..50 {
        store
            .tables
            .apply(&table(), &beside(&n.to_string()))
            .await
            .unwrap();
    }
    for length in [1, 400] {
        let marked = entity("25x").with("Note", mark.repeat(length));
        store
            .tables
            .apply(&table(), &TableOperation::InsertOrReplace(marked))
            .await
            .unwrap();
        store
            .blobs
            .put(
                &container(),
                &blob,
                Bytes::from(mark.repeat(length * 50)),
                &BlobUpload::default(),
            )
            .await
            .unwrap();
        store
            .queues
            .put(&queue(), &mark.repeat(length), Duration::ZERO, Ttl::Never)
            .await
            .unwrap();
    }
    store
        .tables
        .apply(
            &table(),
            &TableOperation::Delete(entity("25x").key, IfMatch::Any),
        )
        .await
        .unwrap();
    store.blobs.delete(&container(), &blob, None).await.unwrap();
    for got in store.queues.get(&queue(), 32, MINUTE).await.unwrap() {
        store
            .queues
            .delete(&queue(), &got.id, &got.pop_receipt)
            .await
            .unwrap();
    }
    drop(store);
    let bytes = std::fs::read(file.path()).unwrap();
    assert!(
        !bytes
            .windows(mark.len())
            .any(|window| window == mark.as_bytes())
    );
    assert!(
        !file.path().with_extension("db-wal").exists(),
        "the log is removed when the last user closes the file"
    );
}

#[test]
fn files_of_other_programs_and_versions_are_refused() {
    let file = File::new();
    let open =
        |path: &Path| EmbeddedStore::open(path, AccountName::main(), file.clock.clone()).map(drop);
    let other = file.folder.path().join("other.db");
    open(&other).unwrap();
    Connection::open(&other)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let error = open(&other).unwrap_err().to_string();
    assert!(
        error.contains("other.db has layout version 99; this program reads version 1"),
        "{error}"
    );

    let foreign = file.folder.path().join("foreign.db");
    Connection::open(&foreign)
        .unwrap()
        .execute_batch("CREATE TABLE t (x)")
        .unwrap();
    assert!(matches!(
        open(&foreign).unwrap_err(),
        OpenError::Foreign { .. }
    ));

    let text = file.folder.path().join("notes.txt");
    std::fs::write(&text, "no database\n".repeat(1_000)).unwrap();
    let error = open(&text).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("notes.txt: file is not a database")
            && std::error::Error::source(&error).is_none(),
        "{error}"
    );
    assert_eq!(
        std::fs::read_to_string(&text).unwrap().lines().count(),
        1_000
    );

    assert!(matches!(
        open(&text.join("store.db")).unwrap_err(),
        OpenError::Folder { .. }
    ));
    // No file can have this name. The error names the system's reason.
    assert!(matches!(
        open(&file.folder.path().join("x".repeat(300))).unwrap_err(),
        OpenError::File { .. }
    ));
}

#[test]
fn several_may_open_a_new_file_at_once() {
    let file = File::new();
    std::thread::scope(|scope| {
        let opening = (0..4)
            .map(|_| scope.spawn(|| file.open()))
            .collect::<Vec<_>>();
        for opened in opening {
            drop(opened.join().unwrap());
        }
    });
    assert_eq!(file.rows("store"), 1);
    let connection = Connection::open(file.path()).unwrap();
    let pragma = |name| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0))
            .unwrap()
    };
    assert_eq!(
        pragma("journal_mode"),
        rusqlite::types::Value::from("wal".to_owned())
    );
    assert_eq!(pragma("page_size"), rusqlite::types::Value::from(8_192));
}

#[tokio::test]
async fn a_dropped_table_is_empty_when_made_again_and_its_rows_are_reclaimed() {
    let file = File::new();
    let store = file.open();
    store.tables.create_table(&table()).await.unwrap();
    let pk = Key::new("p").unwrap();
    for start in (0..1_200).step_by(100) {
        let inserts = (start..start + 100).map(|i| {
            TableOperation::Insert(if i % 100 == 0 {
                large(&i.to_string())
            } else {
                entity(&i.to_string())
            })
        });
        store
            .tables
            .transact(&table(), &pk, &inserts.collect::<Vec<_>>())
            .await
            .unwrap();
    }
    let old = store
        .tables
        .get(&table(), &entity("1").key, None)
        .await
        .unwrap()
        .unwrap()
        .etag;
    assert!(store.tables.delete_table(&table()).await.unwrap());
    assert!(store.tables.create_table(&table()).await.unwrap());
    assert!(
        store
            .tables
            .query(&table(), &Query::default())
            .await
            .unwrap()
            .rows
            .is_empty()
    );
    store
        .tables
        .apply(&table(), &TableOperation::Insert(entity("1")))
        .await
        .unwrap();
    let stale = store
        .tables
        .apply(
            &table(),
            &TableOperation::Delete(entity("1").key, IfMatch::Matches(old)),
        )
        .await;
    assert_eq!(stale.unwrap_err().class, ErrorClass::Precondition);
    // The writer reclaims contents after it has answered. Each write lets it reclaim another slice.
    while file.rows("dropped") > 0 {
        store
            .tables
            .apply(&table(), &TableOperation::InsertOrReplace(entity("1")))
            .await
            .unwrap();
    }
    assert_eq!((file.rows("entities"), file.rows("large_entities")), (1, 0));
}

#[tokio::test]
async fn dropped_queues_and_containers_are_reclaimed() {
    let file = File::new();
    let store = file.open();
    store.queues.create_queue(&queue()).await.unwrap();
    store.blobs.create_container(&container()).await.unwrap();
    for number in 0..10 {
        store
            .queues
            .put(&queue(), "job", Duration::ZERO, Ttl::Never)
            .await
            .unwrap();
        let name = BlobName::new(format!("blob{number}")).unwrap();
        store
            .blobs
            .put(
                &container(),
                &name,
                Bytes::from(vec![1; 300_000]),
                &BlobUpload::default(),
            )
            .await
            .unwrap();
    }
    store.queues.delete_queue(&queue()).await.unwrap();
    store.blobs.delete_container(&container()).await.unwrap();
    store.queues.create_queue(&queue()).await.unwrap();
    assert_eq!(store.queues.approximate_count(&queue()).await.unwrap(), 0);
    while file.rows("dropped") > 0 {
        store
            .queues
            .put(&queue(), "next", Duration::ZERO, Ttl::Never)
            .await
            .unwrap();
    }
    assert_eq!(
        (
            file.rows("blobs"),
            file.rows("blob_headers"),
            file.rows("blob_blocks")
        ),
        (0, 0, 0)
    );
    let left = store.queues.approximate_count(&queue()).await.unwrap();
    assert_eq!(u64::try_from(file.rows("messages")).unwrap(), left);
}

#[tokio::test]
async fn replaced_values_leave_nothing_behind() {
    let file = File::new();
    let store = file.open();
    store.tables.create_table(&table()).await.unwrap();
    store.blobs.create_container(&container()).await.unwrap();
    let name = BlobName::new("a").unwrap();
    for length in [600_000, 0, 300_000] {
        store
            .tables
            .apply(&table(), &TableOperation::InsertOrReplace(large("r")))
            .await
            .unwrap();
        store
            .blobs
            .put(
                &container(),
                &name,
                Bytes::from(vec![1; length]),
                &BlobUpload::default(),
            )
            .await
            .unwrap();
    }
    assert_eq!(
        (
            file.rows("large_entities"),
            file.rows("blob_headers"),
            file.rows("blob_blocks")
        ),
        (1, 1, 2)
    );
    store
        .tables
        .apply(&table(), &TableOperation::Merge(large("r"), IfMatch::Any))
        .await
        .unwrap();
    assert_eq!(file.rows("large_entities"), 1);
    store
        .tables
        .apply(
            &table(),
            &TableOperation::Replace(entity("r"), IfMatch::Any),
        )
        .await
        .unwrap();
    assert_eq!(file.rows("large_entities"), 0);
    store
        .tables
        .apply(&table(), &TableOperation::Merge(large("r"), IfMatch::Any))
        .await
        .unwrap();
    store
        .tables
        .apply(
            &table(),
            &TableOperation::Delete(entity("r").key, IfMatch::Any),
        )
        .await
        .unwrap();
    store.blobs.delete(&container(), &name, None).await.unwrap();
    assert_eq!(
        (
            file.rows("large_entities"),
            file.rows("blob_headers"),
            file.rows("blob_blocks")
        ),
        (0, 0, 0)
    );
}

#[tokio::test]
async fn a_version_has_the_blocks_of_the_one_before_without_writing_them_again() {
    let file = File::new();
    let store = file.open();
    store.blobs.create_container(&container()).await.unwrap();
    let (name, copy) = (BlobName::new("a").unwrap(), BlobName::new("copy").unwrap());
    let content = |number: u8| Bytes::from(vec![number; 300_000]);
    let put = async |number: u8| {
        store
            .blobs
            .put_block(&container(), &name, BlockId([number; 16]), content(number))
            .await
            .unwrap();
    };
    let commit = async |numbers: &[u8]| {
        let blocks: Vec<BlockId> = numbers
            .iter()
            .map(|number| BlockId([*number; 16]))
            .collect();
        store
            .blobs
            .put_block_list(&container(), &name, &blocks, &BlobUpload::default())
            .await
            .unwrap();
        let whole: Vec<u8> = numbers.iter().flat_map(|number| content(*number)).collect();
        let blob = store
            .blobs
            .get(&container(), &name, None)
            .await
            .unwrap()
            .unwrap();
        assert!(
            blob.content == whole && blob.properties.length == whole.len() as u64,
            "{numbers:?}"
        );
    };
    for number in [1, 2, 3] {
        put(number).await;
    }
    commit(&[1, 2, 3]).await;
    let stamps = || -> Vec<i64> {
        let connection = Connection::open(file.path()).unwrap();
        let mut statement = connection
            .prepare("SELECT DISTINCT stamp FROM blob_blocks ORDER BY stamp")
            .unwrap();
        statement
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect()
    };
    let before = stamps();
    put(4).await;
    commit(&[1, 4, 3]).await;
    let after = stamps();
    assert_eq!(
        after.iter().filter(|stamp| before.contains(stamp)).count(),
        2,
        "{before:?} {after:?}"
    );
    assert_eq!((after.len(), file.rows("blob_blocks")), (3, 6));
    // The list has the blocks in another order, and one of them twice.
    commit(&[3, 3, 1]).await;
    assert_eq!(file.rows("blob_blocks"), 4);
    let range = store
        .blobs
        .get(&container(), &name, Some(299_999..600_001))
        .await
        .unwrap()
        .unwrap()
        .content;
    assert!(range.len() == 300_002 && range[0] == 3 && range[300_001] == 1);
    // A copy has bytes of its own.
    store
        .blobs
        .copy(
            (&container(), &name),
            (&container(), &copy),
            &BlobCopy::default(),
        )
        .await
        .unwrap();
    store.blobs.delete(&container(), &name, None).await.unwrap();
    assert_eq!(
        store
            .blobs
            .get(&container(), &copy, Some(899_999..900_000))
            .await
            .unwrap()
            .unwrap()
            .content,
        [1].as_slice()
    );
    store.blobs.delete(&container(), &copy, None).await.unwrap();
    assert_eq!(
        (file.rows("blob_headers"), file.rows("blob_blocks")),
        (0, 0)
    );
}

#[tokio::test]
async fn an_empty_append_does_not_block_the_next() {
    let file = File::new();
    let store = file.open();
    store.blobs.create_container(&container()).await.unwrap();
    let name = BlobName::new("log").unwrap();
    store
        .blobs
        .create_append(&container(), &name, &BlobUpload::default())
        .await
        .unwrap();
    // This append has the maximum length of one row of the table.
    store
        .blobs
        .append(&container(), &name, Bytes::from(vec![1; 262_144]), 0)
        .await
        .unwrap();
    let empty = store
        .blobs
        .append(&container(), &name, Bytes::new(), 262_144)
        .await;
    assert_eq!(empty.unwrap_err().class, ErrorClass::Permanent);
    store
        .blobs
        .append(&container(), &name, Bytes::from_static(b"line"), 262_144)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_result_of_a_merge_is_checked_against_the_limits() {
    let file = File::new();
    let store = file.open();
    store.tables.create_table(&table()).await.unwrap();
    let merge = async |entity: Entity| {
        store
            .tables
            .apply(&table(), &TableOperation::InsertOrMerge(entity))
            .await
    };
    let many =
        |from: i32| (from..from + 200).fold(entity("many"), |e, i| e.with(format!("P{i}"), i));
    merge(many(0)).await.unwrap();
    assert_eq!(
        merge(many(200)).await.unwrap_err().class,
        ErrorClass::Permanent
    );
    let long = |from: i32| {
        (from..from + 20).fold(entity("long"), |e, i| {
            e.with(format!("P{i}"), "한".repeat(10_667))
        })
    };
    merge(long(0)).await.unwrap();
    assert_eq!(
        merge(long(20)).await.unwrap_err().class,
        ErrorClass::TooLarge
    );
    assert_eq!(
        store
            .tables
            .get(&table(), &entity("many").key, None)
            .await
            .unwrap()
            .unwrap()
            .entity,
        many(0)
    );
    assert_eq!(
        store
            .tables
            .get(&table(), &entity("long").key, None)
            .await
            .unwrap()
            .unwrap()
            .entity,
        long(0)
    );
}

#[tokio::test]
async fn expired_messages_do_not_hold_up_others() {
    let file = File::new();
    let store = file.open();
    store.queues.create_queue(&queue()).await.unwrap();
    let jobs = queue();
    let put = |ttl| store.queues.put(&jobs, "job", Duration::ZERO, ttl);
    futures::future::join_all((0..300).map(|_| put(Ttl::After(MINUTE)))).await;
    put(Ttl::Never).await.unwrap();
    file.clock.turn(MINUTE);
    assert_eq!(store.queues.peek(&queue(), 32).await.unwrap().len(), 1);
    assert_eq!(
        store.queues.get(&queue(), 32, MINUTE).await.unwrap().len(),
        1
    );
    assert_eq!(store.queues.approximate_count(&queue()).await.unwrap(), 1);
    assert_eq!(file.rows("messages"), 1);
}

#[tokio::test]
async fn messages_come_in_order_of_visibility_then_insertion() {
    let file = File::new();
    let store = file.open();
    store.queues.create_queue(&queue()).await.unwrap();
    for (text, delay) in [("third", 2), ("first", 1), ("fourth", 2), ("second", 1)] {
        store
            .queues
            .put(&queue(), text, Duration::from_secs(delay), Ttl::Never)
            .await
            .unwrap();
    }
    file.clock.turn(MINUTE);
    let messages = store.queues.get(&queue(), 32, MINUTE).await.unwrap();
    let expected =
        ["first", "second", "third", "fourth"].map(|text| MessageText::Readable(text.to_owned()));
    assert!(
        messages
            .into_iter()
            .map(|message| message.text)
            .eq(expected)
    );
}

#[test]
fn the_backlog_is_read_through_its_index() {
    let file = File::new();
    drop(file.open());
    let connection = Connection::open(file.path()).unwrap();
    let sql = "EXPLAIN QUERY PLAN SELECT id, expires FROM messages WHERE queue_id = ?1 AND visible <= ?2 ORDER BY visible, id";
    let plan: Vec<String> = connection
        .prepare(sql)
        .unwrap()
        .query_map([1, 1], |row| row.get(3))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        plan,
        ["SEARCH messages USING INDEX messages_by_visibility (queue_id=? AND visible<?)"]
    );
}

#[tokio::test]
async fn a_clock_that_jumps_back_neither_repeats_a_version_nor_stops_a_queue() {
    let file = File::new();
    let store = file.open();
    store.tables.create_table(&table()).await.unwrap();
    store.queues.create_queue(&queue()).await.unwrap();
    let hour = Duration::from_hours(1);
    store
        .queues
        .put(&queue(), "later", hour * 2, Ttl::Never)
        .await
        .unwrap();
    file.clock.turn(hour);
    store
        .queues
        .put(&queue(), "held", Duration::ZERO, Ttl::Never)
        .await
        .unwrap();
    let held = store
        .queues
        .get(&queue(), 1, MINUTE)
        .await
        .unwrap()
        .remove(0);
    store
        .queues
        .put(&queue(), "waits", Duration::ZERO, Ttl::Never)
        .await
        .unwrap();
    let ahead = store
        .tables
        .apply(&table(), &TableOperation::InsertOrReplace(entity("r")))
        .await
        .unwrap();
    file.clock.0.store(1_000, Ordering::SeqCst);
    let next = async || store.queues.get(&queue(), 1, MINUTE).await.unwrap().pop();
    let waits = next().await.unwrap();
    assert_eq!(
        (&waits.text, next().await),
        (&MessageText::Readable("waits".to_owned()), None),
        "a lease keeps its length"
    );
    store
        .queues
        .delete(&queue(), &waits.id, &waits.pop_receipt)
        .await
        .unwrap();
    file.clock.turn(MINUTE);
    let again = next().await.unwrap();
    assert_eq!((&again.id, again.dequeue_count), (&held.id, 2));
    store
        .queues
        .delete(&queue(), &again.id, &again.pop_receipt)
        .await
        .unwrap();
    assert_eq!(
        next().await,
        None,
        "a message that was hidden by the right clock keeps its time"
    );
    let back = store
        .tables
        .apply(&table(), &TableOperation::InsertOrReplace(entity("r")))
        .await
        .unwrap();
    assert_ne!(ahead, back);
    store
        .queues
        .put(&queue(), "job", Duration::from_secs(1), Ttl::Never)
        .await
        .unwrap();
    assert!(
        store
            .queues
            .get(&queue(), 1, MINUTE)
            .await
            .unwrap()
            .is_empty()
    );
    file.clock.turn(Duration::from_secs(1));
    assert_eq!(
        store.queues.get(&queue(), 1, MINUTE).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn a_job_is_dated_after_earlier_rows_even_if_the_clock_was_set_back() {
    let file = File::new();
    let store = file.open();
    store.tables.create_table(&table()).await.unwrap();
    store.queues.create_queue(&queue()).await.unwrap();
    for (hours, behind) in [(9, false), (24 * 365, true)] {
        file.clock.turn(Duration::from_hours(hours));
        store
            .tables
            .apply(&table(), &TableOperation::InsertOrReplace(entity("r")))
            .await
            .unwrap();
        file.clock.0.store(0, Ordering::SeqCst);
        store
            .queues
            .put(&queue(), "delete", Duration::ZERO, Ttl::After(MINUTE))
            .await
            .unwrap();
        let row = store
            .tables
            .get(&table(), &entity("r").key, None)
            .await
            .unwrap()
            .unwrap();
        let message = store
            .queues
            .get(&queue(), 1, MINUTE)
            .await
            .unwrap()
            .remove(0);
        let is_behind =
            message.inserted.as_microsecond() < row.timestamp.unwrap().timestamp().as_microsecond();
        assert_eq!(
            is_behind, behind,
            "whether a job is older than a row, after the clock was set back by {hours} h"
        );
        let later = file.clock.now().checked_add(MINUTE).ok();
        assert_eq!(
            (message.expires, Some(message.next_visible)),
            (later, later)
        );
    }
}

#[tokio::test]
async fn an_error_names_the_operation_and_its_subject() {
    let file = File::new();
    let store = file.open();
    let error = store
        .tables
        .apply(&table(), &TableOperation::Insert(entity("r")))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Insert Entity (table Employees, PartitionKey \"p\", RowKey \"r\", account main): the table does not exist"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn what_it_creates_is_no_other_user_s() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/store/evenkeel.db");
    let account =
        EmbeddedStore::open(&path, AccountName::main(), Arc::<ManualClock>::default()).unwrap();
    account
        .tables
        .create_table(&TableName::new("Employees").unwrap())
        .await
        .unwrap();
    let mode = |name: &str| {
        std::fs::metadata(folder.path().join("data").join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!([mode(""), mode("store")], [0o700; 2]);
    for file in ["evenkeel.db", "evenkeel.db-wal", "evenkeel.db-shm"] {
        assert_eq!(mode(&format!("store/{file}")), 0o600, "{file}");
    }
    // An operator may give the file more permissions. Opening the store does not change them.
    drop(account);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    drop(EmbeddedStore::open(&path, AccountName::main(), Arc::<ManualClock>::default()).unwrap());
    assert_eq!(mode("store/evenkeel.db"), 0o640);
}

#[tokio::test]
async fn waiting_reads_are_all_answered_and_see_earlier_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let connection = schema::open_writer(&path).unwrap();
    connection
        .execute_batch("CREATE TABLE numbers (n INTEGER)")
        .unwrap();
    let readers = Readers::start(&path).unwrap();
    for written in 1..=20 {
        connection
            .execute("INSERT INTO numbers VALUES (?1)", [written])
            .unwrap();
        let reads = (0..200).map(|nth| {
            let count = readers.read(move |snapshot| {
                assert_ne!(nth % 50, 7, "a read that panics");
                Ok(
                    snapshot.query_row("SELECT count(*) FROM numbers", [], |row| {
                        row.get::<_, i64>(0)
                    })?,
                )
            });
            async move { (nth, count.await) }
        });
        for (nth, count) in futures::future::join_all(reads).await {
            match count {
                Ok(count) => assert_eq!((count, nth % 50 == 7), (written, false)),
                Err(fault) => assert_eq!((fault.class, nth % 50), (ErrorClass::Permanent, 7)),
            }
        }
    }
}
