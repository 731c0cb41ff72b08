//! Where a relocated entity is kept: a row or a document with items of its own, a row that moved, a mere document, a line of a log.

use super::commit::{Change, Commit};
use super::document::Document;
use super::engine::Engine;
use super::execute::{Delivery, Failure, Summary};
use super::log::Log;
use super::observation::Observation;
use super::pass::Pass;
use super::value::Origin;
use crate::catalog::{Archive, ArchiveTarget};
use crate::model::job::Primary;
use crate::model::{Entity, EntityKey};

/// The place that an entity goes to, or comes back from.
pub(super) enum Kept<'e> {
    /// A row of an archive, or a document with large values. Its items are in step before the source is deleted.
    Row(Pass<'e>),
    /// A row under another key. Its items follow when those of the source are gone.
    Moved(Pass<'e>),
    /// A document in a container or a folder, which nothing is derived from.
    Document(Document<'e>),
    /// A line of a log.
    Log(Log<'e>),
}

impl<'e> Kept<'e> {
    /// The place of an entity in an archive.
    pub(super) fn in_archive(engine: &'e Engine, archive: &'e Archive, key: &EntityKey, delivery: &'e Delivery) -> Result<Self, Failure> {
        if let Some(filing) = engine.catalog.filing_of(&archive.name) {
            let primary = Primary { table: filing.table.table.clone(), key: key.clone() };
            return engine.pass_over(&primary, Some(delivery)).map(Self::Row);
        }
        Ok(match &archive.target {
            ArchiveTarget::Table(target) => Self::Row(engine.pass(&Primary { table: target.table.clone(), key: key.clone() }, delivery)?),
            ArchiveTarget::Blob(target) => Self::Document(Document::blob(engine, archive, target, key)?),
            ArchiveTarget::File(target) => Self::Document(Document::file(engine, archive, target, key)?),
            ArchiveTarget::Log(target) => Self::Log(Log::new(engine, archive, target, key, delivery)?),
        })
    }

    /// The primary, where it is one.
    pub(super) const fn primary(&self) -> Option<&Primary> {
        match self {
            Self::Row(pass) | Self::Moved(pass) => Some(&pass.primary),
            Self::Document(_) | Self::Log(_) => None,
        }
    }

    /// Takes in an entity with its large values; a target without items keeps none.
    pub(super) async fn take_in(&mut self, from: Option<&Origin>, entity: Entity) -> Result<Entity, Failure> {
        match self {
            Self::Row(pass) | Self::Moved(pass) => pass.take_in(from, entity).await,
            Self::Document(_) | Self::Log(_) => Ok(entity),
        }
    }

    /// Whether the kept entity has its archive time. (A line that is written twice has to be the same twice.)
    pub(super) const fn is_dated(&self) -> bool {
        match self {
            Self::Row(_) | Self::Document(_) => true,
            Self::Moved(_) | Self::Log(_) => false,
        }
    }

    /// Whether it has to be read before it is written: it has items, or the existing target may forbid the write.
    pub(super) fn is_read_first(&self) -> bool {
        match self {
            Self::Row(pass) => pass.has_views(),
            Self::Moved(_) => true,
            Self::Document(_) | Self::Log(_) => false,
        }
    }

    /// Counts a round.
    pub(super) fn next_round(&mut self) -> Result<(), Failure> {
        match self {
            Self::Row(pass) | Self::Moved(pass) => pass.next_round(),
            Self::Document(document) => document.next_round(),
            // Nothing comes back from a log.
            Self::Log(_) => Ok(()),
        }
    }

    /// Reads the existing target.
    pub(super) async fn observe(&mut self) -> Result<Observation, Failure> {
        match self {
            Self::Row(pass) | Self::Moved(pass) => pass.observe().await,
            Self::Document(document) => document.observe().await,
            Self::Log(log) => log.observe().await,
        }
    }

    /// Writes as `change` says, based on the observation.
    pub(super) async fn commit(&mut self, found: &Observation, change: &Change) -> Result<Commit, Failure> {
        match self {
            Self::Row(pass) => pass.commit(found, change).await,
            // Its items follow, and the claims of others on it, when the source is gone; its large values are there before it.
            Self::Moved(pass) => {
                let Some(announced) = pass.values_first(found, change.result()).await? else { return Ok(Commit::Lost) };
                match pass.commit_alone(found, change).await? {
                    Commit::Closed | Commit::Committed => {
                        pass.values_last(announced).await?;
                        Ok(Commit::Closed)
                    }
                    ended @ (Commit::Lost | Commit::Unanswered) => Ok(ended),
                }
            }
            Self::Document(document) => document.commit(change).await,
            Self::Log(log) => log.commit(change).await,
        }
    }

    /// Brings its items in step before the source is deleted, where they do not wait for that.
    pub(super) async fn keep_up(&mut self, found: &Observation) -> Result<(), Failure> {
        match self {
            Self::Row(pass) => pass.settle_from(found).await,
            Self::Moved(pass) => pass.values_still().await,
            Self::Document(_) | Self::Log(_) => Ok(()),
        }
    }

    /// Brings its items in step, now that the source is gone, where they have waited for that.
    pub(super) async fn arrived(&mut self) -> Result<(), Failure> {
        match self {
            Self::Moved(pass) => pass.settle().await,
            Self::Log(log) => log.arrived().await,
            Self::Row(_) | Self::Document(_) => Ok(()),
        }
    }

    /// Brings its items in step.
    pub(super) async fn settle(&mut self) -> Result<(), Failure> {
        match self {
            Self::Row(pass) | Self::Moved(pass) => pass.settle().await,
            Self::Document(_) | Self::Log(_) => Ok(()),
        }
    }

    /// As [`settle`](Self::settle), from the given observation.
    pub(super) async fn settle_from(&mut self, found: &Observation) -> Result<(), Failure> {
        match self {
            Self::Row(pass) | Self::Moved(pass) => pass.settle_from(found).await,
            Self::Document(_) | Self::Log(_) => Ok(()),
        }
    }

    /// Whether this run has written a row that items are derived from, or may have.
    pub(super) const fn may_have_written(&self) -> bool {
        match self {
            Self::Row(pass) | Self::Moved(pass) => pass.may_have_written,
            // No items are derived from these.
            Self::Document(_) | Self::Log(_) => false,
        }
    }

    /// Queues a second look at its items.
    pub(super) async fn look_again(&self) -> Result<(), Failure> {
        match self {
            Self::Row(pass) | Self::Moved(pass) => pass.look_again().await,
            Self::Document(_) | Self::Log(_) => Ok(()),
        }
    }

    /// Changes made to its items.
    pub(super) fn into_summary(self) -> Option<Summary> {
        match self {
            Self::Row(pass) | Self::Moved(pass) => Some(pass.summary),
            Self::Document(_) | Self::Log(_) => None,
        }
    }
}
