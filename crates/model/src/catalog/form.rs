//! Forms of items: where and how a view's items are stored.

use std::collections::{BTreeMap, BTreeSet};

use super::aggregate_function::{self, AggregateFunction};
use super::clause::{Clauses, Fact, PropertyRead, Statement, Tables, WrittenPart, WrittenRows};
use super::definition::Definition;
use super::kinds::{BlobLists, DenormalizeRange, LargeEntity};
use super::place::{AccountSet, Place, TargetRef};
use crate::template::{Escaping, Template};
use crate::{AccountName, CollectionName, ColumnType};

/// The form of a view's items. Several kinds of views may have the same form.
#[derive(Debug)]
pub enum Form<'v, P = TargetRef> {
    /// A row for each primary: a copy that names the primary as its owner.
    Copies {
        /// The rows of the copies.
        rows: RowForm<'v, P>,
        /// The copied properties; `None` to copy all properties except evenkeel's own.
        select: Option<&'v [String]>,
    },
    /// A member of a list in a row. Several primaries have members in the same list.
    Lists {
        /// The rows of the lists.
        rows: RowForm<'v, P>,
        /// The members.
        members: Members<'v>,
    },
    /// A member of a list in a blob. Several primaries have members in the same list.
    BlobLists(&'v BlobLists),
    /// Blobs with large values of the primary.
    Values(&'v LargeEntity),
    /// Properties that are set on one row of another owner.
    Properties {
        /// The row.
        rows: RowForm<'v, P>,
        /// The properties, by name.
        set: &'v BTreeMap<String, Template>,
    },
    /// Properties that are set on all rows of a range. The rows belong to other owners.
    RangeOverlays(&'v DenormalizeRange<P>),
    /// A document in a sink (a search service, a database or a receiver of events).
    Documents(&'v Documents),
}

/// Documents of a sink: one for each primary, with a key that is made of the primary's keys.
#[derive(Debug, Clone)]
pub struct Documents {
    /// The sink.
    pub sink: AccountName,
    /// The index of a search service, the table of a database, or the topic of a receiver of
    /// events.
    pub collection: CollectionName,
    /// The fields, by name.
    pub fields: BTreeMap<String, Template>,
    /// The column types of a database table; empty for other sinks. Evenkeel creates the table with
    /// these types. In other sinks, a field that consists of one property keeps the type of that
    /// property.
    pub types: BTreeMap<String, ColumnType>,
}

/// The table and the keys of the rows that hold a view's items.
#[derive(Debug)]
pub struct RowForm<'v, P = TargetRef> {
    /// The table of the rows.
    pub target: &'v P,
    /// The partition key of a row.
    pub partition_key: &'v Template,
    /// The row key of a row.
    pub row_key: &'v Template,
    /// How values are escaped in the partition key and the row key.
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

    /// Rows that belong to other owners. Their keys escape only values that contain forbidden
    /// characters.
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
    /// The members are rendered from templates.
    Rendered {
        /// The parts of a member.
        templates: &'v [Template],
        /// The property that holds the list.
        property: &'v str,
    },
    /// The members of a group: the primary's keys, and the values from which the group's properties
    /// are aggregated.
    Contributions(&'v BTreeMap<String, AggregateFunction>),
}

impl<'v, P> Form<'v, P> {
    /// The rows that hold the items; `None` if the items are blobs, documents or properties of a
    /// range.
    pub fn rows(self) -> Option<RowForm<'v, P>> {
        match self {
            Self::Copies { rows, .. }
            | Self::Lists { rows, .. }
            | Self::Properties { rows, .. } => Some(rows),
            Self::BlobLists(_) | Self::Values(_) | Self::RangeOverlays(_) | Self::Documents(_) => {
                None
            }
        }
    }

    /// The rows of copies, and the copied properties. `None` for other forms.
    pub fn copies(self) -> Option<(RowForm<'v, P>, Option<&'v [String]>)> {
        match self {
            Self::Copies { rows, select } => Some((rows, select)),
            Self::Lists { .. }
            | Self::BlobLists(_)
            | Self::Values(_)
            | Self::Properties { .. }
            | Self::RangeOverlays(_)
            | Self::Documents(_) => None,
        }
    }

    /// Whether several primaries share one item, with a member for each primary. If primaries share
    /// no items, two of them may conflict over one key.
    pub const fn has_shared_items(&self) -> bool {
        match self {
            Self::Lists { .. } | Self::BlobLists(_) => true,
            Self::Copies { .. }
            | Self::Values(_)
            | Self::Properties { .. }
            | Self::RangeOverlays(_)
            | Self::Documents(_) => false,
        }
    }

    /// The table whose rows hold the items or receive the properties; `None` if the items are blobs
    /// or documents.
    pub fn target(self) -> Option<&'v P> {
        match self {
            Self::RangeOverlays(range) => Some(&range.target),
            other => other.rows().map(|rows| rows.target),
        }
    }

    /// The properties of the primary that the items contain. They may include `PartitionKey` and
    /// `RowKey`.
    pub fn properties(self) -> BTreeSet<&'v str> {
        match self {
            Self::Copies { select, .. } => {
                select.into_iter().flatten().map(String::as_str).collect()
            }
            Self::Values(large) => large.properties.iter().map(String::as_str).collect(),
            other => other.reads().iter().map(|read| read.property).collect(),
        }
    }

    /// The properties from which the items are computed, each with the key of the section that
    /// names the property. The result is empty for copies and large values, because they contain
    /// the primary's values unchanged.
    pub fn reads(self) -> Vec<PropertyRead<'v>> {
        match self {
            Self::Copies { .. } | Self::Values(_) => Vec::new(),
            Self::Lists {
                members: Members::Rendered { templates, .. },
                ..
            } => PropertyRead::computed("member", templates.iter().flat_map(Template::properties)),
            Self::Lists {
                members: Members::Contributions(set),
                ..
            } => PropertyRead::computed("set", aggregate_function::properties(set)),
            Self::BlobLists(BlobLists { member, name, .. }) => {
                let members = member.iter().flat_map(Template::properties);
                let mut reads = PropertyRead::computed("member", members);
                reads.extend(PropertyRead::computed("name", name.properties()));
                reads
            }
            Self::Properties { set, .. } => PropertyRead::templates("set", set.values()),
            Self::RangeOverlays(range) => {
                let mut reads = PropertyRead::templates("set", range.set.values());
                for (key, template) in range.keys() {
                    reads.extend(PropertyRead::computed(key, template.properties()));
                }
                reads
            }
            Self::Documents(Documents { fields, types, .. }) => {
                let key = if types.is_empty() {
                    "fields"
                } else {
                    "columns"
                };
                PropertyRead::templates(key, fields.values())
            }
        }
    }

    /// The table in which the view sets properties on rows of other owners, and the templates of
    /// these properties by name.
    pub fn set_properties(self) -> Option<(&'v P, &'v BTreeMap<String, Template>)> {
        match self {
            Self::Properties { rows, set } => Some((rows.target, set)),
            Self::RangeOverlays(range) => Some((&range.target, &range.set)),
            Self::Copies { .. }
            | Self::Lists { .. }
            | Self::BlobLists(_)
            | Self::Values(_)
            | Self::Documents(_) => None,
        }
    }
}

