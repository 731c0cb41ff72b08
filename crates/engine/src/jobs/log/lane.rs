//! Lanes of a log. The blobs of an hour form `spread` sequences, which are called lanes. Lines that wait for the same
//! lane are appended together.
//!
//! One of the waiting callers appends the lines of all of them, and answers the other callers. If the future of that
//! caller is dropped, the other callers get no answer, and their jobs read their records again.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use futures::future::try_join_all;
use jiff::Timestamp;

use crate::execute::{Failure, FailureClass};
use crate::failure::storage;
use crate::jobs::log::record::{LinePlace, LineRecord};
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

/// Maximum number of attempts to widen the span in a blob's metadata, or to create a blob, while other writers do the
/// same.
const TRIES: u32 = 5;

pub(crate) struct Line {
    pub(crate) bytes: Bytes,
    pub(crate) sha256: String,
    /// Time of the entity. The line is appended to a blob of this hour.
    pub(crate) moment: Timestamp,
    pub(crate) key: EntityKey,
    pub(crate) primary: Primary,
    pub(crate) source_etag: String,
    pub(crate) stamp: Stamp,
    pub(crate) over: Option<ETag>,
}

pub(crate) enum AppendResult {
    /// The line is in the blob, and its record has this ETag.
    Done(Option<ETag>),
    Lost,
    Unanswered,
    Failed(AppendFailure),
}

#[derive(Debug, Clone)]
pub(crate) struct AppendFailure {
    class: FailureClass,
    text: String,
}

impl AppendFailure {
    pub(crate) fn of(self, step: String) -> Failure {
        Failure::new(self.class, step, self.text)
    }
}

/// A record of an append that may still arrive. When the blob was read, it ended at `record.start`, so it contained no
/// line of the record.
pub(crate) struct OpenAppend {
    pub(crate) record: LineRecord,
    pub(crate) span: Option<Bounds>,
}

pub(crate) struct LogSite<'a> {
    pub(crate) blobs: &'a dyn BlobStore,
    pub(crate) tables: &'a dyn TableStore,
    /// The table from which entities are archived. The records are stored in the account of this table.
    pub(crate) source: &'a TableName,
    pub(crate) target: &'a LogTarget,
    pub(crate) archive: &'a ViewName,
    pub(crate) folder: &'a str,
    pub(crate) lane: u32,
}

/// The lanes of this process, each with the blob to which it appends. Idle lanes are evicted when a new lane is first
/// used.
#[derive(Default)]
pub(crate) struct LogLanes(Combiner<LaneKey, Line, AppendResult, Option<LaneBlob>>);

type LaneKey = (ViewName, String, u32);

struct LaneBlob {
    number: u32,
    name: BlobName,
    length: u64,
    span: Option<Bounds>,
}

impl LogLanes {
    pub(crate) async fn append(&self, place: &LogSite<'_>, entry: Line) -> AppendResult {
        let name = (place.archive.clone(), place.folder.to_owned(), place.lane);
        self.0
            .ask(name, entry, place)
            .await
            .unwrap_or(AppendResult::Unanswered)
    }
}

impl Serve<Line, AppendResult, Option<LaneBlob>> for LogSite<'_> {
    async fn serve(
        &self,
        queue: &Queue<Line, AppendResult, Option<LaneBlob>>,
        current: &mut Option<LaneBlob>,
    ) {
        self.write(current, queue.take(fits_append())).await;
    }
}

