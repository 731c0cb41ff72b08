//! Reads a primary and makes the operations that write it. No other module needs to know whether an entity has one row
//! or several.

use crate::env::Env;
use crate::execute::{Failure, FailureClass};
use crate::failure::{ROUNDS, lost_race, permanent, storage};
use crate::protocol::change::{Change, Commit};
use crate::protocol::scope::Scope;
use evenkeel_model::catalog::TableRef;
use evenkeel_model::entity::EntityError;
use evenkeel_model::{ETag, EntityKey, Row, TableName};
use evenkeel_storage::wide::{self, ReadError, Rows};
use evenkeel_storage::{ErrorClass, StoreError, TableOperation};

#[derive(Debug, thiserror::Error)]
#[error(
    "the entity does not fit into one row. Set `wide = true` in [tables.{table}] to store its entities in several rows"
)]
struct TooWide {
    table: TableName,
    #[source]
    source: EntityError,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the entity has several rows, but {0} is not wide in this worker's catalog. Set `wide = true` in [tables.{0}]"
)]
struct NotWide(TableName);

#[derive(Default)]
pub(crate) struct StoredPrimary {
    pub(crate) row: Option<Row>,
    pub(crate) rows: Rows,
}

/// Reads a primary. With `leftovers`, also reads rows that the first row does not list and that may be in the way of
/// new rows.
pub(crate) async fn read_primary(
    env: &Env,
    source: &TableRef,
    key: &EntityKey,
    leftovers: bool,
) -> Result<StoredPrimary, Failure> {
    let tables = env.account(source)?.tables.as_ref();
    let step = || format!("reading the primary {source}{key}");
    if env.catalog.wide.contains(source) {
        let rows = wide::read(tables, &source.table, key, leftovers)
            .await
            .map_err(|error| match error {
                ReadError::Store(error) => storage(step(), error),
                ReadError::Busy => lost_race(step(), ROUNDS),
            })?;
        return Ok(StoredPrimary {
            row: rows.joined(),
            rows,
        });
    }
    let row = tables
        .get(&source.table, key, None)
        .await
        .map_err(|error| storage(step(), error))?;
    if row
        .as_ref()
        .is_some_and(|row| row.entity.get(wide::ROWS_PROPERTY).is_some())
    {
        // The failure is transient, because another worker may have a newer catalog.
        let class = FailureClass::Transient { retry_after: None };
        return Err(Failure::new(class, step(), NotWide(source.table.clone())));
    }
    Ok(StoredPrimary {
        row,
        rows: Rows::default(),
    })
}

/// Refuses a key that is reserved for the second and later rows of a wide entity.
pub(crate) fn check_key(env: &Env, source: &TableRef, key: &EntityKey) -> Result<(), Failure> {
    if env.catalog.wide.contains(source) {
        wide::check_first(&key.rk)
            .map_err(|error| permanent(format!("checking the key of {source}{key}"), error))?;
    }
    Ok(())
}

/// The operations that write `change` over the rows that were read, beginning with the first row. The entity is checked
/// against every limit of the service.
pub(crate) fn operations(
    scope: &Scope<'_>,
    rows: &Rows,
    change: &Change,
) -> Result<Vec<TableOperation>, Failure> {
    planned(scope, rows, change, || {
        ETag::token(scope.env.rng.next_u64())
    })
}

pub(crate) fn check(scope: &Scope<'_>, rows: &Rows, change: &Change) -> Result<(), Failure> {
    planned(scope, rows, change, || ETag::token(0)).map(drop)
}

fn planned(
    scope: &Scope<'_>,
    rows: &Rows,
    change: &Change,
    token: impl Fn() -> ETag,
) -> Result<Vec<TableOperation>, Failure> {
    let step = || format!("writing the primary {}", scope.primary);
    if scope.document.is_some() {
        // The primary is an archived entity, stored as a document in a blob or file. It needs no table operation, and
        // every entity that fits into a row fits into a document.
        return Ok(Vec::new());
    }
    let plain = change.operation();
    let wide = scope.env.catalog.wide.contains(scope.source);
    match change.result() {
        None if wide => Ok(rows.deletions(&plain)),
        Some(entity) if wide => rows
            .operations(&plain, entity, token)
            .map_err(|error| permanent(step(), error)),
        None => Ok(vec![plain]),
        Some(entity) => match entity.check() {
            Ok(_) => Ok(vec![plain]),
            Err(
                source @ (EntityError::TooManyProperties { .. } | EntityError::TooLarge { .. }),
            ) => Err(permanent(
                step(),
                TooWide {
                    table: scope.source.table.clone(),
                    source,
                },
            )),
            Err(error) => Err(permanent(step(), error)),
        },
    }
}

/// Deletes the remaining rows of a wide primary whose first row is gone. Returns `Closed` if there are none.
pub(crate) async fn delete_leftovers(scope: &Scope<'_>, rows: &Rows) -> Result<Commit, Failure> {
    let operations = rows.leftover_deletions();
    if operations.is_empty() {
        return Ok(Commit::Closed);
    }
    match send(scope, &operations).await? {
        Ok(_) => Ok(Commit::Committed),
        Err(error) if error.is_lost_race() => Ok(Commit::Lost),
        Err(error) if error.class == ErrorClass::Ambiguous => Ok(Commit::Unanswered),
        Err(error) => Err(storage(
            format!("deleting leftover rows of {}", scope.primary),
            error,
        )),
    }
}

pub(crate) async fn send(
    scope: &Scope<'_>,
    operations: &[TableOperation],
) -> Result<Result<Vec<Option<ETag>>, StoreError>, Failure> {
    let (tables, table) = (scope.tables()?, &scope.source.table);
    Ok(match operations {
        [alone] => tables.apply(table, alone).await.map(|etag| vec![etag]),
        operations => {
            tables
                .transact(table, &scope.primary.key.pk, operations)
                .await
        }
    })
}
