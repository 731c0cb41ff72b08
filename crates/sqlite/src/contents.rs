//! The contents of blobs: a header row and pieces of at most 256 KiB, stored under the stamp of the
//! write that made them. No version ever changes, so a reader's snapshot holds one whole version.
//!
//! A version made of blocks is stored in parts. Each part has its own stamp, and the header of the
//! version lists these stamps. A new version reuses the parts of unchanged blocks, so a version
//! that changes one block of a hundred writes only this block.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _};

use evenkeel_storage::{BlobProperties, BlockId};

use super::fault::Fault;
use super::stamp;

/// Bytes of one piece. With smaller pieces the overhead would grow. With larger ones, a read of a
/// short range would load more unneeded bytes.
const PIECE_BYTES: usize = 262_144;

#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) content_type: String,
    pub(super) cache_control: Option<String>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// Writes a new version that is not made of blocks.
pub(super) fn write(
    connection: &Connection,
    stamp: i64,
    header: &Header,
    content: &Bytes,
) -> Result<(), Fault> {
    write_header(connection, stamp, header, &[])?;
    let mut pieces = PieceWriter::of(connection, stamp);
    pieces.add(content)?;
    pieces.end().map(drop)
}

pub(super) fn write_header(
    connection: &Connection,
    stamp: i64,
    header: &Header,
    blocks: &[Block],
) -> Result<(), Fault> {
    let sql = "INSERT INTO blob_headers (stamp, content_type, cache_control, metadata, blocks) VALUES (?1, ?2, ?3, ?4, ?5)";
    let metadata = serde_json::to_string(&header.metadata)
        .map_err(|_| Fault::permanent("metadata cannot be serialised"))?;
    let blocks = (!blocks.is_empty()).then(|| packed(blocks));
    connection.prepare_cached(sql)?.execute((
        stamp,
        &header.content_type,
        &header.cache_control,
        metadata,
        blocks,
    ))?;
    Ok(())
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) id: BlockId,
    pub(super) length: u64,
}

/// The blocks of a version.
pub(super) fn blocks(connection: &Connection, stamp: i64) -> Result<Vec<Block>, Fault> {
    let mut statement =
        connection.prepare_cached("SELECT blocks FROM blob_headers WHERE stamp = ?1")?;
    let packed: Option<Vec<u8>> = statement.query_row([stamp], |row| row.get(0))?;
    let packed = packed.unwrap_or_default();
    let (blocks, []) = packed.as_chunks::<PACKED_BYTES>() else {
        return Err(Fault::corrupt("a truncated block list"));
    };
    Ok(blocks.iter().map(unpacked).collect())
}

/// Bytes of one packed block: its name and its length.
const PACKED_BYTES: usize = 24;

fn packed(blocks: &[Block]) -> Vec<u8> {
    blocks
        .iter()
        .flat_map(|block| block.id.0.into_iter().chain(block.length.to_be_bytes()))
        .collect()
}

fn unpacked(bytes: &[u8; PACKED_BYTES]) -> Block {
    let (mut id, mut length) = ([0; 16], [0; 8]);
    id.copy_from_slice(&bytes[..16]);
    length.copy_from_slice(&bytes[16..]);
    Block {
        id: BlockId(id),
        length: u64::from_be_bytes(length),
    }
}

/// A block of a version, stored under a stamp of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) stamp: i64,
    pub(super) length: u64,
}

/// The parts of a version; empty if its bytes are stored under its own stamp.
pub(super) fn parts(connection: &Connection, stamp: i64) -> rusqlite::Result<Vec<Part>> {
    let mut statement =
        connection.prepare_cached("SELECT parts FROM blob_headers WHERE stamp = ?1")?;
    let packed: Option<Vec<u8>> = statement
        .query_row([stamp], |row| row.get(0))
        .optional()?
        .flatten();
    let numbers: Vec<i64> = packed
        .unwrap_or_default()
        .as_chunks::<8>()
        .0
        .iter()
        .map(|number| i64::from_be_bytes(*number))
        .collect();
    Ok(numbers
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[stamp, length]| Part {
            stamp: *stamp,
            length: length.cast_unsigned(),
        })
        .collect())
}

pub(super) fn set_parts(
    connection: &Connection,
    stamp: i64,
    parts: &[Part],
) -> rusqlite::Result<()> {
    let packed: Option<Vec<u8>> = (!parts.is_empty()).then(|| {
        parts
            .iter()
            .flat_map(|part| [part.stamp, part.length.cast_signed()])
            .flat_map(i64::to_be_bytes)
            .collect()
    });
    connection
        .prepare_cached("UPDATE blob_headers SET parts = ?2 WHERE stamp = ?1")?
        .execute((stamp, packed))?;
    Ok(())
}

