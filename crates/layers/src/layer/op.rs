//! The storage operations and their names.

use evenkeel_storage::{Service, TableOperation};

macro_rules! ops {
    ($($op:ident, $service:ident, $label:literal, $operation:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Op {
            $($op,)*
        }

        impl Op {
            pub const ALL: &'static [Self] = &[$(Self::$op),*];

            pub const fn service(self) -> Service {
                match self {
                    $(Self::$op => Service::$service,)*
                }
            }

            /// The label in metrics.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$op => $label,)*
                }
            }

            /// The service's name of the operation, for errors.
            pub const fn operation(self) -> &'static str {
                match self {
                    $(Self::$op => $operation,)*
                }
            }
        }
    };
}

ops! {
    GetEntity, Table, "get_entity", "Get Entity";
    InsertEntity, Table, "insert_entity", "Insert Entity";
    InsertOrReplaceEntity, Table, "insert_or_replace_entity", "Insert Or Replace Entity";
    InsertOrMergeEntity, Table, "insert_or_merge_entity", "Insert Or Merge Entity";
    UpdateEntity, Table, "update_entity", "Update Entity";
    MergeEntity, Table, "merge_entity", "Merge Entity";
    DeleteEntity, Table, "delete_entity", "Delete Entity";
    Transact, Table, "transact", "Entity Group Transaction";
    QueryEntities, Table, "query_entities", "Query Entities";
    CreateTable, Table, "create_table", "Create Table";
    DeleteTable, Table, "delete_table", "Delete Table";
    ListTables, Table, "list_tables", "Query Tables";
    CreateQueue, Queue, "create_queue", "Create Queue";
    DeleteQueue, Queue, "delete_queue", "Delete Queue";
    PutMessage, Queue, "put_message", "Put Message";
    GetMessages, Queue, "get_messages", "Get Messages";
    UpdateMessage, Queue, "update_message", "Update Message";
    DeleteMessage, Queue, "delete_message", "Delete Message";
    PeekMessages, Queue, "peek_messages", "Peek Messages";
    GetQueueMetadata, Queue, "get_queue_metadata", "Get Queue Metadata";
    CreateContainer, Blob, "create_container", "Create Container";
    DeleteContainer, Blob, "delete_container", "Delete Container";
    PutBlob, Blob, "put_blob", "Put Blob";
    GetBlob, Blob, "get_blob", "Get Blob";
    GetBlobProperties, Blob, "get_blob_properties", "Get Blob Properties";
    DeleteBlob, Blob, "delete_blob", "Delete Blob";
    CreateAppendBlob, Blob, "create_append_blob", "Put Append Blob";
    AppendBlock, Blob, "append_block", "Append Block";
    PutBlock, Blob, "put_block", "Put Block";
    PutBlockList, Blob, "put_block_list", "Put Block List";
    SetBlobMetadata, Blob, "set_blob_metadata", "Set Blob Metadata";
    CopyBlob, Blob, "copy_blob", "Copy Blob";
    ListBlobs, Blob, "list_blobs", "List Blobs";
    WriteDocuments, Search, "write_documents", "Index Documents";
    GetDocument, Search, "get_document", "Lookup Document";
    GetFields, Search, "get_fields", "Get Index";
    DefineCollection, Search, "define_collection", "Define Collection";
}

impl Op {
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
    fn entity_operations_have_the_names_of_the_port() {
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
