//! `sync`: the pass alone.

use super::context::JobContext;
use super::execute::{Delivery, Failure, Outcome};
use super::jobs::RunJob;
use super::passes::pass_with;
use super::scope::PassOptions;
use evenkeel_model::job::SyncJob;

impl RunJob for SyncJob {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let options = PassOptions {
            looks: self.looks,
            ..PassOptions::default()
        };
        let reconciler = pass_with(&cx.env, &self.primary, Some(delivery), options)?;
        reconciler.reconcile().await.map(Outcome::Done)
    }
}
