//! Failures inside the store, which have a class but not yet an operation and a subject.

use std::sync::Arc;

use rusqlite::ErrorCode;

use evenkeel_storage::check::Objection;
use evenkeel_storage::error::Cause;
use evenkeel_storage::{ErrorClass, Missing, StoreError, Subject};

#[derive(Debug)]
pub(super) struct Fault {
    pub(super) class: ErrorClass,
    index: Option<usize>,
    message: String,
    /// Whether the store is at fault, not the request. The message then names the store's file.
    of_file: bool,
    cause: Option<Cause>,
}

impl Fault {
    pub(super) fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            index: None,
            message: message.into(),
            of_file: false,
            cause: None,
        }
    }

    pub(super) fn permanent(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Permanent, message)
    }

    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::TooLarge, message)
    }

    /// The table, queue or container does not exist.
    pub(super) fn no_container(kind: &'static str) -> Self {
        Self::new(
            ErrorClass::NotFound(Missing::Container),
            format!("the {kind} does not exist"),
        )
    }

    /// The store cannot do it now, and nothing was written.
    pub(super) fn transient(message: impl Into<String>) -> Self {
        Self {
            of_file: true,
            ..Self::new(ErrorClass::Transient { retry_after: None }, message)
        }
    }

    /// A row of the file is unreadable. This is permanent for the job that reads it: the job is
    /// poisoned with the reason and can be requeued after a repair. One bad row must not look like
    /// a store that refuses all requests.
    pub(super) fn corrupt(what: impl std::fmt::Display) -> Self {
        Self::permanent(format!(
            "the file contains {what}, which this version cannot read"
        ))
    }

    /// Adds the index of the failed operation in its transaction.
    pub(super) fn at(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    /// A failed commit. If the sync failed, only the next recovery of the file shows whether the
    /// commit is on the disk, so the result is ambiguous. If the disk was full or a lock was held,
    /// nothing was committed.
    pub(super) fn commit(error: &Arc<rusqlite::Error>) -> Self {
        let mut fault = Self::sqlite(error);
        if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
            fault.class = ErrorClass::Ambiguous;
        }
        fault
    }

    /// A failed statement. Only a value that is too large is the fault of the request; everything
    /// else is the fault of the store.
    pub(super) fn sqlite(error: &Arc<rusqlite::Error>) -> Self {
        let (class, message) = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
                ErrorClass::Transient { retry_after: None },
                "another process locked the file for too long",
            ),
            Some(ErrorCode::DiskFull) => (
                ErrorClass::Transient { retry_after: None },
                "the disk is full",
            ),
            Some(ErrorCode::TooBig) => (ErrorClass::TooLarge, "a value is too large for the file"),
            Some(ErrorCode::SystemIoFailure) => (
                ErrorClass::Transient { retry_after: None },
                "disk I/O failed",
            ),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => (
                ErrorClass::Transient { retry_after: None },
                "the file is not writable",
            ),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
                ErrorClass::Transient { retry_after: None },
                "the file is damaged",
            ),
            Some(_) | None => (ErrorClass::Transient { retry_after: None }, "SQLite failed"),
        };
        Self {
            class,
            index: None,
            message: message.to_owned(),
            of_file: true,
            cause: Some(Arc::clone(error).into()),
        }
    }

    pub(super) fn into_error(
        self,
        operation: &'static str,
        subject: Subject,
        file: &str,
    ) -> StoreError {
        let message = if self.of_file {
            format!("{} (file {file})", self.message)
        } else {
            self.message
        };
        let mut error =
            StoreError::new(self.class, operation, subject, message).with_index(self.index);
        error.cause = self.cause;
        error
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::sqlite(&Arc::new(error))
    }
}

impl From<Objection> for Fault {
    fn from(objection: Objection) -> Self {
        Self {
            index: objection.index,
            ..Self::new(objection.class, objection.message)
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;
    use evenkeel_model::AccountName;
    use evenkeel_storage::{Resource, Service};

    fn failure(code: i32) -> Arc<rusqlite::Error> {
        Arc::new(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }

    #[test]
    fn failures_of_the_file_can_be_tried_again_and_name_it() {
        let codes = [
            ffi::SQLITE_BUSY,
            ffi::SQLITE_FULL,
            ffi::SQLITE_IOERR,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_CANTOPEN,
        ];
        for code in codes {
            let fault = Fault::sqlite(&failure(code));
            assert!(
                matches!(fault.class, ErrorClass::Transient { .. }),
                "{code}"
            );
            let subject = Subject {
                account: AccountName::main(),
                resource: Resource::Service(Service::Table),
            };
            let error = fault.into_error("Insert Entity", subject, "/data/store.db");
            assert!(error.to_string().contains("/data/store.db"), "{error}");
            assert!(error.cause.is_some());
        }
        assert_eq!(
            Fault::sqlite(&failure(ffi::SQLITE_TOOBIG)).class,
            ErrorClass::TooLarge
        );
    }

    #[test]
    fn a_commit_whose_sync_failed_is_ambiguous() {
        assert_eq!(
            Fault::commit(&failure(ffi::SQLITE_IOERR)).class,
            ErrorClass::Ambiguous
        );
        assert!(matches!(
            Fault::commit(&failure(ffi::SQLITE_FULL)).class,
            ErrorClass::Transient { .. }
        ));
    }
}
