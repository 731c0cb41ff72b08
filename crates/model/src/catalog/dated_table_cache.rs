//! A cache of dated tables and their views. The configuration names only the patterns of dated
//! tables, so each table and its views are derived from the pattern when the table is first looked
//! up.

use std::fmt;
use std::sync::Arc;

use elsa::sync::FrozenMap;

use super::{TableRef, View};
use crate::TableName;

/// The dated tables that were looked up, and their views. The cache grows by a few entries per
/// period and never shrinks, so that references into the cache are valid as long as the catalog.
#[derive(Clone, Default)]
pub struct DatedTableCache(Arc<TableCache>);

#[derive(Default)]
struct TableCache {
    sources: FrozenMap<TableName, Box<TableRef>>,
    followers: FrozenMap<TableName, Box<TableRef>>,
    views: FrozenMap<TableName, Vec<Arc<View>>>,
}

impl DatedTableCache {
    pub(super) fn source(
        &self,
        name: &TableName,
        find: impl FnOnce() -> Option<TableRef>,
    ) -> Option<&TableRef> {
        cached(&self.0.sources, name, find)
    }

    pub(super) fn follower(
        &self,
        name: &TableName,
        find: impl FnOnce() -> Option<TableRef>,
    ) -> Option<&TableRef> {
        cached(&self.0.followers, name, find)
    }

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

fn cached<'k>(
    known: &'k FrozenMap<TableName, Box<TableRef>>,
    name: &TableName,
    find: impl FnOnce() -> Option<TableRef>,
) -> Option<&'k TableRef> {
    known
        .get(name)
        .or_else(|| Some(known.insert(name.clone(), Box::new(find()?))))
}

impl fmt::Debug for DatedTableCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.sources.keys_cloned())
            .entries(self.0.followers.keys_cloned())
            .finish()
    }
}
