//! Reads whole entities: the primaries of copies and members, and the further rows of wide entities.

use futures::stream::{StreamExt as _, TryStreamExt as _, iter};

use super::query::Lookup;
use crate::{ClientError, WholeEntity};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::condition::Condition;
use evenkeel_model::{EntityKey, Row};
use evenkeel_storage::wide;

/// Maximum number of entities that are read concurrently.
const PARALLEL: usize = 16;

/// An entity and the number of requests sent. The entity is `None` if it was deleted meanwhile.
type ReadResult = (Option<Row>, u64);

impl Lookup<'_> {
    /// Reads the entities with these keys, in the order of the keys, and returns the number of requests sent. Deleted
    /// entities are left out.
    pub(super) async fn read_all(
        &self,
        table: &TableRef,
        keys: &[EntityKey],
    ) -> Result<(Vec<Row>, u64), ClientError> {
        let read: Vec<ReadResult> = iter(keys)
            .map(async |key| self.read_one(table, key).await)
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        Ok(present(read))
    }

    /// Reads the further rows of wide entities, and drops the entities that do not satisfy the condition. Only the
    /// selected properties of each entity are kept, so that few whole entities are in memory at a time.
    pub(super) async fn complete_all(
        &self,
        table: &TableRef,
        rows: Vec<Row>,
    ) -> Result<(Vec<Row>, u64), ClientError> {
        let selected = (!self.select.is_empty()).then(|| self.selected());
        let satisfies = |row: &Row| {
            self.condition
                .as_ref()
                .is_none_or(|condition| condition.holds(&row.entity))
        };
        let kept = |mut row: Row| {
            if let Some(selected) = &selected {
                row.entity
                    .properties
                    .retain(|name, _| selected.contains(name));
            }
            row
        };
        let complete = async |row: Row| {
            let (row, requests) = self.complete(table, row).await?;
            Ok::<ReadResult, ClientError>((row.filter(satisfies).map(kept), requests))
        };
        let read: Vec<ReadResult> = iter(rows)
            .map(complete)
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        Ok(present(read))
    }

    async fn read_one(&self, table: &TableRef, key: &EntityKey) -> Result<ReadResult, ClientError> {
        // Any row of a wide entity may have a selected property, so all rows are read.
        if self.client.catalog.wide.contains(table) {
            return Ok(whole(self.client.whole(table, key).await?));
        }
        let properties: Vec<String> = self.properties().map(str::to_owned).collect();
        let select = (!self.select.is_empty()).then_some(properties.as_slice());
        let tables = self.client.account(&table.account)?.tables.as_ref();
        let row = tables
            .get(&table.table, key, select)
            .await
            .map_err(ClientError::store(format!("could not read {table}{key}")))?;
        Ok((row, 1))
    }

    /// Reads the further rows of an entity if this is the first row of a wide entity.
    async fn complete(&self, table: &TableRef, row: Row) -> Result<ReadResult, ClientError> {
        if self.client.catalog.wide.contains(table) && row.entity.get(wide::ROWS_PROPERTY).is_some()
        {
            return Ok(whole(self.client.whole(table, &row.entity.key).await?));
        }
        Ok((Some(row), 0))
    }

    /// Returns the names of the properties to read: the selected properties, and those that the condition, the joins
    /// and the encryption conditions need. A name may occur twice.
    pub(super) fn properties(&self) -> impl Iterator<Item = &str> {
        let conditions = self.condition.iter().flat_map(Condition::selected);
        let encrypting = self
            .client
            .catalog()
            .encryption_conditions()
            .filter(|_| self.decrypted);
        self.select
            .iter()
            .map(String::as_str)
            .chain(conditions)
            .chain(self.join_properties())
            .chain(encrypting)
    }
}

fn whole(read: Option<WholeEntity>) -> ReadResult {
    read.map_or((None, 1), |WholeEntity { row, requests }| {
        (Some(row), requests)
    })
}

/// Leaves out deleted entities and adds up the numbers of requests.
fn present(read: Vec<ReadResult>) -> (Vec<Row>, u64) {
    let requests = read.iter().map(|(_, requests)| requests).sum();
    (
        read.into_iter().filter_map(|(row, _)| row).collect(),
        requests,
    )
}
