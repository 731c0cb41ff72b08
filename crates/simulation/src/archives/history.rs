//! What became of the entities of the third world, checked at the very moment at which something happens to one:
//!
//! * A worker deletes an entity only for a delete job, or when its very version lies in its archive or under the key that it moved to.
//! * A document or line says what the version says that it names, and there is one line of each version.
//! * A document is replaced by that of a newer version alone, and not by a job that has archived a version and seen it go.
//! * A document is deleted when what it says has been restored, or by its own job before any deletion by it.
//! * A worker writes or deletes an entity, or creates a document, only for a job that it runs, or ran when the request was sent: deletes
//!   stay deleted, and each delivery of a delete job deletes once.
//! * A put writes what its client said, a restore what was archived, a move what it moves; each over what it may.
//!
//! The known limit of the company holds here too: what arrives late may bring back what was deleted meanwhile.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use super::content::{ArchivedVersion, Content, archived, of_entity};
use super::dated::DatedHistory;
use super::script::Wording;
use super::{ArchivesShape, DOCUMENTS, EVENTS, FOLDER, LOGS, PAPERS, RECORDS, SOURCES};
use crate::history::{CLIENT, History, VERSION};
use crate::items::Address;
use crate::ledger::{Author, EntityJob, Expectation, JobCondition, LastWrite, Ledger, SentRequest};
use crate::warrant::for_whom;
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_engine::Outcome;
use evenkeel_model::{EntityKey, Row};
use evenkeel_storage::FilePlace;

/// How far a worker's clock may be off, once when it dates a copy and once more when another's is compared with that.
const WORKERS_APART: SignedDuration = SignedDuration::from_mins(30);

/// A version of an entity.
#[derive(Debug, Clone, PartialEq)]
struct WrittenVersion {
    content: Content,
    /// The message whose job wrote it last.
    by: Option<String>,
    /// When it was written, in order and by the clock.
    at: (u64, Timestamp),
}

/// What is known of an entity.
#[derive(Debug, Clone, Default)]
struct KnownEntity {
    /// Its versions, by their ETags.
    versions: BTreeMap<String, WrittenVersion>,
    /// The ETag that it has.
    now: Option<String>,
    /// The last tick at which it was absent, and present.
    absent_at: u64,
    present_at: u64,
}

/// A document that is there.
#[derive(Debug, Clone)]
pub(super) struct FiledDocument {
    pub(super) says: ArchivedVersion,
    /// The version that it stands for.
    version: Option<String>,
    /// What it says lies in the source, or did.
    restored: bool,
    /// An archive job has deleted its version while it lay there.
    used: bool,
    /// It arrived when its sender had given it up.
    pub(super) late: bool,
}

/// What is known of the entities of the third world.
#[derive(Debug)]
pub(crate) struct ArchiveHistory {
    said: BTreeMap<i64, Wording>,
    known: BTreeMap<Address, KnownEntity>,
    /// Documents, by the entity that they are of, in the table that it was archived from.
    pub(super) filed: BTreeMap<Address, FiledDocument>,
    /// What was ever archived as a document.
    once_filed: BTreeMap<Address, Vec<Content>>,
    /// When a document was last absent.
    unfiled_at: BTreeMap<Address, u64>,
    /// When each document was last written.
    filed_at: BTreeMap<Address, Timestamp>,
    /// Messages whose jobs have archived a document and seen its entity go.
    taken: BTreeSet<String>,
    /// The message whose job has logged each version.
    lines: BTreeMap<(EntityKey, String), String>,
    logs: BTreeMap<String, Bytes>,
    pub(super) files: BTreeMap<FilePlace, Bytes>,
    pub(super) dated: DatedHistory,
    /// Messages whose stamp was seen on an entity.
    written_for: BTreeSet<String>,
    /// Messages whose stamp was seen on a document or line: the entity, and when first.
    archived_for: BTreeMap<String, (Address, u64)>,
    /// Versions that lie where they were moved to, by the key that they had.
    moved: BTreeSet<(EntityKey, Content)>,
    /// What arrived late and created something.
    pub(crate) resurrections: u64,
}

