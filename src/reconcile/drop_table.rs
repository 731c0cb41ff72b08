//! `drop_table`: one table by date, with all that is in it, by one request; where its retention says so, every row is in a file before.

use serde_json::{Map, json};

use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome, Summary};
use super::failure::{permanent, storage};
use super::table_archive::{self, Archived};
use crate::model::TableName;
use crate::model::drop_table::DropTable;

/// A table that no retention has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the table {0} is of no [retention] pattern, and no other is ever dropped")]
struct NotDated(TableName);

pub(super) async fn run(engine: &Engine, job: &DropTable, delivery: &Delivery) -> Result<Outcome, Failure> {
    let not_dated = || permanent("finding the retention of the table", NotDated(job.table.clone()));
    let table = engine.catalog.dated_table(&job.table).ok_or_else(not_dated)?;
    let retention = engine.catalog.retention_of(&table.table).ok_or_else(not_dated)?;
    let skipped = |reason: String| Outcome::Skipped { reason, summary: Summary::default() };
    let missing = || skipped(format!("the table {table} does not exist"));
    if let Some(to) = &retention.archive_to {
        match table_archive::part(engine, table, to, delivery, job.cursor.clone()).await? {
            Archived::All(cursor) => tracing::info!(%table, rows = cursor.rows, files = cursor.files, "table archived"),
            Archived::Until(cursor) => {
                let fields = Map::from_iter([("cursor".to_owned(), json!(cursor))]);
                return Ok(Outcome::Advanced { fields, summary: Summary::default() });
            }
            Archived::NoTable => return Ok(missing()),
            Archived::Elsewhere => return Ok(skipped(format!("another job is archiving the table {table}, and drops it"))),
        }
    }
    let dropped = engine.account(table)?.tables.delete_table(&table.table).await;
    if dropped.map_err(|error| storage(format!("dropping the table {table}"), error))? {
        tracing::info!(%table, "table dropped");
        Ok(Outcome::Done(Summary::default()))
    } else {
        Ok(missing())
    }
}
