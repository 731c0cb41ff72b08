//! The writer: one thread, one connection, many requests to a commit.
//!
//! A commit costs a sync of the disk however much it holds. So the thread takes every request that waits, up to
//! a bound, executes each inside its own savepoint, and commits once: a request that fails undoes only its own
//! work, and nobody is answered before the commit has. While one commit syncs, the next batch gathers by itself.
//!
//! A caller that goes away does no harm: a request that has not begun is dropped, one that has is committed with
//! its batch and its answer thrown away. A request that panics is undone and answered as a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use jiff::Timestamp;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::ports::Clock;

use super::fault::Fault;
use super::reclaim;
use super::schema::OpenError;
use super::stamp::Stamps;

/// Most requests of one commit. Bounds how long the first of them waits for the last.
const BATCH: usize = 512;
/// Most requests that wait before callers are held back.
const WAITING: usize = 1_024;
/// How many batches may pass before a slice of what was dropped is reclaimed, however busy the writer is.
const BATCHES_PER_RECLAIM: u32 = 16;

/// What a request works with, inside its savepoint.
pub(super) struct Writing<'a> {
    /// The connection, in a transaction.
    pub(super) connection: &'a Connection,
    /// The time of this request.
    pub(super) now: Timestamp,
    stamps: &'a mut Stamps,
    reclaim: &'a mut bool,
}

impl Writing<'_> {
    /// A new stamp.
    pub(super) fn stamp(&mut self) -> i64 {
        self.stamps.next(self.now)
    }

    /// Says that a table, queue or container was dropped whose contents are to be reclaimed.
    pub(super) fn reclaim_later(&mut self) {
        *self.reclaim = true;
    }
}

/// The thread, and the way to it. Dropping it lets waiting requests finish and joins the thread.
#[derive(Debug)]
pub(super) struct Writer {
    requests: Option<mpsc::Sender<Box<dyn Request>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(path: &Path, connection: Connection, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("evenkeel-store-writer".to_owned())
            .spawn(move || run(&connection, clock.as_ref(), receiver))
            .map_err(|source| OpenError::Thread { path: path.to_owned(), source })?;
        Ok(Self { requests: Some(sender), thread: Some(thread) })
    }

