//! The observation of a pass: footprint, looks and primary, read in this order.

use std::collections::{BTreeMap, BTreeSet};

use super::execute::Failure;
use super::failure::{permanent, storage};
use super::footprint::{self, Entry, Footprint};
use super::items::gather;
use super::look::{self, Look};
use super::pass::Pass;
use super::primary::Stored;
use crate::catalog::ViewStatus;
use crate::model::item::{self, Owner};
use crate::model::job::Looks;
use crate::model::{AccountName, ETag, EdmDateTime, EdmValue, EntityKey, ItemAddress, Row, Site, TableName};
use crate::patterns::Claimed;
use crate::planted::{Bug, planted};
use crate::ports::FilePlace;
use crate::wide::Rows;

/// The observation of a pass.
pub(super) struct Observation {
    /// The footprint; empty where there is none.
    pub(super) footprint: Footprint,
    /// Its ETag; `None` where there is none.
    pub(super) etag: Option<ETag>,
    /// When it was last written, by the store's clock.
    pub(super) written: Option<EdmDateTime>,
    /// Results of the looks.
    pub(super) looks: BTreeMap<ItemAddress, Look>,
    /// Contents of properties kept on the entities of others, of those that were looked at.
    pub(super) said: BTreeMap<ItemAddress, BTreeMap<String, EdmValue>>,
    /// Rows that disagree with their lists.
    pub(super) behind: Vec<(AccountName, Site)>,
    /// The primary.
    pub(super) row: Option<Row>,
    /// Its rows, where its table is wide.
    pub(super) rows: Rows,
    /// The row is no primary, but derived by a view of the same table.
    pub(super) derived: Option<Row>,
}

/// Results of the looks at one site.
#[derive(Default)]
struct Seen {
    looks: Vec<(ItemAddress, Look)>,
    said: Vec<(ItemAddress, BTreeMap<String, EdmValue>)>,
    behind: bool,
}

impl Observation {
    /// Nothing seen yet.
    pub(super) fn blank() -> Self {
        Self {
            footprint: Footprint::default(),
            etag: None,
            written: None,
            looks: BTreeMap::new(),
            said: BTreeMap::new(),
            behind: Vec::new(),
            row: None,
            rows: Rows::default(),
            derived: None,
        }
    }

    /// Whether the row is the item of one primary in its own table. (A list there is none: footprints of its key may be left.)
    pub(super) fn is_derived(&self) -> bool {
        self.derived.as_ref().is_some_and(|row| Owner::of(&row.entity).is_some())
    }
}

