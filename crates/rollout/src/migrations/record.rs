use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Declarations, MigrationError, ViewAction, ViewChange, plan};
use evenkeel_model::catalog::{Catalog, DatedRef, Definition, Generations, Source};
use evenkeel_model::{AccountName, CatalogOwner, ETag, ViewName};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogRecord {
    /// Number of the recorded catalog. It rises with every recorded change and is 0 if nothing was
    /// recorded.
    pub generation: u32,
    /// ETag of the row with the number. The next change of the record is conditional on this ETag.
    pub etag: Option<ETag>,
    /// Whether the account had no table of evenkeel before this record. If so, this is the first
    /// record, and no worker can have another catalog.
    pub first: bool,
    pub views: BTreeMap<ViewName, RecordedView>,
    /// Generations that workers have found in items, and that are later than the recorded
    /// generations. Such items exist if the record was lost or restored from a backup.
    pub later_generations: BTreeMap<ViewName, u32>,
    /// The names from all catalogs that were ever recorded ([`Catalog::names`]).
    pub names: BTreeSet<String>,
    /// Archives, retentions and rules by owner. An owner is missing if none of its declarations was
    /// recorded.
    pub declarations: BTreeMap<CatalogOwner, Declarations>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedView {
    /// Starts at 1 and rises by one whenever the definition changes or the view is restored.
    pub generation: u32,
    pub definition: Definition,
    #[serde(serialize_with = "display")]
    pub source: Source,
    /// Dated tables with items of this view, now or under an earlier definition. They are dropped
    /// together with the tables of the source.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", serialize_with = "texts")]
    pub followers: BTreeSet<DatedRef>,
    /// Accounts over which the view's items are spread, or were spread under its last definition;
    /// empty if they are in one account.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub accounts: BTreeSet<AccountName>,
    /// The catalog no longer has the view.
    pub retired: bool,
    /// The application whose catalog declares the view.
    pub owner: CatalogOwner,
}

fn display<S: serde::Serializer>(source: &Source, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(source)
}

fn texts<S: serde::Serializer>(
    followers: &BTreeSet<DatedRef>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(followers.iter().map(ToString::to_string))
}

impl CatalogRecord {
    /// Whether the recorded views of this owner are exactly those of the catalog.
    pub fn fits(&self, catalog: &Catalog, owner: &CatalogOwner) -> Result<bool, MigrationError> {
        Ok(plan::view_changes(self, catalog, owner)?
            .iter()
            .all(|change| change.action == ViewAction::Overtaken))
    }

    pub(super) fn has(&self, view: &ViewName, definition: &Definition) -> bool {
        self.views
            .get(view)
            .is_some_and(|view| !view.retired && view.definition == *definition)
    }

    pub(super) fn has_change(&self, change: &ViewChange) -> bool {
        let is_gone = change.action == ViewAction::Retired;
        let is_same = |view: &RecordedView| {
            change
                .definition
                .as_ref()
                .is_none_or(|definition| *definition == view.definition)
        };
        let recorded = self.views.get(&change.view);
        recorded.is_some_and(|view| {
            (view.generation, view.retired) == (change.generation, is_gone) && is_same(view)
        })
    }

    /// The generations of the catalog's views, with the retired views and the recorded names.
    pub fn generations(&self, catalog: &Catalog) -> Generations {
        let mut generations = Generations {
            names: self.names.clone(),
            ..Generations::default()
        };
        for (name, view) in &self.views {
            if let Source::Dated(source) = &view.source
                && !view.followers.is_empty()
            {
                generations
                    .followed
                    .push((source.clone(), view.followers.clone()));
            }
            if catalog.declares(name) {
                generations.current.insert(name.clone(), view.generation);
            } else if view.retired {
                generations
                    .retired
                    .insert(name.clone(), (view.generation, view.source.clone()));
            }
        }
        generations
    }
}
