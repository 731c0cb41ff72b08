//! The history of the entities of the `archives` world. Each change is checked when it happens:
//!
//! * A worker deletes an entity only for a delete job, or if exactly the deleted version was copied before, to an archive or to a new key.
//! * A document or log line names a version of its entity, and has the content of this version. A version has at most one log line.
//! * A document is replaced only by a document of a newer version. An archive job that has deleted its source replaces no document
//!   afterwards.
//! * If the content of a document was restored, any worker may delete the document. Otherwise only the job that wrote the document may
//!   delete it, and only if no job has deleted the source because of this document.
//! * A worker writes or deletes an entity, or creates a document, only for a job that runs, or that ran when the request was sent. So a
//!   deleted entity stays deleted, and each delivery of a delete job deletes at most once.
//! * A put writes what its client sent, a restore writes what was archived, and a move writes what it moves. A put overwrites only what its
//!   condition allows. A restore or a move overwrites nothing but its own earlier write.
//!
//! The known limit of the `company` world exists here, too: a late insert may restore what was deleted before it arrived.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use super::content::{ArchivedVersion, Content, archived, of_entity};
use super::dated::DatedHistory;
use super::script::SentContent;
use super::{ArchivesShape, DOCUMENTS, EVENTS, FOLDER, LOGS, PAPERS, RECORDS, SOURCES};
use crate::history::{CLIENT, History, VERSION};
use crate::items::Address;
use crate::ledger::{Author, EntityJob, Expectation, JobCondition, LastWrite, Ledger, SentRequest};
use crate::warrant::for_whom;
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_engine::Outcome;
use evenkeel_model::{EntityKey, Row};
use evenkeel_storage::FilePlace;

/// Maximum time by which a document may be older than a job's message if the job regards the document as newer. The
/// clock of the worker that dated the document may be 15 minutes ahead. The job tolerates another 15 minutes.
const WORKERS_APART: SignedDuration = SignedDuration::from_mins(30);

#[derive(Debug, Clone, PartialEq)]
struct WrittenVersion {
    content: Content,
    by: Option<String>,
    at: (u64, Timestamp),
}

#[derive(Debug, Clone, Default)]
struct KnownEntity {
    versions: BTreeMap<String, WrittenVersion>,
    /// The present ETag, or `None` if the entity is absent.
    now: Option<String>,
    absent_at: u64,
    present_at: u64,
}

#[derive(Debug, Clone)]
pub(super) struct FiledDocument {
    pub(super) says: ArchivedVersion,
    /// The source version that the document contains.
    version: Option<String>,
    /// Whether the archived content was written to the source again.
    restored: bool,
    /// Whether an archive job has deleted the archived version from the source while this document existed.
    used: bool,
    /// Whether the document was written by a request that arrived after its sender had given up.
    pub(super) late: bool,
}

#[derive(Debug)]
pub(crate) struct ArchiveHistory {
    sent_contents: BTreeMap<i64, SentContent>,
    known: BTreeMap<Address, KnownEntity>,
    /// The documents, by source table and key of the archived entity.
    pub(super) filed: BTreeMap<Address, FiledDocument>,
    /// All contents that the document of an entity has ever had.
    once_filed: BTreeMap<Address, Vec<Content>>,
    unfiled_at: BTreeMap<Address, u64>,
    filed_at: BTreeMap<Address, Timestamp>,
    /// Messages whose archive jobs have written a document and then deleted the source.
    source_deleted: BTreeSet<String>,
    lines: BTreeMap<(EntityKey, String), String>,
    logs: BTreeMap<String, Bytes>,
    pub(super) files: BTreeMap<FilePlace, Bytes>,
    pub(super) dated: DatedHistory,
    written_for: BTreeSet<String>,
    /// By message: the archived entity, and the tick at which a document or log line of this entity was first observed
    /// with the message in its job stamp.
    archived_for: BTreeMap<String, (Address, u64)>,
    /// Contents that were moved to a new key, with the old key.
    moved: BTreeSet<(EntityKey, Content)>,
    pub(crate) resurrections: u64,
}

