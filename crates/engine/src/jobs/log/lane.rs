//! Lanes: the lines that go to one blob are gathered and appended together.
//!
//! The writer that obtains a lane appends all waiting lines, its own among them, and answers the others. One that is
//! dropped on the way leaves their answers open: they look again, as after any lost answer.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use futures::future::try_join_all;
use jiff::Timestamp;

use crate::execute::{Failure, FailureClass};
use crate::failure::storage;
use crate::jobs::log::record::{LinePlace, Record};
use crate::protocol::footprint;
use evenkeel_model::catalog::LogTarget;
use evenkeel_model::job::{Primary, Stamp};
use evenkeel_model::log::{self, Bounds};
use evenkeel_model::{AccountName, BlobName, ETag, EntityKey, TableName, ViewName, limits};
use evenkeel_storage::combine::{Combiner, Pending, Queue, Serve};
use evenkeel_storage::{
    BlobCondition, BlobProperties, BlobStore, BlobUpload, ErrorClass, IfMatch, Resource,
    StoreError, Subject, TableOperation, TableStore,
};

/// Attempts to widen a blob's metadata, or to begin a new blob, against concurrent writers.
const TRIES: u32 = 5;

/// A line to append.
pub(crate) struct Line {
    pub(crate) bytes: Bytes,
    pub(crate) sha256: String,
    /// When its entity happened.
    pub(crate) moment: Timestamp,
    /// Where its record lies.
    pub(crate) key: EntityKey,
    pub(crate) primary: Primary,
    /// The version of the source.
    pub(crate) source_etag: String,
    pub(crate) stamp: Stamp,
    /// The record's ETag, where there is one.
    pub(crate) over: Option<ETag>,
}

/// How an append ended.
pub(crate) enum Append {
    /// It is there; the record's ETag.
    Done(Option<ETag>),
    /// It is not.
    Lost,
    /// Unknown outcome.
    Unanswered,
    /// The store failed.
    Failed(AppendFailure),
}

/// A failure of several lines.
#[derive(Debug, Clone)]
pub(crate) struct AppendFailure {
    class: FailureClass,
    text: String,
}

impl AppendFailure {
    /// The failure of one of them.
    pub(crate) fn of(self, step: String) -> Failure {
        Failure::new(self.class, step, self.text)
    }
}

/// A record with an append that may still arrive: when the blob's length was read it ended where the append begins, and afterwards no line
/// of the record was there.
pub(crate) struct Open {
    pub(crate) record: Record,
    /// The time span in the blob's metadata.
    pub(crate) span: Option<Bounds>,
}

/// Where lines go.
pub(crate) struct LogSite<'a> {
    pub(crate) blobs: &'a dyn BlobStore,
    pub(crate) tables: &'a dyn TableStore,
    /// The table that the entities are archived from, beside the records.
    pub(crate) source: &'a TableName,
    pub(crate) target: &'a LogTarget,
    pub(crate) archive: &'a ViewName,
    /// The folder of the hour.
    pub(crate) folder: &'a str,
    pub(crate) lane: u32,
}

/// The lanes of an engine, each with the blob that it appends to, as far as this process knows. Hours that are over are let go of.
#[derive(Default)]
pub(crate) struct LogLanes(Combiner<Name, Line, Append, Option<Tail>>);

/// Archive, hour, lane.
type Name = (ViewName, String, u32);

/// A blob that is appended to.
struct Tail {
    number: u32,
    name: BlobName,
    length: u64,
    span: Option<Bounds>,
}

impl LogLanes {
    /// Appends a line, together with all others waiting for the same blob.
    pub(crate) async fn append(&self, place: &LogSite<'_>, entry: Line) -> Append {
        let name = (place.archive.clone(), place.folder.to_owned(), place.lane);
        self.0
            .ask(name, entry, place)
            .await
            .unwrap_or(Append::Unanswered)
    }
}

impl Serve<Line, Append, Option<Tail>> for LogSite<'_> {
    async fn serve(&self, queue: &Queue<Line, Append, Option<Tail>>, current: &mut Option<Tail>) {
        self.write(current, queue.take(fits_append())).await;
    }
}

/// The capacity of one append: a transaction of records, and 4 MiB. A transaction has each record once: of two lines of one entity,
/// which two jobs bring, the second comes with the next append, and finds the first.
fn fits_append() -> impl FnMut(&Line) -> bool {
    let (mut bytes, mut keys) = (0, BTreeSet::new());
    move |entry| {
        bytes += entry.bytes.len();
        keys.insert(entry.key.clone())
            && keys.len() <= limits::TRANSACTION_OPERATIONS
            && bytes <= limits::APPEND_BYTES
    }
}

