//! The kinds of views, as the configuration declares them: for each the keys of its section, their defaults and the words for mistakes.
//! One file per kind, and one line in [`registry`]. The kinds themselves are in [`catalog`](evenkeel_model::catalog).

mod aggregate;
mod blob_lists;
mod denormalize;
mod denormalize_range;
mod index_entity;
mod large_entity;
mod search_index;
mod secondary_index;
mod sql_table;
mod view_section;
mod webhook;

pub(super) use view_section::{ViewSection, own_property};

use super::section::Section;
use super::views::{Named, ViewTables};
use evenkeel_model::catalog::{OnConflict, TableRef, ViewKind};
use evenkeel_model::model::nearest::nearest;

/// A kind with its settings, as one section declares it.
pub(super) struct DeclaredKind<T> {
    pub(super) kind: ViewKind<Named<T>>,
    /// The answer to two primaries that want one key, where the section says one.
    pub(super) on_conflict: Option<OnConflict>,
    /// The key that names the table of its items.
    pub(super) table_key: &'static str,
    /// A default that depends on where its source lies.
    pub(super) settle: Option<Settle>,
}

/// Completes a kind by the place of its source.
pub(super) type Settle = fn(ViewKind, &TableRef) -> ViewKind;

/// Reads a section; nothing where there is a mistake in it, which is reported.
pub(super) type ReadKind<T> = fn(&ViewSection<'_, '_, T>) -> Option<DeclaredKind<T>>;

/// Every kind, by the value of `kind`.
const fn registry<T: ViewTables>() -> [(&'static str, ReadKind<T>); 8] {
    [
        ("secondary_index", secondary_index::read),
        ("index_entity", index_entity::read),
        ("denormalize", denormalize::read),
        ("aggregate", aggregate::read),
        ("large_entity", large_entity::read),
        ("search_index", search_index::read),
        ("sql_table", sql_table::read),
        ("webhook", webhook::read),
    ]
}

/// The kind that a section names; reports an unknown one.
pub(super) fn named<T: ViewTables>(section: &Section<'_>) -> Option<ReadKind<T>> {
    let kinds = registry::<T>();
    let list = kinds.iter().map(|(kind, _)| format!("{kind:?}")).collect::<Vec<_>>().join(" or ");
    let found = section.required_text("kind", &format!("a kind of view: {list}"))?;
    let kind = kinds.iter().find(|(kind, _)| *kind == found);
    if kind.is_none() {
        let hint = nearest(found, kinds.iter().map(|(kind, _)| *kind)).map(|known| format!("; did you mean {known:?}?"));
        section.error("kind", format!("expected {list}, found {found:?}{}", hint.unwrap_or_default()));
    }
    kind.map(|(_, read)| *read)
}

impl<T> DeclaredKind<T> {
    /// A kind whose table is named by the key `table`.
    pub(super) const fn new(kind: ViewKind<Named<T>>) -> Self {
        Self { kind, on_conflict: None, table_key: "table", settle: None }
    }
}
