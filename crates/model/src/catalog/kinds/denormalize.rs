//! `kind = "denormalize"`: properties of a primary, kept on one other entity.

use std::collections::{BTreeMap, BTreeSet};

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::{Form, RowForm};
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::model::template::Template;

/// `kind = "denormalize"`: properties of a primary, kept on an entity that exists for other reasons.
#[derive(Debug, Clone)]
pub struct Denormalize<P = TargetRef> {
    /// The table of the entities.
    pub target: P,
    /// The entity's partition key.
    pub partition_key: Template,
    /// The entity's row key.
    pub row_key: Template,
    /// The properties, by name.
    pub set: BTreeMap<String, Template>,
}

impl<P> Kind<P> for Denormalize<P> {
    fn name(&self) -> &'static str {
        "denormalize"
    }

    fn form(&self) -> Form<'_, P> {
        let rows = RowForm { target: &self.target, partition_key: &self.partition_key, row_key: &self.row_key };
        Form::Properties { rows, set: &self.set }
    }

    fn properties(&self) -> BTreeSet<&str> {
        self.set.values().flat_map(Template::properties).collect()
    }

    fn canonical(&self, on_conflict: OnConflict) -> String {
        format!("set {} {}", canonical::map(&self.set), on_conflict.canonical())
    }
}

impl<P> Denormalize<P> {
    /// The same kind with its target elsewhere.
    pub(super) fn map<Q>(&self, place: &dyn Fn(&P) -> Q) -> Denormalize<Q> {
        Denormalize {
            target: place(&self.target),
            partition_key: self.partition_key.clone(),
            row_key: self.row_key.clone(),
            set: self.set.clone(),
        }
    }
}
