//! The plan of a pass, a pure function of its observation.
//!
//! A plan has the announcement, the items to write with their conditions, the items to drop, and the keys that other
//! primaries hold. The module `pass` carries out the plan, except in three cases:
//!
//! - `conflicts::resolve` asks for passes over holders first.
//! - `commit::blocked` refuses the write of the primary.
//! - `items::confirm` finds a change to an item that the plan leaves as it is.

use std::collections::BTreeSet;

use crate::protocol::actual::{Actual, place};
use crate::protocol::footprint::Entry;
use crate::protocol::footprint::propagations::overlay_range;
use crate::protocol::footprint::record;
use crate::protocol::observed_item::{ObservedItem, has_forgettable};
use crate::protocol::plan_input::{OutdatedCatalog, PlanInput};
use crate::protocol::steps::{KeyConflict, Plan, Write};
use evenkeel_model::catalog::{OnConflict, ViewStatus};
use evenkeel_model::patterns::Item;
use evenkeel_model::{ETag, ItemAddress};

#[derive(Debug)]
pub(crate) enum Decision {
    /// Nothing is to be done, not even a close.
    Settled,
    /// The pass must look at these items before it writes anything. The round begins anew.
    LookFirst(BTreeSet<ItemAddress>),
    Do(Box<Plan>),
}

/// Decides what a pass does. `requested` has the items that earlier rounds asked to look at. These items are not asked
/// for again. Otherwise the rounds would never end, because items of a newer catalog are never looked at. The
/// announcement has a new mark for each range that needs a `propagate` job.
pub(crate) fn decide(
    input: &PlanInput<'_>,
    requested: &BTreeSet<ItemAddress>,
    new_mark: impl FnMut() -> String,
) -> Result<Decision, OutdatedCatalog> {
    if input.is_derived_alone && !input.writes {
        return Ok(Decision::Settled);
    }
    let mut plan = plan(input)?;
    let has_other_work =
        input.writes || has_forgettable(input.footprint, input.observed, input.now);
    if plan.in_step && !has_other_work {
        return Ok(Decision::Settled);
    }
    let mut unseen = items_to_look_at(input, &plan);
    unseen.retain(|address| !requested.contains(address));
    Ok(if unseen.is_empty() {
        plan.mark_ranges(new_mark);
        Decision::Do(Box::new(plan))
    } else {
        Decision::LookFirst(unseen)
    })
}

fn items_to_look_at(input: &PlanInput<'_>, plan: &Plan) -> BTreeSet<ItemAddress> {
    let catalog = input.catalog;
    // Without a valid signature, rows and blobs in the footprint may belong to another primary.
    let unproven = input
        .footprint
        .signed_items()
        .map(|(address, _)| address.clone())
        .filter(|address| input.footprint.unproven && !input.observed.contains_key(address));
    // An old item of this same primary, under another view or of another kind, may hold a wanted key. The pass looks at
    // the old item first, and can then drop it even if the footprint does not list it.
    let own = plan.taken.iter().filter_map(|taken| {
        let owner = taken.owner.as_ref()?;
        let own = taken.address.obstacle(&owner.view);
        let is_known = || {
            let declared = catalog.declares(&own.view);
            catalog.generations.status(&own.view, 0, declared) != ViewStatus::Newer
        };
        (owner.primary == *input.primary && is_known()).then_some(own)
    });
    // A blob that this run does not upload must exist before a primary points to it.
    let pointed_to = plan
        .dangling(&input.pointed_to)
        .filter(|address| input.is_about_to_be() && !input.observed.contains_key(address))
        .cloned();
    unproven.chain(own).chain(pointed_to).collect()
}

pub(crate) fn plan(input: &PlanInput<'_>) -> Result<Plan, OutdatedCatalog> {
    let actual = Actual::of(input)?;
    let mut plan = Plan {
        disturbed: input.disturbed,
        ..Plan::nothing()
    };
    let same_state = actual.closed_at_this_state();
    let in_step = same_state && actual.nothing_differs();
    if in_step {
        plan.in_step = true;
        return Ok(plan);
    }
    write_wanted(&actual, &mut plan, same_state);
    drop_unwanted(&actual, &mut plan);

    let creates = plan
        .writes
        .iter()
        .any(|write| write.is_announced() || !actual.own.contains_key(&write.address));
    // If range overlays change, the announcement marks their ranges before the `propagate` jobs are queued.
    let changes_ranges = plan
        .changed()
        .any(|address| overlay_range(address).is_some());
    if creates
        || changes_ranges
        || !plan.drops.is_empty()
        || actual.changing
        || actual.has_differences
        || input.disturbed
    {
        record::announce(input, &mut plan);
    }
    Ok(plan)
}

