//! The history of the primaries: their content and the job that wrote it. It is derived from the observed changes.
//! `warrant` judges each change by this history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::archives::ArchiveHistory;
use super::content::{self, Content};
use super::expectation::{EntityJob, Expectation};
use super::items::{Address, Properties};
use super::ledger::{Author, LastWrite, Ledger, SentRequest};
use super::notes;
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_model::job::Stamp;
use evenkeel_model::large::STAGING;
use evenkeel_model::{EdmValue, Entity, EntityKey, Key, Row};

pub(super) const CLIENT: u32 = 0;
pub(super) const VERSION: &str = "Version";

pub(super) const SOURCE: &str = "Employees";
pub(super) const TARGET: &str = "FormerEmployees";

#[derive(Debug, Default)]
pub(super) struct History {
    primaries: BTreeMap<Address, KnownPrimary>,
    further: BTreeMap<Address, Properties>,
    /// For each entity, the ticks at which it was created or deleted, in its table or in its archive. After each tick,
    /// the first flag is true if the entity is in the table, and the second if it is in the archive.
    places: BTreeMap<EntityKey, Vec<(u64, [bool; 2])>>,
    job_writes: BTreeMap<String, Vec<JobWrite>>,
    /// Messages whose jobs have copied an entity to another table or key and deleted the original.
    moved_away: BTreeSet<String>,
    /// For each unique key (an e-mail address, or the manager of a department), all primaries that have ever wanted it.
    wanted: BTreeMap<(String, String), BTreeSet<EntityKey>>,
    pub(super) resurrections: u64,
    /// For each staged blob, by name, the messages whose runs may have deleted it.
    unstaged: BTreeMap<String, BTreeSet<String>>,
    deleted: BTreeMap<Address, u64>,
    /// The history of the `archives` world. If it is set, the other fields are not used.
    pub(super) archives: Option<Box<ArchiveHistory>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct KnownPrimary {
    pub(super) version: Option<i64>,
    pub(super) present: bool,
    pub(super) etag: Option<String>,
    pub(super) by: Option<String>,
    /// When a client last merged a property into the content that the job `by` wrote. A merge does not change the job's
    /// stamp.
    pub(super) merged: Option<Timestamp>,
    pub(super) content: Content,
    /// Tick and time of the last write.
    pub(super) written: (u64, Timestamp),
    /// The last tick at which the primary was absent.
    absent_at: u64,
    present_at: u64,
    /// The earlier contents of the primary, each with the tick until which it was valid.
    past: Vec<(u64, Content)>,
    /// Whether this row is the only copy of its content, because a job has copied the content here and deleted the
    /// original.
    pub(super) only: bool,
    /// Whether an archive job has deleted the original while this row had the same content. Any archive job counts, not
    /// only the job that wrote this row.
    pub(super) used: bool,
}

#[derive(Debug)]
struct JobWrite {
    table: &'static str,
    key: EntityKey,
    content: Content,
    first: u64,
    last: u64,
}

pub(super) struct Event<'a> {
    pub(super) execution: &'a Execution<'a>,
    pub(super) tick: u64,
    pub(super) sent: Option<&'a SentRequest>,
    pub(super) table: &'static str,
    pub(super) key: &'a EntityKey,
    /// The new row and its content, or `None` if the row was deleted.
    pub(super) row: Option<(&'a Row, Content)>,
}

impl KnownPrimary {
    pub(super) fn last_write(&self) -> LastWrite<'_> {
        LastWrite {
            etag: self.etag.as_deref(),
            at: self.written.1,
            by: self.by.as_deref(),
            merged: self.merged,
        }
    }

    /// Returns when a client last merged a property into the content that a job wrote. The new write, `event`, may be
    /// such a merge. `by` is the message in the job stamp of the written row.
    fn merged_at(&self, event: &Event<'_>, by: Option<&str>) -> Option<Timestamp> {
        let (_, content) = event.row.as_ref()?;
        if !self.present || by.is_none() || self.by.as_deref() != by {
            return None;
        }
        if self.content == *content {
            self.merged
        } else {
            (event.execution.caller == CLIENT).then_some(event.execution.at)
        }
    }
}

