//! Generations of views.
//!
//! `migrate up` records every definition of a view and numbers the definitions from 1. A footprint
//! lists each item with the generation of the view that derived the item. Therefore a worker with
//! an older catalog never drops items of a newer catalog, and the items of a view are dropped only
//! after a migration has recorded that the view was removed.

use std::collections::{BTreeMap, BTreeSet};

use super::{DatedRef, Source, TableRef};
use crate::dated::DatedTables;
use crate::{TableName, ViewName};

/// The recorded generations of views.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Generations {
    /// The generation of each view of this catalog. A view without an entry has generation 1.
    pub current: BTreeMap<ViewName, u32>,
    /// The views that a migration recorded as removed, each with its last generation and its
    /// source.
    pub retired: BTreeMap<ViewName, (u32, Source)>,
    /// The dated sources of views, each with the dated tables that follow the source now, or
    /// followed it in an earlier record.
    pub followed: Vec<(DatedRef, BTreeSet<DatedRef>)>,
    /// The names of all recorded catalogs ([`Catalog::names`](super::Catalog::names)).
    pub names: BTreeSet<String>,
}

/// What a worker may do with an item that a footprint lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewStatus {
    /// The catalog has the view, and the item's generation is not newer: keep the item up to date.
    Known,
    /// A migration recorded that the view was removed: drop the item.
    Retired,
    /// The view is unknown or the item's generation is newer, so this catalog is outdated: do not
    /// change the item.
    Newer,
}

impl Generations {
    /// The generation of a view of this catalog.
    pub fn of(&self, view: &ViewName) -> u32 {
        self.current.get(view).copied().unwrap_or(1)
    }

    /// What a worker may do with an item of this view and generation. `declared` is whether the
    /// catalog has the view.
    pub fn status(&self, view: &ViewName, generation: u32, declared: bool) -> ViewStatus {
        if declared && generation <= self.of(view) {
            ViewStatus::Known
        } else if self
            .retired
            .get(view)
            .is_some_and(|(last, _)| !declared && generation <= *last)
        {
            ViewStatus::Retired
        } else {
            ViewStatus::Newer
        }
    }

    pub(super) fn names_table(&self, table: &TableName) -> bool {
        let has = |tables: DatedTables| tables.period(table).is_some();
        let mut names = self
            .names
            .iter()
            .filter_map(|name| name.strip_prefix("table:"));
        names.any(|name| {
            name.eq_ignore_ascii_case(table.as_str()) || DatedTables::parse(name).is_ok_and(has)
        })
    }

    /// A table that was the source of a retired view. Items derived from this table may still
    /// exist.
    pub fn retired_table(&self, name: &TableName) -> Option<&TableRef> {
        self.retired.values().find_map(|(_, source)| match source {
            Source::Table(table) => (table.table == *name).then_some(table),
            Source::Dated(_) => None,
        })
    }

    /// Whether a retired view had this source.
    pub fn retired_source(&self, source: &TableRef) -> bool {
        self.retired.values().any(|(_, had)| had.has(source))
    }
}
