//! Rules on tables in several accounts: views write their rows, and nobody else.
//!
//! A row there is where the hash of its partition key says. Whoever else wrote one would have to compute that, and nothing would move it when
//! an account is added.

use super::archives::ArchiveDraft;
use super::views::{ACCOUNTS, TableDraft, ViewDraft};
use evenkeel_model::TableName;
use evenkeel_model::catalog::{Catalog, Form};

const ONE: &str = "expected a table in one account";

/// Checks the tables in several accounts.
pub(super) fn check(
    catalog: &Catalog,
    tables: &[TableDraft<'_>],
    views: &[ViewDraft<'_>],
    archives: &[ArchiveDraft<'_>],
) {
    let is_spread = |table: &TableName| catalog.spread.contains_key(table);
    for table in tables.iter().filter(|table| is_spread(&table.name)) {
        alone(table, views);
    }
    for view in views {
        if is_spread(&view.source) {
            let message = format!(
                "{} lies in several accounts, and the primaries of views lie in one; {ONE}",
                view.source
            );
            view.section.error("source", message);
        }
        if let Some(target) = view.target().filter(|target| is_spread(target)) {
            written(view, target);
        }
    }
    for archive in archives {
        if is_spread(&archive.source) {
            archive.section.error(
                "source",
                format!(
                    "{} lies in several accounts, and views write its rows; {ONE}",
                    archive.source
                ),
            );
        }
        if let Some(target) = archive.table().filter(|target| is_spread(target)) {
            let message = format!(
                "{target} lies in several accounts, and what is archived stays where it was written; {ONE}"
            );
            archive.to.error("table", message);
        }
    }
}

/// A declared table in several accounts has rows of views, and those alone.
fn alone(table: &TableDraft<'_>, views: &[ViewDraft<'_>]) {
    let name = &table.name;
    let keys = [
        ("wide", table.wide),
        ("encrypt", !table.encrypt.is_empty()),
        ("hash", !table.hash.is_empty()),
    ];
    for (key, _) in keys.into_iter().filter(|(_, given)| *given) {
        table.section.error(key, format!("is for entities of your own, and views alone write into {name}, which lies in several accounts"));
    }
    if !views.iter().any(|view| view.target() == Some(name)) {
        table.section.error(
            ACCOUNTS,
            format!("no view writes into {name}, and an application's entities lie where it writes them; expected account, with one name"),
        );
    }
}

/// What a view writes into a table in several accounts is rows of its own.
fn written(view: &ViewDraft<'_>, target: &TableName) {
    match view.form() {
        Form::Copies { .. } | Form::Lists { .. } if *target != view.source => {}
        Form::Properties { .. } | Form::Claims(_) => view.section.error(
            view.declared.table_key,
            format!("{target} lies in several accounts, and properties are set on entities of your own, which lie in one; {ONE}"),
        ),
        // Its source is told of already.
        Form::Copies { .. } | Form::Lists { .. } | Form::BlobLists(_) | Form::Values(_) | Form::Documents(_) => {}
    }
}
