//! Computes what the settings and the catalog need in the stores. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::numbered::{AccountScope, Migration};
use evenkeel_model::catalog::{ArchiveTarget, Catalog, Definition, Documents, Form, TableArchive};
use evenkeel_model::large::STAGING;
use evenkeel_model::names::NameError;
use evenkeel_model::range_overlay;
use evenkeel_model::settings::{QueueSettings, Settings};
use evenkeel_model::sink::TOMBSTONES;
use evenkeel_model::{
    AccountName, CollectionName, ColumnType, ContainerName, QueueName, TableName, ViewName,
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Accounts in which a numbered migration has something to do, by the number of the migration.
    /// Other accounts are not touched, because they may be read-only.
    pub numbered: BTreeMap<String, BTreeSet<AccountName>>,
    /// Declared tables by account: sources, targets and archives.
    pub tables: BTreeMap<AccountName, BTreeSet<TableName>>,
    /// Queues by account: jobs (every shard), poison and rechecks.
    pub queues: BTreeMap<AccountName, BTreeSet<QueueName>>,
    /// Containers by account: archives, lists in blobs, large values and their staging.
    pub containers: BTreeMap<AccountName, BTreeSet<ContainerName>>,
    /// Tables of databases, by sink. Indexes of search services are not included, because they
    /// belong to their owners.
    pub collections: BTreeMap<(AccountName, CollectionName), CollectionNeed>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionNeed {
    pub view: ViewName,
    pub definition: Definition,
    pub fields: BTreeMap<String, ColumnType>,
}

impl Needs {
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
                AccountScope::Sources => sources.clone(),
                AccountScope::Main => BTreeSet::from([AccountName::main()]),
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
                    .insert(range_overlay::table());
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
                    needs.need_containers([&target.account], Some(&target.container));
                }
                ArchiveTarget::Log(target) => {
                    needs.need_containers([&target.account], Some(&target.container));
                }
                // An administrator creates and mounts a shared folder. If the folder is missing, it
                // is not mounted, so it must not be created here.
                ArchiveTarget::Table(_) | ArchiveTarget::File(_) => {}
            }
        }
        for retention in catalog.retentions.values() {
            if let Some(TableArchive::Blob { account, container }) = &retention.archive_to {
                needs.need_containers([account], Some(container));
            }
        }
        // The name is a constant, so it is valid.
        let staging = ContainerName::new(STAGING).ok();
        for rows in catalog.dated_views.values().filter_map(|view| view.rows()) {
            // Views of dated tables write to tables that are created together with their source's
            // tables. So only the account is needed here.
            needs.tables.entry(rows.target.account.clone()).or_default();
        }
        for view in catalog.views.values() {
            match view.form() {
                Form::BlobLists(lists) => {
                    needs.need_containers(lists.accounts.iter(), Some(&lists.container));
                }
                Form::Values(large) => {
                    needs.need_containers([&large.account], Some(&large.container));
                    needs.need_containers([&view.source.account], staging.as_ref());
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
                    // A delete leaves the version of its row in the table of tombstones.
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
                | Form::RangeOverlays(_)
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

    fn need_containers<'a>(
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

    /// Every account that is needed, including `main` for the record.
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

    /// Accounts with a table EvenkeelMigrations.
    pub fn recording_accounts(&self) -> BTreeSet<AccountName> {
        self.numbered
            .values()
            .flatten()
            .cloned()
            .chain([AccountName::main()])
            .collect()
    }
}

/// The queues that a declared queue consists of: the queue itself or its shards, its poison queue
/// and its recheck queue.
fn queue_names(queue: &QueueSettings) -> Vec<QueueName> {
    let beside: [Result<QueueName, NameError>; 2] = [
        queue.name.with_suffix("-poison"),
        queue.name.with_suffix("-recheck"),
    ];
    // The configuration check refuses queue names that would be too long with a suffix.
    queue
        .shard_names()
        .into_iter()
        .chain(beside.into_iter().flatten())
        .collect()
}
