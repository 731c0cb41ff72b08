//! The plan of a pass: a pure function of its observation.
//!
//! Nothing here asks a store. A plan has the announcement, the items to write with their conditions, and the footprint
//! afterwards; `pass` walks it without choices of its own.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::footprint::{Entry, Footprint, Settled};
use super::look::Look;
use crate::catalog::{Catalog, OnConflict, TableRef, ViewStatus};
use crate::model::item::Owner;
use crate::model::job::Primary;
use crate::model::{AccountName, ETag, EdmValue, ItemAddress, Site, ViewName, odata};
use crate::patterns::{Content, DeriveError, Item};
use crate::planted::{Bug, planted};

/// The state of the primary that a plan is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// It is, or is about to be, absent.
    Absent,
    /// It is at this ETag; nothing for one that is about to be written.
    Present(Option<ETag>),
}

impl Plan {
    /// Every item that it writes, drops or forgets.
    pub(super) fn changed(&self) -> impl Iterator<Item = &ItemAddress> {
        self.writes.iter().map(|write| &write.address).chain(self.drops.iter().map(|(address, _)| address)).chain(&self.forget)
    }

    /// A plan without anything in it yet.
    pub(super) const fn nothing() -> Self {
        Self {
            settled: false,
            disturbed: false,
            announce: None,
            writes: Vec::new(),
            drops: Vec::new(),
            forget: Vec::new(),
            kept: Vec::new(),
            taken: Vec::new(),
            evicted: Vec::new(),
            waiting: Vec::new(),
            deferred: false,
        }
    }

    /// Leaves new items to the next round, when those that go have made room for them. Large values are there before the primary points to
    /// them, and cannot wait.
    fn defer(&mut self, situation: &Situation<'_>) {
        let listed = &situation.footprint.items;
        let stays = |write: &Write| listed.contains_key(&write.address) || matches!(write.content, Content::Value(_));
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.writes).into_iter().partition(stays);
        self.writes = now;
        // A row that is replaced in the next round stays listed until then.
        self.forget.retain(|address| !later.iter().any(|write| write.replaces.as_ref() == Some(address)));
        self.deferred = true;
    }

    /// Whether every key held by another owner was an item of this very primary, under another view or of another kind,
    /// that this plan drops: then it is free now.
    pub(super) fn frees_what_was_taken(&self) -> bool {
        self.taken.iter().all(|taken| taken.met().is_some_and(|met| self.drops.iter().any(|(dropped, _)| *dropped == met)))
    }
}

/// Everything that a plan depends on.
#[derive(Debug)]
pub(super) struct Situation<'a> {
    /// The catalog.
    pub(super) catalog: &'a Catalog,
    /// The primary's table.
    pub(super) source: &'a TableRef,
    /// The primary.
    pub(super) primary: &'a Primary,
    /// The footprint as read.
    pub(super) footprint: &'a Footprint,
    /// The looks taken before the primary was read.
    pub(super) looks: &'a BTreeMap<ItemAddress, Look>,
    /// Contents of the properties that those looks found on the entities of others.
    pub(super) said: &'a BTreeMap<ItemAddress, BTreeMap<String, EdmValue>>,
    /// The primary's state.
    pub(super) state: State,
    /// The items that should exist.
    pub(super) wanted: &'a BTreeMap<ItemAddress, Item>,
    /// The large values with contents in this run.
    pub(super) supplied: &'a BTreeSet<ItemAddress>,
    /// The blobs that the primary points to, regardless of its present views.
    pub(super) referred: &'a BTreeSet<Site>,
    /// Views that cannot derive their items from this state: their items stay as they are, and listed.
    pub(super) underived: &'a BTreeMap<ViewName, Box<DeriveError>>,
    /// Whether an old write may be under way: the footprint had another pass's open announcement, or an insert of an
    /// item or a write of the primary is unanswered in this run.
    pub(super) disturbed: bool,
    /// Now.
    pub(super) now: Timestamp,
    /// How long an old insert may be under way.
    pub(super) taint_for: SignedDuration,
}

