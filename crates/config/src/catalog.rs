//! The catalog: tables found, spelled and placed, then views and archives over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::archives::{self, ArchiveDraft, TargetDraft};
use super::retention::RetentionDraft;
use super::section::Section;
use super::sinks::Sinks;
use super::views::{self, Named, TableDraft, ViewDraft};
use super::{catalog_rules, dated_rules, encryption, retention, rules};
use evenkeel_model::catalog::{Archive, ArchiveTarget, Catalog, DatedRef, DatedRefs, Generations, ListSizes, TableRef, View};
use evenkeel_model::model::dated::DatedTables;
use evenkeel_model::model::{AccountName, TableName};
use evenkeel_model::settings::EncryptionSettings;

/// Tables by name, with the account that was named for each, if any.
#[derive(Default)]
struct NamedTables(BTreeMap<TableName, Option<AccountName>>);

impl NamedTables {
    /// Adds a table. The first spelling stays. A table has one account.
    fn declare(&mut self, name: &TableName, account: Option<&AccountName>, section: &Section<'_>, key: &str) {
        let known = self.0.entry(name.clone()).or_insert_with(|| account.cloned());
        match (&known, account) {
            (Some(first), Some(second)) if first != second => {
                let message = format!(
                    "the table {name} is in account {first} elsewhere and in account {second} here; a table name belongs to one account"
                );
                section.error(key, message);
            }
            (None, Some(account)) => *known = Some(account.clone()),
            (Some(_), _) | (None, None) => {}
        }
    }

    /// Where a declared table lies.
    fn place(&self, name: &TableName) -> TableRef {
        let (table, account) = self.0.get_key_value(name).map_or((name, None), |(name, account)| (name, account.clone()));
        TableRef { account: account.unwrap_or_else(AccountName::main), table: table.clone() }
    }
}

/// Reads the catalog. With a mistake in it, the result is incomplete and not to be used.
pub(super) fn read(root: &Section<'_>, accounts: &[AccountName], sinks: Sinks<'_>, keys: &EncryptionSettings) -> Catalog {
    let declared = views::tables(root, accounts);
    let (views, dated_views) = views::views(root, accounts, sinks);
    let archives = archives::archives(root, accounts);
    let retentions = retention::retentions(root, accounts);
    let tables = tables(&declared, &views, &archives);
    let wide = declared.iter().filter(|table| table.wide).map(|table| tables.place(&table.name)).collect();
    let hashed = declared.iter().filter(|table| !table.hash.is_empty());
    let hashed = hashed.map(|table| (tables.place(&table.name), table.hash.clone())).collect();
    let encrypted = declared.iter().filter(|table| !table.encrypt.is_empty());
    let encrypted = encrypted.map(|table| (tables.place(&table.name), table.encrypt.clone())).collect();
    let catalog = Catalog {
        declared: declared.iter().map(|table| tables.place(&table.name)).collect(),
        wide,
        encrypted,
        hashed,
        tables: tables.0.keys().map(|name| (name.clone(), tables.place(name))).collect(),
        views: views.iter().map(|draft| (draft.name.clone(), Arc::new(view(draft, &tables)))).collect(),
        dated_views: dated_views.iter().filter_map(|draft| Some((draft.name.clone(), Arc::new(dated_view(draft, &retentions)?)))).collect(),
        archives: archives.iter().map(|draft| (draft.name.clone(), Arc::new(archive(draft, &tables)))).collect(),
        filings: BTreeMap::new(),
        retentions: retentions.iter().map(|draft| (draft.retention.name.clone(), Arc::new(draft.retention.clone()))).collect(),
        rules: BTreeMap::new(),
        dated: DatedRefs::default(),
        generations: Generations::default(),
        list_sizes: ListSizes::default(),
    }
    .filed();
    retention::check(&retentions, &declared);
    let names = views.iter().map(|view| &view.name).chain(dated_views.iter().map(|view| &view.name));
    catalog_rules::names_of_their_own(names, &archives);
    catalog_rules::check(&catalog, &declared, &views, &archives);
    encryption::check(keys, &declared, &views, &archives);
    dated_rules::check(&dated_views, &retentions);
    dated_rules::named_one_by_one(&catalog, &declared, &views, &archives);
    Catalog { rules: rules::rules(root, &catalog), ..catalog }
}

/// Declared tables first, so that their spelling is the one that counts; then sources, then targets.
fn tables(declared: &[TableDraft<'_>], views: &[ViewDraft<'_>], archives: &[ArchiveDraft<'_>]) -> NamedTables {
    let mut tables = NamedTables::default();
    for table in declared {
        let key = if table.account.is_some() { "account" } else { "" };
        tables.declare(&table.name, table.account.as_ref(), &table.section, key);
    }
    for view in views {
        tables.declare(&view.source, None, &view.section, "source");
    }
    for archive in archives {
        tables.declare(&archive.source, None, &archive.section, "source");
    }
    for view in views {
        if let Some(target) = view.form().target() {
            tables.declare(&target.tables, target.account.as_ref(), &view.section, "account");
        }
    }
    for archive in archives {
        if let TargetDraft::Table(target, account) = &archive.target {
            tables.declare(target, account.as_ref(), &archive.to, "account");
        }
    }
    tables
}

fn view(draft: &ViewDraft<'_>, tables: &NamedTables) -> View {
    let source = tables.place(&draft.source);
    let kind = draft.kind.map(&|target| tables.place(&target.tables));
    let kind = match draft.settle {
        Some(settle) => settle(kind, &source),
        None => kind,
    };
    View { name: draft.name.clone(), source, when: draft.when.clone(), kind, on_conflict: draft.on_conflict.unwrap_or_default() }
}

/// A view of tables by date. Without an account of its own it lies in the account of its source; nothing where that has no retention,
/// which is reported with the rules.
fn dated_view(draft: &ViewDraft<'_, DatedTables>, retentions: &[RetentionDraft<'_>]) -> Option<View<DatedRef>> {
    let source = retentions.iter().find(|retention| retention.retention.tables == draft.source)?.retention.source();
    let place = |target: &Named<DatedTables>| {
        let account = target.account.clone().unwrap_or_else(|| source.account.clone());
        DatedRef { account, tables: target.tables.clone() }
    };
    let (kind, on_conflict) = (draft.kind.map(&place), draft.on_conflict.unwrap_or_default());
    Some(View { name: draft.name.clone(), source: source.clone(), when: draft.when.clone(), kind, on_conflict })
}

fn archive(draft: &ArchiveDraft<'_>, tables: &NamedTables) -> Archive {
    let target = match &draft.target {
        TargetDraft::Table(table, _) => ArchiveTarget::Table(tables.place(table)),
        TargetDraft::Blob(target) => ArchiveTarget::Blob(target.clone()),
        TargetDraft::File(target) => ArchiveTarget::File(target.clone()),
        TargetDraft::Log(target) => ArchiveTarget::Log(target.clone()),
    };
    Archive { name: draft.name.clone(), source: tables.place(&draft.source), target }
}
