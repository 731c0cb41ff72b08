//! `kind = "aggregate"`: an entity for each group of primaries, with values that are aggregated
//! from its members.

use std::collections::BTreeMap;

use super::Kind;
use super::section::{DeclaredKind, KeyedRows, ViewSection};
use crate::catalog::aggregate_function::AggregateFunction;
use crate::catalog::definition::Definition;
use crate::catalog::form::{Form, Members, RowForm};
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::template::Template;

/// `kind = "aggregate"`: an entity for each group of primaries, with values that are aggregated
/// from its members.
#[derive(Debug, Clone)]
pub struct Aggregate<P = TargetRef> {
    /// The table of the groups' entities.
    pub target: P,
    /// A group's partition key.
    pub partition_key: Template,
    /// A group's row key.
    pub row_key: Template,
    /// The aggregate functions, by the name of the property that holds the result.
    pub set: BTreeMap<String, AggregateFunction>,
}

impl<P> Kind<P> for Aggregate<P> {
    fn form(&self) -> Form<'_, P> {
        let rows = RowForm::new(&self.target, &self.partition_key, &self.row_key);
        Form::Lists {
            rows,
            members: Members::Contributions(&self.set),
        }
    }

    fn define(&self, keys: Definition, _: OnConflict) -> Definition {
        keys.with_map("set", &self.set)
    }

    fn target_key(&self) -> &'static str {
        TABLE
    }
}

placed! { Aggregate: partition_key, row_key, set }

const TABLE: &str = "group_table";

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    let rows = view.rows(TABLE);
    view.reject_keys(
        &["on_conflict"],
        "a group accepts every primary, so there are no conflicts",
    );
    let set = view.set(
        "{ Headcount = \"count()\" }",
        str::parse::<AggregateFunction>,
    );
    let KeyedRows {
        target,
        partition_key,
        row_key,
    } = rows?;
    let kind = Aggregate {
        target,
        partition_key,
        row_key,
        set: set?,
    };
    Some(DeclaredKind::new(kind))
}
