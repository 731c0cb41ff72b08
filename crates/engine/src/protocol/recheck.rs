//! Rechecks. A pass queues one if
//!
//! - it dropped something that an old insert may bring back;
//! - it wrote a document of a sink, which an old write may still overwrite;
//! - another pass or an unanswered write disturbed it, so that an old write of the primary may still arrive;
//! - a write of its footprint got no answer, and the pass writes nothing after it;
//! - the primary is gone: its empty footprint (a tombstone) stays until no pass can still hold the old state, and a
//!   recheck removes it.
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
        // A run that has created an item goes on, because the faster pass may have looked before the insert. Any other
        // run gives way, because otherwise the faster pass's own write would fail.
        if reconciler.closes(&seen).await?
            || (reconciler.gives_way() && !reconciler.summary().has_created())
        {
            return Ok(());
        }
    }
}

/// Whether a tombstone was last written before this recheck was queued, or at most `SERVED_MARGIN` later. The tombstone
/// is then `recheck_after` old by the services' own clocks.
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
