//! Clauses: what each declaration states about things that it shares with others (tables, rows,
//! properties, blobs, collections, names).
//!
//! | a clause | is broken by |
//! |---|---|
//! | *owns* a thing | another owner, unless both share it under the same label |
//! | *writes* rows, or properties of rows | another writer of the same row or property |
//! | *is*: a fact about tables | – |
//! | *bars* a fact that the declaration does not support | the fact |
//! | *needs* a fact | its absence |
//!
//! Each declaration states its clauses next to its code, with the key and the message to report.
//! `config` compares all clauses in one check that knows nothing of kinds, archives or features.

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
    /// The kind and the name of its section, such as `views` and `by_email`.
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

/// One table, or tables by date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tables {
    /// One table.
    One(TableName),
    /// Tables by date.
    Dated(DatedTables),
}

impl Tables {
    /// Whether these tables include the others.
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
    /// Entities may span several rows.
    Wide,
    /// They are spread over several accounts.
    Spread,
    /// They have their own encrypted properties.
    Encrypts,
    /// Large values of their entities are stored in blobs.
    Large,
    /// Entities of another table are archived into them.
    Archive,
    /// A retention creates and drops them.
    Dropped,
    /// They are created and dropped together with the tables of a retention.
    Follows,
    /// A view writes to them.
    Written,
    /// Values of this property are encrypted, whether written here or copied from another table.
    Encrypted(String),
    /// Values of this property may be pointers to blobs.
    Pointer(String),
    /// A view sets this property.
    Kept(String),
}

impl Fact {
    /// The fact as a sentence. `by` is the declaration that states it about `tables`. `named` is
    /// the name under which another declaration uses these tables, or one of them.
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
            Self::Follows => format!("{named} is dropped with a table of {by}"),
            Self::Written => format!("{by} writes to {named}"),
            Self::Encrypted(property) => format!("property {property} is encrypted in {named}"),
            Self::Pointer(property) => {
                format!("{by} may move property {property} of {named} to a blob")
            }
            Self::Kept(property) => format!("property {property} is set by {by}"),
        }
    }
}

/// Rows that a declaration writes, or sets properties on.
#[derive(Debug)]
pub struct WrittenRows<'c> {
    /// Their tables.
    pub tables: Tables,
    /// The templates of their partition key and row key. `None` if the rows may have any key.
    pub keys: Option<[&'c Template; 2]>,
    /// The part of each that is written.
    pub part: WrittenPart<'c>,
    /// Whether they are in the table of the primaries.
    pub in_source_table: bool,
}

/// The part of a row that is written.
#[derive(Debug, Clone, Copy)]
pub enum WrittenPart<'c> {
    /// The whole row: a copy. Every write removes properties that others have added.
    Copy,
    /// A list or a group, in a row that no other declaration writes.
    List,
    /// These properties of a row that another owner writes.
    Properties(&'c BTreeMap<String, Template>),
}

/// One clause of a declaration.
#[derive(Debug)]
pub struct Clause<'c> {
    /// The declaration that states it.
    pub by: Declaration<'c>,
    /// The key of the section at which a conflict is reported. Keys of an archive's target begin
    /// with `to.`.
    pub key: &'static str,
    /// What it states.
    pub term: Statement<'c>,
    /// If present, the clause counts only if this fact holds of these tables.
    pub condition: Option<(Tables, Fact)>,
    /// Whether breaking it is a warning instead of an error.
    pub is_warning: bool,
}

impl Clause<'_> {
    pub(super) fn share_as(&mut self, same: String) {
        if let Statement::Owns { shared_as, .. } = &mut self.term {
            *shared_as = Some(same);
        }
    }
}

/// What a clause states. The text of `Bars` and `Needs` is appended to the sentence of the fact:
/// the reason, and what is expected instead.
#[derive(Debug)]
pub enum Statement<'c> {
    /// No other declaration may own this thing.
    Owns {
        /// An identifier: equal texts mean the same thing.
        thing: String,
        /// Owners with the same label share the thing.
        shared_as: Option<String>,
        /// The message that another owner gets.
        message: String,
    },
    /// No other declaration may write these rows.
    Writes(WrittenRows<'c>),
    /// The fact holds.
    Is(Tables, Fact),
    /// The fact must not hold.
    Bars(Tables, Fact, String),
    /// The fact must hold.
    Needs(Tables, Fact, String),
}

/// A property of a primary that a declaration names.
#[derive(Debug, Clone, Copy)]
pub struct PropertyRead<'c> {
    /// The key of the section at which the property is named.
    pub key: &'static str,
    /// The property.
    pub property: &'c str,
    /// Whether the value is compared, or used to compute another value, instead of only copied.
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

    /// The reads of templates. A template of one property alone copies its value.
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

    /// Names a single table, which must not be one that a retention drops.
    pub(super) fn names(&mut self, key: &'static str, tables: &Tables) {
        if let Tables::One(_) = tables {
            self.bars(key, tables, Fact::Follows, FOLLOWS);
            self.bars(key, tables, Fact::Dropped, DROPPED);
        }
    }

    /// Bars a feature of application entities on tables that are spread over accounts, because only
    /// views write to such tables.
    fn needs_one_account(&mut self, key: &'static str, tables: &Tables) {
        let why = format!("; {key} needs a table in one account");
        self.bars(key, tables, Fact::Spread, why);
    }

    /// Bars encrypted values and pointers as inputs of a computation: both can only be copied.
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
                    "; expected another property, one that is copied as it is, or exists({name})"
                );
                self.bars(key, source, Fact::Pointer(name), why);
            }
        }
    }

    /// Copies rows with their encrypted values into a table. The values stay encrypted for the
    /// source's entities, so the target must not have encryption of its own.
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
                let why = ", and a value in a blob cannot be encrypted later; expected either that view or when";
                clauses.bars("when", &tables, Fact::Large, why);
                for property in when.properties() {
                    let why = ", and views do not encrypt; expected a property that jobs write";
                    clauses.bars("when", &tables, Fact::Kept(property.to_owned()), why);
                }
            }
            if self.spread.contains_key(name) {
                let why = format!(
                    "no view writes to {name}, and only tables of views can be spread over accounts; expected account with one name"
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
