//! How large lists become before they are kept in another way.

use crate::model::limits;

/// How large lists become before they are kept in another way. Nobody configures it; a simulation makes it small, so that a
/// handful of members is a long list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListSizes {
    /// Most bytes of a row that holds its list itself, as Azure counts: with more the list moves into a blob.
    pub row_bytes: usize,
    /// Most bytes of lines in a block of a list in a blob, and of one that is written in one request.
    pub block_bytes: u64,
}

impl Default for ListSizes {
    fn default() -> Self {
        Self { row_bytes: limits::ENTITY_BYTES, block_bytes: limits::LIST_BLOCK_BYTES }
    }
}
