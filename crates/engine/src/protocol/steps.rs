//! The types of a plan and of its steps.

use std::collections::BTreeSet;

use crate::protocol::footprint::Footprint;
use crate::protocol::footprint::propagations::{OverlayRange, overlay_range};
use evenkeel_model::item::Owner;
use evenkeel_model::job::Primary;
use evenkeel_model::patterns::{Content, Item};
use evenkeel_model::{ETag, ItemAddress, Site, ViewName};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) in_step: bool,
    /// An old write may still arrive, as in `PlanInput::disturbed`.
    pub(crate) disturbed: bool,
    /// The footprint to write before any item is touched.
    pub(crate) announce: Option<Footprint>,
    pub(crate) writes: Vec<Write>,
    pub(crate) drops: Vec<(ItemAddress, ETag)>,
    pub(crate) forget: Vec<ItemAddress>,
    /// Large values that are not dropped, because another run may be about to write the primary with pointers to them.
    /// The values are removed from the footprint and rechecked later.
    pub(crate) spared: Vec<ItemAddress>,
    /// Items that stay as they were found, at this ETag or token, because their view cannot derive them.
    pub(crate) kept: Vec<(ItemAddress, ETag)>,
    /// Properties on other entities that the plan leaves as they are, although this pass did not look at them. The pass
    /// looks at them before it writes items (`items::confirm`).
    pub(crate) unseen: Vec<ItemAddress>,
    pub(crate) taken: Vec<KeyConflict>,
    /// Wanted items that this run cannot write: properties on entities that do not exist, and missing large values that
    /// this run does not upload.
    pub(crate) waiting: Vec<ItemAddress>,
    /// Whether new items are left to the next round, because the footprint cannot list both the new items and the items
    /// that this round drops.
    pub(crate) deferred: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    pub(crate) address: ItemAddress,
    pub(crate) content: Content,
    pub(crate) generation: u32,
    /// The ETag or token of the version to replace; `None` for an insert.
    pub(crate) over: Option<ETag>,
    /// The old item that the write replaces in the same row. Another view of this primary made the old item.
    pub(crate) replaces: Option<ItemAddress>,
    /// The holder from which the write takes over the key.
    pub(crate) evicts: Option<Primary>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyConflict {
    pub(crate) address: ItemAddress,
    /// The holder of the key; `None` if evenkeel did not write the row, or if the row is a list, which has many owners.
    pub(crate) owner: Option<Owner>,
    pub(crate) list: Option<ViewName>,
}

impl KeyConflict {
    pub(crate) fn holder_item(&self) -> Option<ItemAddress> {
        self.owner
            .as_ref()
            .map(|owner| self.address.obstacle(&owner.view))
    }
}

impl Plan {
    pub(crate) fn touched(&self) -> impl Iterator<Item = &ItemAddress> {
        self.writes
            .iter()
            .map(|write| &write.address)
            .chain(self.drops.iter().map(|(address, _)| address))
    }

    pub(crate) fn changed(&self) -> impl Iterator<Item = &ItemAddress> {
        self.touched().chain(&self.forget)
    }

    pub(crate) fn mark_ranges(&mut self, mut new_mark: impl FnMut() -> String) {
        let ranges: BTreeSet<OverlayRange> = self.changed().filter_map(overlay_range).collect();
        if let Some(footprint) = &mut self.announce {
            for range in ranges {
                footprint.propagations.mark(range, new_mark());
            }
        }
    }

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

    /// Missing large values to which the primary would begin to point. This run neither found nor uploads them. Values
    /// to which the stored primary already points are not included.
    pub(crate) fn dangling(
        &self,
        pointed_to: &BTreeSet<Site>,
    ) -> impl Iterator<Item = &ItemAddress> {
        self.waiting
            .iter()
            .filter(|address| address.site.row().is_none() && !pointed_to.contains(&address.site))
    }

    /// Whether this plan frees the key, because it drops the item that holds the key. Such an item belongs to the same
    /// primary, under another view or as an item of another kind.
    pub(crate) fn frees(&self, taken: &KeyConflict) -> bool {
        taken
            .holder_item()
            .is_some_and(|item| self.drops.iter().any(|(dropped, _)| *dropped == item))
    }

    pub(crate) fn frees_every_taken_key(&self) -> bool {
        self.taken.iter().all(|taken| self.frees(taken))
    }
}

impl Write {
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

    /// Whether the write creates the item: it inserts the item, or replaces an item of another primary or of another
    /// view. A pass that looked before such a write did not find the item, and therefore does not drop it.
    pub(crate) const fn creates(&self) -> bool {
        self.over.is_none() || self.evicts.is_some() || self.replaces.is_some()
    }

    /// Whether the write must be announced. It must if it creates an item, writes a document of a sink, or sets
    /// properties on another entity. The announcement marks these properties, so that a later pass writes them again
    /// even if they seem unchanged.
    pub(crate) fn is_announced(&self) -> bool {
        self.creates() || !self.address.site.is_conditional() || self.content.is_on_foreign_entity()
    }
}
