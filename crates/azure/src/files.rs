//! Files in a folder that all workers share.
//!
//! A file is replaced as a whole: the content is written under a temporary name and flushed to disk, the file is renamed, and
//! the folder is flushed. A reader sees the old or the new file, and an acknowledged write survives a power failure.
//!
//! Conditions are checked under a kernel lock, which is released when the process ends for any reason. There are 64 lock files
//! in `<folder>/.evenkeel`. The lower-case name of a file selects one of them. The file system must propagate locks between
//! hosts, as NFS 4, SMB and Azure Files do.
//!
//! A share may execute a rename long after its client gave up. Such a late rename must not replace a newer file. So each write
//! uses a temporary name of its own, which begins with the number of the lock. Whoever takes the lock next removes the
//! temporary files with its number. A late rename then finds no file. At most 64 temporary files remain after crashes.
//!
//! A file that may be too large for memory is written in pieces under one lock, and its content never changes afterwards. It is
//! identified by its mark: inode, modification time and length. To give a file a new mark, its modification time is set two
//! seconds later.
//!
//! File systems block, so the work runs on threads. It continues if its caller is dropped: a write that has begun completes
//! under its lock and condition. If a write of this process holds a lock, other writes of this process wait for this lock
//! without a thread. Otherwise, they could occupy all threads, and the write that holds the lock would get no thread for its next piece.

use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::sync::{Mutex, OwnedMutexGuard};

use evenkeel_model::{AccountName, ETag};
use evenkeel_storage::files::version;
use evenkeel_storage::{
    BlobCondition, ErrorClass, File, FileInfo, FilePlace, FileStore, Pieces, Resource, StoreError,
    Subject,
};

/// Number of locks per folder, and so of concurrent writes.
const LOCKS: u8 = 64;
/// Folder of locks and temporary files. No document can be there, because a leading dot is escaped in document paths.
const LOCK_FOLDER: &str = ".evenkeel";

#[derive(Debug, Clone, Copy, Default)]
pub struct SharedFiles;

