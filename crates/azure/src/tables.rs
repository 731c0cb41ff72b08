//! The table port.

use std::collections::BTreeMap;

use async_trait::async_trait;
use azure_core::Context;
use azure_data_tables::prelude::{
    EntityClient, IfMatchCondition, Select, TableClient, TableServiceClient, Top,
};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::amend::Amendment;
use super::ascii::{self, Encoding};
use super::batch::{self, BatchOutcome};
use super::call::{CallFailure, Caller};
use super::classify::{Absent, CallKind};
use super::transport::{self, HttpAnswer};
use evenkeel_model::{ETag, EntityKey, Key, Row, TableName, limits, odata};
use evenkeel_storage::{
    Continuation, ErrorClass, IfMatch, Missing, Page, Query, Resource, Service, StoreError,
    TableOperation, TablePage, TableStore, check,
};

const GET: CallKind = CallKind::read("Get Entity", Absent::Item);
const QUERY: CallKind = CallKind::read("Query Entities", Absent::Container);
const TRANSACT: CallKind = CallKind::write("Entity Group Transaction", Absent::Container);
const CREATE: CallKind = CallKind::write("Create Table", Absent::Container);
const DELETE: CallKind = CallKind::write("Delete Table", Absent::Container);
const LIST: CallKind = CallKind::read("Query Tables", Absent::Container);

/// The kind of call of a write. An insert cannot fail because of a missing row.
const fn write_of(operation: &TableOperation) -> CallKind {
    let absent = match operation {
        TableOperation::Insert(_)
        | TableOperation::InsertOrReplace(_)
        | TableOperation::InsertOrMerge(_) => Absent::Container,
        TableOperation::Replace(..) | TableOperation::Merge(..) | TableOperation::Delete(..) => {
            Absent::Item
        }
    };
    CallKind::write(operation.name(), absent)
}

/// Headers that request JSON with minimal metadata: with ETags, and with the types that JSON lacks. The library would request
/// full metadata, which also includes URLs and is twice as long. Writes use these headers, too, so that their errors are JSON.
fn json() -> Amendment {
    Amendment::default()
        .header("accept", "application/json;odata=minimalmetadata")
        .header("dataserviceversion", "3.0")
}

pub(super) struct AzureTables {
    caller: Caller,
    service: TableServiceClient,
    wire: Encoding,
}

impl AzureTables {
    pub(super) const fn new(caller: Caller, service: TableServiceClient, wire: Encoding) -> Self {
        Self {
            caller,
            service,
            wire,
        }
    }

    fn table(&self, table: &TableName) -> TableClient {
        self.service.table_client(table.as_str())
    }

    /// The library writes keys into URLs without escaping quotes. So quotes in keys are doubled here, and only here.
    fn entity(&self, table: &TableName, key: &EntityKey) -> EntityClient {
        self.table(table)
            .partition_key_client(quoted(&key.pk))
            .entity_client(quoted(&key.rk))
    }

    async fn send(
        &self,
        table: &TableName,
        operation: &TableOperation,
        context: Context,
    ) -> azure_core::Result<()> {
        match operation {
            TableOperation::Insert(entity) => self
                .table(table)
                .insert::<_, IgnoredAny>(odata::EntityJson(entity))?
                .return_entity(false)
                .context(context)
                .await
                .map(drop),
            TableOperation::InsertOrReplace(entity) => self
                .entity(table, &entity.key)
                .insert_or_replace(odata::EntityJson(entity))?
                .context(context)
                .await
                .map(drop),
            TableOperation::InsertOrMerge(entity) => self
                .entity(table, &entity.key)
                .insert_or_merge(odata::EntityJson(entity))?
                .context(context)
                .await
                .map(drop),
            TableOperation::Replace(entity, at) => self
                .entity(table, &entity.key)
                .update(odata::EntityJson(entity), condition(at))?
                .context(context)
                .await
                .map(drop),
            TableOperation::Merge(entity, at) => self
                .entity(table, &entity.key)
                .merge(odata::EntityJson(entity), condition(at))?
                .context(context)
                .await
                .map(drop),
            TableOperation::Delete(key, at) => self
                .entity(table, key)
                .delete()
                .if_match(condition(at))
                .context(context)
                .await
                .map(drop),
        }
    }

    async fn send_batch(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
        context: Context,
    ) -> azure_core::Result<()> {
        let mut transaction = self
            .table(table)
            .partition_key_client(quoted(pk))
            .transaction();
        for operation in operations {
            // The condition must be explicit: without one the library sends an upsert.
            transaction = match operation {
                TableOperation::Insert(entity) => transaction.insert(odata::EntityJson(entity))?,
                TableOperation::InsertOrReplace(entity) => transaction
                    .insert_or_replace(quoted(&entity.key.rk), odata::EntityJson(entity))?,
                TableOperation::InsertOrMerge(entity) => transaction
                    .insert_or_merge(quoted(&entity.key.rk), odata::EntityJson(entity))?,
                TableOperation::Replace(entity, at) => transaction.update(
                    quoted(&entity.key.rk),
                    odata::EntityJson(entity),
                    Some(condition(at)),
                )?,
                TableOperation::Merge(entity, at) => transaction.merge(
                    quoted(&entity.key.rk),
                    odata::EntityJson(entity),
                    Some(condition(at)),
                )?,
                TableOperation::Delete(key, at) => {
                    transaction.delete(quoted(&key.rk), Some(condition(at)))?
                }
            };
        }
        transaction.context(context).await.map(drop)
    }

