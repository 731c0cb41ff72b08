//! `kind = "denormalize"`, but for `targets = "range"`

use super::view_section::KeyedRows;
use super::{DeclaredKind, ViewSection, denormalize_range};
use crate::views::ViewTables;
use evenkeel_model::catalog::{Denormalize, ViewKind};

/// Number of entities that properties are set on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Targets {
    /// Those of one entity.
    One,
    /// Those of all entities of a range.
    Range,
}

pub(super) fn read<T: ViewTables>(view: &ViewSection<'_, '_, T>) -> Option<DeclaredKind<T>> {
    let words = [("one", Targets::One), ("range", Targets::Range)];
    let Ok(targets) = view.section.optional("targets", |section| section.word("targets", &words)) else {
        view.section.abandon();
        return None;
    };
    if targets == Some(Targets::Range) {
        return denormalize_range::read(view);
    }
    let rows = view.rows("table");
    let set = view.properties("{ ManagerName = \"{FirstName} {LastName}\" }");
    let on_conflict = view.on_conflict();
    let KeyedRows { target, partition_key, row_key } = rows?;
    let kind = Denormalize { target, partition_key, row_key, set: set? };
    Some(DeclaredKind { on_conflict: on_conflict.ok()?, ..DeclaredKind::new(ViewKind::Denormalize(kind)) })
}