impl Event<'_> {
    pub(super) fn authors(&self, ledger: &Ledger) -> Vec<Author> {
        self.sent.map_or_else(
            || ledger.at_work(self.execution.caller),
            |sent| sent.authors.clone(),
        )
    }

    pub(super) fn by(&self, ledger: &Ledger) -> Option<String> {
        let (row, _) = self.row.as_ref()?;
        Stamp::of(&row.entity).map(|stamp| ledger.entry_of(&stamp.message_id, Some(self.key)))
    }
}

impl History {
    /// Records the changes of one operation. An error describes a violation.
    pub(super) fn record_changes(
        &mut self,
        execution: &Execution<'_>,
        tick: u64,
        ledger: &mut Ledger,
        sent: Option<&SentRequest>,
    ) -> Result<(), String> {
        if let Some(archives) = &mut self.archives {
            let taken_in = archives.record_changes((execution, sent), tick, ledger);
            self.resurrections = archives.resurrections;
            return taken_in;
        }
        for change in execution.changes {
            if let ObservedChange::Row {
                table,
                key,
                row: None,
            } = change
            {
                self.deleted.insert((table.to_string(), key.clone()), tick);
            }
            match change {
                // The further rows of a wide entity are recorded first, because the first row is incomplete without
                // them.
                ObservedChange::Row { table, key, row }
                    if is_continuation(&key.rk) && known_table(table.as_str()).is_some() =>
                {
                    let address = (table.to_string(), key.clone());
                    match row {
                        Some(row) => self.further.insert(address, row.entity.properties.clone()),
                        None => self.further.remove(&address),
                    };
                }
                ObservedChange::Blob {
                    container,
                    name,
                    blob: None,
                } if container.as_str() == STAGING && execution.caller != CLIENT => {
                    let authors = sent.map_or_else(
                        || ledger.at_work(execution.caller),
                        |sent| sent.authors.clone(),
                    );
                    self.unstaged
                        .entry(name.to_string())
                        .or_default()
                        .extend(authors.into_iter().map(|author| author.message));
                }
                _ => {}
            }
        }
        for change in execution.changes {
            let ObservedChange::Row { table, key, row } = change else {
                continue;
            };
            let Some(table) = known_table(table.as_str()) else {
                continue;
            };
            // Derived rows are not primaries.
            let derived = row
                .as_ref()
                .is_some_and(|row| row.entity.text("ek_view").is_some());
            if derived || !is_primary(key) {
                continue;
            }
            let row = row
                .as_ref()
                .map(|row| Ok::<_, String>((row, self.whole(table, row)?)))
                .transpose()?;
            self.change(
                &Event {
                    execution,
                    tick,
                    sent,
                    table,
                    key,
                    row,
                },
                ledger,
            )?;
        }
        Ok(())
    }

    fn whole(&self, table: &str, first: &Row) -> Result<Content, String> {
        let mut content: Properties = content::own(&first.entity.properties).collect();
        let key = &first.entity.key;
        for (number, token) in (1..).zip(content::further_rows(&first.entity)) {
            let further = EntityKey::new(key.pk.as_str(), format!("{}~{number}", key.rk))
                .map_err(|error| error.to_string())?;
            let row = self.further.get(&(table.to_owned(), further));
            let row =
                row.filter(|row| row.get("ek_row").and_then(EdmValue::as_str) == Some(&token));
            content.extend(content::own(row.ok_or_else(|| {
                format!("{table}{key} was written, but its row {number} is missing or has another version")
            })?));
        }
        Ok(Arc::new(content))
    }

