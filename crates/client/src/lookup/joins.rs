//! Joins the rows of a lookup with entities of other tables by point reads.
//!
//! ```text
//!   rows ─▶ a key per row and join (pure) ─▶ each distinct key once, 16 at a time per table ─▶ one entity per row
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::try_join_all;
use futures::stream::{StreamExt as _, TryStreamExt as _, iter};

use super::join_spec::JoinSpec;
use super::query::{Lookup, LookupResult};
use crate::ClientError;
use evenkeel_model::catalog::TargetRef;
use evenkeel_model::template::Escaping;
use evenkeel_model::{EntityKey, Row};

/// Maximum number of entities of one table that are read concurrently.
const PARALLEL: usize = 16;

pub(super) struct Join<'l> {
    spec: &'l JoinSpec,
    table: TargetRef,
    /// How values are escaped in keys. In tables that only views write, keys are escaped as views escape them.
    escaping: Escaping,
}

impl Join<'_> {
    fn keys(&self, rows: &[Row]) -> Result<Vec<Option<EntityKey>>, ClientError> {
        let key = |row: &Row| {
            let failed = |source| ClientError::Join {
                doing: format!("could not join {} to {}", self.table.table, row.entity.key),
                source,
            };
            self.spec.key(self.escaping, &row.entity).map_err(failed)
        };
        rows.iter().map(key).collect()
    }
}

impl Lookup<'_> {
    /// Returns the joins of the lookup. A table must be in the catalog and may occur only once.
    pub(super) fn joins(&self) -> Result<Vec<Join<'_>>, ClientError> {
        let mut seen = BTreeSet::new();
        let mut join = |spec| {
            let table = self.client.target(JoinSpec::table(spec))?;
            if !seen.insert(table.clone()) {
                return Err(ClientError::Unknown(format!(
                    "table {} is joined twice; expected one join per table",
                    table.table
                )));
            }
            let is_made = self
                .client
                .catalog()
                .refuse_view_table(&table.first())
                .is_err();
            let escaping = if is_made {
                Escaping::Always
            } else {
                Escaping::WhereForbidden
            };
            Ok(Join {
                spec,
                table,
                escaping,
            })
        };
        self.joins.iter().map(&mut join).collect()
    }

    pub(super) fn join_properties(&self) -> impl Iterator<Item = &str> {
        self.joins.iter().flat_map(JoinSpec::properties)
    }

    /// Reads the entities that are joined to the rows.
    pub(super) async fn join(
        &self,
        joins: &[Join<'_>],
        found: &mut LookupResult,
    ) -> Result<(), ClientError> {
        let rows = found.rows.as_slice();
        let joined = try_join_all(joins.iter().map(async |join| {
            let keys = join.keys(rows)?;
            let (entities, requests) = self
                .read_joined(&join.table, keys.iter().flatten().collect())
                .await?;
            let of_rows: Vec<Option<Arc<Row>>> = keys
                .iter()
                .map(|key| entities.get(key.as_ref()?).cloned())
                .collect();
            Ok::<_, ClientError>((join.table.table.clone(), of_rows, requests))
        }));
        for (table, of_rows, requests) in joined.await? {
            found.joined.insert(table, of_rows);
            found.requests += requests;
        }
        Ok(())
    }

    /// Reads the entities with these keys and returns the number of requests sent. Absent entities are left out.
    async fn read_joined(
        &self,
        table: &TargetRef,
        keys: BTreeSet<&EntityKey>,
    ) -> Result<(BTreeMap<EntityKey, Arc<Row>>, u64), ClientError> {
        let read = iter(keys)
            .map(async |key| self.client.cached(&table.at(&key.pk), key).await)
            .buffered(PARALLEL);
        let read: Vec<_> = read.try_collect().await?;
        let mut requests = read.iter().map(|(_, requests)| requests).sum();
        let mut entities: Vec<Row> = read.into_iter().filter_map(|(row, _)| row).collect();
        if self.decrypted {
            requests += self
                .client
                .decrypt(&table.first(), &mut entities)
                .await?
                .requests;
        }
        Ok((
            entities
                .into_iter()
                .map(|row| (row.entity.key.clone(), Arc::new(row)))
                .collect(),
            requests,
        ))
    }
}
