//! `kind = "denormalize"` with `targets = "range"`

use super::{DeclaredKind, ViewSection};
use crate::views::{Named, ViewTables};
use evenkeel_model::catalog::{AccountSet, DenormalizeRange, RangeRows, ViewKind};
use evenkeel_model::model::template::Template;

pub(super) fn read<T: ViewTables>(view: &ViewSection<'_, '_, T>) -> Option<DeclaredKind<T>> {
    view.of_one_table("targets", "\"one\"")?;
    let section = view.section;
    if section.has("row_key") {
        section.error("row_key", "with targets = \"range\" it is about many rows; expected row_key_prefix, or row_key_from and row_key_before, or none of them for the whole partition");
    }
    if section.has("on_conflict") && section.word("on_conflict", &[("reject", ())]).is_none() {
        section.error("on_conflict", "of several whose ranges overlap the first keeps an entity; expected \"reject\" or no such key");
    }
    let target = section.required("table", "the table of the entities", T::target);
    let account = view.account("its properties are set on entities of your own, which lie in one account");
    let partition_key = section.required("partition_key", "a key template, such as \"{PartitionKey}\"", Template::parse);
    let key = |key| section.optional(key, |section| section.parsed(key, Template::parse));
    let (prefix, from, before) = (key("row_key_prefix"), key("row_key_from"), key("row_key_before"));
    let set = view.properties("{ DepartmentName = \"{Name}\" }");
    let rows = match (prefix.ok()?, from.ok()?, before.ok()?) {
        (None, None, None) => RangeRows::All,
        (Some(prefix), None, None) => RangeRows::Prefix(prefix),
        (None, from, before) => RangeRows::Between { from, before },
        (Some(_), ..) => {
            section.error("row_key_prefix", "a prefix is a range by itself; expected no row_key_from and no row_key_before beside it");
            return None;
        }
    };
    let target = Named { tables: target?, accounts: account.ok()?.map(AccountSet::from) };
    Some(DeclaredKind::new(ViewKind::DenormalizeRange(DenormalizeRange { target, partition_key: partition_key?, rows, set: set? })))
}
