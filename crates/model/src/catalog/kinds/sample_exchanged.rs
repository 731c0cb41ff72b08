//! `kind = "sample_exchanged"`: a copy of each primary, with partition key and row key exchanged.
//! This is a sample of a kind, in test builds only.

use super::Kind;
use super::section::{DeclaredKind, ViewSection};
use crate::catalog::definition::Definition;
use crate::catalog::form::{Form, RowForm};
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::template::Template;

/// `kind = "sample_exchanged"`: a copy of each primary in another table, with partition key and row
/// key exchanged.
#[derive(Debug, Clone)]
pub struct ExchangedKeys<P = TargetRef> {
    /// The table of the copies.
    pub target: P,
    /// The template `{RowKey}`.
    partition_key: Template,
    /// The template `{PartitionKey}`.
    row_key: Template,
}

impl<P> Kind<P> for ExchangedKeys<P> {
    fn form(&self) -> Form<'_, P> {
        let rows = RowForm::new(&self.target, &self.partition_key, &self.row_key);
        Form::Copies { rows, select: None }
    }

    fn define(&self, keys: Definition, on_conflict: OnConflict) -> Definition {
        keys.with_conflicts(on_conflict)
    }
}

placed! { ExchangedKeys: partition_key, row_key }

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    let target = view.target("table");
    view.reject_keys(
        &["partition_key", "row_key"],
        "a copy has the keys of its primary, exchanged",
    );
    view.reject_keys(
        &["on_conflict"],
        "no two primaries have the same keys, so there are no conflicts",
    );
    let (partition_key, row_key) = (
        Template::parse("{RowKey}").ok()?,
        Template::parse("{PartitionKey}").ok()?,
    );
    Some(DeclaredKind::new(ExchangedKeys {
        target: target?,
        partition_key,
        row_key,
    }))
}
