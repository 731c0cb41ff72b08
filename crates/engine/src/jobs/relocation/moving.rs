//! `move`: relocates a primary to another key, partition or table. Every view follows.
//!
//! The target's row is written alone. Its items follow when the source has given up its own, so that a unique key (an
//! e-mail address) passes from one to the other, and is never wanted by both.

use crate::execute::{Delivery, Failure, Outcome};
use crate::jobs::RunJob;
use crate::jobs::context::JobContext;
use crate::jobs::relocation::Relocation;
use crate::jobs::relocation::target;
use crate::protocol::run::passes::pass;
use evenkeel_model::job::MoveJob;

impl RunJob for MoveJob {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        cx.env.refuse_view_tables(&self.primary.table)?;
        cx.env.refuse_view_tables(&self.to.table)?;
        let source = pass(&cx.env, &self.primary, delivery)?;
        let target = target::moved(cx, &self.to, delivery)?;
        Relocation::new(cx, delivery, source, target, self.to.key.clone())
            .run(None)
            .await
    }
}