/// The plan of a pass.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// Nothing to do, not even to close: everything is as it should be in this state.
    pub(super) settled: bool,
    /// An old write may be under way, as the situation had it.
    pub(super) disturbed: bool,
    /// The footprint to write before any item is touched.
    pub(super) announce: Option<Footprint>,
    /// Items to write.
    pub(super) writes: Vec<Write>,
    /// Items to delete, each at its ETag or token.
    pub(super) drops: Vec<(ItemAddress, ETag)>,
    /// Items that are gone, or another owner's, and leave the footprint.
    pub(super) forget: Vec<ItemAddress>,
    /// Items that stay as they were found, at this ETag or token, since their view cannot derive them.
    pub(super) kept: Vec<(ItemAddress, ETag)>,
    /// Wanted keys with another holder.
    pub(super) taken: Vec<Taken>,
    /// Keys that are taken over, each with its former holder, which still wants it.
    pub(super) evicted: Vec<(ItemAddress, Primary)>,
    /// Wanted properties of entities that do not exist.
    pub(super) waiting: Vec<ItemAddress>,
    /// Items that are not listed as yet are left to the next round: the footprint does not hold them beside those that go in this one.
    pub(super) deferred: bool,
}

/// One item to write.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Write {
    /// Where.
    pub(super) address: ItemAddress,
    /// Content to write.
    pub(super) content: Content,
    /// The generation of its view.
    pub(super) generation: u32,
    /// Replace at this ETag or token; insert where there is none.
    pub(super) over: Option<ETag>,
    /// The item of another view of this primary that this one replaces in its row.
    pub(super) replaces: Option<ItemAddress>,
}

/// A wanted key with another holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken {
    /// The key.
    pub(super) address: ItemAddress,
    /// The holder; `None` where evenkeel did not write the row.
    pub(super) owner: Option<Owner>,
}

impl Taken {
    /// The other holder's item that was met.
    pub(super) fn met(&self) -> Option<ItemAddress> {
        self.owner.as_ref().map(|owner| self.address.met(&owner.view))
    }
}

/// The footprint lists an item of a later generation of a view: this worker's catalog is too old to touch it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "an item of view {view} was made by generation {found} of the view, and this worker's catalog has generation {known}: give this worker the newer catalog, or run `evenkeel migrate up` where there is none"
)]
pub struct OutdatedCatalog {
    /// The view.
    pub view: ViewName,
    /// The item's generation.
    pub found: u32,
    /// The catalog's generation.
    pub known: u32,
}

/// Treatment of an item that the footprint lists.
fn status(catalog: &Catalog, address: &ItemAddress, entry: &Entry) -> Result<ViewStatus, OutdatedCatalog> {
    let declared = catalog.declares(&address.view);
    let status = catalog.generations.status(&address.view, entry.generation, declared);
    if status == ViewStatus::Newer && declared {
        return Err(OutdatedCatalog { view: address.view.clone(), found: entry.generation, known: catalog.generations.of(&address.view) });
    }
    Ok(status)
}

/// The items of a footprint that this catalog may judge: not those of views that it does not know.
pub(super) fn own_items<'a>(
    catalog: &'a Catalog,
    footprint: &'a Footprint,
) -> impl Iterator<Item = Result<(&'a ItemAddress, &'a Entry), OutdatedCatalog>> {
    footprint.items.iter().filter_map(|(address, entry)| match status(catalog, address, entry) {
        Err(outdated) => Some(Err(outdated)),
        Ok(ViewStatus::Retired) if planted(Bug::RetiredItemsStay) => None,
        Ok(ViewStatus::Known | ViewStatus::Retired) => Some(Ok((address, entry))),
        Ok(ViewStatus::Newer) => None,
    })
}

