//! `kind = "index_entity"` with `store = "blob"`: a blob for each value, with the sorted list of
//! the primaries that have the value.

use super::Kind;
use super::section::{DeclaredKind, ViewSection};
use crate::blob_path::BlobPath;
use crate::catalog::definition::Definition;
use crate::catalog::form::Form;
use crate::catalog::place::AccountSet;
use crate::catalog::view::OnConflict;
use crate::template::Template;
use crate::{AccountName, ContainerName};

/// `kind = "index_entity"` with `store = "blob"`: a blob for each value, with the sorted list of
/// the primaries that have the value.
#[derive(Debug, Clone)]
pub struct BlobLists {
    /// The accounts of the container. The hash of a list's blob name selects the account of the
    /// list.
    pub accounts: AccountSet,
    /// The container of the lists.
    pub container: ContainerName,
    /// The blob name of a list.
    pub name: BlobPath,
    /// The templates of a member's parts. Each key of the primary is a separate part.
    pub member: Vec<Template>,
}

impl<P> Kind<P> for BlobLists {
    fn form(&self) -> Form<'_, P> {
        Form::BlobLists(self)
    }

    fn define(&self, keys: Definition, _: OnConflict) -> Definition {
        keys.with("store", "blob").with_list("member", &self.member)
    }

    fn target_key(&self) -> &'static str {
        "name"
    }
}

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    view.reject_dated_source("store", "\"table\" or \"partition\"")?;
    view.reject_keys(
        &["on_conflict"],
        "a list accepts every primary, so there are no conflicts",
    );
    let keys = ["table", "partition_key", "row_key", "property"];
    view.reject_keys(
        &keys,
        "with store = \"blob\" a list is found by container and name",
    );
    let member = view.member(&["PartitionKey", "RowKey"]);
    let accounts = view.accounts();
    let container = view.required(
        "container",
        "the container of the lists",
        str::parse::<ContainerName>,
    );
    let name = view.required(
        "name",
        "a blob name of key templates, such as \"by_name/{LastName|lower}.jsonl\"",
        BlobPath::parse,
    );
    let accounts = accounts.ok()?.unwrap_or_else(|| AccountName::main().into());
    Some(DeclaredKind::new(BlobLists {
        accounts,
        container: container?,
        name: name?,
        member: member?,
    }))
}
