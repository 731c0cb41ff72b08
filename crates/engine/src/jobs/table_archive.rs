//! The rows of a table by date, kept in files before the table is dropped.
//!
//! ```text
//!   LoginAttempts20261120/3f2a…/000001.jsonl     up to 1,000 rows, one per line; then 000002.jsonl and so on
//!   LoginAttempts20261120/3f2a…/complete.json    how many there are: written last, before the table is dropped
//!   LoginAttempts20261120/archiving.json         which job is at it, so that no second one does the same
//! ```
//!
//! Each job has a folder of its own, named after its message, so that two of them never mix. A delivery goes on from the cursor in
//! its message. Two deliveries at a time share the folder, and end each file at the same row, however long their pages were.
//!
//! A file is written once and never changed: a delivery that finds one with other lines, or one beyond its last, begins a folder anew, from
//! the first row. So the files of `complete.json` are the rows as one delivery after the other has read them, though a row was
//! written or deleted in between, and though another delivery, or its late request, writes into the folder afterwards.
//!
//! A folder with `complete.json` is only compared: the table may be another one by now, which a worker with a clock behind, or an
//! application, has created anew. Rows that are the very lines in those files are archived; others begin a folder of their own. A second job
//! for a table compares with the folder that the first has completed, so that a table that was not dropped has one `complete.json`.

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

/// Rows of one page: not all of them may be 1 KiB.
const PAGE: u32 = 200;
/// Rows after which a file is full.
const FILE_ROWS: u32 = 1_000;
/// Bytes after which a file is full.
const FILE_BYTES: usize = 8 << 20;
/// How long after it was last heard of a job is taken for dead: one that is alive tells with each part.
const SILENCE: Duration = Duration::from_hours(1);

/// How one part of the archiving ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ArchiveProgress {
    /// Every row is in a file.
    All(DropTableCursor),
    /// There is more.
    Until(DropTableCursor),
    /// The table does not exist.
    NoTable,
    /// Another job is at it.
    Elsewhere,
}

/// The version of `archiving.json` and of `complete.json`.
const VERSION: u32 = 1;

/// Who is archiving a table: `archiving.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArchiveClaim {
    v: FormatVersion<VERSION>,
    /// The folder.
    run: String,
    /// When it was last at it, by the worker's clock.
    at: Timestamp,
    /// It is done.
    ended: bool,
    /// The own folder of the job that compares the table with the folder of another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

/// How many files and rows a folder has: `complete.json`. Who restores the table reads it; workers ask whether it is there.
#[derive(Debug, Serialize)]
struct CompletedArchive<'a> {
    v: FormatVersion<VERSION>,
    table: &'a TableName,
    files: u64,
    rows: u64,
    completed: Timestamp,
}

