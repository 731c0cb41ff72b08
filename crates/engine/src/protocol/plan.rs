//! The plan of a pass, a pure function of its observation.
//!
//! A plan has the announcement, the items to write with their conditions, and the footprint afterwards. `pass` carries
//! it out without decisions of its own.

use std::collections::BTreeSet;

use crate::protocol::footprint::Entry;
use crate::protocol::footprint::carries::overlay_range;
use crate::protocol::footprint::record;
use crate::protocol::known::{Known, place};
use crate::protocol::look::{Look, has_forgettable};
use crate::protocol::situation::{OutdatedCatalog, PlanInput};
use crate::protocol::steps::{KeyConflict, Plan, Write};
use evenkeel_model::catalog::{OnConflict, ViewStatus};
use evenkeel_model::patterns::Item;
use evenkeel_model::{ETag, ItemAddress};

#[derive(Debug)]
pub(crate) enum Decision {
    /// Nothing is to be done, not even a close.
    Settled,
    /// Look at these items before anything is written. The round begins anew.
    LookFirst(BTreeSet<ItemAddress>),
    Do(Box<Plan>),
}

/// Decides what a pass does. Items in `requested` are not requested again: an item of a newer catalog is never looked
/// at, so the rounds would never end. The announcement has a new mark for each range that needs a carry.
pub(crate) fn decide(
    input: &PlanInput<'_>,
    requested: &BTreeSet<ItemAddress>,
    new_mark: impl FnMut() -> String,
) -> Result<Decision, OutdatedCatalog> {
    if input.is_derived_alone && !input.writes {
        return Ok(Decision::Settled);
    }
    let mut plan = plan(input)?;
    let has_other_work = input.writes || has_forgettable(input.footprint, input.looks, input.now);
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
    // Without a valid seal, rows and blobs in the footprint may be another primary's.
    let unproven = input
        .footprint
        .sealed_items()
        .map(|(address, _)| address.clone())
        .filter(|address| input.footprint.unproven && !input.looks.contains_key(address));
    // An old item of this same primary, under another view or of another kind, holds a wanted key. This pass drops it
    // if the footprint lists it. Otherwise it must be looked at first.
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
        .filter(|address| input.is_about_to_be() && !input.looks.contains_key(address))
        .cloned();
    unproven.chain(own).chain(pointed_to).collect()
}

pub(crate) fn plan(input: &PlanInput<'_>) -> Result<Plan, OutdatedCatalog> {
    let known = Known::of(input)?;
    let mut plan = Plan {
        disturbed: input.disturbed,
        ..Plan::nothing()
    };
    let same_state = known.closed_at_this_state();
    let in_step = same_state && known.nothing_differs();
    if in_step {
        plan.in_step = true;
        return Ok(plan);
    }
    write_wanted(&known, &mut plan, same_state);
    drop_unwanted(&known, &mut plan);

    let creates = plan
        .writes
        .iter()
        .any(|write| write.is_announced() || !known.own.contains_key(&write.address));
    // A range is marked before its carry is queued.
    let tells = plan
        .changed()
        .any(|address| overlay_range(address).is_some());
    if creates
        || tells
        || !plan.drops.is_empty()
        || known.changing
        || known.has_differences
        || input.disturbed
    {
        record::announce(input, &mut plan);
    }
    Ok(plan)
}