fn write_wanted(actual: &Actual<'_>, plan: &mut Plan, same_state: bool) {
    let PlanInput {
        desired,
        supplied,
        observed,
        ..
    } = actual.input;
    for (address, item) in *desired {
        let write = |over| Write::of(address.clone(), item.clone(), over);
        if let Some((old, etag)) = actual.predecessor(address) {
            plan.writes.push(Write {
                replaces: Some(old),
                ..write(Some(etag))
            });
            continue;
        }
        let entry = actual.own.get(address).copied();
        match actual.look(address) {
            // Only a run that has the content can create the large value.
            ObservedItem::Absent
                if item.content.needs_supplied_content() && !supplied.contains_key(address) =>
            {
                plan.waiting.push(address.clone());
            }
            // At the last close, the entity for these properties did not exist. The properties are not announced until
            // the entity exists.
            ObservedItem::Absent
                if actual.has_waiting_properties()
                    && item.content.is_on_foreign_entity()
                    && !observed.contains_key(address) =>
            {
                plan.unseen.push(address.clone());
                plan.waiting.push(address.clone());
            }
            ObservedItem::Absent => plan.writes.push(write(None)),
            ObservedItem::NoParent => plan.waiting.push(address.clone()),
            ObservedItem::Owned(etag)
                if same_state
                    && is_unchanged(entry, &etag, item)
                    && !actual.input.is_overwritten(address) => {}
            ObservedItem::Owned(etag)
                if is_kept(entry, &etag, item) && !actual.input.is_overwritten(address) =>
            {
                if item.content.is_on_foreign_entity() && !observed.contains_key(address) {
                    plan.unseen.push(address.clone());
                }
            }
            ObservedItem::Owned(etag) => plan.writes.push(write(Some(etag))),
            ObservedItem::Indeterminate => plan.writes.push(write(actual.version(address))),
            ObservedItem::Content(found) => match entry {
                Some(entry)
                    if entry
                        .etag
                        .as_ref()
                        .is_some_and(|etag| is_kept(Some(entry), etag, item))
                        && item.matches(&found) => {}
                _ => plan.writes.push(write(Some(found.token()))),
            },
            ObservedItem::Foreign { etag, owner, list } => match (item.on_conflict, etag) {
                (OnConflict::LastWriter, Some(etag)) if owner.is_some() => {
                    plan.writes.push(Write {
                        evicts: owner.map(|owner| owner.primary),
                        ..write(Some(etag))
                    });
                }
                (OnConflict::LastWriter | OnConflict::Reject, _) => plan.taken.push(KeyConflict {
                    address: address.clone(),
                    owner,
                    list,
                }),
            },
        }
    }
}

fn drop_unwanted(actual: &Actual<'_>, plan: &mut Plan) {
    let PlanInput {
        observed,
        desired,
        underived,
        ..
    } = actual.input;
    let unlisted = observed
        .keys()
        .filter(|address| !actual.own.contains_key(address));
    let replaced: BTreeSet<ItemAddress> = plan
        .writes
        .iter()
        .filter_map(|write| write.replaces.clone())
        .collect();
    for address in actual
        .own
        .keys()
        .copied()
        .chain(unlisted)
        .filter(|address| !actual.stays(address))
    {
        let listed = actual.own.contains_key(address);
        if replaced.contains(address) {
            plan.forget.push(address.clone());
        } else if underived.contains_key(&address.view) {
            match observed.get(address) {
                Some(ObservedItem::Owned(etag)) => plan.kept.push((address.clone(), etag.clone())),
                Some(
                    ObservedItem::Absent | ObservedItem::NoParent | ObservedItem::Foreign { .. },
                ) if listed => {
                    plan.forget.push(address.clone());
                }
                // If the item was not looked at, or an old write may still change it, its entry stays as it is.
                Some(
                    ObservedItem::Absent
                    | ObservedItem::NoParent
                    | ObservedItem::Foreign { .. }
                    | ObservedItem::Indeterminate
                    | ObservedItem::Content(_),
                )
                | None => {}
            }
        } else if !address.site.is_conditional() {
            // A document of a sink has no ETag. If another wanted item has the same key, its write replaces the
            // document. Otherwise the document is deleted without a condition. It is deleted even if it was not found,
            // because an old write may have arrived since.
            if !desired.keys().any(|other| place(other) == place(address)) {
                plan.drops.push((
                    address.clone(),
                    actual.version(address).unwrap_or_else(|| ETag::token(0)),
                ));
            } else if listed {
                plan.forget.push(address.clone());
            }
        } else {
            match actual.look(address) {
                ObservedItem::Owned(_) if address.is_value() && actual.input.is_in_flight() => {
                    plan.spared.push(address.clone());
                }
                ObservedItem::Owned(etag) => plan.drops.push((address.clone(), etag)),
                ObservedItem::Absent
                | ObservedItem::NoParent
                | ObservedItem::Foreign { .. }
                | ObservedItem::Indeterminate
                | ObservedItem::Content(_)
                    if listed =>
                {
                    plan.forget.push(address.clone());
                }
                ObservedItem::Absent
                | ObservedItem::NoParent
                | ObservedItem::Foreign { .. }
                | ObservedItem::Indeterminate
                | ObservedItem::Content(_) => {}
            }
        }
    }
}

/// Whether an item still has the version and generation that a pass over the same state of the primary has recorded.
fn is_unchanged(entry: Option<&Entry>, etag: &ETag, item: &Item) -> bool {
    entry.is_some_and(|entry| {
        !entry.changing && entry.generation == item.generation && entry.etag.as_ref() == Some(etag)
    })
}

/// Whether an item needs no write although its primary may have changed since the last pass.
fn is_kept(entry: Option<&Entry>, etag: &ETag, item: &Item) -> bool {
    entry.is_some_and(|entry| {
        !entry.changing
            && entry.generation == item.generation
            && item.content.is_unchanged_at(etag, entry.etag.as_ref())
    })
}
