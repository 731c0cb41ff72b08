//! `sync`: the pass alone.

use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use super::jobs::RunJob;
use super::reconciler::PassOptions;
use evenkeel_model::job::SyncJob;

impl RunJob for SyncJob {
    async fn run(&self, engine: &Engine, delivery: &Delivery) -> Result<Outcome, Failure> {
        let options = PassOptions {
            looks: self.looks,
            ..PassOptions::default()
        };
        let reconciler = engine.pass_with(&self.primary, Some(delivery), options)?;
        reconciler.reconcile().await.map(Outcome::Done)
    }
}