enum Fault {
    ConditionFailed(ErrorClass, &'static str),
    NoFolder,
    /// The file system reported an error before the change.
    Io(io::Error),
    /// The error occurred during or after the rename, removal or marking. A call over a network may have been executed, and a
    /// power failure may undo it.
    Ambiguous(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Fault {
    fn of_change(error: io::Error) -> Self {
        if refusal(&error).is_some() {
            Self::Io(error)
        } else {
            Self::Ambiguous(error)
        }
    }
}

#[async_trait]
impl FileStore for SharedFiles {
    async fn read(&self, place: &FilePlace) -> Result<Option<File>, StoreError> {
        run_blocking("Read File", place, |place| {
            let found = read(&target(place)?)?;
            Ok(found.map(|content| File {
                etag: version(&content),
                content: content.into(),
            }))
        })
        .await
    }

    async fn write(
        &self,
        place: &FilePlace,
        content: Bytes,
        condition: &BlobCondition,
    ) -> Result<ETag, StoreError> {
        let condition = condition.clone();
        under_lock("Write File", place, move |place, target, lock| {
            let there = read(&target)?.map(|content| version(&content));
            admits(&condition, there.as_ref())?;
            lock.replace(place, &target, &content)?;
            Ok(version(&content))
        })
        .await
    }

    async fn delete(&self, place: &FilePlace, if_match: &ETag) -> Result<bool, StoreError> {
        let wanted = if_match.clone();
        under_lock("Delete File", place, move |_, target, _lock| {
            let Some(content) = read(&target)? else {
                return Ok(false);
            };
            admits(&BlobCondition::Matches(wanted), Some(&version(&content)))?;
            remove_and_flush(&target)?;
            Ok(true)
        })
        .await
    }

    async fn find(&self, place: &FilePlace) -> Result<Option<FileInfo>, StoreError> {
        run_blocking("Find File", place, |place| {
            Ok(found(&target(place)?)?.map(|(_, found)| found))
        })
        .await
    }

    async fn read_at(
        &self,
        place: &FilePlace,
        range: Range<u64>,
        mark: &ETag,
    ) -> Result<Bytes, StoreError> {
        let wanted = mark.clone();
        run_blocking("Read File", place, move |place| {
            let (mut file, _) = at_mark(&target(place)?, &wanted)?;
            file.seek(SeekFrom::Start(range.start))?;
            let mut bytes = Vec::new();
            file.take(range.end.saturating_sub(range.start))
                .read_to_end(&mut bytes)?;
            Ok(bytes.into())
        })
        .await
    }

    async fn write_pieces(
        &self,
        place: &FilePlace,
        mut pieces: Pieces<'_>,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Write File";
        let mut begun = under_lock(NAME, place, |_, target, lock| {
            if found(&target)?.is_some() {
                return Err(Fault::ConditionFailed(
                    ErrorClass::Conflict,
                    "the file already exists",
                ));
            }
            let file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .open(&lock.temporary)?;
            Ok(PartialFile { lock, file, target })
        })
        .await?;
        while let Some(piece) = pieces.next().await {
            let written = match piece {
                Ok(piece) => run_blocking(NAME, place, move |_| begun.add(&piece)).await,
                Err(error) => Err(error),
            };
            begun = written?;
        }
        run_blocking(NAME, place, move |place| begun.end(place)).await
    }

    async fn renew(&self, place: &FilePlace, mark: &ETag) -> Result<ETag, StoreError> {
        let wanted = mark.clone();
        under_lock("Renew File", place, move |_, target, _lock| {
            at_mark(&target, &wanted)?;
            let file = OpenOptions::new().write(true).open(&target)?;
            let later = file.metadata()?.modified()? + RENEWED;
            file.set_modified(later).map_err(Fault::of_change)?;
            file.sync_all()
                .and_then(|()| mark_of(&file.metadata()?))
                .map_err(Fault::Ambiguous)
        })
        .await
    }

    async fn remove(&self, place: &FilePlace, mark: &ETag) -> Result<bool, StoreError> {
        let wanted = mark.clone();
        under_lock("Delete File", place, move |place, target, _lock| {
            if found(&target)?.is_none() {
                return Ok(false);
            }
            at_mark(&target, &wanted)?;
            remove_and_flush(&target)?;
            if let Some(parent) = target
                .parent()
                .filter(|parent| *parent != Path::new(&place.dir))
            {
                // If the folder is not empty, this fails harmlessly. If it is empty, but a concurrent writer is about to use
                // it, that writer gets a transient error and tries again.
                drop(fs::remove_dir(parent));
            }
            Ok(true)
        })
        .await
    }
}

/// Difference between the modification times of an old and a new mark: the coarsest resolution of modification times in any
/// file system.
const RENEWED: Duration = Duration::from_secs(2);

/// Opens an existing file and returns its mark and length.
fn found(path: &Path) -> io::Result<Option<(fs::File, FileInfo)>> {
    if !is_plain(path) {
        return Ok(None);
    }
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(None);
    }
    let found = FileInfo {
        mark: mark_of(&metadata)?,
        length: metadata.len(),
    };
    Ok(Some((file, found)))
}

fn at_mark(path: &Path, wanted: &ETag) -> Result<(fs::File, FileInfo), Fault> {
    match found(path)? {
        Some((file, found)) if found.mark == *wanted => Ok((file, found)),
        Some(_) => Err(Fault::ConditionFailed(
            ErrorClass::Precondition,
            "the file has been replaced",
        )),
        None => Err(Fault::ConditionFailed(
            ErrorClass::Precondition,
            "the file does not exist",
        )),
    }
}

fn mark_of(metadata: &fs::Metadata) -> io::Result<ETag> {
    let modified = metadata
        .modified()?
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_err(io::Error::other)?;
    ETag::new(format!(
        "\"{}-{}-{}\"",
        number(metadata),
        modified.as_nanos(),
        metadata.len()
    ))
    .map_err(io::Error::other)
}

/// The inode, or 0 on a platform without inodes.
#[cfg(unix)]
fn number(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn number(_: &fs::Metadata) -> u64 {
    0
}

struct PartialFile {
    lock: Lock,
    file: fs::File,
    target: PathBuf,
}

impl PartialFile {
    fn add(mut self, piece: &[u8]) -> Result<Self, Fault> {
        match self.file.write_all(piece) {
            Ok(()) => Ok(self),
            Err(error) => {
                // The partial file occupies space on a disk that may be full.
                drop(fs::remove_file(&self.lock.temporary));
                Err(error.into())
            }
        }
    }

    fn end(self, place: &FilePlace) -> Result<ETag, Fault> {
        self.file.sync_all()?;
        make_folders(Path::new(&place.dir), &self.target)?;
        publish(&self.lock.temporary, &self.target)?;
        flush_folder(self.target.parent())
            .and_then(|()| mark_of(&self.file.metadata()?))
            .map_err(Fault::Ambiguous)
    }
}

/// Runs work on a file under its lock. `work` receives the path.
async fn under_lock<T: Send + 'static>(
    operation: &'static str,
    place: &FilePlace,
    work: impl FnOnce(&FilePlace, PathBuf, Lock) -> Result<T, Fault> + Send + 'static,
) -> Result<T, StoreError> {
    let slot = slot_of(place).await;
    run_blocking(operation, place, |place| {
        work(place, target(place)?, Lock::take(place, slot)?)
    })
    .await
}

async fn run_blocking<T: Send + 'static>(
    operation: &'static str,
    place: &FilePlace,
    work: impl FnOnce(&FilePlace) -> Result<T, Fault> + Send + 'static,
) -> Result<T, StoreError> {
    let about = place.clone();
    let ended = tokio::task::spawn_blocking(move || work(&about)).await;
    let subject = || Subject {
        account: AccountName::main(),
        resource: Resource::File(place.dir.clone(), place.name.clone()),
    };
    let transient = ErrorClass::Transient { retry_after: None };
    match ended {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(Fault::ConditionFailed(class, message))) => {
            Err(StoreError::new(class, operation, subject(), message))
        }
        Ok(Err(Fault::NoFolder)) => {
            let message = format!(
                "the folder {:?} does not exist. Is the share mounted? The folder is not created, because that would hide a missing mount",
                place.dir
            );
            Err(StoreError::new(transient, operation, subject(), message))
        }
        Ok(Err(Fault::Io(error))) => {
            let (class, message) = meaning(&error);
            Err(StoreError::new(class, operation, subject(), message).with_cause(error))
        }
        Ok(Err(Fault::Ambiguous(error))) => {
            let message =
                "the file system failed during the change, which may or may not have been made";
            Err(
                StoreError::new(ErrorClass::Ambiguous, operation, subject(), message)
                    .with_cause(error),
            )
        }
        Err(error) => Err(StoreError::new(
            ErrorClass::Ambiguous,
            operation,
            subject(),
            "the file operation stopped unexpectedly; it may or may not have been executed",
        )
        .with_cause(error)),
    }
}

