//! Maps store errors to failure classes, which determine how a worker reacts.

use std::time::Duration;

use crate::execute::{Failure, FailureClass};
use evenkeel_model::large::STAGING;
use evenkeel_storage::error::Cause;
use evenkeel_storage::{ErrorClass, Missing, Resource, Service, StoreError};

/// Number of lost rounds after which a run gives up and releases its job, because other writers keep changing the
/// primary.
pub(crate) const ROUNDS: u32 = 5;

/// Delay before work is tried again after its table, container, queue or key-encryption key was missing, or after the
/// key vault refused the worker.
pub(crate) const GONE: Duration = Duration::from_secs(10);

pub(crate) fn storage(step: impl Into<String>, error: StoreError) -> Failure {
    if error.withheld.is_some() {
        return Failure::new(
            FailureClass::Withheld {
                retry_after: error.class.retry_after(),
            },
            step,
            error,
        );
    }
    let class = match error.class {
        // If a declared table or container is missing, every job fails alike, and the backlog must not be moved to the
        // poison queue. So work waits until the table or container is created again. There are two exceptions. Dated
        // tables are dropped when their time is over, so `dated` decides about them. A missing index is permanent,
        // because its owner creates it.
        ErrorClass::NotFound(Missing::Container)
            if error.subject.resource.service() != Service::Search && !is_staging(&error) =>
        {
            FailureClass::Withheld {
                retry_after: Some(GONE),
            }
        }
        // A missing index, an invalid request and an exceeded limit persist until an operator acts.
        ErrorClass::NotFound(Missing::Container) | ErrorClass::Permanent | ErrorClass::TooLarge => {
            FailureClass::Permanent
        }
        ErrorClass::Throttled { retry_after } | ErrorClass::Transient { retry_after } => {
            FailureClass::Transient { retry_after }
        }
        // These classes have different reasons to be transient. If credentials are refused, for example after a key was
        // rotated, every job fails alike, and the backlog must not be moved to the poison queue. If a request lost a
        // race that its caller did not expect, the next run reads the present state.
        ErrorClass::Refused
        | ErrorClass::Ambiguous
        | ErrorClass::Unauthorised
        | ErrorClass::NotFound(Missing::Item)
        | ErrorClass::Conflict
        | ErrorClass::Precondition
        | ErrorClass::LeaseLost => FailureClass::Transient { retry_after: None },
    };
    let step = step.into();
    if error.class == ErrorClass::NotFound(Missing::Container) {
        let kind = match error.subject.resource.service() {
            Service::Table => "table",
            Service::Queue => "queue",
            Service::Blob if is_staging(&error) => {
                let step = format!(
                    "{step}: the container does not exist. The sender of jobs with staged blobs must create it"
                );
                return Failure::new(class, step, error);
            }
            Service::Blob => "container",
            Service::Search => {
                let step = format!(
                    "{step}: the index does not exist. Create it with the fields that its views name"
                );
                return Failure::new(class, step, error);
            }
        };
        let step = format!(
            "{step}: the {kind} does not exist, and jobs wait for it. `evenkeel migrate up` creates declared {kind}s"
        );
        return Failure::new(class, step, error);
    }
    Failure::new(class, step, error)
}

/// Whether an error is about the container of staged blobs. No catalog declares this container, and a missing staged
/// blob affects only its own job.
fn is_staging(error: &StoreError) -> bool {
    matches!(&error.subject.resource, Resource::Container(container) | Resource::Blob(container, _) if container.as_str() == STAGING)
}

/// A failure that persists until an operator acts.
pub(crate) fn permanent(step: impl Into<String>, cause: impl Into<Cause>) -> Failure {
    Failure::new(FailureClass::Permanent, step, cause)
}

/// Returns the first of two failures, with the views of both.
pub(crate) fn first_of(first: Option<Failure>, next: Failure) -> Failure {
    let Some(mut first) = first else { return next };
    let new = next
        .views
        .into_iter()
        .filter(|view| !first.views.contains(view))
        .collect::<Vec<_>>();
    first.views.extend(new);
    first
}

#[derive(Debug, thiserror::Error)]
#[error("other writers changed the data during each of {0} attempts. The job will be retried")]
struct LostRace(u32);

pub(crate) fn lost_race(step: impl Into<String>, rounds: u32) -> Failure {
    Failure::new(
        FailureClass::Transient { retry_after: None },
        step,
        LostRace(rounds),
    )
}

pub(crate) fn is_lost_race(failure: &Failure) -> bool {
    failure.cause.is::<LostRace>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{
        AccountName, BlobName, CollectionName, ContainerName, QueueName, TableName,
    };
    use evenkeel_storage::{Subject, Withheld};

    #[test]
    fn a_missing_table_container_or_queue_waits_and_a_missing_index_is_permanent() {
        let of = |what| {
            let subject = Subject {
                account: AccountName::main(),
                resource: what,
            };
            storage(
                "writing",
                StoreError::new(
                    ErrorClass::NotFound(Missing::Container),
                    "Insert Entity",
                    subject,
                    "it does not exist",
                ),
            )
        };
        let declared = [
            Resource::Table(TableName::new("ByEmail").unwrap()),
            Resource::Container(ContainerName::new("archive").unwrap()),
            Resource::Queue(QueueName::new("jobs-recheck").unwrap()),
        ];
        for what in declared {
            let failure = of(what);
            assert_eq!(
                failure.class,
                FailureClass::Withheld {
                    retry_after: Some(GONE)
                }
            );
            assert!(
                failure.step.contains("jobs wait for it"),
                "{}",
                failure.step
            );
        }
        let staged = of(Resource::Blob(
            ContainerName::new(STAGING).unwrap(),
            BlobName::new("a").unwrap(),
        ));
        assert_eq!(
            staged.class,
            FailureClass::Permanent,
            "a job whose blobs were never staged would otherwise be retried for ever"
        );
        let index = Resource::Collection(CollectionName::new("people").unwrap());
        assert_eq!(of(index.clone()).class, FailureClass::Permanent);
        // A missing table or column of a database is not permanent, because `migrate up` creates it.
        for class in [
            ErrorClass::NotFound(Missing::Container),
            ErrorClass::Permanent,
        ] {
            let subject = Subject {
                account: AccountName::main(),
                resource: index.clone(),
            };
            let mut error =
                StoreError::new(class, "Write Rows", subject, "run `evenkeel migrate up`");
            error.withheld = Some(Withheld::TableMissing);
            assert_eq!(
                storage("writing", error).class,
                FailureClass::Withheld { retry_after: None }
            );
        }
    }
}
