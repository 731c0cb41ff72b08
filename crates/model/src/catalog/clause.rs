//! Clauses: what each declaration states about things that it shares with other declarations
//! (tables, rows, properties, blobs, collections, names).
//!
//! | a clause | is broken by |
//! |---|---|
//! | *owns* a thing | another owner, unless both share it under the same label |
//! | *writes* rows, or properties of rows | another writer of the same row or property |
//! | *is*: a fact about tables | – |
//! | *bars* a fact that the declaration does not support | the fact |
//! | *needs* a fact | its absence |
//!
//! The clauses of a declaration are in the source file of that declaration. Each has the key and
//! the message of the report about a violation. `config` compares all clauses in one check that
//! does not depend on kinds, archives or features.

use std::collections::BTreeMap;
use std::fmt;

use super::Catalog;
use crate::dated::DatedTables;
use crate::job::Operation as _;
use crate::template::Template;
use crate::{TableName, ViewName};

/// A declaration, identified by its section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declaration<'c> {
    /// `[tables.NAME]`
    Table(&'c TableName),
    /// `[views.NAME]`
    View(&'c ViewName),
    /// `[archives.NAME]`
    Archive(&'c ViewName),
    /// `[retention.NAME]`
    Retention(&'c ViewName),
    /// `[rules.NAME]`
    Rule(&'c ViewName),
}

impl Declaration<'_> {
    /// The two parts of the section's name, such as `views` and `by_email`.
    pub fn section(&self) -> (&'static str, &str) {
        match self {
            Self::Table(name) => ("tables", name.as_str()),
            Self::View(name) => ("views", name.as_str()),
            Self::Archive(name) => ("archives", name.as_str()),
            Self::Retention(name) => ("retention", name.as_str()),
            Self::Rule(name) => ("rules", name.as_str()),
        }
    }
}

impl fmt::Display for Declaration<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::View(name) => write!(f, "the view {name}"),
            Self::Archive(name) => write!(f, "the archive {:?}", name.as_str()),
            other => {
                let (kind, name) = other.section();
                write!(f, "[{kind}.{name}]")
            }
        }
    }
}

/// One table, or dated tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tables {
    /// One table.
    One(TableName),
    /// Dated tables.
    Dated(DatedTables),
}

impl Tables {
    /// Whether these tables include the tables `others`.
    pub fn cover(&self, others: &Self) -> bool {
        match (self, others) {
            (Self::Dated(dated), Self::One(table)) => dated.period(table).is_some(),
            (one, other) => one == other,
        }
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(table) => table.fmt(f),
            Self::Dated(dated) => dated.fmt(f),
        }
    }
}

impl From<&TableName> for Tables {
    fn from(table: &TableName) -> Self {
        Self::One(table.clone())
    }
}

/// A fact about tables, or about a property of their entities.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// An entity of the tables may span several rows.
    Wide,
    /// The tables are spread over several accounts.
    Spread,
    /// The tables declare encrypted properties of their own.
    Encrypts,
    /// Large values of the tables' entities are stored in blobs.
    Large,
    /// Entities of another table are archived into the tables.
    Archive,
    /// A retention creates and drops the tables.
    Dropped,
    /// The tables are created and dropped together with the tables of a retention.
    Follows,
    /// A view writes to the tables.
    Written,
    /// Values of this property are encrypted, whether they are written to these tables or copied
    /// from another table.
    Encrypted(String),
    /// Values of this property may be pointers to blobs.
    Pointer(String),
    /// A view sets this property.
    Kept(String),
}

