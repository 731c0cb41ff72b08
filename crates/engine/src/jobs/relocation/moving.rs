//! `move`: relocates a primary to another key, partition or table. All items that views derive from it are updated.
//!
//! The target row is first written without its items. A unique key (such as an e-mail address) passes from the source
//! to the target, and both must not claim it at once. So the items of the source are deleted before the items of the
//! target are written.

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
