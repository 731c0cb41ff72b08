//! `sample_touch`: one pass that reads every item. This is a sample operation for test builds only.

use crate::execute::{Delivery, Failure, Outcome};
use crate::jobs::RunJob;
use crate::jobs::context::JobContext;
use crate::protocol::run::passes::pass_with;
use crate::protocol::scope::PassOptions;
use evenkeel_model::job::{ItemReads, TouchJob};

impl RunJob for TouchJob {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let options = PassOptions {
            reads: ItemReads::All,
            ..PassOptions::default()
        };
        let reconciler = pass_with(&cx.env, &self.primary, Some(delivery), options)?;
        reconciler.reconcile().await.map(Outcome::Done)
    }
}
