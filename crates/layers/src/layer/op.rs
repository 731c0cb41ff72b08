//! The storage operations, by name.

use evenkeel_storage::{Service, TableOperation};

macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident, $service:ident, $label:literal, $operation:literal;)*) => {
        /// A storage operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Op {
            $($(#[$doc])* $op,)*
        }

        impl Op {
            /// Every operation, in order.
            pub const ALL: &'static [Self] = &[$(Self::$op),*];

            /// The service that executes it.
            pub const fn service(self) -> Service {
                match self {
                    $(Self::$op => Service::$service,)*
                }
            }

            /// Its name in metrics.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$op => $label,)*
                }
            }

            /// Its name in the service's words, as errors carry it.
            pub const fn operation(self) -> &'static str {
                match self {
                    $(Self::$op => $operation,)*
                }
            }
        }
    };
}

ops! {
    /// A point read.
    GetEntity, Table, "get_entity", "Get Entity";
    /// Insert.
    InsertEntity, Table, "insert_entity", "Insert Entity";
    /// Insert-Or-Replace.
    InsertOrReplaceEntity, Table, "insert_or_replace_entity", "Insert Or Replace Entity";
    /// Insert-Or-Merge.
    InsertOrMergeEntity, Table, "insert_or_merge_entity", "Insert Or Merge Entity";
    /// Replace an existing entity.
    UpdateEntity, Table, "update_entity", "Update Entity";
    /// Merge into an existing entity.
    MergeEntity, Table, "merge_entity", "Merge Entity";
    /// Delete an existing entity.
    DeleteEntity, Table, "delete_entity", "Delete Entity";
    /// An entity group transaction.
    Transact, Table, "transact", "Entity Group Transaction";
    /// One page of a query.
    QueryEntities, Table, "query_entities", "Query Entities";
    /// Create a table.
    CreateTable, Table, "create_table", "Create Table";
    /// Delete a table.
    DeleteTable, Table, "delete_table", "Delete Table";
    /// One page of the tables.
    ListTables, Table, "list_tables", "Query Tables";
    /// Create a queue.
    CreateQueue, Queue, "create_queue", "Create Queue";
    /// Delete a queue.
    DeleteQueue, Queue, "delete_queue", "Delete Queue";
    /// Put a message.
    PutMessage, Queue, "put_message", "Put Message";
    /// Get messages.
    GetMessages, Queue, "get_messages", "Get Messages";
    /// Update a message.
    UpdateMessage, Queue, "update_message", "Update Message";
    /// Delete a message.
    DeleteMessage, Queue, "delete_message", "Delete Message";
    /// Peek messages.
    PeekMessages, Queue, "peek_messages", "Peek Messages";
    /// The approximate count of a queue.
    GetQueueMetadata, Queue, "get_queue_metadata", "Get Queue Metadata";
    /// Create a container.
    CreateContainer, Blob, "create_container", "Create Container";
    /// Delete a container.
    DeleteContainer, Blob, "delete_container", "Delete Container";
    /// Write a blob.
    PutBlob, Blob, "put_blob", "Put Blob";
    /// Read a blob.
    GetBlob, Blob, "get_blob", "Get Blob";
    /// Read a blob's properties.
    GetBlobProperties, Blob, "get_blob_properties", "Get Blob Properties";
    /// Delete a blob.
    DeleteBlob, Blob, "delete_blob", "Delete Blob";
    /// Create an append blob.
    CreateAppendBlob, Blob, "create_append_blob", "Put Append Blob";
    /// Append to an append blob.
    AppendBlock, Blob, "append_block", "Append Block";
    /// Keep a block for a blob.
    PutBlock, Blob, "put_block", "Put Block";
    /// Make a blob of blocks.
    PutBlockList, Blob, "put_block_list", "Put Block List";
    /// Replace a blob's metadata.
    SetBlobMetadata, Blob, "set_blob_metadata", "Set Blob Metadata";
    /// Copy a blob.
    CopyBlob, Blob, "copy_blob", "Copy Blob";
    /// One page of the blobs.
    ListBlobs, Blob, "list_blobs", "List Blobs";
    /// Write documents of a sink.
    WriteDocuments, Search, "write_documents", "Index Documents";
    /// Read a document of a sink.
    GetDocument, Search, "get_document", "Lookup Document";
    /// Read which fields a collection of a sink has.
    GetFields, Search, "get_fields", "Get Index";
    /// Make a collection of a sink, or add fields to it.
    DefineCollection, Search, "define_collection", "Define Collection";
}

impl Op {
    /// The operation of one write of one entity.
    pub const fn of(operation: &TableOperation) -> Self {
        match operation {
            TableOperation::Insert(_) => Self::InsertEntity,
            TableOperation::InsertOrReplace(_) => Self::InsertOrReplaceEntity,
            TableOperation::InsertOrMerge(_) => Self::InsertOrMergeEntity,
            TableOperation::Replace(..) => Self::UpdateEntity,
            TableOperation::Merge(..) => Self::MergeEntity,
            TableOperation::Delete(..) => Self::DeleteEntity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{Entity, EntityKey};
    use evenkeel_storage::IfMatch;

    #[test]
    fn operations_on_entities_are_named_as_the_port_names_them() {
        let key = EntityKey::new("p", "r").unwrap();
        let entity = Entity::new(key.clone());
        for operation in [
            TableOperation::Insert(entity.clone()),
            TableOperation::InsertOrReplace(entity.clone()),
            TableOperation::InsertOrMerge(entity.clone()),
            TableOperation::Replace(entity.clone(), IfMatch::Any),
            TableOperation::Merge(entity, IfMatch::Any),
            TableOperation::Delete(key, IfMatch::Any),
        ] {
            assert_eq!(Op::of(&operation).operation(), operation.name());
        }
    }

    #[test]
    fn labels_are_distinct() {
        let labels: std::collections::BTreeSet<_> = Op::ALL.iter().map(|op| op.label()).collect();
        assert_eq!(labels.len(), Op::ALL.len());
    }
}
