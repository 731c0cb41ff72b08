//! Rechecks. A pass queues a recheck in these cases:
//!
//! - It dropped something that an old insert may bring back.
//! - It wrote a document of a sink, and an old write may still overwrite the document.
//! - Another pass or an unanswered write disturbed it, so that an old write of the primary may still arrive.
//! - A write of its footprint got no answer, and the pass writes nothing after it.
//! - The primary is gone. Its empty footprint (a tombstone) stays until no running pass can have read the old state.
//!   The recheck then removes the tombstone.
//!
//! A job also queues a recheck if its message was delivered before and the job may have written nothing, or if the job
//! is given up (`jobs::queue_rechecks_of`). Some jobs queue one because an earlier delivery may still write
//! (`queue_whole_recheck`).

use jiff::Timestamp;

use crate::env::recheck_message::Recheck;
use crate::execute::{Delivery, Failure, FailureClass, Summary};
use crate::failure::storage;
use crate::protocol::conflicts;
use crate::protocol::footprint;
use crate::protocol::observe::Observation;
use crate::protocol::observed_item::{ObservedItem, has_forgettable};
use crate::protocol::queueing::{SERVED_MARGIN, queue_whole_recheck};
use crate::protocol::run::reconciler::Reconciler;
use crate::protocol::run::rounds::RoundStart;
use crate::protocol::scope::Scope;
use evenkeel_model::ETag;
use evenkeel_storage::{IfMatch, TableOperation};

/// Runs a recheck: looks at items again, and removes a tombstone that is old enough. A redelivered recheck that writes
/// nothing queues another recheck, unless its run has already queued one.
pub(crate) async fn run(
    mut reconciler: Reconciler<'_>,
    recheck: &Recheck,
    delivery: &Delivery,
) -> Result<Summary, Failure> {
    let looked = look(&mut reconciler).await;
    let taken = looked.as_ref().err().and_then(conflicts::digest);
    let may_have_written_nothing = match &looked {
        Ok(()) => reconciler.summary().changes.is_empty(),
        Err(failure) => failure.class == FailureClass::Permanent,
    };
    if may_have_written_nothing && delivery.dequeue_count > 1 && !reconciler.has_queued_a_recheck()
    {
        queue_whole_recheck(reconciler.scope(), taken.as_deref()).await?;
    }
    match looked {
        // The poison message of the job that queued this recheck already reports these taken keys.
        Err(_) if taken.is_some() && taken == recheck.taken_keys => Ok(reconciler.take_summary()),
        looked => looked.map(|()| reconciler.take_summary()),
    }
}

async fn look(reconciler: &mut Reconciler<'_>) -> Result<(), Failure> {
    loop {
        let seen = match reconciler.begin_round().await? {
            RoundStart::Observed(seen) => seen,
            RoundStart::NothingDerived => return Ok(()),
            RoundStart::Lost => continue,
        };
        let nothing_there = seen.row().is_none()
            && seen.observed.values().all(|look| {
                !matches!(
                    look,
                    ObservedItem::Owned(_) | ObservedItem::Indeterminate | ObservedItem::Content(_)
                )
            });
        if nothing_there
            && seen.footprint.items.is_empty()
            && !has_forgettable(
                &seen.footprint,
                &seen.observed,
                reconciler.scope().env.clock.now(),
            )
        {
            match &seen.etag {
                None => return Ok(()),
                // The `propagate` job that removes the last mark queues another recheck.
                Some(_)
                    if seen.footprint.settled == footprint::Settled::Absent
                        && !seen.footprint.propagations.is_empty() =>
                {
                    return Ok(());
                }
                Some(etag) if has_served(reconciler.scope(), &seen) => {
                    if remove_tombstone(reconciler.scope(), etag).await? {
                        return Ok(());
                    }
                    continue;
                }
                // The tombstone is younger than this recheck, so the pass that wrote it has queued another recheck.
                Some(_) if seen.footprint.settled == footprint::Settled::Absent => return Ok(()),
                Some(_) => {}
            }
        }
        // If a faster pass has overtaken this run, the run ends early. Another round of this run could make a write of
        // the faster pass fail. If this run has created an item, it goes on, because the faster pass may have looked
        // before the insert.
        if reconciler.closes(&seen).await?
            || (reconciler.gives_way() && !reconciler.summary().has_created())
        {
            return Ok(());
        }
    }
}

/// Whether a tombstone is old enough to be removed. It must have been written before this recheck was queued, or at
/// most `SERVED_MARGIN` later. The recheck became visible `recheck_after` and `SERVED_MARGIN` after it was queued. So
/// the tombstone is at least `recheck_after` old by the clocks of the services.
fn has_served(scope: &Scope<'_>, seen: &Observation) -> bool {
    let (Some(delivery), Some(written)) = (scope.delivery, seen.written) else {
        return false;
    };
    seen.footprint.settled == footprint::Settled::Absent
        && is_old_enough(delivery.stamp.enqueued, written.timestamp())
}

async fn remove_tombstone(scope: &Scope<'_>, etag: &ETag) -> Result<bool, Failure> {
    let operation = TableOperation::Delete(
        footprint::key(&scope.primary),
        IfMatch::Matches(etag.clone()),
    );
    match scope.tables()?.apply(&scope.footprints, &operation).await {
        Ok(_) => Ok(true),
        Err(error) if error.may_have_lost() => Ok(false),
        Err(error) => Err(storage(
            format!("removing the tombstone of {}", scope.primary),
            error,
        )),
    }
}

fn is_old_enough(queued: Timestamp, written: Timestamp) -> bool {
    queued
        .saturating_add(SERVED_MARGIN)
        .is_ok_and(|latest| written <= latest)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn only_the_recheck_queued_with_a_tombstone_removes_it() {
        let queued: Timestamp = "2026-11-20T15:00:00Z".parse().unwrap();
        let written = |seconds| queued + SignedDuration::from_secs(seconds);
        assert!(
            is_old_enough(queued, written(-5)),
            "written before the recheck was queued"
        );
        assert!(
            is_old_enough(queued, written(90)),
            "the close that follows the queueing"
        );
        for seconds in [91, 5 * 60, 28 * 60] {
            assert!(
                !is_old_enough(queued, written(seconds)),
                "written {seconds} s later: another recheck was queued with it"
            );
        }
    }
}
