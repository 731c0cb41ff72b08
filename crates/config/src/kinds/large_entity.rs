//! `kind = "large_entity"`

use std::collections::BTreeSet;

use super::view_section::own_property;
use super::{DeclaredKind, ViewSection};
use crate::section::Section;
use crate::views::ViewTables;
use evenkeel_model::catalog::{LargeEntity, TableRef, ViewKind};
use evenkeel_model::model::large::STAGING;
use evenkeel_model::model::units::parse_size;
use evenkeel_model::model::{AccountName, ContainerName};

/// Default threshold above which declared properties go into blobs: half of a property's capacity.
const DEFAULT_THRESHOLD: u64 = 32 << 10;

pub(super) fn read<T: ViewTables>(view: &ViewSection<'_, '_, T>) -> Option<DeclaredKind<T>> {
    view.of_one_table("kind", "no large_entity view")?;
    view.refuse(&["when"], "a value that has gone into a blob stays there, whatever becomes of its entity");
    view.refuse(&["on_conflict"], "blobs are named by their primaries, so there are no conflicts");
    let section = view.section;
    let account = view
        .account("a value is written by the job that brings it and stays where it was written: the pointer in its row names no account");
    let container = section.required("container", "the container of the blobs, such as \"employee-large\"", str::parse::<ContainerName>);
    if container.as_ref().is_some_and(|container| container.as_str() == STAGING) {
        section.error("container", format!("{STAGING} is where senders stage what is too large for a message; expected another one"));
    }
    let properties = section.optional("properties", properties);
    let threshold = section.optional("threshold", |section| section.measure("threshold", "a size such as \"32KiB\"", "B", parse_size));
    let spill = section.truth("spill") == Some(true);
    let named = account.ok()?;
    let kind = LargeEntity {
        account: named.clone().unwrap_or_else(AccountName::main),
        container: container?,
        properties: properties.ok()?.unwrap_or_default(),
        threshold: threshold.ok()?.unwrap_or(DEFAULT_THRESHOLD),
        spill,
    };
    let settle = if named.is_none() { Some(in_account_of as super::Settle) } else { None };
    Some(DeclaredKind { settle, ..DeclaredKind::new(ViewKind::LargeEntity(kind)) })
}

/// Blobs without an account of their own lie in their source's.
fn in_account_of(kind: ViewKind, source: &TableRef) -> ViewKind {
    match kind {
        ViewKind::LargeEntity(large) => ViewKind::LargeEntity(LargeEntity { account: source.account.clone(), ..large }),
        other => other,
    }
}

fn properties(section: &Section<'_>) -> Option<BTreeSet<String>> {
    let names = section.each("properties", |name| own_property(&name))?;
    Some(names.into_iter().collect())
}
