//! `kind = "index_entity"` with `store = "blob"`

use super::{DeclaredKind, ViewSection};
use crate::views::ViewTables;
use evenkeel_model::catalog::{BlobLists, ViewKind};
use evenkeel_model::model::blob_path::BlobPath;
use evenkeel_model::model::{AccountName, ContainerName};

pub(super) fn read<T: ViewTables>(view: &ViewSection<'_, '_, T>) -> Option<DeclaredKind<T>> {
    view.of_one_table("store", "\"table\" or \"partition\"")?;
    view.refuse(&["on_conflict"], "a list takes every primary, so there are no conflicts");
    let keys = ["table", "partition_key", "row_key", "property"];
    view.refuse(&keys, "a list with store = \"blob\" is a blob, found by container and name");
    let member = view.member(&["PartitionKey", "RowKey"]);
    let accounts = view.accounts();
    let container = view.section.required("container", "the container of the lists", str::parse::<ContainerName>);
    let name = view.section.required("name", "a blob name of key templates, such as \"by_name/{LastName|lower}.jsonl\"", BlobPath::parse);
    let accounts = accounts.ok()?.unwrap_or_else(|| AccountName::main().into());
    Some(DeclaredKind::new(ViewKind::BlobLists(BlobLists { accounts, container: container?, name: name?, member: member? })))
}