fn meaning(error: &io::Error) -> (ErrorClass, &'static str) {
    // A network share may come back, so other errors are transient.
    refusal(error).unwrap_or((
        ErrorClass::Transient { retry_after: None },
        "the file system failed",
    ))
}

/// Class and message of an error that proves that the file system has made no change. After any other error, the change may
/// have been made: the answer was lost, or the client repeated an executed call after a reconnect.
fn refusal(error: &io::Error) -> Option<(ErrorClass, &'static str)> {
    Some(match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            let message = "the disk is full, and nothing was written. Free some space; the job will be retried";
            (ErrorClass::Transient { retry_after: None }, message)
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => (
            ErrorClass::Unauthorised,
            "permission denied. This process needs to read and write in this folder",
        ),
        ErrorKind::InvalidFilename => (
            ErrorClass::Permanent,
            "the file system does not allow this name",
        ),
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => (
            ErrorClass::Permanent,
            "a file exists where a folder is needed, or a folder where a file is needed",
        ),
        _ => return None,
    })
}

/// The path of a file, if its shared folder exists.
fn target(place: &FilePlace) -> Result<PathBuf, Fault> {
    let dir = Path::new(&place.dir);
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(dir.join(place.name.as_str())),
        Ok(_) => Err(Fault::NoFolder),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Fault::NoFolder),
        Err(error) => Err(error.into()),
    }
}

/// Whether a path may be opened. Opening a pipe without a writer would block.
fn is_plain(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |found| found.is_file())
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    if !is_plain(path) {
        return Ok(None);
    }
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        // If the path is a folder or runs through a file, the file does not exist. Writing it fails.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn admits(condition: &BlobCondition, there: Option<&ETag>) -> Result<(), Fault> {
    match condition {
        BlobCondition::None => Ok(()),
        BlobCondition::Absent if there.is_none() => Ok(()),
        BlobCondition::Absent => Err(Fault::ConditionFailed(
            ErrorClass::Conflict,
            "the file already exists",
        )),
        BlobCondition::Matches(etag) if there == Some(etag) => Ok(()),
        BlobCondition::Matches(_) => Err(Fault::ConditionFailed(
            ErrorClass::Precondition,
            "the file has a different version",
        )),
    }
}

