//! The layout of the file, its version, and the setup of connections.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// Version of the layout below, in `PRAGMA user_version`.
const VERSION: i64 = 1;
/// "evkl" in `PRAGMA application_id`, which distinguishes our files from SQLite files of other
/// programs.
const APPLICATION: i64 = 0x6576_6b6c;

/// How often a connection retries a lock that another process holds, once per millisecond. A writer
/// that commits batch after batch leaves only short gaps, which SQLite's own growing pauses would
/// miss again and again.
const LOCK_TRIES: i32 = 15_000;

/// Notes on the layout:
/// - `stamp` is the version that a write made: unique in the file, increasing, and also the
///   Timestamp.
/// - Large properties are stored separately (`properties` is null then), because SQLite reads a
///   whole record to compare its key.
/// - The row number of a message is the stamp of its put, so messages of equal visibility are
///   sorted by insertion.
/// - `queues.messages` is a counter, so the approximate count costs the same at any length.
/// - The blocks of a blob are stored separately, each under its own stamp, so the next version
///   reuses unchanged blocks without writing them again. `blocks` has the name (16 bytes) and the
///   length of each, `parts` the stamp and the length.
/// - `last_clock` is the clock of the last write, in microseconds since 1970.
/// - `dropped` lists the deleted tables, queues and containers whose contents are not yet
///   reclaimed.
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
    #[error("could not create the folder of the embedded store {}", .path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("could not create the embedded store {}", .path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("could not open the embedded store {}: {problem}", .path.display())]
    Sqlite {
        path: PathBuf,
        /// The text of the library's error. If the error were the source, it would be printed
        /// twice.
        problem: String,
    },
    #[error("{} is an SQLite file of another program, not an embedded store", .path.display())]
    Foreign { path: PathBuf },
    #[error("the embedded store {} has layout version {found}; this program reads version {VERSION}", .path.display())]
    Version { path: PathBuf, found: i64 },
    /// Network file systems do not support the write-ahead log.
    #[error("the file system of {} does not support SQLite's write-ahead log (journal mode {mode:?})", .path.display())]
    NoWriteAheadLog {
        path: PathBuf,
        /// The journal mode that the file system supports.
        mode: String,
    },
    #[error("could not start a thread for the embedded store {}", .path.display())]
    Thread {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl OpenError {
    pub(super) fn sqlite(path: &Path) -> impl Fn(rusqlite::Error) -> Self + Copy {
        move |error| Self::Sqlite {
            path: path.to_owned(),
            problem: error.to_string(),
        }
    }
}

/// Opens the writing connection. Creates the folder, the file and the layout if they are missing.
pub(super) fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    make_private(path)?;
    let sqlite = OpenError::sqlite(path);
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE).map_err(sqlite)?;
    prepare_layout(path, &mut connection)?;
    // One sync of the log per commit, so that an acknowledged write survives a power cut.
    // `fullfsync` is for macOS, where an ordinary sync stops at the cache of the drive.
    connection
        .execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA cache_size = -4096;",
        )
        .map_err(sqlite)?;
    // Deleted data is overwritten with zeros, because an erased entity must not stay readable in
    // free pages of the file.
    connection
        .execute_batch("PRAGMA secure_delete = ON;")
        .map_err(sqlite)?;
    // Statement journals of savepoints stay in memory. A log that has grown is truncated to 64 MiB.
    connection
        .execute_batch("PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;")
        .map_err(sqlite)?;
    Ok(connection)
}

/// Creates the folder (mode 0700) and the file (0600) if they are missing, so that other users of
/// the machine cannot read entities and messages. SQLite gives the log and its index the mode of
/// the file. An existing file keeps its mode.
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
        // An existing file is not opened here, because closing it would release the locks of other
        // connections of this process.
        Ok(_) | Err(_) => Ok(()),
    }
}

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
    // Memory-mapped files are unsafe with several processes.
    connection.execute_batch("PRAGMA mmap_size = 0; PRAGMA foreign_keys = OFF;")?;
    Ok(connection)
}

fn prepare_layout(path: &Path, connection: &mut Connection) -> Result<(), OpenError> {
    let sqlite = OpenError::sqlite(path);
    // Pages are larger than the default, so that an entity of ordinary size is stored in the same
    // page as its neighbours. Only a new file takes this setting.
    connection
        .execute_batch("PRAGMA page_size = 8192;")
        .map_err(sqlite)?;
    // Read in one snapshot. If another process created the layout between two reads, the file would
    // look like one of another program.
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
    // Two processes may open a new file at the same time; the second finds the layout in place.
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

/// 0 for an empty file.
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

/// Switches the write-ahead log on. If two processes do so at the same time, SQLite may report a
/// conflict without calling its busy handler, so this retries itself.
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
