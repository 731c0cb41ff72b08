//! Views: declared kinds of derived data.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::figure::Figure;
use super::place::{DatedRef, Place, TableRef};
use crate::model::blob_path::BlobPath;
use crate::model::condition::Condition;
use crate::model::template::Template;
use crate::model::{AccountName, CollectionName, ContainerName, ViewName};

/// A declared kind of derived data.
#[derive(Debug, Clone)]
pub struct View<P = TableRef> {
    /// Its name.
    pub name: ViewName,
    /// The table of its primaries.
    pub source: P,
    /// Which primaries have items; all where absent.
    pub when: Option<Condition>,
    /// What is derived.
    pub kind: ViewKind<P>,
    /// What happens when two primaries want one key.
    pub on_conflict: OnConflict,
}

/// What a view derives.
#[derive(Debug, Clone)]
pub enum ViewKind<P = TableRef> {
    /// Copies under another key.
    SecondaryIndex(SecondaryIndex<P>),
    /// Lists of primaries that share a value, in rows.
    IndexEntity(IndexEntity<P>),
    /// Lists of primaries that share a value, in blobs.
    BlobLists(BlobLists),
    /// Large values in blobs.
    LargeEntity(LargeEntity),
    /// Properties on other entities.
    Denormalize(Denormalize<P>),
    /// Properties on all entities of a range.
    DenormalizeRange(DenormalizeRange<P>),
    /// Figures of groups.
    Aggregate(Aggregate<P>),
    /// Documents of a search service.
    SearchIndex(SearchIndex),
}

/// `kind = "secondary_index"`: a copy of each primary under another key, in the source's own partition or elsewhere.
#[derive(Debug, Clone)]
pub struct SecondaryIndex<P = TableRef> {
    /// Where the copies lie.
    pub target: P,
    /// The copy's partition key.
    pub partition_key: Template,
    /// The copy's row key.
    pub row_key: Template,
    /// The properties copied; all of the user's own where absent.
    pub select: Option<Vec<String>>,
}

/// `kind = "index_entity"`: an entity for each value, with the sorted list of the primaries that have it.
#[derive(Debug, Clone)]
pub struct IndexEntity<P = TableRef> {
    /// Where the lists lie.
    pub target: P,
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

/// `kind = "index_entity"` with `store = "blob"`: a blob for each value, with the sorted list of the primaries that have it.
#[derive(Debug, Clone)]
pub struct BlobLists {
    /// The account that the lists lie in.
    pub account: AccountName,
    /// Their container.
    pub container: ContainerName,
    /// A list's name.
    pub name: BlobPath,
    /// What a member is made of. The primary's keys are among it, each by itself.
    pub member: Vec<Template>,
}

/// `kind = "large_entity"`: large values in blobs, with pointers in their place. A table has at most one such view, and every
/// primary of the table is in it.
#[derive(Debug, Clone)]
pub struct LargeEntity {
    /// The account that the blobs lie in.
    pub account: AccountName,
    /// Their container.
    pub container: ContainerName,
    /// The properties whose values go there when they are above the threshold. (Whatever would break a limit of the service
    /// goes there in any case.)
    pub properties: BTreeSet<String>,
    /// In bytes: of UTF-8 for a string.
    pub threshold: u64,
    /// Whether half of an entity's properties go into one blob together when there are more than its row takes.
    pub spill: bool,
}

/// `kind = "search_index"`: a document of a search service for each primary, under a key made of the primary's.
#[derive(Debug, Clone)]
pub struct SearchIndex {
    /// The search service.
    pub sink: AccountName,
    /// The index.
    pub index: CollectionName,
    /// The fields, by name. A property by itself keeps its type, whatever else is text.
    pub fields: BTreeMap<String, Template>,
}

/// The rows that a view's items are, or lie in.
#[derive(Debug)]
pub struct Rows<'v, P = TableRef> {
    /// Their table.
    pub target: &'v P,
    /// Their partition key.
    pub partition_key: &'v Template,
    /// Their row key.
    pub row_key: &'v Template,
}

/// `kind = "denormalize"`: properties of a primary, kept on an entity that is there for other reasons.
#[derive(Debug, Clone)]
pub struct Denormalize<P = TableRef> {
    /// Where the entities lie.
    pub target: P,
    /// The entity's partition key.
    pub partition_key: Template,
    /// The entity's row key.
    pub row_key: Template,
    /// The properties, by name.
    pub set: BTreeMap<String, Template>,
}