fn write_wanted(known: &Known<'_>, plan: &mut Plan, same_state: bool) {
    let PlanInput {
        wanted,
        supplied,
        looks,
        ..
    } = known.input;
    for (address, item) in *wanted {
        let write = |over| Write::of(address.clone(), item.clone(), over);
        if let Some((old, etag)) = known.predecessor(address) {
            plan.writes.push(Write {
                replaces: Some(old),
                ..write(Some(etag))
            });
            continue;
        }
        let entry = known.own.get(address).copied();
        match known.look(address) {
            // Only a run that has the content can create it.
            Look::Absent
                if item.content.needs_supplied_content() && !supplied.contains_key(address) =>
            {
                plan.waiting.push(address.clone());
            }
            // Its entity did not exist at the last close. Nothing is announced before it exists.
            Look::Absent
                if known.has_waiting_properties()
                    && item.content.is_on_foreign_entity()
                    && !looks.contains_key(address) =>
            {
                plan.unseen.push(address.clone());
                plan.waiting.push(address.clone());
            }
            Look::Absent => plan.writes.push(write(None)),
            Look::Homeless => plan.waiting.push(address.clone()),
            Look::Ours(etag)
                if same_state
                    && is_unchanged(entry, &etag, item)
                    && !known.input.is_overwritten(address) => {}
            Look::Ours(etag)
                if is_kept(entry, &etag, item) && !known.input.is_overwritten(address) =>
            {
                if item.content.is_on_foreign_entity() && !looks.contains_key(address) {
                    plan.unseen.push(address.clone());
                }
            }
            Look::Ours(etag) => plan.writes.push(write(Some(etag))),
            Look::Unsure => plan.writes.push(write(known.version(address))),
            Look::Says(found) => match entry {
                Some(entry)
                    if entry
                        .etag
                        .as_ref()
                        .is_some_and(|etag| is_kept(Some(entry), etag, item))
                        && item.matches(&found) => {}
                _ => plan.writes.push(write(Some(found.token()))),
            },
            Look::Taken { etag, owner, list } => match (item.on_conflict, etag) {
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

fn drop_unwanted(known: &Known<'_>, plan: &mut Plan) {
    let PlanInput {
        looks,
        wanted,
        underived,
        ..
    } = known.input;
    let unlisted = looks
        .keys()
        .filter(|address| !known.own.contains_key(address));
    let replaced: BTreeSet<ItemAddress> = plan
        .writes
        .iter()
        .filter_map(|write| write.replaces.clone())
        .collect();
    for address in known
        .own
        .keys()
        .copied()
        .chain(unlisted)
        .filter(|address| !known.stays(address))
    {
        let listed = known.own.contains_key(address);
        if replaced.contains(address) {
            plan.forget.push(address.clone());
        } else if underived.contains_key(&address.view) {
            match looks.get(address) {
                Some(Look::Ours(etag)) => plan.kept.push((address.clone(), etag.clone())),
                Some(Look::Absent | Look::Homeless | Look::Taken { .. }) if listed => {
                    plan.forget.push(address.clone());
                }
                // It was not looked at, or it is a document that an old write may still change. It stays listed as it
                // is.
                Some(
                    Look::Absent
                    | Look::Homeless
                    | Look::Taken { .. }
                    | Look::Unsure
                    | Look::Says(_),
                )
                | None => {}
            }
        } else if !address.site.is_conditional() {
            // A write to the same key replaces the item. A delete has no condition and is sent even if no item was
            // seen, because the absence seen may be out of date.
            if !wanted.keys().any(|other| place(other) == place(address)) {
                plan.drops.push((
                    address.clone(),
                    known.version(address).unwrap_or_else(|| ETag::token(0)),
                ));
            } else if listed {
                plan.forget.push(address.clone());
            }
        } else {
            match known.look(address) {
                Look::Ours(_) if address.is_value() && known.input.is_in_flight() => {
                    plan.spared.push(address.clone());
                }
                Look::Ours(etag) => plan.drops.push((address.clone(), etag)),
                Look::Absent
                | Look::Homeless
                | Look::Taken { .. }
                | Look::Unsure
                | Look::Says(_)
                    if listed =>
                {
                    plan.forget.push(address.clone());
                }
                Look::Absent
                | Look::Homeless
                | Look::Taken { .. }
                | Look::Unsure
                | Look::Says(_) => {}
            }
        }
    }
}

/// Whether an item is at the version and generation that a pass over the same state of the primary left.
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
