use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{Deadline, StoreError};
use evenkeel_model::{CollectionName, ColumnType, DocumentKey, SinkDocument};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentWrite {
    pub key: DocumentKey,
    /// The document that replaces the present one; `None` to delete the present one, if any.
    pub document: Option<SinkDocument>,
    /// The version of the write, from the footprint: at least the milliseconds since 1970, and greater than any version before. A sink that
    /// stores versions refuses older writes (`Precondition`).
    pub version: i64,
    /// The write must be sent before this deadline or not at all, because another run may write the final document afterwards. Decorators
    /// check it (`Precondition`).
    pub deadline: Option<Deadline>,
}

/// The fields of a collection's documents, with their types in the store's words or in those of [`ColumnType`].
pub type Fields = BTreeMap<String, String>;

/// The results of several writes, in order.
pub type WriteResults = Vec<Result<(), StoreError>>;

/// How a sink accepts writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkBatching {
    /// Many writes in one request.
    Together,
    /// Each write in its own request. Decorators pass one write per call, so that each fails alone.
    Apart {
        /// Maximum number of concurrent requests to a collection.
        at_once: usize,
    },
}

/// Another store: a search service, a database, files. It stores documents in collections that its owner has created.
///
/// A write has no condition, and in a sink without versions the last one to arrive counts. The store may show a write to readers with a
/// delay, but an acknowledged write is ordered before every write that is sent later.
/// The footprint provides the ordering that conditions would give (`docs/internals/notes/sinks.md`). For this, the error classes must be
/// exact: a write that may have been executed, or may still be executed, is always `Ambiguous`.
///
/// If the collection does not exist, methods fail with `NotFound(Container)`, except `fields`.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Whether the store can return documents and fields. This never changes. If it cannot, `get` and `fields` return without a request,
    /// which is no evidence that the store is healthy.
    fn is_readable(&self) -> bool;

    /// How the sink accepts writes. This never changes.
    fn batching(&self) -> SinkBatching;

    /// Writes documents with distinct keys. An error applies to all of them. Otherwise there is a result for each, and failed writes do not
    /// affect the others.
    async fn write(
        &self,
        collection: &CollectionName,
        writes: &[DocumentWrite],
    ) -> Result<WriteResults, StoreError>;

    /// Reads a document without its key. A field without a value is null, and an unreadable field is left out. Returns `None` if the
    /// document does not exist. A recent write may not be visible yet. A sink that cannot be read returns a document without fields.
    async fn get(
        &self,
        collection: &CollectionName,
        key: &DocumentKey,
    ) -> Result<Option<SinkDocument>, StoreError>;

    /// The fields of a collection's documents, including the key; empty if any field is allowed. `None` if the collection does not exist.
    async fn fields(&self, collection: &CollectionName) -> Result<Option<Fields>, StoreError>;

    /// Creates a collection with these fields, or adds missing fields; other fields stay. Safe to repeat. `Permanent` if the owner must
    /// create collections.
    async fn define(
        &self,
        collection: &CollectionName,
        fields: &BTreeMap<String, ColumnType>,
    ) -> Result<(), StoreError>;
}