    fn change(&mut self, event: &Event<'_>, ledger: &mut Ledger) -> Result<(), String> {
        let Event {
            execution,
            tick,
            table,
            key,
            ..
        } = event;
        let (tick, address) = (*tick, ((*table).to_owned(), (*key).clone()));
        let mut known = self.primaries.remove(&address).unwrap_or_default();
        if execution.caller != CLIENT {
            match &event.row {
                None => self.may_delete(event, &known, ledger)?,
                Some((row, content)) => self.may_write(event, (row, content), &known, ledger)?,
            }
        }
        let by = event.by(ledger);
        if let Some((row, content)) = &event.row {
            self.record_wanted_keys(event, row);
            if let (Some(by), true) = (&by, execution.caller != CLIENT) {
                self.record_job_write(by, event, content);
            }
        }
        known.merged = known.merged_at(event, by.as_deref());
        known.used &= event
            .row
            .as_ref()
            .is_some_and(|(_, content)| *content == known.content);
        known.only &= event
            .row
            .as_ref()
            .is_some_and(|(_, content)| *content == known.content);
        if known.present {
            known.past.push((tick, std::mem::take(&mut known.content)));
        }
        let present = event.row.is_some();
        known.absent_at = match (known.present, present) {
            (_, false) => tick,
            (false, true) => tick.saturating_sub(1),
            (true, true) => known.absent_at,
        };
        known.present_at = match (known.present, present) {
            (_, true) => tick,
            (true, false) => tick.saturating_sub(1),
            (false, false) => known.present_at,
        };
        known.version = event.row.as_ref().and_then(|(row, _)| version(&row.entity));
        known.etag = event.row.as_ref().map(|(row, _)| row.etag.to_string());
        known.content = event
            .row
            .as_ref()
            .map(|(_, content)| Arc::clone(content))
            .unwrap_or_default();
        if known.present != present {
            let places = self.places.entry((*key).clone()).or_default();
            let mut now = places.last().map(|(_, places)| *places).unwrap_or_default();
            now[usize::from(*table == TARGET)] = present;
            places.push((tick, now));
        }
        (known.present, known.by, known.written) = (present, by, (tick, execution.at));
        self.primaries.insert(address, known);
        Ok(())
    }

    /// Returns the entity that was archived last, of all entities that exist only in the archive.
    pub(super) fn archived(&self) -> Option<EntityKey> {
        let archived = self
            .places
            .iter()
            .filter_map(|(key, places)| match places.last() {
                Some((since, [false, true])) => Some((*since, key)),
                _ => None,
            });
        archived.max().map(|(_, key)| key.clone())
    }

    /// Whether a reader can miss an entity between two ticks. The reader reads the table, the archive, and the table
    /// again.
    pub(super) fn may_be_missed(&self, key: &EntityKey, after: u64, until: u64) -> bool {
        may_be_missed(after, until, |tick| self.places_at(key, tick))
    }

    /// Whether a reader can miss an entity between two ticks. The reader reads the first key, the second key, and the
    /// first key again.
    pub(super) fn may_be_missed_between(
        &self,
        (from, to): (&EntityKey, &EntityKey),
        after: u64,
        until: u64,
    ) -> bool {
        may_be_missed(after, until, |tick| {
            [from, to].map(|key| self.places_at(key, tick)[0])
        })
    }

    fn places_at(&self, key: &EntityKey, tick: u64) -> [bool; 2] {
        let places = self.places.get(key).map(Vec::as_slice).unwrap_or_default();
        places
            .iter()
            .rev()
            .find(|(since, _)| *since <= tick)
            .map(|(_, places)| *places)
            .unwrap_or_default()
    }

    fn record_wanted_keys(&mut self, event: &Event<'_>, row: &Row) {
        let Event { table, key, .. } = event;
        for address in wanted(key, &row.entity.properties).filter(|_| *table == SOURCE) {
            self.wanted
                .entry(address)
                .or_default()
                .insert((*key).clone());
        }
    }

    fn record_job_write(&mut self, by: &str, event: &Event<'_>, content: &Content) {
        let Event {
            tick, table, key, ..
        } = event;
        let writes = self.job_writes.entry(by.to_owned()).or_default();
        match writes
            .iter_mut()
            .find(|write| write.table == *table && write.key == **key && write.content == *content)
        {
            Some(again) => again.last = *tick,
            None => writes.push(JobWrite {
                table,
                key: (*key).clone(),
                content: Arc::clone(content),
                first: *tick,
                last: *tick,
            }),
        }
    }

    /// Records that a job has deleted its source. The copy that the job wrote is then the only copy of that content.
    pub(super) fn record_source_deleted(
        &mut self,
        message: &str,
        (table, key): (&str, &EntityKey),
        content: &Content,
    ) {
        self.moved_away.insert(message.to_owned());
        if let Some(there) = self.primaries.get_mut(&(table.to_owned(), key.clone())) {
            there.only |= there.present && there.content == *content;
        }
    }

