//! The place of an entity in a relocation or an erasure: a row or a document with items of its own, a row that moved, a mere document, a line of a log.

use super::change::{Change, Commit};
use super::document::ArchiveDocument;
use super::engine::Engine;
use super::execute::{Delivery, Failure, Summary};
use super::failure::permanent;
use super::footprint::{Entry, Footprint};
use super::log::EntityLine;
use super::look::Look;
use super::observation::Observation;
use super::primary;
use super::queueing::look_again;
use super::reconciler::Reconciler;
use super::steps::{Plan, Write};
use super::value::{PointerError, ValueOrigin};
use evenkeel_model::catalog::{Archive, ArchiveTarget, TableRef};
use evenkeel_model::job::Primary;
use evenkeel_model::{Entity, EntityKey};

/// The place that an entity goes to, comes back from, or is erased at.
pub(super) enum EntityPlace<'e> {
    /// A row of an archive, or a document with large values. Its items are in step before the source is deleted.
    Row(Reconciler<'e>),
    /// A row under another key. Its items follow when those of the source are gone.
    Moved(Reconciler<'e>),
    /// A document in a container or a folder, which nothing is derived from.
    Document(ArchiveDocument<'e>),
    /// A line of a log.
    Log(EntityLine<'e>),
}

impl<'e> EntityPlace<'e> {
    /// The place of an entity in an archive.
    pub(super) fn in_archive(
        engine: &'e Engine,
        archive: &'e Archive,
        key: &EntityKey,
        delivery: &'e Delivery,
    ) -> Result<Self, Failure> {
        if let Some(filing) = engine.catalog.filing_of(&archive.name) {
            let primary = Primary {
                table: filing.table.table.clone(),
                key: key.clone(),
            };
            return engine.pass_over(&primary, Some(delivery)).map(Self::Row);
        }
        Ok(match &archive.target {
            ArchiveTarget::Table(target) => Self::Row(engine.pass(
                &Primary {
                    table: target.table.clone(),
                    key: key.clone(),
                },
                delivery,
            )?),
            ArchiveTarget::Blob(target) => {
                Self::Document(ArchiveDocument::blob(engine, archive, target, key)?)
            }
            ArchiveTarget::File(target) => {
                Self::Document(ArchiveDocument::file(engine, archive, target, key)?)
            }
            ArchiveTarget::Log(target) => {
                Self::Log(EntityLine::new(engine, archive, target, key, delivery)?)
            }
        })
    }

    /// The primary, where it is one.
    pub(super) const fn primary(&self) -> Option<&Primary> {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => Some(&reconciler.scope().primary),
            Self::Document(_) | Self::Log(_) => None,
        }
    }

    /// Its table, where it is in one.
    pub(super) const fn table(&self) -> Option<&TableRef> {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => Some(reconciler.scope().source),
            Self::Document(_) | Self::Log(_) => None,
        }
    }

    /// Takes in an entity with its large values; a target without items keeps none.
    pub(super) async fn take_in(
        &mut self,
        from: Option<&ValueOrigin>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => {
                reconciler.take_in(from, entity).await
            }
            Self::Document(_) | Self::Log(_) => Ok(entity),
        }
    }

    /// Whether `restore` can read the entity from here. Only then it has an archive time: a log line that is written twice must be the same twice.
    pub(super) const fn gives_back(&self) -> bool {
        match self {
            Self::Row(_) | Self::Document(_) => true,
            Self::Moved(_) | Self::Log(_) => false,
        }
    }

    /// Whether it has to be read before it is written: it has items, or the existing target may forbid the write.
    pub(super) fn is_read_first(&self) -> bool {
        match self {
            Self::Row(reconciler) => reconciler.scope().has_views(),
            Self::Moved(_) => true,
            Self::Document(_) | Self::Log(_) => false,
        }
    }

    /// Counts a round.
    pub(super) async fn next_round(&mut self) -> Result<(), Failure> {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => reconciler.next_round().await,
            Self::Document(document) => document.next_round(),
            // Nothing comes back from a log.
            Self::Log(_) => Ok(()),
        }
    }

    /// Reads the existing target.
    pub(super) async fn observe(&mut self) -> Result<Observation, Failure> {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => reconciler.observe().await,
            Self::Document(document) => Ok(Observation {
                row: document.read().await?,
                ..Observation::blank()
            }),
            Self::Log(log) => log.observe().await,
        }
    }

    /// Reads from now on also rows of a wide entity that have lost their first.
    pub(super) const fn read_leftovers(&mut self) {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => {
                reconciler.rows_may_be_left();
            }
            Self::Document(_) | Self::Log(_) => {}
        }
    }

    /// Deletes such rows, as they were found: `Closed` where there are none.
    pub(super) async fn delete_leftovers(
        &mut self,
        found: &Observation,
    ) -> Result<Commit, Failure> {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => {
                primary::delete_leftovers(reconciler.scope(), &found.rows).await
            }
            Self::Document(_) | Self::Log(_) => Ok(Commit::Closed),
        }
    }

    /// Writes as `change` says, based on the observation.
    pub(super) async fn commit(
        &mut self,
        found: &Observation,
        change: &Change,
    ) -> Result<Commit, Failure> {
        match self {
            Self::Row(reconciler) => reconciler.commit(found, change).await,
            // Its items follow, and the claims of others on it, when the source is gone; its large values are there before it.
            Self::Moved(reconciler) => {
                let Some(announced) = values_first(reconciler, found, change.result()).await?
                else {
                    return Ok(Commit::Lost);
                };
                match reconciler.write_alone(found, change).await? {
                    Commit::Closed | Commit::Committed => {
                        values_last(reconciler, announced).await?;
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
            Self::Row(reconciler) => reconciler.settle_from(found).await,
            Self::Moved(reconciler) => values_still(reconciler).await,
            Self::Document(_) | Self::Log(_) => Ok(()),
        }
    }

    /// Brings its items in step, now that the source is gone, where they have waited for that.
    pub(super) async fn arrived(&mut self) -> Result<(), Failure> {
        match self {
            Self::Moved(reconciler) => reconciler.settle().await,
            Self::Log(log) => log.arrived().await,
            Self::Row(_) | Self::Document(_) => Ok(()),
        }
    }

    /// Brings its items in step.
    pub(super) async fn settle(&mut self) -> Result<(), Failure> {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => reconciler.settle().await,
            Self::Document(_) | Self::Log(_) => Ok(()),
        }
    }

    /// As [`settle`](Self::settle), from the given observation.
    pub(super) async fn settle_from(&mut self, found: &Observation) -> Result<(), Failure> {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => reconciler.settle_from(found).await,
            Self::Document(_) | Self::Log(_) => Ok(()),
        }
    }

    /// Whether this run has written a row that items are derived from, or may have.
    pub(super) const fn may_have_written(&self) -> bool {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => reconciler.may_have_written(),
            // No items are derived from these.
            Self::Document(_) | Self::Log(_) => false,
        }
    }

    /// Queues a second look at its items.
    pub(super) async fn look_again(&self) -> Result<(), Failure> {
        match self {
            Self::Row(reconciler) | Self::Moved(reconciler) => {
                look_again(reconciler.scope(), None).await
            }
            Self::Document(_) | Self::Log(_) => Ok(()),
        }
    }

    /// Changes made to its items.
    pub(super) fn into_summary(self) -> Option<Summary> {
        match self {
            Self::Row(mut reconciler) | Self::Moved(mut reconciler) => {
                Some(reconciler.take_summary())
            }
            Self::Document(_) | Self::Log(_) => None,
        }
    }
}

