//! `kind = "denormalize"`: values of a primary that are set as properties on one other entity.

use std::collections::BTreeMap;

use super::section::{DeclaredKind, KeyedRows, ViewSection};
use super::{Kind, denormalize_range};
use crate::catalog::definition::Definition;
use crate::catalog::form::{Form, RowForm};
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::template::Template;

/// `kind = "denormalize"`: values of a primary that are set as properties on an entity of another
/// owner.
#[derive(Debug, Clone)]
pub struct Denormalize<P = TargetRef> {
    /// The table of the entities.
    pub target: P,
    /// The entity's partition key.
    pub partition_key: Template,
    /// The entity's row key.
    pub row_key: Template,
    /// The templates of the properties, by name.
    pub set: BTreeMap<String, Template>,
}

impl<P> Kind<P> for Denormalize<P> {
    fn form(&self) -> Form<'_, P> {
        let rows = RowForm::of_others(&self.target, &self.partition_key, &self.row_key);
        Form::Properties {
            rows,
            set: &self.set,
        }
    }

    fn define(&self, keys: Definition, on_conflict: OnConflict) -> Definition {
        keys.with_map("set", &self.set).with_conflicts(on_conflict)
    }
}

placed! { Denormalize: partition_key, row_key, set }

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Targets {
    One,
    Range,
}

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    let words = [("one", Targets::One), ("range", Targets::Range)];
    let Ok(targets) = view.optional("targets", |view| view.one_of("targets", &words)) else {
        view.ignore_unknown_keys();
        return None;
    };
    if targets == Some(Targets::Range) {
        return denormalize_range::read(view);
    }
    let rows = view.rows("table");
    let set = view.properties("{ ManagerName = \"{FirstName} {LastName}\" }");
    let on_conflict = view.on_conflict();
    let KeyedRows {
        target,
        partition_key,
        row_key,
    } = rows?;
    let kind = Denormalize {
        target,
        partition_key,
        row_key,
        set: set?,
    };
    Some(DeclaredKind {
        on_conflict: on_conflict.ok()?,
        ..DeclaredKind::new(kind)
    })
}
