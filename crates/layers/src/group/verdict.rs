//! The result of each request in a shared one that failed: as if each had been sent alone.

use std::fmt;
use std::sync::Arc;

use evenkeel_storage::error::Cause;
use evenkeel_storage::{ErrorClass, Missing, Resource, StoreError};

/// The operations that a failure belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// That of the operation at this index: nothing was executed, and the others may go on without it.
    One(usize),
    /// All of them: each would have met the same, or it is unknown which were executed.
    Everybody,
    /// Nothing was executed, and the store does not say because of which operation.
    Unknown,
}

/// Attributes the failure of a transaction of `count` operations.
pub(super) fn blame(error: &StoreError, count: usize) -> Blame {
    match error.class {
        class if class.is_transient() || class == ErrorClass::NotFound(Missing::Container) => {
            Blame::Everybody
        }
        // A signature may allow some operations and not others, and the service checks it before it looks at any.
        ErrorClass::Unauthorised => Blame::Unknown,
        _ => error
            .index
            .filter(|index| *index < count)
            .map_or(Blame::Unknown, Blame::One),
    }
}

/// The error of one operation of a transaction, as it would have been had it been sent alone.
pub(super) fn alone(mut error: StoreError, operation: &'static str, what: Resource) -> StoreError {
    error.operation = operation;
    error.subject.resource = what;
    error.index = None;
    error
}

/// An error that many have met at once.
pub(super) struct SharedError {
    error: StoreError,
    cause: Option<SharedCause>,
}

impl SharedError {
    pub(super) fn new(mut error: StoreError) -> Self {
        let cause = error
            .cause
            .take()
            .map(|cause| SharedCause(Arc::from(cause)));
        Self { error, cause }
    }

    /// The error of one of them, as it would have been had it been sent alone.
    pub(super) fn about(&self, operation: &'static str, what: Resource) -> StoreError {
        let mut error = self.error.without_cause();
        error.operation = operation;
        error.subject.resource = what;
        error.index = None;
        error.cause = self.cause.clone().map(Cause::from);
        error
    }
}

/// A cause that several errors have.
#[derive(Debug, Clone)]
struct SharedCause(Arc<dyn std::error::Error + Send + Sync>);

impl fmt::Display for SharedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SharedCause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use evenkeel_model::{AccountName, EntityKey, Key, TableName};
    use evenkeel_storage::{Subject, Withheld};

    fn error(class: ErrorClass) -> StoreError {
        let what = Resource::Partition(
            TableName::new("Employees").unwrap(),
            Key::new("Sales").unwrap(),
        );
        StoreError::new(
            class,
            "Entity Group Transaction",
            Subject {
                account: AccountName::main(),
                resource: what,
            },
            "said so",
        )
    }

    fn entity() -> Resource {
        Resource::Entity(
            TableName::new("Employees").unwrap(),
            EntityKey::new("Sales", "7").unwrap(),
        )
    }

    #[test]
    fn a_refused_operation_is_blamed_where_the_store_names_it() {
        for class in [
            ErrorClass::Conflict,
            ErrorClass::Precondition,
            ErrorClass::NotFound(Missing::Item),
            ErrorClass::TooLarge,
        ] {
            assert_eq!(blame(&error(class).with_index(Some(1)), 2), Blame::One(1));
            assert_eq!(blame(&error(class).with_index(Some(2)), 2), Blame::Unknown);
            assert_eq!(blame(&error(class), 2), Blame::Unknown);
        }
        assert_eq!(blame(&error(ErrorClass::Unauthorised), 2), Blame::Unknown);
    }

    #[test]
    fn what_befalls_the_request_befalls_all_of_it() {
        let all = [
            ErrorClass::Ambiguous,
            ErrorClass::Refused,
            ErrorClass::Throttled { retry_after: None },
            ErrorClass::NotFound(Missing::Container),
        ];
        for class in all {
            assert_eq!(
                blame(&error(class).with_index(Some(0)), 2),
                Blame::Everybody,
                "{class:?}"
            );
        }
    }

    #[test]
    fn each_error_reads_as_if_its_operation_had_been_sent_alone() {
        let refused = error(ErrorClass::Conflict)
            .with_status(409, Some("EntityAlreadyExists".to_owned()))
            .with_index(Some(3));
        let own = alone(refused, "Insert Entity", entity());
        assert_eq!(
            own.to_string(),
            "Insert Entity (table Employees, PartitionKey \"Sales\", RowKey \"7\", account main): said so (409 EntityAlreadyExists)"
        );
        assert_eq!(own.index, None);

        let shared = SharedError::new(
            error(ErrorClass::Ambiguous)
                .with_status(500, None)
                .with_cause(std::io::Error::other("the request 7")),
        );
        for _ in 0..2 {
            let own = shared.about("Delete Entity", entity());
            assert_eq!(
                (own.class, own.status, own.operation),
                (ErrorClass::Ambiguous, Some(500), "Delete Entity")
            );
            assert_eq!(own.source().unwrap().to_string(), "the request 7");
        }
    }

    #[test]
    fn a_request_that_was_withheld_was_withheld_for_all_who_share_it() {
        let held = error(ErrorClass::Throttled { retry_after: None })
            .not_sent(Withheld::Paused, "LaneHeld");
        let own = SharedError::new(held).about("Get Entity", entity());
        assert_eq!(
            (own.withheld, own.code.as_deref()),
            (Some(Withheld::Paused), Some("LaneHeld"))
        );
    }
}