impl ArchiveHistory {
    pub(crate) fn new(
        said: BTreeMap<i64, Wording>,
        shape: ArchivesShape,
        queues_off: SignedDuration,
    ) -> Self {
        Self {
            said,
            known: BTreeMap::new(),
            filed: BTreeMap::new(),
            once_filed: BTreeMap::new(),
            unfiled_at: BTreeMap::new(),
            filed_at: BTreeMap::new(),
            taken: BTreeSet::new(),
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

    /// Takes in the changes of one operation; what is wrong with them, in words.
    pub(crate) fn take_in(
        &mut self,
        (execution, sent): (&Execution<'_>, Option<&SentRequest>),
        tick: u64,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        self.dated.take_in(execution)?;
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

    /// An entity was written or deleted.
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
            })) = seen.ledger.asked(by)
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

    /// Whether a worker may delete an entity.
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
        // Its clients merge nothing by themselves.
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
        // Of two jobs that have copied the same version, the first cannot know that its own deletion was the one.
        let copied_by = self.filed.get(address).map(|filed| &filed.says.by);
        if let Some(author) = archives
            .as_ref()
            .filter(|author| deletes.is_none() && archived && copied_by == Some(&author.message))
        {
            self.taken.insert(author.message.clone());
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
            "lost update: {}{key} was deleted at version {version:?}, which is nowhere else and which nobody asked to delete: {}",
            address.0,
            for_whom(&seen.authors, seen.ledger)
        ))
    }

    /// Whether a worker may write this in the place of what was there.
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
        let asked = by.and_then(|by| seen.ledger.asked(by));
        let Some(Expectation::Job(EntityJob {
            op, key: of, guard, ..
        })) = asked
        else {
            return if same {
                Ok(())
            } else {
                Err(format!("{table}{key} was written for no job: {content:?}"))
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
                "{table}{key} was written for {by:?}, which nobody runs there, but {whom}"
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
                    "lost update: {table}{key} says {content:?}, which nobody said, after {op} {by:?} over {was:?}"
                ));
            }
        }
        // Of two messages with one job, either goes on with what the other has brought.
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
                "lost update: {table}{key} was overwritten by {by:?}, which may not: {asked:?} over {was:?}"
            ))
        }
    }

    /// Whether the client has said this, over that.
    fn is_said(&self, content: &Content, before: Option<&Content>) -> bool {
        let Some(said) = number(content).and_then(|version| self.said.get(&version)) else {
            return false;
        };
        let mut expected = before.filter(|_| !said.whole).cloned().unwrap_or_default();
        expected.extend(said.content.clone());
        expected == *content
    }

    /// A document was written or deleted.
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
                    "lost update: the document {name} was deleted, and what it says is nowhere else: {gone:?}"
                )),
            };
        };
        let says = archived(content)?;
        if document_name(&says.key) != name {
            return Err(format!(
                "the document {name} is of another entity: {says:?}"
            ));
        }
        let address = (table.to_owned(), says.key.clone());
        let before = self.filed.get(&address);
        let version = match (&says.version, before) {
            (Some(version), _) => Some(version.clone()),
            (None, Some(before)) if before.says.content == says.content => before.version.clone(),
            (None, _) => {
                return Err(format!(
                    "the document {name} does not say of which version it is: {says:?}"
                ));
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
                    "resurrection: the document {name} was created for {}, which nobody runs there, but {whom}",
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
            return Err(format!("what was archived never was: {says:?}"));
        };
        if version.content == says.content {
            return Ok(());
        }
        Err(format!(
            "what was archived is not what its version said: {says:?}, {version:?}"
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
        if newer && !self.taken.contains(&says.by) {
            Ok(())
        } else {
            Err(format!(
                "lost update: the archived {before:?} of {old:?} was replaced by {says:?} of {new:?}"
            ))
        }
    }

    /// A log was written or deleted.
    fn log(
        &mut self,
        seen: &SeenOperation<'_>,
        name: &str,
        content: Option<&Bytes>,
    ) -> Result<(), String> {
        let content = content.ok_or_else(|| format!("the log {name} was deleted"))?;
        let before = self.logs.get(name).map_or(0, |before| {
            if content.starts_with(before) {
                before.len()
            } else {
                usize::MAX
            }
        });
        let Some(new) = content.get(before..) else {
            return Err(format!("the log {name} was written over"));
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
                        "two lines of one version in a log: {says:?} in {name}, after {}",
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

    /// Whether an entity was absent at some moment since a tick.
    fn absent_since(&self, table: &str, key: &EntityKey, tick: u64) -> bool {
        let known = self.known.get(&(table.to_owned(), key.clone()));
        known.is_none_or(|known| known.now.is_none() || known.absent_at >= tick)
    }

    /// Whether an entity was present at some moment since a tick.
    pub(crate) fn present_since(&self, key: &EntityKey, tick: u64) -> bool {
        let known = self
            .known
            .get(&(super::source_of(key).to_owned(), key.clone()));
        known.is_some_and(|known| known.now.is_some() || known.present_at >= tick)
    }

    /// Whether what a job has ended with was seen. `since`: its first delivery. `later_archive`, `later_move`: such jobs came after it.
    pub(crate) fn took_effect(
        &self,
        id: &str,
        asked: &EntityJob,
        outcome: &Outcome,
        since: u64,
        later: Later,
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
            // What was written since may have been created since: a message may be the double of another.
            ("delete", Outcome::Skipped { .. }) => {
                guard.is_some() || later.delivery || written_since()
            }
            // A log does not tell either whose line it is that a version has.
            ("archive", Outcome::Done(_)) => archived() || (*table == EVENTS && absent()),
            ("archive", Outcome::Skipped { .. }) => {
                // A log does not tell what an earlier delivery may have logged.
                guard.is_some()
                    || absent()
                    || self.archived_for.contains_key(id)
                    || later.archive
                    || written_since()
                    || (*table == EVENTS && later.delivery)
                    // An earlier delivery may have archived what was there before another job's copy, which a worker's clock has dated.
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
            // The judge knows no effect of such a job.
            _ => false,
        }
    }

    /// Whether a document was written since then, or so shortly before that a worker's clock may tell otherwise.
    fn filed_since(&self, address: &Address, since: Timestamp) -> bool {
        self.filed_at
            .get(address)
            .is_some_and(|at| at.saturating_add(WORKERS_APART).is_ok_and(|at| at >= since))
    }

    /// What was archived is gone from where it was, in the end, unless a job has expired half-way.
    pub(super) fn nothing_stayed(&self, expired: &BTreeSet<Address>) -> Result<(), String> {
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
                    "{}{} was archived, and is still there",
                    address.0, address.1
                ));
            }
        }
        Ok(())
    }
}

