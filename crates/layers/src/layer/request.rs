//! One storage request as a layer sees it, and the evidence that its result gives about the service.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Op;
use evenkeel_model::{
    AccountName, BlobName, CollectionName, ContainerName, DocumentKey, EntityKey, Filter, Key,
    QueueName, TableName,
};
use evenkeel_storage::{
    ErrorClass, Resource, Service, StoreError, Subject, Withheld, WriteResults,
};

/// One storage request.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The operation.
    pub op: Op,
    /// Its target.
    pub target: Target<'a>,
    /// How many entities it names: the operations of an entity group transaction, 1 for other writes and point
    /// reads, 0 for queries and for requests without an entity. (Throttling counts entities, money counts requests.)
    pub entities: usize,
    /// How many its answer had, of requests that do not name them: rows of a query, messages that were got. Known once it was answered.
    found: Option<&'a AtomicUsize>,
    /// The error of all its answers, of a request that has one for each document. Known once it was answered.
    failed: Option<&'a OnceLock<StoreError>>,
}

/// Target of a request. As [`Resource`], borrowed.
#[derive(Debug, Clone)]
pub enum Target<'a> {
    /// A service as a whole.
    Service(Service),
    /// A table, or a query over its partitions.
    Table(&'a TableName),
    /// A partition: a transaction, or a query inside it.
    Partition(&'a TableName, Cow<'a, Key>),
    /// An entity.
    Entity(&'a TableName, &'a EntityKey),
    /// A queue.
    Queue(&'a QueueName),
    /// A message.
    Message(&'a QueueName, &'a str),
    /// A container.
    Container(&'a ContainerName),
    /// A blob.
    Blob(&'a ContainerName, &'a BlobName),
    /// A collection of a sink.
    Collection(&'a CollectionName),
    /// A document of a sink.
    Document(&'a CollectionName, &'a DocumentKey),
}

/// Throttle scope: a service throttles requests of one scope together, and scopes independently.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThrottleScope {
    /// A service as a whole (listings).
    Service(Service),
    /// A table as a whole (queries over its partitions, creation, deletion).
    Table(TableName),
    /// A partition of a table: 2,000 entities of 1 KiB per second (Azure: Table storage targets).
    Partition(TableName, Key),
    /// A queue: 2,000 messages of 1 KiB per second (Azure: Queue storage targets).
    Queue(QueueName),
    /// A container. (The service throttles by blob, but blobs here are written once and spread.)
    Container(ContainerName),
    /// A collection of a sink.
    Collection(CollectionName),
}

impl Target<'_> {
    /// The throttle scope of the request.
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

    /// The table, queue, container or collection; the service where it is about a service as a whole.
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

    /// The subject of an error about this request.
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
            found: None,
            failed: None,
        }
    }

    pub(super) const fn of_entities(op: Op, target: Target<'a>, entities: usize) -> Self {
        Self {
            op,
            target,
            entities,
            found: None,
            failed: None,
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

    /// The error of its result: of the whole, or of its answers where none is a success.
    pub fn error<'r, T>(&'r self, result: &'r Result<T, StoreError>) -> Option<&'r StoreError> {
        match result {
            Ok(_) => self.failed.and_then(OnceLock::get),
            Err(error) => Some(error),
        }
    }

    /// Its weight to the service: the entities or messages that it named, or its answer had, and one at least. Of a query these are the
    /// rows that were found; those that it came by besides are not known.
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

/// Evidence that a result gives about the service behind it, apart from its meaning for the caller. The strongest sign of health first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// It answered: it works, with any answer.
    Answered,
    /// It said that it is busy.
    Throttled,
    /// No connection could be made.
    Refused,
    /// It failed, or did not answer.
    Failed,
    /// None: the request was refused on this side and never sent.
    None,
}

impl Evidence {
    /// The evidence of a result, by its error ([`Request::error`]).
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
            // Limits and names are checked before anything is sent: only a status, or a database's code, proves an answer.
            ErrorClass::Permanent | ErrorClass::Unauthorised | ErrorClass::TooLarge => {
                if error.status.is_some() || database_code(error).is_some() {
                    Self::Answered
                } else {
                    Self::None
                }
            }
            ErrorClass::Throttled { .. } => Self::Throttled,
            ErrorClass::Refused => Self::Refused,
            // TableBeingDeleted, a lease that another one holds on a blob, bytes damaged on their way, an index that is being changed: the
            // service works, this one thing takes its time.
            ErrorClass::Transient { .. }
                if matches!(error.status, Some(400 | 409 | 412 | 422 | 425 | 449)) =>
            {
                Self::Answered
            }
            // A transaction that another one undid, or a row that it holds: the database works.
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

/// The error of several answers where none is a success: the strongest sign of health among them.
pub(super) fn error_of(written: &WriteResults) -> Option<&StoreError> {
    let errors: Option<Vec<&StoreError>> = written.iter().map(|one| one.as_ref().err()).collect();
    errors?
        .into_iter()
        .min_by_key(|&error| Evidence::of(Some(error)))
}

/// The SQLSTATE of a database's answer: such a code comes without a status.
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
    fn a_query_inside_one_partition_drives_in_its_lane_and_a_scan_in_the_tables() {
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
    fn only_what_the_service_said_is_evidence() {
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
        for said in [400, 409, 412, 422] {
            assert_eq!(
                about(ErrorClass::Transient { retry_after: None }, Some(said)),
                Evidence::Answered,
                "{said}"
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
    fn answers_without_a_success_are_the_strongest_sign_of_health_among_them() {
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
