//! The layout of the file, its version, and how a connection to it is set up.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// The version of the layout below, in `PRAGMA user_version`.
const VERSION: i64 = 1;
/// "evkl" in `PRAGMA application_id`: tells our files from other programs' SQLite files.
const APPLICATION: i64 = 0x6576_6b6c;

/// How often a connection asks for a lock that another process holds, a millisecond apart: a writer that
/// commits batch after batch leaves only short gaps, which SQLite's own growing pauses would keep missing.
const LOCK_TRIES: i32 = 15_000;

/// Notes on the layout:
/// - `stamp` is the version that a write left: unique in the file, ever rising, also the Timestamp.
/// - Large properties lie apart (`properties` is null then): SQLite reads a whole record to compare its key.
/// - A message's row number is the stamp of its put, so that equal visibility sorts by insertion.
/// - `queues.messages` counts, so that the approximate count costs the same at any length.
/// - The blocks of a blob that is made of some lie apart, each under a stamp of its own, so that the next version has those that stay
///   without writing them again: `blocks` has the name, 16 bytes, and the length of each; `parts` the stamp and the length.
/// - `last_clock` is the clock of the last write, in microseconds since 1970.
/// - `dropped` names the deleted tables, queues and containers with contents still to be reclaimed.
const LAYOUT: &str = "
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1), identity INTEGER NOT NULL, last_stamp INTEGER NOT NULL,
    last_clock INTEGER NOT NULL
) STRICT;
INSERT INTO store VALUES (1, random(), 0, 0);

CREATE TABLE tables (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, canonical TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE entities (
    table_id INTEGER NOT NULL, pk TEXT NOT NULL, rk TEXT NOT NULL, stamp INTEGER NOT NULL, properties BLOB,
    PRIMARY KEY (table_id, pk, rk)
) STRICT, WITHOUT ROWID;
CREATE TABLE large_entities (stamp INTEGER PRIMARY KEY, properties BLOB NOT NULL) STRICT;

CREATE TABLE queues (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, messages INTEGER NOT NULL) STRICT;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY, queue_id INTEGER NOT NULL, visible INTEGER NOT NULL, expires INTEGER, inserted INTEGER NOT NULL,
    dequeues INTEGER NOT NULL, receipt INTEGER NOT NULL, text TEXT NOT NULL
) STRICT;
CREATE INDEX messages_by_visibility ON messages (queue_id, visible);

