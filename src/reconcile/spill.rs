//! A series that outgrows its row: making room for a merge into it.
//!
//! The properties of a row are nowhere else, so that they must not leave the row before the blob that takes them is there for good. That
//! takes two writes of the row, and each pass in between finds an entity that is whole:
//!
//! ```text
//!   announce ─▶ upload the blob: the last one's properties, and half of the row ─▶ the row says `ek_spilling`   nothing has left it
//!   close: the blob is pointed to, and no pass drops it any more
//!   the row without the blob's properties; `ek_spilled` names the blob, in place of the last one ─▶ drop the last one ─▶ close
//! ```
//!
//! A stop in between leaves a row that is full and has `ek_spilling`: the next merge reads that blob and carries on.
//! The values in the row win over those in the blob: a value that comes late is taken along the next time.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::change::Change;
use super::execute::Failure;
use super::failure::{permanent, storage};
use super::memory::MemoryShare;
use super::observation::Observation;
use super::scope::Scope;
use super::value::{RunValues, Supply};
use crate::model::job::Stamp;
use crate::model::large::{self, Pointer, SPILLED, SPILLING, may_have_left};
use crate::model::{BlobName, ETag, EdmValue, Entity, ItemAddress, Row, Site, limits};
use crate::patterns::spill;

/// A blob is there as bytes, as JSON and as properties.
const COPIES: u64 = 3;

/// Properties by name.
type Properties = BTreeMap<String, EdmValue>;

/// The next write.
pub(super) enum SpillStep {
    /// The change, all of it.
    Whole(Change),
    /// The write that makes room; the change itself comes after it.
    Room(Change),
}

/// A series that cannot be written.
#[derive(Debug, thiserror::Error)]
enum SpillError {
    #[error(
        "the properties that have left its row lie in {0}, which does not exist (any more): send the whole entity, with \"mode\": \"replace\""
    )]
    Gone(BlobName),
    #[error("the properties that have left its row lie in {name}, which is no such blob: {problem}")]
    Broken { name: BlobName, problem: String },
    #[error(
        "its row takes {} properties, and {excess} of what it would have cannot leave it, since views name them or this job brings them: merge them in several jobs",
        spill::ROW_PROPERTIES
    )]
    Full { excess: usize },
    #[error(
        "what has left its row would have {bytes} bytes as JSON; at most {} (16 MiB) are allowed, since it is read and written as one: begin another series",
        limits::SPILLED_BYTES
    )]
    TooLarge { bytes: usize },
}

/// A blob that properties have gone into, with its content.
struct Spilled {
    pointer: Pointer,
    content: Bytes,
    properties: Properties,
}

/// Room for a row, by the scope of a pass and the values that it brings.
pub(super) struct Spilling<'p, 'e> {
    pub(super) scope: &'p Scope<'e>,
    pub(super) values: &'p mut RunValues,
}

/// The row that conditions on these properties are judged by: with those of them that have left it.
pub(super) async fn judged<'r>(scope: &Scope<'_>, row: &'r Row, properties: &[&str]) -> Result<Cow<'r, Row>, Failure> {
    let pointer = own_pointer(scope, &row.entity, SPILLED).filter(|_| may_have_left(row, properties.iter().copied()));
    let Some(pointer) = pointer else { return Ok(Cow::Borrowed(row)) };
    let Some(there) = read(scope, pointer).await? else { return Ok(Cow::Borrowed(row)) };
    let mut judged = row.clone();
    for (name, value) in there.properties.into_iter().filter(|(name, _)| properties.contains(&name.as_str())) {
        judged.entity.properties.entry(name).or_insert(value);
    }
    Ok(Cow::Owned(judged))
}

impl Spilling<'_, '_> {
    /// Makes room in the row for a change, where the table's view says so.
    pub(super) async fn step(&mut self, seen: &Observation, change: Change) -> Result<SpillStep, Failure> {
        let excess = change.result().map_or(0, spill::excess);
        if excess == 0 || !self.spills() {
            return Ok(SpillStep::Whole(change));
        }
        match (change, &seen.row) {
            (Change::Merge { changes, merged, etag }, Some(row)) => self.make_room(row, (changes, merged, etag)).await,
            // All of it comes with the job: there is nothing yet that could be lost.
            (Change::Insert(entity), _) => Ok(SpillStep::Whole(Change::Insert(self.spill_whole(entity)?))),
            (Change::Replace(entity, etag), _) => Ok(SpillStep::Whole(Change::Replace(self.spill_whole(entity)?, etag))),
            (change, _) => Ok(SpillStep::Whole(change)),
        }
    }

    /// Supplies the blob once more that this job brought with an entity that is more than a row takes.
    pub(super) fn again(&mut self, row: &Row, whole: Entity) {
        if spill::excess(&whole) == 0 || !self.spills() {
            return;
        }
        let supplies = self.values.supplies.clone();
        let again = self.spill_whole(whole);
        if !again.is_ok_and(|again| again.get(large::SPILLED) == row.entity.get(large::SPILLED)) {
            // It is another one, which this job has not brought.
            self.values.supply(supplies);
        }
    }

    /// Takes the excess out of an entity.
    fn spill_whole(&mut self, mut entity: Entity) -> Result<Entity, Failure> {
        let excess = spill::excess(&entity);
        let Some(out) = spill::outgoing(&entity, &self.scope.engine.catalog.kept_in_rows(self.scope.source), excess) else {
            return Err(permanent(spilling(self.scope), SpillError::Full { excess }));
        };
        for name in out.keys() {
            entity.properties.remove(name);
        }
        entity.properties.remove(SPILLING);
        let pointer = self.supply_spilled(&out)?;
        Ok(entity.with(SPILLED, pointer.to_string()))
    }

