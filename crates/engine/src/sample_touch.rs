//! `sample_touch`: the pass, with a look at every item. A sample, of builds for tests alone.

use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use super::jobs::RunJob;
use evenkeel_model::job::{Looks, TouchJob};

impl RunJob for TouchJob {
    async fn run(&self, engine: &Engine, delivery: &Delivery) -> Result<Outcome, Failure> {
        let mut reconciler = engine.pass_over(&self.primary, Some(delivery))?;
        reconciler.pass.looks = Looks::Everything;
        reconciler.reconcile().await.map(Outcome::Done)
    }
}
