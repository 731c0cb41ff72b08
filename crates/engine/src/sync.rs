//! `sync`: the pass alone.

use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use super::jobs::RunJob;
use evenkeel_model::job::SyncJob;

impl RunJob for SyncJob {
    async fn run(&self, engine: &Engine, delivery: &Delivery) -> Result<Outcome, Failure> {
        let mut reconciler = engine.pass_over(&self.primary, Some(delivery))?;
        reconciler.pass.looks = self.looks;
        reconciler.reconcile().await.map(Outcome::Done)
    }
}