/// A footprint that lists large values which were copied before their row; nothing where there are none.
struct ValuesAnnounced(Option<Footprint>);

/// Copies the large values of an entity that moves here, before its row is written: they are listed in the footprint, and
/// everything else that follows from the row waits until the source has let go. `None` where a race was lost.
async fn values_first(
    reconciler: &mut Reconciler<'_>,
    seen: &Observation,
    entity: Option<&Entity>,
) -> Result<Option<ValuesAnnounced>, Failure> {
    if !reconciler.brings_values() {
        return Ok(Some(ValuesAnnounced(None)));
    }
    let mut announce = seen.footprint.clone();
    let mut writes = Vec::new();
    for (address, item) in reconciler.scope().derive(entity)?.items {
        if !reconciler.brings(&address) {
            continue;
        }
        let over = match seen.looks.get(&address) {
            Some(Look::Ours(etag)) => Some(etag.clone()),
            Some(Look::Taken { .. }) => {
                return Err(permanent(
                    format!("writing the primary {}", reconciler.scope().primary),
                    PointerError::Taken(address.site),
                ));
            }
            Some(Look::Absent | Look::Homeless | Look::Unsure | Look::Says(_)) | None => None,
        };
        announce.items.insert(
            address.clone(),
            Entry {
                generation: item.generation,
                etag: over.clone(),
                changing: true,
            },
        );
        writes.push(Write::of(address, item, over));
    }
    let plan = Plan {
        announce: Some(announce.clone()),
        writes,
        ..Plan::nothing()
    };
    if reconciler.announce(seen, &plan).await?.is_none() {
        return Ok(None);
    }
    let uploaded = reconciler.upload(&plan).await?;
    Ok(uploaded.then_some(ValuesAnnounced(Some(announce))))
}

/// Makes sure that the large values are still there, now that the row is written and points to them, and before
/// their source goes. A pass that looked before the row was there, and meant to drop them, has announced it, or now
/// can no longer.
async fn values_last(
    reconciler: &mut Reconciler<'_>,
    ValuesAnnounced(mut announced): ValuesAnnounced,
) -> Result<(), Failure> {
    while let Some(footprint) = &announced {
        if reconciler.announce_again(footprint).await? {
            return Ok(());
        }
        announced = values_again(reconciler).await?;
    }
    Ok(())
}

/// As [`values_last`], for a row that an earlier delivery has written.
async fn values_still(reconciler: &mut Reconciler<'_>) -> Result<(), Failure> {
    if !reconciler.brings_values() {
        return Ok(());
    }
    let announced = values_again(reconciler).await?;
    values_last(reconciler, ValuesAnnounced(announced)).await
}

/// Copies missing values again. `None` where the row is gone, or points to other values.
async fn values_again(reconciler: &mut Reconciler<'_>) -> Result<Option<Footprint>, Failure> {
    loop {
        reconciler.next_round().await?;
        let seen = reconciler.observe().await?;
        let Some(row) = &seen.row else {
            return Ok(None);
        };
        if let Some(ValuesAnnounced(footprint)) =
            values_first(reconciler, &seen, Some(&row.entity)).await?
        {
            return Ok(footprint);
        }
    }
}