    /// Parses the answer. A truncated answer may be complete the next time. Invalid JSON (a lone surrogate in a value) is a
    /// permanent error, because the next answer would be the same.
    fn json(
        &self,
        operation: CallKind,
        what: impl FnOnce() -> Resource,
        answer: &HttpAnswer,
    ) -> Result<Value, StoreError> {
        serde_json::from_slice(&answer.body).map_err(|error| {
            let message = format!("the answer is not JSON: {error}");
            if error.is_syntax() {
                self.caller
                    .error(ErrorClass::Permanent, operation, what(), message)
                    .with_status(answer.status, None)
            } else {
                self.caller.unusable(operation, what(), answer, message)
            }
        })
    }

    fn row(
        &self,
        operation: CallKind,
        what: impl Fn() -> Resource,
        answer: &HttpAnswer,
        json: Value,
    ) -> Result<Row, StoreError> {
        let named = json
            .get("odata.etag")
            .and_then(Value::as_str)
            .or_else(|| answer.header("etag"));
        let etag = named.and_then(|text| ETag::new(text).ok());
        let etag = etag.ok_or_else(|| {
            self.caller
                .unusable(operation, what(), answer, "a row has no ETag")
        })?;
        let key = |name: &str| {
            json.get(name)
                .and_then(Value::as_str)
                .unwrap_or("?")
                .chars()
                .take(64)
                .collect::<String>()
        };
        let (pk, rk) = (key("PartitionKey"), key("RowKey"));
        odata::decode_row(json, etag).map_err(|error| {
            // Reading the row again would not help.
            let message = format!("cannot decode the row ({pk:?}, {rk:?})");
            self.caller
                .error(ErrorClass::Permanent, operation, what(), message)
                .with_cause(error)
        })
    }
}

/// Escapes a key for OData quotes.
fn quoted(key: &Key) -> String {
    key.as_str().replace('\'', "''")
}

fn condition(condition: &IfMatch) -> IfMatchCondition {
    match condition {
        IfMatch::Matches(etag) => IfMatchCondition::Etag(etag.as_str().into()),
        IfMatch::Any => IfMatchCondition::Any,
    }
}

/// Every projection includes the keys and the timestamp.
fn projection(select: Option<&[String]>) -> Option<Select> {
    let names = select?
        .iter()
        .map(String::as_str)
        .filter(|name| !matches!(*name, "PartitionKey" | "RowKey" | "Timestamp"));
    let all: Vec<&str> = ["PartitionKey", "RowKey", "Timestamp"]
        .into_iter()
        .chain(names)
        .collect();
    Some(Select::new(all.join(",")))
}

/// Removes properties outside the projection, in case the service sent more.
fn narrowed(mut row: Row, select: Option<&[String]>) -> Row {
    if let Some(select) = select {
        row.entity.properties = std::mem::take(&mut row.entity.properties)
            .into_iter()
            .filter(|(name, _)| select.contains(name))
            .collect::<BTreeMap<_, _>>();
    }
    row
}

