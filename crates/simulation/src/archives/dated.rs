//! Checks each drop of a dated table. The retention time must have passed by the clock of the queue service. If the
//! rows are archived, every row must be in a file.
//!
//! A worker must never change a row of a source table (`Attempts%Y%m%d%H`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::content::{Content, of_entity, of_json};
use super::shape::KeptIn;
use super::{ArchivesShape, OLD_ATTEMPTS, OLD_ATTEMPTS_FOLDER};
use crate::history::CLIENT;
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_model::{EntityKey, Row};

const PREFIX: &str = "Attempts";

/// A follower is the table of a view or of footprints that has the same date as a source table. A follower without a
/// source table may remain this long after its retention time.
const SURELY_OVER: SignedDuration = SignedDuration::from_hours(1);
/// Resolution of the queues' clock.
const QUEUE_CLOCK: SignedDuration = SignedDuration::from_secs(1);

type Rows = BTreeMap<EntityKey, Row>;

#[derive(Debug)]
pub(super) struct DatedHistory {
    kept_in: KeptIn,
    keep: SignedDuration,
    /// Offset of the clock of the queue service, which decides whether the retention time of a table has passed.
    queues_off: SignedDuration,
    /// All existing tables with a date in their name, including the tables of views and of footprints.
    pub(super) tables: BTreeMap<String, Rows>,
    dropped: BTreeMap<String, BTreeMap<EntityKey, Content>>,
    files: BTreeMap<String, Bytes>,
}

