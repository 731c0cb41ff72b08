//! Counts rare events, so that runs in which one of them never occurs can be detected.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::archives::FOLDER;
use super::history::is_continuation;
use super::shared_state::WORKERS;
use super::world::World;
use evenkeel_account::company::SPREADABLE;
use evenkeel_account::company::account_of;
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_model::large::STAGING;
use evenkeel_storage::Blob;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RareEvent {
    Uploaded,
    Dropped,
    Unstaged,
    Widened,
    Moved,
    /// A range overlay was applied to an entity.
    Propagated,
    /// The lead of a team set its properties on the team.
    Led,
    Audited,
    Logged,
    LoggedTogether,
    LoggedLate,
    FiledInContainer,
    FiledInFolder,
    Refiled,
    Restored,
    RestoredFromFolder,
    MovedAcross,
    ValueBeside,
    ValueBesideDropped,
    Indexed,
    Unindexed,
    IndexedLate,
    TableCreated,
    TableKept,
    TableDropped,
    FollowerDropped,
    Migrated,
    TakenUp,
    NotTakenUp,
    Outdated,
    GoesOn,
    StartRefused,
    WrittenElsewhere,
    DroppedElsewhere,
}

impl RareEvent {
    pub const ALL: [Self; 34] = [
        Self::Uploaded,
        Self::Dropped,
        Self::Unstaged,
        Self::Widened,
        Self::Moved,
        Self::Propagated,
        Self::Led,
        Self::Audited,
        Self::Logged,
        Self::LoggedTogether,
        Self::LoggedLate,
        Self::FiledInContainer,
        Self::FiledInFolder,
        Self::Refiled,
        Self::Restored,
        Self::RestoredFromFolder,
        Self::MovedAcross,
        Self::ValueBeside,
        Self::ValueBesideDropped,
        Self::Indexed,
        Self::Unindexed,
        Self::IndexedLate,
        Self::TableCreated,
        Self::TableKept,
        Self::TableDropped,
        Self::FollowerDropped,
        Self::Migrated,
        Self::TakenUp,
        Self::NotTakenUp,
        Self::Outdated,
        Self::GoesOn,
        Self::StartRefused,
        Self::WrittenElsewhere,
        Self::DroppedElsewhere,
    ];

    /// Whether this event must occur in the runs of a world.
    pub fn belongs_to(self, world: World) -> bool {
        match world {
            World::Company => false,
            World::Patterns => (self as usize) <= Self::Audited as usize,
            World::Archives => {
                let own = Self::Audited as usize + 1..=Self::FollowerDropped as usize;
                matches!(self, Self::Uploaded | Self::Dropped) || own.contains(&(self as usize))
            }
            World::Releases => (self as usize) >= Self::Migrated as usize,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Uploaded => "a large value was put into a blob",
            Self::Dropped => "a large value was dropped",
            Self::Unstaged => "a staged blob was deleted",
            Self::Widened => "a further row of a wide entity was written",
            Self::Moved => "an entity moved to another key",
            Self::Propagated => "a range overlay was applied to an entity",
            Self::Led => "a lead set its properties on its team",
            Self::Audited => "an audit recorded a finding",
            Self::Logged => "a line was appended to a log",
            Self::LoggedTogether => "several lines were appended together",
            Self::LoggedLate => "a line was appended late",
            Self::FiledInContainer => "a document was put into a container",
            Self::FiledInFolder => "a document was put into a folder",
            Self::Refiled => "a document was replaced by a newer version",
            Self::Restored => "a restored document was deleted from its container",
            Self::RestoredFromFolder => "a restored document was deleted from its folder",
            Self::MovedAcross => "an entity moved to another table",
            Self::ValueBeside => "a large value was put next to a document",
            Self::ValueBesideDropped => "a large value next to a document was dropped",
            Self::Indexed => "a document was written to a search index",
            Self::Unindexed => "a document was deleted from a search index",
            Self::IndexedLate => "a document was written to a search index late",
            Self::TableCreated => "a dated table was created in advance",
            Self::TableKept => "all rows of a dated table were archived",
            Self::TableDropped => "a dated table was dropped",
            Self::FollowerDropped => "a table that follows a dated table was dropped",
            Self::Migrated => "an operator migrated to another release",
            Self::TakenUp => "a running worker adopted another catalog",
            Self::NotTakenUp => "a running worker refused another catalog",
            Self::Outdated => "a worker drained because another catalog was recorded",
            Self::GoesOn => "the recorded catalog matched again and the worker continued",
            Self::StartRefused => "a worker refused to start with its catalog",
            Self::WrittenElsewhere => {
                "an item was written to an account that a release added to its view"
            }
            Self::DroppedElsewhere => {
                "an item was dropped from an account that a release added to its view"
            }
        }
    }
}

