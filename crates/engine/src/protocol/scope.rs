//! The scope of a pass: its primary, table, views and stores. It stays the same during a run, except for the memory
//! that it reserves for a large row.

use std::collections::{BTreeMap, BTreeSet};

use crate::env::Env;
use crate::env::row_memory::RowMemory;
use crate::execute::{Delivery, Failure};
use crate::failure::{permanent, storage};
use crate::items::document::ArchiveDocument;
use crate::protocol::footprint::{self, Footprint};
use crate::protocol::observe::ReadAhead;
use evenkeel_model::catalog::{TableRef, ViewStatus};
use evenkeel_model::job::{ItemReads, Primary};
use evenkeel_model::large::{self, Pointer, ValueFolder};
use evenkeel_model::patterns::{self, Derivation, DeriveError, Item, Ownership, OwnershipCheck};
use evenkeel_model::{
    AccountName, Entity, EntityKey, ItemAddress, Part, Row, Site, TableName, ViewName, cause,
    quoted,
};
use evenkeel_storage::{Account, TableStore};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OverlayReading {
    #[default]
    Read,
    /// The range overlays are already applied to the primary.
    Applied,
}

#[derive(Default)]
pub(crate) struct PassOptions<'e> {
    /// Which items are looked at besides those in `met`.
    pub(crate) reads: ItemReads,
    pub(crate) overlays: OverlayReading,
    /// Items to look at from the first round on, even if the footprint does not list them.
    pub(crate) met: BTreeSet<ItemAddress>,
    /// Number of consecutive rechecks that led to this pass; 0 if no recheck runs the pass.
    pub(crate) chained: u32,
    pub(crate) document: Option<ArchiveDocument<'e>>,
    pub(crate) nested: bool,
    /// The primary and its footprint, from a page that a walk (a backfill or an audit) has read. The first round begins
    /// with them if they are still valid.
    pub(crate) ahead: Option<ReadAhead>,
}

pub(crate) struct Scope<'e> {
    pub(crate) env: &'e Env,
    pub(crate) source: &'e TableRef,
    pub(crate) primary: Primary,
    pub(crate) footprints: TableName,
    pub(crate) delivery: Option<&'e Delivery>,
    pub(crate) chained: u32,
    pub(crate) document: Option<ArchiveDocument<'e>>,
    pub(crate) folder: ValueFolder,
    pub(crate) overlays: OverlayReading,
    pub(crate) nested: bool,
    pub(crate) memory: RowMemory,
}

#[derive(Default)]
pub(crate) struct Desired {
    pub(crate) items: BTreeMap<ItemAddress, Item>,
    pub(crate) underived: BTreeMap<ViewName, Box<DeriveError>>,
    /// The sites of blobs and files to which the primary points, regardless of its views.
    pub(crate) referred: BTreeSet<Site>,
}

/// Limits of an error text: the number of reasons, and their total length in bytes.
const MAX_REASONS: usize = 6;
const MAX_REASONS_BYTES: usize = 900;

/// Why items are out of step. A long reason is cut in the middle, because its beginning names the view and its end has
/// the cause.
#[derive(Debug, thiserror::Error)]
pub(crate) struct Reasons(pub(crate) Vec<String>);

impl std::fmt::Display for Reasons {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.0.len().min(MAX_REASONS);
        let each = MAX_REASONS_BYTES / shown.max(1);
        let reasons: Vec<String> = self
            .0
            .iter()
            .take(shown)
            .map(|reason| quoted::cut(reason, each))
            .collect();
        f.write_str(&reasons.join("; "))?;
        if self.0.len() > shown {
            write!(f, "; and {} more", self.0.len() - shown)
        } else {
            Ok(())
        }
    }
}

impl Desired {
    pub(crate) fn failure(&self, primary: &Primary) -> Failure {
        let step = format!("deriving the items of {primary}; all other items are in step");
        permanent(step, Reasons(self.reasons())).of_views(self.underived.keys().cloned())
    }

    pub(crate) fn reasons(&self) -> Vec<String> {
        self.underived
            .values()
            .map(|error| cause::chain(error.as_ref()))
            .collect()
    }
}

