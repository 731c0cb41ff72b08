//! `archive`: relocates a primary to its archive under the same key. The archive is a table, a container, a shared
//! folder or a log.

use crate::execute::{Delivery, Failure, Outcome};
use crate::jobs::RunJob;
use crate::jobs::context::JobContext;
use crate::jobs::relocation::Relocation;
use crate::jobs::relocation::target;
use crate::protocol::run::passes::pass;
use evenkeel_model::job::{ArchiveJob, Primary};

impl RunJob for ArchiveJob {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let archive = cx.env.archive(&self.archive)?;
        let source = pass(
            &cx.env,
            &Primary {
                table: archive.source.table.clone(),
                key: self.key.clone(),
            },
            delivery,
        )?;
        let kept = target::in_archive(cx, archive, &self.key, delivery)?;
        let when =
            cx.env
                .condition_at(&archive.source, self.when.as_ref(), delivery.stamp.enqueued)?;
        Relocation::new(cx, delivery, source, kept, self.key.clone())
            .while_it_satisfies(when)
            .run(self.if_match.as_ref())
            .await
    }
}
