//! `kind = "index_entity"`, but for `store = "blob"`

use super::view_section::{KeyedRows, own_property};
use super::{DeclaredKind, ViewSection, blob_lists};
use crate::section::Section;
use crate::views::ViewTables;
use evenkeel_model::catalog::{IndexEntity, ViewKind};

/// Where lists lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListStore {
    /// In a table, under any key.
    Table,
    /// In the source's table, each in the partition of its primaries.
    Partition,
    /// A blob each.
    Blob,
}

fn store(section: &Section<'_>) -> Option<ListStore> {
    if !section.has("store") {
        section.error("store", "missing; expected \"table\", \"partition\" or \"blob\"");
    }
    section.word("store", &[("table", ListStore::Table), ("partition", ListStore::Partition), ("blob", ListStore::Blob)])
}

pub(super) fn read<T: ViewTables>(view: &ViewSection<'_, '_, T>) -> Option<DeclaredKind<T>> {
    let store = store(view.section);
    if store == Some(ListStore::Blob) {
        return blob_lists::read(view);
    }
    let beside = store == Some(ListStore::Partition);
    let rows = if beside { view.rows_beside() } else { view.rows("table") };
    view.refuse(&["on_conflict"], "a list takes every primary, so there are no conflicts");
    // A list in the primary's own partition identifies that partition.
    let member = view.member(if beside { &["RowKey"][..] } else { &["PartitionKey", "RowKey"] });
    let property = view.section.required("property", "the name of the property that holds the list, such as \"Employees\"", own_property);
    store?;
    let KeyedRows { target, partition_key, row_key } = rows?;
    let kind = IndexEntity { target, partition_key, row_key, member: member?, property: property? };
    Some(DeclaredKind::new(ViewKind::IndexEntity(kind)))
}
