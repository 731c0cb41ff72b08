//! An archive document in a container or a folder. No items are derived from it.

use async_trait::async_trait;

use crate::execute::Failure;
use crate::items::document::ArchiveDocument;
use crate::jobs::relocation::target::EntityStore;
use crate::jobs::relocation::target::RelocationTarget;
use crate::jobs::relocation::target::RestoreSource;
use crate::jobs::relocation::target::TargetRules;
use crate::protocol::change::{Change, Commit};
use crate::protocol::observe::Observation;
use crate::protocol::run::reconciler::Reconciler;
use evenkeel_model::Entity;

#[async_trait]
impl EntityStore for ArchiveDocument<'_> {
    async fn next_round(&mut self) -> Result<(), Failure> {
        self.count_round()
    }

    async fn observe(&mut self) -> Result<Observation, Failure> {
        Ok(Observation {
            primary: self.read().await?.into(),
            ..Observation::blank()
        })
    }

    async fn commit(&mut self, _found: &Observation, change: &Change) -> Result<Commit, Failure> {
        self.write_or_delete(change).await
    }
}

impl RelocationTarget for ArchiveDocument<'_> {
    fn rules(&self) -> TargetRules {
        TargetRules {
            is_restorable: true,
            ..TargetRules::default()
        }
    }
}

#[async_trait]
impl RestoreSource for ArchiveDocument<'_> {
    async fn bring_back(
        &self,
        _source: &mut Reconciler<'_>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        self.refuse_values(&entity)?;
        Ok(entity)
    }
}
