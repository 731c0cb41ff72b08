//! Views: declared kinds of derived data.

use std::collections::{BTreeMap, BTreeSet};

use super::figure::Figure;
use crate::model::condition::Condition;
use crate::model::template::Template;
use crate::model::{AccountName, TableName, ViewName};

/// A table and the account it lies in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableRef {
    /// The account.
    pub account: AccountName,
    /// The table, spelled as declared.
    pub table: TableName,
}

impl std::fmt::Display for TableRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.account == AccountName::main() { write!(f, "{}", self.table) } else { write!(f, "{}:{}", self.account, self.table) }
    }
}

/// A declared kind of derived data.
#[derive(Debug, Clone)]
pub struct View {
    /// Its name.
    pub name: ViewName,
    /// The table of its primaries.
    pub source: TableRef,
    /// Which primaries have items; all where absent.
    pub when: Option<Condition>,
    /// What is derived.
    pub kind: ViewKind,
    /// What happens when two primaries want one key.
    pub on_conflict: OnConflict,
}

/// What a view derives.
#[derive(Debug, Clone)]
pub enum ViewKind {
    /// Copies under another key.
    SecondaryIndex(SecondaryIndex),
    /// Lists of primaries that share a value.
    IndexEntity(IndexEntity),
    /// Properties on other entities.
    Denormalize(Denormalize),
    /// Figures of groups.
    Aggregate(Aggregate),
}

/// `kind = "secondary_index"`: a copy of each primary under another key, in the source's own partition or elsewhere.
#[derive(Debug, Clone)]
pub struct SecondaryIndex {
    /// Where the copies lie.
    pub target: TableRef,
    /// The copy's partition key.
    pub partition_key: Template,
    /// The copy's row key.
    pub row_key: Template,
    /// The properties copied; all of the user's own where absent.
    pub select: Option<Vec<String>>,
}

/// `kind = "index_entity"`: an entity for each value, with the sorted list of the primaries that have it.
#[derive(Debug, Clone)]
pub struct IndexEntity {
    /// Where the lists lie.
    pub target: TableRef,
    /// A list's partition key.
    pub partition_key: Template,
    /// A list's row key.
    pub row_key: Template,
    /// What a member is made of. The primary's keys are among it, each by itself; the row key alone where the list lies in
    /// the primary's own partition.
    pub member: Vec<Template>,
    /// The property that holds the list.
    pub property: String,
}

/// `kind = "denormalize"`: properties of a primary, kept on an entity that is there for other reasons.
#[derive(Debug, Clone)]
pub struct Denormalize {
    /// Where the entities lie.
    pub target: TableRef,
    /// The entity's partition key.
    pub partition_key: Template,
    /// The entity's row key.
    pub row_key: Template,
    /// The properties, by name.
    pub set: BTreeMap<String, Template>,
}

/// `kind = "aggregate"`: an entity for each group, with figures of its members.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// Where the groups lie.
    pub target: TableRef,
    /// A group's partition key.
    pub partition_key: Template,
    /// A group's row key.
    pub row_key: Template,
    /// The figures, by the names of their properties.
    pub set: BTreeMap<String, Figure>,
}

impl Aggregate {
    /// The properties that members contribute, each once.
    pub fn properties(&self) -> BTreeSet<&str> {
        self.set.values().filter_map(Figure::property).collect()
    }
}

/// What happens when two primaries want one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// The first keeps it; the other's job is a permanent error that names the owner.
    #[default]
    Reject,
    /// The last one to be reconciled takes it over.
    LastWriter,
}

impl View {
    /// A text that changes exactly when the view's definition does.
    pub fn definition(&self) -> String {
        let when = self.when.as_ref().map(ToString::to_string).unwrap_or_default();
        match &self.kind {
            ViewKind::SecondaryIndex(index) => format!(
                "{} secondary_index {}/{} when {when} to {}/{} {:?} {:?} select {:?} {:?}",
                self.name,
                self.source.account,
                self.source.table.canonical(),
                index.target.account,
                index.target.table.canonical(),
                index.partition_key.to_string(),
                index.row_key.to_string(),
                index.select,
                self.on_conflict
            ),
            ViewKind::IndexEntity(index) => format!(
                "{} index_entity {}/{} when {when} to {}/{} {:?} {:?} member {:?} in {}",
                self.name,
                self.source.account,
                self.source.table.canonical(),
                index.target.account,
                index.target.table.canonical(),
                index.partition_key.to_string(),
                index.row_key.to_string(),
                index.member.iter().map(ToString::to_string).collect::<Vec<_>>(),
                index.property
            ),
            ViewKind::Denormalize(_) | ViewKind::Aggregate(_) => {
                let (target, (partition_key, row_key)) = (self.target(), self.keys());
                format!(
                    "{} {} {}/{} when {when} to {}/{} {:?} {:?} set {:?} {:?}",
                    self.name,
                    self.kind_name(),
                    self.source.account,
                    self.source.table.canonical(),
                    target.account,
                    target.table.canonical(),
                    partition_key.to_string(),
                    row_key.to_string(),
                    self.settings(),
                    self.on_conflict
                )
            }
        }
    }

    /// Where its items lie.
    pub const fn target(&self) -> &TableRef {
        match &self.kind {
            ViewKind::SecondaryIndex(index) => &index.target,
            ViewKind::IndexEntity(index) => &index.target,
            ViewKind::Denormalize(denormalize) => &denormalize.target,
            ViewKind::Aggregate(aggregate) => &aggregate.target,
        }
    }

    /// The partition key and the row key of its rows.
    pub const fn keys(&self) -> (&Template, &Template) {
        match &self.kind {
            ViewKind::SecondaryIndex(index) => (&index.partition_key, &index.row_key),
            ViewKind::IndexEntity(index) => (&index.partition_key, &index.row_key),
            ViewKind::Denormalize(denormalize) => (&denormalize.partition_key, &denormalize.row_key),
            ViewKind::Aggregate(aggregate) => (&aggregate.partition_key, &aggregate.row_key),
        }
    }

    /// What it sets, by name.
    fn settings(&self) -> BTreeMap<&str, String> {
        match &self.kind {
            ViewKind::SecondaryIndex(_) | ViewKind::IndexEntity(_) => BTreeMap::new(),
            ViewKind::Denormalize(denormalize) => denormalize.set.iter().map(|(name, set)| (name.as_str(), set.to_string())).collect(),
            ViewKind::Aggregate(aggregate) => aggregate.set.iter().map(|(name, set)| (name.as_str(), set.to_string())).collect(),
        }
    }

    /// The kind, as the configuration spells it.
    pub const fn kind_name(&self) -> &'static str {
        match self.kind {
            ViewKind::SecondaryIndex(_) => "secondary_index",
            ViewKind::IndexEntity(_) => "index_entity",
            ViewKind::Denormalize(_) => "denormalize",
            ViewKind::Aggregate(_) => "aggregate",
        }
    }
}