    /// Records that an employee was deleted because an archived copy exists, whichever job wrote that copy.
    pub(super) fn record_original_deleted(&mut self, key: &EntityKey, content: &Content) {
        if let Some(copy) = self.primaries.get_mut(&(TARGET.to_owned(), key.clone())) {
            copy.used |= copy.present && copy.content == *content;
        }
    }

    pub(super) fn known(&self, table: &str, key: &EntityKey) -> Option<&KnownPrimary> {
        self.primaries.get(&(table.to_owned(), key.clone()))
    }

    pub(super) fn states(&self, table: &str, key: &EntityKey) -> impl Iterator<Item = &Content> {
        let known = self.known(table, key).into_iter();
        known.flat_map(|known| {
            known
                .past
                .iter()
                .map(|(_, past)| past)
                .chain(known.present.then_some(&known.content))
        })
    }

    pub(super) fn deleted_since(&self, table: &str, key: &EntityKey, tick: u64) -> bool {
        self.deleted
            .get(&(table.to_owned(), key.clone()))
            .is_some_and(|deleted| *deleted >= tick)
    }

    pub(super) fn had_content_since(
        &self,
        table: &str,
        key: &EntityKey,
        content: &Content,
        tick: u64,
    ) -> bool {
        self.known(table, key).is_some_and(|known| {
            let earlier = known
                .past
                .iter()
                .rev()
                .take_while(|(until, _)| *until >= tick);
            (known.present && known.content == *content)
                || earlier.into_iter().any(|(_, past)| past == content)
        })
    }

    pub(super) fn has_moved_away(&self, message: &str) -> bool {
        self.moved_away.contains(message)
    }

    /// Whether a job has written this content to this row after a tick. A note that a client merged later is
    /// disregarded.
    pub(super) fn has_written(
        &self,
        by: &str,
        (table, key): (&str, &EntityKey),
        content: &Content,
        tick: u64,
    ) -> bool {
        let writes = self.job_writes.get(by).into_iter().flatten();
        writes.into_iter().any(|write| {
            write.table == table
                && write.key == *key
                && notes::covers(&write.content, content)
                && write.last > tick
        })
    }

    pub(super) fn first_written_at(&self, by: &str, table: &str, key: &EntityKey) -> Option<u64> {
        let writes = self
            .job_writes
            .get(by)
            .into_iter()
            .flatten()
            .filter(|write| write.table == table && write.key == *key);
        writes.map(|write| write.first).min()
    }

    pub(super) fn absent_since(&self, table: &str, key: &EntityKey, tick: u64) -> bool {
        self.known(table, key)
            .is_none_or(|known| !known.present || known.absent_at >= tick)
    }

    pub(super) fn present_since(&self, table: &str, key: &EntityKey, tick: u64) -> bool {
        self.known(table, key)
            .is_some_and(|known| known.present || known.present_at >= tick)
    }

    pub(super) fn written_since(&self, table: &str, key: &EntityKey, at: Timestamp) -> bool {
        self.known(table, key)
            .is_some_and(|known| known.written.1 >= at)
    }

    pub(super) fn source_present_since(&self, key: &EntityKey, tick: u64) -> bool {
        match &self.archives {
            Some(archives) => archives.present_since(key, tick),
            None => self.present_since(SOURCE, key, tick),
        }
    }

    pub(super) fn has_written_to(&self, table: &str, message: &str) -> bool {
        self.job_writes
            .get(message)
            .is_some_and(|writes| writes.iter().any(|write| write.table == table))
    }

    pub(super) fn has_unstaged(&self, name: &str, message: &str) -> bool {
        self.unstaged
            .get(name)
            .is_some_and(|messages| messages.contains(message))
    }

    /// All primaries that have ever wanted a key that another primary wanted, too.
    pub(super) fn contenders(&self) -> BTreeSet<EntityKey> {
        self.wanted
            .values()
            .filter(|keys| keys.len() > 1)
            .flatten()
            .cloned()
            .collect()
    }

    /// Whether this employee has ever wanted a key that another employee wanted, too.
    pub(super) fn contested(&self, key: &EntityKey) -> bool {
        self.wanted
            .values()
            .any(|keys| keys.len() > 1 && keys.contains(key))
    }