/// Archives the rows of a table from a cursor on, for about ten seconds or to the end.
pub(crate) async fn part(
    env: &Env,
    table: &TableRef,
    to: &TableArchive,
    delivery: &Delivery,
    mut cursor: DropTableCursor,
) -> Result<ArchiveProgress, Failure> {
    let shelf = TableFiles::new(env, to, table)?;
    // Lines of a file, the page in them, and the file that they are compared with.
    let _files = env
        .memory
        .take_aside(MemoryShare::Values, 3 * FILE_BYTES as u64)
        .await;
    let began = env.clock.monotonic();
    let mut claimed = false;
    let mut run = run_of(delivery, cursor.folder);
    let mut is_complete = false;
    let begins = cursor.folder == 0 && cursor.files == 0;
    loop {
        let Some(file) = read(env, table, &cursor).await? else {
            if claimed {
                // Dropped under its hands, by an earlier delivery's request that came late: every row was in a file by then.
                shelf.release(&run, env.clock.now()).await?;
            }
            return Ok(ArchiveProgress::NoTable);
        };
        // A table that is dropped already is no run's to archive any more.
        if !claimed {
            let own = run_of(delivery, cursor.folder);
            let Some(folder) = shelf
                .claim(own, begins && cursor.folder == 0, env.clock.now())
                .await?
            else {
                return Ok(ArchiveProgress::Elsewhere);
            };
            run = folder;
            is_complete = shelf.version(&complete(&run)).await?.is_some();
        }
        claimed = true;
        if file.rows > 0 {
            cursor.files += 1;
            cursor.rows += u64::from(file.rows);
        }
        let name = numbered(&run, cursor.files);
        let held = match (file.rows, is_complete) {
            (0, _) => true,
            (_, true) => shelf.holds(&name, &file.lines).await?,
            (_, false) => shelf.write_once(&name, file.lines.into()).await?,
        };
        if !held
            || (file.next.is_none()
                && shelf
                    .version(&numbered(&run, cursor.files + 1))
                    .await?
                    .is_some())
        {
            tracing::warn!(%table, %run, "table archive: the folder has other rows than the table; all rows go into another folder");
            shelf.release(&run, env.clock.now()).await?;
            cursor = DropTableCursor {
                folder: cursor.folder + 1,
                ..DropTableCursor::default()
            };
            run = run_of(delivery, cursor.folder);
            claimed = false;
            continue;
        }
        let Some(next) = file.next else {
            if let Some(missing) = shelf.missing(&run, cursor.files).await? {
                tracing::warn!(%table, file = missing, "table archive: a file is gone that was written; every row is archived anew");
                return Ok(ArchiveProgress::Until(DropTableCursor {
                    folder: cursor.folder,
                    ..DropTableCursor::default()
                }));
            }
            if !is_complete {
                shelf.end(&run, &cursor, env.clock.now()).await?;
            }
            shelf.release(&run, env.clock.now()).await?;
            return Ok(ArchiveProgress::All(cursor));
        };
        (cursor.next_pk, cursor.next_rk) = next.into_parts();
        if env.clock.monotonic().saturating_sub(began) >= PART {
            return Ok(ArchiveProgress::Until(cursor));
        }
    }
}

/// The folder of a job, by its number.
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

/// The content of one file.
struct ArchiveFile {
    lines: Vec<u8>,
    rows: u32,
    next: Option<Continuation>,
}

/// Reads as many rows as fill a file, however long the pages are; nothing where there is no table.
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
            // Only the end of a page says where the next file begins.
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

/// Where the files of a table lie.
struct TableFiles<'e> {
    sink: ArchiveSink<'e>,
    /// The table, whose name the folder has.
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
            "{what} {}/{name}, which the rows of {} go into",
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

    /// The version of a file; nothing where there is none.
    async fn version(&self, name: &str) -> Result<Option<ETag>, Failure> {
        match &self.sink {
            ArchiveSink::Blob { blobs, to } => {
                let found = blobs.properties(to, &self.path(name)?).await;
                found
                    .map(|found| found.map(|found| found.etag))
                    .map_err(|error| storage(self.doing("looking at", name), error))
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

    /// Writes a file over any that is there, at the version found.
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

    /// Writes a new file. `false` where it is there already, with other lines.
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

    /// Whether a file has these very lines.
    async fn holds(&self, name: &str, lines: &[u8]) -> Result<bool, Failure> {
        Ok(self
            .read(name)
            .await?
            .is_some_and(|(content, _)| content == lines))
    }

    /// Says that this job is at it, and tells the folder that it goes on with. `None` if another job is at it.
    async fn claim(
        &self,
        own: String,
        begins: bool,
        now: Timestamp,
    ) -> Result<Option<String>, Failure> {
        let name = "archiving.json";
        let (claimed, condition) = match self.read(name).await? {
            None => (None, BlobCondition::Absent),
            // A claim that cannot be read claims nothing.
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
            // It was this run or another one; who comes next sees which.
            Err(error) if error.may_have_lost() => Err(lost_race(self.doing("writing", name), 1)),
            Err(error) => Err(storage(self.doing("writing", name), error)),
        }
    }

    /// The first of so many files that is not there.
    async fn missing(&self, run: &str, files: u64) -> Result<Option<String>, Failure> {
        for number in 1..=files {
            let name = numbered(run, number);
            if self.version(&name).await?.is_none() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Every row is in a file: says so.
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
            // Another delivery of this job has come to the end before.
            Err(error) if error.may_have_lost() => Err(lost_race(self.doing("writing", &name), 1)),
            Err(error) => Err(storage(self.doing("writing", &name), error)),
        }
    }

    /// Says that no run is at it any more.
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
