//! The contents of blobs: a header row and blocks of at most 256 KiB, under the stamp of the write that made
//! them, so that no version is ever changed and a reader's snapshot holds one whole version.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use rusqlite::Connection;

use crate::ports::BlobProperties;

use super::fault::Fault;
use super::stamp;

/// Bytes of one block: large enough to cost little, small enough that a range reads little too much.
const BLOCK: usize = 262_144;

/// What goes with a blob's bytes.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) content_type: String,
    pub(super) cache_control: Option<String>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// Writes header and blocks of a new version.
pub(super) fn write(connection: &Connection, stamp: i64, header: &Header, content: &Bytes) -> Result<(), Fault> {
    let sql = "INSERT INTO blob_headers (stamp, content_type, cache_control, metadata) VALUES (?1, ?2, ?3, ?4)";
    let metadata = serde_json::to_string(&header.metadata).map_err(|_| Fault::permanent("metadata that cannot be written down"))?;
    connection.prepare_cached(sql)?.execute((stamp, &header.content_type, &header.cache_control, metadata))?;
    let sql = "INSERT INTO blob_blocks (stamp, number, content) VALUES (?1, ?2, ?3)";
    let mut statement = connection.prepare_cached(sql)?;
    for (number, block) in (0_i64..).zip(content.chunks(BLOCK)) {
        statement.execute((stamp, number, block))?;
    }
    Ok(())
}

/// Writes a new version that is the same as another.
pub(super) fn copy(connection: &Connection, from: i64, to: i64) -> Result<(), Fault> {
    let sql = "INSERT INTO blob_headers (stamp, content_type, cache_control, metadata) \
               SELECT ?2, content_type, cache_control, metadata FROM blob_headers WHERE stamp = ?1";
    connection.prepare_cached(sql)?.execute((from, to))?;
    let sql = "INSERT INTO blob_blocks (stamp, number, content) SELECT ?2, number, content FROM blob_blocks WHERE stamp = ?1";
    connection.prepare_cached(sql)?.execute((from, to))?;
    Ok(())
}

/// Makes a new version of an old one, which is no more: the same bytes and more behind them.
pub(super) fn extend(connection: &Connection, from: i64, to: i64, length: u64, more: &[u8]) -> Result<(), Fault> {
    renew(connection, from, to)?;
    let last = (length / BLOCK as u64).cast_signed();
    let room = BLOCK - usize::try_from(length % BLOCK as u64).unwrap_or(0);
    let (fill, rest) = more.split_at(room.min(more.len()));
    if room == BLOCK {
        connection.prepare_cached("INSERT INTO blob_blocks (stamp, number, content) VALUES (?1, ?2, ?3)")?.execute((to, last, fill))?;
    } else {
        let sql = "UPDATE blob_blocks SET content = CAST(content || ?3 AS BLOB) WHERE stamp = ?1 AND number = ?2";
        connection.prepare_cached(sql)?.execute((to, last, fill))?;
    }
    let mut statement = connection.prepare_cached("INSERT INTO blob_blocks (stamp, number, content) VALUES (?1, ?2, ?3)")?;
    for (number, block) in (last + 1..).zip(rest.chunks(BLOCK)) {
        statement.execute((to, number, block))?;
    }
    Ok(())
}

/// Makes a new version of an old one, which is no more, with other metadata.
pub(super) fn set_metadata(connection: &Connection, from: i64, to: i64, metadata: &BTreeMap<String, String>) -> Result<(), Fault> {
    renew(connection, from, to)?;
    let metadata = serde_json::to_string(metadata).map_err(|_| Fault::permanent("metadata that cannot be written down"))?;
    connection.prepare_cached("UPDATE blob_headers SET metadata = ?2 WHERE stamp = ?1")?.execute((to, metadata))?;
    Ok(())
}

/// Puts a version under another stamp. Readers keep what they see.
fn renew(connection: &Connection, from: i64, to: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE blob_headers SET stamp = ?2 WHERE stamp = ?1")?.execute((from, to))?;
    connection.prepare_cached("UPDATE blob_blocks SET stamp = ?2 WHERE stamp = ?1")?.execute((from, to))?;
    Ok(())
}

/// Removes a version.
pub(super) fn remove(connection: &Connection, stamp: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM blob_headers WHERE stamp = ?1")?.execute([stamp])?;
    connection.prepare_cached("DELETE FROM blob_blocks WHERE stamp = ?1")?.execute([stamp])?;
    Ok(())
}

/// Reads what goes with a version's bytes.
pub(super) fn properties(connection: &Connection, stamp: i64, length: u64) -> Result<BlobProperties, Fault> {
    let sql = "SELECT content_type, metadata FROM blob_headers WHERE stamp = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let (content_type, metadata) = statement.query_row([stamp], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    let metadata = serde_json::from_str(&metadata).map_err(Fault::corrupt)?;
    Ok(BlobProperties { etag: stamp::blob_etag(stamp)?, length, content_type, metadata })
}

/// Reads a range of a version's bytes, cut at its end.
pub(super) fn read(connection: &Connection, stamp: i64, length: u64, range: Option<Range<u64>>) -> Result<Bytes, Fault> {
    let range = range.unwrap_or(0..length);
    let start = range.start.min(length);
    let end = range.end.clamp(start, length);
    if start == end {
        return Ok(Bytes::new());
    }
    let size = |bytes: u64| usize::try_from(bytes).map_err(|_| Fault::too_large("a blob that does not fit in memory"));
    let sql = "SELECT content FROM blob_blocks WHERE stamp = ?1 AND number BETWEEN ?2 AND ?3 ORDER BY number";
    let mut statement = connection.prepare_cached(sql)?;
    let (first, last) = (start / BLOCK as u64, (end - 1) / BLOCK as u64);
    let mut rows = statement.query((stamp, first.cast_signed(), last.cast_signed()))?;
    // Where the first block that is read begins in the blob.
    let origin = first * BLOCK as u64;
    let (mut skip, total) = (size(start - origin)?, size(end - start)?);
    let mut bytes = Vec::with_capacity(total);
    while let Some(row) = rows.next()? {
        let block = row.get_ref(0)?.as_blob().map_err(|_| Fault::corrupt("a block that is no bytes"))?;
        let part = block.get(skip..).ok_or_else(|| Fault::corrupt("a block that is too short"))?;
        bytes.extend_from_slice(&part[..part.len().min(total - bytes.len())]);
        skip = 0;
    }
    if bytes.len() == total { Ok(bytes.into()) } else { Err(Fault::corrupt("a blob without some of its blocks")) }
}
