//! The catalog as a migration recorded it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Declarations, MigrationError, ViewAction, ViewChange, plan};
use evenkeel_model::catalog::{Catalog, DatedRef, Definition, Generations, Source};
use evenkeel_model::{AccountName, CatalogOwner, ETag, ViewName};

/// The catalog as the last migration recorded it, in the account `main`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogRecord {
    /// Rises with every recorded change; 0 where nothing was recorded yet.
    pub generation: u32,
    /// The version of the row that carries the number: the next change is conditional on it.
    pub etag: Option<ETag>,
    /// Whether nothing of ours was in the account before: no worker can have had another catalog.
    pub first: bool,
    /// Every view that was ever recorded.
    pub views: BTreeMap<ViewName, RecordedView>,
    /// Generations of items that workers met and that are later than the recorded ones: the record was lost, or restored from a copy.
    pub met: BTreeMap<ViewName, u32>,
    /// The names of all catalogs ever recorded ([`Catalog::names`]).
    pub names: BTreeSet<String>,
    /// Archives, retentions and rules as each owner's were recorded last; nothing of an owner without a record of them yet.
    pub declarations: BTreeMap<CatalogOwner, Declarations>,
}

/// A view as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedView {
    /// 1, then one more whenever the definition changed or the view came back.
    pub generation: u32,
    /// The keys of its section.
    pub definition: Definition,
    /// The source it has or had.
    #[serde(serialize_with = "display")]
    pub source: Source,
    /// Tables by date that follow those of its source, or followed them under an earlier definition: they are dropped with them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", serialize_with = "texts")]
    pub followers: BTreeSet<DatedRef>,
    /// The accounts among which its items are spread, or were under its last definition; none where they lie in one.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub accounts: BTreeSet<AccountName>,
    /// Whether the catalog no longer has it.
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
    /// Whether this is the record of a catalog: every view of the owner as the catalog declares it, and no other.
    pub fn fits(&self, catalog: &Catalog, owner: &CatalogOwner) -> Result<bool, MigrationError> {
        Ok(plan::view_changes(self, catalog, owner)?
            .iter()
            .all(|change| change.action == ViewAction::Overtaken))
    }

    /// Whether a view is recorded with this definition.
    pub(super) fn has(&self, view: &ViewName, definition: &Definition) -> bool {
        self.views
            .get(view)
            .is_some_and(|view| !view.retired && view.definition == *definition)
    }

    /// Whether a change of a view is recorded.
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

    /// The part of the record that a catalog needs: the generations of its own views, which are gone, and names.
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
