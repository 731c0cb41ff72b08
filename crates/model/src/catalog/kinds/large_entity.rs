//! `kind = "large_entity"`: large values are stored in blobs, and the rows contain pointers
//! instead.

use std::collections::BTreeSet;

use super::section::{CompleteKind, DeclaredKind, ViewSection, own_property};
use super::{Kind, ViewKind};
use crate::catalog::definition::Definition;
use crate::catalog::form::Form;
use crate::catalog::place::TableRef;
use crate::catalog::view::OnConflict;
use crate::large::STAGING;
use crate::units::parse_size;
use crate::{AccountName, ContainerName};

/// `kind = "large_entity"`: large values are stored in blobs, and the rows contain pointers
/// instead. A table has at most one view of this kind, and the view includes all primaries of the
/// table.
#[derive(Debug, Clone)]
pub struct LargeEntity {
    /// The account of the container.
    pub account: AccountName,
    /// The container of the values.
    pub container: ContainerName,
    /// The properties whose values are moved to blobs if they exceed the threshold. A value that
    /// exceeds a limit of the service is moved to a blob in any case.
    pub properties: BTreeSet<String>,
    /// Threshold in bytes. The length of a string is its length in UTF-8.
    pub threshold: u64,
}

impl<P> Kind<P> for LargeEntity {
    fn form(&self) -> Form<'_, P> {
        Form::Values(self)
    }

    fn define(&self, keys: Definition, _: OnConflict) -> Definition {
        keys.with_list("properties", &self.properties)
            .with("threshold", format_args!("{}B", self.threshold))
    }
}

/// Default threshold in bytes: half of the 64 KiB that a property can hold.
const DEFAULT_THRESHOLD: u64 = 32 << 10;

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    view.reject_dated_source("kind", "no large_entity view")?;
    view.reject_keys(
        &["when"],
        "a value in a blob stays there even if a condition no longer holds",
    );
    view.reject_keys(
        &["on_conflict"],
        "blob names contain the keys of their primaries, so there are no conflicts",
    );
    let account =
        view.account("the pointer in a row names no account, so all values must be in one account");
    let container = view.required(
        "container",
        "the container of the blobs, such as \"employee-large\"",
        str::parse::<ContainerName>,
    );
    if container
        .as_ref()
        .is_some_and(|container| container.as_str() == STAGING)
    {
        view.error("container", format!("{STAGING} is reserved for data that is too large for a message; expected another container"));
    }
    let properties = view.optional("properties", properties);
    let threshold = view.optional("threshold", |view| {
        view.quantity("threshold", "a size such as \"32KiB\"", "B", parse_size)
    });
    let named = account.ok()?;
    let kind = LargeEntity {
        account: named.clone().unwrap_or_else(AccountName::main),
        container: container?,
        properties: properties.ok()?.unwrap_or_default(),
        threshold: threshold.ok()?.unwrap_or(DEFAULT_THRESHOLD),
    };
    let complete = if named.is_none() {
        Some(in_account_of as CompleteKind)
    } else {
        None
    };
    Some(DeclaredKind {
        complete,
        ..DeclaredKind::new(kind)
    })
}

/// Sets the account of the blobs, if none is configured, to the account of the source.
fn in_account_of(kind: ViewKind, source: &TableRef) -> ViewKind {
    match kind {
        ViewKind::LargeEntity(large) => ViewKind::LargeEntity(LargeEntity {
            account: source.account.clone(),
            ..large
        }),
        other => other,
    }
}

fn properties(view: &impl ViewSection) -> Option<BTreeSet<String>> {
    let names = view.list("properties", |name| own_property(&name))?;
    Some(names.into_iter().collect())
}
