//! Other stores as targets: documents by key, without versions.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{Deadline, StoreError};
use evenkeel_model::{CollectionName, ColumnType, DocumentKey, SinkDocument};

/// One document to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentWrite {
    /// Its key.
    pub key: DocumentKey,
    /// The document to store, replacing the present one; `None` to delete the present one, if any.
    pub document: Option<SinkDocument>,
    /// Its place in the order of the document's writes, which the footprint gives: milliseconds since 1970 at least, and more than
    /// any before. A sink that keeps it refuses older writes (`Precondition`).
    pub version: i64,
    /// It is sent before this time is over or not at all: after it another run may have written the document for good. Decorators see to
    /// that (`Precondition`).
    pub deadline: Option<Deadline>,
}

/// The fields that documents of a collection can have, each with its type in the store's words, or in those of [`ColumnType`].
pub type Fields = BTreeMap<String, String>;

/// How each of some writes ended, in their order.
pub type Written = Vec<Result<(), StoreError>>;

/// How a sink takes its writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkBatching {
    /// Many in one request.
    Together,
    /// Each in a request of its own. Decorators give it one a call, so that each fails alone.
    Apart {
        /// Most requests of a collection under way at once.
        at_once: usize,
    },
}

/// Another store: a search service, a database, files. It keeps documents in collections that its owner has made.
///
/// A write has no condition, and where the sink keeps no versions the last one to arrive counts. The store may show it to readers only after a while, but one that
/// was acknowledged counts before every one that is sent afterwards. Ordering that conditions would give comes from the
/// footprint (`docs/internals/notes/sinks.md`), which rests on the classes of errors here: a write that may have been executed,
/// or may still be, is `Ambiguous` and nothing else.
///
/// A collection that does not exist is `NotFound(Container)`, unless it is asked for itself.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Whether the store can be asked for documents and fields; constant. Where it cannot, `get` and `fields` answer by themselves: they are
    /// no requests, and no evidence of its health.
    fn is_readable(&self) -> bool;

    /// How it takes its writes; constant.
    fn batching(&self) -> SinkBatching;

    /// Writes documents, no key twice. An error is about all of them; otherwise there is an answer for each, and those that
    /// failed took nothing from the others.
    async fn write(
        &self,
        collection: &CollectionName,
        writes: &[DocumentWrite],
    ) -> Result<Written, StoreError>;

    /// Reads a document without its key: a field that it has no value for is null, one that cannot be read is left out. `None`
    /// where it does not exist. A recent write may not show yet. A sink that gives nothing back answers with a document without fields.
    async fn get(
        &self,
        collection: &CollectionName,
        key: &DocumentKey,
    ) -> Result<Option<SinkDocument>, StoreError>;

    /// The fields that documents of a collection can have, that of the key included; none where it takes any. `None` where there is no such
    /// collection.
    async fn fields(&self, collection: &CollectionName) -> Result<Option<Fields>, StoreError>;

    /// Makes a collection with these fields, or adds those that it lacks; leaves all others as they are. Safe to repeat. `Permanent`
    /// where collections are their owner's to make.
    async fn define(
        &self,
        collection: &CollectionName,
        fields: &BTreeMap<String, ColumnType>,
    ) -> Result<(), StoreError>;
}
