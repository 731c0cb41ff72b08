//! The places of an entity: a row of an archive, a document, a line of a log, a row under another key.
//!
//! A relocation knows a place as a [`RelocationTarget`], `restore` and `erase` as something [`Kept`]. What differs between places is in
//! these traits alone.
//!
//! | | [`KeptRow`] | [`ArchiveDocument`] | [`EntityLine`] | [`MovedRow`] |
//! |---|---|---|---|---|
//! | read before the first write | if it has views | no | no | yes |
//! | its items are in step | before the source is deleted | it has none | it has none | when the source is gone |
//! | its large values are there | with it | none | none | before it |
//! | [`TargetRules`] | `gives_back` | `gives_back` | `has_every_version` | `bars_others` |

mod document;
mod log;
mod moved;
mod row;

use async_trait::async_trait;

use self::moved::MovedRow;
use self::row::KeptRow;
use crate::env::Env;
use crate::execute::{Delivery, Failure, Summary};
use crate::items::document::ArchiveDocument;
use crate::items::value::ValueOrigin;
use crate::jobs::context::JobContext;
use crate::jobs::log::EntityLine;
use crate::jobs::relocation::copy_decision::{Copy, is_shared};
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

/// A place where an entity is kept: read and written under its conditions, with items of its own or none.
#[async_trait]
pub(crate) trait EntityStore: Send + Sync {
    /// The primary, where it is one.
    fn primary(&self) -> Option<&Primary> {
        None
    }

    /// Its table, where it is in one.
    fn table(&self) -> Option<&TableRef> {
        None
    }

    /// Counts a round.
    async fn next_round(&mut self) -> Result<(), Failure>;

    /// Reads what is there.
    async fn observe(&mut self) -> Result<Observation, Failure>;

    /// Writes as `change` says, based on the observation.
    async fn commit(&mut self, found: &Observation, change: &Change) -> Result<Commit, Failure>;

    /// Brings its items in step.
    async fn settle(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// As [`settle`](Self::settle), from the given observation.
    async fn settle_from(&mut self, _found: &Observation) -> Result<(), Failure> {
        Ok(())
    }

    /// Changes made to its items.
    fn take_summary(&mut self) -> Summary {
        Summary::default()
    }
}

/// Where a relocation brings an entity.
#[async_trait]
pub(crate) trait RelocationTarget: EntityStore {
    /// The rules of its kind.
    fn rules(&self) -> TargetRules;

    /// Whether it has to be read before it is written: it has items, or what is there may forbid the write.
    fn is_read_first(&self) -> bool {
        false
    }

    /// Sets this version of the source as the next to copy.
    fn copies(&mut self, _source: &Row) {}

    /// Decides by what a place of this kind alone knows of its versions. `None` leaves it to the rules for all.
    fn judge(&self, _source: &Row, _found: Option<&Row>) -> Result<Option<Copy>, Failure> {
        Ok(None)
    }

    /// The part of a source that goes there, as it is to be read there.
    async fn taken_from(&self, _source: &Scope<'_>, row: &Row) -> Result<Taken, Failure> {
        Ok(Taken {
            entity: row.entity.clone(),
            first_key: None,
        })
    }

    /// Takes in an entity with its large values; a place without items keeps none.
    async fn take_in(
        &mut self,
        _from: Option<&ValueOrigin>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        Ok(entity)
    }

    /// The write of a new copy, as it fits there, with a stamp that vouches for its content where clients may change that by themselves.
    fn prepare(&self, change: Change, _found: &Observation) -> Result<Change, Failure> {
        Ok(change)
    }

    /// Brings the items of a copy that is there already in step before the source is deleted, where they do not wait for that.
    async fn keep_up(&mut self, _found: &Observation) -> Result<(), Failure> {
        Ok(())
    }

    /// Brings its items in step, now that the source is gone, where they have waited for that.
    async fn arrived(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes back the word of this job that this very version was copied.
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
            // There may be no next delivery that sees to its items.
            Commit::Committed | Commit::Lost | Commit::Unanswered => self.look_again().await,
        }
    }

