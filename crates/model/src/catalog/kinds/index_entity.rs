//! `kind = "index_entity"`: an entity for each value, with the sorted list of the primaries that
//! have the value.

use super::section::{DeclaredKind, KeyedRows, ViewSection, own_property};
use super::{Kind, blob_lists};
use crate::catalog::definition::Definition;
use crate::catalog::form::{Form, Members, RowForm};
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::template::Template;

/// `kind = "index_entity"`: an entity for each value, with the sorted list of the primaries that
/// have the value.
#[derive(Debug, Clone)]
pub struct IndexEntity<P = TargetRef> {
    /// The table of the lists.
    pub target: P,
    /// A list's partition key.
    pub partition_key: Template,
    /// A list's row key.
    pub row_key: Template,
    /// The templates of a member's parts. Each key of the primary is a separate part. The partition
    /// key may be missing if the list is in the primary's own partition.
    pub member: Vec<Template>,
    /// The property that holds the list.
    pub property: String,
}

impl<P> Kind<P> for IndexEntity<P> {
    fn form(&self) -> Form<'_, P> {
        let rows = RowForm::new(&self.target, &self.partition_key, &self.row_key);
        Form::Lists {
            rows,
            members: Members::Rendered {
                templates: &self.member,
                property: &self.property,
            },
        }
    }

    fn define(&self, keys: Definition, _: OnConflict) -> Definition {
        // Members of a list in the primary's own partition may omit the partition key.
        let has_partition_key = self
            .member
            .iter()
            .any(|template| template.bare_property() == Some("PartitionKey"));
        let store = if has_partition_key {
            "table"
        } else {
            "partition"
        };
        keys.with("store", store)
            .with_list("member", &self.member)
            .with("property", &self.property)
    }
}

placed! { IndexEntity: partition_key, row_key, member, property }

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListStore {
    Table,
    /// The lists are in the source's table, each in the partition of its primaries.
    Partition,
    Blob,
}

fn store(view: &impl ViewSection) -> Option<ListStore> {
    if !view.has("store") {
        view.error(
            "store",
            "missing; expected \"table\", \"partition\" or \"blob\"",
        );
    }
    view.one_of(
        "store",
        &[
            ("table", ListStore::Table),
            ("partition", ListStore::Partition),
            ("blob", ListStore::Blob),
        ],
    )
}

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    let store = store(view);
    if store == Some(ListStore::Blob) {
        return blob_lists::read(view);
    }
    let beside = store == Some(ListStore::Partition);
    let rows = if beside {
        view.rows_in_source_partition()
    } else {
        view.rows("table")
    };
    view.reject_keys(
        &["on_conflict"],
        "a list accepts every primary, so there are no conflicts",
    );
    // A list with `store = "partition"` is in the partition of its primaries, so members need no
    // partition key.
    let member = view.member(if beside {
        &["RowKey"][..]
    } else {
        &["PartitionKey", "RowKey"]
    });
    let property = view.required(
        "property",
        "the name of the property that holds the list, such as \"Employees\"",
        own_property,
    );
    store?;
    let KeyedRows {
        target,
        partition_key,
        row_key,
    } = rows?;
    let kind = IndexEntity {
        target,
        partition_key,
        row_key,
        member: member?,
        property: property?,
    };
    Some(DeclaredKind::new(kind))
}
