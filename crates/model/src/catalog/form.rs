//! Forms of items: where a view's items are stored, and how.

use std::collections::{BTreeMap, BTreeSet};

use super::definition::Definition;
use super::figure::{self, Figure};
use super::kinds::{BlobLists, DenormalizeRange, LargeEntity};
use super::place::{AccountSet, Place, TargetRef};
use crate::template::{Escaping, Template};
use crate::{AccountName, CollectionName, ColumnType};

/// The form of a view's items. Several kinds may share one.
#[derive(Debug)]
pub enum Form<'v, P = TargetRef> {
    /// A row for each primary: a copy with the owner written on it.
    Copies {
        /// The copies.
        rows: RowForm<'v, P>,
        /// The properties copied; all of the user's own where absent.
        select: Option<&'v [String]>,
    },
    /// A member of a list in a row, shared with other primaries.
    Lists {
        /// The lists.
        rows: RowForm<'v, P>,
        /// The members.
        members: Members<'v>,
    },
    /// A member of a list in a blob, shared with other primaries.
    BlobLists(&'v BlobLists),
    /// Blobs with large values of the primary.
    Values(&'v LargeEntity),
    /// Properties on one row of somebody else.
    Properties {
        /// The row.
        rows: RowForm<'v, P>,
        /// The properties, by name.
        set: &'v BTreeMap<String, Template>,
    },
    /// A claim on a range of rows, all of which get the properties.
    Claims(&'v DenormalizeRange<P>),
    /// A document of a sink.
    Documents(&'v Documents),
}

/// Documents of a sink, one for each primary, under a key made of the primary's.
#[derive(Debug, Clone)]
pub struct Documents {
    /// The sink.
    pub sink: AccountName,
    /// The index of a search service, or the table of a database.
    pub collection: CollectionName,
    /// The fields, by name.
    pub fields: BTreeMap<String, Template>,
    /// Their types, where the collection is evenkeel's to make. Elsewhere a property by itself keeps its own.
    pub types: BTreeMap<String, ColumnType>,
}

/// Key and table of the rows that a view's items are, or are part of.
#[derive(Debug)]
pub struct RowForm<'v, P = TargetRef> {
    /// Their table.
    pub target: &'v P,
    /// Their partition key.
    pub partition_key: &'v Template,
    /// Their row key.
    pub row_key: &'v Template,
    /// How values stand in both.
    pub escaping: Escaping,
}

impl<'v, P> RowForm<'v, P> {
    pub(super) const fn new(
        target: &'v P,
        partition_key: &'v Template,
        row_key: &'v Template,
    ) -> Self {
        Self {
            target,
            partition_key,
            row_key,
            escaping: Escaping::Always,
        }
    }

    /// Rows that others have made.
    pub(super) const fn of_others(
        target: &'v P,
        partition_key: &'v Template,
        row_key: &'v Template,
    ) -> Self {
        Self {
            target,
            partition_key,
            row_key,
            escaping: Escaping::WhereForbidden,
        }
    }
}

/// The members of a list in a row.
#[derive(Debug)]
pub enum Members<'v> {
    /// Made of templates.
    Rendered {
        /// The parts of a member.
        templates: &'v [Template],
        /// The property that holds the list.
        property: &'v str,
    },
    /// A primary's keys and the values that the figures of the group are made of.
    Contributions(&'v BTreeMap<String, Figure>),
}

impl<'v, P> Form<'v, P> {
    /// The rows that the items are, or are part of; nothing where they are blobs, documents or claims.
    pub fn rows(self) -> Option<RowForm<'v, P>> {
        match self {
            Self::Copies { rows, .. }
            | Self::Lists { rows, .. }
            | Self::Properties { rows, .. } => Some(rows),
            Self::BlobLists(_) | Self::Values(_) | Self::Claims(_) | Self::Documents(_) => None,
        }
    }

    /// The table of the rows that the items are, are part of, or lie on; nothing where they are blobs or documents.
    pub fn target(self) -> Option<&'v P> {
        match self {
            Self::Claims(range) => Some(&range.target),
            other => other.rows().map(|rows| rows.target),
        }
    }

    /// The properties of the primary that the items are made of beside those of their keys. May repeat those.
    pub fn properties(self) -> BTreeSet<&'v str> {
        let all = |templates: Vec<&'v Template>| {
            templates
                .into_iter()
                .flat_map(Template::properties)
                .collect()
        };
        match self {
            Self::Copies { select, .. } => {
                select.into_iter().flatten().map(String::as_str).collect()
            }
            Self::Lists {
                members: Members::Rendered { templates, .. },
                ..
            } => all(templates.iter().collect()),
            Self::Lists {
                members: Members::Contributions(set),
                ..
            } => figure::properties(set),
            Self::BlobLists(lists) => lists
                .member
                .iter()
                .flat_map(Template::properties)
                .chain(lists.name.properties())
                .collect(),
            Self::Values(large) => large.properties.iter().map(String::as_str).collect(),
            Self::Properties { set, .. } => all(set.values().collect()),
            Self::Claims(range) => all(range
                .set
                .values()
                .chain([&range.partition_key])
                .chain(range.rows.templates())
                .collect()),
            Self::Documents(documents) => all(documents.fields.values().collect()),
        }
    }

    /// The properties of the primary that the items are computed from, beside those of their keys: not those that they have as they are.
    pub fn computed(self) -> BTreeSet<&'v str> {
        let composed = |templates: Vec<&'v Template>| -> BTreeSet<&'v str> {
            templates
                .into_iter()
                .filter(|template| template.bare_property().is_none())
                .flat_map(Template::properties)
                .collect()
        };
        match self {
            Self::Copies { .. } | Self::Values(_) => BTreeSet::new(),
            Self::Properties { set, .. } => composed(set.values().collect()),
            Self::Documents(documents) => composed(documents.fields.values().collect()),
            Self::Claims(range) => {
                let mut names = composed(range.set.values().collect());
                names.extend(
                    range
                        .rows
                        .templates()
                        .into_iter()
                        .chain([&range.partition_key])
                        .flat_map(Template::properties),
                );
                names
            }
            listed @ (Self::Lists { .. } | Self::BlobLists(_)) => listed.properties(),
        }
    }

    /// Whether the items have the primary's values as they are, where they have any: nothing is computed from them.
    pub const fn carries_values(&self) -> bool {
        matches!(self, Self::Copies { .. } | Self::Values(_))
    }

    /// The table of others' rows that properties are set on, and the properties by name.
    pub fn sets(self) -> Option<(&'v P, &'v BTreeMap<String, Template>)> {
        match self {
            Self::Properties { rows, set } => Some((rows.target, set)),
            Self::Claims(range) => Some((&range.target, &range.set)),
            Self::Copies { .. }
            | Self::Lists { .. }
            | Self::BlobLists(_)
            | Self::Values(_)
            | Self::Documents(_) => None,
        }
    }
}

