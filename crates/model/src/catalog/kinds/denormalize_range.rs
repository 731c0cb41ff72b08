//! `kind = "denormalize"` with `targets = "range"`: values of a primary that are set as properties
//! on all entities of a range.

use std::collections::BTreeMap;

use super::Kind;
use super::section::{DeclaredKind, ViewSection};
use crate::catalog::definition::Definition;
use crate::catalog::form::Form;
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::template::Template;

/// `kind = "denormalize"` with `targets = "range"`: values of a primary that are set as properties
/// on all entities of a partition, or on the entities in a range of its row keys.
#[derive(Debug, Clone)]
pub struct DenormalizeRange<P = TargetRef> {
    /// The table of the entities.
    pub target: P,
    /// The partition key of the entities.
    pub partition_key: Template,
    /// The range within the partition.
    pub rows: RangeRows,
    /// The templates of the properties, by name.
    pub set: BTreeMap<String, Template>,
}

/// The row keys of a range.
#[derive(Debug, Clone)]
pub enum RangeRows {
    /// All row keys of the partition.
    All,
    /// The row keys with a prefix.
    Prefix(Template),
    /// A half-open interval of row keys.
    Between {
        /// The first row key; open if absent.
        from: Option<Template>,
        /// The row key after the last one; open if absent.
        before: Option<Template>,
    },
}

impl<P> DenormalizeRange<P> {
    /// The templates of the partition key and of the range's ends, each with its key in the
    /// section.
    pub(in crate::catalog) fn keys(&self) -> Vec<(&'static str, &Template)> {
        let mut keys = vec![("partition_key", &self.partition_key)];
        match &self.rows {
            RangeRows::All => {}
            RangeRows::Prefix(prefix) => keys.push(("row_key_prefix", prefix)),
            RangeRows::Between { from, before } => {
                keys.extend(from.iter().map(|from| ("row_key_from", from)));
                keys.extend(before.iter().map(|before| ("row_key_before", before)));
            }
        }
        keys
    }
}

impl<P> Kind<P> for DenormalizeRange<P> {
    fn form(&self) -> Form<'_, P> {
        Form::RangeOverlays(self)
    }

    fn define(&self, keys: Definition, _: OnConflict) -> Definition {
        let keys = keys.with("targets", "range").with_map("set", &self.set);
        let ends = self.keys().into_iter();
        ends.fold(keys, |keys, (key, template)| keys.with(key, template))
    }
}

placed! { DenormalizeRange: partition_key, rows, set }

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    view.reject_dated_source("targets", "\"one\"")?;
    if view.has("row_key") {
        view.error("row_key", "targets = \"range\" covers many rows; expected row_key_prefix, row_key_from and row_key_before, or no row key for the whole partition");
    }
    if view.has("on_conflict") && view.one_of("on_conflict", &[("reject", ())]).is_none() {
        view.error("on_conflict", "if ranges overlap, the first primary keeps the entity; expected \"reject\" or no on_conflict");
    }
    let target = view.target_in_one_account(
        "table",
        "denormalize sets properties on your own entities, which are in one account",
    );
    let partition_key = view.required(
        "partition_key",
        "a key template, such as \"{PartitionKey}\"",
        Template::parse,
    );
    let key = |key| view.optional(key, |view| view.parsed(key, Template::parse));
    let (prefix, from, before) = (
        key("row_key_prefix"),
        key("row_key_from"),
        key("row_key_before"),
    );
    let set = view.properties("{ DepartmentName = \"{Name}\" }");
    let rows = match (prefix.ok()?, from.ok()?, before.ok()?) {
        (None, None, None) => RangeRows::All,
        (Some(prefix), None, None) => RangeRows::Prefix(prefix),
        (None, from, before) => RangeRows::Between { from, before },
        (Some(_), ..) => {
            view.error(
                "row_key_prefix",
                "expected either row_key_prefix or row_key_from and row_key_before, found both",
            );
            return None;
        }
    };
    Some(DeclaredKind::new(DenormalizeRange {
        target: target?,
        partition_key: partition_key?,
        rows,
        set: set?,
    }))
}