    /// Queues a second look at its items.
    async fn look_again(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether this run has written a row that items are derived from, or may have.
    fn may_have_written(&self) -> bool {
        false
    }
}

/// Rules of a relocation that differ from one kind of place to another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TargetRules {
    /// `restore` can read the entity from here. Only then it has an archive time: a log line that is written twice must be the same twice.
    pub(crate) gives_back: bool,
    /// Every version stays that was ever written. So no copy is marked as that of two runs, or taken back; and a record of it goes with the source.
    pub(crate) has_every_version: bool,
    /// Another entity there bars the job. (An archive takes the newer in the place of the older.)
    pub(crate) bars_others: bool,
}

/// What a copy is made of.
pub(crate) struct Taken {
    /// The content.
    pub(crate) entity: Entity,
    /// The data key by which it is sealed, where that is the first of its place.
    pub(crate) first_key: Option<FirstKey>,
}

/// A place that `restore` brings an entity back from, and `erase` takes it out of.
#[async_trait]
pub(crate) trait Kept: EntityStore {
    /// Whether others may write on it without changing what it is a copy of: views, clients.
    fn is_written_on(&self) -> bool {
        false
    }

    /// The entity as it comes back, with its large values.
    async fn bring_back(
        &self,
        source: &mut Reconciler<'_>,
        entity: Entity,
    ) -> Result<Entity, Failure>;

    /// Reads from now on also rows of a wide entity that have lost their first.
    fn read_leftovers(&mut self) {}

    /// Deletes such rows, as they were found: `Closed` where there are none.
    async fn delete_leftovers(&mut self, _found: &Observation) -> Result<Commit, Failure> {
        Ok(Commit::Closed)
    }

    /// Large values that stay although their primary is gone, and by when they go.
    async fn values_left(&self) -> Result<Option<ValuesLeft>, Failure> {
        Ok(None)
    }
}

/// Where an archive has an entity.
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

/// Where an archive keeps an entity for `restore`; `None` for a log, which nothing comes back from.
pub(crate) fn kept_in<'e>(
    env: &'e Env,
    archive: &'e Archive,
    key: &EntityKey,
    delivery: &'e Delivery,
) -> Result<Option<Box<dyn Kept + 'e>>, Failure> {
    if let ArchiveTarget::Log(_) = archive.target {
        return Ok(None);
    }
    Ok(Some(match row_of(env, archive, key, delivery)? {
        Some(row) => Box::new(row),
        None => Box::new(ArchiveDocument::filed(env, archive, key)?),
    }))
}

/// The row of an archive, or the document with large values; `None` where it is a mere document.
fn row_of<'e>(
    env: &'e Env,
    archive: &'e Archive,
    key: &EntityKey,
    delivery: &'e Delivery,
) -> Result<Option<KeptRow<'e>>, Failure> {
    let at = |table: &TableRef| Primary {
        table: table.table.clone(),
        key: key.clone(),
    };
    if let Some(archived) = env.catalog.archived_values_of(&archive.name) {
        let run = pass_over(env, &at(&archived.table), Some(delivery))?;
        return Ok(Some(KeptRow(run)));
    }
    match &archive.target {
        ArchiveTarget::Table(target) => {
            let run = pass(env, &at(target), delivery)?;
            Ok(Some(KeptRow(run)))
        }
        ArchiveTarget::Blob(_) | ArchiveTarget::File(_) | ArchiveTarget::Log(_) => Ok(None),
    }
}

/// A primary itself, as an erasure takes it out: with a look at every item.
pub(crate) fn primary<'e>(
    env: &'e Env,
    primary: &Primary,
    delivery: &'e Delivery,
) -> Result<Box<dyn Kept + 'e>, Failure> {
    env.table(&primary.table)?;
    let options = PassOptions {
        looks: ItemReads::All,
        ..PassOptions::default()
    };
    let run = pass_with(env, primary, Some(delivery), options)?;
    Ok(Box::new(KeptRow(run)))
}

/// Where a `move` brings a primary.
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
