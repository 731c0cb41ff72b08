//! The plan of a pass: a pure function of its observation.
//!
//! Nothing here asks a store. A plan has the announcement, the items to write with their conditions, and the footprint
//! afterwards; `pass` walks it without choices of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::doubt::Doubt;
use super::execute::{Failure, FailureClass};
use super::footprint::{Entry, Settled};
use super::look::Look;
use super::observation::Observation;
use super::record;
use super::scope::{Scope, Wanted};
use super::situation::{OutdatedCatalog, Presence, Situation, own_items};
use super::steps::{KeyConflict, Plan, Write};
use super::value::RunValues;
use crate::catalog::OnConflict;
use crate::model::{AccountName, ETag, ItemAddress, Site};
use crate::patterns::Item;
use crate::planted::{Bug, planted};

/// Decides the plan of a run that has made this observation.
pub(super) fn decided(
    scope: &Scope<'_>,
    run: (&RunValues, &Doubt),
    seen: &Observation,
    wanted: &Wanted,
    state: Presence,
) -> Result<Plan, Failure> {
    plan(&Situation::of(scope, run, seen, wanted, state))
        .map_err(|error| Failure::new(FailureClass::OutdatedCatalog, format!("planning {}", scope.primary), error))
}

/// Decides the plan of a pass.
fn plan(situation: &Situation<'_>) -> Result<Plan, OutdatedCatalog> {
    let Situation { catalog, source, footprint, looks, state, wanted, .. } = situation;
    let own: BTreeMap<&ItemAddress, &Entry> = own_items(catalog, footprint).collect::<Result<_, _>>()?;
    let changing = own.values().any(|entry| entry.changing);
    let overwritten = |address: &ItemAddress| situation.is_overwritten(address);
    let differed =
        looks.iter().any(|(address, look)| differs(own.get(address).copied(), look, wanted.get(address)) || overwritten(address));

    let disturbed = situation.disturbed;
    let mut plan = Plan { disturbed, ..Plan::nothing() };
    // A pass has closed at this very state. It has written every row, under other views perhaps, and fenced off holders
    // of an older state: items left as they should be need no more writing.
    let mut same_state = false;
    if let Presence::Present(Some(etag)) = state
        && let Settled::At { etag: settled, fingerprint } | Settled::Waiting { etag: settled, fingerprint } = &footprint.settled
        && settled == etag
        && !changing
        && !disturbed
    {
        same_state = true;
        if *fingerprint == catalog.fingerprint(source)
            && (matches!(footprint.settled, Settled::At { .. }) || planted(Bug::WaitingCountsAsSettled))
            && !differed
            && situation.underived.is_empty()
        {
            plan.settled = true;
            return Ok(plan);
        }
    }

    if planted(Bug::NoTombstone) && *state == Presence::Absent && own.is_empty() && !differed {
        plan.settled = true;
        return Ok(plan);
    }

    let doubted: BTreeSet<(&AccountName, &Site)> =
        looks.iter().filter(|(_, look)| **look == Look::Unsure).map(|(address, _)| (&address.account, &address.site)).collect();
    let known = |address: &ItemAddress| match looks.get(address) {
        // Regardless of the view of this primary that announced it.
        _ if doubted.contains(&(&address.account, &address.site)) => Look::Unsure,
        Some(look) => look.clone(),
        None => own.get(address).and_then(|entry| entry.etag.clone()).map_or(Look::Absent, Look::Ours),
    };
    // Rows of this primary that a view no longer wants, by site.
    let mut left: BTreeMap<(&AccountName, &Site), &ItemAddress> = BTreeMap::new();
    for address in own.keys().filter(|address| address.is_replaceable()) {
        if !wanted.contains_key(*address) && !situation.underived.contains_key(&address.view) {
            left.insert((&address.account, &address.site), address);
        }
    }
    // Such a row at the key of a wanted one, and its ETag: it is replaced in place, and there is no moment without it.
    let predecessor = |address: &ItemAddress| {
        let old = *left.get(&(&address.account, &address.site)).filter(|_| address.part.is_none())?;
        let etag = match (looks.get(address), known(old)) {
            (None, Look::Ours(etag)) => etag,
            (Some(Look::Taken { etag: Some(etag), owner: Some(owner) }), _)
                if owner.primary == *situation.primary && owner.view == old.view =>
            {
                etag.clone()
            }
            _ => return None,
        };
        Some((old.clone(), etag))
    };
    for (address, item) in *wanted {
        let write =
            |over| Write { address: address.clone(), content: item.content.clone(), generation: item.generation, over, replaces: None };
        if let Some((old, etag)) = predecessor(address) {
            plan.writes.push(Write { replaces: Some(old), ..write(Some(etag)) });
            continue;
        }
        match known(address) {
            // Only a run with the content can create it.
            Look::Absent if item.content.is_supplied() && !situation.supplied.contains_key(address) => {
                plan.waiting.push(address.clone());
            }
            Look::Absent => plan.writes.push(write(None)),
            Look::Homeless => plan.waiting.push(address.clone()),
            Look::Ours(etag) if same_state && is_unchanged(own.get(address).copied(), &etag, item) && !overwritten(address) => {}
            Look::Ours(etag) if is_kept(own.get(address).copied(), &etag, item) => {}
            Look::Ours(etag) => plan.writes.push(write(Some(etag))),
            Look::Unsure => plan.writes.push(write(own.get(address).and_then(|entry| entry.etag.clone()))),
            Look::Says(found) => match own.get(address).copied() {
                Some(entry) if entry.etag.as_ref().is_some_and(|etag| is_kept(Some(entry), etag, item)) && item.is_said_by(&found) => {}
                _ => plan.writes.push(write(Some(found.token()))),
            },
            Look::Taken { etag, owner } => match (item.on_conflict, etag) {
                (OnConflict::LastWriter, Some(etag)) if owner.is_some() => {
                    plan.evicted.extend(owner.map(|owner| (address.clone(), owner.primary)));
                    plan.writes.push(write(Some(etag)));
                }
                (OnConflict::LastWriter | OnConflict::Reject, _) => plan.taken.push(KeyConflict { address: address.clone(), owner }),
            },
        }
    }
    let unwanted = own.keys().copied().chain(looks.keys().filter(|address| !own.contains_key(address)));
    // Blobs of a removed view stay as long as something points to them.
    let referred = |address: &ItemAddress| address.part.is_none() && situation.referred.contains(&address.site);
    let replaced: BTreeSet<ItemAddress> = plan.writes.iter().filter_map(|write| write.replaces.clone()).collect();
    for address in unwanted.filter(|address| !wanted.contains_key(*address) && !referred(address)) {
        if replaced.contains(address) {
            plan.forget.push(address.clone());
            continue;
        }
        if situation.underived.contains_key(&address.view) {
            match looks.get(address) {
                Some(Look::Ours(etag)) => plan.kept.push((address.clone(), etag.clone())),
                Some(Look::Absent | Look::Homeless | Look::Taken { .. }) if own.contains_key(address) => plan.forget.push(address.clone()),
                // Not looked at, or a document, over which an old write may still come: it stays listed as it is.
                Some(Look::Absent | Look::Homeless | Look::Taken { .. } | Look::Unsure | Look::Says(_)) | None => {}
            }
            continue;
        }
        if !address.site.is_conditional() {
            // A write to the same key replaces it. A delete has no condition, and is right whether the item exists
            // or not: the absence seen may be out of date.
            let replaced = wanted.keys().any(|other| other.account == address.account && other.site == address.site);
            if !replaced {
                let version = own.get(address).and_then(|entry| entry.etag.clone()).unwrap_or_else(|| ETag::token(0));
                plan.drops.push((address.clone(), version));
            } else if own.contains_key(address) {
                plan.forget.push(address.clone());
            }
            continue;
        }
        match known(address) {
            Look::Ours(_) if address.is_value() && situation.is_in_flight() => plan.spared.push(address.clone()),
            Look::Ours(etag) => plan.drops.push((address.clone(), etag)),
            Look::Absent | Look::Homeless | Look::Taken { .. } | Look::Unsure | Look::Says(_) if own.contains_key(address) => {
                plan.forget.push(address.clone());
            }
            Look::Absent | Look::Homeless | Look::Taken { .. } | Look::Unsure | Look::Says(_) => {}
        }
    }

    let creates =
        plan.writes.iter().any(|write| write.is_announced() || !own.contains_key(&write.address)) && !planted(Bug::UnannouncedCreate);
    if creates || !plan.drops.is_empty() || changing || differed || situation.disturbed {
        record::announce(situation, &mut plan);
    }
    Ok(plan)
}