/// `kind = "denormalize"` with `targets = "range"`: properties of a primary, kept on all entities of a partition, or of a range of
/// its row keys.
#[derive(Debug, Clone)]
pub struct DenormalizeRange<P = TableRef> {
    /// Where the entities lie.
    pub target: P,
    /// The partition key of the entities.
    pub partition_key: Template,
    /// Which of the partition.
    pub rows: RangeRows,
    /// The properties, by name.
    pub set: BTreeMap<String, Template>,
}

/// Which entities of a partition a range has.
#[derive(Debug, Clone)]
pub enum RangeRows {
    /// All of them.
    All,
    /// Those whose row keys begin so.
    Prefix(Template),
    /// Those from a row key on, and before another.
    Between {
        /// The first; open where absent.
        from: Option<Template>,
        /// The one behind the last; open where absent.
        before: Option<Template>,
    },
}

impl std::fmt::Display for RangeRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |template: &Option<Template>| {
            template.as_ref().map_or_else(|| "open".to_owned(), |template| format!("{:?}", template.to_string()))
        };
        match self {
            Self::All => f.write_str("all"),
            Self::Prefix(prefix) => write!(f, "prefix {:?}", prefix.to_string()),
            Self::Between { from, before } => write!(f, "from {} before {}", text(from), text(before)),
        }
    }
}

/// `kind = "aggregate"`: an entity for each group, with figures of its members.
#[derive(Debug, Clone)]
pub struct Aggregate<P = TableRef> {
    /// Where the groups lie.
    pub target: P,
    /// A group's partition key.
    pub partition_key: Template,
    /// A group's row key.
    pub row_key: Template,
    /// The figures, by the names of their properties.
    pub set: BTreeMap<String, Figure>,
}

impl<P> Aggregate<P> {
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

impl<P: Place> View<P> {
    /// A text that changes exactly when the view's definition does.
    pub fn definition(&self) -> String {
        let when = self.when.as_ref().map(ToString::to_string).unwrap_or_default();
        let own = match &self.kind {
            ViewKind::SecondaryIndex(index) => format!("select {:?} {:?}", index.select, self.on_conflict),
            ViewKind::IndexEntity(index) => format!("member {:?} in {}", member(&index.member), index.property),
            ViewKind::BlobLists(lists) => format!("member {:?}", member(&lists.member)),
            ViewKind::LargeEntity(large) => {
                let spilling = if large.spill { " spilling" } else { "" };
                format!("properties {:?} above {}{spilling}", large.properties, large.threshold)
            }
            ViewKind::Denormalize(denormalize) => format!("set {:?} {:?}", texts(&denormalize.set), self.on_conflict),
            ViewKind::DenormalizeRange(range) => format!("set {:?}", texts(&range.set)),
            ViewKind::Aggregate(aggregate) => format!("set {:?} {:?}", texts(&aggregate.set), self.on_conflict),
            ViewKind::SearchIndex(search) => format!("fields {:?}", texts(&search.fields)),
        };
        let place = match (self.rows(), &self.kind) {
            (Some(Rows { target, partition_key, row_key }), _) => {
                format!("{} {:?} {:?}", target.canonical(), partition_key.to_string(), row_key.to_string())
            }
            (None, ViewKind::BlobLists(lists)) => format!("blob {}/{} {:?}", lists.account, lists.container, lists.name.as_str()),
            (None, ViewKind::DenormalizeRange(DenormalizeRange { target, partition_key, rows, .. })) => {
                format!("range {} {:?} {rows}", target.canonical(), partition_key.to_string())
            }
            (None, ViewKind::LargeEntity(large)) => format!("blob {}/{}", large.account, large.container),
            (None, ViewKind::SearchIndex(search)) => format!("index {}/{}", search.sink, search.index),
            (None, _) => String::new(),
        };
        format!("{} {} {} when {when} to {place} {own}", self.name, self.kind_name(), self.source.canonical())
    }
}

impl<P> View<P> {
    /// The rows that its items are, or lie in; nothing where they are blobs, or lie in some.
    pub const fn rows(&self) -> Option<Rows<'_, P>> {
        let (target, partition_key, row_key) = match &self.kind {
            ViewKind::SecondaryIndex(index) => (&index.target, &index.partition_key, &index.row_key),
            ViewKind::IndexEntity(index) => (&index.target, &index.partition_key, &index.row_key),
            ViewKind::Denormalize(denormalize) => (&denormalize.target, &denormalize.partition_key, &denormalize.row_key),
            ViewKind::Aggregate(aggregate) => (&aggregate.target, &aggregate.partition_key, &aggregate.row_key),
            ViewKind::BlobLists(_) | ViewKind::DenormalizeRange(_) | ViewKind::LargeEntity(_) | ViewKind::SearchIndex(_) => return None,
        };
        Some(Rows { target, partition_key, row_key })
    }

