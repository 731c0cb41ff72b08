//! Observes executed operations.

use bytes::Bytes;
use jiff::Timestamp;

use super::OperationInfo;
use evenkeel_model::{
    AccountName, BlobName, CollectionName, ContainerName, DocumentKey, EntityKey, QueueName, Row,
    SinkDocument, TableName,
};
use evenkeel_storage::{Blob, ErrorClass, FilePlace};

/// Sees every executed operation, also one that arrives after its sender gave up. It is called before anything else can read the change,
/// and must not call the world.
pub trait Witness: Send + Sync {
    fn executed(&self, execution: &Execution<'_>);
}

#[derive(Debug)]
pub struct Execution<'a> {
    pub account: &'a AccountName,
    pub caller: u32,
    pub operation: &'a OperationInfo,
    /// The time of execution by the service's clock.
    pub at: Timestamp,
    /// Whether the sender had given up.
    pub late: bool,
    pub result: Result<(), ErrorClass>,
    /// The changes in order.
    pub changes: &'a [ObservedChange],
}

#[derive(Debug, Clone, PartialEq)]
pub enum ObservedChange {
    Row {
        table: TableName,
        key: EntityKey,
        /// `None` if it was deleted.
        row: Option<Row>,
    },
    Blob {
        container: ContainerName,
        name: BlobName,
        /// `None` if it was deleted.
        blob: Option<Blob>,
    },
    File {
        place: FilePlace,
        /// `None` if it was deleted.
        content: Option<Bytes>,
    },
    /// A document of a sink.
    Document {
        collection: CollectionName,
        key: DocumentKey,
        /// `None` if it was deleted.
        document: Option<SinkDocument>,
    },
    /// A table was created or deleted. Changes of its rows come before.
    Table {
        table: TableName,
        exists: bool,
    },
    Put {
        queue: QueueName,
        id: String,
        text: String,
    },
    Got {
        queue: QueueName,
        id: String,
        /// Number of deliveries, including this one.
        dequeue_count: u32,
    },
    Updated {
        queue: QueueName,
        id: String,
        text: String,
    },
    Deleted {
        queue: QueueName,
        id: String,
    },
    Expired {
        queue: QueueName,
        id: String,
    },
}
