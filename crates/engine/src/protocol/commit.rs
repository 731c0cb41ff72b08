//! Writes a primary, after its large values are uploaded. One entity group transaction writes the primary together with
//! the items in its partition.
//!
//! The transaction has the primary's ETag as its condition. If it succeeds, the pass knows the primary's present state
//! without another read.
//!
//! [`record_outcomes`] is also for passes that do not write the primary.

use std::collections::{BTreeMap, BTreeSet};

use crate::execute::{Failure, ItemChange};
use crate::failure::{first_of, permanent, storage};
use crate::items::document::Filed;
use crate::items::value::{PointerError, RunValues};
use crate::items::{self, ItemFailure, ItemOperation, WriteContext};
use crate::protocol::change::{Change, Commit, RoundOutcome};
use crate::protocol::conflicts;
use crate::protocol::group::{Group, ItemEffect, group};
use crate::protocol::observe::Observation;
use crate::protocol::plan_input::Presence;
use crate::protocol::primary;
use crate::protocol::scope::{Desired, Scope};
use crate::protocol::steps::Plan;
use crate::protocol::unanswered::UnansweredWrites;
use evenkeel_model::{ETag, ItemAddress, Site};
use evenkeel_storage::{ErrorClass, StoreError, TableOperation};

pub(crate) struct Committed {
    pub(crate) state: Presence,
    /// The items written with the primary or before it, each with its ETag or token.
    pub(crate) written: BTreeMap<ItemAddress, ETag>,
    pub(crate) rest: Plan,
}

pub(crate) struct RunState<'p> {
    pub(crate) unanswered: &'p mut UnansweredWrites,
    pub(crate) touched: &'p mut BTreeSet<ItemAddress>,
    pub(crate) changes: &'p mut Vec<ItemChange>,
}

pub(crate) struct PreparedChange<'c> {
    change: &'c Change,
    operations: Vec<TableOperation>,
}

impl<'c> PreparedChange<'c> {
    pub(crate) fn of(
        scope: &Scope<'_>,
        seen: &Observation,
        change: &'c Change,
    ) -> Result<Self, Failure> {
        let operations = primary::operations(scope, &seen.rows, change)?;
        Ok(Self { change, operations })
    }
}

/// Writes the primary, together with as many items of the announced plan as fit into its transaction. `values` has the
/// versions of the large values that were uploaded before. The inner `Err` has the outcome if the primary was not
/// written, or if the answer is missing.
pub(crate) async fn write(
    scope: &Scope<'_>,
    mut run: RunState<'_>,
    change: PreparedChange<'_>,
    plan: &Plan,
    values: BTreeMap<ItemAddress, ETag>,
) -> Result<Result<Committed, Commit>, Failure> {
    let uploaded: Vec<ItemAddress> = values.keys().cloned().collect();
    let ended = write_after_values(scope, &mut run, change, plan, values).await;
    if !matches!(ended, Ok(Ok(_))) {
        // The next round must look at the uploaded values. Another pass that looked before the upload may have removed
        // these values from the footprint.
        run.touched.extend(uploaded);
    }
    ended
}

async fn write_after_values(
    scope: &Scope<'_>,
    run: &mut RunState<'_>,
    PreparedChange { change, operations }: PreparedChange<'_>,
    plan: &Plan,
    mut written: BTreeMap<ItemAddress, ETag>,
) -> Result<Result<Committed, Commit>, Failure> {
    let group = match group(scope, operations, plan).await? {
        Ok(group) => group,
        Err(lost) => {
            run.touched.extend(lost);
            return Ok(Err(Commit::Lost));
        }
    };
    let etags = match &scope.document {
        Some(document) => match document.carry_out(change).await? {
            Filed::Done(etag) => vec![etag],
            Filed::Lost => return Ok(Err(Commit::Lost)),
            Filed::Unanswered => {
                run.unanswered.primary_unanswered();
                return Ok(Err(Commit::Unanswered));
            }
        },
        None => match primary::send(scope, &group.operations).await? {
            Ok(etags) => etags,
            Err(error) => return failed_transaction(scope, run, &group, error).map(Err),
        },
    };
    run.unanswered.primary_written();
    // The ETag of an entity's first row is the version of the entity.
    let state = etags
        .first()
        .cloned()
        .flatten()
        .map_or(Presence::Absent, |etag| Presence::Present(Some(etag)));
    for (done, etag) in group.effects.iter().zip(etags.into_iter().skip(group.own)) {
        for ItemEffect {
            address,
            change,
            token,
        } in done
        {
            run.changes.push(change.clone());
            let version = if address.part.is_some() { token } else { &etag };
            written.extend(version.clone().map(|version| (address.clone(), version)));
        }
    }
    let mut rest = plan.clone();
    rest.drops
        .retain(|(address, _)| !group.addresses().any(|done| done == address));
    Ok(Ok(Committed {
        state,
        written,
        rest,
    }))
}

/// Writes a primary that has no items, or whose items are written later.
pub(crate) async fn write_alone(
    scope: &Scope<'_>,
    unanswered: &mut UnansweredWrites,
    seen: &Observation,
    change: &Change,
) -> Result<Commit, Failure> {
    let operations = primary::operations(scope, &seen.rows, change)?;
    match primary::send(scope, &operations).await? {
        Ok(_) => {
            unanswered.primary_written();
            Ok(closed(scope, change))
        }
        Err(error) if error.is_lost_race() => {
            if error.index != Some(0) && operations.len() > 1 {
                unanswered.unlisted_row_found();
            }
            Ok(Commit::Lost)
        }
        Err(error) if error.class == ErrorClass::Ambiguous => {
            unanswered.primary_unanswered();
            Ok(Commit::Unanswered)
        }
        Err(error) => Err(storage(
            format!("writing the primary {}", scope.primary),
            error,
        )),
    }
}

