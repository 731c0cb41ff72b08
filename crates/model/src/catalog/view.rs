//! Views: declared derived data.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::clause::{Clause, Clauses, Declaration, Fact, PropertyRead};
use super::definition::Definition;
use super::form::{Form, RowForm};
use super::kinds::{DenormalizeRange, LargeEntity, ViewKind};
use super::place::{DatedRef, SourcePlace, TableRef};
use crate::ViewName;
use crate::condition::Condition;
use crate::template::Template;

/// A view: a declaration of derived data.
#[derive(Debug, Clone)]
pub struct View<P: SourcePlace = TableRef> {
    /// The name of the view.
    pub name: ViewName,
    /// The table or dated tables of its primaries.
    pub source: P,
    /// The condition under which a primary has items; `None` if all primaries have items.
    pub when: Option<Condition>,
    /// The kind, with its settings.
    pub kind: ViewKind<P::Target>,
    /// What happens if two primaries derive items with the same key.
    pub on_conflict: OnConflict,
}

/// What happens if two primaries derive items with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnConflict {
    /// The first primary keeps the key. The job of the other primary fails permanently, and the
    /// error names the owner.
    #[default]
    Reject,
    /// The primary that is reconciled last takes the key over.
    LastWriter,
}

impl<P: SourcePlace> View<P> {
    /// The keys of the view's section with their values, as they are recorded by migrations and
    /// hashed by fingerprints.
    pub fn definition(&self) -> Definition {
        let keys = Definition::default()
            .with("kind", self.kind_name())
            .with("source", self.source.canonical());
        let keys = self
            .form()
            .define(keys.with_some("when", self.when.as_ref()));
        self.kind.kind().define(keys, self.on_conflict)
    }
}

impl<P: SourcePlace> View<P> {
    /// The form of the view's items.
    pub fn form(&self) -> Form<'_, P::Target> {
        self.kind.kind().form()
    }

    /// The rows that hold the view's items; `None` if the items are blobs, documents or properties
    /// of a range.
    pub fn rows(&self) -> Option<RowForm<'_, P::Target>> {
        self.form().rows()
    }

    /// The range of entities on which the view sets properties.
    pub fn range(&self) -> Option<&DenormalizeRange<P::Target>> {
        if let Form::RangeOverlays(range) = self.form() {
            Some(range)
        } else {
            None
        }
    }

    /// The settings of the view's large values; `None` for other views.
    pub fn large(&self) -> Option<&LargeEntity> {
        if let Form::Values(large) = self.form() {
            Some(large)
        } else {
            None
        }
    }

    /// The properties of the primaries that the view computes from or compares, each with the key
    /// of the section that names it.
    pub fn reads(&self) -> Vec<PropertyRead<'_>> {
        let mut reads = self.form().reads();
        if let Some(rows) = self.rows() {
            let (partition_key, row_key) = (rows.partition_key, rows.row_key);
            reads.extend(PropertyRead::computed(
                "partition_key",
                partition_key.properties(),
            ));
            reads.extend(PropertyRead::computed("row_key", row_key.properties()));
        }
        if let Some(when) = &self.when {
            let compared = when.compared();
            let reads_when = PropertyRead::computed("when", when.properties()).into_iter();
            reads.extend(reads_when.map(|read| PropertyRead {
                is_computed: compared.contains(read.property),
                ..read
            }));
        }
        reads
    }

    /// The properties that the view needs from a primary's row. They may include `PartitionKey` and
    /// `RowKey`.
    pub fn properties(&self) -> BTreeSet<&str> {
        let mut names = self.form().properties();
        names.extend(self.reads().iter().map(|read| read.property));
        names
    }

    /// The properties of a primary from which the view computes keys, members, aggregate values or
    /// composed texts, or which its condition compares. The view copies all other properties
    /// unchanged.
    pub fn computed(&self) -> BTreeSet<&str> {
        self.computed_for(|_| true)
    }

    /// Like [`computed`](Self::computed), without the properties that the view's condition
    /// compares.
    pub fn composed_of(&self) -> BTreeSet<&str> {
        self.computed_for(|key| key != "when")
    }

    fn computed_for(&self, is_of: impl Fn(&str) -> bool) -> BTreeSet<&str> {
        let reads = self.reads().into_iter();
        reads
            .filter(|read| read.is_computed && is_of(read.key))
            .map(|read| read.property)
            .collect()
    }

    pub(super) fn clauses(&self) -> Vec<Clause<'_>> {
        let mut clauses = Clauses::of(Declaration::View(&self.name));
        let (name, source) = (&self.name, self.source.tables());
        let message = format!(
            "a view has the same name, so `evenkeel lookup {name}` reads the view and never the archive; expected another name"
        );
        clauses
            .owns("", format!("the name {name}"), message)
            .is_warning = true;
        clauses.names("source", &source);
        let why = "; the source of a view must be in one account";
        clauses.bars("source", &source, Fact::Spread, why);
        clauses.reads(&source, self.reads());
        let key = self.kind.kind().target_key();
        self.form().clauses(&source, key, &mut clauses);
        clauses.all
    }

    /// The table in which the view sets properties on entities, and the templates of these
    /// properties by name.
    pub fn set_properties(&self) -> Option<(&P::Target, &BTreeMap<String, Template>)> {
        self.form().set_properties()
    }

    /// The value of `kind` in the configuration.
    pub fn kind_name(&self) -> &'static str {
        self.kind.name()
    }
}

