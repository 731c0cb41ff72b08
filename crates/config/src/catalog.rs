//! Builds the catalog: first the tables with their spelling and accounts, then the views and archives that use these
//! tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::archives::{self, ArchiveDraft, TargetDraft};
use super::section::Section;
use super::sinks::Sinks;
use super::views::{self, ACCOUNTS, TableDraft, ViewDraft};
use super::{clauses, cycles, dated, encryption, retention, rules, spelling, view_keys};
use evenkeel_model::catalog::{
    AccountSet, Archive, ArchiveTarget, Catalog, DatedTableCache, Generations, TableRef, TargetRef,
    View,
};
use evenkeel_model::settings::EncryptionSettings;
use evenkeel_model::{AccountName, TableName};

#[derive(Default)]
struct TableAccounts(BTreeMap<TableName, Option<AccountSet>>);

impl TableAccounts {
    /// Adds a table and keeps the first spelling of its name. All sections that name accounts for the table must name
    /// the same accounts.
    fn declare(
        &mut self,
        name: &TableName,
        accounts: Option<&AccountSet>,
        section: &Section<'_>,
        key: &str,
    ) {
        let known = self
            .0
            .entry(name.clone())
            .or_insert_with(|| accounts.cloned());
        match (&known, accounts) {
            (Some(first), Some(second)) if first != second => {
                let message = if first.is_spread() || second.is_spread() {
                    format!(
                        "table {name} is in accounts {first} elsewhere and in {second} here; expected the same accounts everywhere"
                    )
                } else {
                    format!(
                        "table {name} is in account {first} elsewhere and in account {second} here; expected the same account everywhere"
                    )
                };
                section.error(key, message);
            }
            (None, Some(accounts)) => *known = Some(accounts.clone()),
            (Some(_), _) | (None, None) => {}
        }
    }

    /// Returns a table that views may write to. It may be spread over several accounts.
    fn target(&self, name: &TableName) -> TargetRef {
        let (table, accounts) = self
            .0
            .get_key_value(name)
            .map_or((name, None), |(name, accounts)| (name, accounts.clone()));
        TargetRef {
            accounts: accounts.unwrap_or_else(|| AccountName::main().into()),
            table: table.clone(),
        }
    }

    /// Returns a table that must be in one account. If the table is spread over several accounts, [`clauses::check`]
    /// reports the mistake.
    fn place(&self, name: &TableName) -> TableRef {
        self.target(name).first()
    }

    fn all(
        &self,
    ) -> (
        BTreeMap<TableName, TableRef>,
        BTreeMap<TableName, TargetRef>,
    ) {
        let (spread, one): (Vec<_>, Vec<_>) = self
            .0
            .keys()
            .partition(|name| self.target(name).accounts.is_spread());
        let one = one
            .into_iter()
            .map(|name| (name.clone(), self.place(name)))
            .collect();
        (
            one,
            spread
                .into_iter()
                .map(|name| (name.clone(), self.target(name)))
                .collect(),
        )
    }
}