impl<'v> Form<'v> {
    /// The accounts that rows and lists lie in; nothing where the items are large values or documents.
    pub fn accounts(self) -> Option<&'v AccountSet> {
        match self {
            Self::BlobLists(lists) => Some(&lists.accounts),
            other => other.target().map(|target| &target.accounts),
        }
    }

    /// The accounts among which the items are spread; nothing where they lie in one.
    pub fn spread(self) -> Option<&'v AccountSet> {
        self.accounts().filter(|accounts| accounts.is_spread())
    }
}

impl<P: Place> Form<'_, P> {
    /// Adds the place and the keys to a definition.
    pub(super) fn define(&self, keys: Definition) -> Definition {
        match self {
            Self::Copies { rows, .. }
            | Self::Lists { rows, .. }
            | Self::Properties { rows, .. } => {
                let keys = keys.with("table", rows.target.canonical());
                keys.with("partition_key", rows.partition_key)
                    .with("row_key", rows.row_key)
            }
            Self::BlobLists(lists) => {
                let keys = keys
                    .with("accounts", &lists.accounts)
                    .with("container", &lists.container);
                keys.with("name", lists.name.as_str())
            }
            Self::Claims(range) => keys
                .with("table", range.target.canonical())
                .with("partition_key", &range.partition_key),
            Self::Values(large) => keys
                .with("account", &large.account)
                .with("container", &large.container),
            Self::Documents(documents) => keys.with("sink", &documents.sink),
        }
    }
}
