//! `[views.NAME]`, `[archives.NAME]` and `[tables.NAME]`, each for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::section::{Reported, Section};
use super::view_kinds::{self, Targets};
use super::view_search;
use crate::catalog::{Figure, OnConflict, RangeRows};
use crate::model::blob_path::BlobPath;
use crate::model::condition::Condition;
use crate::model::dated::DatedTables;
use crate::model::nearest::nearest;
use crate::model::template::Template;
use crate::model::{AccountName, CollectionName, ContainerName, TableName, ViewName};
use crate::settings::SinkSettings;

/// Kinds of views.
const KINDS: [&str; 6] = ["secondary_index", "index_entity", "denormalize", "aggregate", "large_entity", "search_index"];

/// The declared sinks; nothing in the place of one with a mistake.
pub(super) type Sinks<'s> = &'s [(AccountName, Option<SinkSettings>)];

/// Source or target of views: one table, or tables by date.
pub(super) trait Tables: Sized + Clone + PartialEq + Display {
    /// Reads the value of the key `source`.
    fn source(text: &str) -> Result<Self, String>;
    /// Reads the value of the target's key.
    fn target(text: &str) -> Result<Self, String>;
    /// Says why there is no such kind of view of these; whether there is.
    fn allows(section: &Section<'_>, kind: &str) -> bool;
}

impl Tables for TableName {
    fn source(text: &str) -> Result<Self, String> {
        text.parse::<Self>().map_err(|error| error.to_string())
    }

    fn target(text: &str) -> Result<Self, String> {
        if DatedTables::parse(text).is_ok() {
            return Err(format!("{text:?} are tables by date, and those go with a source of the same dates; expected one table"));
        }
        Self::source(text)
    }

    fn allows(_section: &Section<'_>, _kind: &str) -> bool {
        true
    }
}

impl Tables for DatedTables {
    fn source(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|error| error.to_string())
    }

    fn target(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|_| {
            format!(
                "{text:?} would stay when a table of the source is dropped; expected tables of the same dates, such as \"Derived%Y%m%d\""
            )
        })
    }

    fn allows(section: &Section<'_>, kind: &str) -> bool {
        const WHY: &str = "a table by date is dropped with what is derived from it, which therefore lies in tables of the same dates";
        let (key, expected) = match (kind, section.glance("store"), section.glance("targets")) {
            ("large_entity", ..) => ("kind", "no large_entity view"),
            ("search_index", ..) => ("kind", "no search_index view"),
            ("index_entity", Some("blob"), _) => ("store", "\"table\" or \"partition\""),
            ("denormalize", _, Some("range")) => ("targets", "\"one\""),
            _ => return true,
        };
        section.error(key, format!("{WHY}; expected {expected}"));
        false
    }
}

/// A view without mistakes of its own.
pub(super) struct ViewDraft<'a, T = TableName> {
    pub(super) section: Section<'a>,
    pub(super) name: ViewName,
    pub(super) source: T,
    pub(super) when: Option<Condition>,
    /// Where the rows lie that it makes; `None` where it makes none.
    pub(super) rows: Option<RowsDraft<T>>,
    pub(super) kind: KindDraft,
    pub(super) on_conflict: Option<OnConflict>,
}

impl ViewDraft<'_> {
    /// The table of the rows that it makes, or of those that it keeps properties on.
    pub(super) fn target(&self) -> Option<&TableName> {
        match &self.kind {
            KindDraft::DenormalizeRange(range) => Some(&range.target),
            _ => self.rows.as_ref().map(|rows| &rows.target),
        }
    }
}

/// Where the rows of a view lie.
pub(super) struct RowsDraft<T = TableName> {
    pub(super) target: T,
    pub(super) account: Option<AccountName>,
    pub(super) partition_key: Template,
    pub(super) row_key: Template,
}

/// The entities that a view keeps properties on, and which.
pub(super) struct RangeDraft {
    pub(super) target: TableName,
    pub(super) account: Option<AccountName>,
    pub(super) partition_key: Template,
    pub(super) rows: RangeRows,
    pub(super) set: BTreeMap<String, Template>,
}

/// The keys of a view that depend on its kind, beside those of every view.
pub(super) enum KindDraft {
    SecondaryIndex { select: Option<Vec<String>> },
    IndexEntity { member: Vec<Template>, property: String },
    BlobLists { account: AccountName, container: ContainerName, name: BlobPath, member: Vec<Template> },
    LargeEntity { account: Option<AccountName>, container: ContainerName, properties: BTreeSet<String>, threshold: u64, spill: bool },
    Denormalize { set: BTreeMap<String, Template> },
    DenormalizeRange(RangeDraft),
    Aggregate { set: BTreeMap<String, Figure> },
    SearchIndex { sink: AccountName, index: CollectionName, fields: BTreeMap<String, Template> },
}

impl KindDraft {
    /// The key that names the table of its items.
    pub(super) const fn table_key(&self) -> &'static str {
        match self {
            Self::SecondaryIndex { .. }
            | Self::IndexEntity { .. }
            | Self::BlobLists { .. }
            | Self::LargeEntity { .. }
            | Self::Denormalize { .. }
            | Self::DenormalizeRange(_)
            | Self::SearchIndex { .. } => "table",
            Self::Aggregate { .. } => "group_table",
        }
    }
}

/// A declared table.
pub(super) struct TableDraft<'a> {
    pub(super) section: Section<'a>,
    pub(super) name: TableName,
    pub(super) account: Option<AccountName>,
    /// Its entities may lie over several rows.
    pub(super) wide: bool,
}

