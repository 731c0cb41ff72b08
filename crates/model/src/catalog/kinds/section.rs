//! How a kind of view reads its section. The keys, their defaults and the messages are in the file
//! of the kind.
//!
//! `config` implements [`ViewSection`] with files, origins and findings. A mistake is reported at
//! its key, and the reader goes on after a mistake, so that all mistakes are reported at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::ViewKind;
use crate::catalog::place::{AccountSet, TableRef};
use crate::catalog::view::OnConflict;
use crate::entity::{PROPERTY_NAME_RULE, RESERVED_PREFIX, valid_property_name};
use crate::settings::SinkKind;
use crate::template::Template;
use crate::{AccountName, ViewName};

/// The error for a mistake that was already reported.
#[derive(Debug, Clone, Copy)]
pub struct AlreadyReported;

/// A kind with the settings of one section. `P` is the type of the target.
#[derive(Debug)]
pub struct DeclaredKind<P> {
    /// The kind.
    pub kind: ViewKind<P>,
    /// What happens if two primaries derive items with the same key. `None` if the section does not
    /// set `on_conflict`.
    pub on_conflict: Option<OnConflict>,
    /// A function that fills in a setting whose default depends on the source.
    pub complete: Option<CompleteKind>,
}

/// A function that fills in the settings of a kind whose defaults depend on the source.
pub type CompleteKind = fn(ViewKind, &TableRef) -> ViewKind;

/// A function that reads a section. The result is `None` if the section has a mistake, which the
/// function has reported.
pub type ReadKind<S> = fn(&S) -> Option<DeclaredKind<<S as ViewSection>::Target>>;

impl<P> DeclaredKind<P> {
    /// A kind without `on_conflict` and without a setting whose default depends on the source.
    pub(super) fn new(kind: impl Into<ViewKind<P>>) -> Self {
        Self {
            kind: kind.into(),
            on_conflict: None,
            complete: None,
        }
    }
}

/// The target and the keys of a view's rows.
#[derive(Debug)]
pub struct KeyedRows<P> {
    pub(super) target: P,
    pub(super) partition_key: Template,
    pub(super) row_key: Template,
}

/// The section of a view. Keys that the reader does not request are reported as unknown.
pub trait ViewSection {
    /// The type of the view's target.
    type Target;

