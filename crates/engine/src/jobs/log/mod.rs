//! An archive that is a log: each entity is appended as a line to an append blob of its hour. The log has **one line
//! per key and ETag**, even after redeliveries.
//!
//! One append request may contain the lines of several entities. Before the request is sent, each line gets a record
//! with two offsets in the blob: `start`, at which the append begins, and `position`, at which the line begins.
//!
//! ```text
//!   write the record  ─▶  append at `start`  ─▶  delete the source  ─▶  delete the record
//!                             │
//!                             │ no answer, or the worker crashed: a later delivery continues
//!                             ▼
//!   read the record, then the length of the blob, then the bytes at `position`
//!
//!     the line is at `position`                 the append has succeeded
//!     no line, but the blob ends after `start`  another append is at `start`, so this one can no longer succeed
//!     no line, and the blob ends at `start`     the append may still arrive: append again at `start`
//! ```
//!
//! The later delivery reads the length of the blob before it reads the bytes at `position`. If the earlier append
//! arrives in between, the delivery finds its line.
//!
//! If the blob ends at `start`, the later delivery appends at `start` before it appends anywhere else. The service
//! executes an append only if the blob ends at the offset that the request names. So only one of the two appends can
//! succeed. The record lists the lines of both.
//!
//! `restore` does not support logs.
//!
//! Two jobs may read the same version of the source. The first job may log the version, delete it from the source, and
//! then delete its record. The second job then finds no record. So a job that inserts a record reads the source again
//! before it appends. If the source still has the version, no other job has logged it. Otherwise, another job may have
//! logged it, and this job appends nothing.
//!
//! Records are stored in the footprint table of the source's account, in the partition `~log~<archive>~<lane>`.

pub(crate) mod lane;
mod record;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::execute::{Delivery, Failure};
use crate::failure::{permanent, storage};
use crate::jobs::context::JobContext;
use crate::jobs::log::lane::{AppendResult, Line, LogSite, OpenAppend};
use crate::jobs::log::record::{LinePlace, LineRecord};
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

pub(crate) struct EntityLine<'e> {
    cx: &'e JobContext,
    archive: &'e Archive,
    target: &'e LogTarget,
    account: &'e Account,
    tables: &'e dyn TableStore,
    primary: Primary,
    delivery: &'e Delivery,
    lane: u32,
    written: Timestamp,
    open: Option<OpenAppend>,
    recorded: Option<ETag>,
}

impl<'e> EntityLine<'e> {
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

    pub(crate) fn set_source(&mut self, row: &Row) {
        self.written = row
            .timestamp
            .map_or(self.delivery.stamp.enqueued, EdmDateTime::timestamp);
    }

    pub(crate) async fn find(&mut self) -> Result<Observation, Failure> {
        (self.open, self.recorded) = (None, None);
        let Some(mut row) = self.read_record().await? else {
            return Ok(Observation::blank());
        };
        self.recorded = Some(row.etag.clone());
        let record = LineRecord::decode(&row.entity)
            .map_err(|problem| permanent(self.doing("reading the record of"), problem))?;
        // The length of the blob is read before `appended` reads the lines. If an append arrives between the two reads,
        // `appended` finds its line.
        let blob = self
            .account
            .blobs
            .properties(&self.target.container, &record.blob)
            .await;
        let blob = blob.map_err(|error| storage(self.doing("finding"), error))?;
        match self.appended(&record).await? {
            Some(line) if *line == record.line => {}
            found => {
                // The latest line was not appended. The record is treated as reopened, so that the present version of
                // the source is appended. If a former line was found, the record gets the version of that line, so that
                // this version is not appended again.
                record::reopen(&mut row.entity);
                match found {
                    Some(former) => drop(
                        row.entity
                            .properties
                            .insert(record::LOGGED.to_owned(), former.version.as_str().into()),
                    ),
                    None => drop(row.entity.properties.remove(record::LOGGED)),
                }
                let may_arrive = found.is_none();
                // No line of the record was found. If the blob ends at `start`, the recorded appends may still arrive.
                // If the blob is longer, another append was written at `start`, and the recorded ones can no longer
                // succeed.
                let open = blob.filter(|blob| may_arrive && blob.length == record.start);
                if open.is_some() && !self.target.path.holds(&record.blob) {
                    // The record may be forged. Never append to a blob outside this archive.
                    return Err(permanent(
                        self.doing("reading the record of"),
                        record::UnreadableRecord::Property("Blob"),
                    ));
                }
                self.open = open.map(|blob| OpenAppend {
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

    async fn appended<'r>(&self, record: &'r LineRecord) -> Result<Option<&'r LinePlace>, Failure> {
        for place in record.places() {
            let range = place.position..place.position + place.length;
            let found = self
                .account
                .blobs
                .get(&self.target.container, &record.blob, Some(range))
                .await;
            let found = found.map_err(|error| storage(self.doing("finding"), error))?;
            if found.is_some_and(|blob| hex::encode(Sha256::digest(&blob.content)) == place.sha256)
            {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    pub(crate) fn is_logged(source: &Row, found: Option<&Row>) -> bool {
        found.and_then(|row| row.entity.text(record::LOGGED)) == Some(source.etag.as_str())
    }

    /// Whether the source may be a new entity, created after an earlier message or delivery had completed this job.
    pub(crate) fn may_be_recreated(&self, source: &Row) -> Result<bool, Failure> {
        let skew = self
            .cx
            .env
            .clocks_apart(self.delivery, &self.archive.source);
        is_written_since(DatedRow { row: source, skew }, self.delivery)
    }

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
            AppendResult::Done(etag) => {
                self.recorded = etag;
                Ok(Commit::Closed)
            }
            AppendResult::Lost => Ok(Commit::Lost),
            AppendResult::Unanswered => Ok(Commit::Unanswered),
            AppendResult::Failed(failure) => Err(failure.of(self.doing("appending"))),
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

    pub(crate) async fn reopen_record(&mut self) -> Result<(), Failure> {
        let Some(mut row) = self.read_record().await? else {
            return Ok(());
        };
        record::reopen(&mut row.entity);
        let operation = TableOperation::Replace(row.entity, IfMatch::Matches(row.etag));
        self.tables
            .apply(&footprint::table(), &operation)
            .await
            .map(drop)
            .map_err(|error| storage(self.doing("reopening the record of"), error))
    }

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
            Err(error) => Err(storage(self.doing("deleting the record of"), error)),
        }
    }
}
