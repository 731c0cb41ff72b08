//! Keys of a view that depend on its kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::section::Section;
use super::units::parse_size;
use super::views::{KindDraft, RangeDraft, Tables as _, account};
use crate::catalog::{Figure, RangeRows};
use crate::model::blob_path::BlobPath;
use crate::model::entity::{RESERVED_PREFIX, valid_property_name};
use crate::model::large::STAGING;
use crate::model::template::Template;
use crate::model::{AccountName, ContainerName, TableName, ViewName};

pub(super) fn secondary_index(section: &Section<'_>) -> Option<KindDraft> {
    match section.has("select").then(|| select(section)) {
        None => Some(KindDraft::SecondaryIndex { select: None }),
        Some(select) => Some(KindDraft::SecondaryIndex { select: Some(select?) }),
    }
}

pub(super) fn index_entity(section: &Section<'_>) -> Option<KindDraft> {
    if section.has("on_conflict") {
        section.error("on_conflict", "a list takes every primary, so there are no conflicts; expected no such key");
    }
    let store = store(section);
    // A list in the primary's own partition identifies that partition.
    let member = member(section, if store == Some(Store::Partition) { &["RowKey"][..] } else { &["PartitionKey", "RowKey"] });
    let property = section.required("property", "the name of the property that holds the list, such as \"Employees\"", own_property);
    store?;
    Some(KindDraft::IndexEntity { member: member?, property: property? })
}

/// An index entity with `store = "blob"`.
pub(super) fn blob_lists(section: &Section<'_>, accounts: &[AccountName]) -> Option<KindDraft> {
    if section.has("on_conflict") {
        section.error("on_conflict", "a list takes every primary, so there are no conflicts; expected no such key");
    }
    for key in ["table", "partition_key", "row_key", "property"].into_iter().filter(|key| section.has(key)) {
        section.error(key, "a list with store = \"blob\" is a blob, found by container and name; expected no such key");
    }
    let member = member(section, &["PartitionKey", "RowKey"]);
    let account = account(section, accounts, "account");
    let container = section.required("container", "the container of the lists", str::parse::<ContainerName>);
    let name = section.required("name", "a blob name of key templates, such as \"by_name/{LastName|lower}.jsonl\"", BlobPath::parse);
    Some(KindDraft::BlobLists {
        account: account.ok()?.unwrap_or_else(AccountName::main),
        container: container?,
        name: name?,
        member: member?,
    })
}

pub(super) fn large_entity(section: &Section<'_>, accounts: &[AccountName]) -> Option<KindDraft> {
    if section.has("when") {
        section.error("when", "a value that has gone into a blob stays there, whatever becomes of its entity; expected no such key");
    }
    if section.has("on_conflict") {
        section.error("on_conflict", "blobs are named by their primaries, so there are no conflicts; expected no such key");
    }
    let account = account(section, accounts, "account");
    let container = section.required("container", "the container of the blobs, such as \"employee-large\"", str::parse::<ContainerName>);
    if container.as_ref().is_some_and(|container| container.as_str() == STAGING) {
        section.error("container", format!("{STAGING} is where senders stage what is too large for a message; expected another one"));
    }
    let properties = if section.has("properties") { large_properties(section) } else { Some(BTreeSet::new()) };
    let threshold = if section.has("threshold") {
        section.measure("threshold", "a size such as \"32KiB\"", "B", parse_size)
    } else {
        Some(DEFAULT_THRESHOLD)
    };
    let spill = section.truth("spill") == Some(true);
    Some(KindDraft::LargeEntity { account: account.ok()?, container: container?, properties: properties?, threshold: threshold?, spill })
}

/// Default threshold above which declared properties go into blobs: half of a property's capacity.
const DEFAULT_THRESHOLD: u64 = 32 << 10;

fn large_properties(section: &Section<'_>) -> Option<BTreeSet<String>> {
    let names = section.each("properties", |name| own_property(&name))?;
    Some(names.into_iter().collect())
}

pub(super) fn denormalize(section: &Section<'_>, name: Option<&ViewName>) -> Option<KindDraft> {
    let set = properties(section, name, "{ ManagerName = \"{FirstName} {LastName}\" }");
    Some(KindDraft::Denormalize { set: set? })
}

/// Number of entities that a denormalization sets properties on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Targets {
    /// Those of one entity.
    One,
    /// Those of all entities of a range.
    Range,
}