impl<'e> Scope<'e> {
    pub(crate) fn new(
        env: &'e Env,
        source: &'e TableRef,
        primary: Primary,
        delivery: Option<&'e Delivery>,
    ) -> Self {
        Self::with(env, source, primary, delivery, PassOptions::default())
    }

    pub(crate) fn with(
        env: &'e Env,
        source: &'e TableRef,
        primary: Primary,
        delivery: Option<&'e Delivery>,
        options: PassOptions<'e>,
    ) -> Self {
        let (folder, footprints) = (
            options
                .document
                .as_ref()
                .map_or_else(|| ValueFolder::of(&primary), ArchiveDocument::folder),
            env.catalog.footprint_table(source),
        );
        Self {
            env,
            source,
            primary,
            footprints,
            delivery,
            chained: options.chained,
            document: options.document,
            folder,
            overlays: options.overlays,
            nested: options.nested,
            memory: RowMemory::default(),
        }
    }

    pub(crate) fn has_views(&self) -> bool {
        self.env.catalog.has_views(self.source)
    }

    /// Whether the pass reads range overlays, because views set properties on ranges of this table.
    pub(crate) fn reads_overlays(&self) -> bool {
        self.overlays == OverlayReading::Read
            && self.env.catalog.ranges_over(self.source).next().is_some()
    }

