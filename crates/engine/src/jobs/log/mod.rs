//! An archive that is a log: lines in append blobs, by hour; **one line per key and ETag**, also for repeated deliveries.
//!
//! ```text
//!   record: where the line will lie   ─▶  append at that very position  ─▶  delete the source  ─▶  forget the record
//!                                             │ the answer is lost, or the worker
//!   read the record, then the length, ◀───────┘ the line is there: it was appended
//!   then the position                           the blob was longer: this append can no longer happen
//!                                               the blob ended there: append there, so that it cannot happen
//! ```
//!
//! The length is read first: an append that arrives after that is seen in its place, or, where the place is taken next,
//! loses or wins while the record names it; the record keeps every place until one of them is settled.
//!
//! An append names its position, so that of two at one position one fails; a record names the position before the
//! append, and where the appends that it travels with begin. A later delivery therefore knows whether a line is
//! there, and before a line goes anywhere else the place that was meant for it is taken. Nothing is ever read from a log to
//! be brought back: there is no `restore`.
//!
//! Two jobs may have read one version. A record is removed when its version has left the source: a job that finds none
//! and inserts one looks at the source once more before the append. Where the version is still there, no job has logged
//! it and removed the record; where it has left, another job may have, and nothing is appended.
//!
//! Records lie in the table of footprints of the source's account, under `~log~<archive>~<lane>`.

pub(crate) mod lane;
mod record;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::execute::{Delivery, Failure};
use crate::failure::{permanent, storage};
use crate::jobs::context::JobContext;
use crate::jobs::log::lane::{Append, Line, LogSite, Open};
use crate::jobs::log::record::{LinePlace, Record};
use crate::jobs::since::{DatedRow, is_written_since};
use crate::protocol::change::{Change, Commit};
use crate::protocol::footprint;
use crate::protocol::observe::{Observation, PrimaryRead};
use evenkeel_model::catalog::{Archive, LogTarget};
use evenkeel_model::item::SOURCE_ETAG;
use evenkeel_model::job::Primary;
use evenkeel_model::log::Bounds;
use evenkeel_model::{ETag, EdmDateTime, Entity, EntityKey, Row, log};
use evenkeel_storage::{Account, IfMatch, TableOperation, TableStore};

/// The line of one entity.
pub(crate) struct EntityLine<'e> {
    cx: &'e JobContext,
    archive: &'e Archive,
    target: &'e LogTarget,
    account: &'e Account,
    tables: &'e dyn TableStore,
    primary: Primary,
    delivery: &'e Delivery,
    lane: u32,
    /// When the entity was last written.
    written: Timestamp,
    /// A record without its line, which may still arrive.
    open: Option<Open>,
    /// The ETag of the record.
    recorded: Option<ETag>,
}

impl<'e> EntityLine<'e> {
    /// Of an entity of an archive's source.
    pub(crate) fn new(
        cx: &'e JobContext,
        archive: &'e Archive,
        target: &'e LogTarget,
        key: &EntityKey,
        delivery: &'e Delivery,
    ) -> Result<Self, Failure> {
        let account = cx
            .env
            .stores
            .account(&target.account)
            .map_err(|error| permanent("finding the account of the archive", error))?;
        let tables = cx.env.account(&archive.source)?.tables.as_ref();
        let primary = Primary {
            table: archive.source.table.clone(),
            key: key.clone(),
        };
        let lane = record::lane(&primary, target.spread);
        let written = delivery.stamp.enqueued;
        Ok(Self {
            cx,
            archive,
            target,
            account,
            tables,
            primary,
            delivery,
            lane,
            written,
            open: None,
            recorded: None,
        })
    }

    fn doing(&self, what: &str) -> String {
        format!(
            "{what} the line of {} in archive {}",
            self.primary, self.archive.name
        )
    }

    /// Sets this version of the source as the next to copy.
    pub(crate) fn set_source(&mut self, row: &Row) {
        self.written = row
            .timestamp
            .map_or(self.delivery.stamp.enqueued, EdmDateTime::timestamp);
    }

    /// Reads the record, and whether its line is there.
    pub(crate) async fn find(&mut self) -> Result<Observation, Failure> {
        (self.open, self.recorded) = (None, None);
        let Some(mut row) = self.read_record().await? else {
            return Ok(Observation::blank());
        };
        self.recorded = Some(row.etag.clone());
        let record = Record::decode(&row.entity)
            .map_err(|problem| permanent(self.doing("reading the record of"), problem))?;
        // The length before the places: an append that arrives in between is seen where it lies.
        let blob = self
            .account
            .blobs
            .properties(&self.target.container, &record.blob)
            .await;
        let blob = blob.map_err(|error| storage(self.doing("looking for"), error))?;
        match self.appended(&record).await? {
            Some(line) if *line == record.line => {}
            found => {
                // As if it had been taken back: this version of the source is written again, unless it is the one that is there.
                record::take_back(&mut row.entity);
                match found {
                    Some(former) => drop(
                        row.entity
                            .properties
                            .insert(record::LOGGED.to_owned(), former.version.as_str().into()),
                    ),
                    None => drop(row.entity.properties.remove(record::LOGGED)),
                }
                let may_arrive = found.is_none();
                // Another append has taken the start of one that a longer blob has not the line of.
                let open = blob.filter(|blob| may_arrive && blob.length == record.start);
                if open.is_some() && !self.target.path.holds(&record.blob) {
                    // To be appended to, it must be a blob of this archive: the record may be forged.
                    return Err(permanent(
                        self.doing("reading the record of"),
                        record::UnreadableRecord::Property("Blob"),
                    ));
                }
                self.open = open.map(|blob| Open {
                    span: Bounds::of(&blob.metadata),
                    record,
                });
            }
        }
        Ok(Observation {
            primary: PrimaryRead::Present(row),
            ..Observation::blank()
        })
    }

