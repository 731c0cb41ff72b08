use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Declarations, MigrationError, ViewAction, ViewChange, plan};
use evenkeel_model::catalog::{Catalog, DatedRef, Definition, Generations, Source};
use evenkeel_model::{AccountName, CatalogOwner, ETag, ViewName};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogRecord {
    /// Rises with every recorded change; 0 if nothing was recorded.
    pub generation: u32,
    /// ETag of the row with the number: the next change is conditional on it.
    pub etag: Option<ETag>,
    /// The account had no table of evenkeel before, so no worker can have had another catalog.
    pub first: bool,
    pub views: BTreeMap<ViewName, RecordedView>,
    /// Generations of items that are later than the recorded ones, as reported by workers: the record was lost, or
    /// restored from a backup.
    pub later_generations: BTreeMap<ViewName, u32>,
    /// The names in all catalogs that were ever recorded ([`Catalog::names`]).
    pub names: BTreeSet<String>,
    /// Archives, retentions and rules by owner; an owner is missing if none of its declarations was recorded.
    pub declarations: BTreeMap<CatalogOwner, Declarations>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedView {
    /// 1, then one more whenever the definition changed or the view was restored.
    pub generation: u32,
    pub definition: Definition,
    #[serde(serialize_with = "display")]
    pub source: Source,
    /// Tables by date that follow those of its source, or followed them under an earlier definition. They are dropped
    /// together.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", serialize_with = "texts")]
    pub followers: BTreeSet<DatedRef>,
    /// Accounts over which its items are spread, or were under its last definition; empty for one account.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub accounts: BTreeSet<AccountName>,
    /// The catalog no longer has it.
    pub retired: bool,
    /// The application that declares it.
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
    /// Whether the views of this owner are exactly those of the catalog.
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

    /// The generations of the catalog's views, the retired views, and the recorded names.
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
