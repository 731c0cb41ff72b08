//! `sync`: one pass over a primary.

use crate::execute::{Delivery, Failure, Outcome};
use crate::jobs::RunJob;
use crate::jobs::context::JobContext;
use crate::protocol::run::passes::pass_with;
use crate::protocol::scope::PassOptions;
use evenkeel_model::job::SyncJob;

impl RunJob for SyncJob {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let options = PassOptions {
            reads: self.reads,
            ..PassOptions::default()
        };
        let reconciler = pass_with(&cx.env, &self.primary, Some(delivery), options)?;
        reconciler.reconcile().await.map(Outcome::Done)
    }
}
