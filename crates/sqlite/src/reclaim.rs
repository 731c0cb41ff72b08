//! Reclaims the contents of deleted tables, queues and containers.
//!
//! A deletion removes a single row, whatever the contents. The number of the deleted table, queue
//! or container is never reused, so its contents are invisible at once. They are deleted later, in
//! slices between the writer's batches, so deleting a table of millions of rows delays no request.

use rusqlite::{Connection, OptionalExtension as _};

/// Maximum number of rows in one slice.
const ROWS: i64 = 500;
/// Maximum number of blobs in one slice. Each may have thousands of pieces.
const BLOBS: i64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DroppedKind {
    Table,
    Queue,
    Container,
}

impl DroppedKind {
    const ALL: [Self; 3] = [Self::Table, Self::Queue, Self::Container];

    const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
            Self::Container => "container",
        }
    }
}

pub(super) fn remember(
    connection: &Connection,
    what: DroppedKind,
    id: i64,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO dropped (kind, id) VALUES (?1, ?2)")?
        .execute((what.name(), id))
        .map(drop)
}

/// Deletes a slice in its own transaction. Returns whether more is left.
pub(super) fn slice(connection: &Connection) -> rusqlite::Result<bool> {
    if next(connection)?.is_none() {
        return Ok(false);
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let deleted = delete_some(connection).and_then(|()| connection.execute_batch("COMMIT"));
    if deleted.is_err() && !connection.is_autocommit() {
        // If this fails too, the writer's next BEGIN reports it.
        let _ = connection.execute_batch("ROLLBACK");
    }
    deleted?;
    Ok(next(connection)?.is_some())
}

fn next(connection: &Connection) -> rusqlite::Result<Option<(DroppedKind, i64)>> {
    let mut statement = connection.prepare_cached("SELECT kind, id FROM dropped LIMIT 1")?;
    let found = statement
        .query_row([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.and_then(|(kind, id)| {
        DroppedKind::ALL
            .into_iter()
            .find(|what| what.name() == kind)
            .map(|what| (what, id))
    }))
}

fn delete_some(connection: &Connection) -> rusqlite::Result<()> {
    let Some((what, id)) = next(connection)? else {
        return Ok(());
    };
    let left = match what {
        DroppedKind::Table => delete_entities(connection, id)?,
        DroppedKind::Queue => {
            let sql = "DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE queue_id = ?1 LIMIT ?2)";
            connection.execute(sql, (id, ROWS))? > 0
        }
        DroppedKind::Container => delete_blobs(connection, id)?,
    };
    if !left {
        connection.execute(
            "DELETE FROM dropped WHERE kind = ?1 AND id = ?2",
            (what.name(), id),
        )?;
    }
    Ok(())
}

fn delete_entities(connection: &Connection, table: i64) -> rusqlite::Result<bool> {
    let slice = "SELECT pk, rk, stamp, properties IS NULL FROM entities WHERE table_id = ?1 ORDER BY pk, rk LIMIT ?2";
    let rows = connection
        .prepare_cached(slice)?
        .query_map((table, ROWS), |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, i64>(2)?,
                row.get::<_, bool>(3)?,
            ))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    for (pk, rk, stamp, large) in &rows {
        if *large {
            connection
                .prepare_cached("DELETE FROM large_entities WHERE stamp = ?1")?
                .execute([stamp])?;
        }
        connection
            .prepare_cached("DELETE FROM entities WHERE table_id = ?1 AND pk = ?2 AND rk = ?3")?
            .execute((table, pk, rk))?;
    }
    Ok(!rows.is_empty())
}

fn delete_blobs(connection: &Connection, container: i64) -> rusqlite::Result<bool> {
    let blobs = connection
        .prepare_cached(
            "SELECT name, stamp FROM blobs WHERE container_id = ?1 ORDER BY name LIMIT ?2",
        )?
        .query_map((container, BLOBS), |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    for (name, stamp) in &blobs {
        super::contents::remove(connection, *stamp)?;
        connection
            .prepare_cached("DELETE FROM blobs WHERE container_id = ?1 AND name = ?2")?
            .execute((container, name))?;
    }
    let sql = "DELETE FROM waiting_blocks WHERE stamp IN (SELECT stamp FROM waiting_blocks WHERE container_id = ?1 LIMIT ?2)";
    let waiting = connection
        .prepare_cached(sql)?
        .execute((container, BLOBS))?;
    Ok(!blobs.is_empty() || waiting > 0)
}