    /// The range on whose entities it keeps properties, where it does.
    pub const fn range(&self) -> Option<&DenormalizeRange<P>> {
        match &self.kind {
            ViewKind::DenormalizeRange(range) => Some(range),
            _ => None,
        }
    }

    /// The properties that it has to see in a primary's row, PartitionKey and RowKey among them where it names those.
    pub fn properties(&self) -> BTreeSet<&str> {
        let mut names = self.when.as_ref().map(Condition::properties).unwrap_or_default();
        let rows = self.rows().into_iter().flat_map(|rows| [rows.partition_key, rows.row_key]);
        let own: Vec<&Template> = match &self.kind {
            ViewKind::SecondaryIndex(_) | ViewKind::LargeEntity(_) | ViewKind::Aggregate(_) => Vec::new(),
            ViewKind::IndexEntity(index) => index.member.iter().collect(),
            ViewKind::BlobLists(lists) => lists.member.iter().collect(),
            ViewKind::SearchIndex(search) => search.fields.values().collect(),
            ViewKind::Denormalize(denormalize) => denormalize.set.values().collect(),
            ViewKind::DenormalizeRange(range) => {
                let ends = match &range.rows {
                    RangeRows::All => Vec::new(),
                    RangeRows::Prefix(prefix) => vec![prefix],
                    RangeRows::Between { from, before } => from.iter().chain(before).collect(),
                };
                range.set.values().chain([&range.partition_key]).chain(ends).collect()
            }
        };
        names.extend(rows.chain(own).flat_map(Template::properties));
        match &self.kind {
            ViewKind::SecondaryIndex(index) => names.extend(index.select.iter().flatten().map(String::as_str)),
            ViewKind::LargeEntity(large) => names.extend(large.properties.iter().map(String::as_str)),
            ViewKind::Aggregate(aggregate) => names.extend(aggregate.properties()),
            ViewKind::BlobLists(lists) => names.extend(lists.name.properties()),
            ViewKind::IndexEntity(_) | ViewKind::Denormalize(_) | ViewKind::DenormalizeRange(_) | ViewKind::SearchIndex(_) => {}
        }
        names
    }

    /// The table on whose entities it keeps properties, and their names.
    pub fn sets(&self) -> Option<(&P, impl Iterator<Item = &String>)> {
        match &self.kind {
            ViewKind::Denormalize(denormalize) => Some((&denormalize.target, denormalize.set.keys())),
            ViewKind::DenormalizeRange(range) => Some((&range.target, range.set.keys())),
            _ => None,
        }
    }

    /// The kind, as the configuration spells it.
    pub const fn kind_name(&self) -> &'static str {
        match self.kind {
            ViewKind::SecondaryIndex(_) => "secondary_index",
            ViewKind::IndexEntity(_) | ViewKind::BlobLists(_) => "index_entity",
            ViewKind::LargeEntity(_) => "large_entity",
            ViewKind::Denormalize(_) | ViewKind::DenormalizeRange(_) => "denormalize",
            ViewKind::Aggregate(_) => "aggregate",
            ViewKind::SearchIndex(_) => "search_index",
        }
    }
}

impl View<DatedRef> {
    /// The view as it is of the tables of the period that a moment lies in.
    pub fn at(&self, moment: Timestamp) -> View {
        let at = |tables: &DatedRef| tables.at(moment);
        let Self { name, when, on_conflict, .. } = self;
        let kind = match self.kind.clone() {
            ViewKind::SecondaryIndex(SecondaryIndex { target, partition_key, row_key, select }) => {
                ViewKind::SecondaryIndex(SecondaryIndex { target: at(&target), partition_key, row_key, select })
            }
            ViewKind::IndexEntity(IndexEntity { target, partition_key, row_key, member, property }) => {
                ViewKind::IndexEntity(IndexEntity { target: at(&target), partition_key, row_key, member, property })
            }
            ViewKind::BlobLists(lists) => ViewKind::BlobLists(lists),
            ViewKind::LargeEntity(large) => ViewKind::LargeEntity(large),
            ViewKind::SearchIndex(search) => ViewKind::SearchIndex(search),
            ViewKind::Denormalize(Denormalize { target, partition_key, row_key, set }) => {
                ViewKind::Denormalize(Denormalize { target: at(&target), partition_key, row_key, set })
            }
            ViewKind::DenormalizeRange(DenormalizeRange { target, partition_key, rows, set }) => {
                ViewKind::DenormalizeRange(DenormalizeRange { target: at(&target), partition_key, rows, set })
            }
            ViewKind::Aggregate(Aggregate { target, partition_key, row_key, set }) => {
                ViewKind::Aggregate(Aggregate { target: at(&target), partition_key, row_key, set })
            }
        };
        View { name: name.clone(), source: at(&self.source), when: when.clone(), kind, on_conflict: *on_conflict }
    }
}

