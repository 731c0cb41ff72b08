//! Everything that a plan depends on.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::items::value::{RunValues, Supply};
use crate::protocol::footprint::{Entry, Footprint, Settled};
use crate::protocol::observe::Observation;
use crate::protocol::observed_item::ObservedItem;
use crate::protocol::scope::{Desired, Scope};
use crate::protocol::unanswered::UnansweredWrites;
use evenkeel_model::catalog::{Catalog, TableRef, ViewStatus};
use evenkeel_model::job::Primary;
use evenkeel_model::patterns::{DeriveError, Item};
use evenkeel_model::{ETag, EdmValue, ItemAddress, Site, ViewName};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Absent, or about to be deleted.
    Absent,
    /// Present at this ETag; `None` if it is about to be written.
    Present(Option<ETag>),
}

impl Presence {
    pub(crate) fn of(seen: &Observation) -> Self {
        seen.row()
            .map_or(Self::Absent, |row| Self::Present(Some(row.etag.clone())))
    }
}

#[derive(Debug)]
pub(crate) struct PlanInput<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) source: &'a TableRef,
    pub(crate) primary: &'a Primary,
    pub(crate) footprint: &'a Footprint,
    /// The state of each item that this run read before it read the primary.
    pub(crate) observed: &'a BTreeMap<ItemAddress, ObservedItem>,
    /// Values of the properties that this run read on other entities.
    pub(crate) property_values: &'a BTreeMap<ItemAddress, BTreeMap<String, EdmValue>>,
    /// List members. In the row of their list, the count or a measure does not match the list.
    pub(crate) behind: &'a BTreeSet<ItemAddress>,
    pub(crate) state: Presence,
    pub(crate) desired: &'a BTreeMap<ItemAddress, Item>,
    /// Large values whose contents are available in this run.
    pub(crate) supplied: &'a BTreeMap<ItemAddress, Supply>,
    /// Blobs that the primary points to, regardless of its present views.
    pub(crate) referred: &'a BTreeSet<Site>,
    /// Views that cannot derive their items from this state of the primary. Their items are neither written nor
    /// dropped.
    pub(crate) underived: &'a BTreeMap<ViewName, Box<DeriveError>>,
    /// Whether an old write may still arrive. It may if the footprint had an open announcement of another pass, or if
    /// this run has an unanswered insert of an item or an unanswered write of the primary.
    pub(crate) disturbed: bool,
    pub(crate) now: Timestamp,
    pub(crate) taint_for: SignedDuration,
    pub(crate) writes: bool,
    /// Whether a view of the same table derives the row, and the row's key has no footprint. No primary was ever stored
    /// at such a key.
    pub(crate) is_derived_alone: bool,
    /// Large values that the stored primary already points to. Empty unless the run is about to write the primary.
    pub(crate) pointed_to: BTreeSet<Site>,
}

impl<'a> PlanInput<'a> {
    pub(crate) fn of(
        scope: &'a Scope<'_>,
        values: &'a RunValues,
        unanswered: &UnansweredWrites,
        seen: &'a Observation,
        desired: &'a Desired,
        state: Presence,
    ) -> Self {
        let env = scope.env;
        let replaced = seen.row().filter(|_| state == Presence::Present(None));
        Self {
            writes: false,
            is_derived_alone: seen.is_derived_alone(),
            pointed_to: replaced
                .into_iter()
                .flat_map(|row| scope.sites(&row.entity))
                .collect(),
            catalog: &env.catalog,
            source: scope.source,
            footprint: &seen.footprint,
            primary: &scope.primary,
            observed: &seen.observed,
            property_values: &seen.property_values,
            behind: &seen.behind,
            state,
            desired: &desired.items,
            supplied: &values.supplies,
            referred: &desired.referred,
            underived: &desired.underived,
            disturbed: unanswered.is_disturbed(seen),
            now: env.clock.now(),
            taint_for: env.taint_for(),
        }
    }

    pub(crate) fn is_about_to_be(&self) -> bool {
        self.state == Presence::Present(None)
    }

    /// Whether some pass, with any catalog, has closed at exactly this state of the primary.
    pub(crate) fn is_closed(&self) -> bool {
        match (&self.state, &self.footprint.settled) {
            (
                Presence::Present(Some(etag)),
                Settled::At { etag: settled, .. } | Settled::Waiting { etag: settled, .. },
            ) => settled == etag,
            _ => false,
        }
    }

    /// Whether an announced write of the primary may still arrive, from another run or from an unanswered request of
    /// this run.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.disturbed || self.footprint.is_tainted(self.now)
    }

    /// Whether another program has changed a value without writing a new token: properties on another entity, or the
    /// count or a measure of a list.
    pub(crate) fn is_overwritten(&self, address: &ItemAddress) -> bool {
        if self.behind.contains(address) {
            return true;
        }
        let (found, desired) = (self.property_values.get(address), self.desired.get(address));
        found
            .zip(desired)
            .is_some_and(|(found, item)| item.content.is_overwritten_by(found))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "an item of view {view} has generation {found}, but this worker's catalog has generation {known}. Deploy the newer catalog, or run `evenkeel migrate up` if there is none"
)]
pub struct OutdatedCatalog {
    pub view: ViewName,
    pub found: u32,
    pub known: u32,
}

fn status(
    catalog: &Catalog,
    address: &ItemAddress,
    entry: &Entry,
) -> Result<ViewStatus, OutdatedCatalog> {
    let declared = catalog.declares(&address.view);
    let status = catalog
        .generations
        .status(&address.view, entry.generation, declared);
    if status == ViewStatus::Newer && declared {
        return Err(OutdatedCatalog {
            view: address.view.clone(),
            found: entry.generation,
            known: catalog.generations.of(&address.view),
        });
    }
    Ok(status)
}

pub(crate) fn is_unknown(catalog: &Catalog, address: &ItemAddress, entry: &Entry) -> bool {
    matches!(status(catalog, address, entry), Ok(ViewStatus::Newer))
}

/// The listed items, without those of views that this catalog does not know.
pub(crate) fn own_items<'a>(
    catalog: &'a Catalog,
    footprint: &'a Footprint,
) -> impl Iterator<Item = Result<(&'a ItemAddress, &'a Entry), OutdatedCatalog>> {
    footprint
        .items
        .iter()
        .filter_map(|(address, entry)| match status(catalog, address, entry) {
            Err(outdated) => Some(Err(outdated)),
            Ok(ViewStatus::Known | ViewStatus::Retired) => Some(Ok((address, entry))),
            Ok(ViewStatus::Newer) => None,
        })
}
