//! Divides the failure of a shared request among its callers, as if each request had been sent alone.

use evenkeel_storage::{ErrorClass, Missing, Resource, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedOperations {
    /// The operation at this index. Nothing was executed, and the others may be sent again without it.
    Single(usize),
    /// Every operation: each would have failed alike, or it is unknown which ones were executed.
    All,
    /// Nothing was executed, and the store did not name the operation at fault.
    Unknown,
}

pub(super) fn failed_operations(error: &StoreError, count: usize) -> FailedOperations {
    match error.class {
        class if class.is_transient() || class == ErrorClass::NotFound(Missing::Container) => {
            FailedOperations::All
        }
        // A shared access signature may allow only some of the operations. The service checks it before it reads the
        // operations, so it cannot name the one that is not allowed.
        ErrorClass::Unauthorised => FailedOperations::Unknown,
        _ => error
            .index
            .filter(|index| *index < count)
            .map_or(FailedOperations::Unknown, FailedOperations::Single),
    }
}

/// The error of one operation of a shared request, as if the operation had been sent alone.
pub(super) fn alone(mut error: StoreError, operation: &'static str, what: Resource) -> StoreError {
    error.operation = operation;
    error.subject.resource = what;
    error.index = None;
    error
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
            "rejected",
        )
    }

    fn entity() -> Resource {
        Resource::Entity(
            TableName::new("Employees").unwrap(),
            EntityKey::new("Sales", "7").unwrap(),
        )
    }

    #[test]
    fn the_operation_that_the_store_names_has_failed() {
        for class in [
            ErrorClass::Conflict,
            ErrorClass::Precondition,
            ErrorClass::NotFound(Missing::Item),
            ErrorClass::TooLarge,
        ] {
            assert_eq!(
                failed_operations(&error(class).with_index(Some(1)), 2),
                FailedOperations::Single(1)
            );
            assert_eq!(
                failed_operations(&error(class).with_index(Some(2)), 2),
                FailedOperations::Unknown
            );
            assert_eq!(
                failed_operations(&error(class), 2),
                FailedOperations::Unknown
            );
        }
        assert_eq!(
            failed_operations(&error(ErrorClass::Unauthorised), 2),
            FailedOperations::Unknown
        );
    }

    #[test]
    fn a_failure_of_the_whole_request_fails_all_operations() {
        let all = [
            ErrorClass::Ambiguous,
            ErrorClass::Refused,
            ErrorClass::Throttled { retry_after: None },
            ErrorClass::NotFound(Missing::Container),
        ];
        for class in all {
            assert_eq!(
                failed_operations(&error(class).with_index(Some(0)), 2),
                FailedOperations::All,
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
            "Insert Entity (table Employees, PartitionKey \"Sales\", RowKey \"7\", account main): rejected (409 EntityAlreadyExists)"
        );
        assert_eq!(own.index, None);

        let shared = error(ErrorClass::Ambiguous)
            .with_status(500, None)
            .with_cause(std::io::Error::other("the request 7"));
        for _ in 0..2 {
            let own = alone(shared.clone(), "Delete Entity", entity());
            assert_eq!(
                (own.class, own.status, own.operation),
                (ErrorClass::Ambiguous, Some(500), "Delete Entity")
            );
            let cause = own.source().unwrap().downcast_ref::<std::io::Error>();
            assert_eq!(cause.unwrap().to_string(), "the request 7");
        }
    }

    #[test]
    fn a_withheld_request_is_withheld_for_all_its_callers() {
        let held = error(ErrorClass::Throttled { retry_after: None })
            .not_sent(Withheld::Paused, "ScopeHeld");
        let own = alone(held, "Get Entity", entity());
        assert_eq!(
            (own.withheld, own.code.as_deref()),
            (Some(Withheld::Paused), Some("ScopeHeld"))
        );
    }
}
