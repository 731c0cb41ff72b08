//! `kind = "aggregate"`: an entity for each group, with figures of its members.

use std::collections::{BTreeMap, BTreeSet};

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::figure::{self, Figure};
use crate::catalog::form::{Form, Members, RowForm};
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::model::template::Template;

/// `kind = "aggregate"`: an entity for each group, with figures of its members.
#[derive(Debug, Clone)]
pub struct Aggregate<P = TargetRef> {
    /// The table of the groups.
    pub target: P,
    /// A group's partition key.
    pub partition_key: Template,
    /// A group's row key.
    pub row_key: Template,
    /// The figures, by the names of their properties.
    pub set: BTreeMap<String, Figure>,
}

impl<P> Kind<P> for Aggregate<P> {
    fn name(&self) -> &'static str {
        "aggregate"
    }

    fn form(&self) -> Form<'_, P> {
        let rows = RowForm { target: &self.target, partition_key: &self.partition_key, row_key: &self.row_key };
        Form::Lists { rows, members: Members::Contributions(&self.set) }
    }

    fn properties(&self) -> BTreeSet<&str> {
        figure::properties(&self.set)
    }

    fn canonical(&self, on_conflict: OnConflict) -> String {
        format!("set {} {}", canonical::map(&self.set), on_conflict.canonical())
    }
}

impl<P> Aggregate<P> {
    /// The same kind with its target elsewhere.
    pub(super) fn map<Q>(&self, place: &dyn Fn(&P) -> Q) -> Aggregate<Q> {
        Aggregate {
            target: place(&self.target),
            partition_key: self.partition_key.clone(),
            row_key: self.row_key.clone(),
            set: self.set.clone(),
        }
    }
}
