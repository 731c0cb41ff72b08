//! `kind = "secondary_index"`: a copy of each primary under another key.

use super::Kind;
use super::section::{DeclaredKind, KeyedRows, ViewSection};
use crate::catalog::definition::Definition;
use crate::catalog::form::{Form, RowForm};
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::template::Template;

/// `kind = "secondary_index"`: a copy of each primary under another key, in the primary's own
/// partition or elsewhere.
#[derive(Debug, Clone)]
pub struct SecondaryIndex<P = TargetRef> {
    /// The table of the copies.
    pub target: P,
    /// The copy's partition key.
    pub partition_key: Template,
    /// The copy's row key.
    pub row_key: Template,
    /// The copied properties; `None` to copy all properties except evenkeel's own.
    pub select: Option<Vec<String>>,
}

impl<P> Kind<P> for SecondaryIndex<P> {
    fn form(&self) -> Form<'_, P> {
        let rows = RowForm::new(&self.target, &self.partition_key, &self.row_key);
        Form::Copies {
            rows,
            select: self.select.as_deref(),
        }
    }

    fn define(&self, keys: Definition, on_conflict: OnConflict) -> Definition {
        let keys = keys.with_conflicts(on_conflict);
        match &self.select {
            Some(select) => keys.with_list("select", select),
            None => keys,
        }
    }
}

placed! { SecondaryIndex: partition_key, row_key, select }

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    let rows = view.rows("table");
    let select = view.optional("select", S::select);
    let on_conflict = view.on_conflict();
    let KeyedRows {
        target,
        partition_key,
        row_key,
    } = rows?;
    let kind = SecondaryIndex {
        target,
        partition_key,
        row_key,
        select: select.ok()?,
    };
    Some(DeclaredKind {
        on_conflict: on_conflict.ok()?,
        ..DeclaredKind::new(kind)
    })
}