/// Reads the catalog. After a mistake the result is incomplete and must not be used.
pub(super) fn read(
    root: &Section<'_>,
    accounts: &[AccountName],
    sinks: Sinks<'_>,
    keys: &EncryptionSettings,
) -> Catalog {
    let declared = views::tables(root, accounts);
    let (views, dated_views) = views::views(root, accounts, sinks);
    let archives = archives::archives(root, accounts);
    let retentions = retention::retentions(root, accounts);
    let tables = tables(&declared, &views, &archives);
    let wide = declared
        .iter()
        .filter(|table| table.wide)
        .map(|table| tables.place(&table.name))
        .collect();
    let hashed = declared.iter().filter(|table| !table.hash.is_empty());
    let hashed = hashed
        .map(|table| (tables.place(&table.name), table.hash.clone()))
        .collect();
    let encrypted = declared.iter().filter(|table| !table.encrypt.is_empty());
    let encrypted = encrypted
        .map(|table| (tables.place(&table.name), table.encrypt.clone()))
        .collect();
    let encrypted_when = declared
        .iter()
        .filter_map(|table| Some((tables.place(&table.name), table.when.clone()?)))
        .collect();
    let (one, spread) = tables.all();
    let catalog = Catalog {
        declared: declared
            .iter()
            .filter(|table| !spread.contains_key(&table.name))
            .map(|table| tables.place(&table.name))
            .collect(),
        wide,
        encrypted,
        encrypted_when,
        hashed,
        tables: one,
        spread,
        views: views
            .iter()
            .map(|draft| (draft.name.clone(), Arc::new(view(draft, &tables))))
            .collect(),
        dated_views: dated_views
            .iter()
            .filter_map(|draft| dated::view(draft, &dated_views, &retentions))
            .map(|view| (view.name.clone(), Arc::new(view)))
            .collect(),
        archives: archives
            .iter()
            .map(|draft| (draft.name.clone(), Arc::new(archive(draft, &tables))))
            .collect(),
        archived_values: BTreeMap::new(),
        retentions: retentions
            .into_iter()
            .map(|retention| (retention.name.clone(), Arc::new(retention)))
            .collect(),
        rules: BTreeMap::new(),
        dated: DatedTableCache::default(),
        generations: Generations::default(),
    }
    .with_archived_values();
    let catalog = Catalog {
        rules: rules::rules(root, &catalog),
        ..catalog
    };
    clauses::check(root, &catalog.clauses());
    cycles::check(root, &catalog);
    spelling::check(root, &catalog);
    encryption::check(keys, &declared);
    views.iter().for_each(view_keys::check);
    dated_views.iter().for_each(view_keys::check);
    catalog
}

/// Adds the declared tables first, because the first spelling of a name is kept. Sources and targets follow.
fn tables(
    declared: &[TableDraft<'_>],
    views: &[ViewDraft<'_>],
    archives: &[ArchiveDraft<'_>],
) -> TableAccounts {
    let mut tables = TableAccounts::default();
    for table in declared {
        let key = account_key(&table.section, table.accounts.as_ref());
        tables.declare(&table.name, table.accounts.as_ref(), &table.section, key);
    }
    for view in views {
        tables.declare(&view.source, None, &view.section, "source");
    }
    for archive in archives {
        tables.declare(&archive.source, None, &archive.section, "source");
    }
    for view in views {
        if let Some(target) = view.form().target() {
            tables.declare(
                &target.tables,
                target.accounts.as_ref(),
                &view.section,
                account_key(&view.section, target.accounts.as_ref()),
            );
        }
    }
    for archive in archives {
        if let TargetDraft::Table(target, account) = &archive.target {
            tables.declare(
                target,
                account.clone().map(AccountSet::from).as_ref(),
                &archive.to,
                "account",
            );
        }
    }
    tables
}

fn account_key(section: &Section<'_>, named: Option<&AccountSet>) -> &'static str {
    match named {
        None => "",
        Some(_) if section.has(ACCOUNTS) => ACCOUNTS,
        Some(_) => "account",
    }
}

fn view(draft: &ViewDraft<'_>, tables: &TableAccounts) -> View {
    let source = tables.place(&draft.source);
    let kind = draft
        .declared
        .kind
        .map(&|target| tables.target(&target.tables));
    let kind = match draft.declared.complete {
        Some(complete) => complete(kind, &source),
        None => kind,
    };
    View {
        name: draft.name.clone(),
        source,
        when: draft.when.clone(),
        kind,
        on_conflict: draft.declared.on_conflict.unwrap_or_default(),
    }
}

fn archive(draft: &ArchiveDraft<'_>, tables: &TableAccounts) -> Archive {
    let target = match &draft.target {
        TargetDraft::Table(table, _) => ArchiveTarget::Table(tables.place(table)),
        TargetDraft::Blob(target) => ArchiveTarget::Blob(target.clone()),
        TargetDraft::File(target) => ArchiveTarget::File(target.clone()),
        TargetDraft::Log(target) => ArchiveTarget::Log(target.clone()),
    };
    Archive {
        name: draft.name.clone(),
        source: tables.place(&draft.source),
        target,
    }
}
