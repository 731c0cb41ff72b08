//! Rules on views of tables by date: their targets come and go with their sources.

use super::archives::ArchiveDraft;
use super::catalog_rules::{is_reserved, keys, same_rows};
use super::retention::RetentionDraft;
use super::section::Section;
use super::views::{Named, TableDraft, ViewDraft};
use evenkeel_model::TableName;
use evenkeel_model::catalog::{Catalog, FOOTPRINTS, Retention};
use evenkeel_model::dated::DatedTables;

/// Checks the views of tables by date against the retentions and among each other.
pub(super) fn check(views: &[ViewDraft<'_, DatedTables>], retentions: &[RetentionDraft<'_>]) {
    for draft in retentions {
        reserved(&draft.retention.tables, &draft.section, "tables");
    }
    for (at, view) in views.iter().enumerate() {
        keys(view);
        let Some(retention) = source(view, views, retentions) else {
            continue;
        };
        if let Some(named) = view.form().target() {
            target(view, named, retention, retentions);
            shared(view, named, &views[..at]);
        }
    }
    same_rows(views);
}

fn reserved(tables: &DatedTables, section: &Section<'_>, key: &str) {
    if is_reserved(tables.prefix()) {
        section.error(
            key,
            format!("the tables {tables} hold evenkeel's own records; expected others"),
        );
    }
}

/// The retention of the tables that a view reads; reports the problem where there is none.
fn source<'r>(
    view: &ViewDraft<'_, DatedTables>,
    views: &[ViewDraft<'_, DatedTables>],
    retentions: &'r [RetentionDraft<'_>],
) -> Option<&'r Retention> {
    let tables = &view.source;
    let wrong = |message: String| {
        view.section.error("source", message);
        None
    };
    let Some(RetentionDraft { retention, .. }) = retentions
        .iter()
        .find(|draft| draft.retention.tables == *tables)
    else {
        let writes = |other: &&ViewDraft<'_, DatedTables>| other.target() == Some(tables);
        if let Some(other) = views.iter().find(writes) {
            let message = "is what the view";
            return wrong(format!(
                "{tables} {message} {} writes, and nothing is derived from that in turn; expected the tables of a [retention]",
                other.name
            ));
        }
        let known: Vec<String> = retentions
            .iter()
            .map(|draft| format!("{:?}", draft.retention.tables.to_string()))
            .collect();
        let known = if known.is_empty() {
            "there are none".to_owned()
        } else {
            format!("known are {}", known.join(", "))
        };
        return wrong(format!(
            "no [retention] has the tables {tables}; expected the very text of its `tables`, and {known}"
        ));
    };
    if retention.tables.to_string() != tables.to_string() {
        return wrong(format!(
            "[retention.{}] spells its tables {:?}; expected the very same text",
            retention.name,
            retention.tables.to_string()
        ));
    }
    if retention.footprints().is_none() {
        return wrong(format!(
            "what its entities own would be kept in tables {FOOTPRINTS}{tables}, and a table's name has at most 63 characters; expected a shorter name"
        ));
    }
    Some(retention)
}

/// The target of a view belongs to its source, or follows it and nothing else.
fn target(
    view: &ViewDraft<'_, DatedTables>,
    named: &Named<DatedTables>,
    retention: &Retention,
    retentions: &[RetentionDraft<'_>],
) {
    let key = view.declared.table_key;
    let (target, source) = (&named.tables, &view.source);
    let wrong = |message: String| view.section.error(key, message);
    reserved(target, &view.section, key);
    if !target.has_dates_of(source) {
        wrong(format!(
            "{target} has other dates than the source, with whose tables its own come and go; expected \"{}{}\"",
            target.prefix(),
            source.dates()
        ));
    } else if target == source {
        if target.to_string() != source.to_string() {
            wrong(format!(
                "the source is spelled {:?}; expected the very same text",
                source.to_string()
            ));
        }
        if let Some(account) = named
            .accounts
            .as_ref()
            .filter(|account| **account != retention.account.clone().into())
        {
            let message = format!(
                "the tables {source} are in account {}, and {account} is named here",
                retention.account
            );
            view.section.error("account", message);
        }
    } else if let Some(other) = retentions
        .iter()
        .find(|other| other.retention.tables == *target)
    {
        wrong(format!(
            "{target} is kept by [retention.{}], and what is derived from {source} goes with {source}; expected tables of no [retention]",
            other.retention.name
        ));
    }
}

/// Views that write into the same tables read the same ones, and mean the same.
fn shared(
    view: &ViewDraft<'_, DatedTables>,
    named: &Named<DatedTables>,
    before: &[ViewDraft<'_, DatedTables>],
) {
    let target = &named.tables;
    for other in before {
        let Some(others) = other
            .form()
            .target()
            .filter(|others| others.tables == *target)
        else {
            continue;
        };
        if other.source != view.source {
            let message = "tables that follow others have one source";
            view.section.error(
                view.declared.table_key,
                format!(
                    "the view {} writes into {target} from {}; {message}, expected others",
                    other.name, other.source
                ),
            );
        } else if others.tables.to_string() != target.to_string() {
            view.section.error(
                view.declared.table_key,
                format!(
                    "the view {} spells it {:?}; expected the very same text",
                    other.name,
                    others.tables.to_string()
                ),
            );
        } else if others.accounts != named.accounts && *target != view.source {
            view.section.error(
                "account",
                format!(
                    "the view {} writes into {target} in another account; expected the same",
                    other.name
                ),
            );
        }
    }
}

/// A table that is one of a pattern's is dropped with its period, and is therefore named by the pattern only.
pub(super) fn named_one_by_one(
    catalog: &Catalog,
    tables: &[TableDraft<'_>],
    views: &[ViewDraft<'_>],
    archives: &[ArchiveDraft<'_>],
) {
    for view in views {
        one_of_a_retention(catalog, &view.section, "source", &view.source);
        if let Some(target) = view.target().filter(|target| **target != view.source) {
            one_of_a_retention(catalog, &view.section, view.declared.table_key, target);
            one_that_follows(catalog, &view.section, view.declared.table_key, target);
        }
        one_that_follows(catalog, &view.section, "source", &view.source);
    }
    for table in tables {
        one_that_follows(catalog, &table.section, "", &table.name);
    }
    for archive in archives {
        one_that_follows(catalog, &archive.section, "source", &archive.source);
        if let Some(target) = archive.table() {
            one_that_follows(catalog, &archive.to, "table", target);
        }
    }
}

fn one_of_a_retention(catalog: &Catalog, section: &Section<'_>, key: &str, table: &TableName) {
    if let Some(retention) = catalog.retention_of(table) {
        let (name, tables) = (&retention.name, retention.tables.to_string());
        section.error(
            key,
            format!(
                "{table} is one of the tables of [retention.{name}], and dropped with its period; expected {tables:?} or another table"
            ),
        );
    }
}

fn one_that_follows(catalog: &Catalog, section: &Section<'_>, key: &str, table: &TableName) {
    let writes = |tables: &DatedTables| tables.period(table).is_some();
    let follows = |retention: &&std::sync::Arc<Retention>| {
        catalog
            .followers(retention)
            .targets
            .iter()
            .any(|follower| writes(&follower.tables))
    };
    if let Some(retention) = catalog.retentions.values().find(follows) {
        section.error(
            key,
            format!("{table} follows a table of [retention.{}], and is dropped with it; expected another table", retention.name),
        );
    }
}
