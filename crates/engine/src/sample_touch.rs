//! `sample_touch`: the pass, with a look at every item. A sample, of builds for tests alone.

use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use super::jobs::RunJob;
use super::reconciler::PassOptions;
use evenkeel_model::job::{Looks, TouchJob};

impl RunJob for TouchJob {
    async fn run(&self, engine: &Engine, delivery: &Delivery) -> Result<Outcome, Failure> {
        let options = PassOptions {
            looks: Looks::Everything,
            ..PassOptions::default()
        };
        let reconciler = engine.pass_with(&self.primary, Some(delivery), options)?;
        reconciler.reconcile().await.map(Outcome::Done)
    }
}