pub(super) fn write_part(
    connection: &Connection,
    stamp: i64,
    content: &[u8],
) -> Result<Part, Fault> {
    let mut pieces = PieceWriter::of(connection, stamp);
    pieces.add(content)?;
    Ok(Part {
        stamp,
        length: pieces.end()?,
    })
}

/// Removes the parts `kept` from the list of the version `from`. The new version uses these parts,
/// too, so they must stay when the version `from` is removed.
pub(super) fn keep_parts(
    connection: &Connection,
    from: i64,
    kept: &[Part],
) -> rusqlite::Result<()> {
    let kept: BTreeSet<i64> = kept.iter().map(|part| part.stamp).collect();
    let left: Vec<Part> = parts(connection, from)?
        .into_iter()
        .filter(|part| !kept.contains(&part.stamp))
        .collect();
    set_parts(connection, from, &left)
}

/// Writes bytes in pieces of equal length.
pub(super) struct PieceWriter<'a> {
    connection: &'a Connection,
    stamp: i64,
    next: i64,
    begun: Vec<u8>,
}

impl<'a> PieceWriter<'a> {
    /// Begins a new version.
    pub(super) const fn of(connection: &'a Connection, stamp: i64) -> Self {
        Self {
            connection,
            stamp,
            next: 0,
            begun: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        if !self.begun.is_empty() {
            let (fill, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.begun.len()));
            self.begun.extend_from_slice(fill);
            bytes = rest;
            if self.begun.len() < PIECE_BYTES {
                return Ok(());
            }
            let whole = std::mem::take(&mut self.begun);
            self.write(&whole)?;
        }
        let (whole, rest) = bytes.as_chunks::<PIECE_BYTES>();
        for piece in whole {
            self.write(piece)?;
        }
        self.begun.extend_from_slice(rest);
        Ok(())
    }

    /// Returns the number of bytes.
    pub(super) fn end(mut self) -> Result<u64, Fault> {
        let length = self.next.cast_unsigned() * PIECE_BYTES as u64 + self.begun.len() as u64;
        if !self.begun.is_empty() {
            let last = std::mem::take(&mut self.begun);
            self.write(&last)?;
        }
        Ok(length)
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), Fault> {
        let sql = "INSERT INTO blob_blocks (stamp, number, content) VALUES (?1, ?2, ?3)";
        self.connection
            .prepare_cached(sql)?
            .execute((self.stamp, self.next, piece))?;
        self.next += 1;
        Ok(())
    }
}

/// Writes a new version with the content of another.
pub(super) fn copy(connection: &Connection, from: i64, to: i64) -> Result<(), Fault> {
    let sql = "INSERT INTO blob_headers (stamp, content_type, cache_control, metadata, blocks) \
               SELECT ?2, content_type, cache_control, metadata, blocks FROM blob_headers WHERE stamp = ?1";
    connection.prepare_cached(sql)?.execute((from, to))?;
    let parts = parts(connection, from)?;
    if !parts.is_empty() {
        let mut pieces = PieceWriter::of(connection, to);
        for part in parts {
            pieces.add(&read_pieces(connection, part.stamp, 0..part.length)?)?;
        }
        return pieces.end().map(drop);
    }
    let sql = "INSERT INTO blob_blocks (stamp, number, content) SELECT ?2, number, content FROM blob_blocks WHERE stamp = ?1";
    connection.prepare_cached(sql)?.execute((from, to))?;
    Ok(())
}

/// Turns a version into a new one with more bytes at the end. The old version is gone.
pub(super) fn extend(
    connection: &Connection,
    from: i64,
    to: i64,
    length: u64,
    more: &[u8],
) -> Result<(), Fault> {
    renew(connection, from, to)?;
    let last = (length / PIECE_BYTES as u64).cast_signed();
    let room = PIECE_BYTES - usize::try_from(length % PIECE_BYTES as u64).unwrap_or(0);
    let (fill, rest) = more.split_at(room.min(more.len()));
    if room == PIECE_BYTES {
        connection
            .prepare_cached("INSERT INTO blob_blocks (stamp, number, content) VALUES (?1, ?2, ?3)")?
            .execute((to, last, fill))?;
    } else {
        let sql = "UPDATE blob_blocks SET content = CAST(content || ?3 AS BLOB) WHERE stamp = ?1 AND number = ?2";
        connection.prepare_cached(sql)?.execute((to, last, fill))?;
    }
    let mut statement = connection
        .prepare_cached("INSERT INTO blob_blocks (stamp, number, content) VALUES (?1, ?2, ?3)")?;
    for (number, block) in (last + 1..).zip(rest.chunks(PIECE_BYTES)) {
        statement.execute((to, number, block))?;
    }
    Ok(())
}

