//! Lists of primaries in staged blobs: checked as a whole once, then read in windows of lines.
//!
//! Every read is of the version that was checked. A list is deleted when its last job has ended, and stays where its message fails
//! for good.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::engine::Engine;
use super::execute::{Delivery, Failure};
use super::failure::{permanent, storage};
use super::memory::MemoryShare;
use super::seal::CursorSeal;
use crate::catalog::TableRef;
use crate::model::body::Extent;
use crate::model::job::{BATCH_KEYS, Batch, JobSubject, ListCheck, ListCursor, ListedBatch, MOST_UNLIKE, NextLines, line_text};
use crate::model::large::STAGING;
use crate::model::{BlobName, ContainerName, ETag};
use crate::ports::{BlobStore, ErrorClass, StoreError};

/// Bytes of a list that are checked at a time.
const CHECKED_BYTES: u64 = 512 << 10;
/// Bytes of a list that a window is read from; a line has 48 KiB at most.
const WINDOW_BYTES: u64 = 128 << 10;
/// Memory of the hash of one line, where the set of them has just doubled.
const HASH_BYTES: u64 = 36;
/// Fewest bytes of a line.
const LINE_BYTES: u64 = 3;

/// Memory of a window's jobs at most.
pub(crate) const WINDOW_MEMORY: u64 = 4 << 20;

/// The part of a list that a delivery does.
#[derive(Debug)]
pub struct ListWindow {
    /// Its jobs; `None` where the list has none left.
    pub batch: Option<Batch>,
    /// The fields of the message from now on, where the list was checked and none of its jobs is to begin before that is saved: a list of
    /// several windows is checked once, and its version stays.
    pub checked: Option<Map<String, Value>>,
    /// The dequeue count of these jobs: one that was never begun is delivered for the first time.
    pub dequeue_count: u32,
    /// The version of the list.
    pub version: ETag,
    /// Seals the message's cursor.
    pub seal: CursorSeal,
}

/// A list that cannot be used.
#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error(
        "it does not exist: stage it before the message is sent, and under a name of its own, since it is deleted when its jobs are done"
    )]
    Gone,
    #[error("it was changed or deleted after its jobs had begun: stage it under a name of its own")]
    Changed,
    #[error("it has the SHA-256 {found}, and the message says {said}: it was changed, or damaged on its way")]
    Hash { found: String, said: String },
    #[error("it names no primary")]
    Empty,
    #[error("{0}")]
    Content(String),
}

/// One version of a list.
struct ListVersion<'e> {
    blobs: &'e dyn BlobStore,
    container: ContainerName,
    name: &'e BlobName,
    etag: ETag,
    bytes: u64,
}

/// A line of a part.
#[derive(Debug, PartialEq, Eq)]
struct ListLine<'p> {
    /// Where it begins.
    place: u64,
    /// All of it: white space, line end.
    raw: &'p [u8],
}

impl<'p> ListLine<'p> {
    fn text(&self) -> &'p [u8] {
        line_text(self.raw, self.place == 0)
    }
}

impl Engine {
    /// The next jobs of a list, which is checked first where none of them was begun.
    pub(super) async fn list_window(&self, list: &ListedBatch, delivery: &Delivery) -> Result<ListWindow, Failure> {
        let seal = self.cursor_seal(list.op(), delivery).await?;
        let mut list = list.clone();
        seal.believe(&mut list.cursor);
        let (blobs, container) = self.staging_of(&list)?;
        let name = list.blob.name.clone();
        if list.cursor == ListCursor::default() {
            let found = blobs.properties(&container, &name).await.map_err(|error| unread(&name, error))?;
            let found = found.ok_or_else(|| unusable(&name, ListError::Gone))?;
            let checked = ListVersion { blobs, container: container.clone(), name: &name, etag: found.etag, bytes: found.length };
            let lines = self.check(&list, &checked).await?;
            tracing::info!(op = list.op(), list = %name, lines, "list checked: its jobs begin");
            let (etag, count) = (checked.etag.to_string(), delivery.dequeue_count);
            if checked.bytes > WINDOW_BYTES {
                let cursor = serde_json::json!(ListCursor::checked(etag, checked.bytes, count));
                let mut fields = Map::from_iter([("cursor".to_owned(), cursor)]);
                seal.seal(&mut fields);
                return Ok(ListWindow { batch: None, checked: Some(fields), dequeue_count: count, version: checked.etag, seal });
            }
            list.cursor = ListCursor::checked(etag, checked.bytes, 0);
        }
        let etag = ETag::new(list.cursor.etag.clone()).map_err(|error| permanent(reading(&name), error))?;
        let version = ListVersion { blobs, container, name: &name, etag, bytes: list.cursor.bytes };
        let (lines, next) = loop {
            match list.cursor.reading() {
                NextLines::At(places) => break (version.at(&list, &places).await?, list.cursor.next),
                NextLines::From(place) => match version.from(&list, place).await? {
                    (lines, next) if lines.is_empty() => list.cursor.next = next,
                    found => break found,
                },
            }
        };
        let dequeue_count = list.cursor.deliveries(delivery.dequeue_count);
        let version = version.etag;
        Ok(ListWindow { batch: list.window(lines, next, delivery.dequeue_count), checked: None, dequeue_count, version, seal })
    }