impl View<DatedRef> {
    /// The view for the dated table of one moment.
    pub fn at(&self, moment: Timestamp) -> View {
        let at = |tables: &DatedRef| tables.at(moment).into();
        let Self {
            name,
            when,
            on_conflict,
            ..
        } = self;
        View {
            name: name.clone(),
            source: self.source.at(moment),
            when: when.clone(),
            kind: self.kind.map(&at),
            on_conflict: *on_conflict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob_path::BlobPath;
    use crate::catalog::place::{AccountSet, TargetRef};
    use crate::catalog::{
        Aggregate, AggregateFunction, BlobLists, Denormalize, Documents, IndexEntity, RangeRows,
        SearchIndex, SecondaryIndex, SqlTable, Statement, WebhookEvents, kind_names,
    };
    use crate::dated::DatedTables;
    use crate::{AccountName, CollectionName, ColumnType, ContainerName, TableName};

    fn table(name: &str) -> TableRef {
        TableRef {
            account: AccountName::main(),
            table: TableName::new(name).unwrap(),
        }
    }

    fn template(text: &str) -> Template {
        Template::parse(text).unwrap()
    }

    fn view(kind: ViewKind) -> View {
        let when = Some(Condition::parse("exists(Email)").unwrap());
        View {
            name: ViewName::new("v").unwrap(),
            source: table("Employees"),
            when,
            kind,
            on_conflict: OnConflict::Reject,
        }
    }

    /// Values of every kind, with most of the optional settings.
    fn kinds() -> Vec<ViewKind> {
        let (target, partition_key, row_key) = (
            TargetRef::from(table("Target")),
            template("p_{PartitionKey}"),
            template("{Email|lower}"),
        );
        let keys = || vec![template("{PartitionKey}"), template("{RowKey}")];
        let set = || BTreeMap::from([("Name".to_owned(), template("{LastName}"))]);
        let spread = || {
            AccountSet::of(["south", "main", "north"].map(|name| AccountName::new(name).unwrap()))
                .unwrap()
        };
        let index = SecondaryIndex {
            target: target.clone(),
            partition_key: partition_key.clone(),
            row_key: row_key.clone(),
            select: Some(vec!["Email".to_owned()]),
        };
        let list = IndexEntity {
            target: target.clone(),
            partition_key: partition_key.clone(),
            row_key: row_key.clone(),
            member: keys(),
            property: "Employees".to_owned(),
        };
        let beside = IndexEntity {
            target: table("Employees").into(),
            partition_key: template("{PartitionKey}"),
            member: vec![template("{RowKey}")],
            ..list.clone()
        };
        let container = ContainerName::new("lists").unwrap();
        let lists = BlobLists {
            accounts: spread(),
            container,
            name: BlobPath::parse("by/{Email|lower}.jsonl").unwrap(),
            member: keys(),
        };
        let one = Denormalize {
            target: target.clone(),
            partition_key: partition_key.clone(),
            row_key: row_key.clone(),
            set: set(),
        };
        let range = |rows| DenormalizeRange {
            target: target.clone(),
            partition_key: partition_key.clone(),
            rows,
            set: set(),
        };
        let documents = Documents {
            sink: AccountName::new("catalog").unwrap(),
            collection: CollectionName::new("people").unwrap(),
            fields: BTreeMap::from([("name".to_owned(), template("{LastName}"))]),
            types: BTreeMap::new(),
        };
        let typed = Documents {
            types: BTreeMap::from([("name".to_owned(), ColumnType::Text(Some(80)))]),
            ..documents.clone()
        };
        let aggregate = Aggregate {
            target: target.clone(),
            partition_key: partition_key.clone(),
            row_key: row_key.clone(),
            set: BTreeMap::from([
                ("Headcount".to_owned(), AggregateFunction::Count),
                (
                    "Most".to_owned(),
                    AggregateFunction::Max("Salary".to_owned()),
                ),
            ]),
        };
        let values = LargeEntity {
            account: AccountName::main(),
            container: ContainerName::new("large").unwrap(),
            properties: ["Photo".to_owned()].into(),
            threshold: 8192,
        };
        vec![
            ViewKind::SecondaryIndex(SecondaryIndex {
                target: TargetRef {
                    accounts: spread(),
                    ..target.clone()
                },
                select: None,
                ..index.clone()
            }),
            ViewKind::SecondaryIndex(index),
            ViewKind::IndexEntity(list),
            ViewKind::IndexEntity(beside),
            ViewKind::BlobLists(lists),
            ViewKind::Denormalize(one),
            ViewKind::DenormalizeRange(range(RangeRows::All)),
            ViewKind::DenormalizeRange(range(RangeRows::Prefix(template("{RowKey}_")))),
            ViewKind::DenormalizeRange(range(RangeRows::Between {
                from: Some(template("{RowKey}")),
                before: None,
            })),
            ViewKind::SearchIndex(SearchIndex(documents.clone())),
            ViewKind::WebhookEvents(WebhookEvents(documents)),
            ViewKind::SqlTable(SqlTable(typed)),
            ViewKind::Aggregate(aggregate),
            ViewKind::LargeEntity(values),
        ]
    }

    #[test]
    fn every_kind_is_read_back_from_its_definition() {
        let tried: std::collections::BTreeSet<_> = kinds()
            .into_iter()
            .map(|kind| view(kind).kind_name())
            .collect();
        assert_eq!(tried, kind_names());
        for kind in kinds() {
            for on_conflict in [OnConflict::Reject, OnConflict::LastWriter] {
                let view = View {
                    on_conflict,
                    ..view(kind.clone())
                };
                let definition = view.definition();
                let text: Definition = serde_json::from_str(&definition.to_string()).unwrap();
                let again = View::recorded(&view.name, &view.source, &text)
                    .unwrap_or_else(|| panic!("{definition}"));
                assert_eq!(again.definition(), definition);
                assert_eq!(
                    (again.properties(), again.kind_name()),
                    (view.properties(), view.kind_name())
                );
                // The definition has `last_writer` only for kinds that can have conflicts.
                let has_last_writer = definition.to_string().contains("last_writer");
                assert_eq!(
                    again.on_conflict,
                    if has_last_writer {
                        on_conflict
                    } else {
                        OnConflict::Reject
                    }
                );
            }
        }
    }

    #[test]
    fn every_kind_states_what_it_owns_or_writes() {
        for kind in kinds() {
            let view = view(kind);
            let clauses = view.clauses();
            let mut own = clauses.iter().filter(|clause| !clause.key.is_empty());
            assert!(
                own.any(|clause| matches!(
                    clause.term,
                    Statement::Owns { .. } | Statement::Writes(_)
                )),
                "{clauses:?}"
            );
        }
    }

    #[test]
    fn a_view_of_dated_tables_is_read_back_from_its_definition() {
        let dated = |text: &str| DatedRef {
            account: AccountName::main(),
            tables: DatedTables::parse(text).unwrap(),
        };
        let (partition_key, row_key) = (template("p"), template("{RowKey}"));
        let kind = SecondaryIndex {
            target: dated("Copies%Y%m"),
            partition_key,
            row_key,
            select: None,
        };
        let (name, kind) = (ViewName::new("v").unwrap(), ViewKind::SecondaryIndex(kind));
        let view = View {
            name,
            source: dated("Orders%Y%m"),
            when: None,
            kind,
            on_conflict: OnConflict::Reject,
        };
        let again = View::recorded(&view.name, &view.source, &view.definition()).unwrap();
        assert_eq!(again.definition(), view.definition());
    }

    #[test]
    fn a_definition_lists_the_keys_of_the_section_and_their_changes() {
        let kinds = kinds();
        let (index, set) = (
            view(kinds[1].clone()).definition(),
            view(kinds[5].clone()).definition(),
        );
        assert_eq!(
            index.to_string(),
            r#"{"kind":"secondary_index","partition_key":"p_{PartitionKey}","row_key":"{Email|lower}","select":["Email"],"source":"main/employees","table":"main/target","when":"exists(Email)"}"#
        );
        let changes = |from: &Definition, to: &Definition| {
            from.changes(to)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(changes(&index, &index), Vec::<String>::new());
        assert_eq!(
            changes(&index, &set),
            [
                r#"kind: "secondary_index" -> "denormalize""#,
                r#"select: ["Email"] -> nothing"#,
                r#"set.Name: nothing -> "{LastName}""#
            ]
        );
    }
}
