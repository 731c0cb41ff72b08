//! `drop_table`: one table by date, with all that is in it, by one request.

use super::engine::Engine;
use super::execute::{Failure, Outcome, Summary};
use super::failure::{permanent, storage};
use crate::model::TableName;

/// A table that no retention has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the table {0} is of no [retention] pattern, and no other is ever dropped")]
struct NotDated(TableName);

pub(super) async fn run(engine: &Engine, name: &TableName) -> Result<Outcome, Failure> {
    let table = engine.catalog.dated_table(name);
    let table = table.ok_or_else(|| permanent("finding the retention of the table", NotDated(name.clone())))?;
    let dropped = engine.account(table)?.tables.delete_table(&table.table).await;
    if dropped.map_err(|error| storage(format!("dropping the table {table}"), error))? {
        tracing::info!(%table, "table dropped");
        Ok(Outcome::Done(Summary::default()))
    } else {
        Ok(Outcome::Skipped { reason: format!("the table {table} does not exist"), summary: Summary::default() })
    }
}
