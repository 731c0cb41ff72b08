//! Following copies and members to the entities that they belong to.

use futures::stream::{StreamExt as _, TryStreamExt as _, iter};

use super::query::Lookup;
use crate::{ClientError, Whole};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::model::EntityKey;

/// Entities read at once.
const PARALLEL: usize = 16;

impl Lookup<'_> {
    /// The entities with these keys, in their order, and the requests that it took. One that is gone meanwhile is left out.
    pub(super) async fn read_all(&self, table: &TableRef, keys: &[EntityKey]) -> Result<(Vec<Whole>, u64), ClientError> {
        let wide = self.client.catalog.wide.contains(table);
        let properties: Vec<String> = self.select.iter().cloned().chain(self.join_properties().map(str::to_owned)).collect();
        let select = (!self.select.is_empty() && !wide).then_some(properties.as_slice());
        let tables = self.client.account(&table.account)?.tables.as_ref();
        let read: Vec<Option<Whole>> = iter(keys)
            .map(|key| async move {
                // Which of its rows has a property is known only when they are read.
                if wide {
                    return self.client.whole(table, key).await;
                }
                let row = tables.get(&table.table, key, select).await.map_err(ClientError::store(format!("reading {table}{key}")))?;
                Ok(row.map(|row| Whole { row, requests: 1 }))
            })
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        let requests = read.iter().map(|whole| whole.as_ref().map_or(1, |whole| whole.requests)).sum();
        Ok((read.into_iter().flatten().collect(), requests))
    }
}