impl Fact {
    /// The fact as a sentence. `by` is the declaration that states the fact about `tables`. `named`
    /// is the name by which another declaration refers to `tables`, or to one of them.
    pub fn sentence(&self, by: Declaration<'_>, tables: &Tables, named: &Tables) -> String {
        match self {
            Self::Wide => format!("{named} is wide"),
            Self::Spread => format!("{named} is spread over several accounts"),
            Self::Encrypts => format!("{named} has its own encrypted properties"),
            Self::Large => format!("{by} stores large values of {named} in blobs"),
            Self::Archive => format!("{named} is the target of {by}"),
            Self::Dropped if tables == named => format!("{named} is managed by {by}"),
            Self::Dropped => {
                format!("{named} is one of the tables of {by} (\"{tables}\")")
            }
            Self::Follows => format!("{named} is dropped together with a table of {by}"),
            Self::Written => format!("{by} writes to {named}"),
            Self::Encrypted(property) => format!("property {property} is encrypted in {named}"),
            Self::Pointer(property) => {
                format!("{by} may move property {property} of {named} to a blob")
            }
            Self::Kept(property) => format!("property {property} is set by {by}"),
        }
    }
}

/// Rows to which a declaration writes: whole rows, or some properties of rows.
#[derive(Debug)]
pub struct WrittenRows<'c> {
    /// The tables of the rows.
    pub tables: Tables,
    /// The templates of the partition key and row key. `None` if the rows may have any key.
    pub keys: Option<[&'c Template; 2]>,
    /// The part of each row that is written.
    pub part: WrittenPart<'c>,
    /// Whether the rows are in the table of the primaries.
    pub in_source_table: bool,
}

/// The part of a row that is written.
#[derive(Debug, Clone, Copy)]
pub enum WrittenPart<'c> {
    /// The whole row, which is a copy. Every write removes properties that other writers have
    /// added.
    Copy,
    /// A list or a group, in a row that no other declaration writes to.
    List,
    /// These properties of a row that belongs to another owner.
    Properties(&'c BTreeMap<String, Template>),
}

/// One clause of a declaration.
#[derive(Debug)]
pub struct Clause<'c> {
    /// The declaration that states the clause.
    pub by: Declaration<'c>,
    /// The key of the section at which a conflict is reported. Keys of an archive's target begin
    /// with `to.`.
    pub key: &'static str,
    /// What the clause states.
    pub term: Statement<'c>,
    /// If present, the clause applies only if these tables have this fact.
    pub condition: Option<(Tables, Fact)>,
    /// Whether a violation is reported as a warning instead of an error.
    pub is_warning: bool,
}

impl Clause<'_> {
    pub(super) fn share_as(&mut self, same: String) {
        if let Statement::Owns { shared_as, .. } = &mut self.term {
            *shared_as = Some(same);
        }
    }
}

/// What a clause states. The text of `Bars` and `Needs` is appended to the sentence of the fact. It
/// gives the reason and what is expected instead.
#[derive(Debug)]
pub enum Statement<'c> {
    /// No other declaration may own this thing, unless both share it under the same label.
    Owns {
        /// The identifier of the thing.
        thing: String,
        /// The label; owners with the same label share the thing.
        shared_as: Option<String>,
        /// The message that is reported at another owner of the thing.
        message: String,
    },
    /// No other declaration may write these rows.
    Writes(WrittenRows<'c>),
    /// The tables have this fact.
    Is(Tables, Fact),
    /// The tables must not have this fact.
    Bars(Tables, Fact, String),
    /// The tables must have this fact.
    Needs(Tables, Fact, String),
}

/// A property of a primary that a declaration reads.
#[derive(Debug, Clone, Copy)]
pub struct PropertyRead<'c> {
    /// The key of the section at which the property is named.
    pub key: &'static str,
    /// The property.
    pub property: &'c str,
    /// Whether the value is compared or used to compute another value. If not, the value is only
    /// copied.
    pub is_computed: bool,
}

impl<'c> PropertyRead<'c> {
    pub(super) fn computed(
        key: &'static str,
        properties: impl IntoIterator<Item = &'c str>,
    ) -> Vec<Self> {
        let read = |property| Self {
            key,
            property,
            is_computed: true,
        };
        properties.into_iter().map(read).collect()
    }

