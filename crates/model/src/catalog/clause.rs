//! Clauses: what a declaration states about things that it shares with others (tables, their rows and properties, blobs, collections, names).
//!
//! | a clause | is broken by |
//! |---|---|
//! | *owns* a thing | another owner, unless both share it as the same |
//! | *writes* rows, or properties on rows | another writer of the same row or property |
//! | *is*: a fact about tables | – |
//! | *bars* a fact that the declaration cannot work with | the fact |
//! | *needs* a fact | its absence |
//!
//! Forms of items, archives, sections of tables, retentions and rules state their clauses beside what they declare, each with its key and the
//! words of its message. `config` compares all of them in one check, which knows no kind, no archive and no feature.

use std::collections::BTreeMap;
use std::fmt;

use super::Catalog;
use crate::dated::DatedTables;
use crate::job::Operation as _;
use crate::template::Template;
use crate::{TableName, ViewName};

/// A declaration, by its section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party<'c> {
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

impl Party<'_> {
    /// The two names of its section.
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

impl fmt::Display for Party<'_> {
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
    /// Whether the others are these, or one of these.
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
    /// Entities may lie over several rows.
    Wide,
    /// They lie in several accounts.
    Spread,
    /// They have encrypted properties of their own.
    Encrypts,
    /// Large values of their entities lie in blobs.
    Large,
    /// Entities of another table are archived into them.
    Archive,
    /// A retention creates and drops them.
    Dropped,
    /// They come and go with the tables of a retention.
    Follows,
    /// A view writes into them.
    Written,
    /// Values of this property are encrypted, wherever they were brought from.
    Sealed(String),
    /// Values of this property may be pointers to blobs.
    Pointer(String),
    /// A view keeps this property.
    Kept(String),
}

impl Fact {
    /// The fact in words: by whose clause it is so, of which tables, and which of them another declaration names.
    pub fn sentence(&self, by: Party<'_>, tables: &Tables, named: &Tables) -> String {
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
            Self::Sealed(property) => format!("property {property} is encrypted in {named}"),
            Self::Pointer(property) => {
                format!("{by} may move property {property} of {named} to a blob")
            }
            Self::Kept(property) => format!("property {property} is set by {by}"),
        }
    }
}

/// Rows that a declaration writes, or writes properties on.
#[derive(Debug)]
pub struct Rows<'c> {
    /// Their tables.
    pub tables: Tables,
    /// The templates of their partition key and row key; absent if they may be any.
    pub keys: Option<[&'c Template; 2]>,
    /// The part of each that is written.
    pub part: RowPart<'c>,
    /// They lie in the table of the primaries.
    pub is_beside: bool,
}

/// The part of a row that is written.
#[derive(Debug, Clone, Copy)]
pub enum RowPart<'c> {
    /// All of it: a copy, in which nothing stays that others have added.
    Copy,
    /// A list or a group, in a row that nobody else makes.
    List,
    /// These properties of a row that somebody else makes.
    Properties(&'c BTreeMap<String, Template>),
}

/// One clause of a declaration.
#[derive(Debug)]
pub struct Clause<'c> {
    /// Whose it is.
    pub by: Party<'c>,
    /// The key of the section that makes it; of an archive's target with `to.` before it.
    pub key: &'static str,
    /// What it states.
    pub term: Term<'c>,
    /// It counts only if this is so of these tables.
    pub given: Option<(Tables, Fact)>,
    /// Breaking it is a warning, not a mistake.
    pub is_advice: bool,
}

impl Clause<'_> {
    /// Lets owners share a thing that name it as the same.
    pub(super) fn share(&mut self, same: String) {
        if let Term::Owns { shared_as, .. } = &mut self.term {
            *shared_as = Some(same);
        }
    }
}

/// What a clause states. The words of barred and needed facts follow the fact in the message: why, and what is expected.
#[derive(Debug)]
pub enum Term<'c> {
    /// Nobody else has this thing.
    Owns {
        /// A text that is the same for the same thing.
        thing: String,
        /// Owners that name it as the same share it.
        shared_as: Option<String>,
        /// The message for another owner.
        words: String,
    },
    /// Nobody else writes these.
    Writes(Rows<'c>),
    /// A fact.
    Is(Tables, Fact),
    /// A fact must not be.
    Bars(Tables, Fact, String),
    /// A fact must be.
    Needs(Tables, Fact, String),
}

/// A property of a primary that something is made of, or that is compared.
#[derive(Debug, Clone, Copy)]
pub struct Read<'c> {
    /// The key of the section that names it.
    pub key: &'static str,
    /// The property.
    pub property: &'c str,
    /// Its value does not stand by itself, as it is.
    pub is_computed: bool,
}

impl<'c> Read<'c> {
    /// Properties that something is computed from.
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

    /// The properties of templates. A template of nothing but a property has its value as it is.
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

/// Why a table that follows others cannot be named by itself.
pub(super) const FOLLOWS: &str = "; expected another table";
const DROPPED: &str = "; expected the pattern of all these tables, or another table";

/// Collects the clauses of one declaration.
pub(super) struct Clauses<'c> {
    pub(super) by: Party<'c>,
    pub(super) all: Vec<Clause<'c>>,
}

