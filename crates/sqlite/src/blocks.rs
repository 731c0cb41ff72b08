//! Uncommitted blocks, and blobs made of blocks.
//!
//! An uncommitted block is a row of its own. A commit of a block list makes a new version. The
//! header of this version lists the blocks and the part that stores each of them. Blocks of the
//! previous version are reused without copying. Only one block is in memory at a time.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _};

use evenkeel_model::ETag;
use evenkeel_storage::{BlobUpload, BlockId, ErrorClass};

use super::blobs::{BlobAddress, BlobSlot};
use super::contents::{self, Block, Header, Part};
use super::fault::Fault;
use super::writer::WriteContext;

/// How long an uncommitted block is kept, in stamps of 100 ns (Azure, "Put Block": a week).
const WAIT_STAMPS: i64 = 7 * 24 * 3_600 * 10_000_000;

/// Keeps an uncommitted block, replacing one of the same name. Deletes blocks that are too old.
pub(super) fn put_uncommitted(
    writing: &mut WriteContext<'_>,
    place: &BlobAddress,
    block: BlockId,
    content: &Bytes,
) -> Result<(), Fault> {
    let slot = place.slot(writing.connection)?;
    slot.needs_blocks()?;
    let stamp = writing.stamp();
    writing
        .connection
        .prepare_cached("DELETE FROM waiting_blocks WHERE stamp < ?1")?
        .execute([stamp - WAIT_STAMPS])?;
    let sql = "INSERT OR REPLACE INTO waiting_blocks (stamp, container_id, name, block, content) VALUES (?1, ?2, ?3, ?4, ?5)";
    let key = (
        stamp,
        slot.container,
        slot.name,
        block.0.as_slice(),
        content.as_ref(),
    );
    writing.connection.prepare_cached(sql)?.execute(key)?;
    Ok(())
}

/// Makes a version of a blob from a block list.
pub(super) fn commit(
    writing: &mut WriteContext<'_>,
    place: &BlobAddress,
    blocks: &[BlockId],
    upload: &BlobUpload,
    header: &Header,
) -> Result<ETag, Fault> {
    let slot = place.slot(writing.connection)?;
    slot.admits(&upload.condition)?;
    slot.needs_blocks()?;
    let connection = writing.connection;
    let previous = match slot.version {
        Some(version) => block_places(connection, version.stamp)?,
        None => BTreeMap::new(),
    };
    let (mut list, mut parts) = (
        Vec::with_capacity(blocks.len()),
        Vec::with_capacity(blocks.len()),
    );
    for id in blocks {
        let part = match (
            uncommitted(connection, &slot, *id)?,
            previous.get(id),
            slot.version,
        ) {
            (Some(bytes), _, _) => contents::write_part(connection, writing.stamp(), &bytes)?,
            (None, Some((_, Some(part))), _) => *part,
            // The previous version is not stored in parts.
            (None, Some((range, None)), Some(version)) => {
                let bytes = contents::read(
                    connection,
                    version.stamp,
                    version.length,
                    Some(range.clone()),
                )?;
                contents::write_part(connection, writing.stamp(), &bytes)?
            }
            (None, _, _) => {
                return Err(Fault::new(
                    ErrorClass::Precondition,
                    "a block of the list is neither uploaded nor part of the blob",
                ));
            }
        };
        list.push(Block {
            id: *id,
            length: part.length,
        });
        parts.push(part);
    }
    let stamp = writing.stamp();
    contents::write_header(connection, stamp, header, &list)?;
    contents::set_parts(connection, stamp, &parts)?;
    if let Some(version) = slot.version {
        contents::keep_parts(connection, version.stamp, &parts)?;
    }
    slot.set(
        writing,
        stamp,
        parts.iter().map(|part| part.length).sum(),
        false,
    )
}

/// Deletes the uncommitted blocks of a blob.
pub(super) fn delete_uncommitted(
    connection: &Connection,
    container: i64,
    name: &str,
) -> Result<(), Fault> {
    let sql = "DELETE FROM waiting_blocks WHERE container_id = ?1 AND name = ?2";
    connection.prepare_cached(sql)?.execute((container, name))?;
    Ok(())
}

fn uncommitted(
    connection: &Connection,
    slot: &BlobSlot<'_>,
    id: BlockId,
) -> Result<Option<Vec<u8>>, Fault> {
    let sql =
        "SELECT content FROM waiting_blocks WHERE container_id = ?1 AND name = ?2 AND block = ?3";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement
        .query_row((slot.container, slot.name, id.0.as_slice()), |row| {
            row.get(0)
        })
        .optional()?)
}

/// For each block of a version: its range, and the part that stores it if the version has parts.
type BlockPlaces = BTreeMap<BlockId, (Range<u64>, Option<Part>)>;

fn block_places(connection: &Connection, stamp: i64) -> Result<BlockPlaces, Fault> {
    let parts = contents::parts(connection, stamp)?;
    let mut start = 0;
    let placed = contents::blocks(connection, stamp)?
        .into_iter()
        .enumerate()
        .map(|(number, block)| {
            let range = start..start + block.length;
            start = range.end;
            (block.id, (range, parts.get(number).copied()))
        });
    Ok(placed.collect())
}
