//! The footprints that a pass writes: the announcement before its plan is carried out, and the close afterwards.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::protocol::footprint::{Entry, Footprint, NoRoom, Settled, next_version};
use crate::protocol::plan_input::{PlanInput, Presence, is_unknown};
use crate::protocol::queueing::{NotBefore, RecheckRequest};
use crate::protocol::steps::{Plan, Write};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::Primary;
use evenkeel_model::{ETag, ItemAddress};

/// Adds an announcement to a plan. If a footprint cannot list both the new items and the items that the plan drops, the
/// new items are left to the next round.
pub(crate) fn announce(input: &PlanInput<'_>, plan: &mut Plan) {
    let whole = announcement(input, plan);
    plan.announce = Some(
        if whole.fits() == Err(NoRoom::Items) && fits_afterwards(&whole, plan) {
            defer(input, plan);
            announcement(input, plan)
        } else {
            whole
        },
    );
}

/// Leaves new items to the next round, when the footprint no longer lists the dropped items. Large values cannot wait,
/// because they must exist before the primary points to them.
fn defer(input: &PlanInput<'_>, plan: &mut Plan) {
    let listed = &input.footprint.items;
    let stays = |write: &Write| {
        listed.contains_key(&write.address) || write.content.needs_supplied_content()
    };
    let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut plan.writes)
        .into_iter()
        .partition(stays);
    plan.writes = now;
    // A row that the next round replaces stays listed until then.
    plan.forget.retain(|address| {
        !later
            .iter()
            .any(|write| write.replaces.as_ref() == Some(address))
    });
    plan.deferred = true;
}

fn fits_afterwards(announced: &Footprint, plan: &Plan) -> bool {
    let mut remaining = announced.clone();
    plan.drops
        .iter()
        .map(|(address, _)| address)
        .chain(&plan.forget)
        .for_each(|address| drop(remaining.items.remove(address)));
    remaining.fits().is_ok()
}

