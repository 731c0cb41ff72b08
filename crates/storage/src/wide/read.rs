//! Reading one entity with all its rows.

use super::row_key;
use super::rows::Rows;
use crate::{Query, StoreError, TableStore};
use evenkeel_model::{EntityKey, TableName};

/// Readings after which it is given up: the entity is written all the time.
const READINGS: u32 = 5;

/// Why an entity could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store did not answer, or refused.
    #[error("reading its rows")]
    Store(#[from] StoreError),
    /// It was written between any two requests.
    #[error(
        "another writer changed the entity between the requests of each of {READINGS} readings"
    )]
    Busy,
}

/// Reads an entity of a wide table: one request, and two where it has several rows. With `leftovers` also rows that its
/// first row does not tell of, which are in the way of new ones: one request more.
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
        // Rows without a first one may be those of an entity that was written between the two requests.
        if rows.agree() && (rows.first.is_some() || rows.further.is_empty()) {
            return Ok(rows);
        }
        // Nothing writes a row of it without the first: at the same ETag, nothing was written between the two.
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
