//! `kind = "index_entity"`: for each value an entity with the sorted list of the primaries that have it.

use std::collections::BTreeSet;

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::{Form, Members, RowForm};
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::model::template::Template;

/// `kind = "index_entity"`: an entity for each value, with the sorted list of the primaries that have it.
#[derive(Debug, Clone)]
pub struct IndexEntity<P = TargetRef> {
    /// The table of the lists.
    pub target: P,
    /// A list's partition key.
    pub partition_key: Template,
    /// A list's row key.
    pub row_key: Template,
    /// The parts of a member. The primary's keys are among them, each by itself; the row key alone where the list lies in the
    /// primary's own partition.
    pub member: Vec<Template>,
    /// The property that holds the list.
    pub property: String,
}

impl<P> Kind<P> for IndexEntity<P> {
    fn name(&self) -> &'static str {
        "index_entity"
    }

    fn form(&self) -> Form<'_, P> {
        let rows = RowForm { target: &self.target, partition_key: &self.partition_key, row_key: &self.row_key };
        Form::Lists { rows, members: Members::Rendered { templates: &self.member, property: &self.property } }
    }

    fn properties(&self) -> BTreeSet<&str> {
        self.member.iter().flat_map(Template::properties).collect()
    }

    fn canonical(&self, _: OnConflict) -> String {
        format!("member {} in {}", canonical::list(&self.member), self.property)
    }
}

impl<P> IndexEntity<P> {
    /// The same kind with its target elsewhere.
    pub(super) fn map<Q>(&self, place: &dyn Fn(&P) -> Q) -> IndexEntity<Q> {
        IndexEntity {
            target: place(&self.target),
            partition_key: self.partition_key.clone(),
            row_key: self.row_key.clone(),
            member: self.member.clone(),
            property: self.property.clone(),
        }
    }
}
