//! Writes the rows of a dated table to files before the table is dropped.
//!
//! ```text
//!   LoginAttempts20261120/3f2a…/000001.jsonl     up to 1,000 rows, one per line; then 000002.jsonl and so on
//!   LoginAttempts20261120/3f2a…/complete.json    the number of files and rows, written last, before the table is dropped
//!   LoginAttempts20261120/archiving.json         the job that archives the table; other jobs are skipped meanwhile
//! ```
//!
//! Each job has its own folder, named after its message, so that files of two jobs never mix. A delivery continues from
//! the cursor in its message. Two concurrent deliveries of a job use the same folder. Both end each file at the same
//! row, even if the service returns pages of different lengths.
//!
//! A file is written once and never changed. If a delivery finds that a file has other lines than it would write, or
//! that there are more files than it needs, it starts a new folder from the first row. So the files that
//! `complete.json` counts contain exactly the rows that the deliveries of one job have read. This holds even if rows
//! change between two deliveries, or if a late request of another delivery writes into the folder.
//!
//! No job writes into a folder that has `complete.json`. Instead, a job compares the rows of the table with the files
//! in that folder. If they are equal, the rows are archived already. Otherwise, a worker with a slow clock or an
//! application may have created the table anew, and the job starts a new folder. A second job for the same table
//! compares the rows with the folder of the first job. So if the table was not dropped after the first job, it still
//! gets only one `complete.json`.

use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::env::memory::MemoryShare;
use crate::env::{Env, PART};
use crate::execute::{Delivery, Failure};
use crate::failure::{ROUNDS, lost_race, permanent, storage};
use evenkeel_model::catalog::{TableArchive, TableRef};
use evenkeel_model::drop_table::DropTableCursor;
use evenkeel_model::stored::FormatVersion;
use evenkeel_model::{BlobName, ContainerName, ETag, TableName, odata};
use evenkeel_storage::{
    BlobCondition, BlobStore, BlobUpload, Continuation, ErrorClass, FilePlace, FileStore, Missing,
    Query, StoreError,
};

/// Maximum number of rows of a page. The service allows 1,000. A page that does not fit into its file is read again,
/// which costs less if pages are small.
const PAGE: u32 = 200;
const FILE_ROWS: u32 = 1_000;
const FILE_BYTES: usize = 8 << 20;
/// Time after which a job that has not updated its claim counts as dead. An active job updates its claim with each
/// part.
const SILENCE: Duration = Duration::from_hours(1);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ArchiveProgress {
    Complete(DropTableCursor),
    Partial(DropTableCursor),
    NoTable,
    ClaimedByOther,
}

const VERSION: u32 = 1;

/// Content of `archiving.json`: the job that archives a table.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArchiveClaim {
    v: FormatVersion<VERSION>,
    /// Folder with the files.
    run: String,
    /// Time of the last update, by the worker's clock.
    at: Timestamp,
    /// Whether the job has released its claim.
    ended: bool,
    /// Set if the claiming job compares the table with the folder of another job. `run` is then that folder, and this
    /// is the folder of the claiming job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

/// Content of `complete.json`: the number of files and rows of a folder. People who restore the table read it;
/// workers only check that it exists.
#[derive(Debug, Serialize)]
struct CompletedArchive<'a> {
    v: FormatVersion<VERSION>,
    table: &'a TableName,
    files: u64,
    rows: u64,
    completed: Timestamp,
}