impl LogSite<'_> {
    /// Takes the very place that an append was meant for, so that it cannot arrive there any more. The record keeps the places before,
    /// since that append may be the one that succeeds. Gives the entry back, with the record's ETag, where no append can succeed there.
    pub(crate) async fn close(&self, open: Open, entry: Line) -> Result<Append, Line> {
        let Open { record: open, span } = open;
        let mut current = Tail {
            number: 0,
            name: open.blob.clone(),
            length: open.start,
            span,
        };
        if let Err(error) = self
            .widen(&mut current, Bounds::new(entry.moment, entry.moment))
            .await
        {
            return Ok(answer(
                &self.doing("widening the span of", &open.blob),
                error,
            ));
        }
        if current.length != open.start {
            // Another append was made, possibly of the line itself.
            return Ok(Append::Lost);
        }
        let record = open.again(line_at(open.start, &entry));
        let etags = match self.record(std::slice::from_ref(&record), &[&entry]).await {
            Ok(etags) => etags,
            Err(error) => {
                return Ok(answer(
                    &self.doing("recording a line of", &open.blob),
                    error,
                ));
            }
        };
        let recorded = etags.into_iter().next().flatten();
        match self
            .blobs
            .append(
                &self.target.container,
                &open.blob,
                entry.bytes.clone(),
                open.start,
            )
            .await
        {
            Ok(_) => Ok(Append::Done(recorded)),
            Err(error) if error.class == ErrorClass::TooLarge => match self
                .blobs
                .properties(&self.target.container, &open.blob)
                .await
            {
                // The blob is full for every writer.
                Ok(Some(found)) if found.length == open.start => Err(Line {
                    over: recorded,
                    ..entry
                }),
                // The last one that it took may have been the append before.
                Ok(_) => Ok(Append::Lost),
                Err(error) => Ok(answer(&self.doing("looking at", &open.blob), error)),
            },
            Err(error) => Ok(answer(&self.doing("appending to", &open.blob), error)),
        }
    }

    /// Records and appends a batch, and answers each of it.
    async fn write(&self, current: &mut Option<Tail>, batch: Vec<Pending<Line, Append>>) {
        let entries: Vec<&Line> = batch.iter().map(|one| &one.request).collect();
        let bytes: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
        let moments = || entries.iter().map(|entry| entry.moment);
        let (Some(first), Some(last)) = (moments().min(), moments().max()) else {
            return;
        };
        // Taken out, so that a dropped future leaves no state that may be wrong.
        let mut now = match self
            .open(current.take(), bytes as u64, Bounds::new(first, last))
            .await
        {
            Ok(now) => now,
            Err(error) => return reply(batch, &self.doing("opening", self.folder), error),
        };
        let start = now.length;
        let mut position = start;
        let records: Vec<Record> = entries
            .iter()
            .map(|entry| {
                let line = line_at(position, entry);
                position += line.length;
                Record {
                    blob: now.name.clone(),
                    start,
                    line,
                    former: Vec::new(),
                }
            })
            .collect();
        let etags = match self.record(&records, &entries).await {
            Ok(etags) => etags,
            Err(error) => {
                *current = Some(now);
                if batch.len() == 1 || !error.is_lost_race() {
                    return reply(batch, &self.doing("recording lines of", self.folder), error);
                }
                // One of them has lost a race, and the transaction does not always say which: each for itself.
                for one in batch {
                    Box::pin(self.write(current, vec![one])).await;
                }
                return;
            }
        };
        match self.withdraw(&entries, &etags).await {
            Ok(false) => {}
            Ok(true) => {
                *current = Some(now);
                return batch.into_iter().for_each(|one| one.tell(Append::Lost));
            }
            Err(error) => {
                *current = Some(now);
                return reply(
                    batch,
                    &self.doing("looking at the sources of lines of", self.folder),
                    error,
                );
            }
        }
        let mut content = BytesMut::with_capacity(bytes);
        for entry in &entries {
            content.extend_from_slice(&entry.bytes);
        }
        match self
            .blobs
            .append(&self.target.container, &now.name, content.freeze(), start)
            .await
        {
            Ok(_) => {
                now.length = position;
                *current = Some(now);
                batch
                    .into_iter()
                    .zip(etags)
                    .for_each(|(one, etag)| one.tell(Append::Done(etag)));
            }
            Err(error) => {
                if error.class == ErrorClass::TooLarge {
                    // It has as many blocks as a blob can have: the next one, and each of them looks again.
                    *current = self
                        .begin(now.number + self.target.spread, Bounds::new(first, last))
                        .await
                        .ok();
                }
                reply(batch, &self.doing("appending to", &now.name), error);
            }
        }
    }

    fn doing(&self, what: &str, name: impl std::fmt::Display) -> String {
        format!("{what} {}/{name}", self.target.container)
    }

    async fn record(
        &self,
        records: &[Record],
        entries: &[&Line],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        let operations: Vec<TableOperation> = records
            .iter()
            .zip(entries)
            .map(|(record, entry)| {
                let row = record.encode(&entry.key, &entry.primary, &entry.stamp);
                match &entry.over {
                    Some(etag) => TableOperation::Replace(row, IfMatch::Matches(etag.clone())),
                    None => TableOperation::Insert(row),
                }
            })
            .collect();
        match operations.as_slice() {
            [] => Ok(Vec::new()),
            [one] => self
                .tables
                .apply(&footprint::table(), one)
                .await
                .map(|etag| vec![etag]),
            [first, ..] => {
                self.tables
                    .transact(&footprint::table(), &first.key().pk.clone(), &operations)
                    .await
            }
        }
    }

    /// Looks once more at the sources of the lines that had no record. A record is removed when its version has left the source, so where
    /// that is still there no other job has logged it and removed its record; where it has left, another one may have. Such records
    /// are removed again, and the answer is true: no line of the batch is appended.
    async fn withdraw(
        &self,
        entries: &[&Line],
        recorded: &[Option<ETag>],
    ) -> Result<bool, StoreError> {
        let inserted = entries
            .iter()
            .zip(recorded)
            .filter(|(entry, _)| entry.over.is_none());
        let looks = inserted.map(async |(entry, etag)| {
            let row = self
                .tables
                .get(self.source, &entry.primary.key, None)
                .await?;
            let left = row.is_none_or(|row| row.etag.as_str() != entry.source_etag);
            Ok::<_, StoreError>(left.then_some((&entry.key, etag)))
        });
        let left: Vec<_> = try_join_all(looks).await?.into_iter().flatten().collect();
        for (key, etag) in &left {
            // Best effort: a record without a line says so to the next job that finds it.
            if let Some(etag) = etag {
                let removal =
                    TableOperation::Delete((*key).clone(), IfMatch::Matches(etag.clone()));
                drop(self.tables.apply(&footprint::table(), &removal).await);
            }
        }
        Ok(!left.is_empty())
    }

    /// The blob that takes so many bytes more, its metadata saying so of the times.
    async fn open(
        &self,
        current: Option<Tail>,
        bytes: u64,
        span: Bounds,
    ) -> Result<Tail, StoreError> {
        let mut now = match current {
            Some(now) => now,
            None => self.discover(span).await?,
        };
        if now.length > 0 && now.length.saturating_add(bytes) > self.target.roll_at {
            now = self.begin(now.number + self.target.spread, span).await?;
        }
        self.widen(&mut now, span).await?;
        Ok(now)
    }

    /// The last blob of this lane, or the first one.
    async fn discover(&self, span: Bounds) -> Result<Tail, StoreError> {
        let prefix = format!("{}/", self.folder);
        let (mut marker, mut last) = (None, None);
        loop {
            let page = self
                .blobs
                .list(&self.target.container, &prefix, marker.as_deref())
                .await?;
            let numbers = page
                .blobs
                .iter()
                .filter_map(|blob| log::number(self.folder, &blob.name));
            last = numbers
                .filter(|number| {
                    number % self.target.spread == (self.lane + 1) % self.target.spread
                })
                .max()
                .max(last);
            match page.marker {
                Some(next) => marker = Some(next),
                None => return self.begin(last.unwrap_or(self.lane + 1), span).await,
            }
        }
    }

    /// Begins a blob, or goes on with it.
    async fn begin(&self, number: u32, span: Bounds) -> Result<Tail, StoreError> {
        let name = log::name(self.folder, number)
            .ok_or_else(|| self.error(ErrorClass::Permanent, "the name is too long"))?;
        for _ in 0..TRIES {
            if let Some(found) = self.blobs.properties(&self.target.container, &name).await? {
                return Ok(Tail {
                    number,
                    name,
                    length: found.length,
                    span: Bounds::of(&found.metadata),
                });
            }
            let mut upload = BlobUpload {
                condition: BlobCondition::Absent,
                content_type: Some("application/x-ndjson".to_owned()),
                ..BlobUpload::default()
            };
            let span = span.rounded();
            span.on(&mut upload.metadata);
            match self
                .blobs
                .create_append(&self.target.container, &name, &upload)
                .await
            {
                Ok(_) => {
                    return Ok(Tail {
                        number,
                        name,
                        length: 0,
                        span: Some(span),
                    });
                }
                Err(error) if error.may_have_lost() => {}
                Err(error) => return Err(error),
            }
        }
        Err(self.error(
            ErrorClass::Transient { retry_after: None },
            "others begin and remove this blob",
        ))
    }

    /// Widens the time span in a blob's metadata, before a line goes there: a reader never misses one.
    async fn widen(&self, now: &mut Tail, span: Bounds) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            if now.span.is_some_and(|known| known.covers(&span)) {
                return Ok(());
            }
            let found = self
                .blobs
                .properties(&self.target.container, &now.name)
                .await?;
            let BlobProperties {
                etag,
                length,
                mut metadata,
                ..
            } = found.ok_or_else(|| self.error(ErrorClass::Precondition, "the blob is gone"))?;
            let wider = span.rounded().and(Bounds::of(&metadata));
            wider.on(&mut metadata);
            match self
                .blobs
                .set_metadata(&self.target.container, &now.name, &metadata, &etag)
                .await
            {
                Ok(_) => (now.length, now.span) = (length, Some(wider)),
                // Others append and widen as well.
                Err(error) if error.may_have_lost() => {}
                Err(error) => return Err(error),
            }
        }
        match now.span {
            Some(known) if known.covers(&span) => Ok(()),
            _ => Err(self.error(
                ErrorClass::Precondition,
                "others change this blob's metadata",
            )),
        }
    }

    fn error(&self, class: ErrorClass, message: &str) -> StoreError {
        let account: AccountName = self.target.account.clone();
        StoreError::new(
            class,
            "Append Block",
            Subject {
                account,
                resource: Resource::Container(self.target.container.clone()),
            },
            message,
        )
    }
}

