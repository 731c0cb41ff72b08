//! A storage request as layers see it, and what its result shows about the health of the service.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Op;
use crate::retry::{EarlierAttempts, Unanswered};
use evenkeel_model::{
    AccountName, BlobName, CollectionName, ContainerName, DocumentKey, EntityKey, Filter, Key,
    QueueName, TableName,
};
use evenkeel_storage::{
    ErrorClass, Resource, Service, StoreError, Subject, Withheld, WriteResults,
};

#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub op: Op,
    pub target: Target<'a>,
    /// Number of entities that the request names: the operations of an entity group transaction, 1 for other writes and
    /// point reads, 0 for queries and requests without an entity. (Throttling counts entities, billing counts requests.)
    pub entities: usize,
    /// Whether the request may be repeated after an attempt without an answer.
    pub(crate) if_unanswered: Unanswered,
    /// Number of rows of a query, or of messages received. It is set when the answer arrives.
    found: Option<&'a AtomicUsize>,
    /// The error of the request if none of its documents succeeded. It is set when the answer arrives.
    failed: Option<&'a OnceLock<StoreError>>,
    /// Set for an operation whose last answer shows the outcome of an earlier attempt.
    earlier: Option<&'a EarlierAttempts>,
}

/// Target of a request: a borrowed [`Resource`].
#[derive(Debug, Clone)]
pub enum Target<'a> {
    Service(Service),
    /// A table, or a query over its partitions.
    Table(&'a TableName),
    /// A transaction, or a query inside one partition.
    Partition(&'a TableName, Cow<'a, Key>),
    Entity(&'a TableName, &'a EntityKey),
    Queue(&'a QueueName),
    Message(&'a QueueName, &'a str),
    Container(&'a ContainerName),
    Blob(&'a ContainerName, &'a BlobName),
    Collection(&'a CollectionName),
    Document(&'a CollectionName, &'a DocumentKey),
}

/// A service throttles the requests of one scope together, and different scopes independently.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThrottleScope {
    /// A whole service (listings).
    Service(Service),
    /// A whole table (queries over its partitions, creation, deletion).
    Table(TableName),
    /// 2,000 entities of 1 KiB per second (Azure: Table storage targets).
    Partition(TableName, Key),
    /// 2,000 messages of 1 KiB per second (Azure: Queue storage targets).
    Queue(QueueName),
    /// The service throttles each blob on its own. But each blob here is written once, and requests are spread over many blobs.
    Container(ContainerName),
    Collection(CollectionName),
}

impl Target<'_> {
    pub fn scope(&self) -> ThrottleScope {
        match self {
            Self::Service(service) => ThrottleScope::Service(*service),
            Self::Table(table) => ThrottleScope::Table((*table).clone()),
            Self::Partition(table, pk) => {
                ThrottleScope::Partition((*table).clone(), pk.clone().into_owned())
            }
            Self::Entity(table, key) => ThrottleScope::Partition((*table).clone(), key.pk.clone()),
            Self::Queue(queue) | Self::Message(queue, _) => ThrottleScope::Queue((*queue).clone()),
            Self::Container(container) | Self::Blob(container, _) => {
                ThrottleScope::Container((*container).clone())
            }
            Self::Collection(collection) | Self::Document(collection, _) => {
                ThrottleScope::Collection((*collection).clone())
            }
        }
    }

    /// Name of the table, queue, container or collection, or of the service for a request to a whole service.
    pub fn name(&self) -> &str {
        match self {
            Self::Service(service) => service.name(),
            Self::Table(table) | Self::Partition(table, _) | Self::Entity(table, _) => {
                table.as_str()
            }
            Self::Queue(queue) | Self::Message(queue, _) => queue.as_str(),
            Self::Container(container) | Self::Blob(container, _) => container.as_str(),
            Self::Collection(collection) | Self::Document(collection, _) => collection.as_str(),
        }
    }

    pub fn subject(&self, account: &AccountName) -> Subject {
        let what = match self {
            Self::Service(service) => Resource::Service(*service),
            Self::Table(table) => Resource::Table((*table).clone()),
            Self::Partition(table, pk) => {
                Resource::Partition((*table).clone(), pk.clone().into_owned())
            }
            Self::Entity(table, key) => Resource::Entity((*table).clone(), (*key).clone()),
            Self::Queue(queue) => Resource::Queue((*queue).clone()),
            Self::Message(queue, id) => Resource::Message((*queue).clone(), (*id).to_owned()),
            Self::Container(container) => Resource::Container((*container).clone()),
            Self::Blob(container, blob) => Resource::Blob((*container).clone(), (*blob).clone()),
            Self::Collection(collection) => Resource::Collection((*collection).clone()),
            Self::Document(collection, key) => {
                Resource::Document((*collection).clone(), (*key).clone())
            }
        };
        Subject {
            account: account.clone(),
            resource: what,
        }
    }
}

impl<'a> Request<'a> {
    pub(super) const fn new(op: Op, target: Target<'a>) -> Self {
        Self {
            op,
            target,
            entities: 0,
            if_unanswered: Unanswered::of(op),
            found: None,
            failed: None,
            earlier: None,
        }
    }

    pub(super) fn of_entities(op: Op, target: Target<'a>, entities: usize) -> Self {
        Self {
            entities,
            ..Self::new(op, target)
        }
    }

    pub(super) fn if_unanswered(self, if_unanswered: Unanswered) -> Self {
        Self {
            if_unanswered,
            ..self
        }
    }

    pub(super) fn finding(self, found: &'a AtomicUsize) -> Self {
        Self {
            found: Some(found),
            ..self
        }
    }

    pub(super) fn failing(self, failed: &'a OnceLock<StoreError>) -> Self {
        Self {
            failed: Some(failed),
            ..self
        }
    }

    pub(super) fn after(self, earlier: &'a EarlierAttempts) -> Self {
        Self {
            earlier: Some(earlier),
            ..self
        }
    }

    /// Records that an attempt before the last one had no answer.
    pub(crate) fn note_unanswered(&self) {
        if let Some(earlier) = self.earlier {
            earlier.note_unanswered();
        }
    }

    /// The error of a result, or of its documents if none of them succeeded.
    pub fn error<'r, T>(&'r self, result: &'r Result<T, StoreError>) -> Option<&'r StoreError> {
        match result {
            Ok(_) => self.failed.and_then(OnceLock::get),
            Err(error) => Some(error),
        }
    }

    /// The load on the service, at least one: the entities or messages that the request named or its answer contained. Rows
    /// that a query only scanned are unknown and not included.
    pub fn weight(&self) -> usize {
        self.found
            .map_or(0, |found| found.load(Ordering::Relaxed))
            .max(self.entities)
            .max(1)
    }

    pub(super) fn query(table: &'a TableName, filter: Option<&Filter>) -> Self {
        let target = match filter.and_then(Filter::one_partition) {
            Some(pk) => Target::Partition(table, Cow::Owned(pk)),
            None => Target::Table(table),
        };
        Self::new(Op::QueryEntities, target)
    }
}

/// What a result shows about the health of the service, whatever it means for the caller. Ordered from healthy to unhealthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    Answered,
    Throttled,
    Refused,
    Failed,
    /// The request was rejected locally and never sent.
    None,
}

