//! The targets of a relocation: a row of an archive, a document, a line of a log, or a row under another key.
//!
//! Relocations use the trait [`RelocationTarget`], while `restore` and `erase` use the trait [`RestoreSource`]. All
//! differences between the targets are in the implementations of these traits. A document with large values is also an
//! [`EntityRow`], because it is a primary with a footprint.
//!
//! | | [`EntityRow`] | [`ArchiveDocument`] | [`EntityLine`] | [`MovedRow`] |
//! |---|---|---|---|---|
//! | is read before the first write | if it has views | no | no | yes |
//! | items are synced | before the source is deleted | none | none | after the source is deleted |
//! | large values are written | with the row | none | none | before the row |
//! | [`TargetRules`] | `is_restorable` | `is_restorable` | `keeps_every_version` | `rejects_others` |

mod document;
mod log;
mod moved;
mod row;

use async_trait::async_trait;

use self::moved::MovedRow;
use self::row::EntityRow;
use crate::env::Env;
use crate::execute::{Delivery, Failure, Summary};
use crate::items::document::ArchiveDocument;
use crate::items::value::ValueOrigin;
use crate::jobs::context::JobContext;
use crate::jobs::log::EntityLine;
use crate::jobs::relocation::copy_decision::{CopyDecision, is_shared};
use crate::jobs::values_left::ValuesLeft;
use crate::protocol::change::{Change, Commit};
use crate::protocol::observe::Observation;
use crate::protocol::run::passes::{pass, pass_over, pass_with};
use crate::protocol::run::reconciler::Reconciler;
use crate::protocol::scope::PassOptions;
use crate::protocol::scope::Scope;
use evenkeel_model::catalog::{Archive, ArchiveTarget, TableRef};
use evenkeel_model::item::SOURCE_ETAG;
use evenkeel_model::job::{ItemReads, Primary, Stamp};
use evenkeel_model::{Entity, EntityKey, Row};
use evenkeel_storage::encryption::FirstKey;

/// Reads and writes one stored entity, and syncs its items if it has any. Writes are conditional on what was read.
#[async_trait]
pub(crate) trait EntityStore: Send + Sync {
    /// The stored primary; `None` for a log line, and for a document without large values.
    fn primary(&self) -> Option<&Primary> {
        None
    }

    /// The table of the primary; `None` if there is no primary.
    fn table(&self) -> Option<&TableRef> {
        None
    }

    async fn next_round(&mut self) -> Result<(), Failure>;

    async fn observe(&mut self) -> Result<Observation, Failure>;

    async fn commit(&mut self, found: &Observation, change: &Change) -> Result<Commit, Failure>;

    async fn settle(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn settle_from(&mut self, _found: &Observation) -> Result<(), Failure> {
        Ok(())
    }

    fn take_summary(&mut self) -> Summary {
        Summary::default()
    }
}

#[async_trait]
pub(crate) trait RelocationTarget: EntityStore {
    fn rules(&self) -> TargetRules;

    /// Returns `true` if the target must be read before its first write. This is so if it has items, or if an existing
    /// entity may forbid the write.
    fn is_read_first(&self) -> bool {
        false
    }

    fn set_copied(&mut self, _source: &Row) {}

    /// Returns a decision that only this kind of target can make. `None` leaves the decision to the common rules.
    fn judge(&self, _source: &Row, _found: Option<&Row>) -> Result<Option<CopyDecision>, Failure> {
        Ok(None)
    }

    /// Returns the content of a source row, encrypted for this target.
    async fn content_for(&self, _source: &Scope<'_>, row: &Row) -> Result<CopyContent, Failure> {
        Ok(CopyContent {
            entity: row.entity.clone(),
            first_key: None,
        })
    }

    /// Makes the large values of an entity ready to be copied to this target. By default, for targets without items,
    /// the entity is returned unchanged.
    async fn take_in(
        &mut self,
        _from: Option<&ValueOrigin>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        Ok(entity)
    }

    /// Prepares the write of a copy. If clients may change the copy, its stamp gets a digest of the content. Marks that
    /// do not fit are omitted.
    fn prepare(&self, change: Change, _found: &Observation) -> Result<Change, Failure> {
        Ok(change)
    }

    /// Syncs the items of an existing copy before the source is deleted. Items that may only be written after the
    /// deletion are left to `source_deleted`.
    async fn sync_existing(&mut self, _found: &Observation) -> Result<(), Failure> {
        Ok(())
    }