impl fmt::Display for RareEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RareEvents([u64; RareEvent::ALL.len()]);

impl Default for RareEvents {
    fn default() -> Self {
        Self([0; RareEvent::ALL.len()])
    }
}

impl RareEvents {
    pub const fn of(&self, rare_event: RareEvent) -> u64 {
        self.0[rare_event as usize]
    }

    pub(super) const fn add(&mut self, rare_event: RareEvent) {
        self.0[rare_event as usize] += 1;
    }

    pub fn absorb(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct RareEventCounter {
    logs: BTreeMap<String, usize>,
    filed: BTreeSet<(String, String)>,
    pub(super) world: World,
    pub(super) rare_events: RareEvents,
}

impl RareEventCounter {
    pub(super) fn record_changes(&mut self, execution: &Execution<'_>) {
        match self.world {
            World::Archives => return self.archives(execution),
            World::Releases => return self.releases(execution),
            World::Company | World::Patterns => {}
        }
        for change in execution.changes {
            if let Some(rare_event) = Self::seen(execution, change) {
                self.rare_events.add(rare_event);
            }
        }
    }

    /// Counts changes in an account that is not the fixed account of the table or container. Such a change occurs only
    /// if a release has placed a view in this account.
    fn releases(&mut self, execution: &Execution<'_>) {
        for change in execution.changes {
            let (name, exists) = match change {
                ObservedChange::Row { table, row, .. } => (table.as_str(), row.is_some()),
                ObservedChange::Blob {
                    container, blob, ..
                } => (container.as_str(), blob.is_some()),
                _ => continue,
            };
            if SPREADABLE.contains(&name) && account_of(name) != *execution.account {
                self.rare_events.add(if exists {
                    RareEvent::WrittenElsewhere
                } else {
                    RareEvent::DroppedElsewhere
                });
            }
        }
    }

    fn archives(&mut self, execution: &Execution<'_>) {
        let worker = execution.caller >= WORKERS;
        for change in execution.changes.iter().filter(|_| worker) {
            let (first, second) = match change {
                ObservedChange::Row {
                    table,
                    row: Some(row),
                    ..
                } => {
                    let from = row
                        .entity
                        .text("ek_source")
                        .filter(|_| row.entity.text("ek_view").is_none());
                    let across =
                        from.is_some_and(|from| !from.starts_with(&format!("[\"{table}\"")));
                    (across.then_some(RareEvent::MovedAcross), None)
                }
                ObservedChange::Blob {
                    container,
                    name,
                    blob,
                } => self.blob(execution, container.as_str(), name.as_str(), blob.as_ref()),
                ObservedChange::File { place, content } if place.dir == FOLDER => {
                    let address = (FOLDER.to_owned(), place.name.to_string());
                    (
                        Some(self.document(
                            &address,
                            content.is_some(),
                            [RareEvent::FiledInFolder, RareEvent::RestoredFromFolder],
                        )),
                        None,
                    )
                }
                ObservedChange::File { place, .. } => (
                    place
                        .name
                        .as_str()
                        .ends_with("/complete.json")
                        .then_some(RareEvent::TableKept),
                    None,
                ),
                ObservedChange::Document { document, .. } => {
                    let seen = if document.is_some() {
                        RareEvent::Indexed
                    } else {
                        RareEvent::Unindexed
                    };
                    (Some(seen), execution.late.then_some(RareEvent::IndexedLate))
                }
                ObservedChange::Table { exists: true, .. } => (Some(RareEvent::TableCreated), None),
                ObservedChange::Table {
                    table,
                    exists: false,
                } => {
                    let own = table.as_str().starts_with("Attempts");
                    (
                        Some(if own {
                            RareEvent::TableDropped
                        } else {
                            RareEvent::FollowerDropped
                        }),
                        None,
                    )
                }
                _ => (None, None),
            };
            for rare_event in [first, second].into_iter().flatten() {
                self.rare_events.0[rare_event as usize] += 1;
            }
        }
    }

    fn blob(
        &mut self,
        execution: &Execution<'_>,
        container: &str,
        name: &str,
        blob: Option<&Blob>,
    ) -> (Option<RareEvent>, Option<RareEvent>) {
        let exists = blob.is_some();
        match container {
            "logs" if execution.operation.name == "Append Block" => {
                let length = blob.map_or(0, |blob| blob.content.len());
                let before = self.logs.insert(name.to_owned(), length).unwrap_or(0);
                let new = blob
                    .and_then(|blob| blob.content.get(before..))
                    .unwrap_or_default();
                let together = new.split_inclusive(|byte| *byte == b'\n').nth(1).is_some();
                let seen = if together {
                    RareEvent::LoggedTogether
                } else {
                    RareEvent::Logged
                };
                (Some(seen), execution.late.then_some(RareEvent::LoggedLate))
            }
            "papers" if execution.operation.name != "Set Blob Metadata" => (
                Some(self.document(
                    &(container.to_owned(), name.to_owned()),
                    exists,
                    [RareEvent::FiledInContainer, RareEvent::Restored],
                )),
                None,
            ),
            "large" => (
                Some(if exists {
                    RareEvent::Uploaded
                } else {
                    RareEvent::Dropped
                }),
                None,
            ),
            "old-attempts" => (
                name.ends_with("/complete.json")
                    .then_some(RareEvent::TableKept),
                None,
            ),
            _ => (None, None),
        }
    }

    fn document(
        &mut self,
        place: &(String, String),
        exists: bool,
        [filed, restored]: [RareEvent; 2],
    ) -> RareEvent {
        match (place.1.contains("%values/"), exists) {
            (true, true) => RareEvent::ValueBeside,
            (true, false) => RareEvent::ValueBesideDropped,
            (false, true) if !self.filed.insert(place.clone()) => RareEvent::Refiled,
            (false, true) => filed,
            (false, false) => {
                self.filed.remove(place);
                restored
            }
        }
    }

    fn seen(execution: &Execution<'_>, change: &ObservedChange) -> Option<RareEvent> {
        match change {
            ObservedChange::Row { table, key, row } => {
                let entity = row.as_ref().map(|row| &row.entity);
                let text = |name: &str| entity.and_then(|entity| entity.text(name));
                // A row of `Employees` with a source, but without a view, was written by a move.
                if table.as_str() == "Employees"
                    && text("ek_source").is_some()
                    && text("ek_view").is_none()
                {
                    Some(RareEvent::Moved)
                } else if is_continuation(&key.rk) && text("ek_row").is_some() {
                    Some(RareEvent::Widened)
                } else if table.as_str() == "Employees"
                    && text("ek_owner_team_name").is_some()
                    && execution.caller >= WORKERS
                {
                    Some(RareEvent::Propagated)
                } else if text("ek_owner_lead").is_some() && execution.caller >= WORKERS {
                    Some(RareEvent::Led)
                } else {
                    (table.as_str() == "EvenkeelAudits").then_some(RareEvent::Audited)
                }
            }
            ObservedChange::Blob {
                container, blob, ..
            } => match (container.as_str(), blob) {
                ("large" | "former-large", Some(_)) => {
                    (execution.operation.name != "Set Blob Metadata").then_some(RareEvent::Uploaded)
                }
                ("large" | "former-large", None) => Some(RareEvent::Dropped),
                (STAGING, None) => (execution.caller >= WORKERS).then_some(RareEvent::Unstaged),
                _ => None,
            },
            _ => None,
        }
    }
}