#[async_trait]
impl TableStore for AzureTables {
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError> {
        let what = || Resource::Entity(table.clone(), key.clone());
        let mut get = self
            .entity(table, key)
            .get::<IgnoredAny>()
            .context(json().context());
        if let Some(select) = projection(select) {
            get = get.select(select);
        }
        let answer = match self.caller.run(GET, what, get.into_future()).await {
            Ok(answer) => answer,
            Err(error) if error.is_missing_item() => return Ok(None),
            Err(error) => return Err(error),
        };
        let json = self.json(GET, what, &answer)?;
        Ok(Some(narrowed(self.row(GET, what, &answer, json)?, select)))
    }

    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        let kind = write_of(operation);
        let what = || Resource::Entity(table.clone(), operation.key().clone());
        self.caller
            .checked(kind, what, check::operation(operation))?;
        let amendment = match self.wire {
            Encoding::Utf8 => json(),
            Encoding::Ascii => json().body(ascii::json::<{ limits::ENTITY_BYTES }>),
        };
        let answer = self
            .caller
            .run(kind, what, self.send(table, operation, amendment.context()))
            .await?;
        match operation {
            TableOperation::Delete(..) => Ok(None),
            _ => self.caller.etag(kind, what, &answer).map(Some),
        }
    }

    async fn transact(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        let what = || Resource::Partition(table.clone(), pk.clone());
        let checked = check::transaction(pk, operations);
        self.caller.checked(TRANSACT, what, checked)?;
        let amendment = Amendment::default().body(batch::without_content);
        let amendment = match self.wire {
            Encoding::Utf8 => amendment,
            Encoding::Ascii => amendment.body(ascii::json::<{ limits::TRANSACTION_BYTES }>),
        };
        let answer = self
            .caller
            .run(
                TRANSACT,
                what,
                self.send_batch(table, pk, operations, amendment.context()),
            )
            .await?;
        match batch::outcome(&answer, operations.len()) {
            BatchOutcome::Done(etags) => operations
                .iter()
                .zip(etags)
                .map(|(operation, etag)| {
                    match (operation, etag.and_then(|text| ETag::new(text).ok())) {
                        (TableOperation::Delete(..), _) => Ok(None),
                        (_, Some(etag)) => Ok(Some(etag)),
                        (_, None) => Err(self.caller.unusable(
                            TRANSACT,
                            what(),
                            &answer,
                            "a part of the answer has no ETag",
                        )),
                    }
                })
                .collect(),
            BatchOutcome::Failed(refusal) => {
                // The class depends on the operation that failed, if it is known.
                let failed = refusal
                    .index
                    .and_then(|index| operations.get(index))
                    .map_or(TRANSACT, write_of);
                Err(self
                    .caller
                    .refused(failed.within(TRANSACT), what(), refusal))
            }
            BatchOutcome::Unreadable => Err(self.caller.unusable(
                TRANSACT,
                what(),
                &answer,
                "the answer is truncated or does not match the transaction",
            )),
        }
    }

    async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError> {
        let what = || Resource::Table(table.clone());
        self.caller.checked(QUERY, what, check::query(query))?;
        let select = query.select.as_deref();
        let mut pages = self.table(table).query().context(json().context());
        if let Some(filter) = &query.filter {
            pages = pages.filter(filter.to_string());
        }
        if let Some(select) = projection(select) {
            pages = pages.select(select);
        }
        if let Some(top) = query.top {
            pages = pages.top(Top::new(top));
        }
        if let Some(continuation) = &query.continuation {
            pages = pages.initial_partition_key(continuation.next_partition_key.clone());
            if let Some(row_key) = &continuation.next_row_key {
                pages = pages.initial_row_key(row_key.clone());
            }
        }
        let answer = self
            .caller
            .run(
                QUERY,
                what,
                transport::first(pages.into_stream::<IgnoredAny>()),
            )
            .await?;
        let mut json = self.json(QUERY, what, &answer)?;
        let Some(Value::Array(rows)) = json.get_mut("value").map(Value::take) else {
            return Err(self.caller.unusable(
                QUERY,
                what(),
                &answer,
                "the answer has no list of rows",
            ));
        };
        let rows = rows
            .into_iter()
            .map(|json| Ok(narrowed(self.row(QUERY, what, &answer, json)?, select)))
            .collect::<Result<_, StoreError>>()?;
        let continuation =
            answer
                .header("x-ms-continuation-nextpartitionkey")
                .map(|partition_key| Continuation {
                    next_partition_key: partition_key.to_owned(),
                    next_row_key: answer
                        .header("x-ms-continuation-nextrowkey")
                        .map(str::to_owned),
                });
        Ok(Page { rows, continuation })
    }

    async fn create_table(&self, table: &TableName) -> Result<bool, StoreError> {
        let call = self.table(table).create().context(json().context());
        match self
            .caller
            .run(
                CREATE,
                || Resource::Table(table.clone()),
                call.into_future(),
            )
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.class == ErrorClass::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn delete_table(&self, table: &TableName) -> Result<bool, StoreError> {
        let call = self.table(table).delete().context(json().context());
        match self.caller.try_run(call.into_future()).await {
            Ok(_) => Ok(true),
            // A table that is being deleted counts as missing in every request, except in the creation of a table with the same
            // name.
            Err(CallFailure::Refusal(refusal)) if refusal.is("TableBeingDeleted") => Ok(false),
            Err(failure) => {
                match self
                    .caller
                    .failed(DELETE, Resource::Table(table.clone()), failure)
                {
                    error if error.class == ErrorClass::NotFound(Missing::Container) => Ok(false),
                    error => Err(error),
                }
            }
        }
    }

    async fn list_tables(&self, continuation: Option<&str>) -> Result<TablePage, StoreError> {
        let what = || Resource::Service(Service::Table);
        let amendment = match continuation {
            Some(next) => json().query("NextTableName", next),
            None => json(),
        };
        let call = self
            .service
            .list()
            .context(amendment.context())
            .into_stream();
        let answer = self.caller.run(LIST, what, transport::first(call)).await?;
        let json = self.json(LIST, what, &answer)?;
        let tables = json.get("value").and_then(Value::as_array);
        let tables = tables.ok_or_else(|| {
            self.caller
                .unusable(LIST, what(), &answer, "the answer has no list of tables")
        })?;
        let name = |table: &Value| {
            table
                .get("TableName")
                .and_then(Value::as_str)
                .and_then(|name| TableName::new(name).ok())
        };
        Ok(TablePage {
            // Tables of the service (`$MetricsCapacityBlob`) have names that users cannot choose, and are left out.
            tables: tables.iter().filter_map(name).collect(),
            continuation: answer
                .header("x-ms-continuation-nexttablename")
                .map(str::to_owned),
        })
    }
}