    /// Completes the target after the source is deleted, for example by syncing items that had to wait for the
    /// deletion.
    async fn source_deleted(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Removes `ek_source_etag`, which names the version that this job copied, so that a later delivery may copy
    /// another version.
    async fn reopen(&mut self, job: &Stamp) -> Result<(), Failure> {
        let found = self.observe().await?;
        let Some(row) = found
            .row()
            .filter(|row| job.is_on(&row.entity) && !is_shared(&row.entity))
        else {
            return Ok(());
        };
        let mut entity = row.entity.clone();
        entity.properties.remove(SOURCE_ETAG);
        let change = Change::Replace(entity, row.etag.clone());
        match self.commit(&found, &change).await? {
            Commit::Closed => Ok(()),
            // Some items of the copy may not be in step. A recheck syncs them, because there may be no later delivery.
            Commit::Committed | Commit::Lost | Commit::Unanswered => {
                self.queue_whole_recheck().await
            }
        }
    }

    async fn queue_whole_recheck(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether this run has written, or may have written, a row from which items are derived.
    fn may_have_written(&self) -> bool {
        false
    }
}

/// Rules of a relocation that depend on the kind of target.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TargetRules {
    /// `restore` can read the copy. Only such a copy records the time of archiving. A log line does not record it,
    /// because a line that is written twice must have the same content both times.
    pub(crate) is_restorable: bool,
    /// The target keeps every version that was written. So no copy is deleted or marked as shared. The record of a line
    /// is deleted after the source.
    pub(crate) keeps_every_version: bool,
    /// The job fails if another entity is at the target. (In an archive, the newer entity replaces the older one.)
    pub(crate) rejects_others: bool,
}

pub(crate) struct CopyContent {
    pub(crate) entity: Entity,
    /// The data key that encrypts the values. Until `keeps_data_key` renews it, an erasure that finds no entity at the
    /// target may delete it.
    pub(crate) first_key: Option<FirstKey>,
}

/// A stored entity that `restore` can bring back and `erase` can delete.
#[async_trait]
pub(crate) trait RestoreSource: EntityStore {
    /// Whether views or clients may write to the stored entity. Such a write changes the ETag, but the stored entity is
    /// still a copy of the same version of the source.
    fn is_written_on(&self) -> bool {
        false
    }

    async fn bring_back(
        &self,
        source: &mut Reconciler<'_>,
        entity: Entity,
    ) -> Result<Entity, Failure>;

    /// Makes later observations also read the continuation rows of a wide entity whose first row is gone.
    fn read_leftovers(&mut self) {}

    /// Deletes continuation rows whose first row is gone, at the versions found. Returns `Closed` if there are none.
    async fn delete_leftovers(&mut self, _found: &Observation) -> Result<Commit, Failure> {
        Ok(Commit::Closed)
    }

    /// Large values that remain after their primary is deleted, and the time at which a recheck deletes them.
    async fn values_left(&self) -> Result<Option<ValuesLeft>, Failure> {
        Ok(None)
    }
}

pub(crate) fn in_archive<'e>(
    cx: &'e JobContext,
    archive: &'e Archive,
    key: &EntityKey,
    delivery: &'e Delivery,
) -> Result<Box<dyn RelocationTarget + 'e>, Failure> {
    Ok(match &archive.target {
        ArchiveTarget::Log(target) => {
            Box::new(EntityLine::new(cx, archive, target, key, delivery)?)
        }
        ArchiveTarget::Table(_) | ArchiveTarget::Blob(_) | ArchiveTarget::File(_) => {
            match row_of(&cx.env, archive, key, delivery)? {
                Some(row) => Box::new(row),
                None => Box::new(ArchiveDocument::filed(&cx.env, archive, key)?),
            }
        }
    })
}

/// The archived entity for `restore` and `erase`; `None` for a log.
pub(crate) fn restore_source<'e>(
    env: &'e Env,
    archive: &'e Archive,
    key: &EntityKey,
    delivery: &'e Delivery,
) -> Result<Option<Box<dyn RestoreSource + 'e>>, Failure> {
    if let ArchiveTarget::Log(_) = archive.target {
        return Ok(None);
    }
    Ok(Some(match row_of(env, archive, key, delivery)? {
        Some(row) => Box::new(row),
        None => Box::new(ArchiveDocument::filed(env, archive, key)?),
    }))
}

/// The row of an archive, or the primary of a document with large values. `None` for a log, and for a document without
/// large values.
fn row_of<'e>(
    env: &'e Env,
    archive: &'e Archive,
    key: &EntityKey,
    delivery: &'e Delivery,
) -> Result<Option<EntityRow<'e>>, Failure> {
    let at = |table: &TableRef| Primary {
        table: table.table.clone(),
        key: key.clone(),
    };
    if let Some(archived) = env.catalog.archived_values_of(&archive.name) {
        let run = pass_over(env, &at(&archived.table), Some(delivery))?;
        return Ok(Some(EntityRow(run)));
    }
    match &archive.target {
        ArchiveTarget::Table(target) => {
            let run = pass(env, &at(target), delivery)?;
            Ok(Some(EntityRow(run)))
        }
        ArchiveTarget::Blob(_) | ArchiveTarget::File(_) | ArchiveTarget::Log(_) => Ok(None),
    }
}

/// The primary itself, for `erase`. Every item is read.
pub(crate) fn primary<'e>(
    env: &'e Env,
    primary: &Primary,
    delivery: &'e Delivery,
) -> Result<Box<dyn RestoreSource + 'e>, Failure> {
    env.table(&primary.table)?;
    let options = PassOptions {
        reads: ItemReads::All,
        ..PassOptions::default()
    };
    let run = pass_with(env, primary, Some(delivery), options)?;
    Ok(Box::new(EntityRow(run)))
}

pub(crate) fn moved<'e>(
    cx: &'e JobContext,
    to: &Primary,
    delivery: &'e Delivery,
) -> Result<Box<dyn RelocationTarget + 'e>, Failure> {
    Ok(Box::new(MovedRow {
        run: pass(&cx.env, to, delivery)?,
        encryption: cx.encryption(),
    }))
}
