//! A document in a container or a folder, which nothing is derived from.

use async_trait::async_trait;

use super::super::change::{Change, Commit};
use super::super::document::ArchiveDocument;
use super::super::execute::Failure;
use super::super::observation::Observation;
use super::super::reconciler::Reconciler;
use super::{EntityStore, Kept, RelocationTarget, TargetRules};
use evenkeel_model::Entity;

#[async_trait]
impl EntityStore for ArchiveDocument<'_> {
    async fn next_round(&mut self) -> Result<(), Failure> {
        self.count_round()
    }

    async fn observe(&mut self) -> Result<Observation, Failure> {
        Ok(Observation {
            row: self.read().await?,
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
            gives_back: true,
            ..TargetRules::default()
        }
    }
}

#[async_trait]
impl Kept for ArchiveDocument<'_> {
    async fn bring_back(
        &self,
        _source: &mut Reconciler<'_>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        self.refuse_values(&entity)?;
        Ok(entity)
    }
}