impl ArchiveHistory {
    pub(crate) fn new(
        sent_contents: BTreeMap<i64, SentContent>,
        shape: ArchivesShape,
        queues_off: SignedDuration,
    ) -> Self {
        Self {
            sent_contents,
            known: BTreeMap::new(),
            filed: BTreeMap::new(),
            once_filed: BTreeMap::new(),
            unfiled_at: BTreeMap::new(),
            filed_at: BTreeMap::new(),
            source_deleted: BTreeSet::new(),
            lines: BTreeMap::new(),
            logs: BTreeMap::new(),
            files: BTreeMap::new(),
            dated: DatedHistory::new(shape, queues_off),
            written_for: BTreeSet::new(),
            archived_for: BTreeMap::new(),
            moved: BTreeSet::new(),
            resurrections: 0,
        }
    }

    /// Records the changes of one operation. An error describes a violation.
    pub(crate) fn record_changes(
        &mut self,
        (execution, sent): (&Execution<'_>, Option<&SentRequest>),
        tick: u64,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        self.dated.record_changes(execution)?;
        let authors = sent.map_or_else(
            || ledger.at_work(execution.caller),
            |sent| sent.authors.clone(),
        );
        let mut seen = SeenOperation {
            execution,
            tick,
            ledger,
            authors,
        };
        for change in execution.changes {
            match change {
                ObservedChange::Row { table, key, row } => {
                    let derived = row
                        .as_ref()
                        .is_some_and(|row| row.entity.text("ek_view").is_some());
                    if let Some(table) = SOURCES.into_iter().find(|name| *name == table.as_str())
                        && !derived
                        && !key.rk.as_str().starts_with("kind_")
                    {
                        self.entity(&mut seen, &(table.to_owned(), key.clone()), row.as_ref())?;
                    }
                }
                ObservedChange::Blob {
                    container,
                    name,
                    blob,
                } if container.as_str() == LOGS => {
                    self.log(
                        &seen,
                        name.as_str(),
                        blob.as_ref().map(|blob| &blob.content),
                    )?;
                }
                ObservedChange::Blob {
                    container,
                    name,
                    blob,
                } if container.as_str() == DOCUMENTS && !is_value(name.as_str()) => {
                    self.document(
                        &seen,
                        PAPERS,
                        name.as_str(),
                        blob.as_ref().map(|blob| &blob.content),
                    )?;
                }
                ObservedChange::File { place, content } => {
                    match content {
                        Some(content) => self.files.insert(place.clone(), content.clone()),
                        None => self.files.remove(place),
                    };
                    if place.dir == FOLDER && !is_value(place.name.as_str()) {
                        self.document(&seen, RECORDS, place.name.as_str(), content.as_ref())?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn entity(
        &mut self,
        seen: &mut SeenOperation<'_>,
        address: &Address,
        row: Option<&Row>,
    ) -> Result<(), String> {
        let before = self.known.get(address).cloned().unwrap_or_default();
        let by_worker = seen.execution.caller != CLIENT;
        let content = row.map(|row| of_entity(&row.entity));
        let by = row
            .and_then(|row| row.entity.text("ek_job")?.split_once(' '))
            .map(|(message, _)| message.to_owned());
        match &content {
            None if by_worker => self.may_delete(seen, address, &before)?,
            Some(content) if by_worker => {
                self.may_write(seen, address, &before, content, by.as_deref())?;
            }
            _ => {}
        }
        if let (Some(by), Some(content)) = (&by, &content) {
            self.written_for.insert(by.clone());
            if let Some(Expectation::Job(EntityJob {
                op: "move",
                key: from,
                to: Some(to),
                ..
            })) = seen.ledger.expectation_of(by)
                && *to == address.1
            {
                self.moved.insert((from.clone(), content.clone()));
            }
        }
        if let Some(content) = &content
            && let Some(filed) = self.filed.get_mut(address)
        {
            filed.restored |= filed.says.content == *content;
        }
        let known = self.known.entry(address.clone()).or_default();
        if known.now.take().is_some() {
            known.present_at = seen.tick.saturating_sub(1);
        } else {
            known.absent_at = seen.tick.saturating_sub(1);
        }
        match (row, content) {
            (Some(row), Some(content)) => {
                known.present_at = seen.tick;
                known.now = Some(row.etag.to_string());
                known.versions.insert(
                    row.etag.to_string(),
                    WrittenVersion {
                        content,
                        by,
                        at: (seen.tick, seen.execution.at),
                    },
                );
            }
            _ => known.absent_at = seen.tick,
        }
        Ok(())
    }

    fn may_delete(
        &mut self,
        seen: &mut SeenOperation<'_>,
        address: &Address,
        before: &KnownEntity,
    ) -> Result<(), String> {
        let Some((etag, version)) = before.current() else {
            return Ok(());
        };
        let key = &address.1;
        let archived = self.lines.contains_key(&(key.clone(), etag.to_owned()))
            || self
                .filed
                .get(address)
                .is_some_and(|filed| filed.version.as_deref() == Some(etag));
        let moved = self.moved.contains(&(key.clone(), version.content.clone()));
        // In this world, clients do not merge properties directly.
        let last = LastWrite {
            etag: Some(etag),
            at: version.at.1,
            by: version.by.as_deref(),
            merged: None,
        };
        let deletes = seen.author(|author, asked| {
            asked.op == "delete" && asked.key == *key && seen.ledger.may_have_deleted(author, last)
        });
        if let Some(author) = &deletes {
            seen.ledger.has_deleted(author);
        }
        let archives = seen.author(|_, asked| asked.op == "archive" && asked.key == *key);
        // Two jobs may have copied this version. Only the job that the document names is recorded. The other job cannot
        // know whether its own delete request succeeded.
        let copied_by = self.filed.get(address).map(|filed| &filed.says.by);
        if let Some(author) = archives
            .as_ref()
            .filter(|author| deletes.is_none() && archived && copied_by == Some(&author.message))
        {
            self.source_deleted.insert(author.message.clone());
        }
        if let Some(filed) = self
            .filed
            .get_mut(address)
            .filter(|_| archives.is_some() && deletes.is_none())
        {
            filed.used |= filed.version.as_deref() == Some(etag);
        }
        let asked = deletes.is_some()
            || (moved
                && seen
                    .author(|_, asked| asked.op == "move" && asked.key == *key)
                    .is_some());
        if asked || (archived && archives.is_some()) {
            return Ok(());
        }
        Err(format!(
            "lost update: {}{key} was deleted at version {version:?}, expected a copy or a job that allows it; the worker's runs: {}",
            address.0,
            for_whom(&seen.authors, seen.ledger)
        ))
    }

    fn may_write(
        &mut self,
        seen: &SeenOperation<'_>,
        address: &Address,
        before: &KnownEntity,
        content: &Content,
        by: Option<&str>,
    ) -> Result<(), String> {
        let (table, key) = address;
        let was = before
            .current()
            .map(|(etag, version)| (etag.to_owned(), version.clone()));
        self.resurrections += u64::from(was.is_none() && seen.execution.late);
        let same = was
            .as_ref()
            .is_some_and(|(_, version)| version.content == *content);
        let asked = by.and_then(|by| seen.ledger.expectation_of(by));
        let Some(Expectation::Job(EntityJob {
            op, key: of, guard, ..
        })) = asked
        else {
            return if same {
                Ok(())
            } else {
                Err(format!(
                    "{table}{key} was written without a job: {content:?}"
                ))
            };
        };
        if same
            && was
                .as_ref()
                .is_some_and(|(_, version)| version.by.as_deref() == by)
        {
            return Ok(());
        }
        if !seen.runs(by) {
            let whom = for_whom(&seen.authors, seen.ledger);
            return Err(format!(
                "{table}{key} was written for message {by:?}, expected one of the worker's runs: {whom}"
            ));
        }
        if !same {
            let right = match *op {
                "put" => self.is_said(content, was.as_ref().map(|(_, version)| &version.content)),
                "restore" => self
                    .once_filed
                    .get(address)
                    .is_some_and(|filed| filed.contains(content)),
                "move" => SOURCES.iter().any(|table| {
                    let known = self.known.get(&((*table).to_owned(), of.clone()));
                    known.is_some_and(|known| {
                        known
                            .versions
                            .values()
                            .any(|version| version.content == *content)
                    })
                }),
                _ => false,
            };
            if !right {
                return Err(format!(
                    "lost update: {table}{key} was {was:?}, then {op} {by:?} wrote unexpected content: {content:?}"
                ));
            }
        }
        // Two messages may contain the same job. The run of each message may overwrite what the run of the other has
        // written.
        let is_own = |other: &str| {
            by.is_some_and(|by| other == by || seen.ledger.same_job(by).contains(&other))
        };
        let allowed = match (&was, *op, guard) {
            (Some((_, version)), ..) if version.by.as_deref().is_some_and(is_own) => true,
            (was, "restore" | "move", _) | (was, _, Some(JobCondition::Absent)) => was.is_none(),
            (was, _, Some(JobCondition::Match(wanted))) => {
                was.as_ref().is_some_and(|(etag, _)| etag == wanted)
            }
            (was, _, Some(JobCondition::Newer(new))) => was
                .as_ref()
                .and_then(|(_, version)| number(&version.content))
                .is_none_or(|old| old < *new),
            (_, _, None) => true,
        };
        if allowed {
            Ok(())
        } else {
            Err(format!(
                "lost update: {table}{key} was {was:?}, then message {by:?} wrote it, although the job's condition does not hold: {asked:?}"
            ))
        }
    }

    /// Whether `content` is the expected result of a client's put on `before`. The version in `content` identifies the
    /// put.
    fn is_said(&self, content: &Content, before: Option<&Content>) -> bool {
        let Some(sent) = number(content).and_then(|version| self.sent_contents.get(&version))
        else {
            return false;
        };
        let mut expected = before.filter(|_| !sent.whole).cloned().unwrap_or_default();
        expected.extend(sent.content.clone());
        expected == *content
    }

    fn document(
        &mut self,
        seen: &SeenOperation<'_>,
        table: &'static str,
        name: &str,
        content: Option<&Bytes>,
    ) -> Result<(), String> {
        let Some(content) = content else {
            let found = self
                .filed
                .iter()
                .find(|((of, key), _)| of == table && document_name(key) == name)
                .map(|(address, _)| address.clone());
            let Some(address) = found else { return Ok(()) };
            let gone = self.filed.remove(&address);
            self.unfiled_at.insert(address, seen.tick);
            let own = |by: &str| {
                seen.author(|author, _| seen.ledger.same_job(&author.message).contains(&by))
                    .is_some()
            };
            return match gone.filter(|gone| !gone.restored && (gone.used || !own(&gone.says.by))) {
                None => Ok(()),
                Some(gone) => Err(format!(
                    "lost update: document {name} was deleted, but no other copy exists: {gone:?}"
                )),
            };
        };
        let says = archived(content)?;
        if document_name(&says.key) != name {
            return Err(format!(
                "document {name} belongs to another entity: {says:?}"
            ));
        }
        let address = (table.to_owned(), says.key.clone());
        let before = self.filed.get(&address);
        let version = match (&says.version, before) {
            (Some(version), _) => Some(version.clone()),
            (None, Some(before)) if before.says.content == says.content => before.version.clone(),
            (None, _) => {
                return Err(format!("document {name} names no version: {says:?}"));
            }
        };
        self.says_what_it_is_of(&address, version.as_deref(), &says)?;
        match before {
            Some(before) if before.version != version => {
                self.may_replace(&address, before, version.as_deref(), &says)?;
            }
            Some(_) => {}
            None if !seen.runs(Some(&says.by)) => {
                let whom = for_whom(&seen.authors, seen.ledger);
                return Err(format!(
                    "resurrection: document {name} was created for message {}, expected one of the worker's runs: {whom}",
                    says.by
                ));
            }
            None => self.resurrections += u64::from(seen.execution.late),
        }
        let same = before.is_some_and(|before| before.version == version);
        let (restored, used) = before
            .filter(|_| same)
            .map_or((false, false), |before| (before.restored, before.used));
        if before.is_none() {
            self.unfiled_at
                .insert(address.clone(), seen.tick.saturating_sub(1));
        }
        self.archived_for
            .entry(says.by.clone())
            .or_insert_with(|| (address.clone(), seen.tick));
        self.once_filed
            .entry(address.clone())
            .or_default()
            .push(says.content.clone());
        let late = seen.execution.late || (same && before.is_some_and(|before| before.late));
        self.filed_at.insert(address.clone(), seen.execution.at);
        self.filed.insert(
            address,
            FiledDocument {
                says,
                version,
                restored,
                used,
                late,
            },
        );
        Ok(())
    }

    fn says_what_it_is_of(
        &self,
        address: &Address,
        etag: Option<&str>,
        says: &ArchivedVersion,
    ) -> Result<(), String> {
        let versions = self.known.get(address).map(|known| &known.versions);
        let version = versions
            .zip(etag)
            .and_then(|(versions, etag)| versions.get(etag));
        let Some(version) = version else {
            return Err(format!("an unknown version was archived: {says:?}"));
        };
        if version.content == says.content {
            return Ok(());
        }
        Err(format!(
            "the archived content differs from its version: {says:?}, {version:?}"
        ))
    }

    fn may_replace(
        &self,
        address: &Address,
        before: &FiledDocument,
        etag: Option<&str>,
        says: &ArchivedVersion,
    ) -> Result<(), String> {
        let version = |etag: Option<&str>| self.known.get(address)?.versions.get(etag?);
        let (old, new) = (version(before.version.as_deref()), version(etag));
        let newer = old.zip(new).is_some_and(|(old, new)| old.at.0 < new.at.0);
        if newer && !self.source_deleted.contains(&says.by) {
            Ok(())
        } else {
            Err(format!(
                "lost update: a document was {before:?} of version {old:?}, then {says:?} of version {new:?} replaced it, expected a newer version from a job that has not deleted its source"
            ))
        }
    }

    fn log(
        &mut self,
        seen: &SeenOperation<'_>,
        name: &str,
        content: Option<&Bytes>,
    ) -> Result<(), String> {
        let content = content.ok_or_else(|| format!("log {name} was deleted"))?;
        let before = self.logs.get(name).map_or(0, |before| {
            if content.starts_with(before) {
                before.len()
            } else {
                usize::MAX
            }
        });
        let Some(new) = content.get(before..) else {
            return Err(format!("log {name} was overwritten"));
        };
        for line in new.split_inclusive(|byte| *byte == b'\n') {
            let says = archived(line)?;
            let address = (EVENTS.to_owned(), says.key.clone());
            self.says_what_it_is_of(&address, says.version.as_deref(), &says)?;
            let version = (says.key.clone(), says.version.clone().unwrap_or_default());
            match self.lines.entry(version) {
                Entry::Vacant(line) => drop(line.insert(says.by.clone())),
                Entry::Occupied(first) => {
                    return Err(format!(
                        "duplicate log line: message {} logged a version, then {name} got another line for it: {says:?}",
                        first.get()
                    ));
                }
            }
            self.archived_for
                .entry(says.by)
                .or_insert_with(|| (address, seen.tick));
        }
        self.logs.insert(name.to_owned(), content.clone());
        Ok(())
    }

    fn absent_since(&self, table: &str, key: &EntityKey, tick: u64) -> bool {
        let known = self.known.get(&(table.to_owned(), key.clone()));
        known.is_none_or(|known| known.now.is_none() || known.absent_at >= tick)
    }

    pub(crate) fn present_since(&self, key: &EntityKey, tick: u64) -> bool {
        let known = self
            .known
            .get(&(super::source_of(key).to_owned(), key.clone()));
        known.is_some_and(|known| known.now.is_some() || known.present_at >= tick)
    }

    /// Whether the effect of a finished job was observed. `since` is the tick of the job's first delivery.
    pub(crate) fn took_effect(
        &self,
        id: &str,
        asked: &EntityJob,
        outcome: &Outcome,
        since: u64,
        later: LaterEvents,
    ) -> bool {
        let EntityJob {
            op,
            table,
            key,
            guard,
            ..
        } = asked;
        let absent = || self.absent_since(table, key, since);
        let written_since = || {
            let known = self.known.get(&(String::from(*table), key.clone()));
            known.is_some_and(|known| {
                known
                    .versions
                    .values()
                    .any(|version| version.at.1 >= later.enqueued)
            })
        };
        let archived = || {
            self.archived_for
                .get(id)
                .is_some_and(|(address, at)| self.absent_since(&address.0, &address.1, *at))
        };
        match (*op, outcome) {
            ("put" | "restore" | "move", Outcome::Done(_)) => self.written_for.contains(id),
            ("put", Outcome::Skipped { .. }) => guard.is_some(),
            ("delete", Outcome::Done(_)) => absent(),
            // An entity that was written after the job was enqueued may remain. The message may be a duplicate of a
            // message whose job has already deleted the earlier entity.
            ("delete", Outcome::Skipped { .. }) => {
                guard.is_some() || later.delivery || written_since()
            }
            // A version has only one log line, which may name another job that archived the same version.
            ("archive", Outcome::Done(_)) => archived() || (*table == EVENTS && absent()),
            ("archive", Outcome::Skipped { .. }) => {
                guard.is_some()
                    || absent()
                    || self.archived_for.contains_key(id)
                    || later.archive
                    || written_since()
                    // An earlier delivery may have archived the event. The log line may name another job, as above.
                    || (*table == EVENTS && later.delivery)
                    // An earlier delivery may have archived a version. Another job may have replaced the document of
                    // this version since then.
                    || (later.delivery && self.filed_since(&(String::from(*table), key.clone()), later.copied))
            }
            ("move", Outcome::Skipped { .. }) => {
                absent() || self.written_for.contains(id) || later.moving || written_since()
            }
            ("restore", Outcome::Skipped { .. }) => {
                let address = (String::from(*table), key.clone());
                !self.filed.contains_key(&address)
                    || self.unfiled_at.get(&address).is_some_and(|at| *at >= since)
                    || later.archive
            }
            (_, Outcome::Advanced { .. }) => true,
            // The jobs of the client have no other outcomes.
            _ => false,
        }
    }

    /// Whether a document was written after `since`, or so shortly before `since` that a job may regard it as newer.
    fn filed_since(&self, address: &Address, since: Timestamp) -> bool {
        self.filed_at
            .get(address)
            .is_some_and(|at| at.saturating_add(WORKERS_APART).is_ok_and(|at| at >= since))
    }

    /// Checks the end state: archived entities no longer exist in their source, unless a job expired half-way.
    pub(super) fn sources_are_deleted(&self, expired: &BTreeSet<Address>) -> Result<(), String> {
        for (address, known) in self
            .known
            .iter()
            .filter(|(address, _)| !expired.contains(*address))
        {
            let Some(etag) = &known.now else { continue };
            let filed = self
                .filed
                .get(address)
                .filter(|filed| !filed.late && !filed.restored);
            let filed = filed.is_some_and(|filed| filed.version.as_ref() == Some(etag));
            if filed || self.lines.contains_key(&(address.1.clone(), etag.clone())) {
                return Err(format!(
                    "{}{} was archived, but still exists",
                    address.0, address.1
                ));
            }
        }
        Ok(())
    }
}

impl KnownEntity {
    fn current(&self) -> Option<(&str, &WrittenVersion)> {
        let etag = self.now.as_deref()?;
        Some((etag, self.versions.get(etag)?))
    }
}

/// Later events that may explain why a job was skipped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaterEvents {
    pub(crate) delivery: bool,
    pub(crate) archive: bool,
    /// The job may regard writes since this time as later than the job's message.
    pub(crate) enqueued: Timestamp,
    /// The job may regard copies since this time as later than the job's message.
    pub(crate) copied: Timestamp,
    /// Whether a later job removes the entity, or writes an entity to its destination.
    pub(crate) moving: bool,
}

struct SeenOperation<'a> {
    execution: &'a Execution<'a>,
    tick: u64,
    ledger: &'a mut Ledger,
    /// The runs that may have sent the request.
    authors: Vec<Author>,
}

impl SeenOperation<'_> {
    /// Returns a run that may have sent the request, and whose job matches.
    fn author(&self, is_meant: impl Fn(&Author, &EntityJob) -> bool) -> Option<Author> {
        let meant = |author: &&Author| {
            History::job(self.ledger, &author.message).is_some_and(|asked| is_meant(author, asked))
        };
        self.authors.iter().find(meant).cloned()
    }

    fn runs(&self, message: Option<&str>) -> bool {
        self.authors
            .iter()
            .any(|author| Some(author.message.as_str()) == message)
    }
}

fn number(content: &Content) -> Option<i64> {
    content
        .get(VERSION)?
        .strip_prefix("Edm.Int64 ")?
        .parse()
        .ok()
}

pub(super) fn document_name(key: &EntityKey) -> String {
    format!("{}/{}.json", key.pk, key.rk)
}

/// Whether a blob or file with this name is a large value that is stored next to a document.
pub(super) fn is_value(name: &str) -> bool {
    name.contains("%values/")
}
