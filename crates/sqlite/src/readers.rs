//! Reader threads. Each has its own connection, sees the last commit and never waits for the
//! writer.
//!
//! Opening a snapshot takes file locks and, after a write, discards the cached pages. So a thread
//! first takes all waiting reads, up to a limit, and then opens one snapshot for them. Each read
//! sees every earlier commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fault::Fault;
use super::schema::{self, OpenError};
use evenkeel_storage::system::half_of_the_cores;

/// Maximum number of threads. There is one for every two cores. A read is short and seldom waits
/// for the disk.
const THREADS: usize = 3;
/// Maximum number of reads that share one snapshot. It limits how long the last read waits for the
/// others.
const TOGETHER: usize = 64;

/// Runs a read and sends its result. The argument is a snapshot, or the failure to open one.
type Read = Box<dyn FnOnce(Result<&Connection, Fault>) + Send>;

/// When it is dropped, waiting reads are still executed, and the threads are joined.
#[derive(Debug)]
pub(super) struct Readers {
    reads: Option<Sender<Read>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(super) fn start(path: &Path) -> Result<Self, OpenError> {
        let (sender, receiver) = channel::<Read>();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut readers = Self {
            reads: Some(sender),
            threads: Vec::new(),
        };
        let threads = half_of_the_cores().min(THREADS);
        for number in 0..threads {
            let connection = schema::open_reader(path)?;
            let receiver = Arc::clone(&receiver);
            let thread = thread::Builder::new()
                .name(format!("evenkeel-store-reader-{number}"))
                .spawn(move || run(&connection, &receiver))
                .map_err(|source| OpenError::Thread {
                    path: path.to_owned(),
                    source,
                })?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let gone = || Fault::transient("the readers of the embedded store have stopped");
        let read: Read = Box::new(move |snapshot| {
            // If the caller was dropped meanwhile, the result is discarded.
            if !reply.is_closed() {
                let _ = reply.send(snapshot.and_then(|connection| caught(connection, work)));
            }
        });
        self.reads
            .as_ref()
            .ok_or_else(gone)?
            .send(read)
            .map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads = None;
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, receiver: &Mutex<Receiver<Read>>) {
    let mut reads = Vec::with_capacity(TOGETHER);
    loop {
        {
            // The lock is held while waiting: its holder takes the next reads, and the other
            // threads wait for the lock.
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(first) = receiver.recv() else { return };
            reads.push(first);
            reads.extend(receiver.try_iter().take(TOGETHER - 1));
        }
        let snapshot = Snapshot::open(connection).map_err(Arc::new);
        for read in reads.drain(..) {
            read(
                snapshot
                    .as_ref()
                    .map(|snapshot| snapshot.0)
                    .map_err(Fault::sqlite),
            );
        }
    }
}

fn caught<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(|| work(connection))).unwrap_or_else(|_| {
        Err(Fault::permanent(
            "a read of the embedded store panicked. This is a bug",
        ))
    })
}

/// A read transaction, so all its reads see the same state.
struct Snapshot<'a>(&'a Connection);

impl<'a> Snapshot<'a> {
    fn open(connection: &'a Connection) -> rusqlite::Result<Self> {
        if !connection.is_autocommit() {
            // Ending the previous snapshot failed.
            connection.execute_batch("ROLLBACK")?;
        }
        connection.prepare_cached("BEGIN")?.execute([])?;
        Ok(Self(connection))
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // If this fails, `open` rolls this snapshot back before the next one begins.
        let _ = self
            .0
            .prepare_cached("COMMIT")
            .and_then(|mut commit| commit.execute([]));
    }
}