CREATE TABLE containers (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE blobs (
    container_id INTEGER NOT NULL, name TEXT NOT NULL, stamp INTEGER NOT NULL, length INTEGER NOT NULL,
    append INTEGER NOT NULL, PRIMARY KEY (container_id, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE blob_headers (
    stamp INTEGER PRIMARY KEY, content_type TEXT NOT NULL, cache_control TEXT, metadata TEXT NOT NULL, blocks BLOB, parts BLOB
) STRICT;
CREATE TABLE blob_blocks (
    id INTEGER PRIMARY KEY, stamp INTEGER NOT NULL, number INTEGER NOT NULL, content BLOB NOT NULL, UNIQUE (stamp, number)
) STRICT;

CREATE TABLE waiting_blocks (
    stamp INTEGER PRIMARY KEY, container_id INTEGER NOT NULL, name TEXT NOT NULL, block BLOB NOT NULL, content BLOB NOT NULL,
    UNIQUE (container_id, name, block)
) STRICT;

CREATE TABLE dropped (kind TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (kind, id)) STRICT, WITHOUT ROWID;
";

/// Why a file cannot be opened as an embedded store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its folder cannot be made.
    #[error("cannot create the folder of the embedded store {}", .path.display())]
    Folder {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be made.
    #[error("cannot create the embedded store {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// SQLite cannot open or read it.
    #[error("cannot open the embedded store {}: {problem}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why: the library's error would say it twice as a source.
        problem: String,
    },
    /// It is another program's.
    #[error("{} is an SQLite file of another program, not an embedded store", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Another version of this program wrote it.
    #[error("the embedded store {} has layout version {found}; this program reads version {VERSION}", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// The file system does not support the write-ahead log (network file systems do not).
    #[error("the file system of {} does not support SQLite's write-ahead log (journal mode {mode:?})", .path.display())]
    NoWriteAheadLog {
        /// The file.
        path: PathBuf,
        /// The journal mode that it supports.
        mode: String,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread for the embedded store {}", .path.display())]
    Thread {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl OpenError {
    /// SQLite's error about this file.
    pub(super) fn sqlite(path: &Path) -> impl Fn(rusqlite::Error) -> Self + Copy {
        move |error| Self::Sqlite {
            path: path.to_owned(),
            problem: error.to_string(),
        }
    }
}

/// Opens a connection that writes, creating folder, file and layout where there are none.
pub(super) fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    make_private(path)?;
    let sqlite = OpenError::sqlite(path);
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE).map_err(sqlite)?;
    prepare_layout(path, &mut connection)?;
    // One sync of the log per commit: an acknowledged write survives a power cut. (fullfsync is for macOS, where
    // an ordinary sync stops at the drive's cache.)
    connection
        .execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA cache_size = -4096;",
        )
        .map_err(sqlite)?;
    // What is deleted is overwritten with zeros: an erased entity must not stay readable in free pages of the file.
    connection
        .execute_batch("PRAGMA secure_delete = ON;")
        .map_err(sqlite)?;
    // Statement journals of savepoints stay in memory; a log that grew shrinks again to 64 MiB.
    connection
        .execute_batch("PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;")
        .map_err(sqlite)?;
    Ok(connection)
}

/// Makes the folder (mode 0700) and the file (0600) where they are not there: entities and messages are no other user's of the machine.
/// Beside it SQLite makes the log and its index with the file's own mode. An existing file keeps its mode.
fn make_private(path: &Path) -> Result<(), OpenError> {
    let mut folders = std::fs::DirBuilder::new();
    folders.recursive(true);
    let mut file = std::fs::OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        folders.mode(0o700);
        file.mode(0o600);
    }
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        folders.create(folder).map_err(|source| OpenError::Folder {
            path: path.to_owned(),
            source,
        })?;
    }
    match file.open(path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => Err(OpenError::File {
            path: path.to_owned(),
            source,
        }),
        // It is there already. It is not opened here: to close it would end the locks that another connection of this process has.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Opens a connection that only reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let sqlite = OpenError::sqlite(path);
    let connection = connect(path, OpenFlags::empty()).map_err(sqlite)?;
    connection
        .execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -4096;")
        .map_err(sqlite)?;
    Ok(connection)
}

fn connect(path: &Path, more: OpenFlags) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more,
    )?;
    connection.set_prepared_statement_cache_capacity(128);
    connection.busy_handler(Some(|tries| {
        std::thread::sleep(Duration::from_millis(1));
        tries < LOCK_TRIES
    }))?;
    // Memory-mapped files and several processes do not go together.
    connection.execute_batch("PRAGMA mmap_size = 0; PRAGMA foreign_keys = OFF;")?;
    Ok(connection)
}

fn prepare_layout(path: &Path, connection: &mut Connection) -> Result<(), OpenError> {
    let sqlite = OpenError::sqlite(path);
    // Larger pages than the default: a whole entity of ordinary size fits beside its neighbours. Only a new file takes it.
    connection
        .execute_batch("PRAGMA page_size = 8192;")
        .map_err(sqlite)?;
    // In one snapshot: another process that makes the layout between two of its looks would make the file look like another program's.
    let snapshot = connection.transaction().map_err(sqlite)?;
    let found = version(path, &snapshot)?;
    drop(snapshot);
    let mode = write_ahead_log(connection).map_err(sqlite)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(OpenError::NoWriteAheadLog {
            path: path.to_owned(),
            mode,
        });
    }
    if found == VERSION {
        return Ok(());
    }
    // Two processes may open a new file at once: the second one finds the layout made.
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(sqlite)?;
    let found = version(path, &transaction)?;
    if found == VERSION {
        return Ok(());
    }
    transaction.execute_batch(LAYOUT).map_err(sqlite)?;
    transaction
        .pragma_update(None, "application_id", APPLICATION)
        .map_err(sqlite)?;
    transaction
        .pragma_update(None, "user_version", VERSION)
        .map_err(sqlite)?;
    transaction.commit().map_err(sqlite)
}

/// The layout's version, 0 for a file without one.
fn version(path: &Path, connection: &Connection) -> Result<i64, OpenError> {
    let sqlite = OpenError::sqlite(path);
    let number = |name| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(sqlite)
    };
    let (application, found) = (number("application_id")?, number("user_version")?);
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(sqlite)?;
    if tables == 0 && application == 0 && found == 0 {
        return Ok(0);
    }
    if application != APPLICATION || found < 1 {
        return Err(OpenError::Foreign {
            path: path.to_owned(),
        });
    }
    if found == VERSION {
        Ok(found)
    } else {
        Err(OpenError::Version {
            path: path.to_owned(),
            found,
        })
    }
}

/// Turns the write-ahead log on. Two processes that do so at once can meet in a way that SQLite's busy handler
/// is not asked about, so this asks again itself.
fn write_ahead_log(connection: &Connection) -> rusqlite::Result<String> {
    let mut tries = 0;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && tries < 1_000 =>
            {
                tries += 1;
            }
            result => return result,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
