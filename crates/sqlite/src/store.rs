//! Opens the store and connects the ports with the threads.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Params};

use evenkeel_model::AccountName;
use evenkeel_storage::{Account, Clock, Resource, Rng, StoreError, Subject};

use super::fault::Fault;
use super::readers::Readers;
use super::reclaim::{self, DroppedKind};
use super::schema::{self, OpenError};
use super::writer::{WriteContext, Writer};

#[derive(Clone, Default)]
pub struct Options {
    /// Makes random pages of queries and listings short, or empty with a continuation. The service
    /// may do so at any time. For tests of continuations.
    pub short_pages: Option<Arc<dyn Rng>>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("short_pages", &self.short_pages.is_some())
            .finish()
    }
}

/// Tables, queues and blobs of one account in one SQLite file.
///
/// Any number of stores may have the same file open, in this process or in others on the same
/// machine. When the last reference to a store is dropped, waiting requests are still executed, and
/// the drop returns once the file is closed.
pub struct EmbeddedStore {
    account: AccountName,
    file: String,
    /// A random number from the creation of the file, which makes message ids unique across files.
    pub(super) identity: u64,
    pub(super) short_pages: Option<Arc<dyn Rng>>,
    clock: Arc<dyn Clock>,
    writer: Writer,
    readers: Readers,
}

impl EmbeddedStore {
    /// Opens a file, and creates it and its folder if they are missing. Blocks on the disk, so call
    /// it before the runtime is busy.
    pub fn open(
        path: &Path,
        account: AccountName,
        clock: Arc<dyn Clock>,
    ) -> Result<Account, OpenError> {
        Self::open_with(path, account, clock, &Options::default())
    }

    /// Like [`open`](Self::open), with options.
    pub fn open_with(
        path: &Path,
        account: AccountName,
        clock: Arc<dyn Clock>,
        options: &Options,
    ) -> Result<Account, OpenError> {
        // The path is made absolute. Then it does not depend on the working directory, and SQLite
        // does not give it a special meaning (as it does to ":memory:").
        let path = std::path::absolute(path).map_err(|source| OpenError::Folder {
            path: path.to_owned(),
            source,
        })?;
        let connection = schema::open_writer(&path)?;
        let identity: i64 = connection
            .query_row("SELECT identity FROM store", [], |row| row.get(0))
            .map_err(OpenError::sqlite(&path))?;
        let store = Arc::new(Self {
            account,
            file: path.display().to_string(),
            identity: identity.cast_unsigned(),
            short_pages: options.short_pages.clone(),
            clock: Arc::clone(&clock),
            readers: Readers::start(&path)?,
            writer: Writer::start(&path, connection, clock)?,
        });
        // The store uses this machine's clock, so there are no offsets to measure.
        Ok(Account {
            tables: store.clone(),
            queues: store.clone(),
            blobs: store,
            clocks: Arc::default(),
        })
    }

    /// Executes a write and waits until it is on the disk.
    pub(super) async fn write<T, F>(
        &self,
        operation: &'static str,
        what: impl FnOnce() -> Resource,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteContext<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.writer
            .execute(work)
            .await
            .map_err(|fault| self.error(operation, what(), fault))
    }

    /// Inserts the row of a table, queue or container. Returns whether it is new.
    pub(super) async fn create(
        &self,
        operation: &'static str,
        what: impl FnOnce() -> Resource,
        sql: &'static str,
        values: impl Params + Send + 'static,
    ) -> Result<bool, StoreError> {
        self.write(operation, what, move |writing| {
            let inserted = writing.connection.prepare_cached(sql)?.execute(values)?;
            Ok(inserted > 0)
        })
        .await
    }

    /// Deletes the row of a table, queue or container. Its contents are reclaimed later. Returns
    /// whether it existed.
    pub(super) async fn delete_with_contents(
        &self,
        operation: &'static str,
        what: impl FnOnce() -> Resource,
        kind: DroppedKind,
        sql: &'static str,
        name: String,
    ) -> Result<bool, StoreError> {
        self.write(operation, what, move |writing| {
            let mut statement = writing.connection.prepare_cached(sql)?;
            let deleted = statement.query_row([name], |row| row.get(0)).optional()?;
            let Some(id) = deleted else { return Ok(false) };
            reclaim::remember(writing.connection, kind, id)?;
            writing.reclaim_later();
            Ok(true)
        })
        .await
    }

    /// Reads in one snapshot of the last commit.
    pub(super) async fn read<T, F>(
        &self,
        operation: &'static str,
        what: impl FnOnce() -> Resource,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        self.readers
            .read(work)
            .await
            .map_err(|fault| self.error(operation, what(), fault))
    }

    pub(super) fn error(
        &self,
        operation: &'static str,
        what: Resource,
        fault: impl Into<Fault>,
    ) -> StoreError {
        fault.into().into_error(
            operation,
            Subject {
                account: self.account.clone(),
                resource: what,
            },
            &self.file,
        )
    }

    /// The clock's time, for reads. The writer gives writes their time.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The limit of one page: `limit`, or a random number from 0 to `limit` if `short_pages` is
    /// set.
    pub(super) fn page_limit(&self, limit: usize) -> usize {
        let Some(rng) = &self.short_pages else {
            return limit;
        };
        let draw = rng.next_u64();
        match draw % 3 {
            0 => 0,
            1 => usize::try_from(draw >> 32).unwrap_or(usize::MAX) % (limit + 1),
            _ => limit,
        }
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("account", &self.account)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}
