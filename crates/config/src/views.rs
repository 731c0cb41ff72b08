//! Reads each `[views.NAME]` and `[tables.NAME]` without regard to other sections. Also reads the keys that other sections
//! have as well, such as `account`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::encryption;
use super::section::{AlreadyReported, Section};
use super::sinks::Sinks;
use super::view_section::{DraftSection, kind_reader};
use evenkeel_model::catalog::{AccountSet, DeclaredKind, Form, RowForm};
use evenkeel_model::condition::Condition;
use evenkeel_model::dated::DatedTables;
use evenkeel_model::nearest::nearest;
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, TableName, ViewName};

pub(super) const ACCOUNTS: &str = "accounts";

pub(super) trait ViewTables: Sized + Clone + PartialEq + Display {
    const BY_DATE: bool;

    fn source(text: &str) -> Result<Self, String>;
    fn target(text: &str) -> Result<Self, String>;
}

impl ViewTables for TableName {
    const BY_DATE: bool = false;

    fn source(text: &str) -> Result<Self, String> {
        user_table(text)
    }

    fn target(text: &str) -> Result<Self, String> {
        if DatedTables::parse(text).is_ok() {
            return Err(format!(
                "{text:?} are dated tables, which need a source with the same dates; expected one table"
            ));
        }
        Self::source(text)
    }
}

impl ViewTables for DatedTables {
    const BY_DATE: bool = true;

    fn source(text: &str) -> Result<Self, String> {
        user_tables(text)
    }

    fn target(text: &str) -> Result<Self, String> {
        if Self::parse(text).is_err() {
            return Err(format!(
                "{text:?} would remain when a table of the source is dropped; expected tables with the same dates, such as \"Derived%Y%m%d\""
            ));
        }
        user_tables(text)
    }
}

pub(super) fn user_table(text: &str) -> Result<TableName, String> {
    let name: TableName = text.parse().map_err(|error| format!("{error}"))?;
    if is_reserved(text) {
        return Err(format!(
            "the table {name} holds evenkeel's own records; expected another table"
        ));
    }
    Ok(name)
}

pub(super) fn user_tables(text: &str) -> Result<DatedTables, String> {
    let tables = DatedTables::parse(text).map_err(|error| error.to_string())?;
    if is_reserved(tables.prefix()) {
        return Err(format!(
            "the tables {tables} hold evenkeel's own records; expected others"
        ));
    }
    Ok(tables)
}

fn is_reserved(name: &str) -> bool {
    const OWN: &str = "Evenkeel";
    name.get(..OWN.len())
        .is_some_and(|begins| begins.eq_ignore_ascii_case(OWN))
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct NamedTarget<T> {
    pub(super) tables: T,
    pub(super) accounts: Option<AccountSet>,
}

pub(super) struct ViewDraft<'a, T = TableName> {
    pub(super) section: Section<'a>,
    pub(super) name: ViewName,
    pub(super) source: T,
    pub(super) when: Option<Condition>,
    pub(super) declared: DeclaredKind<NamedTarget<T>>,
}

impl<T> ViewDraft<'_, T> {
    pub(super) fn form(&self) -> Form<'_, NamedTarget<T>> {
        self.declared.kind.kind().form()
    }

    pub(super) fn rows(&self) -> Option<RowForm<'_, NamedTarget<T>>> {
        self.form().rows()
    }

    /// Returns the tables in which the view writes rows or sets properties.
    pub(super) fn target(&self) -> Option<&T> {
        self.form().target().map(|target| &target.tables)
    }

    pub(super) fn set_properties(&self) -> Option<&BTreeMap<String, Template>> {
        self.form().set_properties().map(|(_, set)| set)
    }
}

pub(super) struct TableDraft<'a> {
    pub(super) section: Section<'a>,
    pub(super) name: TableName,
    pub(super) accounts: Option<AccountSet>,
    pub(super) wide: bool,
    pub(super) encrypt: BTreeSet<String>,
    /// The condition under which an entity's properties are encrypted. If it is `None`, they are always encrypted.
    pub(super) when: Option<Condition>,
    /// The templates of keyed hashes, by the names of the properties that contain the hashes. Each template reads
    /// one encrypted property.
    pub(super) hash: BTreeMap<String, Template>,
}

pub(super) fn account(
    section: &Section<'_>,
    accounts: &[AccountName],
    key: &'static str,
) -> Result<Option<AccountName>, AlreadyReported> {
    section.optional(key, |section| {
        section.parsed(key, |text| known_account(text, accounts))
    })
}

