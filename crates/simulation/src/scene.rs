//! What is rare enough to be missed by every run: counted, so that runs that never see it are found out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::archives::FOLDER;
use super::history::is_continuation;
use super::stage::WORKERS;
use super::world::World;
use evenkeel_account::company::SPREADABLE;
use evenkeel_account::company::account_of;
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_model::large::STAGING;
use evenkeel_storage::Blob;

/// Something that happens to what the second or the third world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// A large value was put into a blob.
    Uploaded,
    /// A large value was dropped.
    Dropped,
    /// A worker deleted what had been staged.
    Unstaged,
    /// A further row of a wide entity was written.
    Widened,
    /// An entity was given another key.
    Moved,
    /// An entity was given what its team says.
    Carried,
    /// A team among its people was given what its lead says.
    Led,
    /// An audit recorded what it found.
    Audited,
    /// A line was appended to a log.
    Logged,
    /// Several lines were appended together.
    LoggedTogether,
    /// A line was appended when its sender had given it up.
    LoggedLate,
    /// A document was put into a container.
    FiledInContainer,
    /// A document was put into a folder.
    FiledInFolder,
    /// An archived document was replaced by that of a newer version.
    Refiled,
    /// A document was deleted: its entity is restored.
    Restored,
    /// The same in a folder.
    RestoredFromFolder,
    /// An entity moved to another table.
    MovedAcross,
    /// A large value was put beside a document.
    ValueBeside,
    /// One was dropped.
    ValueBesideDropped,
    /// A document was written into a search index.
    Indexed,
    /// One was deleted there.
    Unindexed,
    /// One was written or deleted there when its sender had given it up.
    IndexedLate,
    /// A table by date was created ahead.
    TableCreated,
    /// Every row of a table was in files.
    TableKept,
    /// A table by date was dropped.
    TableDropped,
    /// What followed it was.
    FollowerDropped,
    /// An operator migrated to another release.
    Migrated,
    /// A running worker took up another catalog.
    TakenUp,
    /// It was asked to and did not.
    NotTakenUp,
    /// A worker found another catalog recorded than its own, and drained.
    Outdated,
    /// The record fits again, and it went on.
    GoesOn,
    /// A worker was refused to start with its catalog.
    StartRefused,
    /// An item was written into an account that a release gave to its view.
    WrittenElsewhere,
    /// One was dropped there.
    DroppedElsewhere,
}

impl Scene {
    /// Every kind.
    pub const ALL: [Self; 34] = [
        Self::Uploaded,
        Self::Dropped,
        Self::Unstaged,
        Self::Widened,
        Self::Moved,
        Self::Carried,
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

    /// Whether it is to be seen in a world.
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

    /// Its words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uploaded => "a large value was put into a blob",
            Self::Dropped => "a large value was dropped",
            Self::Unstaged => "a staged blob was deleted",
            Self::Widened => "a further row of a wide entity was written",
            Self::Moved => "an entity moved to another key",
            Self::Carried => "an entity was told what its team says",
            Self::Led => "a team among its people was told what its lead says",
            Self::Audited => "an audit recorded what it found",
            Self::Logged => "a line was appended to a log",
            Self::LoggedTogether => "several lines were appended together",
            Self::LoggedLate => "a line was appended late",
            Self::FiledInContainer => "a document was put into a container",
            Self::FiledInFolder => "a document was put into a folder",
            Self::Refiled => "a document was replaced by that of a newer version",
            Self::Restored => "a restored document was deleted from its container",
            Self::RestoredFromFolder => "a restored document was deleted from its folder",
            Self::MovedAcross => "an entity moved to another table",
            Self::ValueBeside => "a large value was put beside a document",
            Self::ValueBesideDropped => "a large value beside a document was dropped",
            Self::Indexed => "a document was written into a search index",
            Self::Unindexed => "a document was deleted from a search index",
            Self::IndexedLate => "a document was written into a search index late",
            Self::TableCreated => "a table by date was created ahead",
            Self::TableKept => "every row of a table by date was in files",
            Self::TableDropped => "a table by date was dropped",
            Self::FollowerDropped => "a table that follows one by date was dropped",
            Self::Migrated => "an operator migrated to another release",
            Self::TakenUp => "a running worker took up another catalog",
            Self::NotTakenUp => "a running worker was not given another catalog",
            Self::Outdated => "a worker found another catalog recorded and drained",
            Self::GoesOn => "the record fitted again and the worker went on",
            Self::StartRefused => "a worker was refused to start with its catalog",
            Self::WrittenElsewhere => {
                "an item was written into an account that a release gave to its view"
            }
            Self::DroppedElsewhere => {
                "an item was dropped from an account that a release gave to its view"
            }
        }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenes([u64; Scene::ALL.len()]);

impl Default for Scenes {
    fn default() -> Self {
        Self([0; Scene::ALL.len()])
    }
}

impl Scenes {
    /// How often it was seen.
    pub const fn of(&self, scene: Scene) -> u64 {
        self.0[scene as usize]
    }

    pub(super) const fn add(&mut self, scene: Scene) {
        self.0[scene as usize] += 1;
    }

