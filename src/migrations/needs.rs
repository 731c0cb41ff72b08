//! Requirements of settings and catalog: pure.

use std::collections::{BTreeMap, BTreeSet};

use super::numbered::{Accounts, Migration};
use super::plan;
use crate::catalog::{self, ArchiveTarget, Catalog, Documents, Form, TableArchive};
use crate::model::claim;
use crate::model::large::STAGING;
use crate::model::names::NameError;
use crate::model::{AccountName, CollectionName, ColumnType, ContainerName, QueueName, TableName, ViewName};
use crate::settings::{QueueSettings, Settings};
use crate::shared::spilled;

/// Requirements on the stores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// The accounts in which each numbered migration has something to do, by its number. Those that hold
    /// nothing of it are left alone: an account may be readable only.
    pub numbered: BTreeMap<String, BTreeSet<AccountName>>,
    /// Declared tables by account: sources, targets, archives.
    pub tables: BTreeMap<AccountName, BTreeSet<TableName>>,
    /// Queues by account: jobs (every shard), poison, rechecks.
    pub queues: BTreeMap<AccountName, BTreeSet<QueueName>>,
    /// Containers by account: archives, lists in blobs, large values and their staging.
    pub containers: BTreeMap<AccountName, BTreeSet<ContainerName>>,
    /// Tables of databases, by sink. An index of a search service is its owner's to make.
    pub collections: BTreeMap<(AccountName, CollectionName), CollectionNeed>,
}

/// A table of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionNeed {
    /// The view that writes it.
    pub view: ViewName,
    /// The hash of its definition.
    pub definition: String,
    /// The columns.
    pub fields: BTreeMap<String, ColumnType>,
}

impl Needs {
    /// The requirements of these settings and this catalog.
    pub fn of(settings: &Settings, catalog: &Catalog, migrations: &[Migration]) -> Self {
        let mut needs = Self::default();
        let sources: BTreeSet<AccountName> = catalog
            .views
            .values()
            .map(|view| &view.source)
            .chain(catalog.archives.values().map(|archive| &archive.source))
            .map(|source| source.account.clone())
            .chain(catalog.dated_views.values().map(|view| view.source.account.clone()))
            .collect();
        for migration in migrations {
            let on = migration.tables.iter().flat_map(|table| match table.on {
                Accounts::Sources => sources.clone(),
                Accounts::Main => BTreeSet::from([AccountName::main()]),
            });
            needs.numbered.insert(migration.number.clone(), on.collect());
        }
        for range in catalog.views.values().filter_map(|view| view.range()) {
            for account in range.target.accounts.iter() {
                needs.tables.entry(account.clone()).or_default().insert(claim::table());
            }
        }
        let archives = catalog.archives.values().filter_map(|archive| archive.target.table());
        let named = catalog.targets().flat_map(|target| target.tables().collect::<Vec<_>>());
        for table in named.chain(archives.cloned()) {
            needs.tables.entry(table.account.clone()).or_default().insert(table.table.clone());
        }
        for archive in catalog.archives.values() {
            match &archive.target {
                ArchiveTarget::Blob(target) => {
                    needs.containers.entry(target.account.clone()).or_default().insert(target.container.clone());
                }
                ArchiveTarget::Log(target) => {
                    needs.containers.entry(target.account.clone()).or_default().insert(target.container.clone());
                }
                // A shared folder is its administrator's to make: one that is missing is not mounted.
                ArchiveTarget::Table(_) | ArchiveTarget::File(_) => {}
            }
        }
        for retention in catalog.retentions.values() {
            if let Some(TableArchive::Blob { account, container }) = &retention.archive_to {
                needs.containers.entry(account.clone()).or_default().insert(container.clone());
            }
        }
        for rows in catalog.dated_views.values().filter_map(|view| view.rows()) {
            // None needs to be there: those of each date come with their table.
            needs.tables.entry(rows.target.account.clone()).or_default();
            if catalog.has_lists_in(rows.target) {
                needs.containers.entry(rows.target.account.clone()).or_default().extend(ContainerName::new(spilled::CONTAINER).ok());
            }
        }
        for view in catalog.views.values() {
            match view.form() {
                Form::BlobLists(lists) => {
                    needs.contain(&lists.accounts, Some(&lists.container));
                }
                // A list that outgrows its row moves into a blob.
                Form::Lists { rows, .. } => {
                    let container = ContainerName::new(spilled::CONTAINER).ok();
                    needs.contain(&rows.target.accounts, container.as_ref());
                }
                Form::Values(large) => {
                    needs.containers.entry(large.account.clone()).or_default().insert(large.container.clone());
                    // A constant, and a name.
                    needs.containers.entry(view.source.account.clone()).or_default().extend(ContainerName::new(STAGING).ok());
                }
                // So do claims on a range.
                Form::Claims(range) => {
                    let container = ContainerName::new(spilled::CONTAINER).ok();
                    needs.contain(&range.target.accounts, container.as_ref());
                }
                Form::Documents(Documents { sink, collection, types, .. }) if !types.is_empty() => {
                    let definition = plan::hash(&view.definition());
                    let need = CollectionNeed { view: view.name.clone(), definition, fields: types.clone() };
                    needs.collections.insert((sink.clone(), collection.clone()), need);
                }
                Form::Copies { .. } | Form::Properties { .. } | Form::Documents(_) => {}
            }
        }
        for queue in &settings.queues {
            needs.queues.entry(queue.account.clone()).or_default().extend(queue_names(queue));
        }
        needs
    }

    /// A container in each of these accounts.
    fn contain(&mut self, accounts: &catalog::AccountSet, container: Option<&ContainerName>) {
        for account in accounts.iter() {
            self.containers.entry(account.clone()).or_default().extend(container.cloned());
        }
    }

    /// Every account that is needed for anything, `main` (the catalog's record) included.
    pub fn accounts(&self) -> BTreeSet<AccountName> {
        let numbered = self.numbered.values().flatten();
        numbered
            .chain(self.tables.keys())
            .chain(self.queues.keys())
            .chain(self.containers.keys())
            .cloned()
            .chain([AccountName::main()])
            .collect()
    }

    /// The accounts that keep a table EvenkeelMigrations.
    pub fn recording_accounts(&self) -> BTreeSet<AccountName> {
        self.numbered.values().flatten().cloned().chain([AccountName::main()]).collect()
    }
}

/// Every queue that belongs to a declared one: itself or its shards, its poison queue, its recheck queue.
fn queue_names(queue: &QueueSettings) -> Vec<QueueName> {
    let beside: [Result<QueueName, NameError>; 2] = [queue.name.with_suffix("-poison"), queue.name.with_suffix("-recheck")];
    // Names too long for their suffix are refused by the configuration check.
    queue.shard_names().into_iter().chain(beside.into_iter().flatten()).collect()
}
