//! A row under another key, the target of a `move`. Its large values are written before the row. Its other items, and
//! properties that range overlays set on the row, are written after the source is deleted. The reason is that a unique
//! key passes from the source to the row, and both must not hold it at once.

use async_trait::async_trait;

use crate::encryption::Encryption;
use crate::execute::{Failure, Summary};
use crate::failure::permanent;
use crate::items::value::{PointerError, ValueOrigin};
use crate::jobs::content::vouched;
use crate::jobs::relocation::target::CopyContent;
use crate::jobs::relocation::target::EntityStore;
use crate::jobs::relocation::target::RelocationTarget;
use crate::jobs::relocation::target::TargetRules;
use crate::jobs::relocation::target::row::fitted;
use crate::protocol::change::{Change, Commit};
use crate::protocol::footprint::{Entry, Footprint};
use crate::protocol::observe::Observation;
use crate::protocol::observed_item::ObservedItem;
use crate::protocol::queueing::queue_whole_recheck;
use crate::protocol::run::reconciler::Reconciler;
use crate::protocol::scope::Scope;
use crate::protocol::steps::{Plan, Write};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::Primary;
use evenkeel_model::{Entity, Row, shared};

pub(super) struct MovedRow<'e> {
    pub(super) run: Reconciler<'e>,
    pub(super) encryption: Encryption<'e>,
}

/// The footprint that lists the large values that were copied before the row was written. `None` if there are none.
struct ValuesAnnounced(Option<Footprint>);

#[async_trait]
impl EntityStore for MovedRow<'_> {
    fn primary(&self) -> Option<&Primary> {
        Some(&self.run.scope().primary)
    }

    fn table(&self) -> Option<&TableRef> {
        Some(self.run.scope().source)
    }

    async fn next_round(&mut self) -> Result<(), Failure> {
        self.run.next_round().await
    }

    async fn observe(&mut self) -> Result<Observation, Failure> {
        self.run.observe().await
    }

    async fn commit(&mut self, found: &Observation, change: &Change) -> Result<Commit, Failure> {
        let Some(announced) = self.values_first(found, change.result()).await? else {
            return Ok(Commit::Lost);
        };
        match self.run.write_alone(found, change).await? {
            Commit::Closed | Commit::Committed => {
                self.values_last(announced).await?;
                Ok(Commit::Closed)
            }
            ended @ (Commit::Lost | Commit::Unanswered) => Ok(ended),
        }
    }

    async fn settle(&mut self) -> Result<(), Failure> {
        self.run.settle().await
    }

    async fn settle_from(&mut self, found: &Observation) -> Result<(), Failure> {
        self.run.settle_from(found).await
    }

    fn take_summary(&mut self) -> Summary {
        self.run.take_summary()
    }
}

#[async_trait]
impl RelocationTarget for MovedRow<'_> {
    fn rules(&self) -> TargetRules {
        TargetRules {
            rejects_others: true,
            ..TargetRules::default()
        }
    }

    fn is_read_first(&self) -> bool {
        true
    }

    /// Omits properties that views of other tables set under the old key, and encrypts values for the new key.
    async fn content_for(&self, source: &Scope<'_>, row: &Row) -> Result<CopyContent, Failure> {
        let scope = self.run.scope();
        let (own, _) = shared::without_view_properties(row.entity.clone())
            .map_err(|error| permanent(format!("moving {}", source.primary), error))?;
        let encrypted = self
            .encryption
            .encrypted_for_move(
                source.source,
                &row.entity,
                scope.source,
                &scope.primary.key,
                own,
            )
            .await?;
        Ok(CopyContent {
            entity: encrypted.entity,
            first_key: encrypted.first,
        })
    }

    async fn take_in(
        &mut self,
        from: Option<&ValueOrigin>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        self.run.take_in(from, entity).await
    }

    fn prepare(&self, change: Change, found: &Observation) -> Result<Change, Failure> {
        fitted(&self.run, vouched(change), found)
    }

    /// Ensures that the large values exist, if an earlier delivery has written the row.
    async fn sync_existing(&mut self, _found: &Observation) -> Result<(), Failure> {
        if !self.run.brings_values() {
            return Ok(());
        }
        let announced = self.values_again().await?;
        self.values_last(ValuesAnnounced(announced)).await
    }

    async fn source_deleted(&mut self) -> Result<(), Failure> {
        self.run.settle().await
    }

    async fn queue_whole_recheck(&self) -> Result<(), Failure> {
        queue_whole_recheck(self.run.scope(), None).await
    }

    fn may_have_written(&self) -> bool {
        self.run.may_have_written()
    }
}

impl MovedRow<'_> {
    /// Copies the large values of the entity before its row is written, and lists them in the footprint. All other
    /// items wait until the source is deleted. `None` if a race was lost.
    async fn values_first(
        &mut self,
        seen: &Observation,
        entity: Option<&Entity>,
    ) -> Result<Option<ValuesAnnounced>, Failure> {
        let run = &mut self.run;
        if !run.brings_values() {
            return Ok(Some(ValuesAnnounced(None)));
        }
        let mut announce = seen.footprint.clone();
        let mut writes = Vec::new();
        for (address, item) in run.scope().derive(entity)?.items {
            if !run.brings(&address) {
                continue;
            }
            let over = match seen.observed.get(&address) {
                Some(ObservedItem::Owned(etag)) => Some(etag.clone()),
                Some(ObservedItem::Foreign { .. }) => {
                    return Err(permanent(
                        format!("writing the primary {}", run.scope().primary),
                        PointerError::Taken(address.site),
                    ));
                }
                Some(
                    ObservedItem::Absent
                    | ObservedItem::NoParent
                    | ObservedItem::Indeterminate
                    | ObservedItem::Content(_),
                )
                | None => None,
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
        if run.announce(seen, &plan).await?.is_none() {
            return Ok(None);
        }
        let uploaded = run.upload(&plan).await?;
        Ok(uploaded.then_some(ValuesAnnounced(Some(announce))))
    }

    /// Ensures that the large values still exist. The row points to them now, and the source is deleted next. A pass
    /// that observed the primary before the row existed may want to delete the values. If the pass has already
    /// announced the deletion, `announce_again` fails, and the values are copied again. Otherwise, `announce_again`
    /// changes the ETag of the footprint, so that the pass can no longer announce the deletion.
    async fn values_last(
        &mut self,
        ValuesAnnounced(mut announced): ValuesAnnounced,
    ) -> Result<(), Failure> {
        while let Some(footprint) = &announced {
            if self.run.announce_again(footprint).await? {
                return Ok(());
            }
            announced = self.values_again().await?;
        }
        Ok(())
    }

    /// Copies missing values again. `None` if the row is gone, or if it points to other values.
    async fn values_again(&mut self) -> Result<Option<Footprint>, Failure> {
        loop {
            self.run.next_round().await?;
            let seen = self.run.observe().await?;
            let Some(row) = seen.row() else {
                return Ok(None);
            };
            if let Some(ValuesAnnounced(footprint)) =
                self.values_first(&seen, Some(&row.entity)).await?
            {
                return Ok(footprint);
            }
        }
    }
}
