//! The known state of each item of a primary, from its footprint and from looks.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::footprint::{Entry, Settled};
use crate::protocol::look::Look;
use crate::protocol::situation::{OutdatedCatalog, PlanInput, own_items};
use evenkeel_model::patterns::Item;
use evenkeel_model::{AccountName, ETag, ItemAddress, Site};

pub(crate) type Place<'a> = (&'a AccountName, &'a Site);

pub(crate) struct Known<'s> {
    pub(crate) input: &'s PlanInput<'s>,
    pub(crate) own: BTreeMap<&'s ItemAddress, &'s Entry>,
    pub(crate) changing: bool,
    pub(crate) has_differences: bool,
    /// Places with an item of unknown state, whichever view of this primary announced it.
    uncertain_places: BTreeSet<Place<'s>>,
    /// Rows of this primary that their view no longer derives.
    unwanted_rows: BTreeMap<Place<'s>, &'s ItemAddress>,
}

impl<'s> Known<'s> {
    pub(crate) fn of(input: &'s PlanInput<'s>) -> Result<Self, OutdatedCatalog> {
        let PlanInput {
            looks,
            wanted,
            underived,
            ..
        } = input;
        let own: BTreeMap<&ItemAddress, &Entry> =
            own_items(input.catalog, input.footprint).collect::<Result<_, _>>()?;
        let is_unwanted = |address: &ItemAddress| {
            address.is_replaceable()
                && !wanted.contains_key(address)
                && !underived.contains_key(&address.view)
        };
        Ok(Self {
            input,
            changing: own.values().any(|entry| entry.changing),
            has_differences: looks.iter().any(|(address, look)| {
                differs(own.get(address).copied(), look, wanted.get(address))
                    || input.is_overwritten(address)
            }),
            uncertain_places: looks
                .iter()
                .filter(|(_, look)| **look == Look::Unsure)
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

    /// Whether a pass has closed at this very state. It wrote every row, even if under other views, and so fenced off
    /// passes that hold an older state. Items that are as they should be need no write.
    pub(crate) fn closed_at_this_state(&self) -> bool {
        self.input.is_closed() && !self.changing && !self.input.disturbed
    }

    pub(crate) fn has_waiting_properties(&self) -> bool {
        self.closed_at_this_state()
            && matches!(self.input.footprint.settled, Settled::Waiting { .. })
    }

    /// Whether the last closed pass had today's views, and nothing has changed since.
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

    /// Whether the footprint lists exactly what is wanted. A program with other time zone rules, which are compiled in,
    /// derives other keys by the same views.
    fn lists_what_is_wanted(&self) -> bool {
        self.input
            .wanted
            .keys()
            .all(|address| self.own.contains_key(address))
            && self.own.keys().all(|address| self.stays(address))
    }

    /// Whether an item must not be dropped.
    pub(crate) fn stays(&self, address: &ItemAddress) -> bool {
        let PlanInput {
            wanted, referred, ..
        } = self.input;
        // Blobs of a removed view stay as long as the primary points to them.
        wanted.contains_key(address) || (address.part.is_none() && referred.contains(&address.site))
    }

    pub(crate) fn look(&self, address: &ItemAddress) -> Look {
        match self.input.looks.get(address) {
            _ if self.uncertain_places.contains(&place(address)) => Look::Unsure,
            Some(look) => look.clone(),
            None => self.version(address).map_or(Look::Absent, Look::Ours),
        }
    }

    pub(crate) fn version(&self, address: &ItemAddress) -> Option<ETag> {
        self.own.get(address).and_then(|entry| entry.etag.clone())
    }

    /// The row that holds the key of a wanted item and is no longer wanted itself, with its ETag. It is replaced in
    /// place, so that the key is never without a row.
    pub(crate) fn predecessor(&self, address: &ItemAddress) -> Option<(ItemAddress, ETag)> {
        let old = *self
            .unwanted_rows
            .get(&place(address))
            .filter(|_| address.part.is_none())?;
        let etag = match (self.input.looks.get(address), self.look(old)) {
            (None, Look::Ours(etag)) => etag,
            (
                Some(Look::Taken {
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

pub(crate) fn differs(entry: Option<&Entry>, look: &Look, wanted: Option<&Item>) -> bool {
    match (entry, look) {
        (Some(_), Look::Says(found)) => wanted.is_some_and(|item| !item.matches(found)),
        (None, Look::Absent | Look::Homeless | Look::Taken { .. }) => false,
        (_, Look::Unsure)
        | (None, Look::Ours(_) | Look::Says(_))
        | (Some(_), Look::Absent | Look::Homeless | Look::Taken { .. }) => true,
        (Some(entry), Look::Ours(etag)) => entry.etag.as_ref() != Some(etag),
    }
}