impl KnownEntity {
    /// The version that is there, and its ETag.
    fn current(&self) -> Option<(&str, &WrittenVersion)> {
        let etag = self.now.as_deref()?;
        Some((etag, self.versions.get(etag)?))
    }
}

/// What came after a job that explains why it was skipped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Later {
    /// It was delivered again.
    pub(crate) delivery: bool,
    /// An archive job of the same entity.
    pub(crate) archive: bool,
    /// When it was enqueued, by the clock of the tables.
    pub(crate) enqueued: Timestamp,
    /// From when on a copy may have been written since, as far as the services tell.
    pub(crate) copied: Timestamp,
    /// A job that takes the entity away, or brings or writes one where it was to go.
    pub(crate) moving: bool,
}

/// An operation, and when it was executed.
struct SeenOperation<'a> {
    execution: &'a Execution<'a>,
    tick: u64,
    ledger: &'a mut Ledger,
    /// The runs on whose behalf its request was sent.
    authors: Vec<Author>,
}

impl SeenOperation<'_> {
    /// A run on whose behalf the request was sent, of a job that is meant.
    fn author(&self, is_meant: impl Fn(&Author, &EntityJob) -> bool) -> Option<Author> {
        let meant = |author: &&Author| {
            History::job(self.ledger, &author.message).is_some_and(|asked| is_meant(author, asked))
        };
        self.authors.iter().find(meant).cloned()
    }

    /// Whether the request was sent on behalf of a message.
    fn runs(&self, message: Option<&str>) -> bool {
        self.authors
            .iter()
            .any(|author| Some(author.message.as_str()) == message)
    }
}

/// The version that the client has given an entity.
fn number(content: &Content) -> Option<i64> {
    content
        .get(VERSION)?
        .strip_prefix("Edm.Int64 ")?
        .parse()
        .ok()
}

/// Where the document of an entity lies.
pub(super) fn document_name(key: &EntityKey) -> String {
    format!("{}/{}.json", key.pk, key.rk)
}

/// Whether this is the name of a large value beside a document.
pub(super) fn is_value(name: &str) -> bool {
    name.contains("%values/")
}