    /// Whether the source is a set of dated tables.
    fn is_by_date(&self) -> bool;
    /// The name of the view, if it is valid.
    fn view_name(&self) -> Option<&ViewName>;
    /// Whether the section contains a key.
    fn has(&self, key: &'static str) -> bool;
    /// Reports a mistake at a key.
    fn error(&self, key: &str, message: impl Display);
    /// Reports a mistake at a name in the TOML table of a key.
    fn error_in(&self, key: &'static str, name: &str, message: impl Display);
    /// Turns off the report of unknown keys. A reader calls this function after a mistake that
    /// makes it unclear which keys are valid.
    fn ignore_unknown_keys(&self);
    /// A required text, parsed by `parse`. `expected` describes the text in the message if the key
    /// is missing.
    fn required<T, E: Display>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T>;
    /// Like [`required`](Self::required), for an optional key.
    fn parsed<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T>;
    /// A required quantity with its unit. A number without a unit has a separate message.
    fn quantity<T>(
        &self,
        key: &'static str,
        expected: &str,
        unit: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T>;
    /// The value that belongs to the word at this key; one of the given words is required.
    fn one_of<T: Copy>(&self, key: &'static str, words: &[(&'static str, T)]) -> Option<T>;
    /// Parses each text of a list.
    fn list<T>(
        &self,
        key: &'static str,
        read: impl FnMut(String) -> Result<T, String>,
    ) -> Option<Vec<T>>;
    /// The names in the TOML table of a key, each with its text.
    fn texts_by_name(&self, key: &'static str) -> Option<Vec<(&str, &str)>>;
    /// The target that a key names. The keys `account` and `accounts` select its accounts.
    fn target(&self, key: &'static str) -> Option<Self::Target>;
    /// Like [`target`](Self::target), for a target that must be in one account for the reason `why`.
    fn target_in_one_account(&self, key: &'static str, why: &str) -> Option<Self::Target>;
    /// The source, as the target of the view.
    fn source_as_target(&self) -> Option<Self::Target>;
    /// The key `account`, for something that must be in one account for the reason `why`.
    fn account(&self, why: &str) -> Result<Option<AccountName>, AlreadyReported>;
    /// The key `account` or `accounts`.
    fn accounts(&self) -> Result<Option<AccountSet>, AlreadyReported>;
    /// The key `sink`. Returns the name of the sink, and what `of` returns for the kind of the
    /// sink. Both texts of `wanted` are for messages: the expected kind of sink, and how to declare
    /// such a sink. The second result is `None` if a mistake in the sink was already reported.
    fn sink<R>(
        &self,
        wanted: (&str, &str),
        of: impl Fn(&SinkKind) -> Option<R>,
    ) -> Option<(AccountName, Option<R>)>;

    /// Reads an optional key. The result is `Ok(None)` if the key is absent.
    fn optional<V>(
        &self,
        key: &'static str,
        read: impl FnOnce(&Self) -> Option<V>,
    ) -> Result<Option<V>, AlreadyReported> {
        if self.has(key) {
            read(self).map(Some).ok_or(AlreadyReported)
        } else {
            Ok(None)
        }
    }

    /// Reports each of these keys that is present, because the kind does not support the key.
    fn reject_keys(&self, keys: &[&'static str], why: &str) {
        for key in keys.iter().filter(|key| self.has(key)) {
            self.error(key, format!("{why}; remove this key"));
        }
    }

    /// Reports a kind or setting that views of dated tables do not support, and returns `None` for
    /// such a view.
    fn reject_dated_source(&self, key: &'static str, expected: &str) -> Option<()> {
        const WHY: &str = "a view of dated tables must write to tables of the same dates";
        if self.is_by_date() {
            self.error(key, format!("{WHY}; expected {expected}"));
            self.ignore_unknown_keys();
            return None;
        }
        Some(())
    }

    /// The key `on_conflict`.
    fn on_conflict(&self) -> Result<Option<OnConflict>, AlreadyReported> {
        let words = [
            ("reject", OnConflict::Reject),
            ("last_writer", OnConflict::LastWriter),
        ];
        self.optional("on_conflict", |section| {
            section.one_of("on_conflict", &words)
        })
    }

    /// The target and the key templates of rows in any table.
    fn rows(&self, table: &'static str) -> Option<KeyedRows<Self::Target>> {
        let target = self.target(table);
        let partition_key = self.required(
            "partition_key",
            "a key template, such as \"{PartitionKey}\"",
            Template::parse_row_key,
        );
        // Both keys are read before a mistake ends the function, so that mistakes in either key are
        // reported.
        let row_key = self.row_key();
        let (partition_key, row_key) = (partition_key?, row_key?);
        if let (Some(one), Some(other)) = (partition_key.each(), row_key.each())
            && (one.property(), one.list()) != (other.property(), other.list())
        {
            self.error(
                "row_key",
                "both keys must use the same list: expected the property of partition_key, with the same filter each",
            );
            return None;
        }
        Some(KeyedRows {
            target: target?,
            partition_key,
            row_key,
        })
    }

    /// The target and the key templates of rows that are in the partitions of their primaries.
    fn rows_in_source_partition(&self) -> Option<KeyedRows<Self::Target>> {
        self.reject_keys(
            &["table", "account", "accounts", "partition_key"],
            "with store = \"partition\" a list is in the source's own partition",
        );
        let (row_key, partition_key) = (self.row_key(), Template::parse("{PartitionKey}").ok());
        Some(KeyedRows {
            target: self.source_as_target()?,
            partition_key: partition_key?,
            row_key: row_key?,
        })
    }

    /// The key `row_key`.
    fn row_key(&self) -> Option<Template> {
        self.required(
            "row_key",
            "a key template, such as \"email_{Email|lower}\"",
            Template::parse_row_key,
        )
    }

    /// The properties that a view sets on entities of other owners.
    fn properties(&self, example: &str) -> Option<BTreeMap<String, Template>> {
        if self
            .view_name()
            .is_some_and(|name| name.as_str().contains('-'))
        {
            let message = "the name of a denormalize view is part of a property name (ek_owner_NAME); expected a name without dashes";
            self.error("", message);
            return None;
        }
        self.set(example, Template::parse_text)
    }

    /// The templates of a member's parts. Each of `keys` (the primary's keys) must be a separate
    /// part, because readers of the list use the keys to find the primary.
    fn member(&self, keys: &[&str]) -> Option<Vec<Template>> {
        const EXPECTED: &str = "a list of templates, such as [\"{PartitionKey}\", \"{RowKey}\"]";
        if !self.has("member") {
            self.error("member", format!("missing; expected {EXPECTED}"));
        }
        let templates = self.list("member", |text| {
            Template::parse_text(&text).map_err(|error| error.to_string())
        })?;
        let lacks = |key: &&str| {
            !templates
                .iter()
                .any(|template| template.bare_property() == Some(key))
        };
        let missing: Vec<String> = keys
            .iter()
            .filter(|key| lacks(key))
            .map(|key| format!("\"{{{key}}}\""))
            .collect();
        if !missing.is_empty() {
            self.error(
                "member",
                format!(
                    "a member must contain the keys of its primary: {} is missing",
                    missing.join(" and ")
                ),
            );
            return None;
        }
        Some(templates)
    }

    /// The key `set`: at least one property, each with its name.
    fn set<V, E: Display>(
        &self,
        example: &str,
        parse: impl Fn(&str) -> Result<V, E>,
    ) -> Option<BTreeMap<String, V>> {
        if !self.has("set") {
            self.error(
                "set",
                format!("missing; expected a table such as {example}"),
            );
        }
        let texts = self.texts_by_name("set")?;
        if texts.is_empty() {
            self.error(
                "set",
                format!("expected at least one property, such as {example}"),
            );
            return None;
        }
        let mut values = BTreeMap::new();
        let mut wrong = false;
        for (name, text) in texts {
            let named = own_property(name).map_err(|problem| self.error_in("set", name, problem));
            let parsed = parse(text).map_err(|problem| self.error_in("set", name, problem));
            match (named, parsed) {
                (Ok(name), Ok(value)) => drop(values.insert(name, value)),
                _ => wrong = true,
            }
        }
        (!wrong).then_some(values)
    }

    /// The key `select`: the properties to copy.
    fn select(&self) -> Option<Vec<String>> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        self.list("select", |name| {
            if name.starts_with(RESERVED_PREFIX) {
                Err(format!(
                    "{name:?} is one of evenkeel's own properties, which are never copied"
                ))
            } else if matches!(name.as_str(), "PartitionKey" | "RowKey") {
                Err(format!(
                    "{name} cannot be selected: every copy has its primary's keys in ek_source"
                ))
            } else if name == "Timestamp" {
                Err("Timestamp cannot be selected: the service sets it on every row".to_owned())
            } else if !valid_property_name(&name) {
                Err(format!(
                    "{name:?} is not a property name: {PROPERTY_NAME_RULE}"
                ))
            } else if !names.insert(name.clone()) {
                Err(format!("{name:?} is selected twice"))
            } else {
                Ok(name)
            }
        })
    }
}

/// Checks the name of a property that evenkeel may write to an entity.
pub fn own_property(name: &str) -> Result<String, String> {
    if name.starts_with(RESERVED_PREFIX) {
        return Err(format!(
            "{name:?} is one of evenkeel's own properties; expected another name"
        ));
    }
    if !valid_property_name(name) {
        return Err(format!(
            "{name:?} is not a property name: {PROPERTY_NAME_RULE}"
        ));
    }
    Ok(name.to_owned())
}