impl Evidence {
    /// Judges a result by its error ([`Request::error`]).
    pub fn of(error: Option<&StoreError>) -> Self {
        let Some(error) = error else {
            return Self::Answered;
        };
        if error.withheld == Some(Withheld::BatchTimedOut) {
            return Self::None;
        }
        match error.class {
            ErrorClass::NotFound(_)
            | ErrorClass::Conflict
            | ErrorClass::Precondition
            | ErrorClass::LeaseLost => Self::Answered,
            // Limits and names are checked before sending, so only a status or a database code proves an answer.
            ErrorClass::Permanent | ErrorClass::Unauthorised | ErrorClass::TooLarge => {
                if error.status.is_some() || database_code(error).is_some() {
                    Self::Answered
                } else {
                    Self::None
                }
            }
            ErrorClass::Throttled { .. } => Self::Throttled,
            ErrorClass::Refused => Self::Refused,
            // TableBeingDeleted, a blob leased by another client, corrupted bytes, an index that is being changed: the service
            // works, and only this one object is unavailable.
            ErrorClass::Transient { .. }
                if matches!(error.status, Some(400 | 409 | 412 | 422 | 425 | 449)) =>
            {
                Self::Answered
            }
            // A rolled back transaction or a locked row: the database works.
            ErrorClass::Transient { .. }
                if database_code(error)
                    .is_some_and(|code| code.starts_with("40") || code.starts_with("55")) =>
            {
                Self::Answered
            }
            ErrorClass::Transient { .. } | ErrorClass::Ambiguous => Self::Failed,
        }
    }
}

/// If no document of a write succeeded, returns the error that shows the healthiest service.
pub(super) fn error_of(written: &WriteResults) -> Option<&StoreError> {
    let errors: Option<Vec<&StoreError>> = written.iter().map(|one| one.as_ref().err()).collect();
    errors?
        .into_iter()
        .min_by_key(|&error| Evidence::of(Some(error)))
}