/// Archives the rows of a table, starting at the cursor, for about ten seconds or to the end.
pub(crate) async fn part(
    env: &Env,
    table: &TableRef,
    to: &TableArchive,
    delivery: &Delivery,
    mut cursor: DropTableCursor,
) -> Result<ArchiveProgress, Failure> {
    let archive_files = TableFiles::new(env, to, table)?;
    // Memory for the lines of a new file, for the page from which they are made, and for the existing file with which
    // they are compared.
    let _files = env
        .memory
        .take_untimed(MemoryShare::Values, 3 * FILE_BYTES as u64)
        .await;
    let began = env.clock.monotonic();
    let mut claimed = false;
    let mut run = run_of(delivery, cursor.folder);
    let mut is_complete = false;
    let begins = cursor.folder == 0 && cursor.files == 0;
    loop {
        let Some(file) = read(env, table, &cursor).await? else {
            if claimed {
                // A late request of an earlier delivery has dropped the table meanwhile. That delivery had archived
                // every row before.
                archive_files.release(&run, env.clock.now()).await?;
            }
            return Ok(ArchiveProgress::NoTable);
        };
        // The claim follows the first read, so that no job claims a table that is already dropped.
        if !claimed {
            let own = run_of(delivery, cursor.folder);
            let Some(folder) = archive_files
                .claim(own, begins && cursor.folder == 0, env.clock.now())
                .await?
            else {
                return Ok(ArchiveProgress::ClaimedByOther);
            };
            run = folder;
            is_complete = archive_files.version(&complete(&run)).await?.is_some();
        }
        claimed = true;
        if file.rows > 0 {
            cursor.files += 1;
            cursor.rows += u64::from(file.rows);
        }
        let name = numbered(&run, cursor.files);
        let held = match (file.rows, is_complete) {
            (0, _) => true,
            (_, true) => archive_files.holds(&name, &file.lines).await?,
            (_, false) => archive_files.write_once(&name, file.lines.into()).await?,
        };
        if !held
            || (file.next.is_none()
                && archive_files
                    .version(&numbered(&run, cursor.files + 1))
                    .await?
                    .is_some())
        {
            tracing::warn!(%table, %run, "folder {run} has other rows than table {table}; archiving all rows to another folder");
            archive_files.release(&run, env.clock.now()).await?;
            cursor = DropTableCursor {
                folder: cursor.folder + 1,
                ..DropTableCursor::default()
            };
            run = run_of(delivery, cursor.folder);
            claimed = false;
            continue;
        }
        let Some(next) = file.next else {
            if let Some(missing) = archive_files.missing(&run, cursor.files).await? {
                tracing::warn!(%table, file = missing, "archive file {missing} of table {table} has disappeared; archiving all rows again");
                return Ok(ArchiveProgress::Partial(DropTableCursor {
                    folder: cursor.folder,
                    ..DropTableCursor::default()
                }));
            }
            if !is_complete {
                archive_files.end(&run, &cursor, env.clock.now()).await?;
            }
            archive_files.release(&run, env.clock.now()).await?;
            return Ok(ArchiveProgress::Complete(cursor));
        };
        (cursor.next_pk, cursor.next_rk) = next.into_parts();
        if env.clock.monotonic().saturating_sub(began) >= PART {
            return Ok(ArchiveProgress::Partial(cursor));
        }
    }
}

fn run_of(delivery: &Delivery, folder: u32) -> String {
    let stamp = &delivery.stamp;
    let name = if folder == 0 {
        stamp.to_string()
    } else {
        format!("{stamp} {folder}")
    };
    hex::encode(&Sha256::digest(name)[..8])
}

fn complete(run: &str) -> String {
    format!("{run}/complete.json")
}

fn numbered(run: &str, number: u64) -> String {
    format!("{run}/{number:06}.jsonl")
}

struct ArchiveFile {
    lines: Vec<u8>,
    rows: u32,
    next: Option<Continuation>,
}

/// Reads the rows of one file, starting at the cursor. If the table is unchanged, the same cursor yields the same rows,
/// even if the service returns pages of different lengths. Returns `None` if the table does not exist.
async fn read(
    env: &Env,
    table: &TableRef,
    cursor: &DropTableCursor,
) -> Result<Option<ArchiveFile>, Failure> {
    let next = Continuation::of_parts(cursor.next_pk.as_ref(), cursor.next_rk.as_ref());
    let mut query = Query {
        filter: None,
        select: None,
        top: Some(PAGE),
        continuation: next,
    };
    let mut file = ArchiveFile {
        lines: Vec::new(),
        rows: 0,
        next: None,
    };
    loop {
        let page = match env.account(table)?.tables.query(&table.table, &query).await {
            Ok(page) => page,
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
                return Ok(None);
            }
            Err(error) => return Err(storage(format!("reading a page of {table}"), error)),
        };
        let (begin, mut rows) = (file.lines.len(), 0_u32);
        for row in &page.rows {
            if file.lines.len() >= FILE_BYTES {
                break;
            }
            file.lines
                .extend_from_slice(Value::Object(odata::encode_row(row)).to_string().as_bytes());
            file.lines.push(b'\n');
            rows += 1;
        }
        if (rows as usize) < page.rows.len() {
            // A file can only end where a page ends, because the next file starts at a continuation token. So the page
            // is read again with fewer rows.
            file.lines.truncate(begin);
            query.top = Some(rows);
            continue;
        }
        file.rows += rows;
        file.next = page.continuation;
        if file.next.is_none() || file.rows >= FILE_ROWS || file.lines.len() >= FILE_BYTES {
            return Ok(Some(file));
        }
        query.continuation.clone_from(&file.next);
        query.top = Some(PAGE.min(FILE_ROWS - file.rows));
    }
}

