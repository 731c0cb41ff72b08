//! Blocks: those that wait to become a part of a blob, and the blobs that are made of them.
//!
//! A block that waits lies in a row of its own. A list of blocks becomes a version with a header that lists its blocks
//! and their places: those of the previous version stay where they are. One block is in memory at a time.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _};

use evenkeel_model::{ETag, limits};
use evenkeel_storage::{BlobUpload, BlockId, ErrorClass};

use super::blobs::{BlobSlot, Ident};
use super::contents::{self, Block, Header, Piece};
use super::fault::Fault;
use super::writer::Writing;

/// How long a block waits, in stamps of 100 ns (Azure, "Put Block": a week).
const WAIT_STAMPS: i64 = 7 * 24 * 3_600 * 10_000_000;

/// Checks a block against the service's limits.
pub(super) fn check(content: &Bytes) -> Result<(), Fault> {
    if content.is_empty() {
        return Err(Fault::permanent("a block without a byte"));
    }
    if content.len() > limits::BLOCK_BYTES {
        return Err(Fault::too_large(format!(
            "a block of {} bytes; one may have {}",
            content.len(),
            limits::BLOCK_BYTES
        )));
    }
    Ok(())
}

/// Checks how many blocks a blob is to be made of.
pub(super) fn check_count(blocks: &[BlockId]) -> Result<(), Fault> {
    let count = blocks.len();
    if count > limits::BLOCKS {
        Err(Fault::too_large(format!(
            "{count} blocks; a blob has at most {}",
            limits::BLOCKS
        )))
    } else {
        Ok(())
    }
}

/// Keeps a block for a blob, in the place of one of the same name. Drops blocks that have waited too long.
pub(super) fn keep(
    writing: &mut Writing<'_>,
    place: &Ident,
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

/// Makes a blob of blocks.
pub(super) fn commit(
    writing: &mut Writing<'_>,
    place: &Ident,
    blocks: &[BlockId],
    (upload, header): (&BlobUpload, &Header),
) -> Result<ETag, Fault> {
    let slot = place.slot(writing.connection)?;
    slot.admits(&upload.condition)?;
    slot.needs_blocks()?;
    let connection = writing.connection;
    let had = match slot.version {
        Some(version) => held(connection, version.stamp)?,
        None => BTreeMap::new(),
    };
    let (mut made_of, mut parts) = (
        Vec::with_capacity(blocks.len()),
        Vec::with_capacity(blocks.len()),
    );
    for id in blocks {
        let part = match (waiting(connection, &slot, *id)?, had.get(id), slot.version) {
            (Some(bytes), _, _) => contents::write_part(connection, writing.stamp(), &bytes)?,
            (None, Some((_, Some(part))), _) => *part,
            // Of a version that lies in one piece.
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
                    "a block of the list neither waits nor is in the blob",
                ));
            }
        };
        made_of.push(Block {
            id: *id,
            length: part.length,
        });
        parts.push(part);
    }
    let stamp = writing.stamp();
    contents::write_header(connection, stamp, header, &made_of)?;
    contents::set_parts(connection, stamp, &parts)?;
    if let Some(version) = slot.version {
        contents::hand_on(connection, version.stamp, &parts)?;
    }
    slot.set(
        writing,
        stamp,
        parts.iter().map(|part| part.length).sum(),
        false,
    )
}

/// Drops the blocks that wait to become a part of a blob.
pub(super) fn drop_waiting(
    connection: &Connection,
    container: i64,
    name: &str,
) -> Result<(), Fault> {
    let sql = "DELETE FROM waiting_blocks WHERE container_id = ?1 AND name = ?2";
    connection.prepare_cached(sql)?.execute((container, name))?;
    Ok(())
}

fn waiting(
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

/// Where each block of a version lies in it, and its part, where it is one.
type Held = BTreeMap<BlockId, (Range<u64>, Option<Piece>)>;

fn held(connection: &Connection, stamp: i64) -> Result<Held, Fault> {
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
