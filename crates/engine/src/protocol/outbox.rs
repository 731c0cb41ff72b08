//! The messages that a pass queues before it closes the footprint. After a crash before the close, the next pass queues
//! them again, and duplicates do no harm. After the close no pass would know of them.

use std::collections::BTreeSet;

use crate::execute::Failure;
use crate::protocol::footprint::propagations::{self, OverlayRange};
use crate::protocol::queueing::{RecheckRequest, RunRechecks, queue_syncs};
use crate::protocol::scope::Scope;
use evenkeel_model::job::{ItemReads, Primary};
use evenkeel_model::propagation::PropagationMark;

#[derive(Default)]
pub(crate) struct Outbox {
    /// Ranges that need a `propagate` job, each with the mark that the job removes.
    pub(crate) propagations: Vec<(OverlayRange, Option<PropagationMark>)>,
    pub(crate) rechecks: Vec<RecheckRequest>,
    /// Contenders for keys that are free now.
    pub(crate) syncs: BTreeSet<Primary>,
    pub(crate) taken_keys: Option<String>,
}

impl Outbox {
    /// Queues `propagate` jobs, rechecks and syncs, in this order. A recheck is skipped if an earlier recheck in `queued`
    /// suffices.
    pub(crate) async fn send(
        self,
        scope: &Scope<'_>,
        queued: &mut RunRechecks,
    ) -> Result<(), Failure> {
        let Some(delivery) = scope.delivery else {
            return Ok(());
        };
        for (range, mark) in &self.propagations {
            propagations::queue(scope, range, mark.as_ref(), delivery).await?;
        }
        for request in &self.rechecks {
            queued
                .queue(scope, request, self.taken_keys.as_deref())
                .await?;
        }
        queue_syncs(scope.env, &self.syncs, ItemReads::All, delivery).await
    }
}