struct TableFiles<'e> {
    sink: ArchiveSink<'e>,
    /// The archived table. The folder of its files has the same name.
    table: &'e TableRef,
}

enum ArchiveSink<'e> {
    Blob {
        blobs: &'e dyn BlobStore,
        to: &'e ContainerName,
    },
    Folder {
        files: &'e dyn FileStore,
        dir: &'e str,
    },
}

impl<'e> TableFiles<'e> {
    fn new(env: &'e Env, to: &'e TableArchive, table: &'e TableRef) -> Result<Self, Failure> {
        let sink = match to {
            TableArchive::Blob { account, container } => {
                let account = env
                    .stores
                    .account(account)
                    .map_err(|error| permanent("finding the account of the archive", error))?;
                ArchiveSink::Blob {
                    blobs: account.blobs.as_ref(),
                    to: container,
                }
            }
            TableArchive::File { dir } => {
                let files = env
                    .stores
                    .files()
                    .map_err(|error| permanent("finding the folder of the archive", error))?;
                ArchiveSink::Folder { files, dir }
            }
        };
        Ok(Self { sink, table })
    }

    fn doing(&self, what: &str, name: &str) -> String {
        format!(
            "{what} {}/{name} of the archive of table {}",
            self.table.table, self.table
        )
    }

    fn path(&self, name: &str) -> Result<BlobName, Failure> {
        BlobName::new(format!("{}/{name}", self.table.table))
            .map_err(|error| permanent(self.doing("naming", name), error))
    }

    async fn read(&self, name: &str) -> Result<Option<(Bytes, ETag)>, Failure> {
        let path = self.path(name)?;
        let found = match &self.sink {
            ArchiveSink::Blob { blobs, to } => blobs
                .get(to, &path, None)
                .await
                .map(|blob| blob.map(|blob| (blob.content, blob.properties.etag))),
            ArchiveSink::Folder { files, dir } => files
                .read(&FilePlace {
                    dir: (*dir).to_owned(),
                    name: path,
                })
                .await
                .map(|file| file.map(|file| (file.content, file.etag))),
        };
        found.map_err(|error| storage(self.doing("reading", name), error))
    }

    async fn version(&self, name: &str) -> Result<Option<ETag>, Failure> {
        match &self.sink {
            ArchiveSink::Blob { blobs, to } => {
                let found = blobs.properties(to, &self.path(name)?).await;
                found
                    .map(|found| found.map(|found| found.etag))
                    .map_err(|error| storage(self.doing("reading the properties of", name), error))
            }
            ArchiveSink::Folder { .. } => Ok(self.read(name).await?.map(|(_, etag)| etag)),
        }
    }

    async fn write(
        &self,
        name: &str,
        content: Bytes,
        condition: BlobCondition,
    ) -> Result<Result<ETag, StoreError>, Failure> {
        let path = self.path(name)?;
        Ok(match &self.sink {
            ArchiveSink::Blob { blobs, to } => {
                let content_type = Some("application/jsonl".to_owned());
                blobs
                    .put(
                        to,
                        &path,
                        content,
                        &BlobUpload {
                            condition,
                            content_type,
                            ..BlobUpload::default()
                        },
                    )
                    .await
            }
            ArchiveSink::Folder { files, dir } => {
                files
                    .write(
                        &FilePlace {
                            dir: (*dir).to_owned(),
                            name: path,
                        },
                        content,
                        &condition,
                    )
                    .await
            }
        })
    }