/// Returns a predicate that tests whether the next line fits into the same append. An append has at most 4 MiB. Its
/// records are written in one transaction, which may contain each record only once. So if two jobs append lines of the
/// same entity, the second line waits for the next append. The first append changes the record, so the write of the
/// record for the second line fails, and the second job reads the record again.
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
    /// An earlier append may still arrive. Appends the line at the position of that append, so that only one of the two
    /// can succeed. The record keeps the earlier lines, because the earlier append may be the one that succeeds. If the
    /// blob is full, neither can succeed. Then the line is returned with the ETag of its record.
    pub(crate) async fn close(&self, open: OpenAppend, entry: Line) -> Result<AppendResult, Line> {
        let OpenAppend { record: open, span } = open;
        let mut current = LaneBlob {
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
                &self.doing("extending the time range of", &open.blob),
                error,
            ));
        }
        if current.length != open.start {
            // The blob has grown, so another append was written, possibly the earlier one.
            return Ok(AppendResult::Lost);
        }
        let record = open.with_line(line_at(open.start, &entry));
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
            Ok(_) => Ok(AppendResult::Done(recorded)),
            Err(error) if error.class == ErrorClass::TooLarge => match self
                .blobs
                .properties(&self.target.container, &open.blob)
                .await
            {
                // The blob is full, so the earlier append cannot succeed either.
                Ok(Some(found)) if found.length == open.start => Err(Line {
                    over: recorded,
                    ..entry
                }),
                // The blob was filled meanwhile. Its last block may be the earlier append.
                Ok(_) => Ok(AppendResult::Lost),
                Err(error) => Ok(answer(
                    &self.doing("reading the properties of", &open.blob),
                    error,
                )),
            },
            Err(error) => Ok(answer(&self.doing("appending to", &open.blob), error)),
        }
    }

    async fn write(&self, current: &mut Option<LaneBlob>, batch: Vec<Pending<Line, AppendResult>>) {
        let entries: Vec<&Line> = batch.iter().map(|one| &one.request).collect();
        let bytes: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
        let moments = || entries.iter().map(|entry| entry.moment);
        let (Some(first), Some(last)) = (moments().min(), moments().max()) else {
            return;
        };
        // If this future is dropped, `current` stays empty. The length of the blob is then unknown, so the next append
        // reads it.
        let mut lane_blob = match self
            .open(current.take(), bytes as u64, Bounds::new(first, last))
            .await
        {
            Ok(lane_blob) => lane_blob,
            Err(error) => return reply(batch, &self.doing("opening", self.folder), error),
        };
        let start = lane_blob.length;
        let mut position = start;
        let records: Vec<LineRecord> = entries
            .iter()
            .map(|entry| {
                let line = line_at(position, entry);
                position += line.length;
                LineRecord {
                    blob: lane_blob.name.clone(),
                    start,
                    line,
                    former: Vec::new(),
                }
            })
            .collect();
        let etags = match self.record(&records, &entries).await {
            Ok(etags) => etags,
            Err(error) => {
                *current = Some(lane_blob);
                if batch.len() == 1 || !error.is_lost_race() {
                    return reply(batch, &self.doing("recording lines of", self.folder), error);
                }
                // One of the lines has lost a race, and the error of the transaction does not always name that line. So
                // each line is written separately.
                for one in batch {
                    Box::pin(self.write(current, vec![one])).await;
                }
                return;
            }
        };
        match self.withdraw(&entries, &etags).await {
            Ok(false) => {}
            Ok(true) => {
                *current = Some(lane_blob);
                return batch
                    .into_iter()
                    .for_each(|one| one.tell(AppendResult::Lost));
            }
            Err(error) => {
                *current = Some(lane_blob);
                return reply(
                    batch,
                    &self.doing("reading the sources of lines of", self.folder),
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
            .append(
                &self.target.container,
                &lane_blob.name,
                content.freeze(),
                start,
            )
            .await
        {
            Ok(_) => {
                lane_blob.length = position;
                *current = Some(lane_blob);
                batch
                    .into_iter()
                    .zip(etags)
                    .for_each(|(one, etag)| one.tell(AppendResult::Done(etag)));
            }
            Err(error) => {
                if error.class == ErrorClass::TooLarge {
                    // The blob has as many blocks as a blob can have. The lane continues with the next blob, and each
                    // job reads its record again.
                    *current = self
                        .begin(
                            lane_blob.number + self.target.spread,
                            Bounds::new(first, last),
                        )
                        .await
                        .ok();
                }
                reply(batch, &self.doing("appending to", &lane_blob.name), error);
            }
        }
    }

    fn doing(&self, what: &str, name: impl std::fmt::Display) -> String {
        format!("{what} {}/{name}", self.target.container)
    }

    async fn record(
        &self,
        records: &[LineRecord],
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

    /// Reads the source again for each line with a newly inserted record. If the source no longer has the version of
    /// the line, another job may have logged that version ([`super`] describes how), so the record is deleted again.
    /// Returns `true` if the source of any line has changed. In that case, no line of the batch may be appended.
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
            // A failure is ignored, because the next job that finds a record without a line handles that record.
            if let Some(etag) = etag {
                let removal =
                    TableOperation::Delete((*key).clone(), IfMatch::Matches(etag.clone()));
                drop(self.tables.apply(&footprint::table(), &removal).await);
            }
        }
        Ok(!left.is_empty())
    }

    /// Returns a blob with room for `bytes` more bytes. The time range in its metadata includes `span`.
    async fn open(
        &self,
        current: Option<LaneBlob>,
        bytes: u64,
        span: Bounds,
    ) -> Result<LaneBlob, StoreError> {
        let mut lane_blob = match current {
            Some(lane_blob) => lane_blob,
            None => self.discover(span).await?,
        };
        if lane_blob.length > 0 && lane_blob.length.saturating_add(bytes) > self.target.roll_at {
            lane_blob = self
                .begin(lane_blob.number + self.target.spread, span)
                .await?;
        }
        self.widen(&mut lane_blob, span).await?;
        Ok(lane_blob)
    }

    /// Finds the last blob of this lane, or begins the first one.
    async fn discover(&self, span: Bounds) -> Result<LaneBlob, StoreError> {
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

    /// Returns the blob with this number, and creates it if it does not exist.
    async fn begin(&self, number: u32, span: Bounds) -> Result<LaneBlob, StoreError> {
        let name = log::name(self.folder, number)
            .ok_or_else(|| self.error(ErrorClass::Permanent, "the blob name is too long"))?;
        for _ in 0..TRIES {
            if let Some(found) = self.blobs.properties(&self.target.container, &name).await? {
                return Ok(LaneBlob {
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
                    return Ok(LaneBlob {
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
            "other processes keep creating and deleting this blob",
        ))
    }

    /// Widens the time span in a blob's metadata before a line is appended, so that no reader misses the line.
    async fn widen(&self, lane_blob: &mut LaneBlob, span: Bounds) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            if lane_blob.span.is_some_and(|known| known.covers(&span)) {
                return Ok(());
            }
            let found = self
                .blobs
                .properties(&self.target.container, &lane_blob.name)
                .await?;
            let BlobProperties {
                etag,
                length,
                mut metadata,
                ..
            } = found
                .ok_or_else(|| self.error(ErrorClass::Precondition, "the blob no longer exists"))?;
            let wider = span.rounded().and(Bounds::of(&metadata));
            wider.on(&mut metadata);
            match self
                .blobs
                .set_metadata(&self.target.container, &lane_blob.name, &metadata, &etag)
                .await
            {
                Ok(_) => (lane_blob.length, lane_blob.span) = (length, Some(wider)),
                // Another writer has changed the blob meanwhile, so its properties are read again.
                Err(error) if error.may_have_lost() => {}
                Err(error) => return Err(error),
            }
        }
        match lane_blob.span {
            Some(known) if known.covers(&span) => Ok(()),
            _ => Err(self.error(
                ErrorClass::Precondition,
                "other processes keep changing the metadata of this blob",
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

fn answer(doing: &str, error: StoreError) -> AppendResult {
    match error.class {
        ErrorClass::Ambiguous => AppendResult::Unanswered,
        ErrorClass::TooLarge => AppendResult::Lost,
        _ if error.is_lost_race() => AppendResult::Lost,
        _ => {
            let failure = storage(doing, error);
            AppendResult::Failed(AppendFailure {
                class: failure.class,
                text: failure.chain(),
            })
        }
    }
}

fn reply(batch: Vec<Pending<Line, AppendResult>>, doing: &str, error: StoreError) {
    let result = answer(doing, error);
    for one in batch {
        one.tell(match &result {
            AppendResult::Failed(shared) => AppendResult::Failed(shared.clone()),
            AppendResult::Unanswered => AppendResult::Unanswered,
            AppendResult::Done(_) | AppendResult::Lost => AppendResult::Lost,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_has_one_line_per_entity() {
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