impl DatedHistory {
    pub(super) fn new(shape: ArchivesShape, queues_off: SignedDuration) -> Self {
        let keep = SignedDuration::try_from(shape.keep).unwrap_or(SignedDuration::MAX);
        Self {
            kept_in: shape.kept_in,
            keep,
            queues_off,
            tables: BTreeMap::new(),
            dropped: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Records the changes of one operation. An error describes a violation.
    pub(super) fn record_changes(&mut self, execution: &Execution<'_>) -> Result<(), String> {
        let dropped: BTreeSet<&str> = execution
            .changes
            .iter()
            .filter_map(|change| {
                if let ObservedChange::Table {
                    table,
                    exists: false,
                } = change
                {
                    Some(table.as_str())
                } else {
                    None
                }
            })
            .collect();
        for table in &dropped {
            self.drop(table, execution.at)?;
        }
        for change in execution.changes {
            match change {
                ObservedChange::Table {
                    table,
                    exists: true,
                } if period_of(table.as_str()).is_some() => {
                    self.tables.insert(table.to_string(), Rows::new());
                }
                ObservedChange::Row { table, key, row } if !dropped.contains(table.as_str()) => {
                    let Some(rows) = self.tables.get_mut(table.as_str()) else {
                        continue;
                    };
                    if table.as_str().starts_with(PREFIX) && execution.caller != CLIENT {
                        return Err(format!(
                            "a worker changed the row {table}{key} of a dated table"
                        ));
                    }
                    match row {
                        Some(row) => rows.insert(key.clone(), row.clone()),
                        None => rows.remove(key),
                    };
                }
                ObservedChange::Blob {
                    container,
                    name,
                    blob,
                } if container.as_str() == OLD_ATTEMPTS => {
                    self.file(name.as_str(), blob.as_ref().map(|blob| &blob.content));
                }
                ObservedChange::File { place, content } if place.dir == OLD_ATTEMPTS_FOLDER => {
                    self.file(place.name.as_str(), content.as_ref());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, name: &str, content: Option<&Bytes>) {
        match content {
            Some(content) => self.files.insert(name.to_owned(), content.clone()),
            None => self.files.remove(name),
        };
    }

    fn drop(&mut self, table: &str, now: Timestamp) -> Result<(), String> {
        let rows = self.tables.remove(table).unwrap_or_default();
        if !table.starts_with(PREFIX) {
            return Ok(());
        }
        if !self.is_over(table, now.saturating_add(self.queues_off).unwrap_or(now)) {
            return Err(format!(
                "table {table} was dropped before its retention time of {:?} had passed",
                self.keep
            ));
        }
        // A worker whose clock is behind may create the table again after the drop. When this empty table is dropped,
        // too, the rows of the first drop must still be archived.
        if rows.is_empty() && self.dropped.contains_key(table) {
            return self.is_kept(table);
        }
        self.dropped.insert(
            table.to_owned(),
            rows.into_iter()
                .map(|(key, row)| (key, of_entity(&row.entity)))
                .collect(),
        );
        self.is_kept(table)
    }

    fn is_over(&self, table: &str, now: Timestamp) -> bool {
        period_of(table)
            .is_none_or(|(_, ends)| ends.saturating_add(self.keep).is_ok_and(|over| over <= now))
    }

    /// Checks that a complete archiving run contains exactly the rows of a dropped table.
    fn is_kept(&self, table: &str) -> Result<(), String> {
        if self.kept_in == KeptIn::Nowhere {
            return Ok(());
        }
        let wrong = |what: String| {
            format!("table {table} was dropped, but its rows are not archived: {what}")
        };
        let Some(rows) = self.dropped.get(table) else {
            return Ok(());
        };
        let folder = format!("{table}/");
        let complete = self.files.iter().filter_map(|(name, content)| {
            let run = name.strip_prefix(&folder)?.strip_suffix("/complete.json")?;
            Some((run, serde_json::from_slice::<Value>(content).ok()?))
        });
        let mut problem = "no archiving run is complete".to_owned();
        for (run, complete) in complete {
            match self.run(&format!("{folder}{run}/"), &complete) {
                Ok(found) if found == *rows => return Ok(()),
                Ok(found) => problem = format!("found {found:?}, expected {rows:?}"),
                Err(other) => problem = other,
            }
        }
        Err(wrong(problem))
    }

    fn run(&self, folder: &str, complete: &Value) -> Result<BTreeMap<EntityKey, Content>, String> {
        let numbered = self
            .files
            .keys()
            .filter_map(|name| name.strip_prefix(folder)?.strip_suffix(".jsonl"))
            .count();
        if complete["files"] != numbered {
            return Err(format!(
                "{numbered} files in {folder} do not match complete.json: {complete}"
            ));
        }
        let mut rows = BTreeMap::new();
        for number in 1..=numbered {
            let content = self
                .files
                .get(&format!("{folder}{number:06}.jsonl"))
                .ok_or_else(|| format!("file {number} is missing in {folder}"))?;
            for line in content
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
            {
                let json: Value =
                    serde_json::from_slice(line).map_err(|error| error.to_string())?;
                let key = json["PartitionKey"]
                    .as_str()
                    .zip(json["RowKey"].as_str())
                    .and_then(|(pk, rk)| EntityKey::new(pk, rk).ok());
                let key = key.ok_or_else(|| format!("a row without a key: {json}"))?;
                if rows.insert(key, of_json(&json)).is_some() {
                    return Err(format!("duplicate row: {json}"));
                }
            }
        }
        if complete["rows"] != rows.len() {
            return Err(format!(
                "{} rows in {folder} do not match complete.json: {complete}",
                rows.len()
            ));
        }
        Ok(rows)
    }

    /// Checks the end state. Tables whose retention time has passed no longer exist, nor do their followers. Their
    /// archived rows still exist.
    pub(super) fn judge(&self, now: Timestamp) -> Result<(), String> {
        // A drop is queued when the retention time has passed by the correct clock. It is executed when the retention
        // time has also passed by the queues' clock. That clock may be behind, and reports whole seconds.
        let now = now
            .saturating_add(self.queues_off.min(SignedDuration::ZERO))
            .and_then(|now| now.saturating_sub(QUEUE_CLOCK))
            .unwrap_or(now);
        for table in self.tables.keys() {
            let followed = period_of(table)
                .map(|(digits, _)| format!("{PREFIX}{digits}"))
                .unwrap_or_default();
            // A worker whose clock is behind may create the source table late. If the source table was never created,
            // its followers may therefore remain for `SURELY_OVER` longer.
            let alone =
                !self.tables.contains_key(&followed) && !self.dropped.contains_key(&followed);
            let over = if alone {
                now.saturating_sub(SURELY_OVER).unwrap_or(now)
            } else {
                now
            };
            if self.is_over(table, over) || self.dropped.contains_key(&followed) {
                return Err(format!("table {table} exists after its retention time"));
            }
        }
        self.dropped
            .keys()
            .try_for_each(|table| self.is_kept(table))
    }
}

/// The digits in the name of an hourly table, and the end of that hour.
pub(crate) fn period_of(table: &str) -> Option<(&str, Timestamp)> {
    let digits = table.get(table.len().checked_sub(10)?..)?;
    let part = |from: usize, to: usize| digits.get(from..to)?.parse::<i8>().ok();
    let date = Date::new(digits.get(..4)?.parse().ok()?, part(4, 6)?, part(6, 8)?).ok()?;
    let begins = date
        .to_datetime(Time::new(part(8, 10)?, 0, 0, 0).ok()?)
        .to_zoned(TimeZone::UTC)
        .ok()?
        .timestamp();
    Some((
        digits,
        begins.saturating_add(SignedDuration::from_hours(1)).ok()?,
    ))
}