    /// The properties that templates read. A template that consists of one property only copies the
    /// property's value.
    pub(super) fn templates(
        key: &'static str,
        templates: impl IntoIterator<Item = &'c Template>,
    ) -> Vec<Self> {
        let read = |template: &'c Template| {
            let is_computed = template.bare_property().is_none();
            let reads = Self::computed(key, template.properties()).into_iter();
            reads.map(move |read| Self {
                is_computed,
                ..read
            })
        };
        templates.into_iter().flat_map(read).collect()
    }
}

pub(super) const FOLLOWS: &str = "; expected another table";
const DROPPED: &str = "; expected the pattern of all these tables, or another table";

pub(super) struct Clauses<'c> {
    pub(super) by: Declaration<'c>,
    pub(super) all: Vec<Clause<'c>>,
}

impl<'c> Clauses<'c> {
    pub(super) const fn of(by: Declaration<'c>) -> Self {
        let all = Vec::new();
        Self { by, all }
    }

    pub(super) fn add(&mut self, key: &'static str, term: Statement<'c>) -> &mut Clause<'c> {
        self.all.push_mut(Clause {
            by: self.by,
            key,
            term,
            condition: None,
            is_warning: false,
        })
    }

    pub(super) fn is(&mut self, tables: &Tables, fact: Fact) {
        self.add("", Statement::Is(tables.clone(), fact));
    }

    pub(super) fn bars(
        &mut self,
        key: &'static str,
        tables: &Tables,
        fact: Fact,
        why: impl Into<String>,
    ) -> &mut Clause<'c> {
        self.add(key, Statement::Bars(tables.clone(), fact, why.into()))
    }

    pub(super) fn owns(
        &mut self,
        key: &'static str,
        thing: String,
        message: String,
    ) -> &mut Clause<'c> {
        let owns = Statement::Owns {
            thing,
            shared_as: None,
            message,
        };
        self.add(key, owns)
    }

    /// Adds the clauses of a declaration that names a single table: a retention must not drop that
    /// table.
    pub(super) fn names(&mut self, key: &'static str, tables: &Tables) {
        if let Tables::One(_) = tables {
            self.bars(key, tables, Fact::Follows, FOLLOWS);
            self.bars(key, tables, Fact::Dropped, DROPPED);
        }
    }

    /// Adds the clause of a feature that needs tables in one account. The feature is for entities
    /// of applications, and only views write to tables that are spread over several accounts.
    fn needs_one_account(&mut self, key: &'static str, tables: &Tables) {
        let why = format!("; {key} needs a table in one account");
        self.bars(key, tables, Fact::Spread, why);
    }

    /// Adds the clauses of a declaration that reads properties of `source`. Such a property must
    /// not be encrypted. If the declaration computes from the property, the property's values must
    /// not be pointers either. Encrypted values and pointers can only be copied.
    pub(super) fn reads<'r>(
        &mut self,
        source: &Tables,
        reads: impl IntoIterator<Item = PropertyRead<'r>>,
    ) {
        for read in reads {
            let (key, name) = (read.key, read.property.to_owned());
            let why = "; it can only be copied as it is, so expected another property";
            self.bars(key, source, Fact::Encrypted(name.clone()), why);
            if read.is_computed {
                let why = format!(
                    "; expected another property, an unchanged copy of {name}, or exists({name})"
                );
                self.bars(key, source, Fact::Pointer(name), why);
            }
        }
    }

    /// Adds the clause of a declaration that copies rows with their encrypted values into a table.
    /// The copied values stay encrypted for the entities of the source, so the target must not
    /// declare encrypted properties of its own.
    pub(super) fn copies_encrypted(&mut self, key: &'static str, from: &Tables, into: &Tables) {
        let why = format!(
            " and also receives encrypted rows of {from}; expected encrypt in only one of the two"
        );
        self.bars(key, into, Fact::Encrypts, why).condition = Some((from.clone(), Fact::Encrypts));
    }
}

