//! `kind = "secondary_index"`: a copy of each primary under another key.

use std::collections::BTreeSet;

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::{Form, RowForm};
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::model::template::Template;

/// `kind = "secondary_index"`: a copy of each primary under another key, in the source's own partition or elsewhere.
#[derive(Debug, Clone)]
pub struct SecondaryIndex<P = TargetRef> {
    /// The table of the copies.
    pub target: P,
    /// The copy's partition key.
    pub partition_key: Template,
    /// The copy's row key.
    pub row_key: Template,
    /// The properties copied; all of the user's own where absent.
    pub select: Option<Vec<String>>,
}

impl<P> Kind<P> for SecondaryIndex<P> {
    fn name(&self) -> &'static str {
        "secondary_index"
    }

    fn form(&self) -> Form<'_, P> {
        let rows = RowForm { target: &self.target, partition_key: &self.partition_key, row_key: &self.row_key };
        Form::Copies { rows, select: self.select.as_deref() }
    }

    fn properties(&self) -> BTreeSet<&str> {
        self.select.iter().flatten().map(String::as_str).collect()
    }

    fn canonical(&self, on_conflict: OnConflict) -> String {
        format!("select {} {}", canonical::option(self.select.as_deref().map(canonical::list)), on_conflict.canonical())
    }
}

impl<P> SecondaryIndex<P> {
    /// The same kind with its target elsewhere.
    pub(super) fn map<Q>(&self, place: &dyn Fn(&P) -> Q) -> SecondaryIndex<Q> {
        SecondaryIndex {
            target: place(&self.target),
            partition_key: self.partition_key.clone(),
            row_key: self.row_key.clone(),
            select: self.select.clone(),
        }
    }
}