    /// Writes a file. If it exists, it is replaced at the version found.
    async fn put(&self, name: &str, content: Bytes) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            let condition = self
                .version(name)
                .await?
                .map_or(BlobCondition::Absent, BlobCondition::Matches);
            match self.write(name, content.clone(), condition).await? {
                Ok(_) => return Ok(()),
                Err(error) if error.may_have_lost() => {}
                Err(error) => return Err(storage(self.doing("writing", name), error)),
            }
        }
        Err(lost_race(self.doing("writing", name), ROUNDS))
    }

    /// Creates a file. Returns `false` if it already exists with other lines.
    async fn write_once(&self, name: &str, lines: Bytes) -> Result<bool, Failure> {
        match self
            .write(name, lines.clone(), BlobCondition::Absent)
            .await?
        {
            Ok(_) => Ok(true),
            Err(error) if error.may_have_lost() => match self.read(name).await? {
                Some((content, _)) => Ok(content == lines),
                None => Err(lost_race(self.doing("writing", name), 1)),
            },
            Err(error) => Err(storage(self.doing("writing", name), error)),
        }
    }

    async fn holds(&self, name: &str, lines: &[u8]) -> Result<bool, Failure> {
        Ok(self
            .read(name)
            .await?
            .is_some_and(|(content, _)| content == lines))
    }

    /// Claims the table for this job, and returns the folder to continue with. Returns `None` if another job has the
    /// claim.
    async fn claim(
        &self,
        own: String,
        begins: bool,
        now: Timestamp,
    ) -> Result<Option<String>, Failure> {
        let name = "archiving.json";
        let (claimed, condition) = match self.read(name).await? {
            None => (None, BlobCondition::Absent),
            // A claim that cannot be parsed is overwritten.
            Some((content, etag)) => (
                serde_json::from_slice::<ArchiveClaim>(&content).ok(),
                BlobCondition::Matches(etag),
            ),
        };
        let silent = |at: Timestamp| {
            now.duration_since(at)
                > SignedDuration::try_from(SILENCE).unwrap_or(SignedDuration::MAX)
        };
        let mine = match claimed {
            Some(claimed) if claimed.run == own => ArchiveClaim {
                by: None,
                ..claimed
            },
            Some(claimed) if claimed.by.as_ref() == Some(&own) => claimed,
            Some(claimed) if !claimed.ended && !silent(claimed.at) => return Ok(None),
            Some(claimed) if begins && self.version(&complete(&claimed.run)).await?.is_some() => {
                ArchiveClaim {
                    by: Some(own),
                    ..claimed
                }
            }
            Some(_) | None => ArchiveClaim {
                v: FormatVersion,
                run: own,
                at: now,
                ended: false,
                by: None,
            },
        };
        let mine = ArchiveClaim {
            at: now,
            ended: false,
            ..mine
        };
        match self
            .write(name, json!(mine).to_string().into(), condition)
            .await?
        {
            Ok(_) => Ok(Some(mine.run)),
            // The write may have succeeded, or another job may have claimed the table. The next delivery reads the
            // file.
            Err(error) if error.may_have_lost() => Err(lost_race(self.doing("writing", name), 1)),
            Err(error) => Err(storage(self.doing("writing", name), error)),
        }
    }

    /// Returns the name of the first missing file among those with the numbers 1 to `files`.
    async fn missing(&self, run: &str, files: u64) -> Result<Option<String>, Failure> {
        for number in 1..=files {
            let name = numbered(run, number);
            if self.version(&name).await?.is_none() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    async fn end(
        &self,
        run: &str,
        cursor: &DropTableCursor,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let name = complete(run);
        let content = json!(CompletedArchive {
            v: FormatVersion,
            table: &self.table.table,
            files: cursor.files,
            rows: cursor.rows,
            completed: now,
        });
        match self
            .write(&name, format!("{content}\n").into(), BlobCondition::Absent)
            .await?
        {
            Ok(_) => Ok(()),
            // The write may have succeeded, or another delivery of this job may have written the file. The next
            // delivery finds it.
            Err(error) if error.may_have_lost() => Err(lost_race(self.doing("writing", &name), 1)),
            Err(error) => Err(storage(self.doing("writing", &name), error)),
        }
    }

    async fn release(&self, run: &str, now: Timestamp) -> Result<(), Failure> {
        let ended = json!(ArchiveClaim {
            v: FormatVersion,
            run: run.to_owned(),
            at: now,
            ended: true,
            by: None
        })
        .to_string();
        self.put("archiving.json", ended.into()).await
    }
}