impl Catalog {
    /// The clauses of all declarations.
    pub fn clauses(&self) -> Vec<Clause<'_>> {
        let mut all = self.clauses_of_tables();
        all.extend(self.views.values().flat_map(|view| view.clauses()));
        for view in self.dated_views.values() {
            all.extend(view.clauses());
            all.extend(view.follows());
        }
        all.extend(self.archives.values().flat_map(|archive| archive.clauses()));
        for retention in self.retentions.values() {
            all.extend(retention.clauses(&self.followers(retention)));
        }
        for rule in self.rules.values() {
            let mut clauses = Clauses::of(Declaration::Rule(&rule.name));
            if let Some(when) = &rule.sweep.when {
                let (names, compared) = (when.properties(), when.compared());
                for table in self.tables_of(rule.sweep.subject()) {
                    let reads = names.iter().map(|property| PropertyRead {
                        key: "when",
                        property,
                        is_computed: compared.contains(property),
                    });
                    clauses.reads(&table.into(), reads);
                }
            }
            all.extend(clauses.all);
        }
        all
    }

    fn clauses_of_tables(&self) -> Vec<Clause<'_>> {
        let encrypted = self.encrypted_properties();
        let mut all = Vec::new();
        for name in self.tables.keys().chain(self.spread.keys()) {
            let Some(table) = self.target(name).map(|target| target.first()) else {
                continue;
            };
            let (mut clauses, tables) = (Clauses::of(Declaration::Table(name)), Tables::from(name));
            if self.declared.contains(&table) {
                clauses.names("", &tables);
            }
            if self.wide.contains(&table) {
                clauses.needs_one_account("wide", &tables);
                clauses.is(&tables, Fact::Wide);
            }
            if self.encrypted.contains_key(&table) {
                clauses.needs_one_account("encrypt", &tables);
                clauses.is(&tables, Fact::Encrypts);
            }
            if self.hashed.contains_key(&table) {
                clauses.needs_one_account("hash", &tables);
            }
            if let Some(when) = self.encrypted_when.get(&table) {
                let why = ", and a value in a blob cannot be encrypted later; expected either the view or when, not both";
                clauses.bars("when", &tables, Fact::Large, why);
                for property in when.properties() {
                    let why = ", and views do not encrypt; expected a property that jobs write";
                    clauses.bars("when", &tables, Fact::Kept(property.to_owned()), why);
                }
            }
            if self.spread.contains_key(name) {
                let why = format!(
                    "no view writes to {name}, and only tables of views can be spread over accounts; expected account = \"NAME\" instead"
                );
                clauses.is(&tables, Fact::Spread);
                clauses.add(
                    "accounts",
                    Statement::Needs(tables.clone(), Fact::Written, why),
                );
            }
            for property in encrypted.get(name).into_iter().flatten() {
                clauses.is(&tables, Fact::Encrypted(property.clone()));
            }
            all.extend(clauses.all);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_about_dated_tables_covers_each_of_them_but_not_the_reverse() {
        let one = Tables::One(TableName::new("logins20261120").unwrap());
        let dated = Tables::Dated(DatedTables::parse("Logins%Y%m%d").unwrap());
        assert!(dated.cover(&one) && dated.cover(&dated) && one.cover(&one));
        assert!(!one.cover(&dated));
        assert!(!dated.cover(&Tables::One(TableName::new("Logins2026").unwrap())));
        let days = ViewName::new("days").unwrap();
        let of = |named| Fact::Dropped.sentence(Declaration::Retention(&days), &dated, named);
        assert_eq!(
            of(&one),
            "logins20261120 is one of the tables of [retention.days] (\"Logins%Y%m%d\")"
        );
        assert_eq!(of(&dated), "Logins%Y%m%d is managed by [retention.days]");
    }
}
