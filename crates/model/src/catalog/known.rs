//! What no section names one by one: the tables of a retention and those that follow them, known by their patterns, and the
//! views of each.

use std::fmt;
use std::sync::Arc;

use elsa::sync::FrozenMap;

use super::{TableRef, View};
use crate::TableName;

/// The tables by date that somebody has named so far, and their views. It only grows, by what a period has at most, so that a
/// reference to one lives as long as the catalog.
#[derive(Clone, Default)]
pub struct DatedRefs(Arc<TableCache>);

#[derive(Default)]
struct TableCache {
    sources: FrozenMap<TableName, Box<TableRef>>,
    followers: FrozenMap<TableName, Box<TableRef>>,
    views: FrozenMap<TableName, Vec<Arc<View>>>,
}

impl DatedRefs {
    /// The table of this name, where it is one of a retention's.
    pub(super) fn source(
        &self,
        name: &TableName,
        find: impl FnOnce() -> Option<TableRef>,
    ) -> Option<&TableRef> {
        kept(&self.0.sources, name, find)
    }

    /// The table of this name, where it follows one of a retention's.
    pub(super) fn follower(
        &self,
        name: &TableName,
        find: impl FnOnce() -> Option<TableRef>,
    ) -> Option<&TableRef> {
        kept(&self.0.followers, name, find)
    }

    /// The views of a table of this pattern; none for a table of another.
    pub(super) fn views(
        &self,
        source: &TableRef,
        find: impl FnOnce() -> Vec<Arc<View>>,
    ) -> &[Arc<View>] {
        self.0
            .views
            .get(&source.table)
            .unwrap_or_else(|| self.0.views.insert(source.table.clone(), find()))
    }
}

fn kept<'k>(
    known: &'k FrozenMap<TableName, Box<TableRef>>,
    name: &TableName,
    find: impl FnOnce() -> Option<TableRef>,
) -> Option<&'k TableRef> {
    known
        .get(name)
        .or_else(|| Some(known.insert(name.clone(), Box::new(find()?))))
}

impl fmt::Debug for DatedRefs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.sources.keys_cloned())
            .entries(self.0.followers.keys_cloned())
            .finish()
    }
}