/// Decides the plan of a pass.
pub(super) fn plan(situation: &Situation<'_>) -> Result<Plan, OutdatedCatalog> {
    let Situation { catalog, source, footprint, looks, state, wanted, .. } = situation;
    let own: BTreeMap<&ItemAddress, &Entry> = own_items(catalog, footprint).collect::<Result<_, _>>()?;
    let changing = own.values().any(|entry| entry.changing);
    let overwritten = |address: &ItemAddress| situation.says_otherwise(address);
    let differed =
        looks.iter().any(|(address, look)| differs(own.get(address).copied(), look, wanted.get(address)) || overwritten(address));

    let disturbed = situation.disturbed;
    let mut plan = Plan { disturbed, ..Plan::nothing() };
    // A pass has closed at this very state. It has written every row, under other views perhaps, and fenced off holders
    // of an older state: items left as they should be need no more writing.
    let mut same_state = false;
    if let State::Present(Some(etag)) = state
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

    if planted(Bug::NoTombstone) && *state == State::Absent && own.is_empty() && !differed {
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
    for address in own.keys().filter(|address| address.part.is_none() && address.site.row().is_some()) {
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
            Look::Absent if matches!(item.content, Content::Value(_)) && !situation.supplied.contains(address) => {
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
                (OnConflict::LastWriter | OnConflict::Reject, _) => plan.taken.push(Taken { address: address.clone(), owner }),
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
        if address.site.is_document() {
            // A write to the same key replaces it. A delete has no condition, and is right whether the document exists
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
        let whole = announcement(situation, &plan);
        if !whole.fits() && fits_afterwards(&whole, &plan) {
            plan.defer(situation);
            plan.announce = Some(announcement(situation, &plan));
        } else {
            plan.announce = Some(whole);
        }
    }
    Ok(plan)
}

/// Whether the remainder of a footprint that is too large fits once the plan has been carried out.
fn fits_afterwards(announced: &Footprint, plan: &Plan) -> bool {
    let mut left = announced.clone();
    plan.drops.iter().map(|(address, _)| address).chain(&plan.forget).for_each(|address| drop(left.items.remove(address)));
    left.fits()
}

impl Situation<'_> {
    /// Whether the properties that were looked at differ from their expected content, because another writer changed
    /// them without a new token.
    fn says_otherwise(&self, address: &ItemAddress) -> bool {
        match (self.said.get(address), self.wanted.get(address).map(|item| &item.content)) {
            (Some(said), Some(Content::Properties(values))) => !odata::same_properties(said, values),
            _ => false,
        }
    }
}

/// Whether an item is at the version, and of the generation, that a pass over the same state of the primary has left.
fn is_unchanged(entry: Option<&Entry>, etag: &ETag, item: &Item) -> bool {
    entry.is_some_and(|entry| !entry.changing && entry.generation == item.generation && entry.etag.as_ref() == Some(etag))
}

/// Whether an item stays as it is. A row is always written, which fences off holders of an older state of the primary.
/// A member says nothing of the primary but that it belongs there, nor does a large value, and every removal of one is
/// announced first: it is written only where one was announced, or where it is to be brought up to date. So is a
/// document of a sink, as its version is a hash of its content: every write of another version is announced first.
fn is_kept(entry: Option<&Entry>, etag: &ETag, item: &Item) -> bool {
    match (&item.content, entry) {
        (Content::Member | Content::Value(_), Some(_)) => is_unchanged(entry, etag, item),
        (Content::Document(document), Some(entry)) => !entry.changing && entry.generation == item.generation && document.token() == *etag,
        (Content::Member | Content::Value(_) | Content::Document(_), None) | (Content::Row(_) | Content::Properties(_), _) => false,
    }
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

/// The footprint to write before any item is touched: it lists everything that may come to exist, and
/// marks every item about to be created or dropped.
fn announcement(situation: &Situation<'_>, plan: &Plan) -> Footprint {
    let mut footprint = situation.footprint.clone();
    if matches!(footprint.settled, Settled::At { .. } | Settled::Waiting { .. }) {
        // Rows get new ETags, and rows derived from them follow: that is so once this pass has closed, and not if it stops half-way.
        footprint.settled = Settled::Never;
    }
    for write in &plan.writes {
        let entry =
            footprint.items.entry(write.address.clone()).or_insert(Entry { generation: write.generation, etag: None, changing: true });
        entry.generation = entry.generation.max(write.generation);
        match &write.over {
            Some(etag) => entry.etag = Some(etag.clone()),
            None => entry.changing = true,
        }
        entry.changing |= write.is_announced();
    }
    for (write, replaced) in plan.writes.iter().filter_map(|write| Some((write, write.replaces.as_ref()?))) {
        if let Some(entry) = footprint.items.get_mut(replaced) {
            entry.changing = true;
        }
        footprint.contenders.moved(replaced, &write.address);
    }
    for (address, primary) in plan.evicted.iter().filter(|(_, primary)| primary != situation.primary) {
        footprint.contenders.add(address, primary);
    }
    for (address, etag) in &plan.drops {
        let generation = situation.catalog.generations.of(&address.view);
        let entry = footprint.items.entry(address.clone()).or_insert(Entry { generation, etag: None, changing: true });
        entry.etag = Some(etag.clone());
        entry.changing = true;
    }
    if situation.disturbed && !planted(Bug::NoTaint) {
        let until = situation.now.saturating_add(situation.taint_for).unwrap_or(Timestamp::MAX);
        footprint.tainted_until = Some(footprint.tainted_until.map_or(until, |already| already.max(until)));
    }
    footprint
}

/// How a pass ends: the footprint to write last, and the keys that leave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Close {
    /// The footprint to write.
    pub(super) footprint: Footprint,
    /// Items to look at again, when no forgotten request can arrive any more.
    pub(super) again: Vec<ItemAddress>,
}

/// Decides the end of a pass after its plan was carried out: `written` has the new ETag of every write.
pub(super) fn close(situation: &Situation<'_>, plan: &Plan, written: &BTreeMap<ItemAddress, ETag>) -> Close {
    let mut footprint = plan.announce.clone().unwrap_or_else(|| situation.footprint.clone());
    let mut removed = Vec::new();
    for write in &plan.writes {
        let entry = Entry { generation: write.generation, etag: written.get(&write.address).cloned(), changing: false };
        footprint.items.insert(write.address.clone(), entry);
    }
    for (address, etag) in &plan.kept {
        let generation =
            footprint.items.get(address).map_or_else(|| situation.catalog.generations.of(&address.view), |entry| entry.generation);
        footprint.items.insert(address.clone(), Entry { generation, etag: Some(etag.clone()), changing: false });
    }
    let gone = plan.drops.iter().map(|(address, _)| address).chain(&plan.forget).chain(&plan.waiting);
    let gone = gone.chain(plan.taken.iter().map(|taken| &taken.address).filter(|_| !planted(Bug::TakenKeyStaysListed)));
    for address in gone {
        let is_looked_at = !(planted(Bug::GoneNotRechecked) && plan.forget.contains(address));
        if footprint.items.remove(address).is_some() && is_looked_at {
            removed.push(address.clone());
        }
    }
    let Footprint { items, contenders, .. } = &mut footprint;
    contenders.retain(|item| items.contains_key(item));
    footprint.settled = match &situation.state {
        // A key with another holder leaves work to do, as does a view that cannot derive, and an item that is left to the next round:
        // the next sync of this state must try again.
        _ if plan.deferred || !plan.taken.is_empty() || !situation.underived.is_empty() => Settled::Never,
        State::Absent => Settled::Absent,
        State::Present(None) => Settled::Never,
        State::Present(Some(etag)) => {
            let (etag, fingerprint) = (etag.clone(), situation.catalog.fingerprint(situation.source));
            if plan.waiting.is_empty() { Settled::At { etag, fingerprint } } else { Settled::Waiting { etag, fingerprint } }
        }
    };
    if !footprint.is_tainted(situation.now) || planted(Bug::TaintEndsWithItsPass) {
        footprint.tainted_until = None;
    }
    let mut again = if footprint.tainted_until.is_some() { removed } else { Vec::new() };
    again.retain(|address| !address.site.is_document());
    if plan.disturbed {
        // An old write of a document may arrive over a newer one, and after it was dropped. The other writer announced
        // it, so that it is among the items that this pass has written or dropped.
        again.extend(plan.changed().filter(|address| address.site.is_document()).cloned());
    }
    Close { footprint, again }
}

impl Write {
    /// Whether it makes something that was not there, or writes an item without a version: such changes are announced.
    fn is_announced(&self) -> bool {
        self.over.is_none() || matches!(self.content, Content::Document(_))
    }
}