/// Reads the name of an account, where one is named.
pub(super) fn account(section: &Section<'_>, accounts: &[AccountName], key: &'static str) -> Result<Option<AccountName>, Reported> {
    if !section.has(key) {
        return Ok(None);
    }
    let name = section.parsed(key, str::parse::<AccountName>).ok_or(Reported)?;
    if accounts.contains(&name) {
        return Ok(Some(name));
    }
    let hint = match nearest(name.as_str(), accounts.iter().map(AccountName::as_str)) {
        Some(known) => format!("did you mean {known:?}?"),
        None => format!("known are {}", accounts.iter().map(AccountName::as_str).collect::<Vec<_>>().join(", ")),
    };
    section.error(key, format!("unknown account {:?}; {hint}", name.as_str()));
    Err(Reported)
}

/// Reads the tables.
pub(super) fn tables<'a>(root: &Section<'a>, accounts: &[AccountName]) -> Vec<TableDraft<'a>> {
    let table = |(name, section): (&str, Section<'a>)| {
        let account = account(&section, accounts, "account");
        let wide = section.truth("wide") == Some(true);
        section.finish();
        let name = TableName::new(name).map_err(|error| section.error("", error)).ok()?;
        Some(TableDraft { name, account: account.ok()?, wide, section })
    };
    root.named("tables").into_iter().filter_map(table).collect()
}

/// Reads the views: those of one table each, and those of tables by date.
pub(super) fn views<'a>(
    root: &Section<'a>,
    accounts: &[AccountName],
    sinks: Sinks<'_>,
) -> (Vec<ViewDraft<'a>>, Vec<ViewDraft<'a, DatedTables>>) {
    let (mut of_one, mut of_dated) = (Vec::new(), Vec::new());
    for (name, section) in root.named("views") {
        if section.glance("source").is_some_and(|source| source.contains('%')) {
            of_dated.extend(view(name, section, accounts, sinks));
        } else {
            of_one.extend(view(name, section, accounts, sinks));
        }
    }
    (of_one, of_dated)
}

fn view<'a, T: Tables>(name: &str, section: Section<'a>, accounts: &[AccountName], sinks: Sinks<'_>) -> Option<ViewDraft<'a, T>> {
    let name = ViewName::new(name).map_err(|error| section.error("", error)).ok();
    let kind = known_kind(&section)?;
    let source = section.required("source", "the table of the primaries", T::source);
    if !T::allows(&section, kind) {
        return None;
    }
    let when = section.has("when").then(|| section.parsed("when", Condition::parse));
    // Which mistake there is in it is said where the kind is read.
    let store = if kind == "index_entity" { section.text("store") } else { None };
    let range = kind == "denormalize" && view_kinds::targets(&section)? == Targets::Range;
    let without_rows = store == Some("blob") || range || matches!(kind, "large_entity" | "search_index");
    let rows = if without_rows { Some(None) } else { rows(&section, accounts, kind, store, source.as_ref()).map(Some) };
    let words = [("reject", OnConflict::Reject), ("last_writer", OnConflict::LastWriter)];
    let (kind, on_conflict) = match kind {
        "index_entity" if store == Some("blob") => (view_kinds::blob_lists(&section, accounts), None),
        "index_entity" => (view_kinds::index_entity(&section), None),
        "aggregate" => (view_kinds::aggregate(&section), None),
        "denormalize" if range => (view_kinds::denormalize_range(&section, name.as_ref(), accounts), None),
        "large_entity" => (view_kinds::large_entity(&section, accounts), None),
        "search_index" => (view_search::search_index(&section, sinks), None),
        "denormalize" => {
            (view_kinds::denormalize(&section, name.as_ref()), section.has("on_conflict").then(|| section.word("on_conflict", &words)))
        }
        _ => (view_kinds::secondary_index(&section), section.has("on_conflict").then(|| section.word("on_conflict", &words))),
    };
    section.finish();
    let when = match when {
        None => None,
        Some(when) => Some(when?),
    };
    let on_conflict = match on_conflict {
        None => None,
        Some(on_conflict) => Some(on_conflict?),
    };
    Some(ViewDraft { name: name?, source: source?, when, rows: rows?, kind: kind?, on_conflict, section })
}

/// Where the rows of a view lie.
fn rows<T: Tables>(
    section: &Section<'_>,
    accounts: &[AccountName],
    kind: &str,
    store: Option<&str>,
    source: Option<&T>,
) -> Option<RowsDraft<T>> {
    let table = if kind == "aggregate" { "group_table" } else { "table" };
    let (target, account, partition_key) = if store == Some("partition") {
        for key in ["table", "account", "partition_key"].into_iter().filter(|key| section.has(key)) {
            section.error(key, "a list with store = \"partition\" lies in the source's own partition; expected no such key");
        }
        (source.cloned(), Ok(None), Template::parse("{PartitionKey}").ok())
    } else {
        (
            section.required(table, "the table that its items lie in", T::target),
            account(section, accounts, "account"),
            section.required("partition_key", "a key template, such as \"{PartitionKey}\"", Template::parse),
        )
    };
    let row_key = section.required("row_key", "a key template, such as \"email_{Email|lower}\"", Template::parse);
    Some(RowsDraft { target: target?, account: account.ok()?, partition_key: partition_key?, row_key: row_key? })
}

/// The kind of a view; reports an unknown one.
fn known_kind(section: &Section<'_>) -> Option<&'static str> {
    let list = KINDS.iter().map(|kind| format!("{kind:?}")).collect::<Vec<_>>().join(" or ");
    let found = section.required_text("kind", &format!("a kind of view: {list}"))?;
    let kind = KINDS.iter().find(|kind| **kind == found);
    if kind.is_none() {
        let hint = nearest(found, KINDS).map(|known| format!("; did you mean {known:?}?"));
        section.error("kind", format!("expected {list}, found {found:?}{}", hint.unwrap_or_default()));
    }
    kind.copied()
}
