//! Simulated tables.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;

use super::limits::{ScannedRows, Weight};
use super::witness::ObservedChange;
use super::world::{AccountState, SimWorld};
use evenkeel_model::entity::EntityError;
use evenkeel_model::{
    ETag, EdmDateTime, EdmValue, Entity, EntityKey, Filter, Key, Row, TableName, limits, odata,
};
use evenkeel_storage::range::{self, KeyBounds, ScanRange};
use evenkeel_storage::{
    Continuation, ErrorClass, IfMatch, Missing, Page, Query, Resource, StoreError, TableOperation,
    TablePage, TableStore,
};

/// Tables by canonical name.
#[derive(Default)]
pub(super) struct SimTables(BTreeMap<String, Table>);

struct Table {
    name: TableName,
    rows: BTreeMap<EntityKey, StoredEntity>,
}

struct StoredEntity {
    properties: BTreeMap<String, EdmValue>,
    etag: ETag,
    timestamp: EdmDateTime,
}

/// The error of an operation: its class and message.
type Refusal = (ErrorClass, &'static str);

impl SimWorld {
    /// All rows of a table, for assertions. It is not an operation of the store.
    #[must_use]
    pub fn rows(&self, table: &TableName) -> Vec<Row> {
        let mut state = self.inner.lock();
        state.tables.rows(table).map_or_else(
            |_| Vec::new(),
            |rows| {
                rows.iter()
                    .map(|(key, stored)| row(key, stored, None))
                    .collect()
            },
        )
    }

    /// Stores an entity without checking limits, because the service may accept more than evenkeel does.
    pub fn plant(&self, table: &TableName, entity: Entity) {
        let mut state = self.inner.lock();
        let (serial, timestamp) = (state.next_serial(), state.next_timestamp());
        if let (Ok(rows), Ok(etag)) = (
            state.tables.rows(table),
            ETag::new(format!("W/\"sim-{serial}\"")),
        ) {
            rows.insert(
                entity.key,
                StoredEntity {
                    properties: entity.properties,
                    etag,
                    timestamp,
                },
            );
        }
    }
}

impl SimTables {
    fn rows(
        &mut self,
        table: &TableName,
    ) -> Result<&mut BTreeMap<EntityKey, StoredEntity>, Refusal> {
        match self.0.get_mut(&*table.canonical()) {
            Some(table) => Ok(&mut table.rows),
            None => Err((
                ErrorClass::NotFound(Missing::Container),
                "the table does not exist",
            )),
        }
    }
}

/// The rows of a range from a key on.
fn between<'t>(
    rows: &'t BTreeMap<EntityKey, StoredEntity>,
    range: &ScanRange,
    after: (&str, &str),
) -> impl Iterator<Item = (&'t EntityKey, &'t StoredEntity)> {
    let lower = |bounds: &KeyBounds| match &bounds.lower {
        Bound::Included(key) | Bound::Excluded(key) => key.clone(),
        Bound::Unbounded => String::new(),
    };
    let below = |bounds: &KeyBounds, key: &Key| match &bounds.upper {
        Bound::Included(upper) => key.as_str() <= upper.as_str(),
        Bound::Excluded(upper) => key.as_str() < upper.as_str(),
        Bound::Unbounded => true,
    };
    let first = match range {
        ScanRange::Nothing => None,
        ScanRange::Partition(pk, rows) => Some((pk.clone(), lower(rows))),
        ScanRange::Partitions(partitions) => Some((lower(partitions), String::new())),
    };
    let first = first.map(|first| first.max((after.0.to_owned(), after.1.to_owned())));
    // A text that is not a valid key does not bound the range. The filter is applied to each row anyway.
    let first =
        first.map(|(pk, rk)| EntityKey::new(pk, rk).map_or(Bound::Unbounded, Bound::Included));
    let range = range.clone();
    let found = first
        .map(|first| rows.range((first, Bound::Unbounded)))
        .into_iter()
        .flatten();
    found.take_while(move |(key, _)| match &range {
        ScanRange::Nothing => false,
        ScanRange::Partition(pk, rows) => {
            key.pk.as_str() <= pk.as_str()
                && (key.pk.as_str() < pk.as_str() || below(rows, &key.rk))
        }
        ScanRange::Partitions(partitions) => below(partitions, &key.pk),
    })
}

