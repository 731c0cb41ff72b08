//! A line of a log, as the target of an `archive` job. Lines are never restored or removed.

use async_trait::async_trait;

use crate::execute::Failure;
use crate::jobs::log::EntityLine;
use crate::jobs::relocation::copy_decision::CopyDecision;
use crate::jobs::relocation::target::EntityStore;
use crate::jobs::relocation::target::RelocationTarget;
use crate::jobs::relocation::target::TargetRules;
use crate::protocol::change::{Change, Commit};
use crate::protocol::observe::Observation;
use evenkeel_model::Row;
use evenkeel_model::job::Stamp;

#[async_trait]
impl EntityStore for EntityLine<'_> {
    async fn next_round(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn observe(&mut self) -> Result<Observation, Failure> {
        self.find().await
    }

    async fn commit(&mut self, _found: &Observation, change: &Change) -> Result<Commit, Failure> {
        self.append(change).await
    }
}

#[async_trait]
impl RelocationTarget for EntityLine<'_> {
    fn rules(&self) -> TargetRules {
        TargetRules {
            keeps_every_version: true,
            ..TargetRules::default()
        }
    }

    fn set_copied(&mut self, source: &Row) {
        self.set_source(source);
    }

    fn judge(&self, source: &Row, found: Option<&Row>) -> Result<Option<CopyDecision>, Failure> {
        if Self::is_logged(source, found) {
            return Ok(Some(CopyDecision::Copied));
        }
        let skip = found.is_none() && self.may_be_recreated(source)?;
        Ok(skip.then(|| {
            CopyDecision::Skip(
                "the entity was written after this job was enqueued, so an earlier delivery may have logged the previous entity"
                    .to_owned(),
            )
        }))
    }

    async fn source_deleted(&mut self) -> Result<(), Failure> {
        self.forget_record().await
    }

    async fn reopen(&mut self, _job: &Stamp) -> Result<(), Failure> {
        self.reopen_record().await
    }
}
