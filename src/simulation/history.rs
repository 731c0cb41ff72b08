//! What became of the primaries, checked at the very moment at which something happens to one:
//!
//! * A worker deletes a primary only for a delete job, or when its very version lies in the archive.
//! * A worker deletes an archived row only when its very version has been restored.
//! * A delete job that is delivered again leaves alone what was created since.
//! * A move deletes the very version that it has brought to its new key.
//! * A put writes only what its condition allows, and a restore never over what was created anew.
//! * A worker creates a primary only for a job that asks for it and is not done: deletes stay deleted.
//!
//! A known limit: the insert of a primary by a `put` or `restore`, or of an archived row, that arrives after its
//! worker gave it up may bring back what was deleted meanwhile. Nothing conditional stops an insert. Such
//! resurrections are counted and not held against the program; their derived data must be right all the same.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::items::Address;
use super::ledger::{Asked, Expectation, Guard, Ledger};
use crate::adapters::sim::{Change, Execution};
use crate::model::job::Stamp;
use crate::model::{EdmValue, Entity, EntityKey, Key, Row};

/// The caller that is no worker: the client.
pub(super) const CLIENT: u32 = 0;
/// The property that tells versions apart.
pub(super) const VERSION: &str = "Version";

const SOURCE: &str = "Employees";
const TARGET: &str = "FormerEmployees";

/// What is known of the primaries.
#[derive(Debug, Default)]
pub(super) struct History {
    primaries: BTreeMap<Address, Known>,
    /// Versions of an employee that a worker wrote while the same lay in the archive.
    restored: BTreeSet<(EntityKey, i64)>,
    /// Versions of an employee that a move has written under the key it is to have.
    moved: BTreeSet<(EntityKey, i64)>,
    /// Messages whose stamp was seen on a row of a table.
    stamped: BTreeSet<(&'static str, String)>,
    /// Who has ever wanted an e-mail address, or to be named as manager of a department.
    wanted: BTreeMap<(String, String), BTreeSet<EntityKey>>,
    /// What arrived late and created something.
    pub(super) resurrections: u64,
    /// Primaries whose last write arrived when its sender had given it up: what it points to may be gone.
    pub(super) written_late: BTreeSet<Address>,
}

/// What is known of one row.
#[derive(Debug, Clone, Default)]
struct Known {
    version: Option<i64>,
    present: bool,
    etag: Option<String>,
    /// The message whose job wrote it last.
    by: Option<String>,
    /// When it was written last.
    written: (u64, Timestamp),
    /// The last tick at which it was absent, and present.
    absent_at: u64,
    present_at: u64,
}

impl History {
    /// Takes in the changes of one operation; what is wrong with them, in words.
    pub(super) fn take_in(&mut self, execution: &Execution<'_>, tick: u64, ledger: &Ledger) -> Result<(), String> {
        for change in execution.changes {
            if let Change::Row { table, key, row } = change {
                let table = match table.as_str() {
                    SOURCE => SOURCE,
                    TARGET => TARGET,
                    _ => continue,
                };
                // A derived row is no primary.
                let derived = row.as_ref().is_some_and(|row| row.entity.text("ek_view").is_some());
                if derived || !is_primary(key) {
                    continue;
                }
                self.change(execution, tick, ledger, table, key, row.as_ref())?;
            }
        }
        Ok(())
    }

    fn change(
        &mut self,
        execution: &Execution<'_>,
        tick: u64,
        ledger: &Ledger,
        table: &'static str,
        key: &EntityKey,
        row: Option<&Row>,
    ) -> Result<(), String> {
        let address = (table.to_owned(), key.clone());
        let before = self.primaries.get(&address).cloned().unwrap_or_default();
        if execution.caller != CLIENT {
            match row {
                None => self.may_delete(table, key, &before, ledger, execution.late)?,
                Some(row) => {
                    may_write(table, &before, row, ledger)?;
                    if !before.present && execution.late {
                        self.resurrections += 1;
                    } else if !before.present {
                        may_create(table, key, ledger)?;
                    }
                }
            }
        }
        if execution.late && row.is_some() {
            self.written_late.insert(address.clone())
        } else {
            self.written_late.remove(&address)
        };
        let version = row.and_then(|row| version(&row.entity));
        let by = row.and_then(|row| Stamp::of(&row.entity)).map(|stamp| stamp.message_id);
        if let Some(row) = row {
            if let Some(by) = &by {
                self.stamped.insert((table, by.clone()));
            }
            if let Some(email) = row.entity.text("Email").filter(|email| table == SOURCE && !email.is_empty()) {
                let address = (key.pk.to_string(), email.to_lowercase());
                self.wanted.entry(address).or_default().insert(key.clone());
            }
            if table == SOURCE && row.entity.get("IsManager") == Some(&EdmValue::Bool(true)) {
                self.wanted.entry((key.pk.to_string(), "manager".to_owned())).or_default().insert(key.clone());
            }
            if table == SOURCE
                && let Some(version) = version
                && self.known(TARGET, key).version == Some(version)
            {
                self.restored.insert((key.clone(), version));
            }
            if table == SOURCE
                && let (Some(version), Some(by)) = (version, &by)
                && let Some(Expectation::Job(Asked { op: "move", key: from, to: Some(to), .. })) = ledger.asked(by)
                && to == key
            {
                self.moved.insert((from.clone(), version));
            }
        }
        let (absent_at, present_at) = if row.is_some() { (before.absent_at, tick) } else { (tick, before.present_at) };
        let absent_at = if before.present || row.is_none() { absent_at } else { tick.saturating_sub(1) };
        let present_at = if before.present && row.is_none() { tick.saturating_sub(1) } else { present_at };
        let etag = row.map(|row| row.etag.to_string());
        let written = (tick, execution.at);
        self.primaries.insert(address, Known { version, present: row.is_some(), etag, by, written, absent_at, present_at });
        Ok(())
    }