    /// Deletes a list that is done. One that was staged under its name meanwhile is left alone.
    pub(super) async fn forget_list(&self, list: &ListedBatch, version: &ETag) -> Result<(), Failure> {
        let (blobs, container) = self.staging_of(list)?;
        match blobs.delete(&container, &list.blob.name, Some(version)).await {
            Err(error) if !matches!(error.class, ErrorClass::Precondition | ErrorClass::NotFound(_)) => {
                Err(storage(format!("deleting the list {STAGING}/{}, which is done", list.blob.name), error))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Where lists of such jobs are staged: in the account of their table.
    fn staging_of(&self, list: &ListedBatch) -> Result<(&dyn BlobStore, ContainerName), Failure> {
        const STEP: &str = "finding the list of primaries";
        let sample = list.sample().map_err(|error| permanent(STEP, error))?;
        let table: &TableRef = match sample.job.operation().subject() {
            JobSubject::Archived(archive, _) | JobSubject::Restored(archive, _) => &self.archive(archive)?.source,
            JobSubject::Primary(table, _) => self.table(table)?,
            JobSubject::Moved(..)
            | JobSubject::Table(_)
            | JobSubject::View(_)
            | JobSubject::Source(_)
            | JobSubject::Range(_)
            | JobSubject::DatedTable(_) => {
                return Err(permanent(STEP, ListError::Empty));
            }
        };
        let container = ContainerName::new(STAGING).map_err(|error| permanent(STEP, error))?;
        Ok((self.account(table)?.blobs.as_ref(), container))
    }

    /// Reads a list from one end to the other: how many lines it has, each of them an item, and all of it as the message says.
    async fn check(&self, list: &ListedBatch, version: &ListVersion<'_>) -> Result<u64, Failure> {
        let compared = if list.may_repeat() { 0 } else { (version.bytes / LINE_BYTES).min(MOST_UNLIKE) * HASH_BYTES };
        let _hashes = self.memory.take_aside(MemoryShare::Values, compared).await;
        let (mut hash, mut hashed) = (Sha256::new(), 0);
        let (mut lines, mut at) = (ListCheck::of(list.clone()), 0);
        let unusable = |problem| version.unusable(ListError::Content(problem));
        while at < version.bytes {
            let part = version.read(at, CHECKED_BYTES).await?;
            hash.update(part.get(usize::try_from(hashed - at).unwrap_or(usize::MAX)..).unwrap_or_default());
            hashed = at + part.len() as u64;
            let mut next = at;
            for ListLine { place, raw } in lines_of(&part, at, hashed >= version.bytes) {
                lines.line(raw).map_err(unusable)?;
                next = place + raw.len() as u64;
            }
            if next == at {
                return Err(unusable(format!("line {}: it has more than 48 KiB", lines.number() + 1)));
            }
            at = next;
        }
        let found = hex::encode(hash.finalize());
        match &list.blob.sha256 {
            Some(said) if *said != found => Err(version.unusable(ListError::Hash { found, said: said.clone() })),
            _ if lines.primaries() == 0 => Err(version.unusable(ListError::Empty)),
            _ => Ok(lines.primaries()),
        }
    }
}

impl ListVersion<'_> {
    /// Bytes from here on, cut at the end.
    async fn read(&self, from: u64, bytes: u64) -> Result<Bytes, Failure> {
        let range = from..from.saturating_add(bytes).min(self.bytes);
        self.blobs.get_at(&self.container, self.name, range, &self.etag).await.map_err(|error| match error.class {
            ErrorClass::Precondition => self.unusable(ListError::Changed),
            _ => unread(self.name, error),
        })
    }

    /// The lines of a window from here on, and where the next one begins.
    async fn from(&self, list: &ListedBatch, from: u64) -> Result<(Vec<(u64, Value)>, u64), Failure> {
        let part = self.read(from, WINDOW_BYTES).await?;
        let (mut window, mut memory, mut next) = (Vec::new(), 0, from);
        for line in lines_of(&part, from, from + part.len() as u64 >= self.bytes) {
            let text = line.text();
            memory += memory_of(text);
            if window.len() == BATCH_KEYS || memory > WINDOW_MEMORY && !window.is_empty() {
                break;
            }
            if !text.is_empty() {
                window.push((line.place, self.item(list, text)?));
            }
            next = line.place + line.raw.len() as u64;
        }
        if next == from { Err(self.unusable(ListError::Changed)) } else { Ok((window, next)) }
    }

    /// The lines at these places, as many as a window has.
    async fn at(&self, list: &ListedBatch, places: &[u64]) -> Result<Vec<(u64, Value)>, Failure> {
        let (mut part, mut from) = (Bytes::new(), 0);
        let (mut found, mut memory) = (BTreeMap::new(), 0);
        let in_order: BTreeSet<&u64> = places.iter().collect();
        for place in in_order {
            let mut line = line_at(&part, from, *place, self.bytes);
            if line.is_none() {
                (part, from) = (self.read(*place, WINDOW_BYTES).await?, *place);
                line = line_at(&part, from, *place, self.bytes);
            }
            let line = line.ok_or_else(|| self.unusable(ListError::Changed))?;
            memory += memory_of(line);
            if memory > WINDOW_MEMORY && !found.is_empty() {
                break;
            }
            found.insert(*place, self.item(list, line)?);
        }
        // Those that have waited longest first.
        Ok(places.iter().filter_map(|place| found.remove(place).map(|item| (*place, item))).collect())
    }

    fn item(&self, list: &ListedBatch, line: &[u8]) -> Result<Value, Failure> {
        // It was checked, in this version.
        list.item(line).map_err(|problem| self.unusable(ListError::Content(problem)))
    }

    fn unusable(&self, error: ListError) -> Failure {
        unusable(self.name, error)
    }
}

fn reading(name: &BlobName) -> String {
    format!("reading {STAGING}/{name}, which lists primaries")
}

fn unusable(name: &BlobName, error: ListError) -> Failure {
    permanent(reading(name), error)
}

/// A list that could not be read.
fn unread(name: &BlobName, error: StoreError) -> Failure {
    match error.class {
        ErrorClass::NotFound(_) => unusable(name, ListError::Gone),
        _ => storage(reading(name), error),
    }
}

/// Memory of a line once it is decoded.
fn memory_of(line: &[u8]) -> u64 {
    let extent = Extent::of(line);
    3 * extent.bytes + extent.parsed()
}

/// The whole lines of a part that begins at `from`, empty ones too.
fn lines_of(part: &[u8], from: u64, is_end: bool) -> impl Iterator<Item = ListLine<'_>> {
    let mut place = from;
    part.split_inclusive(|byte| *byte == b'\n').take_while(move |piece| is_end || piece.ends_with(b"\n")).map(move |piece| {
        let line = ListLine { place, raw: piece };
        place += piece.len() as u64;
        line
    })
}

/// The line that begins at a place, where it is wholly in the part.
fn line_at(part: &[u8], from: u64, place: u64, bytes: u64) -> Option<&[u8]> {
    let rest = part.get(usize::try_from(place.checked_sub(from)?).ok()?..).filter(|rest| !rest.is_empty())?;
    lines_of(rest, place, from + part.len() as u64 >= bytes).next().map(|line| line.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_with_their_places() {
        let list = "\u{feff}\"1\"\r\n\n\"2\"\n\"3".as_bytes();
        let lines = |is_end| -> Vec<(u64, &[u8], usize)> {
            lines_of(list, 0, is_end).map(|line| (line.place, line.text(), line.raw.len())).collect()
        };
        assert_eq!(lines(false), [(0, &b"\"1\""[..], 8), (8, b"", 1), (9, b"\"2\"", 4)], "the last one may go on");
        assert_eq!(lines(true)[3], (13, &b"\"3"[..], 2));
    }

    #[test]
    fn a_line_is_read_again_by_its_place() {
        let list = b"\"1\"\n\"2\"\n\"3\"";
        assert_eq!(line_at(list, 0, 4, 11), Some(&b"\"2\""[..]));
        assert_eq!(line_at(&list[4..], 4, 8, 11), Some(&b"\"3\""[..]));
        assert_eq!(line_at(&list[4..10], 4, 8, 11), None, "it is not all there");
        assert_eq!(line_at(&list[4..], 4, 0, 11), None);
    }
}