/// The number of a lock, and the right to wait for this lock. Only one write of this process has this right at a time. The
/// other writes wait for it without a thread, so at most one thread waits for the lock of another process.
type LockSlot = (u8, OwnedMutexGuard<()>);

/// Slots by shared folder, so that a folder that hangs does not block others.
type Slots = BTreeMap<(String, u8), Arc<Mutex<()>>>;

async fn slot_of(place: &FilePlace) -> LockSlot {
    static SLOTS: std::sync::Mutex<Slots> = std::sync::Mutex::new(Slots::new());
    // If the file system ignores case, two spellings are one file. Names are ASCII, because other characters are escaped.
    let number = Sha256::digest(place.name.as_str().to_ascii_lowercase())[0] % LOCKS;
    let slot = {
        let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry((place.dir.clone(), number)).or_default())
    };
    (number, slot.lock_owned().await)
}

/// A held kernel lock. It covers all files whose names select its number. When it is dropped, the kernel lock is released
/// before the slot, so that other processes get it first.
struct Lock {
    _held: fs::File,
    temporary: PathBuf,
    _slot: OwnedMutexGuard<()>,
}

impl Lock {
    fn take(place: &FilePlace, (number, slot): LockSlot) -> io::Result<Self> {
        let own = Path::new(&place.dir).join(LOCK_FOLDER);
        fs::create_dir_all(&own)?;
        let held = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(own.join(format!("{number:02}.lock")))?;
        held.lock()?;
        remove_temporaries(&own, number)?;
        Ok(Self {
            _held: held,
            temporary: own.join(temporary_name(number)?),
            _slot: slot,
        })
    }

    fn replace(&self, place: &FilePlace, target: &Path, content: &[u8]) -> Result<(), Fault> {
        let written = self
            .write(content)
            .and_then(|()| make_folders(Path::new(&place.dir), target));
        let written = written
            .map_err(Fault::Io)
            .and_then(|()| publish(&self.temporary, target));
        if written.is_err() {
            // The partial file occupies space on a disk that may be full.
            drop(fs::remove_file(&self.temporary));
        }
        written?;
        flush_folder(target.parent()).map_err(Fault::Ambiguous)
    }

    fn write(&self, content: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&self.temporary)?;
        file.write_all(content)?;
        file.sync_all()
    }
}

fn temporary_name(number: u8) -> io::Result<String> {
    let mut unique = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut unique)
        .map_err(|_| io::Error::other("the system provides no random numbers"))?;
    Ok(format!("{number:02}-{}.tmp", hex::encode(unique)))
}

fn remove_temporaries(own: &Path, number: u8) -> io::Result<()> {
    let number = format!("{number:02}-");
    for entry in fs::read_dir(own)? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(|name| {
            name.starts_with(&number) && Path::new(name).extension().is_some_and(|end| end == "tmp")
        }) {
            // A temporary file that cannot be removed does no harm.
            drop(fs::remove_file(own.join(&name)));
        }
    }
    Ok(())
}

fn publish(temporary: &Path, target: &Path) -> Result<(), Fault> {
    fs::rename(temporary, target).map_err(|error| match error.kind() {
        // The folder is gone, and the rename was not executed. If instead the temporary file is gone, the call was executed
        // and then repeated.
        ErrorKind::NotFound if temporary.exists() => Fault::Io(error),
        _ => Fault::of_change(error),
    })
}

/// Removes a file that existed a moment ago, and flushes its folder. If it is gone now, the call was executed and repeated.
fn remove_and_flush(target: &Path) -> Result<(), Fault> {
    match fs::remove_file(target) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Fault::of_change(error)),
        Ok(()) | Err(_) => flush_folder(target.parent()).map_err(Fault::Ambiguous),
    }
}

fn make_folders(dir: &Path, target: &Path) -> io::Result<()> {
    let Some(parent) = target.parent().filter(|parent| !parent.is_dir()) else {
        return Ok(());
    };
    fs::create_dir_all(parent)?;
    parent
        .ancestors()
        .skip(1)
        .take_while(|folder| folder.starts_with(dir))
        .try_for_each(|folder| flush_folder(Some(folder)))
}