    fn may_delete(&self, table: &str, key: &EntityKey, before: &Known, ledger: &Ledger, late: bool) -> Result<(), String> {
        let version = before.version;
        let kept = if table == SOURCE {
            // A delete whose message is gone may still be on its way; it deletes the one version it has read.
            let moved = version.is_some_and(|version| self.moved.contains(&(key.clone(), version)));
            moved || ledger.asks_to_delete(key, before.etag.as_deref(), before.written, late) || self.known(TARGET, key).version == version
        } else {
            version.is_some_and(|version| self.restored.contains(&(key.clone(), version)))
        };
        if kept {
            return Ok(());
        }
        Err(format!("lost update: {table}{key} was deleted at version {version:?}, which is nowhere else and which nobody asked to delete"))
    }

    fn known(&self, table: &str, key: &EntityKey) -> Known {
        self.primaries.get(&(table.to_owned(), key.clone())).cloned().unwrap_or_default()
    }

    /// Whether an employee was absent at some moment since a tick.
    pub(super) fn absent_since(&self, table: &str, key: &EntityKey, tick: u64) -> bool {
        let known = self.known(table, key);
        !known.present || known.absent_at >= tick
    }

    /// Whether an employee was present at some moment since a tick.
    pub(super) fn present_since(&self, table: &str, key: &EntityKey, tick: u64) -> bool {
        let known = self.known(table, key);
        known.present || known.present_at >= tick
    }

    /// Whether an employee was written at this moment or after it, as far as its last write says.
    pub(super) fn written_since(&self, table: &str, key: &EntityKey, at: Timestamp) -> bool {
        self.known(table, key).written.1 >= at
    }

    /// Whether a row of the table was seen with this message's stamp.
    pub(super) fn stamped(&self, table: &'static str, message: &str) -> bool {
        self.stamped.contains(&(table, message.to_owned()))
    }

    /// Everybody who has ever wanted what another wanted as well.
    pub(super) fn contenders(&self) -> BTreeSet<EntityKey> {
        self.wanted.values().filter(|keys| keys.len() > 1).flatten().cloned().collect()
    }

    /// Whether this employee has ever wanted what another wanted as well.
    pub(super) fn contested(&self, key: &EntityKey) -> bool {
        self.wanted.values().any(|keys| keys.len() > 1 && keys.contains(key))
    }
}

/// Whether a row of a source is a primary's first, by its key.
pub(super) fn is_primary(key: &EntityKey) -> bool {
    let derived = ["name_", "list_"].iter().any(|prefix| key.rk.as_str().starts_with(prefix));
    !derived && !is_continuation(&key.rk)
}

/// Whether a row is a further row of an entity that takes several.
pub(super) fn is_continuation(rk: &Key) -> bool {
    rk.as_str().rsplit_once('~').is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// Whether the job that stamped a row may have written it over what was there.
fn may_write(table: &str, before: &Known, row: &Row, ledger: &Ledger) -> Result<(), String> {
    let Some(by) = Stamp::of(&row.entity).map(|stamp| stamp.message_id).filter(|by| table == SOURCE && before.by.as_ref() != Some(by))
    else {
        return Ok(());
    };
    let allowed = match ledger.asked(&by) {
        Some(Expectation::Job(Asked { op: "restore" | "move", .. })) => !before.present,
        Some(Expectation::Job(Asked { guard: Some(guard), .. })) => match guard {
            Guard::Match(wanted) => before.etag.as_ref() == Some(wanted),
            Guard::Absent => !before.present,
            Guard::Newer(new) => before.version.is_none_or(|old| old < *new),
        },
        _ => true,
    };
    if allowed {
        return Ok(());
    }
    let key = &row.entity.key;
    Err(format!(
        "lost update: {table}{key} at version {:?} was overwritten by {by}, which may not: {:?}",
        before.version,
        ledger.asked(&by)
    ))
}

fn may_create(table: &str, key: &EntityKey, ledger: &Ledger) -> Result<(), String> {
    let ops: &[&str] = if table == SOURCE { &["put", "restore"] } else { &["archive"] };
    if ops.iter().any(|op| ledger.alive(key, op)) || (table == SOURCE && ledger.moves_to(key)) {
        return Ok(());
    }
    Err(format!("resurrection: {table}{key} was created, and no job that asks for it is under way"))
}

fn version(entity: &Entity) -> Option<i64> {
    match entity.get(VERSION) {
        Some(EdmValue::Int64(version)) => Some(*version),
        _ => None,
    }
}