impl Pass<'_> {
    /// Reads the footprint, then the keys to look at, then the primary.
    pub(super) async fn observe(&mut self) -> Result<Observation, Failure> {
        let mut seen = Observation::blank();
        let early = if planted(Bug::PrimaryReadFirst) { Some(self.read_primary().await?) } else { None };
        if self.has_views() {
            let key = footprint::key(&self.primary);
            let step = || format!("reading the footprint of {}", self.primary);
            let row = self.tables()?.get(&self.footprints, &key, None).await.map_err(|error| storage(step(), error))?;
            if let Some(row) = row {
                let footprint = Footprint::decode(&self.primary, &row.entity).map_err(|error| permanent(step(), error))?;
                seen.footprint = self.disowned(footprint);
                seen.etag = Some(row.etag);
                seen.written = row.timestamp;
            }
            self.disown_touched();
            self.look(&mut seen).await?;
        }
        let Stored { row, rows } = if let Some(stored) = early { stored } else { self.read_primary().await? };
        seen.rows = rows;
        match row {
            // A row derived from its own table is no source of truth.
            Some(row) if item::is_derived_within(&self.source.table, &row.entity) => seen.derived = Some(row),
            row => seen.row = row,
        }
        Ok(seen)
    }

    async fn read_primary(&self) -> Result<Stored, Failure> {
        match &self.document {
            Some(document) => Ok(Stored { row: document.read().await?, ..Stored::default() }),
            None => self.engine.read_primary(self.source, &self.primary.key, self.rows_in_the_way).await,
        }
    }

    /// Looks at the items that some pass has announced and that this run has touched, or at everything.
    async fn look(&self, observation: &mut Observation) -> Result<(), Failure> {
        let catalog = &self.engine.catalog;
        let footprint = &observation.footprint;
        let doubtful = |address: &ItemAddress, entry: &Entry| {
            entry.changing || self.looks == Looks::Everything || self.claims(address) == Claimed::Former
        };
        let listed = footprint.items.iter().filter(|(address, entry)| doubtful(address, entry)).map(|(address, _)| address);
        let mut addresses: BTreeSet<&ItemAddress> = listed.chain(&self.touched).collect();
        // Items of an unknown view are left alone.
        addresses.retain(|address| {
            let generation = footprint.items.get(*address).map_or(0, |entry| entry.generation);
            match catalog.generations.status(&address.view, generation, catalog.declares(&address.view)) {
                ViewStatus::Known => true,
                ViewStatus::Retired => !planted(Bug::RetiredItemsStay),
                ViewStatus::Newer => false,
            }
        });
        // Each site is read once, however many of its parts are looked at.
        let mut sites: BTreeMap<(&AccountName, &Site), Vec<&ItemAddress>> = BTreeMap::new();
        for address in addresses {
            sites.entry((&address.account, &address.site)).or_default().push(address);
        }
        let looks = sites.iter().map(|((account, site), addresses)| self.look_at(footprint, (account, site), addresses.clone())).collect();
        let looks: Vec<Result<Seen, Failure>> = gather(looks).await;
        let (mut found, mut said, mut behind) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for ((account, site), seen) in sites.into_keys().zip(looks) {
            let seen = seen?;
            found.extend(seen.looks);
            said.extend(seen.said);
            if seen.behind {
                behind.push((account.clone(), site.clone()));
            }
        }
        (observation.looks, observation.said, observation.behind) = (found, said, behind);
        Ok(())
    }

    async fn look_at(
        &self,
        footprint: &Footprint,
        (account, site): (&AccountName, &Site),
        addresses: Vec<&ItemAddress>,
    ) -> Result<Seen, Failure> {
        let (parts, whole): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.part.is_some());
        let mut seen = Seen::default();
        if !whole.is_empty() {
            seen.looks = match site {
                Site::Row { table, key } => self.look_at_row(account, (table, key), whole).await?,
                Site::Blob { container, name } => self.look_at_blob(account, (container, name), whole).await?,
                Site::File { dir, name } => self.look_at_file(FilePlace { dir: dir.clone(), name: name.clone() }, whole).await?,
                Site::Document { collection, key } => self.look_at_document(footprint, account, (collection, key), whole).await?,
            };
        }
        if !parts.is_empty() {
            let sight = self.document(account, site)?.look(&parts).await?;
            seen.behind = sight.behind;
            for address in parts {
                let nonsense = |nonsense| permanent(format!("looking at {site}"), nonsense);
                let found = sight.find(address).map_err(nonsense)?;
                seen.said.extend(sight.said(address).map_err(nonsense)?.map(|said| (address.clone(), said)));
                seen.looks.push((address.clone(), look::look_into(address, &self.primary, found, sight.owner.as_ref())));
            }
        }
        Ok(seen)
    }

    async fn look_at_row(
        &self,
        account: &AccountName,
        (table, key): (&TableName, &EntityKey),
        addresses: Vec<&ItemAddress>,
    ) -> Result<Vec<(ItemAddress, Look)>, Failure> {
        // Of a row that is an item as a whole, only the owner.
        let own = [item::SOURCE_PROPERTY.to_owned(), item::VIEW_PROPERTY.to_owned()];
        let row = self.target(account)?.tables.get(table, key, Some(&own)).await;
        let row = row.map_err(|error| storage(format!("looking at {table}{key}"), error))?;
        let look = |address: &ItemAddress| (address.clone(), look::look(address, &self.primary, row.clone()));
        Ok(addresses.into_iter().map(look).collect())
    }
}