/// A row before a write; `None` if it was absent.
type PreviousRow = (EntityKey, Option<StoredEntity>);

fn apply(
    state: &mut AccountState,
    table: &TableName,
    operation: &TableOperation,
) -> Result<(Option<ETag>, PreviousRow), Refusal> {
    let serial = state.next_serial();
    let timestamp = state.next_timestamp();
    let rows = state.tables.rows(table)?;
    let stored = rows.get(operation.key());
    let current = match operation {
        TableOperation::Insert(_) if stored.is_some() => {
            return Err((ErrorClass::Conflict, "the entity already exists"));
        }
        TableOperation::Insert(_)
        | TableOperation::InsertOrReplace(_)
        | TableOperation::InsertOrMerge(_) => stored,
        TableOperation::Replace(_, condition)
        | TableOperation::Merge(_, condition)
        | TableOperation::Delete(_, condition) => {
            let Some(current) = stored else {
                return Err((
                    ErrorClass::NotFound(Missing::Item),
                    "the entity does not exist",
                ));
            };
            match condition {
                IfMatch::Matches(etag) if *etag != current.etag => {
                    return Err((ErrorClass::Precondition, "the entity has another ETag"));
                }
                IfMatch::Matches(_) | IfMatch::Any => Some(current),
            }
        }
    };
    let Some(entity) = operation.entity() else {
        let key = operation.key().clone();
        let before = rows.remove(&key);
        state.record_change(|| ObservedChange::Row {
            table: table.clone(),
            key: key.clone(),
            row: None,
        });
        return Ok((None, (key, before)));
    };
    let mut properties = match operation {
        TableOperation::InsertOrMerge(_) | TableOperation::Merge(..) => current
            .map(|current| current.properties.clone())
            .unwrap_or_default(),
        _ => BTreeMap::new(),
    };
    properties.extend(
        entity
            .properties
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    let merged = Entity {
        key: entity.key.clone(),
        properties,
    };
    merged
        .check()
        .map_err(|error| (class_of(&error), "the entity exceeds a limit"))?;
    let Ok(etag) = ETag::new(format!("W/\"sim-{serial}\"")) else {
        return Err((ErrorClass::Permanent, "no ETag"));
    };
    let stored = StoredEntity {
        properties: merged.properties,
        etag: etag.clone(),
        timestamp,
    };
    let key = merged.key;
    if state.is_witnessed() {
        let now = row(&key, &stored, None);
        state.record_change(|| ObservedChange::Row {
            table: table.clone(),
            key: key.clone(),
            row: Some(now),
        });
    }
    let before = state.tables.rows(table)?.insert(key.clone(), stored);
    Ok((Some(etag), (key, before)))
}

/// Rolls a write back.
fn restore(
    rows: &mut BTreeMap<EntityKey, StoredEntity>,
    key: EntityKey,
    before: Option<StoredEntity>,
) {
    match before {
        Some(stored) => rows.insert(key, stored),
        None => rows.remove(&key),
    };
}

const fn class_of(error: &EntityError) -> ErrorClass {
    match error {
        EntityError::TooLarge { .. } | EntityError::ValueTooLarge { .. } => ErrorClass::TooLarge,
        EntityError::PropertyName(_)
        | EntityError::TooManyProperties { .. }
        | EntityError::Character { .. } => ErrorClass::Permanent,
    }
}

/// Checks the limits of the service before anything is sent.
fn check(operation: &TableOperation) -> Result<(), (ErrorClass, Cow<'static, str>)> {
    match operation.entity().map(Entity::check) {
        Some(Err(error)) => Err((class_of(&error), error.to_string().into())),
        Some(Ok(_)) | None => Ok(()),
    }
}

fn check_transaction(
    pk: &Key,
    operations: &[TableOperation],
) -> Result<(), (ErrorClass, Option<usize>, Cow<'static, str>)> {
    if operations.is_empty() || operations.len() > limits::TRANSACTION_OPERATIONS {
        return Err((
            ErrorClass::Permanent,
            None,
            format!(
                "a transaction has 1 to 100 operations, not {}",
                operations.len()
            )
            .into(),
        ));
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut bytes = 0;
    for (index, operation) in operations.iter().enumerate() {
        if operation.key().pk != *pk {
            return Err((
                ErrorClass::Permanent,
                Some(index),
                "the operation is for another partition".into(),
            ));
        }
        if !seen.insert(operation.key()) {
            return Err((
                ErrorClass::Permanent,
                Some(index),
                "the entity occurs twice in the transaction".into(),
            ));
        }
        check(operation).map_err(|(class, message)| (class, Some(index), message))?;
        bytes += operation.entity().map_or(0, odata::encoded_len);
    }
    if bytes > limits::TRANSACTION_BYTES {
        return Err((
            ErrorClass::TooLarge,
            None,
            format!("the transaction has {bytes} bytes; at most 4 MiB are allowed").into(),
        ));
    }
    Ok(())
}

fn check_query(query: &Query) -> Result<(), &'static str> {
    fn comparisons(filter: &Filter) -> usize {
        match filter {
            Filter::Compare { .. } => 1,
            Filter::And(a, b) | Filter::Or(a, b) => comparisons(a) + comparisons(b),
            Filter::Not(a) => comparisons(a),
        }
    }
    if query
        .top
        .is_some_and(|top| top == 0 || top > limits::PAGE_ROWS)
    {
        Err("a page has 1 to 1,000 rows")
    } else if query
        .filter
        .as_ref()
        .is_some_and(|filter| comparisons(filter) > 15)
    {
        Err("a filter has at most 15 comparisons")
    } else {
        Ok(())
    }
}

fn row(key: &EntityKey, stored: &StoredEntity, select: Option<&[String]>) -> Row {
    let selected = |name: &String| select.is_none_or(|select| select.contains(name));
    let properties = stored
        .properties
        .iter()
        .filter(|(name, _)| selected(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Row {
        entity: Entity {
            key: key.clone(),
            properties,
        },
        etag: stored.etag.clone(),
        timestamp: Some(stored.timestamp),
    }
}

#[async_trait]
impl TableStore for SimWorld {
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError> {
        const NAME: &str = "Get Entity";
        let what = Resource::Entity(table.clone(), key.clone());
        let (table, key, select, subject) = (
            table.clone(),
            key.clone(),
            select.map(<[String]>::to_vec),
            what.clone(),
        );
        let found = self.send(NAME, what, false, move |state, inner| {
            let rows = state
                .tables
                .rows(&table)
                .map_err(|(class, message)| inner.error(class, NAME, subject, message))?;
            Ok(rows
                .get(&key)
                .map(|stored| row(&key, stored, select.as_deref())))
        });
        found.await
    }

    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        let name = operation.name();
        let what = Resource::Entity(table.clone(), operation.key().clone());
        check(operation)
            .map_err(|(class, message)| self.inner.error(class, name, what.clone(), &message))?;
        let (table, operation, subject) = (table.clone(), operation.clone(), what.clone());
        let result = self.send(name, what, true, move |state, inner| {
            let applied = apply(state, &table, &operation);
            applied
                .map(|(etag, _)| etag)
                .map_err(|(class, message)| inner.error(class, name, subject, message))
        });
        result.await
    }

    async fn transact(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        const NAME: &str = "Entity Group Transaction";
        let what = Resource::Partition(table.clone(), pk.clone());
        check_transaction(pk, operations).map_err(|(class, index, message)| {
            self.inner
                .error(class, NAME, what.clone(), &message)
                .with_index(index)
        })?;
        let (table, operations, subject) = (table.clone(), operations.to_vec(), what.clone());
        let rows = operations
            .iter()
            .map(|operation| operation.key().clone())
            .collect();
        let result = self.send_rows(NAME, what, true, rows, move |state, inner| {
            let changes = state.change_count();
            let (mut etags, mut before) = (
                Vec::with_capacity(operations.len()),
                Vec::with_capacity(operations.len()),
            );
            for (index, operation) in operations.iter().enumerate() {
                match apply(state, &table, operation) {
                    Ok((etag, row)) => {
                        etags.push(etag);
                        before.push(row);
                    }
                    Err((class, message)) => {
                        // Roll back all writes of the transaction, the last one first.
                        if let Ok(rows) = state.tables.rows(&table) {
                            before
                                .into_iter()
                                .rev()
                                .for_each(|(key, row)| restore(rows, key, row));
                        }
                        state.drop_changes_after(changes);
                        return Err(inner
                            .error(class, NAME, subject, message)
                            .with_index(Some(index)));
                    }
                }
            }
            Ok(etags)
        });
        result.await
    }

    async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError> {
        const NAME: &str = "Query Entities";
        let what = Resource::Table(table.clone());
        check_query(query).map_err(|message| {
            self.inner
                .error(ErrorClass::Permanent, NAME, what.clone(), message)
        })?;
        let (table, query, subject) = (table.clone(), query.clone(), what.clone());
        // Faults of a partition also apply to a query within it.
        let what = query
            .filter
            .as_ref()
            .and_then(Filter::one_partition)
            .map_or(what, |pk| Resource::Partition(table.clone(), pk));
        let short = self.page(&what);
        let page = self.send(NAME, what, false, move |state, inner| {
            let rows = state
                .tables
                .rows(&table)
                .map_err(|(class, message)| inner.error(class, NAME, subject, message))?;
            let top = query
                .top
                .unwrap_or(limits::PAGE_ROWS)
                .clamp(1, limits::PAGE_ROWS) as usize;
            let top = short.map_or(top, |short| short.min(top));
            let after = query.continuation.as_ref().map(|c| {
                (
                    c.next_partition_key.as_str(),
                    c.next_row_key.as_deref().unwrap_or_default(),
                )
            });
            let (range, _) = range::plan(query.filter.as_ref());
            let mut scanned = ScannedRows::default();
            let mut matching = between(rows, &range, after.unwrap_or_default())
                .filter(|(key, _)| {
                    after.is_none_or(|after| (key.pk.as_str(), key.rk.as_str()) >= after)
                })
                .inspect(|(key, _)| scanned.row(&key.pk))
                .filter(|(key, stored)| {
                    query
                        .filter
                        .as_ref()
                        .is_none_or(|filter| filter.matches(&row(key, stored, None)))
                });
            let found = matching
                .by_ref()
                .take(top)
                .map(|(key, stored)| row(key, stored, query.select.as_deref()))
                .collect();
            let continuation = matching.next().map(|(key, _)| Continuation {
                next_partition_key: key.pk.as_str().to_owned(),
                next_row_key: Some(key.rk.as_str().to_owned()),
            });
            drop(matching);
            state.record_weight(Weight::ScannedRows(scanned));
            Ok(Page {
                rows: found,
                continuation,
            })
        });
        page.await
    }

    async fn create_table(&self, table: &TableName) -> Result<bool, StoreError> {
        let name = table.clone();
        let created = self.send(
            "Create Table",
            Resource::Table(table.clone()),
            true,
            move |state, _| {
                let canonical = name.canonical().into_owned();
                let new = !state.tables.0.contains_key(&canonical);
                if new {
                    state.tables.0.insert(
                        canonical,
                        Table {
                            name: name.clone(),
                            rows: BTreeMap::new(),
                        },
                    );
                    state.record_change(|| ObservedChange::Table {
                        table: name,
                        exists: true,
                    });
                }
                Ok(new)
            },
        );
        created.await
    }

    async fn delete_table(&self, table: &TableName) -> Result<bool, StoreError> {
        let name = table.clone();
        let deleted = self.send(
            "Delete Table",
            Resource::Table(table.clone()),
            true,
            move |state, _| {
                let dropped = state.tables.0.remove(&*name.canonical());
                let existed = dropped.is_some();
                if let Some(Table { name, rows }) = dropped {
                    for key in rows.into_keys() {
                        state.record_change(|| ObservedChange::Row {
                            table: name.clone(),
                            key,
                            row: None,
                        });
                    }
                    state.record_change(|| ObservedChange::Table {
                        table: name,
                        exists: false,
                    });
                }
                Ok(existed)
            },
        );
        deleted.await
    }

    async fn list_tables(&self, continuation: Option<&str>) -> Result<TablePage, StoreError> {
        let after = continuation.map(str::to_owned);
        let page = self.send(
            "Query Tables",
            Resource::Service(evenkeel_storage::Service::Table),
            false,
            move |state, _| {
                let mut rest = state.tables.0.iter().filter(|(canonical, _)| {
                    after.as_ref().is_none_or(|after| *canonical >= after)
                });
                let tables = rest
                    .by_ref()
                    .take(limits::PAGE_ROWS as usize)
                    .map(|(_, table)| table.name.clone())
                    .collect();
                Ok(TablePage {
                    tables,
                    continuation: rest.next().map(|(canonical, _)| canonical.clone()),
                })
            },
        );
        page.await
    }
}
