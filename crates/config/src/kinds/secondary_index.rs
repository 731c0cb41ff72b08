//! `kind = "secondary_index"`

use super::view_section::{KeyedRows, select};
use super::{DeclaredKind, ViewSection};
use crate::views::ViewTables;
use evenkeel_model::catalog::{SecondaryIndex, ViewKind};

pub(super) fn read<T: ViewTables>(view: &ViewSection<'_, '_, T>) -> Option<DeclaredKind<T>> {
    let rows = view.rows("table");
    let select = view.section.optional("select", select);
    let on_conflict = view.on_conflict();
    let KeyedRows { target, partition_key, row_key } = rows?;
    let kind = SecondaryIndex { target, partition_key, row_key, select: select.ok()? };
    Some(DeclaredKind { on_conflict: on_conflict.ok()?, ..DeclaredKind::new(ViewKind::SecondaryIndex(kind)) })
}
