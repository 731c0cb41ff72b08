//! The rules that decide whether an attempt is repeated.

use crate::layer::Op;
use evenkeel_model::ETag;
use evenkeel_storage::{BlobCondition, ErrorClass, IfMatch, TableOperation};

/// What follows an attempt without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Repeat: the request changes nothing.
    RepeatRead,
    /// Repeat: this is harmless, or the next answer shows the outcome.
    RepeatWrite,
    Surface,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    Repeat,
    GiveUp,
}

impl Unanswered {
    /// The rule of an operation without regard to a condition. The functions below have the rules of operations with a condition.
    /// The table in the module documentation has all rules.
    pub(crate) const fn of(op: Op) -> Self {
        match op {
            Op::GetEntity
            | Op::QueryEntities
            | Op::ListTables
            | Op::PeekMessages
            | Op::GetQueueMetadata
            | Op::GetBlob
            | Op::GetBlobProperties
            | Op::ListBlobs
            | Op::GetDocument
            | Op::GetFields => Self::RepeatRead,
            Op::CreateTable
            | Op::DeleteTable
            | Op::CreateQueue
            | Op::DeleteQueue
            | Op::PutMessage
            | Op::DeleteMessage
            | Op::CreateContainer
            | Op::DeleteContainer
            | Op::PutBlock
            | Op::DefineCollection => Self::RepeatWrite,
            Op::GetMessages
            | Op::InsertEntity
            | Op::InsertOrReplaceEntity
            | Op::InsertOrMergeEntity
            | Op::UpdateEntity
            | Op::MergeEntity
            | Op::DeleteEntity
            | Op::Transact
            | Op::UpdateMessage
            | Op::PutBlob
            | Op::PutBlockList
            | Op::CopyBlob
            | Op::CreateAppendBlob
            | Op::AppendBlock
            | Op::SetBlobMetadata
            | Op::DeleteBlob
            | Op::WriteDocuments => Self::Surface,
        }
    }

    pub(crate) const fn of_table_operation(operation: &TableOperation) -> Self {
        match operation {
            TableOperation::Delete(_, IfMatch::Matches(_)) => Self::RepeatWrite,
            TableOperation::Delete(_, IfMatch::Any)
            | TableOperation::Insert(_)
            | TableOperation::InsertOrReplace(_)
            | TableOperation::InsertOrMerge(_)
            | TableOperation::Replace(..)
            | TableOperation::Merge(..) => Self::Surface,
        }
    }

    pub(crate) const fn of_upload(condition: &BlobCondition) -> Self {
        match condition {
            BlobCondition::None => Self::RepeatWrite,
            BlobCondition::Absent | BlobCondition::Matches(_) => Self::Surface,
        }
    }

    pub(crate) const fn of_blob_deletion(if_match: Option<&ETag>) -> Self {
        if if_match.is_some() {
            Self::RepeatWrite
        } else {
            Self::Surface
        }
    }

    pub(super) const fn after(self, class: ErrorClass) -> NextStep {
        match (class, self) {
            (ErrorClass::Ambiguous, Self::Surface) => NextStep::GiveUp,
            (class, _) if class.is_transient() => NextStep::Repeat,
            _ => NextStep::GiveUp,
        }
    }

    /// The class of the final error if the last attempt failed with `class`. `unanswered` states whether an earlier attempt
    /// was unanswered.
    pub(super) const fn ends_with(self, class: ErrorClass, unanswered: bool) -> ErrorClass {
        match (self, class) {
            // The item is gone, deleted by an earlier attempt or by another client.
            (Self::RepeatWrite, ErrorClass::NotFound(_) | ErrorClass::LeaseLost) => class,
            // The last attempt was rejected or not executed, but an earlier one may have been executed. An item that exists
            // now under another ETag may have been created since.
            (Self::RepeatWrite, _) if unanswered => ErrorClass::Ambiguous,
            (_, class) => class,
        }
    }
}
