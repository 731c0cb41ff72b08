//! Views: declared derived data.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::form::{Form, RowForm};
use super::kinds::{DenormalizeRange, LargeEntity, ViewKind};
use super::place::{DatedRef, SourcePlace, TableRef};
use crate::model::ViewName;
use crate::model::condition::Condition;
use crate::model::template::Template;

/// A declared kind of derived data.
#[derive(Debug, Clone)]
pub struct View<P: SourcePlace = TableRef> {
    /// Its name.
    pub name: ViewName,
    /// The table of its primaries.
    pub source: P,
    /// The condition of primaries that have items; all where absent.
    pub when: Option<Condition>,
    /// The kind, with its settings.
    pub kind: ViewKind<P::Target>,
    /// The answer to two primaries that want one key.
    pub on_conflict: OnConflict,
}

/// The answer to two primaries that want one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// The first keeps it; the other's job is a permanent error that names the owner.
    #[default]
    Reject,
    /// The last one to be reconciled takes it over.
    LastWriter,
}

impl OnConflict {
    /// The text in the canonical encoding.
    pub(super) const fn canonical(self) -> &'static str {
        match self {
            Self::Reject => "Reject",
            Self::LastWriter => "LastWriter",
        }
    }
}

impl<P: SourcePlace> View<P> {
    /// The canonical encoding: a text that changes exactly when the view's definition does.
    pub fn definition(&self) -> String {
        let when = self.when.as_ref().map(ToString::to_string).unwrap_or_default();
        let (place, own) = (self.form().canonical(), self.kind.kind().canonical(self.on_conflict));
        format!("{} {} {} when {when} to {place} {own}", self.name, self.kind_name(), self.source.canonical())
    }
}

impl<P: SourcePlace> View<P> {
    /// Where its items are stored, and how.
    pub fn form(&self) -> Form<'_, P::Target> {
        self.kind.kind().form()
    }

    /// The rows that its items are, or are part of; nothing where they are blobs, documents or claims.
    pub fn rows(&self) -> Option<RowForm<'_, P::Target>> {
        self.form().rows()
    }

    /// The range on whose entities it keeps properties.
    pub fn range(&self) -> Option<&DenormalizeRange<P::Target>> {
        if let Form::Claims(range) = self.form() { Some(range) } else { None }
    }

    /// The settings of its large values.
    pub fn large(&self) -> Option<&LargeEntity> {
        if let Form::Values(large) = self.form() { Some(large) } else { None }
    }

    /// The properties that it has to see in a primary's row, PartitionKey and RowKey among them where it names those.
    pub fn properties(&self) -> BTreeSet<&str> {
        let mut names = self.when.as_ref().map(Condition::properties).unwrap_or_default();
        let keys = self.rows().into_iter().flat_map(|rows| [rows.partition_key, rows.row_key]);
        names.extend(keys.flat_map(Template::properties));
        names.extend(self.form().properties());
        names
    }

    /// The properties of a primary that it computes from: those of its keys, those that its condition compares, members, figures and composed
    /// texts. Others it carries as they are.
    pub fn computed(&self) -> BTreeSet<&str> {
        let mut names = self.when.as_ref().map(Condition::compared).unwrap_or_default();
        names.extend(self.composed_of());
        names
    }

    /// Those that its items are computed from, where it has any: all of [`computed`](Self::computed) but for its condition's.
    pub fn composed_of(&self) -> BTreeSet<&str> {
        let keys = self.rows().into_iter().flat_map(|rows| [rows.partition_key, rows.row_key]);
        let mut names: BTreeSet<&str> = keys.flat_map(Template::properties).collect();
        names.extend(self.form().computed());
        names
    }

    /// The table on whose entities it keeps properties, and the properties by name.
    pub fn sets(&self) -> Option<(&P::Target, &BTreeMap<String, Template>)> {
        self.form().sets()
    }

    /// The value of `kind` in the configuration.
    pub fn kind_name(&self) -> &'static str {
        self.kind.name()
    }
}

impl View<DatedRef> {
    /// The view with the tables of the period of a moment.
    pub fn at(&self, moment: Timestamp) -> View {
        let at = |tables: &DatedRef| tables.at(moment).into();
        let Self { name, when, on_conflict, .. } = self;
        View { name: name.clone(), source: self.source.at(moment), when: when.clone(), kind: self.kind.map(&at), on_conflict: *on_conflict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::place::{AccountSet, TargetRef};
    use crate::catalog::{
        Aggregate, BlobLists, Denormalize, Documents, Figure, IndexEntity, RangeRows, SearchIndex, SecondaryIndex, SqlTable,
    };
    use crate::model::blob_path::BlobPath;
    use crate::model::{AccountName, CollectionName, ColumnType, ContainerName, TableName};

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
        let (target, partition_key, row_key) = (TargetRef::from(table("Target")), template("p_{PartitionKey}"), template("{Email|lower}"));
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
            accounts: AccountName::main().into(),
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
        let mut documents = Documents {
            sink: AccountName::new("catalog").unwrap(),
            collection: CollectionName::new("people").unwrap(),
            fields: BTreeMap::from([("name".to_owned(), template("{LastName}"))]),
            types: BTreeMap::new(),
        };
        assert_eq!(
            definition(ViewKind::SearchIndex(SearchIndex(documents.clone()))),
            r#"v search_index main/employees when exists(Email) to index catalog/people fields {"name": "{LastName}"}"#
        );
        documents.types.insert("name".to_owned(), ColumnType::Text(Some(80)));
        assert_eq!(
            definition(ViewKind::SqlTable(SqlTable(documents))),
            r#"v sql_table main/employees when exists(Email) to index catalog/people columns {"name": "{LastName}"} types {"name": "text(80)"}"#
        );
        let spread = |names: &[&str]| AccountSet::of(names.iter().map(|name| AccountName::new(*name).unwrap())).unwrap();
        let accounts = spread(&["south", "main", "north"]);
        let lists = BlobLists {
            accounts: accounts.clone(),
            container: ContainerName::new("lists").unwrap(),
            name: BlobPath::parse("{Email}").unwrap(),
            member: vec![],
        };
        assert_eq!(
            definition(ViewKind::BlobLists(lists)),
            r#"v index_entity main/employees when exists(Email) to blob main+north+south/lists "{Email}" member []"#
        );
        let index = SecondaryIndex {
            target: TargetRef { accounts, ..target.clone() },
            partition_key: partition_key.clone(),
            row_key: row_key.clone(),
            select: None,
        };
        assert_eq!(
            definition(ViewKind::SecondaryIndex(index)),
            r#"v secondary_index main/employees when exists(Email) to main+north+south/target "p_{PartitionKey}" "{Email|lower}" select None Reject"#
        );
        let set = BTreeMap::from([("Headcount".to_owned(), Figure::Count)]);
        assert_eq!(
            definition(ViewKind::Aggregate(Aggregate { target, partition_key, row_key, set })),
            r#"v aggregate main/employees when exists(Email) to main/target "p_{PartitionKey}" "{Email|lower}" set {"Headcount": "count()"} Reject"#
        );
    }
}
