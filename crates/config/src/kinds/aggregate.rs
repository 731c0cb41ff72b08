//! `kind = "aggregate"`

use super::view_section::{KeyedRows, set};
use super::{DeclaredKind, ViewSection};
use crate::views::ViewTables;
use evenkeel_model::catalog::{Aggregate, Figure, ViewKind};

/// The key that names the table of the groups.
const TABLE: &str = "group_table";

pub(super) fn read<T: ViewTables>(view: &ViewSection<'_, '_, T>) -> Option<DeclaredKind<T>> {
    let rows = view.rows(TABLE);
    view.refuse(&["on_conflict"], "a group takes every primary, so there are no conflicts");
    let set = set(view.section, "{ Headcount = \"count()\" }", str::parse::<Figure>);
    let KeyedRows { target, partition_key, row_key } = rows?;
    let kind = Aggregate { target, partition_key, row_key, set: set? };
    Some(DeclaredKind { table_key: TABLE, ..DeclaredKind::new(ViewKind::Aggregate(kind)) })
}
