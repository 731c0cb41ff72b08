//! Who sees what the world does.

use bytes::Bytes;
use jiff::Timestamp;

use super::OperationInfo;
use evenkeel_model::{
    AccountName, BlobName, CollectionName, ContainerName, DocumentKey, EntityKey, QueueName, Row,
    SinkDocument, TableName,
};
use evenkeel_storage::{Blob, ErrorClass, FilePlace};

/// Sees every operation that is executed, also one that arrives long after its sender gave up. Called before
/// anybody else sees what has changed, and must not call the world.
pub trait Witness: Send + Sync {
    /// An operation was executed, with this result and these changes.
    fn executed(&self, execution: &Execution<'_>);
}

/// An operation that was executed.
#[derive(Debug)]
pub struct Execution<'a> {
    /// The account that executed it.
    pub account: &'a AccountName,
    /// Who sent it.
    /// Who sent it.
    pub caller: u32,
    /// The operation.
    pub operation: &'a OperationInfo,
    /// When it was executed, by the service's clock.
    pub at: Timestamp,
    /// Whether its sender had given it up by then.
    pub late: bool,
    /// How it ended.
    pub result: Result<(), ErrorClass>,
    /// What it changed, in order.
    pub changes: &'a [ObservedChange],
}

/// Something that an operation changed.
#[derive(Debug, Clone, PartialEq)]
pub enum ObservedChange {
    /// A row.
    Row {
        /// Its table.
        table: TableName,
        /// Its key.
        key: EntityKey,
        /// What it is now; nothing where it was deleted.
        row: Option<Row>,
    },
    /// A blob.
    Blob {
        /// Its container.
        container: ContainerName,
        /// Its name.
        name: BlobName,
        /// What it is now; nothing where it was deleted.
        blob: Option<Blob>,
    },
    /// A file.
    File {
        /// Where it lies.
        place: FilePlace,
        /// What it holds now; nothing where it was removed.
        content: Option<Bytes>,
    },
    /// A document of another store.
    Document {
        /// Its collection.
        collection: CollectionName,
        /// Its key.
        key: DocumentKey,
        /// What it says now; nothing where it was deleted.
        document: Option<SinkDocument>,
    },
    /// A table was created, or dropped; its rows are told of before.
    Table {
        /// The table.
        table: TableName,
        /// Whether it exists now.
        exists: bool,
    },
    /// A message was put.
    Put {
        /// Its queue.
        queue: QueueName,
        /// Its id.
        id: String,
        /// Its text.
        text: String,
    },
    /// A message was got.
    Got {
        /// Its queue.
        queue: QueueName,
        /// Its id.
        id: String,
        /// How often it was got, this time included.
        dequeue_count: u32,
    },
    /// A message was updated.
    Updated {
        /// Its queue.
        queue: QueueName,
        /// Its id.
        id: String,
        /// Its text now.
        text: String,
    },
    /// A message was deleted.
    Deleted {
        /// Its queue.
        queue: QueueName,
        /// Its id.
        id: String,
    },
    /// A message expired.
    Expired {
        /// Its queue.
        queue: QueueName,
        /// Its id.
        id: String,
    },
}