/// Flushes a folder, so that the names in it survive a power failure.
fn flush_folder(folder: Option<&Path>) -> io::Result<()> {
    // Only Unix can flush a folder.
    if cfg!(unix)
        && let Some(folder) = folder
    {
        fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::BlobName;
    use futures::future::{join, join_all};
    use futures::{poll, stream};
    use tokio::sync::oneshot;

    fn place(dir: &Path, name: &str) -> FilePlace {
        FilePlace {
            dir: dir.to_str().unwrap().to_owned(),
            name: BlobName::new(name).unwrap(),
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_full_disk_is_reported_and_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "Sales/7.json");
        let old = SharedFiles
            .write(&place, Bytes::from_static(b"old"), &BlobCondition::Absent)
            .await
            .unwrap();
        // A link to /dev/full takes the place of the temporary file.
        let lock = Lock::take(&place, slot_of(&place).await).unwrap();
        std::os::unix::fs::symlink("/dev/full", &lock.temporary).unwrap();
        let written = run_blocking("Write File", &place, move |place| {
            lock.replace(place, &target(place)?, b"new")
        })
        .await;
        let error = written.unwrap_err();
        assert_eq!(error.class, ErrorClass::Transient { retry_after: None });
        assert!(
            error.to_string().contains("the disk is full")
                && error.to_string().contains("Sales/7.json"),
            "{error}"
        );
        assert_eq!(
            SharedFiles.read(&place).await.unwrap().unwrap().content,
            "old"
        );
        // The same write succeeds once there is space.
        SharedFiles
            .write(
                &place,
                Bytes::from_static(b"new"),
                &BlobCondition::Matches(old),
            )
            .await
            .unwrap();
        assert_eq!(
            SharedFiles.read(&place).await.unwrap().unwrap().content,
            "new"
        );
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_change_that_could_not_be_flushed_is_ambiguous() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "Sales/7.json");
        let old = SharedFiles
            .write(&place, Bytes::from_static(b"old"), &BlobCondition::Absent)
            .await
            .unwrap();
        // Renaming and removing files needs no permission to read their folder, but flushing it does. Root has every permission.
        let sales = folder.path().join("Sales");
        fs::set_permissions(&sales, fs::Permissions::from_mode(0o300)).unwrap();
        let expected = fs::File::open(&sales)
            .is_err()
            .then_some(ErrorClass::Ambiguous);
        let written = SharedFiles
            .write(
                &place,
                Bytes::from_static(b"new"),
                &BlobCondition::Matches(old),
            )
            .await;
        assert_eq!(
            SharedFiles.read(&place).await.unwrap().unwrap().content,
            "new"
        );
        let deleted = SharedFiles.delete(&place, &version(b"new")).await;
        assert_eq!(SharedFiles.read(&place).await.unwrap(), None);
        assert_eq!(
            [
                written.err().map(|error| error.class),
                deleted.err().map(|error| error.class)
            ],
            [expected; 2]
        );
        fs::set_permissions(&sales, fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_failed_change_over_a_network_may_have_been_made() {
        let in_doubt = |error: io::Error| matches!(Fault::of_change(error), Fault::Ambiguous(_));
        // A lost answer, a restarted server, a signal, a repetition that does not find the old name, and EIO.
        for kind in [
            ErrorKind::TimedOut,
            ErrorKind::StaleNetworkFileHandle,
            ErrorKind::Interrupted,
            ErrorKind::NotFound,
            ErrorKind::Other,
        ] {
            assert!(in_doubt(kind.into()), "{kind}");
        }
        assert!(in_doubt(io::Error::from_raw_os_error(5)) || cfg!(windows));
        for kind in [
            ErrorKind::PermissionDenied,
            ErrorKind::ReadOnlyFilesystem,
            ErrorKind::StorageFull,
            ErrorKind::IsADirectory,
        ] {
            assert!(!in_doubt(kind.into()), "{kind}");
        }
        let folder = tempfile::tempdir().unwrap();
        let (temporary, target) = (
            folder.path().join("00.tmp"),
            folder.path().join("Sales/7.json"),
        );
        let gone = publish(&temporary, &target);
        assert!(
            matches!(gone, Err(Fault::Ambiguous(_))),
            "the temporary file may have been renamed already"
        );
        fs::write(&temporary, "{}").unwrap();
        assert!(
            matches!(publish(&temporary, &target), Err(Fault::Io(_))),
            "the temporary file still exists"
        );
        assert!(
            remove_and_flush(&folder.path().join("7.json")).is_ok(),
            "it is gone"
        );
    }

    #[tokio::test]
    async fn a_failure_after_the_change_and_a_panic_are_ambiguous() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "a.json");
        let unflushed = run_blocking("Write File", &place, |_| {
            Err::<(), _>(Fault::Ambiguous(io::Error::other("the share is away")))
        })
        .await;
        let panicked = run_blocking("Write File", &place, |_| -> Result<(), Fault> {
            panic!("half-way")
        })
        .await;
        let refused = run_blocking("Write File", &place, |_| {
            Err::<(), _>(Fault::Io(io::Error::other("the share is away")))
        })
        .await;
        let classes = [unflushed, panicked, refused].map(|ended| ended.unwrap_err().class);
        assert_eq!(
            classes,
            [
                ErrorClass::Ambiguous,
                ErrorClass::Ambiguous,
                ErrorClass::Transient { retry_after: None }
            ]
        );
    }

    #[tokio::test]
    async fn names_that_differ_in_case_have_one_lock() {
        let folder = tempfile::tempdir().unwrap();
        for (one, other) in [
            ("Sales/Ann.json", "sales/ann.json"),
            ("A.json", "a.json"),
            ("X/Y.json", "x/y.json"),
        ] {
            let number = async |name| slot_of(&place(folder.path(), name)).await.0;
            assert_eq!(
                number(one).await,
                number(other).await,
                "SMB treats {one} and {other} as one file"
            );
        }
    }

    #[test]
    fn writes_that_wait_for_a_lock_occupy_no_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(2)
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (large, small) = (place(folder.path(), "a"), place(folder.path(), "A"));
        let (files, any) = (SharedFiles, BlobCondition::None);
        let (begun, is_begun) = oneshot::channel();
        let (all_wait, go_on) = oneshot::channel();
        let piece = async move {
            begun.send(()).unwrap();
            go_on.await.unwrap();
            Ok(Bytes::from_static(b"piece"))
        };
        let others = async {
            is_begun.await.unwrap();
            let mut writes = join_all((0..4).map(|_| files.write(&small, Bytes::new(), &any)));
            assert!(poll!(&mut writes).is_pending());
            all_wait.send(()).unwrap();
            writes.await
        };
        let both = join(
            files.write_pieces(&large, stream::once(piece).boxed()),
            others,
        );
        let ended =
            runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), both).await });
        let (written, others) = ended.expect("an end");
        assert!(
            written.is_ok() && others.iter().all(Result::is_ok),
            "{written:?} {others:?}"
        );
    }

    #[tokio::test]
    async fn a_share_that_is_not_mounted_is_not_taken_for_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(&folder.path().join("share"), "a.json");
        for error in [
            SharedFiles.read(&place).await.unwrap_err(),
            SharedFiles
                .write(&place, Bytes::new(), &BlobCondition::Absent)
                .await
                .unwrap_err(),
            SharedFiles.delete(&place, &version(b"")).await.unwrap_err(),
        ] {
            assert_eq!(error.class, ErrorClass::Transient { retry_after: None });
            assert!(
                error.to_string().contains("Is the share mounted?"),
                "{error}"
            );
        }
        assert!(!folder.path().join("share").exists());
    }

    #[tokio::test]
    async fn the_next_lock_holder_removes_temporary_files_of_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "a.json");
        let own = folder.path().join(LOCK_FOLDER);
        fs::create_dir(&own).unwrap();
        for number in 0..LOCKS {
            fs::write(
                own.join(temporary_name(number).unwrap()),
                "half a document and much more",
            )
            .unwrap();
        }
        SharedFiles
            .write(&place, Bytes::from_static(b"{}"), &BlobCondition::Absent)
            .await
            .unwrap();
        assert_eq!(
            SharedFiles.read(&place).await.unwrap().unwrap().content,
            "{}"
        );
        let left = fs::read_dir(&own).unwrap().count();
        assert_eq!(left, usize::from(LOCKS), "63 temporary files and a lock");
    }

    /// A client gives up while its share is unavailable, as a soft mount does, and the share executes the request later.
    #[tokio::test]
    async fn a_late_rename_does_not_publish_a_newer_write() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "a.json");
        let given_up = Lock::take(&place, slot_of(&place).await).unwrap();
        given_up.write(b"{}").unwrap();
        let temporary = given_up.temporary.clone();
        drop(given_up);
        // The next holder of the lock is in the middle of its write.
        let next = Lock::take(&place, slot_of(&place).await).unwrap();
        next.write(b"half a docu").unwrap();
        let late = fs::rename(temporary, folder.path().join("a.json"));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::read(&next.temporary).unwrap(), b"half a docu");
    }
}