/// Whether an item is at the version, and of the generation, that a pass over the same state of the primary has left.
fn is_unchanged(entry: Option<&Entry>, etag: &ETag, item: &Item) -> bool {
    entry.is_some_and(|entry| !entry.changing && entry.generation == item.generation && entry.etag.as_ref() == Some(etag))
}

/// Whether an item stays as it is, although its primary may be in another state than the pass before has seen.
fn is_kept(entry: Option<&Entry>, etag: &ETag, item: &Item) -> bool {
    entry.is_some_and(|entry| !entry.changing && entry.generation == item.generation && item.content.stays_at(etag, entry.etag.as_ref()))
}

/// Whether a look found something else than the footprint says.
fn differs(entry: Option<&Entry>, look: &Look, wanted: Option<&Item>) -> bool {
    match (entry, look) {
        (Some(_), Look::Says(found)) => wanted.is_some_and(|item| !item.is_said_by(found)),
        (None, Look::Absent | Look::Homeless | Look::Taken { .. }) => false,
        (_, Look::Unsure) | (None, Look::Ours(_) | Look::Says(_)) | (Some(_), Look::Absent | Look::Homeless | Look::Taken { .. }) => true,
        (Some(entry), Look::Ours(etag)) => entry.etag.as_ref() != Some(etag),
    }
}
