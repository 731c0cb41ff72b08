//! The places of an entity: a row of an archive, a document, a line of a log, a row under another key.
//!
//! A relocation uses a place as a [`RelocationTarget`]; `restore` and `erase` use it as a [`RestoreSource`]. Places
//! differ in these traits only. A document with large values is an [`EntityRow`] too, because it is a primary with a
//! footprint.
//!
//! | | [`EntityRow`] | [`ArchiveDocument`] | [`EntityLine`] | [`MovedRow`] |
//! |---|---|---|---|---|
//! | read before the first write | if it has views | no | no | yes |
//! | its items are in step | before the source is deleted | it has none | it has none | when the source is gone |
//! | its large values are there | with it | none | none | before it |
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
use evenkeel_storage::sealing::FirstKey;

/// A place where an entity is stored: read and written under conditions, with or without items of its own.
#[async_trait]
pub(crate) trait EntityStore: Send + Sync {
    /// The primary, if the place is one.
    fn primary(&self) -> Option<&Primary> {
        None
    }

    /// The table, if the place is in one.
    fn table(&self) -> Option<&TableRef> {
        None
    }

    async fn next_round(&mut self) -> Result<(), Failure>;

    async fn observe(&mut self) -> Result<Observation, Failure>;

    async fn commit(&mut self, found: &Observation, change: &Change) -> Result<Commit, Failure>;

    async fn settle(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Like [`settle`](Self::settle), but from the given observation.
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

    /// Whether it must be read before it is written, because it has items, or because an existing entity may forbid
    /// the write.
    fn is_read_first(&self) -> bool {
        false
    }

    fn set_copied(&mut self, _source: &Row) {}

    /// Decides by what only this kind of place records of its versions. `None` leaves the decision to the common
    /// rules.
    fn judge(&self, _source: &Row, _found: Option<&Row>) -> Result<Option<CopyDecision>, Failure> {
        Ok(None)
    }

    /// The part of a source that goes there, in the form in which it is read there.
    async fn content_for(&self, _source: &Scope<'_>, row: &Row) -> Result<CopyContent, Failure> {
        Ok(CopyContent {
            entity: row.entity.clone(),
            first_key: None,
        })
    }

    /// Adopts an entity with its large values. A place without items keeps none.
    async fn take_in(
        &mut self,
        _from: Option<&ValueOrigin>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        Ok(entity)
    }

    /// The write of a new copy, reduced to what fits there. Its stamp vouches for its content if clients may change
    /// that by themselves.
    fn prepare(&self, change: Change, _found: &Observation) -> Result<Change, Failure> {
        Ok(change)
    }

    /// Syncs the items of an existing copy before the source is deleted, unless they wait for that.
    async fn sync_existing(&mut self, _found: &Observation) -> Result<(), Failure> {
        Ok(())
    }

    /// Syncs items that have waited until the source was gone.
    async fn source_deleted(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Removes this job's mark that this version was copied.
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
            // There may be no later delivery that syncs its items.
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

/// Rules of a relocation that depend on the kind of place.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TargetRules {
    /// `restore` can read the entity from here. Only then does the copy have an archive time, because a log line that
    /// is written twice must be the same twice.
    pub(crate) is_restorable: bool,
    /// Every version that was ever written stays. So no copy is marked as shared by two runs, or taken back, and its
    /// record is deleted with the source.
    pub(crate) keeps_every_version: bool,
    /// Another entity there makes the job fail. (In an archive, the newer entity replaces the older one.)
    pub(crate) rejects_others: bool,
}

pub(crate) struct CopyContent {
    pub(crate) entity: Entity,
    /// The data key that encrypts it, if that is the first key of its place.
    pub(crate) first_key: Option<FirstKey>,
}

/// A place from which `restore` brings an entity back, and from which `erase` deletes it.
#[async_trait]
pub(crate) trait RestoreSource: EntityStore {
    /// Whether views or clients may write to it without changing which version it is a copy of.
    fn is_written_on(&self) -> bool {
        false
    }

    async fn bring_back(
        &self,
        source: &mut Reconciler<'_>,
        entity: Entity,
    ) -> Result<Entity, Failure>;

    /// From now on, also reads rows of a wide entity that have lost their first row.
    fn read_leftovers(&mut self) {}

    /// Deletes such rows as they were found. Returns `Closed` if there are none.
    async fn delete_leftovers(&mut self, _found: &Observation) -> Result<Commit, Failure> {
        Ok(Commit::Closed)
    }

    /// Large values that remain after their primary is gone, and when a recheck deletes them.
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

/// The place from which `restore` brings an entity back; `None` for a log.
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

/// The row of an archive, or the document with large values; `None` for a document without any.
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

/// The primary itself, for `erase`: with a look at every item.
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