    async fn make_room(&mut self, row: &Row, (changes, merged, etag): (Entity, Entity, ETag)) -> Result<SpillStep, Failure> {
        let kept = self.scope.engine.catalog.kept_in_rows(self.scope.source);
        // Values that have left the row are in memory from here to their upload.
        self.values.hold(self.scope).await;
        if let Some(pointer) = own_pointer(self.scope, &row.entity, SPILLING)
            && let Some(there) = read(self.scope, pointer).await?
        {
            let mut rest = merged.clone();
            for name in spill::covered(&merged, &kept, &there.properties) {
                rest.properties.remove(&name);
            }
            if spill::excess(&rest) == 0 {
                rest.properties.remove(SPILLING);
                // It is there; should another program remove it nevertheless before the row is written, it is uploaded
                // again.
                self.supply_blob(&there.pointer, there.content);
                return Ok(SpillStep::Whole(Change::Replace(rest.with(SPILLED, there.pointer.to_string()), etag)));
            }
        }
        let mut spilled = Properties::new();
        if let Some(pointer) = own_pointer(self.scope, &row.entity, SPILLED) {
            let name = pointer.name.clone();
            let before = read(self.scope, pointer).await?;
            spilled = before.ok_or_else(|| permanent(spilling(self.scope), SpillError::Gone(name)))?.properties;
        }
        let mut stays = kept;
        stays.extend(changes.properties.keys().cloned());
        let excess = spill::excess(&merged);
        let out = spill::outgoing(&row.entity, &stays, excess);
        spilled.extend(out.ok_or_else(|| permanent(spilling(self.scope), SpillError::Full { excess }))?);
        let pointer = self.supply_spilled(&spilled)?;
        Ok(SpillStep::Room(pointing(row, &pointer)))
    }

    fn supply_spilled(&mut self, properties: &Properties) -> Result<Pointer, Failure> {
        let content = large::spill(properties);
        if content.len() > limits::SPILLED_BYTES {
            return Err(permanent(spilling(self.scope), SpillError::TooLarge { bytes: content.len() }));
        }
        let Some((_, large)) = self.scope.engine.catalog.large_values_of(self.scope.source) else {
            return Err(permanent(spilling(self.scope), SpillError::Full { excess: properties.len() }));
        };
        let pointer = Pointer::to(&self.scope.folder, &large.container, SPILLED, content.len() as u64, large::hash(&content));
        let pointer = pointer.map_err(|error| permanent(spilling(self.scope), error))?;
        self.supply_blob(&pointer, content);
        Ok(pointer)
    }

    fn supply_blob(&mut self, pointer: &Pointer, content: Bytes) {
        let Some((view, large)) = self.scope.engine.catalog.large_values_of(self.scope.source) else { return };
        let site = Site::Blob { container: large.container.clone(), name: pointer.name.clone() };
        let address = ItemAddress::whole(view.clone(), large.account.clone(), site);
        let mut supplies = std::mem::take(&mut self.values.supplies);
        supplies.insert(address, Supply::Bytes { content, content_type: "application/json".to_owned() });
        self.values.supply(supplies);
    }

    /// Whether the table's view lets rows spill.
    fn spills(&self) -> bool {
        self.scope.engine.catalog.large_values_of(self.scope.source).is_some_and(|(_, large)| large.spill)
    }
}

fn own_pointer(scope: &Scope<'_>, entity: &Entity, property: &str) -> Option<Pointer> {
    entity.get(property).and_then(Pointer::of).filter(|pointer| pointer.is_of(&scope.folder))
}

/// Reads the properties that have left a row. `None` where the blob is gone.
async fn read(scope: &Scope<'_>, pointer: Pointer) -> Result<Option<Spilled>, Failure> {
    let Some((_, large)) = scope.engine.catalog.large_values_of(scope.source) else { return Ok(None) };
    let Some(container) = &pointer.container else { return Ok(None) };
    let broken = |problem| permanent(spilling(scope), SpillError::Broken { name: pointer.name.clone(), problem });
    if pointer.bytes > limits::SPILLED_BYTES as u64 {
        return Err(broken(format!("{} bytes are more than a series may have", pointer.bytes)));
    }
    let _memory = scope.engine.memory.take(MemoryShare::Documents, pointer.bytes * COPIES).await;
    // One byte more than it should have, so that a longer blob is none of its content.
    let range = Some(0..pointer.bytes + 1);
    let blob = scope.target(&large.account)?.blobs.get(container, &pointer.name, range).await;
    let blob = blob.map_err(|error| storage(format!("reading {container}/{}", pointer.name), error))?;
    let Some(blob) = blob else { return Ok(None) };
    let properties = large::spilled(&pointer, &blob.content).map_err(broken)?;
    Ok(Some(Spilled { pointer, content: blob.content, properties }))
}

fn spilling(scope: &Scope<'_>) -> String {
    format!("making room in the row of {}", scope.primary)
}

/// The row as it was, and pointing to a blob that is to take some of it. It is no job's write: the stamp on it stays, unless there is no
/// room for it.
fn pointing(row: &Row, pointer: &Pointer) -> Change {
    let room = Entity::new(row.entity.key.clone()).with(SPILLING, pointer.to_string());
    let mut whole = row.entity.clone().merged(&room);
    if whole.properties.len() > limits::PROPERTIES {
        whole.properties.remove(Stamp::PROPERTY);
        return Change::Replace(whole, row.etag.clone());
    }
    Change::Merge { changes: room, merged: whole, etag: row.etag.clone() }
}
