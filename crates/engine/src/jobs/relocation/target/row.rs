//! A row of an archive, a document with large values, or the primary that `erase` deletes. Its items are synced before
//! the source is deleted.

use async_trait::async_trait;

use crate::execute::{Failure, Summary};
use crate::items::value::{ValueOrigin, origin};
use crate::jobs::content::vouched;
use crate::jobs::marks;
use crate::jobs::relocation::target::EntityStore;
use crate::jobs::relocation::target::RelocationTarget;
use crate::jobs::relocation::target::RestoreSource;
use crate::jobs::relocation::target::TargetRules;
use crate::jobs::values_left::{ValuesLeft, values_left};
use crate::protocol::change::{Change, Commit};
use crate::protocol::observe::Observation;
use crate::protocol::primary;
use crate::protocol::queueing::queue_whole_recheck;
use crate::protocol::run::reconciler::Reconciler;
use evenkeel_model::Entity;
use evenkeel_model::catalog::TableRef;
use evenkeel_model::item::SOURCE_SHARED;
use evenkeel_model::job::Primary;

pub(super) struct EntityRow<'e>(pub(super) Reconciler<'e>);

#[async_trait]
impl EntityStore for EntityRow<'_> {
    fn primary(&self) -> Option<&Primary> {
        Some(&self.0.scope().primary)
    }

    fn table(&self) -> Option<&TableRef> {
        Some(self.0.scope().source)
    }

    async fn next_round(&mut self) -> Result<(), Failure> {
        self.0.next_round().await
    }

    async fn observe(&mut self) -> Result<Observation, Failure> {
        self.0.observe().await
    }

    async fn commit(&mut self, found: &Observation, change: &Change) -> Result<Commit, Failure> {
        self.0.commit(found, change).await
    }

    async fn settle(&mut self) -> Result<(), Failure> {
        self.0.settle().await
    }

    async fn settle_from(&mut self, found: &Observation) -> Result<(), Failure> {
        self.0.settle_from(found).await
    }

    fn take_summary(&mut self) -> Summary {
        self.0.take_summary()
    }
}

#[async_trait]
impl RelocationTarget for EntityRow<'_> {
    fn rules(&self) -> TargetRules {
        TargetRules {
            is_restorable: true,
            ..TargetRules::default()
        }
    }

    fn is_read_first(&self) -> bool {
        self.0.scope().has_views()
    }

    async fn take_in(
        &mut self,
        from: Option<&ValueOrigin>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        self.0.take_in(from, entity).await
    }

    fn prepare(&self, change: Change, found: &Observation) -> Result<Change, Failure> {
        fitted(&self.0, vouched(change), found)
    }

    async fn sync_existing(&mut self, found: &Observation) -> Result<(), Failure> {
        self.0.settle_from(found).await
    }

    async fn queue_whole_recheck(&self) -> Result<(), Failure> {
        queue_whole_recheck(self.0.scope(), None).await
    }

    fn may_have_written(&self) -> bool {
        self.0.may_have_written()
    }
}

#[async_trait]
impl RestoreSource for EntityRow<'_> {
    fn is_written_on(&self) -> bool {
        true
    }

    async fn bring_back(
        &self,
        source: &mut Reconciler<'_>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        source
            .take_in(origin(self.0.scope()).as_ref(), entity)
            .await
    }

    fn read_leftovers(&mut self) {
        self.0.rows_may_be_left();
    }

    async fn delete_leftovers(&mut self, found: &Observation) -> Result<Commit, Failure> {
        primary::delete_leftovers(self.0.scope(), &found.rows).await
    }

    async fn values_left(&self) -> Result<Option<ValuesLeft>, Failure> {
        let scope = self.0.scope();
        values_left(scope).await
    }
}

/// Omits marks that do not fit into the row. Fails if the entity does not fit even without them. Space for
/// `SOURCE_SHARED` is reserved, because a redelivery may add this mark.
pub(super) fn fitted(
    run: &Reconciler<'_>,
    change: Change,
    found: &Observation,
) -> Result<Change, Failure> {
    let shared = [(SOURCE_SHARED.to_owned(), true.to_string())].into();
    let check = |change: &Change| {
        primary::check(
            run.scope(),
            &found.rows,
            &change.clone().with_texts(&shared),
        )
    };
    let fitted = marks::fitted(change, &marks::OF_COPIES, |change| check(change).is_ok());
    check(&fitted)?;
    Ok(fitted)
}
