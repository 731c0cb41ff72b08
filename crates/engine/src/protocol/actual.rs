//! The known state of each item of a primary, from the footprint and from what a pass has read.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::footprint::{Entry, Settled};
use crate::protocol::observed_item::ObservedItem;
use crate::protocol::plan_input::{OutdatedCatalog, PlanInput, own_items};
use evenkeel_model::patterns::Item;
use evenkeel_model::{AccountName, ETag, ItemAddress, Site};

pub(crate) type Place<'a> = (&'a AccountName, &'a Site);

pub(crate) struct Actual<'s> {
    pub(crate) input: &'s PlanInput<'s>,
    pub(crate) own: BTreeMap<&'s ItemAddress, &'s Entry>,
    pub(crate) changing: bool,
    pub(crate) has_differences: bool,
    /// Sink documents whose content is unknown, because a write was announced for them, perhaps for another view of
    /// this primary.
    uncertain_places: BTreeSet<Place<'s>>,
    /// Old rows of this primary. The view of such a row no longer derives it.
    unwanted_rows: BTreeMap<Place<'s>, &'s ItemAddress>,
}

impl<'s> Actual<'s> {
    pub(crate) fn of(input: &'s PlanInput<'s>) -> Result<Self, OutdatedCatalog> {
        let PlanInput {
            observed,
            desired,
            underived,
            ..
        } = input;
        let own: BTreeMap<&ItemAddress, &Entry> =
            own_items(input.catalog, input.footprint).collect::<Result<_, _>>()?;
        let is_unwanted = |address: &ItemAddress| {
            address.is_replaceable()
                && !desired.contains_key(address)
                && !underived.contains_key(&address.view)
        };
        Ok(Self {
            input,
            changing: own.values().any(|entry| entry.changing),
            has_differences: observed.iter().any(|(address, look)| {
                differs(own.get(address).copied(), look, desired.get(address))
                    || input.is_overwritten(address)
            }),
            uncertain_places: observed
                .iter()
                .filter(|(_, look)| **look == ObservedItem::Indeterminate)
                .map(|(address, _)| place(address))
                .collect(),
            unwanted_rows: own
                .keys()
                .copied()
                .filter(|address| is_unwanted(address))
                .map(|address| (place(address), address))
                .collect(),
            own,
        })
    }

    /// Returns `true` if a pass, with any catalog, has closed at the present state of the primary, and since then no
    /// change was announced and no write was left unanswered. The closed pass gave every row of its views a new ETag.
    /// So a pass that has read an older state cannot overwrite these rows, and correct rows need no write now.
    pub(crate) fn closed_at_this_state(&self) -> bool {
        self.input.is_closed() && !self.changing && !self.input.disturbed
    }

    pub(crate) fn has_waiting_properties(&self) -> bool {
        self.closed_at_this_state()
            && matches!(self.input.footprint.settled, Settled::Waiting { .. })
    }

    /// Whether the last closed pass had the present views, and no difference was found since then.
    pub(crate) fn nothing_differs(&self) -> bool {
        let PlanInput {
            catalog,
            source,
            footprint,
            underived,
            ..
        } = self.input;
        let today = catalog.fingerprint(source);
        let closed = match &footprint.settled {
            Settled::At { fingerprint, .. } => *fingerprint == today && self.lists_what_is_wanted(),
            _ => false,
        };
        closed && !self.has_differences && underived.is_empty()
    }

    /// Whether the footprint lists exactly the wanted items. Time zone rules are compiled into the program, so another
    /// version of the program may derive other keys from the same views.
    fn lists_what_is_wanted(&self) -> bool {
        self.input
            .desired
            .keys()
            .all(|address| self.own.contains_key(address))
            && self.own.keys().all(|address| self.stays(address))
    }

    /// Whether an item must not be dropped.
    pub(crate) fn stays(&self, address: &ItemAddress) -> bool {
        let PlanInput {
            desired, referred, ..
        } = self.input;
        // Blobs of a removed view stay as long as the primary points to them.
        desired.contains_key(address)
            || (address.part.is_none() && referred.contains(&address.site))
    }

    pub(crate) fn look(&self, address: &ItemAddress) -> ObservedItem {
        match self.input.observed.get(address) {
            _ if self.uncertain_places.contains(&place(address)) => ObservedItem::Indeterminate,
            Some(look) => look.clone(),
            None => self
                .version(address)
                .map_or(ObservedItem::Absent, ObservedItem::Owned),
        }
    }

    pub(crate) fn version(&self, address: &ItemAddress) -> Option<ETag> {
        self.own.get(address).and_then(|entry| entry.etag.clone())
    }

    /// An old row of this primary at the key of a wanted item, with the row's ETag. No view derives the old row any
    /// more. The item replaces it in place, so that the key is never without a row.
    pub(crate) fn predecessor(&self, address: &ItemAddress) -> Option<(ItemAddress, ETag)> {
        let old = *self
            .unwanted_rows
            .get(&place(address))
            .filter(|_| address.part.is_none())?;
        let etag = match (self.input.observed.get(address), self.look(old)) {
            (None, ObservedItem::Owned(etag)) => etag,
            (
                Some(ObservedItem::Foreign {
                    etag: Some(etag),
                    owner: Some(owner),
                    ..
                }),
                _,
            ) if owner.primary == *self.input.primary && owner.view == old.view => etag.clone(),
            _ => return None,
        };
        Some((old.clone(), etag))
    }
}

pub(crate) const fn place(address: &ItemAddress) -> Place<'_> {
    (&address.account, &address.site)
}

pub(crate) fn differs(entry: Option<&Entry>, look: &ObservedItem, desired: Option<&Item>) -> bool {
    match (entry, look) {
        (Some(_), ObservedItem::Content(found)) => desired.is_some_and(|item| !item.matches(found)),
        (None, ObservedItem::Absent | ObservedItem::NoParent | ObservedItem::Foreign { .. }) => {
            false
        }
        (_, ObservedItem::Indeterminate)
        | (None, ObservedItem::Owned(_) | ObservedItem::Content(_))
        | (Some(_), ObservedItem::Absent | ObservedItem::NoParent | ObservedItem::Foreign { .. }) => {
            true
        }
        (Some(entry), ObservedItem::Owned(etag)) => entry.etag.as_ref() != Some(etag),
    }
}
