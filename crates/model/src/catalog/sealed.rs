//! Where encrypted properties lie: sealed values are copied and archived as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Archive, Catalog, TableRef, View};
use crate::condition::Condition;
use crate::item::Owner;
use crate::job::Primary;
use crate::{Entity, EntityKey, TableName};

impl Catalog {
    /// The entity that the encrypted values under a key are sealed for where no view has brought them, with where that lies: the entity
    /// itself, or the one that was archived from there. `None` where neither is of a table that encrypts. What a row says of itself counts
    /// for nothing: whoever may write it would choose whose values are shown as its own.
    pub fn home_of(&self, table: &TableRef, key: &EntityKey) -> Option<(&TableRef, Primary)> {
        let source = self.sealing_source(&table.table, self.archives.len())?;
        Some((
            source,
            Primary {
                table: source.table.clone(),
                key: key.clone(),
            },
        ))
    }

    /// The table that encrypts, of those whose entities come to lie in this one: itself, or the source of an archive, of an archive of that
    /// archive, and so on.
    fn sealing_source(&self, name: &TableName, deep: usize) -> Option<&TableRef> {
        let itself = self
            .table(name)
            .filter(|table| self.encrypted.contains_key(table));
        let into_it = |archive: &&Arc<Archive>| {
            archive
                .target
                .table()
                .is_some_and(|target| target.table == *name)
        };
        let archived = || {
            self.archives
                .values()
                .filter(into_it)
                .find_map(|archive| self.sealing_source(&archive.source.table, deep - 1))
        };
        itself.or_else(|| if deep == 0 { None } else { archived() })
    }

    /// The properties that decide whether others are sealed; some may come twice.
    pub fn sealing_conditions(&self) -> impl Iterator<Item = &str> {
        self.encrypted_when.values().flat_map(Condition::selected)
    }

    /// The view that a row says to be a copy of, and the primary: of a view that copies to this table. Whether that primary has a copy under
    /// the row's key, the primary alone can tell.
    pub fn said_copy(&self, table: &TableRef, row: &Entity) -> Option<(&Arc<View>, Primary)> {
        let Owner { primary, view } = Owner::of(row)?;
        let view = self.view_in(&view, &table.table)?;
        let (rows, _) = view.form().copies()?;
        let is_of = rows.target.table == table.table && primary.table == view.source.table;
        is_of.then_some((view, primary))
    }

    /// The encrypted properties in the rows of each table, wherever rows are copied or archived to.
    pub fn sealed_properties(&self) -> BTreeMap<TableName, BTreeSet<String>> {
        let declared = self
            .encrypted
            .iter()
            .map(|(table, names)| (table.table.clone(), names.clone()));
        let mut sealed: BTreeMap<TableName, BTreeSet<String>> = declared.collect();
        loop {
            let before = sealed.values().map(BTreeSet::len).sum::<usize>();
            for view in self.views.values() {
                let (Some((rows, select)), Some(names)) =
                    (view.form().copies(), sealed.get(&view.source.table))
                else {
                    continue;
                };
                let copied = names
                    .iter()
                    .filter(|name| select.is_none_or(|select| select.contains(name)));
                let copied: BTreeSet<String> = copied.cloned().collect();
                sealed
                    .entry(rows.target.table.clone())
                    .or_default()
                    .extend(copied);
            }
            for archive in self.archives.values() {
                if let (Some(target), Some(names)) = (
                    archive.target.table(),
                    sealed.get(&archive.source.table).cloned(),
                ) {
                    sealed
                        .entry(target.table.clone())
                        .or_default()
                        .extend(names);
                }
            }
            if sealed.values().map(BTreeSet::len).sum::<usize>() == before {
                return sealed;
            }
        }
    }
}
