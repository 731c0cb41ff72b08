//! Where encrypted properties lie: sealed values are copied and archived as they are.

use std::collections::{BTreeMap, BTreeSet};

use super::{Catalog, Form};
use crate::model::TableName;

impl Catalog {
    /// The encrypted properties in the rows of each table, wherever rows are copied or archived to.
    pub fn sealed_properties(&self) -> BTreeMap<TableName, BTreeSet<String>> {
        let declared = self.encrypted.iter().map(|(table, names)| (table.table.clone(), names.clone()));
        let mut sealed: BTreeMap<TableName, BTreeSet<String>> = declared.collect();
        loop {
            let before = sealed.values().map(BTreeSet::len).sum::<usize>();
            for view in self.views.values() {
                let (Form::Copies { rows, select }, Some(names)) = (view.form(), sealed.get(&view.source.table)) else { continue };
                let copied = names.iter().filter(|name| select.is_none_or(|select| select.contains(name)));
                let copied: BTreeSet<String> = copied.cloned().collect();
                sealed.entry(rows.target.table.clone()).or_default().extend(copied);
            }
            for archive in self.archives.values() {
                if let (Some(target), Some(names)) = (archive.target.table(), sealed.get(&archive.source.table).cloned()) {
                    sealed.entry(target.table.clone()).or_default().extend(names);
                }
            }
            if sealed.values().map(BTreeSet::len).sum::<usize>() == before {
                return sealed;
            }
        }
    }
}
