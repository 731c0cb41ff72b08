//! What is rare enough to be missed by every run: counted, so that runs that never see it are found out.

use std::collections::BTreeSet;
use std::fmt;

use super::history::is_continuation;
use super::items::{Address, elsewhere};
use super::stage::WORKERS;
use crate::adapters::sim::{Change, Execution};
use crate::model::large::STAGING;

/// Something that happens to what the second world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// A list moved out of its row.
    MovedOut,
    /// A list came back into its row.
    CameBack,
    /// A list in a blob was written in several blocks.
    Blocks,
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
    /// An audit recorded what it found.
    Audited,
}

impl Scene {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::MovedOut,
        Self::CameBack,
        Self::Blocks,
        Self::Uploaded,
        Self::Dropped,
        Self::Unstaged,
        Self::Widened,
        Self::Moved,
        Self::Carried,
        Self::Audited,
    ];

    /// Its words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MovedOut => "a list moved into a blob",
            Self::CameBack => "a list came back into its row",
            Self::Blocks => "a list was written in several blocks",
            Self::Uploaded => "a large value was put into a blob",
            Self::Dropped => "a large value was dropped",
            Self::Unstaged => "a staged blob was deleted",
            Self::Widened => "a further row of a wide entity was written",
            Self::Moved => "an entity moved to another key",
            Self::Carried => "an entity was told what its team says",
            Self::Audited => "an audit recorded what it found",
        }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scenes([u64; Scene::ALL.len()]);

impl Scenes {
    /// How often it was seen.
    pub const fn of(&self, scene: Scene) -> u64 {
        self.0[scene as usize]
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
pub(super) struct Audience {
    /// Rows whose lists lie in blobs.
    elsewhere: BTreeSet<Address>,
    pub(super) scenes: Scenes,
}

impl Audience {
    /// Takes in the changes of one operation.
    pub(super) fn take_in(&mut self, execution: &Execution<'_>) {
        for change in execution.changes {
            for scene in self.seen(execution, change).into_iter().flatten() {
                self.scenes.0[scene as usize] += 1;
            }
        }
    }

    fn seen(&mut self, execution: &Execution<'_>, change: &Change) -> [Option<Scene>; 2] {
        let mut scenes = [None; 2];
        match change {
            Change::Row { table, key, row } => {
                let entity = row.as_ref().map(|row| &row.entity);
                let names_a_blob = entity.is_some_and(|entity| elsewhere(entity).is_some());
                if names_a_blob || !self.elsewhere.is_empty() {
                    let address = (table.to_string(), key.clone());
                    let new = names_a_blob && self.elsewhere.insert(address.clone());
                    let back = !names_a_blob && self.elsewhere.remove(&address) && entity.is_some();
                    scenes[0] = new.then_some(Scene::MovedOut).or_else(|| back.then_some(Scene::CameBack));
                }
                let text = |name: &str| entity.and_then(|entity| entity.text(name));
                // A row that a move has written says where it came from, and was not archived.
                scenes[1] = if table.as_str() == "Employees" && text("ek_source").is_some() && text("ek_view").is_none() {
                    Some(Scene::Moved)
                } else if is_continuation(&key.rk) && text("ek_row").is_some() {
                    Some(Scene::Widened)
                } else if text("ek_owner_team_name").is_some() && execution.caller >= WORKERS {
                    Some(Scene::Carried)
                } else {
                    (table.as_str() == "EvenkeelAudits").then_some(Scene::Audited)
                };
            }
            Change::Blob { container, blob, .. } => {
                scenes[0] = match (container.as_str(), blob) {
                    ("large" | "former-large", Some(_)) => (execution.operation.name != "Set Blob Metadata").then_some(Scene::Uploaded),
                    ("large" | "former-large", None) => Some(Scene::Dropped),
                    (STAGING, None) => (execution.caller >= WORKERS).then_some(Scene::Unstaged),
                    _ => (execution.operation.name == "Put Block List").then_some(Scene::Blocks),
                };
            }
            _ => {}
        }
        scenes
    }
}
