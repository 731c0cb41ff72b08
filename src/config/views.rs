//! `[views.NAME]`, `[archives.NAME]`, `[tables.NAME]` and `[retention.NAME]`, each for itself.

use super::finding::Finding;
use super::section::{Reported, Section};
use super::units::parse_size;
use crate::catalog::OnConflict;
use crate::model::condition::Condition;
use crate::model::entity::{RESERVED_PREFIX, valid_property_name};
use crate::model::nearest::nearest;
use crate::model::template::Template;
use crate::model::{AccountName, TableName, ViewName};

pub(super) const UNSUPPORTED: &str = "is not supported by this version of evenkeel";

/// Kinds of views that the format has and this version does not.
const OTHER_KINDS: [&str; 4] = ["index_entity", "denormalize", "large_entity", "aggregate"];

/// A view without mistakes of its own.
pub(super) struct ViewDraft<'a> {
    pub(super) section: Section<'a>,
    pub(super) name: ViewName,
    pub(super) source: TableName,
    pub(super) target: TableName,
    pub(super) account: Option<AccountName>,
    pub(super) when: Option<Condition>,
    pub(super) partition_key: Template,
    pub(super) row_key: Template,
    pub(super) select: Option<Vec<String>>,
    pub(super) on_conflict: Option<OnConflict>,
}

/// A declared table.
pub(super) struct TableDraft<'a> {
    pub(super) section: Section<'a>,
    pub(super) name: TableName,
    pub(super) account: Option<AccountName>,
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
        if section.truth("wide") == Some(true) {
            section.error("wide", format!("wide = true {UNSUPPORTED}"));
        }
        section.finish();
        let name = TableName::new(name).map_err(|error| section.error("", error)).ok()?;
        Some(TableDraft { name, account: account.ok()?, section })
    };
    root.named("tables").into_iter().filter_map(table).collect()
}

/// Says that retention is for later versions.
pub(super) fn retention(root: &Section<'_>) {
    for (_, section) in root.named("retention") {
        section.error("", format!("[retention] {UNSUPPORTED}"));
    }
}

/// Reads the views.
pub(super) fn views<'a>(root: &Section<'a>, accounts: &[AccountName]) -> Vec<ViewDraft<'a>> {
    root.named("views").into_iter().filter_map(|(name, section)| view(name, section, accounts)).collect()
}

fn view<'a>(name: &str, section: Section<'a>, accounts: &[AccountName]) -> Option<ViewDraft<'a>> {
    let name = ViewName::new(name).map_err(|error| section.error("", error)).ok();
    if !supported(&section, "kind", "a kind of view", "secondary_index", &OTHER_KINDS) {
        // A size with a wrong unit is worth saying even where its view is refused.
        let _ = section.parsed("threshold", parse_size);
        return None;
    }
    let source = section.required("source", "the table of the primaries", str::parse::<TableName>);
    let when = section.has("when").then(|| section.parsed("when", Condition::parse));
    let target = section.required("table", "the table that the copies lie in", str::parse::<TableName>);
    let account = account(&section, accounts, "account");
    let partition_key = section.required("partition_key", "a key template, such as \"{PartitionKey}\"", Template::parse);
    let row_key = section.required("row_key", "a key template, such as \"email_{Email|lower}\"", Template::parse);
    let select = section.has("select").then(|| select(&section));
    let words = [("reject", OnConflict::Reject), ("last_writer", OnConflict::LastWriter)];
    let on_conflict = section.has("on_conflict").then(|| section.word("on_conflict", &words));
    section.finish();
    let when = match when {
        None => None,
        Some(when) => Some(when?),
    };
    let select = match select {
        None => None,
        Some(select) => Some(select?),
    };
    let on_conflict = match on_conflict {
        None => None,
        Some(on_conflict) => Some(on_conflict?),
    };
    Some(ViewDraft {
        name: name?,
        source: source?,
        target: target?,
        account: account.ok()?,
        when,
        partition_key: partition_key?,
        row_key: row_key?,
        select,
        on_conflict,
        section,
    })
}

/// Whether a kind is the one supported; says what is wrong otherwise.
fn supported(section: &Section<'_>, key: &'static str, what: &str, only: &'static str, others: &[&'static str]) -> bool {
    let Some(kind) = section.required_text(key, &format!("{what}: {only:?}")) else { return false };
    if kind == only {
        return true;
    }
    if others.contains(&kind) {
        section.error(key, format!("{kind:?} {UNSUPPORTED}; supported is {only:?}"));
    } else {
        let hint =
            nearest(kind, others.iter().copied().chain([only])).map(|known| format!("; did you mean {known:?}?")).unwrap_or_default();
        section.error(key, format!("expected {only:?}, found {kind:?}{hint}"));
    }
    false
}

fn select(section: &Section<'_>) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    let mut wrong = false;
    for (name, origin) in section.texts("select")? {
        let problem = if name.starts_with(RESERVED_PREFIX) {
            Some(format!("{name:?} is one of evenkeel's own properties, which are never copied"))
        } else if matches!(name.as_str(), "PartitionKey" | "RowKey") {
            Some(format!("{name} is no property to copy: every copy names its primary's keys in ek_source"))
        } else if name == "Timestamp" {
            Some("Timestamp is the service's own: every copy has one of its own".to_owned())
        } else if !valid_property_name(&name) {
            Some(format!("{name:?} is not a property name: letters, digits and underscores, not starting with a digit"))
        } else if names.contains(&name) {
            Some(format!("{name:?} is selected twice"))
        } else {
            None
        };
        match problem {
            None => names.push(name),
            Some(problem) => {
                wrong = true;
                section.cx.error(Finding::new(origin.as_ref(), section.path_of("select"), problem));
            }
        }
    }
    (!wrong).then_some(names)
}