    /// Adds another's counts.
    pub fn absorb(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

/// Who counts them.
#[derive(Debug, Default)]
pub(super) struct SceneCounter {
    /// How long logs are, by name.
    logs: BTreeMap<String, usize>,
    /// Documents of archives, by container or folder.
    filed: BTreeSet<(String, String)>,
    /// Whose scenes are counted.
    pub(super) world: World,
    pub(super) scenes: Scenes,
}

impl SceneCounter {
    /// Takes in the changes of one operation.
    pub(super) fn take_in(&mut self, execution: &Execution<'_>) {
        match self.world {
            World::Archives => return self.archives(execution),
            World::Releases => return self.releases(execution),
            World::Company | World::Patterns => {}
        }
        for change in execution.changes {
            if let Some(scene) = Self::seen(execution, change) {
                self.scenes.add(scene);
            }
        }
    }

    /// Items in accounts that they have in no seed whose items lie in one.
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
                self.scenes.add(if exists {
                    Scene::WrittenElsewhere
                } else {
                    Scene::DroppedElsewhere
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
                    (across.then_some(Scene::MovedAcross), None)
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
                            [Scene::FiledInFolder, Scene::RestoredFromFolder],
                        )),
                        None,
                    )
                }
                ObservedChange::File { place, .. } => (
                    place
                        .name
                        .as_str()
                        .ends_with("/complete.json")
                        .then_some(Scene::TableKept),
                    None,
                ),
                ObservedChange::Document { document, .. } => {
                    let seen = if document.is_some() {
                        Scene::Indexed
                    } else {
                        Scene::Unindexed
                    };
                    (Some(seen), execution.late.then_some(Scene::IndexedLate))
                }
                ObservedChange::Table { exists: true, .. } => (Some(Scene::TableCreated), None),
                ObservedChange::Table {
                    table,
                    exists: false,
                } => {
                    let own = table.as_str().starts_with("Attempts");
                    (
                        Some(if own {
                            Scene::TableDropped
                        } else {
                            Scene::FollowerDropped
                        }),
                        None,
                    )
                }
                _ => (None, None),
            };
            for scene in [first, second].into_iter().flatten() {
                self.scenes.0[scene as usize] += 1;
            }
        }
    }

    fn blob(
        &mut self,
        execution: &Execution<'_>,
        container: &str,
        name: &str,
        blob: Option<&Blob>,
    ) -> (Option<Scene>, Option<Scene>) {
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
                    Scene::LoggedTogether
                } else {
                    Scene::Logged
                };
                (Some(seen), execution.late.then_some(Scene::LoggedLate))
            }
            "papers" if execution.operation.name != "Set Blob Metadata" => (
                Some(self.document(
                    &(container.to_owned(), name.to_owned()),
                    exists,
                    [Scene::FiledInContainer, Scene::Restored],
                )),
                None,
            ),
            "large" => (
                Some(if exists {
                    Scene::Uploaded
                } else {
                    Scene::Dropped
                }),
                None,
            ),
            "old-attempts" => (
                name.ends_with("/complete.json").then_some(Scene::TableKept),
                None,
            ),
            _ => (None, None),
        }
    }

    /// A document, or a large value beside one.
    fn document(
        &mut self,
        place: &(String, String),
        exists: bool,
        [filed, restored]: [Scene; 2],
    ) -> Scene {
        match (place.1.contains("%values/"), exists) {
            (true, true) => Scene::ValueBeside,
            (true, false) => Scene::ValueBesideDropped,
            (false, true) if !self.filed.insert(place.clone()) => Scene::Refiled,
            (false, true) => filed,
            (false, false) => {
                self.filed.remove(place);
                restored
            }
        }
    }

    fn seen(execution: &Execution<'_>, change: &ObservedChange) -> Option<Scene> {
        match change {
            ObservedChange::Row { table, key, row } => {
                let entity = row.as_ref().map(|row| &row.entity);
                let text = |name: &str| entity.and_then(|entity| entity.text(name));
                // A row that a move has written says where it came from, and was not archived.
                if table.as_str() == "Employees"
                    && text("ek_source").is_some()
                    && text("ek_view").is_none()
                {
                    Some(Scene::Moved)
                } else if is_continuation(&key.rk) && text("ek_row").is_some() {
                    Some(Scene::Widened)
                } else if table.as_str() == "Employees"
                    && text("ek_owner_team_name").is_some()
                    && execution.caller >= WORKERS
                {
                    Some(Scene::Carried)
                } else if text("ek_owner_lead").is_some() && execution.caller >= WORKERS {
                    Some(Scene::Led)
                } else {
                    (table.as_str() == "EvenkeelAudits").then_some(Scene::Audited)
                }
            }
            ObservedChange::Blob {
                container, blob, ..
            } => match (container.as_str(), blob) {
                ("large" | "former-large", Some(_)) => {
                    (execution.operation.name != "Set Blob Metadata").then_some(Scene::Uploaded)
                }
                ("large" | "former-large", None) => Some(Scene::Dropped),
                (STAGING, None) => (execution.caller >= WORKERS).then_some(Scene::Unstaged),
                _ => None,
            },
            _ => None,
        }
    }
}
