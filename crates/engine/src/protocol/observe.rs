//! What a pass observes: the footprint, some items, then the primary, in this order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::env::signature::read_secret;
use crate::env::waiting::waited;
use crate::env::{Env, PART};
use crate::execute::Failure;
use crate::items::{self, LookContext};
use crate::protocol::footprint::{Entry, Footprint};
use crate::protocol::observed_item::ObservedItem;
use crate::protocol::primary::{self, StoredPrimary};
use crate::protocol::scope::Scope;
use evenkeel_model::catalog::ViewStatus;
use evenkeel_model::item::{self, Owner, VIEW_PROPERTY};
use evenkeel_model::job::{ItemReads, Primary};
use evenkeel_model::patterns::Ownership;
use evenkeel_model::{ETag, EdmDateTime, EdmValue, ItemAddress, Row, TableName};
use evenkeel_storage::wide::Rows;

/// Maximum age of a page of a walk when a pass begins with it: the time that one part of a walk takes.
const MAX_PAGE_AGE: Duration = PART;

pub(crate) struct Observation {
    pub(crate) footprint: Footprint,
    pub(crate) etag: Option<ETag>,
    /// Time of the last write of the footprint, by the store's clock.
    pub(crate) written: Option<EdmDateTime>,
    pub(crate) observed: BTreeMap<ItemAddress, ObservedItem>,
    /// Values of the properties that this pass read on other entities.
    pub(crate) property_values: BTreeMap<ItemAddress, BTreeMap<String, EdmValue>>,
    /// List members. In the row of their list, the count or a measure does not match the list.
    pub(crate) behind: BTreeSet<ItemAddress>,
    pub(crate) primary: PrimaryRead,
    pub(crate) rows: Rows,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PrimaryRead {
    Absent,
    Present(Row),
    /// A row that a view of the same table derives. It is not a source of truth, so the primary counts as absent.
    Derived(Row),
}

impl PrimaryRead {
    fn of(table: &TableName, row: Option<Row>) -> Self {
        match row {
            Some(row) if item::is_derived_within(table, &row.entity) => Self::Derived(row),
            row => row.into(),
        }
    }

    /// The row, if a view of any table derives it. No job writes or deletes such a row as a primary.
    pub(crate) fn derived(&self) -> Option<&Row> {
        match self {
            Self::Absent => None,
            Self::Present(row) => Some(row).filter(|row| row.entity.get(VIEW_PROPERTY).is_some()),
            Self::Derived(row) => Some(row),
        }
    }
}

impl From<Option<Row>> for PrimaryRead {
    fn from(row: Option<Row>) -> Self {
        row.map_or(Self::Absent, Self::Present)
    }
}

impl Observation {
    pub(crate) fn blank() -> Self {
        Self {
            footprint: Footprint::default(),
            etag: None,
            written: None,
            observed: BTreeMap::new(),
            property_values: BTreeMap::new(),
            behind: BTreeSet::new(),
            primary: PrimaryRead::Absent,
            rows: Rows::default(),
        }
    }

    /// Rows and blobs that were not looked at. Only the footprint's signature shows that they belong to this primary.
    fn unproven(&self) -> impl Iterator<Item = &ItemAddress> {
        self.footprint
            .signed_items()
            .map(|(address, _)| address)
            .filter(|address| !self.observed.contains_key(address))
    }

    /// Items that belong to other owners, although the footprint lists them at their present versions. A worker never
    /// writes such a footprint, so another program wrote it.
    fn borrowed(&self, primary: &Primary) -> Vec<ItemAddress> {
        let borrowed = self.footprint.signed_items().filter(|(address, entry)| {
            self.observed
                .get(address)
                .is_some_and(|look| look.is_borrowed(entry, primary))
        });
        borrowed.map(|(address, _)| address.clone()).collect()
    }

    pub(crate) const fn row(&self) -> Option<&Row> {
        match &self.primary {
            PrimaryRead::Present(row) => Some(row),
            PrimaryRead::Absent | PrimaryRead::Derived(_) => None,
        }
    }