    pub(crate) fn tables(&self) -> Result<&'e dyn TableStore, Failure> {
        Ok(self.env.account(self.source)?.tables.as_ref())
    }

    pub(crate) fn target(&self, account: &AccountName) -> Result<&'e Account, Failure> {
        let found = self.env.stores.account(account);
        found.map_err(|error| {
            permanent(
                format!("finding the account of items of {}", self.primary),
                error,
            )
        })
    }

    pub(crate) fn derive(&self, entity: Option<&Entity>) -> Result<Desired, Failure> {
        let catalog = &self.env.catalog;
        let derived = match catalog.archived_values_in(self.source) {
            Some(archived) => patterns::derive_archived(
                catalog,
                &self.primary,
                &archived.view,
                &archived.location,
                &self.folder,
                entity,
            )
            .map(|items| Derivation {
                items,
                ..Derivation::default()
            }),
            None => patterns::derive(catalog, self.source, entity),
        };
        let derived = derived
            .map_err(|error| permanent(format!("deriving the items of {}", self.primary), error))?;
        let referred = entity
            .into_iter()
            .flat_map(|entity| self.sites(entity))
            .collect();
        Ok(Desired {
            items: derived.items,
            underived: derived.failed,
            referred,
        })
    }

    /// Sites of the blobs and files with the large values of an entity. Pointers to values of other entities are
    /// ignored.
    pub(crate) fn sites(&self, entity: &Entity) -> Vec<Site> {
        let dir = self.document.as_ref().and_then(ArchiveDocument::dir);
        let site = |(_, pointer): (&str, Pointer)| match (pointer.container, dir) {
            (Some(container), _) => Some(Site::Blob {
                container,
                name: pointer.name,
            }),
            (None, Some(dir)) => Some(Site::File {
                dir: dir.to_owned(),
                name: pointer.name,
            }),
            (None, None) => None,
        };
        large::pointers(&self.folder, entity)
            .filter_map(site)
            .collect()
    }

    /// The address of the properties that a view sets on the primary itself.
    pub(crate) fn own_properties(&self, view: ViewName) -> ItemAddress {
        let site = Site::Row {
            table: self.source.table.clone(),
            key: self.primary.key.clone(),
        };
        ItemAddress {
            view,
            account: self.source.account.clone(),
            site,
            part: Some(Part::Properties),
        }
    }

    /// Whether an item is in the primary's own partition, so that one transaction writes both.
    pub(crate) fn is_own_partition(&self, address: &ItemAddress) -> bool {
        let here = |(table, key): (&TableName, &EntityKey)| {
            *table == self.source.table && key.pk == self.primary.key.pk
        };
        address.account == self.source.account && address.site.row().is_some_and(here)
    }

    pub(crate) fn precedes_its_primary(&self, address: &ItemAddress) -> bool {
        self.is_own_partition(address) || address.site.row().is_none()
    }

    /// The item as a primary, if it is a row of a table that is itself the source of views.
    pub(crate) fn derived_primary(&self, address: &ItemAddress) -> Option<Primary> {
        let (table, key) = address.site.row()?;
        let target = TableRef {
            account: address.account.clone(),
            table: table.clone(),
        };
        // A row that a view derives within its own table is not a primary of that table. An entity on which a view sets
        // properties is a primary.
        let is_primary = target != *self.source || address.part == Some(Part::Properties);
        (is_primary && self.env.catalog.derives_from(&target)).then(|| Primary {
            table: target.table.clone(),
            key: key.clone(),
        })
    }

    pub(crate) fn ownership(&self, address: &ItemAddress) -> Ownership {
        let catalog = &self.env.catalog;
        OwnershipCheck {
            catalog,
            source: self.source,
            primary: &self.primary,
            folder: &self.folder,
        }
        .judge(address)
    }

    pub(crate) fn status(&self, address: &ItemAddress, generation: u32) -> ViewStatus {
        let catalog = &self.env.catalog;
        catalog
            .generations
            .status(&address.view, generation, catalog.declares(&address.view))
    }

    /// Reads the footprint and its row. The footprint is returned without items that cannot belong to this primary.
    pub(crate) async fn read_footprint(&self) -> Result<Option<(Footprint, Row)>, Failure> {
        let step = || format!("reading the footprint of {}", self.primary);
        let row = self
            .tables()?
            .get(&self.footprints, &footprint::key(&self.primary), None)
            .await;
        let Some(row) = row.map_err(|error| storage(step(), error))? else {
            return Ok(None);
        };
        let footprint = Footprint::decode(&self.primary, &row.entity, self.env.secret.get())
            .map_err(|error| permanent(step(), error))?;
        Ok(Some((self.without_foreign_items(footprint), row)))
    }

    /// Removes items that cannot belong to this primary, so that they are neither looked at nor dropped. Another
    /// program may have listed them, or their archive is no longer declared.
    pub(crate) fn without_foreign_items(&self, mut footprint: Footprint) -> Footprint {
        let mut foreign = Vec::new();
        footprint.items.retain(|address, entry| {
            // If a newer catalog has the item's view, only that catalog shows whether the item can belong to this
            // primary.
            let kept = self.status(address, entry.generation) == ViewStatus::Newer
                || self.ownership(address) != Ownership::Foreign;
            if !kept {
                foreign.push(address.clone());
            }
            kept
        });
        self.warn_ignored(&foreign, "footprint", "they cannot belong to this primary");
        footprint
    }

    pub(crate) fn remove_foreign(&self, touched: &mut BTreeSet<ItemAddress>) {
        let foreign: Vec<ItemAddress> = touched
            .iter()
            .filter(|address| self.ownership(address) == Ownership::Foreign)
            .cloned()
            .collect();
        touched.retain(|address| !foreign.contains(address));
        self.warn_ignored(&foreign, "recheck", "they cannot belong to this primary");
    }

    pub(crate) fn warn_ignored(
        &self,
        foreign: &[ItemAddress],
        record: &'static str,
        because: &'static str,
    ) {
        let Some(first) = foreign.first() else { return };
        tracing::warn!(primary = %self.primary, record, count = foreign.len(), item = %first, "ignored items in the {record} of {}: {because}; nothing is deleted", self.primary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_reasons_are_shown_with_view_and_cause_and_the_others_are_counted() {
        let reason = |number: usize| {
            format!(
                "view v{number}: its row_key cannot be rendered for {}: it has {number} units",
                "é".repeat(900)
            )
        };
        let text_of = |count| Reasons((0..count).map(reason).collect()).to_string();
        for count in [1, 2, 6] {
            let text = text_of(count);
            assert!(
                (0..count).all(|n| text.contains(&format!("view v{n}: "))
                    && text.contains(&format!("it has {n} units"))),
                "{text}"
            );
            assert!(text.len() < 1_024 && !text.contains("more"), "{text}");
        }
        assert!(text_of(9).ends_with("; and 3 more"), "{}", text_of(9));
    }
}