/// The SQLSTATE of a database error. Such an error has a code and no status.
fn database_code(error: &StoreError) -> Option<&str> {
    error
        .code
        .as_deref()
        .filter(|_| error.status.is_none() && error.withheld.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::Comparison;

    #[test]
    fn a_query_inside_a_partition_has_its_scope_and_a_scan_that_of_the_table() {
        let table = TableName::new("Employees").unwrap();
        let pk = Key::new("Sales").unwrap();
        let inside =
            Filter::compare("RowKey", Comparison::GreaterOrEqual, "a").and(Filter::partition(&pk));
        assert_eq!(
            Request::query(&table, Some(&inside)).target.scope(),
            ThrottleScope::Partition(table.clone(), pk.clone())
        );
        let across = Filter::partition(&pk).or(Filter::partition(&Key::new("Marketing").unwrap()));
        for filter in [None, Some(&across), Some(&Filter::partition(&pk).negated())] {
            assert_eq!(
                Request::query(&table, filter).target.scope(),
                ThrottleScope::Table(table.clone())
            );
        }
    }

    #[test]
    fn only_answers_of_the_service_are_evidence() {
        let about = |class, status: Option<u16>| {
            let subject = Subject {
                account: AccountName::main(),
                resource: Resource::Service(Service::Table),
            };
            let mut error = StoreError::new(class, "Get Entity", subject, "");
            error.status = status;
            Evidence::of(Some(&error))
        };
        assert_eq!(about(ErrorClass::TooLarge, None), Evidence::None);
        assert_eq!(about(ErrorClass::TooLarge, Some(413)), Evidence::Answered);
        for status in [400, 409, 412, 422] {
            assert_eq!(
                about(ErrorClass::Transient { retry_after: None }, Some(status)),
                Evidence::Answered,
                "{status}"
            );
        }
        assert_eq!(
            about(ErrorClass::Transient { retry_after: None }, Some(500)),
            Evidence::Failed
        );
        assert_eq!(
            about(ErrorClass::Unauthorised, Some(403)),
            Evidence::Answered
        );
        assert_eq!(Evidence::of(None), Evidence::Answered);
    }

    #[test]
    fn a_database_proves_an_answer_by_its_code() {
        let about = |class, code: &str, withheld| {
            let subject = Subject {
                account: AccountName::main(),
                resource: Resource::Service(Service::Search),
            };
            let mut error = StoreError::new(class, "Write Rows", subject, "");
            (error.code, error.withheld) = (Some(code.into()), withheld);
            Evidence::of(Some(&error))
        };
        let transient = ErrorClass::Transient { retry_after: None };
        assert_eq!(
            about(ErrorClass::Permanent, "23502", None),
            Evidence::Answered
        );
        assert_eq!(
            about(ErrorClass::Unauthorised, "28P01", None),
            Evidence::Answered
        );
        for contention in ["40001", "40P01", "55P03"] {
            assert_eq!(
                about(transient, contention, None),
                Evidence::Answered,
                "{contention}"
            );
        }
        for trouble in ["53300", "57P03", "57014"] {
            assert_eq!(
                about(transient, trouble, None),
                Evidence::Failed,
                "{trouble}"
            );
        }
        assert_eq!(
            about(
                ErrorClass::Permanent,
                "CircuitOpen",
                Some(Withheld::CircuitOpen)
            ),
            Evidence::None
        );
        assert_eq!(
            about(transient, "NotTried", Some(Withheld::BatchTimedOut)),
            Evidence::None
        );
    }

    #[test]
    fn the_healthiest_of_several_failures_counts() {
        let error = |class, code: &str, withheld| {
            let subject = Subject {
                account: AccountName::main(),
                resource: Resource::Service(Service::Search),
            };
            let mut error = StoreError::new(class, "Write Rows", subject, "");
            (error.code, error.withheld) = (Some(code.into()), withheld);
            Err(error)
        };
        let transient = ErrorClass::Transient { retry_after: None };
        let (slow, behind) = (
            || error(transient, "57014", None),
            || error(transient, "NotTried", Some(Withheld::BatchTimedOut)),
        );
        let evidence = |written: WriteResults| Evidence::of(error_of(&written));
        assert_eq!(evidence(vec![slow(), slow(), behind()]), Evidence::Failed);
        assert_eq!(
            evidence(vec![
                slow(),
                error(ErrorClass::Throttled { retry_after: None }, "53300", None)
            ]),
            Evidence::Throttled
        );
        for answered in [
            error(transient, "55P03", None),
            error(ErrorClass::Permanent, "23502", None),
            Ok(()),
        ] {
            assert_eq!(
                evidence(vec![slow(), answered, behind()]),
                Evidence::Answered
            );
        }
        assert_eq!(evidence(Vec::new()), Evidence::Answered);
    }
}