    /// Executes a request in a transaction of its batch and waits for the commit.
    pub(super) async fn execute<T, F>(&self, work: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writing<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let request = Work { work: Some(work), result: None, reply };
        let gone = || Fault::transient("the store's writer has ended");
        self.requests.as_ref().ok_or_else(gone)?.send(Box::new(request)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

/// A request whose types are forgotten.
trait Request: Send {
    /// Whether anybody still waits for it.
    fn is_wanted(&self) -> bool;
    /// Does the work. Whether it succeeded; its savepoint is undone where it did not.
    fn execute(&mut self, writing: &mut Writing<'_>) -> bool;
    /// Sends the answer: the result where there is one and the commit succeeded, else the failure.
    fn answer(self: Box<Self>, failure: Option<Fault>);
}

struct Work<T, F> {
    work: Option<F>,
    result: Option<Result<T, Fault>>,
    reply: oneshot::Sender<Result<T, Fault>>,
}

impl<T, F> Request for Work<T, F>
where
    T: Send,
    F: FnOnce(&mut Writing<'_>) -> Result<T, Fault> + Send,
{
    fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    fn execute(&mut self, writing: &mut Writing<'_>) -> bool {
        let Some(work) = self.work.take() else { return false };
        let result = catch_unwind(AssertUnwindSafe(|| work(writing)))
            .unwrap_or_else(|_| Err(Fault::permanent("a request to the embedded store panicked, which is a bug")));
        let succeeded = result.is_ok();
        self.result = Some(result);
        succeeded
    }

    fn answer(self: Box<Self>, failure: Option<Fault>) {
        let result = match (self.result, failure) {
            // A refusal stands whatever became of the batch: the request wrote nothing in either case.
            (Some(Err(fault)), _) | (_, Some(fault)) => Err(fault),
            (Some(Ok(value)), None) => Ok(value),
            (None, None) => Err(Fault::transient("the request was not executed")),
        };
        // Nobody listens where the caller was dropped.
        let _ = self.reply.send(result);
    }
}

fn run(connection: &Connection, clock: &dyn Clock, mut receiver: mpsc::Receiver<Box<dyn Request>>) {
    let mut batch = Vec::with_capacity(BATCH);
    // A store may have been closed before all was reclaimed.
    let mut reclaim = true;
    let mut batches = 0_u32;
    loop {
        let idle = receiver.is_empty();
        if reclaim && (idle || batches >= BATCHES_PER_RECLAIM) {
            batches = 0;
            // A slice that fails waits for the next deletion or opening; the dropped contents are invisible meanwhile.
            reclaim = reclaim::slice(connection).unwrap_or(false);
            // Requests that came meanwhile go first; a store that is being closed leaves the rest for later.
            if reclaim && receiver.is_empty() && !receiver.is_closed() {
                continue;
            }
        }
        let Some(first) = receiver.blocking_recv() else { return };
        batch.push(first);
        while batch.len() < BATCH {
            match receiver.try_recv() {
                Ok(request) => batch.push(request),
                Err(_) => break,
            }
        }
        batch.retain(|request| request.is_wanted());
        let failure = commit(connection, clock, &mut batch, &mut reclaim).err();
        for request in batch.drain(..) {
            request.answer(failure.as_ref().map(Failure::fault));
        }
        batches += 1;
    }
}

/// Why a whole batch failed.
enum Failure {
    /// A statement around the requests failed: nothing was written.
    Lost(Arc<rusqlite::Error>),
    /// SQLite undid the whole transaction inside a request, whose own answer says why: nothing was written.
    Undone,
    /// The commit failed.
    Commit(Arc<rusqlite::Error>),
}

impl Failure {
    fn fault(&self) -> Fault {
        match self {
            Self::Lost(error) => Fault::sqlite(error),
            Self::Undone => Fault::transient("a failure of the disk undid this request together with another"),
            Self::Commit(error) => Fault::commit(error),
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Lost(Arc::new(error))
    }
}

fn commit(connection: &Connection, clock: &dyn Clock, batch: &mut [Box<dyn Request>], reclaim: &mut bool) -> Result<(), Failure> {
    if batch.is_empty() {
        return Ok(());
    }
    let result = fill(connection, clock, batch, reclaim)
        .and_then(|()| run_cached(connection, "COMMIT").map_err(|error| Failure::Commit(Arc::new(error))));
    if result.is_err() && !connection.is_autocommit() {
        // Were this to fail too, the next BEGIN would report it.
        let _ = connection.execute_batch("ROLLBACK");
    }
    result
}

fn fill(connection: &Connection, clock: &dyn Clock, batch: &mut [Box<dyn Request>], reclaim: &mut bool) -> Result<(), Failure> {
    run_cached(connection, "BEGIN IMMEDIATE")?;
    let mut stamps = Stamps::after(connection.prepare_cached("SELECT last_stamp FROM store")?.query_row([], |row| row.get(0))?);
    for request in batch {
        run_cached(connection, "SAVEPOINT request")?;
        let mut writing = Writing { connection, now: clock.now(), stamps: &mut stamps, reclaim };
        let succeeded = request.execute(&mut writing);
        if connection.is_autocommit() {
            return Err(Failure::Undone);
        }
        if !succeeded {
            run_cached(connection, "ROLLBACK TO request")?;
        }
        run_cached(connection, "RELEASE request")?;
    }
    if let Some(last) = stamps.to_keep() {
        connection.prepare_cached("UPDATE store SET last_stamp = ?1")?.execute([last])?;
    }
    Ok(())
}

fn run_cached(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