/// Returns the footprint to write before any item is touched. It lists every item that may exist afterwards, and marks
/// every item that is about to be created or dropped.
fn announcement(input: &PlanInput<'_>, plan: &Plan) -> Footprint {
    let mut footprint = input.footprint.clone();
    // The items, and rows that are derived from them, may be out of step until this pass has closed. If the pass stops
    // half-way, readers must not find the footprint settled.
    footprint.settled = Settled::Never;
    for write in &plan.writes {
        let entry = footprint
            .items
            .entry(write.address.clone())
            .or_insert(Entry {
                generation: write.generation,
                etag: None,
                changing: true,
            });
        entry.generation = entry.generation.max(write.generation);
        match &write.over {
            Some(etag) => entry.etag = Some(etag.clone()),
            None => entry.changing = true,
        }
        entry.changing |= write.is_announced();
    }
    for (write, replaced) in plan
        .writes
        .iter()
        .filter_map(|write| Some((write, write.replaces.as_ref()?)))
    {
        if let Some(entry) = footprint.items.get_mut(replaced) {
            entry.changing = true;
        }
        footprint.contenders.moved(replaced, &write.address);
    }
    for (write, primary) in plan
        .writes
        .iter()
        .filter_map(|write| Some((write, write.evicts.as_ref()?)))
    {
        if primary != input.primary {
            footprint.contenders.add(&write.address, primary);
        }
    }
    for (address, etag) in &plan.drops {
        let generation = input.catalog.generations.of(&address.view);
        let entry = footprint.items.entry(address.clone()).or_insert(Entry {
            generation,
            etag: None,
            changing: true,
        });
        entry.etag = Some(etag.clone());
        entry.changing = true;
    }
    // An entry may list an item at its present version, although the item does not belong to this primary. No worker
    // writes such an entry, so it comes from a program other than evenkeel. This announcement will be signed, and the
    // next pass would trust the entry. `changing` makes the next pass look at the item.
    for (address, entry) in &mut footprint.items {
        entry.changing |= input
            .observed
            .get(address)
            .is_some_and(|look| look.is_borrowed(entry, input.primary));
    }
    if plan.touched().any(|address| !address.site.is_conditional()) {
        footprint.version = next_version(footprint.version, input.now);
    }
    if input.disturbed {
        let until = input
            .now
            .saturating_add(input.taint_for)
            .unwrap_or(Timestamp::MAX);
        footprint.tainted_until = Some(
            footprint
                .tainted_until
                .map_or(until, |already| already.max(until)),
        );
    }
    footprint
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Close {
    pub(crate) footprint: Footprint,
    /// Rechecks to queue. Each is due when no unanswered request can arrive any more.
    pub(crate) rechecks: Vec<RecheckRequest>,
}

impl Close {
    /// Leaves items to the next pass, because the passes over these items failed (`FollowerOutcome::failed`). Their
    /// entries get generation 0. The next pass therefore writes the items again, and then starts passes over them.
    pub(crate) fn leave_to_next_pass(&mut self, items: Vec<ItemAddress>) {
        for address in items {
            self.footprint.settled = Settled::Never;
            self.footprint
                .items
                .entry(address)
                .or_insert(Entry {
                    generation: 0,
                    etag: None,
                    changing: false,
                })
                .generation = 0;
        }
    }

    /// Whether the footprint to write equals the stored one, so that no write is needed. This is so if nothing was
    /// announced, and properties still wait for an entity that does not exist. The caller checks that no earlier write
    /// of the footprint is unanswered.
    pub(crate) fn is_stored(&self, input: &PlanInput<'_>, plan: &Plan) -> bool {
        plan.announce.is_none()
            && self.footprint == *input.footprint
            && matches!(self.footprint.settled, Settled::Waiting { .. })
    }
}

/// The footprint to write if a run gives up after it has touched these items. Their entries may be out of date, so they
/// are marked as changing.
pub(crate) fn marked_as_changing(
    catalog: &Catalog,
    mut footprint: Footprint,
    items: &BTreeSet<ItemAddress>,
) -> Footprint {
    footprint.settled = Settled::Never;
    for address in items {
        let unknown = Entry {
            generation: catalog.generations.of(&address.view),
            etag: None,
            changing: true,
        };
        footprint
            .items
            .entry(address.clone())
            .or_insert(unknown)
            .changing = true;
    }
    footprint
}

/// Returns the footprint and the rechecks with which a pass ends after its plan was carried out. `written` has the new
/// ETag of every write. If a pass over a follower failed (`all_followed` is false), the footprint is not a tombstone.
pub(crate) fn close(
    input: &PlanInput<'_>,
    plan: &Plan,
    written: &BTreeMap<ItemAddress, ETag>,
    all_followed: bool,
) -> Close {
    let mut footprint = plan
        .announce
        .clone()
        .unwrap_or_else(|| input.footprint.clone());
    let mut removed = Vec::new();
    for write in &plan.writes {
        let entry = Entry {
            generation: write.generation,
            etag: written.get(&write.address).cloned(),
            changing: false,
        };
        footprint.items.insert(write.address.clone(), entry);
    }
    for (address, etag) in &plan.kept {
        let generation = match footprint.items.get(address) {
            // An announced change of the item may still arrive. The item gets generation 0, so that the next pass that
            // derives the item writes it again.
            Some(entry) if entry.changing => 0,
            Some(entry) => entry.generation,
            None => input.catalog.generations.of(&address.view),
        };
        footprint.items.insert(
            address.clone(),
            Entry {
                generation,
                etag: Some(etag.clone()),
                changing: false,
            },
        );
    }
    let gone = plan
        .drops
        .iter()
        .map(|(address, _)| address)
        .chain(&plan.forget)
        .chain(&plan.waiting);
    let gone = gone.chain(plan.taken.iter().map(|taken| &taken.address));
    for address in gone {
        if footprint.items.remove(address).is_some() {
            removed.push(address.clone());
        }
    }
    if !input.is_closed() {
        // This pass wrote nothing for views that only another catalog knows. Their items get generation 0, so that the
        // next pass with that catalog writes them.
        let unknown = footprint.items.iter_mut().filter(|(address, entry)| {
            !address.is_value() && is_unknown(input.catalog, address, entry)
        });
        unknown.for_each(|(_, entry)| entry.generation = 0);
    }
    footprint.settled = match &input.state {
        // The next sync must try again if items are left to the next round, a key has another holder, or a view cannot
        // derive its items.
        _ if plan.deferred || !plan.taken.is_empty() || !input.underived.is_empty() => {
            Settled::Never
        }
        Presence::Absent => Settled::Absent,
        Presence::Present(None) => Settled::Never,
        Presence::Present(Some(etag)) => {
            let (etag, fingerprint) = (etag.clone(), input.catalog.fingerprint(input.source));
            if plan.waiting.is_empty() {
                Settled::At { etag, fingerprint }
            } else {
                Settled::Waiting { etag, fingerprint }
            }
        }
    };
    if !footprint.is_tainted(input.now) {
        footprint.tainted_until = None;
    }
    // A contender is removed together with its item, with one exception. A contender that still has the key is a former
    // holder, because this primary has begun to take over the key. The former holder stays listed while the old
    // takeover may still arrive.
    let Footprint {
        items,
        contenders,
        tainted_until,
        ..
    } = &mut footprint;
    let may_come = |item: &ItemAddress, from: &Primary| {
        input
            .observed
            .get(item)
            .is_some_and(|look| look.is_of(from))
    };
    contenders.retain(|item, from| {
        items.contains_key(item) || (tainted_until.is_some() && may_come(item, from))
    });
    for address in &plan.spared {
        footprint.items.remove(address);
    }
    let is_tombstone = input.state == Presence::Absent && all_followed;
    let rechecks = rechecks(input, plan, &footprint, removed, is_tombstone);
    Close {
        footprint,
        rechecks,
    }
}

/// The rechecks that a close queues. A tombstone needs a recheck that removes it. A disturbed pass
/// (`PlanInput::disturbed`) needs a recheck even if it has no items to look at, because an old write of the primary may
/// still arrive when no job is left to derive the items.
fn rechecks(
    input: &PlanInput<'_>,
    plan: &Plan,
    footprint: &Footprint,
    removed: Vec<ItemAddress>,
    is_tombstone: bool,
) -> Vec<RecheckRequest> {
    let mut items = if footprint.tainted_until.is_some() {
        removed
    } else {
        Vec::new()
    };
    items.retain(|address| address.site.is_conditional());
    if plan.disturbed {
        // An old write of a sink's document may arrive after a newer write, or after the document was dropped. Every
        // such write was announced, so the document is among the items that this pass changed.
        items.extend(
            plan.changed()
                .filter(|address| !address.site.is_conditional())
                .cloned(),
        );
        // Another pass may have begun to move a list from its row to a blob. The write of the blob may arrive after
        // this pass has ended, so the members of the list are rechecked.
        let moved = input
            .observed
            .keys()
            .chain(plan.changed())
            .filter(|address| address.is_member_in_row());
        items.extend(moved.cloned());
        items.sort_unstable();
        items.dedup();
    }
    items.retain(|address| !plan.spared.contains(address));
    let mut rechecks = Vec::new();
    if plan.disturbed || !items.is_empty() || (is_tombstone && plan.spared.is_empty()) {
        rechecks.push(RecheckRequest::of(items));
    }
    if !plan.spared.is_empty() {
        let until = footprint.tainted_until.unwrap_or(input.now);
        rechecks.push(RecheckRequest {
            items: plan.spared.clone(),
            not_before: NotBefore::Taint(until),
        });
    }
    rechecks
}