/// Turns a version into a new one with other metadata. The old version is gone.
pub(super) fn set_metadata(
    connection: &Connection,
    from: i64,
    to: i64,
    metadata: &BTreeMap<String, String>,
) -> Result<(), Fault> {
    renew(connection, from, to)?;
    write_metadata(connection, to, metadata)
}

pub(super) fn write_metadata(
    connection: &Connection,
    stamp: i64,
    metadata: &BTreeMap<String, String>,
) -> Result<(), Fault> {
    let metadata = serde_json::to_string(metadata)
        .map_err(|_| Fault::permanent("metadata cannot be serialised"))?;
    connection
        .prepare_cached("UPDATE blob_headers SET metadata = ?2 WHERE stamp = ?1")?
        .execute((stamp, metadata))?;
    Ok(())
}

/// Moves a version to another stamp. Readers keep their snapshot.
fn renew(connection: &Connection, from: i64, to: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE blob_headers SET stamp = ?2 WHERE stamp = ?1")?
        .execute((from, to))?;
    connection
        .prepare_cached("UPDATE blob_blocks SET stamp = ?2 WHERE stamp = ?1")?
        .execute((from, to))?;
    Ok(())
}

pub(super) fn remove(connection: &Connection, stamp: i64) -> rusqlite::Result<()> {
    for part in parts(connection, stamp)? {
        connection
            .prepare_cached("DELETE FROM blob_blocks WHERE stamp = ?1")?
            .execute([part.stamp])?;
    }
    connection
        .prepare_cached("DELETE FROM blob_headers WHERE stamp = ?1")?
        .execute([stamp])?;
    connection
        .prepare_cached("DELETE FROM blob_blocks WHERE stamp = ?1")?
        .execute([stamp])?;
    Ok(())
}

pub(super) fn properties(
    connection: &Connection,
    stamp: i64,
    length: u64,
) -> Result<BlobProperties, Fault> {
    let sql = "SELECT content_type, cache_control, metadata FROM blob_headers WHERE stamp = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let read = statement.query_row([stamp], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))
    })?;
    let (content_type, cache_control, metadata) = read;
    let metadata = serde_json::from_str(&metadata).map_err(Fault::corrupt)?;
    Ok(BlobProperties {
        etag: stamp::blob_etag(stamp)?,
        length,
        content_type,
        cache_control,
        metadata,
    })
}

/// Reads a range, cut at the end of the version.
pub(super) fn read(
    connection: &Connection,
    stamp: i64,
    length: u64,
    range: Option<Range<u64>>,
) -> Result<Bytes, Fault> {
    let range = range.unwrap_or(0..length);
    let start = range.start.min(length);
    let end = range.end.clamp(start, length);
    if start == end {
        return Ok(Bytes::new());
    }
    let parts = parts(connection, stamp)?;
    if parts.is_empty() {
        return Ok(read_pieces(connection, stamp, start..end)?.into());
    }
    let (mut bytes, mut at) = (Vec::new(), 0);
    for part in parts {
        let (from, to) = (start.max(at), end.min(at + part.length));
        if from < to {
            bytes.append(&mut read_pieces(
                connection,
                part.stamp,
                from - at..to - at,
            )?);
        }
        at += part.length;
    }
    Ok(bytes.into())
}

/// Reads a range of the bytes stored under a stamp. The range must not be empty.
fn read_pieces(
    connection: &Connection,
    stamp: i64,
    Range { start, end }: Range<u64>,
) -> Result<Vec<u8>, Fault> {
    let size = |bytes: u64| {
        usize::try_from(bytes).map_err(|_| Fault::too_large("blob does not fit in memory"))
    };
    let sql = "SELECT content FROM blob_blocks WHERE stamp = ?1 AND number BETWEEN ?2 AND ?3 ORDER BY number";
    let mut statement = connection.prepare_cached(sql)?;
    let (first, last) = (start / PIECE_BYTES as u64, (end - 1) / PIECE_BYTES as u64);
    let mut rows = statement.query((stamp, first.cast_signed(), last.cast_signed()))?;
    // The position at which the first piece begins.
    let origin = first * PIECE_BYTES as u64;
    let (mut skip, total) = (size(start - origin)?, size(end - start)?);
    let mut bytes = Vec::with_capacity(total);
    while let Some(row) = rows.next()? {
        let block = row
            .get_ref(0)?
            .as_blob()
            .map_err(|_| Fault::corrupt("a blob piece that is not binary"))?;
        let part = block
            .get(skip..)
            .ok_or_else(|| Fault::corrupt("a blob piece that is too short"))?;
        bytes.extend_from_slice(&part[..part.len().min(total - bytes.len())]);
        skip = 0;
    }
    if bytes.len() == total {
        Ok(bytes)
    } else {
        Err(Fault::corrupt("a blob with missing pieces"))
    }
}
