//! The writer: one thread and one connection, which commits many requests together.
//!
//! A commit costs one sync of the disk, whatever it contains. So the thread takes all waiting
//! requests, up to a limit, executes each in its own savepoint, and commits once. A request that
//! fails undoes only its own work, and no caller is answered before the commit. While one commit
//! syncs, the next batch gathers.
//!
//! Dropping a caller is harmless: a request that has not begun is dropped; one that has begun is
//! committed with its batch, and its answer is discarded. A request that panics is undone and
//! answered with a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use tokio::sync::{mpsc, oneshot};

use evenkeel_storage::Clock;

use super::fault::Fault;
use super::messages;
use super::reclaim;
use super::schema::OpenError;
use super::stamp::Stamps;

/// Maximum number of requests in one commit. It limits how long the first of them waits for the
/// last.
const BATCH: usize = 512;
/// Maximum number of waiting requests. When it is reached, callers wait until there is room.
const WAITING: usize = 1_024;
/// Even under constant load, a slice of dropped contents is reclaimed after this many batches.
const BATCHES_PER_RECLAIM: u32 = 16;

/// The context of a request inside its savepoint.
pub(super) struct WriteContext<'a> {
    /// The connection, on which a transaction has begun.
    pub(super) connection: &'a Connection,
    pub(super) now: Timestamp,
    stamps: &'a mut Stamps,
    reclaim: &'a mut bool,
}

impl WriteContext<'_> {
    pub(super) fn stamp(&mut self) -> i64 {
        self.stamps.next(self.now)
    }

    /// Records that a table, queue or container was dropped, so that its contents are reclaimed.
    pub(super) fn reclaim_later(&mut self) {
        *self.reclaim = true;
    }
}

