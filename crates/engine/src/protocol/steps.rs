//! The steps of a plan.

use std::collections::BTreeSet;

use crate::protocol::footprint::Footprint;
use crate::protocol::footprint::carries::{ToldRange, told_by};
use evenkeel_model::item::Owner;
use evenkeel_model::job::Primary;
use evenkeel_model::patterns::{Content, Item};
use evenkeel_model::{ETag, ItemAddress, Site, ViewName};

/// The plan of a pass.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// Every item is as it should be in this state.
    pub(crate) in_step: bool,
    /// An old write may be under way, as the situation had it.
    pub(crate) disturbed: bool,
    /// The footprint to write before any item is touched.
    pub(crate) announce: Option<Footprint>,
    /// Items to write.
    pub(crate) writes: Vec<Write>,
    /// Items to delete, each at its ETag or token.
    pub(crate) drops: Vec<(ItemAddress, ETag)>,
    /// Items that are gone, or another owner's, and leave the footprint.
    pub(crate) forget: Vec<ItemAddress>,
    /// Large values that another run may be about to point to: they leave the footprint, and are looked at again.
    pub(crate) spared: Vec<ItemAddress>,
    /// Items that stay as they were found, at this ETag or token, since their view cannot derive them.
    pub(crate) kept: Vec<(ItemAddress, ETag)>,
    /// Properties on entities of others that are to stay as the footprint lists them, or to wait on, and that were not looked at.
    pub(crate) unseen: Vec<ItemAddress>,
    /// Wanted keys with another holder.
    pub(crate) taken: Vec<KeyConflict>,
    /// Wanted properties of entities that do not exist.
    pub(crate) waiting: Vec<ItemAddress>,
    /// Items that are not listed as yet are left to the next round: the footprint does not hold them beside those that go in this one.
    pub(crate) deferred: bool,
}

/// One item to write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    /// Where.
    pub(crate) address: ItemAddress,
    /// Content to write.
    pub(crate) content: Content,
    /// The generation of its view.
    pub(crate) generation: u32,
    /// Replace at this ETag or token; insert where there is none.
    pub(crate) over: Option<ETag>,
    /// The item of another view of this primary that this one replaces in its row.
    pub(crate) replaces: Option<ItemAddress>,
    /// The holder of the key, from whom it is taken over.
    pub(crate) evicts: Option<Primary>,
}

/// A wanted key with another holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyConflict {
    /// The key.
    pub(crate) address: ItemAddress,
    /// The holder; `None` where evenkeel did not write the row, and of a list.
    pub(crate) owner: Option<Owner>,
    /// The view of the list that is there.
    pub(crate) list: Option<ViewName>,
}

impl KeyConflict {
    /// The other holder's item that was met.
    pub(crate) fn met(&self) -> Option<ItemAddress> {
        self.owner
            .as_ref()
            .map(|owner| self.address.obstacle(&owner.view))
    }
}

impl Plan {
    /// Every item that it writes or drops.
    pub(crate) fn touched(&self) -> impl Iterator<Item = &ItemAddress> {
        self.writes
            .iter()
            .map(|write| &write.address)
            .chain(self.drops.iter().map(|(address, _)| address))
    }

    /// Every item that it writes, drops or forgets.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &ItemAddress> {
        self.touched().chain(&self.forget)
    }

    /// Marks the ranges that it tells something to, in its announcement.
    pub(crate) fn mark_ranges(&mut self, mut new_mark: impl FnMut() -> String) {
        let told: BTreeSet<ToldRange> = self.changed().filter_map(told_by).collect();
        if let Some(footprint) = &mut self.announce {
            for range in told {
                footprint.carries.mark(range, new_mark());
            }
        }
    }

    /// A plan without anything in it yet.
    pub(crate) const fn nothing() -> Self {
        Self {
            in_step: false,
            disturbed: false,
            announce: None,
            writes: Vec::new(),
            drops: Vec::new(),
            forget: Vec::new(),
            spared: Vec::new(),
            kept: Vec::new(),
            unseen: Vec::new(),
            taken: Vec::new(),
            waiting: Vec::new(),
            deferred: false,
        }
    }

    /// Large values that the primary points to by it, beside those that it points to already, and that nobody has seen or brings. A pointer
    /// that dangled before is no worse now.
    pub(crate) fn dangling(
        &self,
        pointed_to: &BTreeSet<Site>,
    ) -> impl Iterator<Item = &ItemAddress> {
        self.waiting
            .iter()
            .filter(|address| address.site.row().is_none() && !pointed_to.contains(&address.site))
    }

    /// Whether a key held by another owner was an item of this very primary, under another view or of another kind,
    /// that this plan drops: then it is free once it is carried out.
    pub(crate) fn frees(&self, taken: &KeyConflict) -> bool {
        taken
            .met()
            .is_some_and(|met| self.drops.iter().any(|(dropped, _)| *dropped == met))
    }

    /// Whether it frees every key held by another owner.
    pub(crate) fn frees_what_was_taken(&self) -> bool {
        self.taken.iter().all(|taken| self.frees(taken))
    }
}

impl Write {
    /// The write of an item at an ETag or token, or its insert.
    pub(crate) fn of(address: ItemAddress, item: Item, over: Option<ETag>) -> Self {
        let Item {
            content,
            generation,
            ..
        } = item;
        Self {
            address,
            content,
            generation,
            over,
            replaces: None,
            evicts: None,
        }
    }

    /// Whether the item comes to be by it: inserted, or in the place of another primary's or view's. Who looked before has found nothing to
    /// drop.
    pub(crate) const fn creates(&self) -> bool {
        self.over.is_none() || self.evicts.is_some() || self.replaces.is_some()
    }

    /// Whether it makes something that was not there, or writes an item without a version or one that stays where it says the same: such
    /// changes are announced.
    pub(crate) fn is_announced(&self) -> bool {
        self.creates() || !self.address.site.is_conditional() || self.content.is_on_foreign_entity()
    }
}