fn known_account(text: &str, accounts: &[AccountName]) -> Result<AccountName, String> {
    let name = text
        .parse::<AccountName>()
        .map_err(|error| error.to_string())?;
    if accounts.contains(&name) {
        return Ok(name);
    }
    let known: Vec<&str> = accounts.iter().map(AccountName::as_str).collect();
    let hint = match nearest(name.as_str(), known.iter().copied()) {
        Some(known) => format!("did you mean {known:?}?"),
        None => format!("known are {}", known.join(", ")),
    };
    Err(format!("unknown account {:?}; {hint}", name.as_str()))
}

pub(super) fn account_set(
    section: &Section<'_>,
    accounts: &[AccountName],
) -> Result<Option<AccountSet>, AlreadyReported> {
    let one = account(section, accounts, "account")?;
    if !section.has(ACCOUNTS) {
        return Ok(one.map(AccountSet::from));
    }
    if one.is_some() {
        section.error(
            ACCOUNTS,
            "account is set as well; expected only one of account and accounts",
        );
        return Err(AlreadyReported);
    }
    let mut names = BTreeSet::new();
    let read = section.list(ACCOUNTS, |text| {
        let name = known_account(&text, accounts)?;
        if names.insert(name) {
            Ok(())
        } else {
            Err(format!("{text:?} is named twice"))
        }
    });
    read.ok_or(AlreadyReported)?;
    let several = AccountSet::of(names);
    if several.is_none() {
        section.error(ACCOUNTS, "expected the names of the accounts, such as [\"main\", \"second\"], found an empty list");
    }
    several.map(Some).ok_or(AlreadyReported)
}

/// Reports the key `accounts` in a section whose items must all be in one account.
pub(super) fn reject_accounts(section: &Section<'_>, why: &str) {
    if section.has(ACCOUNTS) {
        section.error(
            ACCOUNTS,
            format!("{why}; expected account = \"NAME\" instead"),
        );
    }
}

pub(super) fn tables<'a>(root: &Section<'a>, accounts: &[AccountName]) -> Vec<TableDraft<'a>> {
    let table = |(name, section): (&str, Section<'a>)| {
        let accounts = account_set(&section, accounts);
        let wide = section.boolean("wide") == Some(true);
        let encrypt = encryption::properties(&section);
        let hash = encryption::hashes(&section, &encrypt);
        let when = section
            .optional("when", |section| section.parsed("when", Condition::parse))
            .ok()
            .flatten();
        section.finish();
        let name = user_table(name)
            .map_err(|error| section.error("", error))
            .ok()?;
        Some(TableDraft {
            name,
            accounts: accounts.ok()?,
            wide,
            encrypt,
            when,
            hash,
            section,
        })
    };
    root.subsections("tables")
        .into_iter()
        .filter_map(table)
        .collect()
}

pub(super) fn views<'a>(
    root: &Section<'a>,
    accounts: &[AccountName],
    sinks: Sinks<'_>,
) -> (Vec<ViewDraft<'a>>, Vec<ViewDraft<'a, DatedTables>>) {
    let (mut single, mut dated) = (Vec::new(), Vec::new());
    for (name, section) in root.subsections("views") {
        if section
            .peek_text("source")
            .is_some_and(|source| source.contains('%'))
        {
            dated.extend(view(name, section, accounts, sinks));
        } else {
            single.extend(view(name, section, accounts, sinks));
        }
    }
    (single, dated)
}

fn view<'a, T: ViewTables>(
    name: &str,
    section: Section<'a>,
    accounts: &[AccountName],
    sinks: Sinks<'_>,
) -> Option<ViewDraft<'a, T>> {
    let name = ViewName::new(name)
        .map_err(|error| section.error("", error))
        .ok();
    let read = kind_reader::<DraftSection<'_, '_, T>>(&section)?;
    let source = section.required("source", "the table of the primaries", T::source);
    let when = section.optional("when", |section| section.parsed("when", Condition::parse));
    let declared = read(&DraftSection {
        section: &section,
        name: name.as_ref(),
        source: source.as_ref(),
        accounts,
        sinks,
    });
    section.finish();
    Some(ViewDraft {
        name: name?,
        source: source?,
        when: when.ok()?,
        declared: declared?,
        section,
    })
}
