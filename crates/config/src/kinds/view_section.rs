//! The section of a view, and readers of keys that several kinds have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use crate::section::{Reported, Section};
use crate::sinks::Sinks;
use crate::views::{Named, ViewTables, account, refuse_accounts, some_accounts};
use evenkeel_model::catalog::{AccountSet, OnConflict};
use evenkeel_model::model::entity::{RESERVED_PREFIX, valid_property_name};
use evenkeel_model::model::template::Template;
use evenkeel_model::model::{AccountName, ViewName};

/// The section of a view, with the names it may refer to.
pub(crate) struct ViewSection<'r, 'a, T> {
    pub(crate) section: &'r Section<'a>,
    /// The name of the view, where it is one.
    pub(crate) name: Option<&'r ViewName>,
    /// The source, where it is right.
    pub(crate) source: Option<&'r T>,
    pub(crate) accounts: &'r [AccountName],
    pub(crate) sinks: Sinks<'r>,
}

/// Where the rows of a view lie.
pub(super) struct KeyedRows<T> {
    pub(super) target: Named<T>,
    pub(super) partition_key: Template,
    pub(super) row_key: Template,
}

impl<T: ViewTables> ViewSection<'_, '_, T> {
    /// Reports keys that the kind has not.
    pub(super) fn refuse(&self, keys: &[&'static str], why: &str) {
        for key in keys.iter().filter(|key| self.section.has(key)) {
            self.section.error(key, format!("{why}; expected no such key"));
        }
    }

    /// Reports a kind that there is not of tables by date; nothing then.
    pub(super) fn of_one_table(&self, key: &'static str, expected: &str) -> Option<()> {
        const WHY: &str = "a table by date is dropped with what is derived from it, which therefore lies in tables of the same dates";
        if T::BY_DATE {
            self.section.error(key, format!("{WHY}; expected {expected}"));
            self.section.abandon();
            return None;
        }
        Some(())
    }

    /// The key `account`, of what lies in one account; `why` it does.
    pub(super) fn account(&self, why: &str) -> Result<Option<AccountName>, Reported> {
        refuse_accounts(self.section, why);
        account(self.section, self.accounts, "account")
    }

    /// The key `account` or `accounts`.
    pub(super) fn accounts(&self) -> Result<Option<AccountSet>, Reported> {
        if T::BY_DATE {
            return Ok(self.account("tables by date lie in one account, from which they are dropped")?.map(AccountSet::from));
        }
        some_accounts(self.section, self.accounts)
    }

    /// The key `on_conflict`.
    pub(super) fn on_conflict(&self) -> Result<Option<OnConflict>, Reported> {
        let words = [("reject", OnConflict::Reject), ("last_writer", OnConflict::LastWriter)];
        self.section.optional("on_conflict", |section| section.word("on_conflict", &words))
    }

    /// The rows in a table of their own, or the source's.
    pub(super) fn rows(&self, table: &'static str) -> Option<KeyedRows<T>> {
        let section = self.section;
        let target = section.required(table, "the table that its items lie in", T::target);
        let accounts = self.accounts();
        let partition_key = section.required("partition_key", "a key template, such as \"{PartitionKey}\"", Template::parse_row_key);
        // Both are read before either's mistake ends this: all mistakes are reported at once.
        let row_key = self.row_key();
        let (partition_key, row_key) = (partition_key?, row_key?);
        if let (Some(one), Some(other)) = (partition_key.each(), row_key.each())
            && (one.property(), one.list()) != (other.property(), other.list())
        {
            section.error(
                "row_key",
                "the keys stand for each value of one list: expected the same property with the same each as in partition_key",
            );
            return None;
        }
        Some(KeyedRows { target: Named { tables: target?, accounts: accounts.ok()? }, partition_key, row_key })
    }

    /// KeyedRows in the partitions of their primaries.
    pub(super) fn rows_beside(&self) -> Option<KeyedRows<T>> {
        self.refuse(
            &["table", "account", "accounts", "partition_key"],
            "a list with store = \"partition\" lies in the source's own partition",
        );
        let (row_key, partition_key) = (self.row_key(), Template::parse("{PartitionKey}").ok());
        Some(KeyedRows { target: Named { tables: self.source?.clone(), accounts: None }, partition_key: partition_key?, row_key: row_key? })
    }

    fn row_key(&self) -> Option<Template> {
        self.section.required("row_key", "a key template, such as \"email_{Email|lower}\"", Template::parse_row_key)
    }

    /// The properties that a view sets on entities of other owners.
    pub(super) fn properties(&self, example: &str) -> Option<BTreeMap<String, Template>> {
        if self.name.is_some_and(|name| name.as_str().contains('-')) {
            let message = "the name of a view that denormalizes is part of a property's name (ek_owner_NAME); expected one without dashes";
            self.section.error("", message);
            return None;
        }
        set(self.section, example, Template::parse_text)
    }

    /// The templates of a member. The primary's keys are among them, each by itself: a member must tell its primary, and a reader of
    /// the list goes on to it.
    pub(super) fn member(&self, keys: &[&str]) -> Option<Vec<Template>> {
        const EXPECTED: &str = "a list of templates, such as [\"{PartitionKey}\", \"{RowKey}\"]";
        let section = self.section;
        if !section.has("member") {
            section.error("member", format!("missing; expected {EXPECTED}"));
        }
        let templates = section.each("member", |text| Template::parse_text(&text).map_err(|error| error.to_string()))?;
        let lacks = |key: &&str| !templates.iter().any(|template| template.bare_property() == Some(key));
        let missing: Vec<String> = keys.iter().filter(|key| lacks(key)).map(|key| format!("\"{{{key}}}\"")).collect();
        if !missing.is_empty() {
            section.error("member", format!("a member must tell its primary: {} is missing from the list", missing.join(" and ")));
            return None;
        }
        Some(templates)
    }
}

/// The key `set` of a view: properties by name, at least one.
pub(super) fn set<V, E: Display>(
    section: &Section<'_>,
    example: &str,
    parse: impl Fn(&str) -> Result<V, E>,
) -> Option<BTreeMap<String, V>> {
    if !section.has("set") {
        section.error("set", format!("missing; expected a table such as {example}"));
    }
    let (inner, texts) = section.texts_by_name("set")?;
    if texts.is_empty() {
        inner.error("", format!("expected at least one property, such as {example}"));
        return None;
    }
    let mut values = BTreeMap::new();
    let mut wrong = false;
    for (name, text) in texts {
        let named = own_property(name).map_err(|problem| inner.error(name, problem));
        let parsed = parse(text).map_err(|problem| inner.error(name, problem));
        match (named, parsed) {
            (Ok(name), Ok(value)) => drop(values.insert(name, value)),
            _ => wrong = true,
        }
    }
    (!wrong).then_some(values)
}

/// The key `select`: properties that are copied.
pub(super) fn select(section: &Section<'_>) -> Option<Vec<String>> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    section.each("select", |name| {
        if name.starts_with(RESERVED_PREFIX) {
            Err(format!("{name:?} is one of evenkeel's own properties, which are never copied"))
        } else if matches!(name.as_str(), "PartitionKey" | "RowKey") {
            Err(format!("{name} is no property to copy: every copy names its primary's keys in ek_source"))
        } else if name == "Timestamp" {
            Err("Timestamp is the service's own: every copy has one of its own".to_owned())
        } else if !valid_property_name(&name) {
            Err(format!("{name:?} is not a property name: letters, digits and underscores, not starting with a digit"))
        } else if !names.insert(name.clone()) {
            Err(format!("{name:?} is selected twice"))
        } else {
            Ok(name)
        }
    })
}

/// A property that evenkeel may write into an entity.
pub(crate) fn own_property(name: &str) -> Result<String, String> {
    if name.starts_with(RESERVED_PREFIX) {
        return Err(format!("{name:?} is one of evenkeel's own properties; expected another name"));
    }
    if !valid_property_name(name) {
        return Err(format!("{name:?} is not a property name: letters, digits and underscores, not starting with a digit"));
    }
    Ok(name.to_owned())
}