/// The targets of a denormalization; one entity by default.
pub(super) fn targets(section: &Section<'_>) -> Option<Targets> {
    if section.has("targets") { section.word("targets", &[("one", Targets::One), ("range", Targets::Range)]) } else { Some(Targets::One) }
}

pub(super) fn denormalize_range(section: &Section<'_>, name: Option<&ViewName>, accounts: &[AccountName]) -> Option<KindDraft> {
    if section.has("row_key") {
        section.error("row_key", "with targets = \"range\" it is about many rows; expected row_key_prefix, or row_key_from and row_key_before, or none of them for the whole partition");
    }
    if section.has("on_conflict") && section.word("on_conflict", &[("reject", ())]).is_none() {
        section.error("on_conflict", "of several whose ranges overlap the first keeps an entity; expected \"reject\" or no such key");
    }
    let target = section.required("table", "the table of the entities", TableName::target);
    let account = account(section, accounts, "account");
    let partition_key = section.required("partition_key", "a key template, such as \"{PartitionKey}\"", Template::parse);
    let key = |key| if section.has(key) { section.parsed(key, Template::parse).map(Some) } else { Some(None) };
    let (prefix, from, before) = (key("row_key_prefix"), key("row_key_from"), key("row_key_before"));
    let set = properties(section, name, "{ DepartmentName = \"{Name}\" }");
    let rows = match (prefix?, from?, before?) {
        (None, None, None) => RangeRows::All,
        (Some(prefix), None, None) => RangeRows::Prefix(prefix),
        (None, from, before) => RangeRows::Between { from, before },
        (Some(_), ..) => {
            section.error("row_key_prefix", "a prefix is a range by itself; expected no row_key_from and no row_key_before beside it");
            return None;
        }
    };
    Some(KindDraft::DenormalizeRange(RangeDraft {
        target: target?,
        account: account.ok()?,
        partition_key: partition_key?,
        rows,
        set: set?,
    }))
}

/// The properties that a view sets on entities of other owners.
fn properties(section: &Section<'_>, name: Option<&ViewName>, example: &str) -> Option<BTreeMap<String, Template>> {
    if name.is_some_and(|name| name.as_str().contains('-')) {
        section.error("", "the name of a view that denormalizes is part of a property's name (ek_owner_NAME); expected one without dashes");
        return None;
    }
    set(section, example, Template::parse_text)
}

pub(super) fn aggregate(section: &Section<'_>) -> Option<KindDraft> {
    if section.has("on_conflict") {
        section.error("on_conflict", "a group takes every primary, so there are no conflicts; expected no such key");
    }
    Some(KindDraft::Aggregate { set: set(section, "{ Headcount = \"count()\" }", str::parse::<Figure>)? })
}

/// The key `set` of a view: properties by name, at least one.
fn set<T, E: Display>(section: &Section<'_>, example: &str, parse: impl Fn(&str) -> Result<T, E>) -> Option<BTreeMap<String, T>> {
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

/// Where lists lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    /// In a table, under any key.
    Table,
    /// In the source's table, each in the partition of its primaries.
    Partition,
    /// A blob each.
    Blob,
}

/// Where the lists of an index entity lie.
pub(super) fn store(section: &Section<'_>) -> Option<Store> {
    if !section.has("store") {
        section.error("store", "missing; expected \"table\", \"partition\" or \"blob\"");
    }
    section.word("store", &[("table", Store::Table), ("partition", Store::Partition), ("blob", Store::Blob)])
}

/// A property that evenkeel may write into an entity.
fn own_property(name: &str) -> Result<String, String> {
    if name.starts_with(RESERVED_PREFIX) {
        return Err(format!("{name:?} is one of evenkeel's own properties; expected another name"));
    }
    if !valid_property_name(name) {
        return Err(format!("{name:?} is not a property name: letters, digits and underscores, not starting with a digit"));
    }
    Ok(name.to_owned())
}

/// The templates of a member. Both keys are among them, each by itself: a member must tell its primary, and a reader of
/// the list goes on to it.
fn member(section: &Section<'_>, keys: &[&str]) -> Option<Vec<Template>> {
    const EXPECTED: &str = "a list of templates, such as [\"{PartitionKey}\", \"{RowKey}\"]";
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
