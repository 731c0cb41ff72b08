//! Finds the tables and properties that hold encrypted values. Encrypted values are copied and
//! archived unchanged, so they are also in the tables of copies and archives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Archive, Catalog, TableRef, View};
use crate::condition::Condition;
use crate::item::Owner;
use crate::job::Primary;
use crate::{Entity, EntityKey, TableName};

impl Catalog {
    /// Finds the primary to which the encrypted values of an entity belong. Returns the table of
    /// that primary, and the primary.
    ///
    /// If the entity's own table encrypts, the primary is the entity itself. Otherwise it is the
    /// entity that was archived to this key from a table that encrypts. `None` if there is no such
    /// table. Values that a view copied to this key are not considered.
    ///
    /// The owner that the row names is ignored. Otherwise anyone who can write the row could choose
    /// a primary, and the values of that primary would be shown as the row's own.
    pub fn encryption_owner(
        &self,
        table: &TableRef,
        key: &EntityKey,
    ) -> Option<(&TableRef, Primary)> {
        let source = self.encrypting_source(&table.table, self.archives.len())?;
        Some((
            source,
            Primary {
                table: source.table.clone(),
                key: key.clone(),
            },
        ))
    }

    /// The encrypting table whose entities are stored in the table `name`: that table itself, or
    /// the source of a chain of at most `deep` archives that ends in that table.
    fn encrypting_source(&self, name: &TableName, deep: usize) -> Option<&TableRef> {
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
                .find_map(|archive| self.encrypting_source(&archive.source.table, deep - 1))
        };
        itself.or_else(|| if deep == 0 { None } else { archived() })
    }

    /// The properties that decide whether other properties are encrypted. There may be duplicates.
    pub fn encryption_conditions(&self) -> impl Iterator<Item = &str> {
        self.encrypted_when.values().flat_map(Condition::selected)
    }

    /// The view and the primary that a row names as its origin, if the view copies to this table.
    /// The row may be forged. Only the primary's own row shows whether the primary has a copy at
    /// this key.
    pub fn claimed_copy(&self, table: &TableRef, row: &Entity) -> Option<(&Arc<View>, Primary)> {
        let Owner { primary, view } = Owner::of(row)?;
        let view = self.view_in(&view, &table.table)?;
        let (rows, _) = view.form().copies()?;
        let is_of = rows.target.table == table.table && primary.table == view.source.table;
        is_of.then_some((view, primary))
    }

    /// The encrypted properties of each table, including the tables to which rows are copied or
    /// archived.
    pub fn encrypted_properties(&self) -> BTreeMap<TableName, BTreeSet<String>> {
        let declared = self
            .encrypted
            .iter()
            .map(|(table, names)| (table.table.clone(), names.clone()));
        let mut encrypted: BTreeMap<TableName, BTreeSet<String>> = declared.collect();
        loop {
            let before = encrypted.values().map(BTreeSet::len).sum::<usize>();
            for view in self.views.values() {
                let (Some((rows, select)), Some(names)) =
                    (view.form().copies(), encrypted.get(&view.source.table))
                else {
                    continue;
                };
                let copied = names
                    .iter()
                    .filter(|name| select.is_none_or(|select| select.contains(name)));
                let copied: BTreeSet<String> = copied.cloned().collect();
                encrypted
                    .entry(rows.target.table.clone())
                    .or_default()
                    .extend(copied);
            }
            for archive in self.archives.values() {
                if let (Some(target), Some(names)) = (
                    archive.target.table(),
                    encrypted.get(&archive.source.table).cloned(),
                ) {
                    encrypted
                        .entry(target.table.clone())
                        .or_default()
                        .extend(names);
                }
            }
            if encrypted.values().map(BTreeSet::len).sum::<usize>() == before {
                return encrypted;
            }
        }
    }
}
