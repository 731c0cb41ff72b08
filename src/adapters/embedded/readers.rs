//! The readers: a few threads, each with its own connection, which see the last commit and never wait for the
//! writer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fault::Fault;
use super::schema::{self, OpenError};

/// How many threads read. A read is short and seldom waits for the disk.
const THREADS: usize = 3;

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The threads, and the way to them. Dropping them lets waiting reads finish and joins the threads.
#[derive(Debug)]
pub(super) struct Readers {
    reads: Option<Sender<Read>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts the threads.
    pub(super) fn start(path: &Path) -> Result<Self, OpenError> {
        let (sender, receiver) = channel::<Read>();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut readers = Self { reads: Some(sender), threads: Vec::new() };
        for number in 0..THREADS {
            let connection = schema::open_reader(path)?;
            let receiver = Arc::clone(&receiver);
            let thread = std::thread::Builder::new()
                .name(format!("evenkeel-store-reader-{number}"))
                .spawn(move || run(&connection, &receiver))
                .map_err(|source| OpenError::Thread { path: path.to_owned(), source })?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Reads in one snapshot.
    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let gone = || Fault::transient("the store's readers have ended");
        let read: Read = Box::new(move |connection| {
            // A caller that went away before its turn needs no answer; one that goes now is not listening.
            if !reply.is_closed() {
                let _ = reply.send(snapshot(connection, work));
            }
        });
        self.reads.as_ref().ok_or_else(gone)?.send(read).map_err(|_| gone())?;
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
    loop {
        // The lock is held while waiting: its holder takes the next read, the others wait for the lock instead.
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(read) => read(connection),
            Err(_) => return,
        }
    }
}

/// Everything that one request reads is of one moment.
fn snapshot<T>(connection: &Connection, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
    if !connection.is_autocommit() {
        // The end of an earlier read failed.
        connection.execute_batch("ROLLBACK")?;
    }
    connection.prepare_cached("BEGIN")?.execute([])?;
    let result = catch_unwind(AssertUnwindSafe(|| work(connection)))
        .unwrap_or_else(|_| Err(Fault::permanent("a read of the embedded store panicked, which is a bug")));
    connection.prepare_cached("COMMIT")?.execute([])?;
    result
}