impl<'c> Clauses<'c> {
    pub(super) const fn of(by: Party<'c>) -> Self {
        let all = Vec::new();
        Self { by, all }
    }

    pub(super) fn add(&mut self, key: &'static str, term: Term<'c>) -> &mut Clause<'c> {
        self.all.push_mut(Clause {
            by: self.by,
            key,
            term,
            given: None,
            is_advice: false,
        })
    }

    pub(super) fn is(&mut self, tables: &Tables, fact: Fact) {
        self.add("", Term::Is(tables.clone(), fact));
    }

    pub(super) fn bars(
        &mut self,
        key: &'static str,
        tables: &Tables,
        fact: Fact,
        why: impl Into<String>,
    ) -> &mut Clause<'c> {
        self.add(key, Term::Bars(tables.clone(), fact, why.into()))
    }

    pub(super) fn owns(
        &mut self,
        key: &'static str,
        thing: String,
        words: String,
    ) -> &mut Clause<'c> {
        let owns = Term::Owns {
            thing,
            shared_as: None,
            words,
        };
        self.add(key, owns)
    }

    /// Names a table by itself, which therefore has to stay.
    pub(super) fn names(&mut self, key: &'static str, tables: &Tables) {
        if let Tables::One(_) = tables {
            self.bars(key, tables, Fact::Follows, FOLLOWS);
            self.bars(key, tables, Fact::Dropped, DROPPED);
        }
    }

    /// A feature that is for entities of the user's own.
    fn of_entities(&mut self, key: &'static str, tables: &Tables) {
        let why = format!("; {key} needs a table in one account");
        self.bars(key, tables, Fact::Spread, why);
    }

    /// Uses properties. Sealed values and pointers are copied and archived, and nothing is computed from them.
    pub(super) fn reads<'r>(&mut self, source: &Tables, reads: impl IntoIterator<Item = Read<'r>>) {
        for read in reads {
            let (key, name) = (read.key, read.property.to_owned());
            let why = "; it can only be copied as it is, so expected another property";
            self.bars(key, source, Fact::Sealed(name.clone()), why);
            if read.is_computed {
                let why = format!(
                    "; expected another property, one that is copied as it is, or exists({name})"
                );
                self.bars(key, source, Fact::Pointer(name), why);
            }
        }
    }

    /// Brings entities into a table with their sealed values.
    pub(super) fn brings_sealed(&mut self, key: &'static str, from: &Tables, into: &Tables) {
        let why = format!(
            " and also receives encrypted rows of {from}; expected encrypt in only one of the two"
        );
        self.bars(key, into, Fact::Encrypts, why).given = Some((from.clone(), Fact::Encrypts));
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
            let mut clauses = Clauses::of(Party::Rule(&rule.name));
            if let Some(when) = &rule.sweep.when {
                let (names, compared) = (when.properties(), when.compared());
                for table in self.tables_of(rule.sweep.subject()) {
                    let reads = names.iter().map(|property| Read {
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

    /// The clauses of `[tables.NAME]`, and other facts about tables.
    fn clauses_of_tables(&self) -> Vec<Clause<'_>> {
        let sealed = self.sealed_properties();
        let mut all = Vec::new();
        for name in self.tables.keys().chain(self.spread.keys()) {
            let Some(table) = self.target(name).map(|target| target.first()) else {
                continue;
            };
            let (mut clauses, tables) = (Clauses::of(Party::Table(name)), Tables::from(name));
            if self.declared.contains(&table) {
                clauses.names("", &tables);
            }
            if self.wide.contains(&table) {
                clauses.of_entities("wide", &tables);
                clauses.is(&tables, Fact::Wide);
            }
            if self.encrypted.contains_key(&table) {
                clauses.of_entities("encrypt", &tables);
                clauses.is(&tables, Fact::Encrypts);
            }
            if self.hashed.contains_key(&table) {
                clauses.of_entities("hash", &tables);
            }
            if let Some(when) = self.encrypted_when.get(&table) {
                let why = ", which are never encrypted later; expected either that view or when";
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
                clauses.add("accounts", Term::Needs(tables.clone(), Fact::Written, why));
            }
            for property in sealed.get(name).into_iter().flatten() {
                clauses.is(&tables, Fact::Sealed(property.clone()));
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
    fn a_fact_about_tables_by_date_is_one_about_each_of_them_and_not_the_other_way_round() {
        let one = Tables::One(TableName::new("logins20261120").unwrap());
        let dated = Tables::Dated(DatedTables::parse("Logins%Y%m%d").unwrap());
        assert!(dated.cover(&one) && dated.cover(&dated) && one.cover(&one));
        assert!(!one.cover(&dated));
        assert!(!dated.cover(&Tables::One(TableName::new("Logins2026").unwrap())));
        let days = ViewName::new("days").unwrap();
        let of = |named| Fact::Dropped.sentence(Party::Retention(&days), &dated, named);
        assert_eq!(
            of(&one),
            "logins20261120 is one of the tables of [retention.days] (\"Logins%Y%m%d\")"
        );
        assert_eq!(of(&dated), "Logins%Y%m%d is managed by [retention.days]");
    }
}
