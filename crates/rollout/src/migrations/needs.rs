//! Requirements of settings and catalog: pure.

use std::collections::{BTreeMap, BTreeSet};

use super::numbered::{Accounts, Migration};
use evenkeel_model::catalog::{ArchiveTarget, Catalog, Definition, Documents, Form, TableArchive};
use evenkeel_model::claim;
use evenkeel_model::large::STAGING;
use evenkeel_model::names::NameError;
use evenkeel_model::settings::{QueueSettings, Settings};
use evenkeel_model::sink::TOMBSTONES;
use evenkeel_model::{
    AccountName, CollectionName, ColumnType, ContainerName, QueueName, TableName, ViewName,
};

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
    /// Its definition.
    pub definition: Definition,
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
            .chain(
                catalog
                    .dated_views
                    .values()
                    .map(|view| view.source.account.clone()),
            )
            .collect();
        for migration in migrations {
            let on = migration.tables.iter().flat_map(|table| match table.on {
                Accounts::Sources => sources.clone(),
                Accounts::Main => BTreeSet::from([AccountName::main()]),
            });
            needs
                .numbered
                .insert(migration.number.clone(), on.collect());
        }
        for range in catalog.views.values().filter_map(|view| view.range()) {
            for account in range.target.accounts.iter() {
                needs
                    .tables
                    .entry(account.clone())
                    .or_default()
                    .insert(claim::table());
            }
        }
        let archives = catalog
            .archives
            .values()
            .filter_map(|archive| archive.target.table());
        let named = catalog
            .targets()
            .flat_map(|target| target.tables().collect::<Vec<_>>());
        for table in named.chain(archives.cloned()) {
            needs
                .tables
                .entry(table.account.clone())
                .or_default()
                .insert(table.table.clone());
        }
        for archive in catalog.archives.values() {
            match &archive.target {
                ArchiveTarget::Blob(target) => {
                    needs.contain([&target.account], Some(&target.container));
                }
                ArchiveTarget::Log(target) => {
                    needs.contain([&target.account], Some(&target.container));
                }
                // A shared folder is its administrator's to make: one that is missing is not mounted.
                ArchiveTarget::Table(_) | ArchiveTarget::File(_) => {}
            }
        }
        for retention in catalog.retentions.values() {
            if let Some(TableArchive::Blob { account, container }) = &retention.archive_to {
                needs.contain([account], Some(container));
            }
        }
        // A constant, and a name.
        let staging = ContainerName::new(STAGING).ok();
        for rows in catalog.dated_views.values().filter_map(|view| view.rows()) {
            // None needs to be there: those of each date come with their table.
            needs.tables.entry(rows.target.account.clone()).or_default();
        }
        for view in catalog.views.values() {
            match view.form() {
                Form::BlobLists(lists) => {
                    needs.contain(lists.accounts.iter(), Some(&lists.container));
                }
                Form::Values(large) => {
                    needs.contain([&large.account], Some(&large.container));
                    needs.contain([&view.source.account], staging.as_ref());
                }
                Form::Documents(Documents {
                    sink,
                    collection,
                    types,
                    ..
                }) if !types.is_empty() => {
                    let need = CollectionNeed {
                        view: view.name.clone(),
                        definition: view.definition(),
                        fields: types.clone(),
                    };
                    // Where deletes leave their versions.
                    let fields = BTreeMap::from([("version".to_owned(), ColumnType::Integer)]);
                    let place = CollectionName::new(TOMBSTONES)
                        .ok()
                        .map(|table| (sink.clone(), table));
                    needs.collections.extend(place.zip(Some(CollectionNeed {
                        fields,
                        ..need.clone()
                    })));
                    needs
                        .collections
                        .insert((sink.clone(), collection.clone()), need);
                }
                Form::Copies { .. }
                | Form::Lists { .. }
                | Form::Properties { .. }
                | Form::Claims(_)
                | Form::Documents(_) => {}
            }
        }
        for queue in &settings.queues {
            needs
                .queues
                .entry(queue.account.clone())
                .or_default()
                .extend(queue_names(queue));
        }
        needs
    }

    /// A container in each of these accounts.
    fn contain<'a>(
        &mut self,
        accounts: impl IntoIterator<Item = &'a AccountName>,
        container: Option<&ContainerName>,
    ) {
        for account in accounts {
            self.containers
                .entry(account.clone())
                .or_default()
                .extend(container.cloned());
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
        self.numbered
            .values()
            .flatten()
            .cloned()
            .chain([AccountName::main()])
            .collect()
    }
}

/// Every queue that belongs to a declared one: itself or its shards, its poison queue, its recheck queue.
fn queue_names(queue: &QueueSettings) -> Vec<QueueName> {
    let beside: [Result<QueueName, NameError>; 2] = [
        queue.name.with_suffix("-poison"),
        queue.name.with_suffix("-recheck"),
    ];
    // Names too long for their suffix are refused by the configuration check.
    queue
        .shard_names()
        .into_iter()
        .chain(beside.into_iter().flatten())
        .collect()
}