    async fn read_record(&self) -> Result<Option<Row>, Failure> {
        let key = record::key(&self.archive.name, &self.primary, self.lane);
        let row = self.tables.get(&footprint::table(), &key, None).await;
        row.map_err(|error| storage(self.doing("reading the record of"), error))
    }

    /// The line of a record that is in its place.
    async fn appended<'r>(&self, record: &'r Record) -> Result<Option<&'r LinePlace>, Failure> {
        for place in record.places() {
            let range = place.position..place.position + place.length;
            let found = self
                .account
                .blobs
                .get(&self.target.container, &record.blob, Some(range))
                .await;
            let found = found.map_err(|error| storage(self.doing("looking for"), error))?;
            if found.is_some_and(|blob| hex::encode(Sha256::digest(&blob.content)) == place.sha256)
            {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Whether this version of the source has its line, from any job.
    pub(crate) fn is_logged(source: &Row, found: Option<&Row>) -> bool {
        found.and_then(|row| row.entity.text(record::LOGGED)) == Some(source.etag.as_str())
    }

    /// Whether an earlier message or delivery may have done all there was to do, and the source been created since.
    pub(crate) fn may_be_anew(&self, source: &Row) -> Result<bool, Failure> {
        let skew = self
            .cx
            .env
            .clocks_apart(self.delivery, &self.archive.source);
        is_written_since(DatedRow { row: source, skew }, self.delivery)
    }

    /// Appends the line.
    pub(crate) async fn append(&mut self, change: &Change) -> Result<Commit, Failure> {
        let (entity, over) = match change {
            Change::Insert(entity) => (entity, None),
            Change::Replace(entity, etag)
            | Change::Merge {
                merged: entity,
                etag,
                ..
            } => (entity, Some(etag.clone())),
            Change::Delete(..) => return Ok(Commit::Lost),
        };
        let entry = self.entry(entity, over);
        let folder = self.target.path.of(entry.moment);
        let place = LogSite {
            blobs: self.account.blobs.as_ref(),
            tables: self.tables,
            source: &self.archive.source.table,
            target: self.target,
            archive: &self.archive.name,
            folder: &folder,
            lane: self.lane,
        };
        let answer = match self.open.take() {
            Some(open) => match place.close(open, entry).await {
                Ok(answer) => answer,
                Err(entry) => self.cx.lanes.append(&place, entry).await,
            },
            None => self.cx.lanes.append(&place, entry).await,
        };
        match answer {
            Append::Done(etag) => {
                self.recorded = etag;
                Ok(Commit::Closed)
            }
            Append::Lost => Ok(Commit::Lost),
            Append::Unanswered => Ok(Commit::Unanswered),
            Append::Failed(failure) => Err(failure.of(self.doing("appending"))),
        }
    }

    fn entry(&self, entity: &Entity, over: Option<ETag>) -> Line {
        let line = log::line(entity, self.written);
        Line {
            sha256: hex::encode(Sha256::digest(&line)),
            moment: log::moment(entity, self.target.time.as_deref(), self.written),
            bytes: line,
            key: record::key(&self.archive.name, &self.primary, self.lane),
            primary: self.primary.clone(),
            source_etag: entity.text(SOURCE_ETAG).unwrap_or_default().to_owned(),
            stamp: self.delivery.stamp.clone(),
            over,
        }
    }

    /// Takes back the word that this version is all there is, so that the next delivery appends another one.
    pub(crate) async fn reopen_record(&mut self) -> Result<(), Failure> {
        let Some(mut row) = self.read_record().await? else {
            return Ok(());
        };
        record::take_back(&mut row.entity);
        let operation = TableOperation::Replace(row.entity, IfMatch::Matches(row.etag));
        self.tables
            .apply(&footprint::table(), &operation)
            .await
            .map(drop)
            .map_err(|error| storage(self.doing("taking back"), error))
    }

    /// The source is gone: its record has served.
    pub(crate) async fn forget_record(&mut self) -> Result<(), Failure> {
        let Some(etag) = self.recorded.take() else {
            return Ok(());
        };
        let key = record::key(&self.archive.name, &self.primary, self.lane);
        match self
            .tables
            .apply(
                &footprint::table(),
                &TableOperation::Delete(key, IfMatch::Matches(etag)),
            )
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.may_have_lost() => Ok(()),
            Err(error) => Err(storage(self.doing("removing the record of"), error)),
        }
    }
}