impl<'v> Form<'v> {
    /// The accounts of the rows or list blobs; `None` if the items are large values or documents.
    pub fn accounts(self) -> Option<&'v AccountSet> {
        match self {
            Self::BlobLists(lists) => Some(&lists.accounts),
            other => other.target().map(|target| &target.accounts),
        }
    }

    /// The accounts over which the items are spread; `None` if there is only one.
    pub fn spread(self) -> Option<&'v AccountSet> {
        self.accounts().filter(|accounts| accounts.is_spread())
    }
}

impl<P: Place> Form<'_, P> {
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
            Self::RangeOverlays(range) => keys.with("table", range.target.canonical()),
            Self::Values(large) => keys
                .with("account", &large.account)
                .with("container", &large.container),
            Self::Documents(documents) => keys.with("sink", &documents.sink),
        }
    }
}

impl<'v, P: Place> Form<'v, P> {
    fn written(&self, source: &Tables) -> Option<WrittenRows<'v>> {
        let (rows, part) = match self {
            Self::Copies { rows, .. } => (rows, WrittenPart::Copy),
            Self::Lists { rows, .. } => (rows, WrittenPart::List),
            Self::Properties { rows, set } => (rows, WrittenPart::Properties(set)),
            Self::RangeOverlays(range) => {
                let tables = range.target.tables();
                return Some(WrittenRows {
                    in_source_table: tables == *source,
                    tables,
                    keys: None,
                    part: WrittenPart::Properties(&range.set),
                });
            }
            Self::BlobLists(_) | Self::Values(_) | Self::Documents(_) => return None,
        };
        let tables = rows.target.tables();
        Some(WrittenRows {
            in_source_table: tables == *source,
            tables,
            keys: Some([rows.partition_key, rows.row_key]),
            part,
        })
    }

    /// Adds clauses about what a view of this form writes, owns and does not support. `key` is the
    /// key of the section that names the target.
    pub(super) fn clauses(self, source: &Tables, key: &'static str, clauses: &mut Clauses<'v>) {
        let view = clauses.by;
        if let Some(rows) = self.written(source) {
            let target = &rows.tables;
            clauses.is(target, Fact::Written);
            clauses.names(key, target);
            let why = "; expected a table that is not an archive";
            clauses.bars(key, target, Fact::Archive, why);
            if let WrittenPart::Properties(set) = rows.part {
                let why = "; denormalize needs a table in one account";
                clauses.bars(key, target, Fact::Spread, why);
                for name in set.keys() {
                    clauses.is(target, Fact::Kept(name.clone()));
                }
            }
            if !rows.in_source_table || matches!(rows.part, WrittenPart::Properties(_)) {
                let why = "; views cannot write to a wide table";
                clauses.bars(key, target, Fact::Wide, why);
            }
            if !rows.in_source_table && matches!(rows.part, WrittenPart::Copy) {
                clauses.copies_encrypted(key, source, target);
            }
            clauses.add(key, Statement::Writes(rows));
        }
        match self {
            Self::Copies { select: None, .. } => {
                let why = "; a copy is a single row, so name the properties to copy in select";
                clauses.bars("row_key", source, Fact::Wide, why).is_warning = true;
            }
            Self::BlobLists(lists) => {
                let (container, name) = (&lists.container, lists.name.as_str());
                let thing = format!("blobs {}/{container}/{name}", lists.accounts);
                let message = format!(
                    "{view} already writes these blobs to container {container}; expected another container or name"
                );
                clauses.owns(key, thing, message);
            }
            Self::Values(large) => {
                let message = format!(
                    "{view} already stores the large values of {source}; a table can have one large_entity view"
                );
                clauses.owns("source", format!("large values of {source}"), message);
                clauses.is(source, Fact::Large);
                for name in &large.properties {
                    clauses.is(source, Fact::Pointer(name.clone()));
                }
            }
            Self::Documents(documents) => {
                let place = format!("the {key} {} of {}", documents.collection, documents.sink);
                // A database table belongs to one view, because the view determines the columns.
                let (what, expected) = if documents.types.is_empty() {
                    let what = format!("the documents of {source} to {place}");
                    (what, format!("another {key}"))
                } else {
                    (place, format!("a {key} of its own"))
                };
                let message = format!("{view} already writes {what}; expected {expected}");
                clauses.owns(key, what, message);
            }
            Self::Copies { .. }
            | Self::Lists { .. }
            | Self::Properties { .. }
            | Self::RangeOverlays(_) => {}
        }
    }
}