fn line_at(position: u64, entry: &Line) -> LinePlace {
    LinePlace {
        position,
        length: entry.bytes.len() as u64,
        sha256: entry.sha256.clone(),
        version: entry.source_etag.clone(),
    }
}

/// The answer to one line for an error.
fn answer(doing: &str, error: StoreError) -> Append {
    match error.class {
        ErrorClass::Ambiguous => Append::Unanswered,
        ErrorClass::TooLarge => Append::Lost,
        _ if error.is_lost_race() => Append::Lost,
        _ => {
            let failure = storage(doing, error);
            Append::Failed(AppendFailure {
                class: failure.class,
                text: failure.chain(),
            })
        }
    }
}

/// Answers each of a batch with an error.
fn reply(batch: Vec<Pending<Line, Append>>, doing: &str, error: StoreError) {
    let said = answer(doing, error);
    for one in batch {
        one.tell(match &said {
            Append::Failed(shared) => Append::Failed(shared.clone()),
            Append::Unanswered => Append::Unanswered,
            Append::Done(_) | Append::Lost => Append::Lost,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lines_of_one_entity_do_not_travel_in_one_transaction() {
        let entry = |rk: &str, etag: &str| {
            let key = EntityKey::new("Sales", rk).unwrap();
            Line {
                bytes: Bytes::from_static(b"{}\n"),
                sha256: String::new(),
                moment: Timestamp::UNIX_EPOCH,
                key: key.clone(),
                primary: Primary {
                    table: TableName::new("Events").unwrap(),
                    key,
                },
                source_etag: etag.to_owned(),
                stamp: Stamp {
                    message_id: "m".to_owned(),
                    enqueued: Timestamp::UNIX_EPOCH,
                    job: None,
                },
                over: None,
            }
        };
        let mut fits = fits_append();
        assert_eq!(
            [("e1", "a"), ("e2", "b"), ("e1", "a")].map(|(rk, etag)| fits(&entry(rk, etag))),
            [true, true, false]
        );
        let (mut fits, names) = (
            fits_append(),
            (0..=limits::TRANSACTION_OPERATIONS).map(|n| n.to_string()),
        );
        assert_eq!(
            names.take_while(|rk| fits(&entry(rk, "a"))).count(),
            limits::TRANSACTION_OPERATIONS
        );
    }
}