/// What members are made of, as the configuration spells it.
fn member(templates: &[Template]) -> Vec<String> {
    templates.iter().map(ToString::to_string).collect()
}

/// What a view sets, by name, as the configuration spells it.
fn texts<T: ToString>(set: &BTreeMap<String, T>) -> BTreeMap<&str, String> {
    set.iter().map(|(name, set)| (name.as_str(), set.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TableName;

    fn table(name: &str) -> TableRef {
        TableRef { account: AccountName::main(), table: TableName::new(name).unwrap() }
    }

    fn template(text: &str) -> Template {
        Template::parse(text).unwrap()
    }

    fn definition(kind: ViewKind) -> String {
        let when = Some(Condition::parse("exists(Email)").unwrap());
        View { name: ViewName::new("v").unwrap(), source: table("Employees"), when, kind, on_conflict: OnConflict::Reject }.definition()
    }

    /// Migrations record a hash of it: another text for an old definition would be taken for a changed view.
    #[test]
    fn the_text_of_a_definition_stays_as_it_was_recorded() {
        let (target, partition_key, row_key) = (table("Target"), template("p_{PartitionKey}"), template("{Email|lower}"));
        let index = SecondaryIndex {
            target: target.clone(),
            partition_key: partition_key.clone(),
            row_key: row_key.clone(),
            select: Some(vec!["Email".to_owned()]),
        };
        assert_eq!(
            definition(ViewKind::SecondaryIndex(index)),
            r#"v secondary_index main/employees when exists(Email) to main/target "p_{PartitionKey}" "{Email|lower}" select Some(["Email"]) Reject"#
        );
        let index = IndexEntity {
            target: target.clone(),
            partition_key: partition_key.clone(),
            row_key: row_key.clone(),
            member: vec![template("{PartitionKey}"), template("{RowKey}")],
            property: "Employees".to_owned(),
        };
        assert_eq!(
            definition(ViewKind::IndexEntity(index)),
            r#"v index_entity main/employees when exists(Email) to main/target "p_{PartitionKey}" "{Email|lower}" member ["{PartitionKey}", "{RowKey}"] in Employees"#
        );
        let lists = BlobLists {
            account: AccountName::main(),
            container: ContainerName::new("lists").unwrap(),
            name: BlobPath::parse("by/{Email|lower}.jsonl").unwrap(),
            member: vec![template("{PartitionKey}"), template("{RowKey}")],
        };
        assert_eq!(
            definition(ViewKind::BlobLists(lists)),
            r#"v index_entity main/employees when exists(Email) to blob main/lists "by/{Email|lower}.jsonl" member ["{PartitionKey}", "{RowKey}"]"#
        );
        let set = BTreeMap::from([("Name".to_owned(), template("{LastName}"))]);
        let (target, partition_key, row_key) = (target.clone(), partition_key, row_key);
        let denormalize = Denormalize { target: target.clone(), partition_key: partition_key.clone(), row_key: row_key.clone(), set };
        assert_eq!(
            definition(ViewKind::Denormalize(denormalize)),
            r#"v denormalize main/employees when exists(Email) to main/target "p_{PartitionKey}" "{Email|lower}" set {"Name": "{LastName}"} Reject"#
        );
        let set = BTreeMap::from([("Name".to_owned(), template("{LastName}"))]);
        let rows = RangeRows::Between { from: Some(template("{RowKey}")), before: None };
        let range = DenormalizeRange { target: target.clone(), partition_key: partition_key.clone(), rows, set };
        assert_eq!(
            definition(ViewKind::DenormalizeRange(range)),
            r#"v denormalize main/employees when exists(Email) to range main/target "p_{PartitionKey}" from "{RowKey}" before open set {"Name": "{LastName}"}"#
        );
        let search = SearchIndex {
            sink: AccountName::new("catalog").unwrap(),
            index: CollectionName::new("people").unwrap(),
            fields: BTreeMap::from([("name".to_owned(), template("{LastName}"))]),
        };
        assert_eq!(
            definition(ViewKind::SearchIndex(search)),
            r#"v search_index main/employees when exists(Email) to index catalog/people fields {"name": "{LastName}"}"#
        );
        let set = BTreeMap::from([("Headcount".to_owned(), Figure::Count)]);
        assert_eq!(
            definition(ViewKind::Aggregate(Aggregate { target, partition_key, row_key, set })),
            r#"v aggregate main/employees when exists(Email) to main/target "p_{PartitionKey}" "{Email|lower}" set {"Headcount": "count()"} Reject"#
        );
    }
}
