//! Tables that no section names one by one: those of a retention, known by their pattern.

use std::fmt;
use std::sync::Arc;

use elsa::sync::FrozenMap;

use super::{Retention, TableRef};
use crate::model::TableName;

/// The tables of retentions that somebody has named so far. It only grows, by a table a period at most, so that a
/// reference to one lives as long as the catalog.
#[derive(Clone, Default)]
pub struct DatedRefs(Arc<FrozenMap<TableName, Box<TableRef>>>);

impl DatedRefs {
    /// The table of this name, where it is one of a retention's.
    pub(super) fn table<'a>(&'a self, name: &TableName, mut retentions: impl Iterator<Item = &'a Arc<Retention>>) -> Option<&'a TableRef> {
        self.0.get(name).or_else(|| {
            let table = retentions.find_map(|retention| retention.table(name))?;
            Some(self.0.insert(name.clone(), Box::new(table)))
        })
    }
}

impl fmt::Debug for DatedRefs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys_cloned()).finish()
    }
}