/// The outcome of a write of the primary if all its items are in step. Range overlays are applied only to an entity
/// that exists. So if the table has range overlays, the written entity must still be reconciled.
pub(crate) fn closed(scope: &Scope<'_>, change: &Change) -> Commit {
    if scope.reads_overlays() && change.result().is_some() {
        Commit::Committed
    } else {
        Commit::Closed
    }
}

/// Uploads the values that the primary will point to, one after the other. Returns their versions, or `None` if a race
/// was lost.
pub(crate) async fn upload(
    scope: &Scope<'_>,
    values: &RunValues,
    run: &mut RunState<'_>,
    plan: &Plan,
) -> Result<Option<BTreeMap<ItemAddress, ETag>>, Failure> {
    let mut ended = Vec::new();
    for write in plan
        .writes
        .iter()
        .filter(|write| write.content.needs_supplied_content())
    {
        let operation = ItemOperation::Write(write);
        let outcome = items::apply(
            WriteContext {
                scope,
                values,
                unanswered: run.unanswered,
            },
            operation,
        )
        .await;
        let failed = matches!(outcome, Err(ItemFailure::Failed(_)));
        ended.push((operation, outcome));
        if failed {
            break;
        }
    }
    record_outcomes(ended, run)
}

/// Records the outcomes of operations on items. Returns the new versions of the written items, or `None` if a race was
/// lost.
pub(crate) fn record_outcomes(
    ended: Vec<items::OperationResult<'_>>,
    run: &mut RunState<'_>,
) -> Result<Option<BTreeMap<ItemAddress, ETag>>, Failure> {
    let (mut written, mut lost, mut failed) = (BTreeMap::new(), false, None);
    for (operation, outcome) in ended {
        match outcome {
            Ok(etag) => {
                run.changes.push(operation.done());
                written.extend(etag.map(|etag| (operation.address().clone(), etag)));
            }
            Err(ItemFailure::Lost { may_still_create }) => {
                lost = true;
                run.touched.insert(operation.address().clone());
                if may_still_create {
                    run.unanswered.item_unanswered();
                }
            }
            Err(ItemFailure::Failed(failure)) => failed = Some(first_of(failed, failure)),
        }
    }
    match failed {
        Some(failure) => Err(failure),
        None if lost => {
            run.touched.extend(written.into_keys());
            Ok(None)
        }
        None => Ok(Some(written)),
    }
}

/// Returns the outcome of the round if something blocks the write of the primary, otherwise `None`. An item that is
/// written before the primary or together with it blocks the write if another item holds its key. A large value to
/// which the primary would begin to point blocks the write if this run neither uploads the value nor has looked for it.
/// If this run has looked for the value and found none, the function fails.
pub(crate) fn blocked(
    scope: &Scope<'_>,
    seen: &Observation,
    plan: &Plan,
    desired: &Desired,
) -> Result<Option<RoundOutcome>, Failure> {
    let preceding = plan
        .taken
        .iter()
        .filter(|taken| scope.precedes_its_primary(&taken.address));
    let (freed, kept): (Vec<_>, Vec<_>) = preceding.partition(|taken| plan.frees(taken));
    if !kept.is_empty() {
        return Ok(Some(RoundOutcome::Refused(conflicts::failure(
            scope, plan, desired,
        ))));
    }
    if !freed.is_empty() {
        return Ok(Some(RoundOutcome::Obstructed));
    }
    let before: BTreeSet<Site> = seen
        .row()
        .iter()
        .flat_map(|row| scope.sites(&row.entity))
        .collect();
    let mut unseen = false;
    for address in plan.dangling(&before) {
        if seen.observed.contains_key(address) {
            let dangling = PointerError::Dangling(address.site.clone());
            return Err(permanent(
                format!("writing the primary {}", scope.primary),
                dangling,
            ));
        }
        unseen = true;
    }
    Ok(unseen.then_some(RoundOutcome::Ended(Commit::Lost)))
}

fn failed_transaction(
    scope: &Scope<'_>,
    run: &mut RunState<'_>,
    group: &Group<'_>,
    error: StoreError,
) -> Result<Commit, Failure> {
    if error.is_lost_race() {
        match error.index.map(|index| {
            (
                index,
                index
                    .checked_sub(group.own)
                    .and_then(|item| group.effects.get(item)),
            )
        }) {
            Some((0, _)) => {}
            Some((_, Some(effects))) => run
                .touched
                .extend(effects.iter().map(|done| done.address.clone())),
            Some((index, None)) if index < group.own => run.unanswered.unlisted_row_found(),
            // The store does not name the failed operation, so all items must be looked at.
            _ => {
                if group.own > 1 {
                    run.unanswered.unlisted_row_found();
                }
                run.touched.extend(group.addresses().cloned());
            }
        }
        return Ok(Commit::Lost);
    }
    if error.class == ErrorClass::Ambiguous {
        run.touched.extend(group.addresses().cloned());
        run.unanswered.primary_unanswered();
        return Ok(Commit::Unanswered);
    }
    Err(storage(
        format!(
            "writing the primary {} and its items in the same partition",
            scope.primary
        ),
        error,
    ))
}