    /// Whether the row at this key is only derived: its owner is one primary of the same table, and the key has no
    /// footprint. No primary ever existed at such a key. The row of a list does not count, because a list has many
    /// owners.
    pub(crate) fn is_derived_alone(&self) -> bool {
        self.etag.is_none()
            && matches!(&self.primary, PrimaryRead::Derived(row) if Owner::of(&row.entity).is_some())
    }
}

pub(crate) async fn observe(
    scope: &Scope<'_>,
    reads: ItemReads,
    touched: &mut BTreeSet<ItemAddress>,
    leftovers: bool,
) -> Result<Observation, Failure> {
    let mut seen = Observation::blank();
    if scope.has_views() {
        read_secret_for(scope).await;
        if let Some((footprint, row)) = scope.read_footprint().await? {
            seen.footprint = footprint;
            seen.etag = Some(row.etag);
            seen.written = row.timestamp;
        }
        look(scope, reads, touched, &mut seen).await?;
    }
    let StoredPrimary { row, rows } = read_primary(scope, leftovers).await?;
    seen.rows = rows;
    seen.primary = PrimaryRead::of(&scope.source.table, row);
    Ok(seen)
}

/// A dry run must not create the secret.
async fn read_secret_for(scope: &Scope<'_>) {
    if scope.delivery.is_some() {
        read_secret(scope.env).await;
    }
}

/// Looks at `touched`, at announced items, at keys with a pending takeover, at items that a former definition of a view
/// may have made, and at every item if `reads` is `All`.
async fn look(
    scope: &Scope<'_>,
    reads: ItemReads,
    touched: &mut BTreeSet<ItemAddress>,
    seen: &mut Observation,
) -> Result<(), Failure> {
    touched.extend(
        seen.footprint
            .pending_takeovers()
            .map(|(item, _)| item.clone()),
    );
    scope.remove_foreign(touched);
    let uncertain = |(address, entry): &(&ItemAddress, &Entry)| {
        entry.changing || reads == ItemReads::All || scope.ownership(address) == Ownership::Former
    };
    let listed = seen
        .footprint
        .items
        .iter()
        .filter(uncertain)
        .map(|(address, _)| address);
    let mut addresses: BTreeSet<&ItemAddress> = listed.chain(&*touched).collect();
    // If this catalog does not know the view of an item, only a worker with a newer catalog can look at the item.
    let generation = |address: &ItemAddress| {
        seen.footprint
            .items
            .get(address)
            .map_or(0, |entry| entry.generation)
    };
    addresses.retain(|address| scope.status(address, generation(address)) != ViewStatus::Newer);
    let looked = items::look(
        LookContext {
            scope,
            footprint: &seen.footprint,
            touched,
        },
        addresses,
    )
    .await?;
    seen.observed = looked.observed.into_iter().collect();
    seen.property_values = looked.property_values.into_iter().collect();
    seen.behind = looked.behind.into_iter().collect();
    if seen.footprint.unproven {
        let unproven = seen.unproven().next().is_some();
        seen.footprint.unproven = unproven;
        scope.warn_ignored(
            &seen.borrowed(&scope.primary),
            "footprint",
            "another owner has them at the listed versions",
        );
    }
    Ok(())
}

/// A primary and its footprint, from a page that a walk (a backfill or an audit) has read. The walk reads the
/// footprints of a page before it requests the primaries.
#[derive(Clone)]
pub(crate) struct ReadAhead {
    /// `None` if there is no footprint, or if the range query did not return it. If a footprint exists nevertheless,
    /// the pass fails to insert one, and its next round reads the existing footprint.
    pub(crate) footprint: Option<Row>,
    pub(crate) row: Row,
    pub(crate) at: ReadTime,
}

/// The time at which a walk began to read a page, and for how long the run of the walk had waited for other runs by
/// then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadTime {
    monotonic: Duration,
    waited: Duration,
}

impl ReadTime {
    pub(crate) fn now(env: &Env) -> Self {
        Self {
            monotonic: env.clock.monotonic(),
            waited: waited(),
        }
    }

    /// Whether a pass may still begin with the page. A pass must end within `job_timeout` after its first read, and
    /// here the read of the page is the first. While a run waits for other runs, its `job_timeout` stands still, but
    /// the page gets older. The page is therefore not used after such a wait. The age of the page is also limited,
    /// because a command has no `job_timeout`.
    fn holds(self, env: &Env) -> bool {
        env.clock.monotonic().saturating_sub(self.monotonic) <= MAX_PAGE_AGE
            && waited() == self.waited
    }
}

/// Returns an observation that begins with a page, or `None` if the pass must observe by itself.
///
/// Here, the primary was read before the items. An item may have been written in between from a newer state of the
/// primary, and this pass would overwrite it. So each item must still be at the version that the footprint listed
/// before the primary was read.
pub(crate) async fn from_page(
    scope: &Scope<'_>,
    reads: ItemReads,
    touched: &mut BTreeSet<ItemAddress>,
    ahead: ReadAhead,
) -> Result<Option<Observation>, Failure> {
    let ReadAhead { footprint, row, at } = ahead;
    if !at.holds(scope.env) || !touched.is_empty() {
        return Ok(None);
    }
    let mut seen = Observation {
        primary: PrimaryRead::of(&scope.source.table, Some(row)),
        ..Observation::blank()
    };
    read_secret_for(scope).await;
    let Some(row) = footprint else {
        return Ok(Some(seen));
    };
    let secret = scope.env.secret.get();
    // If the footprint is unreadable, the pass reads it again and reports the reason.
    let Ok(footprint) = Footprint::decode(&scope.primary, &row.entity, secret) else {
        return Ok(None);
    };
    if footprint.is_changing()
        || footprint.unproven
        || footprint.pending_takeovers().next().is_some()
    {
        return Ok(None);
    }
    seen.footprint = scope.without_foreign_items(footprint);
    seen.etag = Some(row.etag);
    seen.written = row.timestamp;
    look(scope, reads, touched, &mut seen).await?;
    let is_as_listed = |(address, look): (&ItemAddress, &ObservedItem)| {
        let listed = seen.footprint.items.get(address);
        matches!(look, ObservedItem::Owned(etag) if listed.and_then(|entry| entry.etag.as_ref()) == Some(etag))
    };
    Ok(seen.observed.iter().all(is_as_listed).then_some(seen))
}

async fn read_primary(scope: &Scope<'_>, leftovers: bool) -> Result<StoredPrimary, Failure> {
    if let Some(document) = &scope.document {
        return Ok(StoredPrimary {
            row: document.read().await?,
            ..StoredPrimary::default()
        });
    }
    let Env {
        row_sizes, memory, ..
    } = scope.env;
    let read = primary::read_primary(scope.env, scope.source, &scope.primary.key, leftovers);
    let bytes = |stored: &StoredPrimary| {
        stored
            .row
            .as_ref()
            .map_or(0, |row| row.entity.stored_bytes())
    };
    scope
        .memory
        .reading(row_sizes, memory, scope.source, read, bytes)
        .await
}
