//! What the last answer to a request means if an earlier attempt had none.

use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_model::ETag;
use evenkeel_storage::{ErrorClass, StoreError};

/// The service's error code for a message that has been received again.
const OTHER_RECEIPT: &str = "PopReceiptMismatch";

/// The attempts before the last one.
#[derive(Debug, Default)]
pub(crate) struct EarlierAttempts {
    unanswered: AtomicBool,
}

impl EarlierAttempts {
    pub(crate) fn note_unanswered(&self) {
        self.unanswered.store(true, Ordering::Relaxed);
    }

    fn unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// The result of a creation or a deletion. If the last attempt changed nothing and an earlier one was
    /// unanswered, the earlier attempt did the work.
    pub(crate) fn done(&self, result: Result<bool, StoreError>) -> Result<bool, StoreError> {
        result.map(|done| done || self.unanswered())
    }

    /// The result of a write of an entity.
    pub(crate) fn applied(
        &self,
        result: Result<Option<ETag>, StoreError>,
    ) -> Result<Option<ETag>, StoreError> {
        match result {
            // Of all writes, only a deletion at an ETag is repeated and may then find its entity missing: the
            // unanswered attempt has deleted it.
            Err(error) if self.unanswered() && error.is_missing_item() => Ok(None),
            result => result,
        }
    }

    /// The result of a deletion of a message.
    pub(crate) fn deleted(&self, result: Result<(), StoreError>) -> Result<(), StoreError> {
        match result {
            // A message with a different receipt still exists, so it was not deleted.
            Err(error)
                if self.unanswered()
                    && error.class == ErrorClass::LeaseLost
                    && error.code.as_deref() != Some(OTHER_RECEIPT) =>
            {
                Ok(())
            }
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{AccountName, QueueName};
    use evenkeel_storage::{Resource, Subject};

    #[test]
    fn a_message_with_another_receipt_was_not_deleted_by_an_unanswered_attempt() {
        let lost = |code: Option<&str>| {
            let queue = QueueName::new("evenkeel-jobs").unwrap();
            let subject = Subject {
                account: AccountName::main(),
                resource: Resource::Queue(queue),
            };
            let mut error = StoreError::new(ErrorClass::LeaseLost, "Delete Message", subject, "");
            error.code = code.map(Into::into);
            Err(error)
        };
        for (code, deleted) in [
            (None, true),
            (Some("MessageNotFound"), true),
            (Some(OTHER_RECEIPT), false),
        ] {
            let earlier = EarlierAttempts::default();
            assert!(earlier.deleted(lost(code)).is_err(), "{code:?}");
            earlier.note_unanswered();
            assert_eq!(earlier.deleted(lost(code)).is_ok(), deleted, "{code:?}");
        }
    }
}