    /// Whether the job writes an employee who wants a key that `rival` has ever wanted.
    pub(super) fn writes_rival(&self, asked: &EntityJob, rival: &EntityKey) -> bool {
        let there = self
            .known(SOURCE, &asked.key)
            .map(|known| known.content.as_ref());
        let content = asked
            .put_content
            .as_ref()
            .map(|put_content| put_content.over(there))
            .or_else(|| there.cloned())
            .unwrap_or_default();
        let here = asked.to.as_ref().unwrap_or(&asked.key);
        wanted(here, &content).any(|address| {
            self.wanted
                .get(&address)
                .is_some_and(|keys| keys.contains(rival))
        })
    }

    pub(super) fn job<'l>(ledger: &'l Ledger, message: &str) -> Option<&'l EntityJob> {
        match ledger.expectation_of(message) {
            Some(Expectation::Job(asked)) => Some(asked),
            _ => None,
        }
    }
}

/// Whether three reads can all miss an entity between two ticks. The first and the third read are of one place, and the
/// second read is of another place. For a tick, `at` returns whether the entity exists in the one place, and whether it
/// exists in the other place.
fn may_be_missed(after: u64, until: u64, at: impl Fn(u64) -> [bool; 2]) -> bool {
    let mut missed = 0;
    for tick in after + 1..=until {
        let [first, second] = at(tick);
        // Nothing changes within a tick, so several of the reads may happen at the same tick.
        for look in 0..3 {
            let there = if look == 1 { second } else { first };
            if missed == look && !there {
                missed += 1;
            }
        }
    }
    missed == 3
}

fn known_table(table: &str) -> Option<&'static str> {
    [SOURCE, TARGET].into_iter().find(|known| *known == table)
}

pub(super) fn is_primary(key: &EntityKey) -> bool {
    let derived = ["name_", "list_", "badge_"]
        .iter()
        .any(|prefix| key.rk.as_str().starts_with(prefix));
    !derived && !is_continuation(&key.rk)
}

/// Whether a row is a further row of a wide entity.
pub(super) fn is_continuation(rk: &Key) -> bool {
    rk.as_str()
        .rsplit_once('~')
        .is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// The unique keys that an employee wants: one for the e-mail address, and one for the manager of the department.
fn wanted(key: &EntityKey, properties: &Properties) -> impl Iterator<Item = (String, String)> {
    let email = match properties.get("Email") {
        Some(EdmValue::String(email)) if !email.is_empty() => Some(email.to_lowercase()),
        _ => None,
    };
    let manager =
        (properties.get("IsManager") == Some(&EdmValue::Bool(true))).then(|| "manager".to_owned());
    let department = key.pk.to_string();
    email
        .into_iter()
        .chain(manager)
        .map(move |wanted| (department.clone(), wanted))
}

fn version(entity: &Entity) -> Option<i64> {
    match entity.get(VERSION) {
        Some(EdmValue::Int64(version)) => Some(*version),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_reads_miss_an_entity_that_was_absent_or_moved_twice() {
        let key = EntityKey::new("Sales", "7").unwrap();
        let missed = |places: &[(u64, [bool; 2])]| {
            let history = History {
                places: [(key.clone(), places.to_vec())].into(),
                ..History::default()
            };
            history.may_be_missed(&key, 10, 20)
        };
        let (gone, source, archive, both) =
            ([false, false], [true, false], [false, true], [true, true]);
        assert!(missed(&[]) && missed(&[(5, source), (15, gone)]) && missed(&[(15, source)]));
        for there in [source, archive, both] {
            assert!(!missed(&[(5, there)]), "it never moved: {there:?}");
            assert!(
                !missed(&[(5, there), (10, gone), (11, there)]),
                "it came back before the first read"
            );
        }
        assert!(
            !missed(&[(5, source), (13, both), (15, archive)]),
            "into the archive: the second read finds it"
        );
        assert!(
            !missed(&[(5, archive), (13, both), (15, source)]),
            "out of the archive: the third read finds it"
        );
        assert!(
            missed(&[
                (5, archive),
                (12, both),
                (13, source),
                (15, both),
                (16, archive)
            ]),
            "out of the archive and back"
        );
    }
}
