use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::rows::{self, RecordRow};
use super::{CatalogRecord, MigrationError, Needs};
use evenkeel_model::names::is_own_table;
use evenkeel_model::{
    AccountName, BlobName, CollectionName, ContainerName, ETag, Filter, QueueName, TableName, cause,
};
use evenkeel_storage::{
    Account, ErrorClass, Fields, Missing, Query, Stores, TableStore, all_rows, all_tables,
};

#[derive(Debug, Clone, Default)]
pub struct StoreState {
    /// Accounts with a table EvenkeelMigrations.
    pub recording: BTreeSet<AccountName>,
    pub applied: Vec<AppliedMigration>,
    pub tables: BTreeMap<AccountName, BTreeSet<TableName>>,
    /// Needed queues that exist.
    pub queues: BTreeMap<AccountName, BTreeSet<QueueName>>,
    /// Needed containers that exist.
    pub containers: BTreeMap<AccountName, BTreeSet<ContainerName>>,
    /// Needed collections that exist, with their fields.
    pub collections: BTreeMap<(AccountName, CollectionName), Fields>,
    pub record: CatalogRecord,
}

impl StoreState {
    /// Whether no worker has ever used the account `main`: it has no table of evenkeel.
    pub(super) fn is_fresh(&self) -> bool {
        let tables = self.tables.get(&AccountName::main());
        !tables
            .into_iter()
            .flatten()
            .any(|table| is_own_table(table.as_str()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedMigration {
    pub account: AccountName,
    pub number: String,
    pub name: String,
    /// Checksum of the migration's file when it was applied.
    pub checksum: String,
    /// Time of application, by the clock of the machine that applied the migration.
    pub applied_at: Option<String>,
}

/// Reads the state of every account that is needed.
pub(super) async fn read_state(
    stores: &Stores,
    needs: &Needs,
) -> Result<StoreState, MigrationError> {
    let mut state = StoreState::default();
    let record = rows::table()?;
    for name in needs.accounts() {
        let account = stores.account(&name)?;
        let tables = tables(&name, account).await?;
        if tables.contains(&record) {
            state.recording.insert(name.clone());
            for found in read_record(&name, account.tables.as_ref(), Query::default()).await? {
                if let RecordRow::Applied(applied) = found {
                    state.applied.push(applied);
                }
            }
            if name == AccountName::main() {
                state.record = catalog_record(account.tables.as_ref()).await?;
            }
        }
        state.tables.insert(name.clone(), tables);
        let mut existing = BTreeSet::new();
        for queue in needs.queues.get(&name).into_iter().flatten() {
            if queue_exists(&name, account, queue).await? {
                existing.insert(queue.clone());
            }
        }
        state.queues.insert(name.clone(), existing);
        let mut existing = BTreeSet::new();
        for container in needs.containers.get(&name).into_iter().flatten() {
            if container_exists(&name, account, container).await? {
                existing.insert(container.clone());
            }
        }
        state.containers.insert(name, existing);
    }
    for ((sink, collection), need) in &needs.collections {
        let action = format!("look for table {collection} of sink {sink}");
        let fields = match stores.sink(sink)?.fields(collection).await {
            // If the database does not answer, the table of a recorded view is assumed to exist,
            // because it was created before. Otherwise all jobs would wait for the database.
            Err(error)
                if error.class.is_transient() && state.record.has(&need.view, &need.definition) =>
            {
                tracing::warn!(error = %cause::chain(&error), "could not {action}: {}; assuming that it exists", cause::chain(&error));
                Some(
                    need.fields
                        .iter()
                        .map(|(name, column)| (name.clone(), column.to_string()))
                        .collect(),
                )
            }
            found => found.map_err(MigrationError::store(action))?,
        };
        state
            .collections
            .extend(fields.map(|fields| ((sink.clone(), collection.clone()), fields)));
    }
    Ok(state)
}

pub(super) async fn tables(
    name: &AccountName,
    account: &Account,
) -> Result<BTreeSet<TableName>, MigrationError> {
    all_tables(account.tables.as_ref())
        .await
        .map_err(MigrationError::store(format!(
            "list the tables of account {name}"
        )))
}

async fn queue_exists(
    name: &AccountName,
    account: &Account,
    queue: &QueueName,
) -> Result<bool, MigrationError> {
    match account.queues.approximate_count(queue).await {
        Ok(_) => Ok(true),
        Err(error)
            if matches!(
                error.class,
                ErrorClass::NotFound(Missing::Container | Missing::Item)
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(MigrationError::store(format!(
            "look for queue {queue} in account {name}"
        ))(error)),
    }
}

async fn container_exists(
    name: &AccountName,
    account: &Account,
    container: &ContainerName,
) -> Result<bool, MigrationError> {
    let action =
        || MigrationError::store(format!("look for container {container} in account {name}"));
    #[expect(clippy::expect_used, reason = "a constant")]
    let any = BlobName::new("evenkeel").expect("a blob name");
    // Reads a blob that need not exist. The error distinguishes a missing blob from a missing
    // container. Reading a blob needs fewer rights than listing the blobs.
    match account.blobs.get(container, &any, Some(0..1)).await {
        Ok(_) => Ok(true),
        Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => Ok(false),
        Err(error) => Err(action()(error)),
    }
}

/// Reads the catalog's record in the account `main`. The number is read first. If the record
/// changes between the reads, the next write fails, because it is conditional on the ETag of the
/// number.
pub(super) async fn catalog_record(main: &dyn TableStore) -> Result<CatalogRecord, MigrationError> {
    let account = AccountName::main();
    let mut record = CatalogRecord::default();
    let Some(RecordedNumber {
        generation,
        first,
        etag,
    }) = recorded_number(main).await?
    else {
        return Ok(record);
    };
    (record.generation, record.first, record.etag) = (generation, first, Some(etag));
    let partition = Query {
        filter: Some(Filter::partition(&rows::catalog_partition()?)),
        ..Query::default()
    };
    for found in read_record(&account, main, partition).await? {
        match found {
            RecordRow::View(name, view) => drop(record.views.insert(name, view)),
            RecordRow::LaterGeneration(name, generation) => {
                record.later_generations.insert(name, generation);
            }
            RecordRow::Name(name) => record.names.extend([name]),
            RecordRow::Declarations(owner, declared) => {
                drop(record.declarations.insert(owner, declared));
            }
            RecordRow::Applied(_) | RecordRow::Generation(..) | RecordRow::Other => {}
        }
    }
    Ok(record)
}

pub(super) struct RecordedNumber {
    generation: u32,
    pub(super) first: bool,
    pub(super) etag: ETag,
}

/// The recorded number; `None` if nothing is recorded.
pub(super) async fn recorded_number(
    main: &dyn TableStore,
) -> Result<Option<RecordedNumber>, MigrationError> {
    let account = AccountName::main();
    let row = match main
        .get(&rows::table()?, &rows::generation_key()?, None)
        .await
    {
        Ok(row) => row,
        Err(error) if matches!(error.class, ErrorClass::NotFound(Missing::Container)) => {
            return Ok(None);
        }
        Err(error) => {
            return Err(MigrationError::store(
                "read the number of the recorded catalog",
            )(error));
        }
    };
    let Some(row) = row else { return Ok(None) };
    let RecordRow::Generation(generation, first) = rows::read(&account, &row)? else {
        return Ok(None);
    };
    Ok(Some(RecordedNumber {
        generation,
        first,
        etag: row.etag,
    }))
}

async fn read_record(
    account: &AccountName,
    tables: &dyn TableStore,
    query: Query,
) -> Result<Vec<RecordRow>, MigrationError> {
    let table = rows::table()?;
    let found = all_rows(tables, &table, query)
        .await
        .map_err(MigrationError::store(format!(
            "read {table} of account {account}"
        )))?;
    found.iter().map(|row| rows::read(account, row)).collect()
}