/// When it is dropped, waiting requests are still executed, and the thread is joined.
#[derive(Debug)]
pub(super) struct Writer {
    requests: Option<mpsc::Sender<Box<dyn WriteRequest>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        path: &Path,
        connection: Connection,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("evenkeel-store-writer".to_owned())
            .spawn(move || run(&connection, clock.as_ref(), receiver))
            .map_err(|source| OpenError::Thread {
                path: path.to_owned(),
                source,
            })?;
        Ok(Self {
            requests: Some(sender),
            thread: Some(thread),
        })
    }

    /// Executes a request in the transaction of its batch and waits for the commit.
    pub(super) async fn execute<T, F>(&self, work: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteContext<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let request = WriteTask {
            work: Some(work),
            result: None,
            reply,
        };
        let gone = || Fault::transient("the writer of the embedded store has stopped");
        self.requests
            .as_ref()
            .ok_or_else(gone)?
            .send(Box::new(request))
            .await
            .map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// A request of any result type.
trait WriteRequest: Send {
    /// Whether its caller still waits.
    fn is_wanted(&self) -> bool;
    /// Does the work. Returns whether it succeeded; otherwise its savepoint is undone.
    fn execute(&mut self, writing: &mut WriteContext<'_>) -> bool;
    /// Answers the caller: with `failure` if the batch failed, otherwise with the result of the
    /// request.
    fn answer(self: Box<Self>, failure: Option<Fault>);
}

struct WriteTask<T, F> {
    work: Option<F>,
    result: Option<Result<T, Fault>>,
    reply: oneshot::Sender<Result<T, Fault>>,
}

impl<T, F> WriteRequest for WriteTask<T, F>
where
    T: Send,
    F: FnOnce(&mut WriteContext<'_>) -> Result<T, Fault> + Send,
{
    fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    fn execute(&mut self, writing: &mut WriteContext<'_>) -> bool {
        let Some(work) = self.work.take() else {
            return false;
        };
        let result = catch_unwind(AssertUnwindSafe(|| work(writing))).unwrap_or_else(|_| {
            Err(Fault::permanent(
                "a write to the embedded store panicked. This is a bug",
            ))
        });
        let succeeded = result.is_ok();
        self.result = Some(result);
        succeeded
    }

    fn answer(self: Box<Self>, failure: Option<Fault>) {
        let result = match (self.result, failure) {
            // Even a refusal may be based on earlier writes of the batch, which are undone.
            (_, Some(fault)) => Err(fault),
            (Some(result), None) => result,
            (None, None) => Err(Fault::transient("the request was not executed")),
        };
        // If the caller was dropped, nobody receives it.
        let _ = self.reply.send(result);
    }
}

fn run(
    connection: &Connection,
    clock: &dyn Clock,
    mut receiver: mpsc::Receiver<Box<dyn WriteRequest>>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    // The store may have been closed before everything was reclaimed.
    let mut reclaim = true;
    let mut batches = 0_u32;
    loop {
        let idle = receiver.is_empty();
        if reclaim && (idle || batches >= BATCHES_PER_RECLAIM) {
            batches = 0;
            // A failed slice is retried after the next deletion or opening. The dropped contents
            // are invisible meanwhile.
            reclaim = reclaim::slice(connection).unwrap_or(false);
            // Requests that arrived meanwhile go first. A store that is closing leaves the rest for
            // later.
            if reclaim && receiver.is_empty() && !receiver.is_closed() {
                continue;
            }
        }
        let Some(first) = receiver.blocking_recv() else {
            return;
        };
        batch.push(first);
        while batch.len() < BATCH {
            match receiver.try_recv() {
                Ok(request) => batch.push(request),
                Err(_) => break,
            }
        }
        batch.retain(|request| request.is_wanted());
        let failure = commit(connection, clock, &mut batch, &mut reclaim).err();
        for (place, request) in batch.drain(..).enumerate() {
            request.answer(failure.as_ref().and_then(|failure| failure.fault(place)));
        }
        batches += 1;
    }
}

enum BatchFailure {
    /// A statement of the batch itself failed, before or after its requests. Nothing was written.
    Lost(Arc<rusqlite::Error>),
    /// During a request, SQLite rolled back the whole transaction. Nothing was written.
    Undone {
        /// The position of this request, if its own result contains the reason.
        reported_by: Option<usize>,
    },
    Commit(Arc<rusqlite::Error>),
}

impl BatchFailure {
    /// The failure of the request at this position. `None` if the result of the request contains
    /// the reason.
    fn fault(&self, place: usize) -> Option<Fault> {
        match self {
            Self::Lost(error) => Some(Fault::sqlite(error)),
            Self::Undone { reported_by } if *reported_by == Some(place) => None,
            Self::Undone { .. } => Some(Fault::transient(
                "a disk failure in another request rolled this one back",
            )),
            Self::Commit(error) => Some(Fault::commit(error)),
        }
    }
}

impl From<rusqlite::Error> for BatchFailure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Lost(Arc::new(error))
    }
}

fn commit(
    connection: &Connection,
    clock: &dyn Clock,
    batch: &mut [Box<dyn WriteRequest>],
    reclaim: &mut bool,
) -> Result<(), BatchFailure> {
    if batch.is_empty() {
        return Ok(());
    }
    let result = fill(connection, clock, batch, reclaim).and_then(|()| {
        run_cached(connection, "COMMIT").map_err(|error| BatchFailure::Commit(Arc::new(error)))
    });
    if result.is_err() && !connection.is_autocommit() {
        // If this fails too, the next BEGIN reports it.
        let _ = connection.execute_batch("ROLLBACK");
    }
    result
}

fn fill(
    connection: &Connection,
    clock: &dyn Clock,
    batch: &mut [Box<dyn WriteRequest>],
    reclaim: &mut bool,
) -> Result<(), BatchFailure> {
    run_cached(connection, "BEGIN IMMEDIATE")?;
    // The clock is read only now, because another process may have written until the transaction
    // began.
    let now = clock.now();
    let kept = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (last_stamp, last_clock) = connection
        .prepare_cached("SELECT last_stamp, last_clock FROM store")?
        .query_row([], kept)?;
    messages::follow_clock(connection, last_clock, now)?;
    let mut stamps = Stamps::after(last_stamp);
    for (place, request) in batch.iter_mut().enumerate() {
        run_cached(connection, "SAVEPOINT request")?;
        let mut writing = WriteContext {
            connection,
            now: clock.now(),
            stamps: &mut stamps,
            reclaim,
        };
        let succeeded = request.execute(&mut writing);
        if connection.is_autocommit() {
            return Err(BatchFailure::Undone {
                reported_by: (!succeeded).then_some(place),
            });
        }
        if !succeeded {
            run_cached(connection, "ROLLBACK TO request")?;
        }
        run_cached(connection, "RELEASE request")?;
    }
    if let Some(last) = stamps.to_keep() {
        let sql = "UPDATE store SET last_stamp = ?1, last_clock = ?2";
        connection
            .prepare_cached(sql)?
            .execute((last, now.as_microsecond()))?;
    }
    Ok(())
}

fn run_cached(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::future::join_all;
    use rusqlite::OptionalExtension as _;

    use super::super::schema;
    use super::super::tests::ManualClock;
    use super::*;
    use evenkeel_storage::ErrorClass;

    /// A writer, a connection that sees only committed writes, and their folder.
    fn writer() -> (Writer, Connection, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let writer = Writer::start(
            &path,
            schema::open_writer(&path).unwrap(),
            Arc::new(ManualClock::default()),
        )
        .unwrap();
        (writer, schema::open_reader(&path).unwrap(), folder)
    }

    fn make(connection: &Connection, table: &str) -> Result<(), Fault> {
        connection.execute(
            "INSERT INTO tables (name, canonical) VALUES (?1, ?1)",
            [table],
        )?;
        Ok(())
    }

    fn has(connection: &Connection, table: &str) -> bool {
        let found = connection
            .query_row("SELECT 1 FROM tables WHERE name = ?1", [table], |_| Ok(()))
            .optional();
        found.unwrap().is_some()
    }

    /// Polls a future once, so that its request is sent, and leaves it pending.
    async fn begin<F: Future + Unpin>(future: &mut F) {
        let begun = futures::poll!(future);
        assert!(begun.is_pending());
    }

    #[tokio::test]
    async fn requests_that_wait_share_a_commit_and_fail_alone() {
        let (writer, reader, _folder) = writer();
        let (open, gate) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel::<()>();
        let mut first = Box::pin(writer.execute(move |_| {
            began.send(()).map_err(|_| Fault::permanent("no test"))?;
            gate.recv().map_err(|_| Fault::permanent("no gate"))
        }));
        begin(&mut first).await;
        // The batch of the first request is closed. Later requests gather for the next batch.
        begun.recv().unwrap();
        let mut kept = Box::pin(writer.execute(|writing| make(writing.connection, "kept")));
        begin(&mut kept).await;
        let mut refused = Box::pin(writer.execute(|writing| {
            make(writing.connection, "refused")?;
            Err::<(), _>(Fault::permanent("refused after writing"))
        }));
        begin(&mut refused).await;
        let mut panicking = Box::pin(writer.execute(|writing| {
            make(writing.connection, "panicked")?;
            if writing.now.as_second() > 0 {
                panic!("a bug, planted for this test")
            } else {
                Ok(())
            }
        }));
        begin(&mut panicking).await;
        let mut last = Box::pin(writer.execute(move |writing| {
            // The earlier writes of the batch are visible but not committed.
            Ok((
                has(writing.connection, "kept"),
                has(writing.connection, "refused"),
                has(&reader, "kept"),
                reader,
            ))
        }));
        begin(&mut last).await;
        open.send(()).unwrap();
        first.await.unwrap();
        kept.await.unwrap();
        assert_eq!(refused.await.unwrap_err().class, ErrorClass::Permanent);
        assert_eq!(panicking.await.unwrap_err().class, ErrorClass::Permanent);
        let (kept_seen, refused_seen, kept_committed, reader) = last.await.unwrap();
        assert_eq!(
            (kept_seen, refused_seen, kept_committed),
            (true, false, false)
        );
        assert_eq!(
            (
                has(&reader, "kept"),
                has(&reader, "refused"),
                has(&reader, "panicked")
            ),
            (true, false, false)
        );
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_breaks_nothing() {
        let (writer, reader, _folder) = writer();
        let (open, gate) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel::<()>();
        let mut running = Box::pin(writer.execute(move |writing| {
            began.send(()).map_err(|_| Fault::permanent("no test"))?;
            gate.recv().map_err(|_| Fault::permanent("no gate"))?;
            make(writing.connection, "begun")
        }));
        begin(&mut running).await;
        begun.recv().unwrap();
        let mut waiting = Box::pin(writer.execute(|writing| make(writing.connection, "waiting")));
        begin(&mut waiting).await;
        drop((running, waiting));
        open.send(()).unwrap();
        writer
            .execute(|writing| make(writing.connection, "later"))
            .await
            .unwrap();
        assert_eq!(
            (
                has(&reader, "begun"),
                has(&reader, "waiting"),
                has(&reader, "later")
            ),
            (true, false, true)
        );
    }

    #[tokio::test]
    async fn a_full_disk_fails_its_batch_and_passes() {
        let (writer, reader, _folder) = writer();
        let limit = |pages: i64| {
            writer.execute(move |writing| {
                let now: i64 =
                    writing
                        .connection
                        .pragma_query_value(None, "page_count", |row| row.get(0))?;
                writing.connection.pragma_update_and_check(
                    None,
                    "max_page_count",
                    now + pages,
                    |_| Ok(()),
                )?;
                Ok(())
            })
        };
        limit(8).await.unwrap();
        let fill = |table: &'static str| {
            writer.execute(move |writing| {
                make(writing.connection, table)?;
                let sql = "INSERT INTO large_entities VALUES (?1, zeroblob(40000))";
                writing.connection.execute(sql, [writing.stamp()])?;
                Ok(())
            })
        };
        let results = join_all(["full1", "full2", "full3", "full4"].map(fill)).await;
        let failed = results
            .into_iter()
            .filter_map(Result::err)
            .collect::<Vec<_>>();
        assert!(!failed.is_empty());
        assert!(
            failed
                .iter()
                .all(|fault| matches!(fault.class, ErrorClass::Transient { .. })),
            "{failed:?}"
        );
        limit(1_000_000).await.unwrap();
        fill("afterwards").await.unwrap();
        assert!(has(&reader, "afterwards"));
    }

    #[tokio::test]
    async fn a_refusal_based_on_a_write_of_its_batch_is_undone_with_it() {
        type Breaks = fn(&mut WriteContext<'_>) -> Result<(), Fault>;
        // The write after the requests fails.
        let afterwards: Breaks = |writing| {
            writing.stamp();
            writing.connection.execute_batch("DROP TABLE store")?;
            Ok(())
        };
        // During this request, the whole transaction is rolled back. SQLite does the same if the disk fails.
        let everything: Breaks = |writing| {
            writing.connection.execute_batch("ROLLBACK")?;
            Err(Fault::too_large("the reason"))
        };
        for (breaks, own) in [(afterwards, None), (everything, Some(ErrorClass::TooLarge))] {
            let (writer, reader, _folder) = writer();
            let (open, gate) = mpsc::channel::<()>();
            let (began, begun) = mpsc::channel::<()>();
            let mut first = Box::pin(writer.execute(move |_| {
                began.send(()).map_err(|_| Fault::permanent("no test"))?;
                gate.recv().map_err(|_| Fault::permanent("no gate"))
            }));
            begin(&mut first).await;
            begun.recv().unwrap();
            let mut made = Box::pin(writer.execute(|writing| make(writing.connection, "made")));
            begin(&mut made).await;
            let mut refused = Box::pin(writer.execute(|writing| {
                if has(writing.connection, "made") {
                    Err(Fault::no_container("table"))
                } else {
                    Ok(())
                }
            }));
            begin(&mut refused).await;
            let mut breaking = Box::pin(writer.execute(breaks));
            begin(&mut breaking).await;
            open.send(()).unwrap();
            first.await.unwrap();
            let transient = ErrorClass::Transient { retry_after: None };
            assert_eq!(
                (
                    made.await.unwrap_err().class,
                    refused.await.unwrap_err().class
                ),
                (transient, transient)
            );
            assert_eq!(breaking.await.unwrap_err().class, own.unwrap_or(transient));
            assert!(!has(&reader, "made"));
            writer
                .execute(|writing| make(writing.connection, "later"))
                .await
                .unwrap();
            assert!(has(&reader, "later"));
        }
    }

    #[tokio::test]
    async fn requests_waiting_when_the_store_closes_are_still_done() {
        let (writer, reader, _folder) = writer();
        let (open, gate) = mpsc::channel::<()>();
        let mut first =
            Box::pin(writer.execute(move |_| gate.recv().map_err(|_| Fault::permanent("no gate"))));
        begin(&mut first).await;
        let (reply, _answer) = oneshot::channel();
        let request = WriteTask {
            work: Some(move |writing: &mut WriteContext<'_>| make(writing.connection, "last")),
            result: None,
            reply,
        };
        writer
            .requests
            .as_ref()
            .unwrap()
            .try_send(Box::new(request))
            .map_err(|_| ())
            .unwrap();
        drop(first);
        open.send(()).unwrap();
        drop(writer);
        assert!(has(&reader, "last"));
    }
}
