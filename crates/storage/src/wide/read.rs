//! Reading an entity with all its rows.

use super::row_key;
use super::rows::Rows;
use crate::{Query, StoreError, TableStore};
use evenkeel_model::{EntityKey, TableName};

/// Maximum number of attempts while the entity is being written.
const READINGS: u32 = 5;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read the rows of the entity")]
    Store(#[from] StoreError),
    /// The entity was written between the requests of every attempt.
    #[error("the entity changed during each of {READINGS} attempts to read it")]
    Busy,
}

/// Reads an entity of a wide table: one request, or two if it has several rows. With `leftovers`, rows that the first row does not list are
/// read too, because they would be in the way of new ones; this takes one more request.
pub async fn read(
    tables: &dyn TableStore,
    table: &TableName,
    key: &EntityKey,
    leftovers: bool,
) -> Result<Rows, ReadError> {
    let mut rows = Rows {
        first: tables.get(table, key, None).await?,
        requests: 1,
        ..Rows::default()
    };
    for _ in 0..READINGS {
        if rows.expected().is_empty() && !leftovers {
            return Ok(rows);
        }
        read_further(tables, table, key, &mut rows).await?;
        // Rows without a first row may belong to an entity that was written between the two requests.
        if rows.agree() && (rows.first.is_some() || rows.further.is_empty()) {
            return Ok(rows);
        }
        // Every write of a row also writes the first row, so an unchanged ETag means that nothing was written in between.
        let again = tables.get(table, key, None).await?;
        rows.requests += 1;
        let unchanged =
            again.as_ref().map(|row| &row.etag) == rows.first.as_ref().map(|row| &row.etag);
        if unchanged {
            return Ok(rows);
        }
        rows.first = again;
    }
    Err(ReadError::Busy)
}

async fn read_further(
    tables: &dyn TableStore,
    table: &TableName,
    key: &EntityKey,
    rows: &mut Rows,
) -> Result<(), StoreError> {
    rows.further.clear();
    let mut query = Query {
        filter: Some(row_key::range(key)),
        ..Query::default()
    };
    loop {
        let page = tables.query(table, &query).await?;
        rows.requests += 1;
        let numbered = page
            .rows
            .into_iter()
            .filter_map(|row| Some((row_key::number(&key.rk, &row.entity.key.rk)?, row)));
        rows.further.extend(numbered);
        match page.continuation {
            Some(next) => query.continuation = Some(next),
            None => return Ok(()),
        }
    }
}
