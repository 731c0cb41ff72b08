//! The error of every storage port.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::{
    AccountName, BlobName, CollectionName, ContainerName, DocumentKey, EntityKey, Key, QueueName,
    TableName,
};

/// The cause of an error. Copies of the error share it. This type does not implement [`Error`], so `source` returns the error inside it,
/// which can be downcast.
#[derive(Debug, Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Cause {
    fn from(error: E) -> Self {
        Self(Arc::from(error.into()))
    }
}

impl Deref for Cause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("{operation} {subject}: {message}{}", StatusDetail(*.status, .code.as_deref()))]
pub struct StoreError {
    /// How a caller may react.
    pub class: ErrorClass,
    /// The operation in the service's words ("Insert Entity", "Get Messages").
    pub operation: &'static str,
    /// Boxed to keep `Result`s small.
    pub subject: Box<Subject>,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// The service's error code ("EntityAlreadyExists"), if it sent one.
    pub code: Option<Box<str>>,
    /// Index of the failed operation in its entity group transaction.
    pub index: Option<usize>,
    /// Set if the request was certainly not executed, for a reason unrelated to its subject.
    pub withheld: Option<Withheld>,
    /// Description without secrets.
    pub message: Box<str>,
    /// Contains no secrets.
    #[source]
    pub cause: Option<Cause>,
}

struct StatusDetail<'a>(Option<u16>, Option<&'a str>);

impl fmt::Display for StatusDetail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(status), Some(code)) => write!(f, " ({status} {code})"),
            (Some(status), None) => write!(f, " ({status})"),
            (None, Some(code)) => write!(f, " ({code})"),
            (None, None) => Ok(()),
        }
    }
}

/// Class of an error, which determines how a caller may react. Decisions match it without a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The subject does not exist.
    NotFound(Missing),
    /// The subject exists already (409).
    Conflict,
    /// The ETag is not the current one (412).
    Precondition,
    /// The pop receipt is no longer valid, or the message is gone. Another receiver may have the message.
    LeaseLost,
    /// The service is busy (503, 429) and did not execute the request.
    Throttled {
        /// The wait that the service asked for, if any.
        retry_after: Option<Duration>,
    },
    /// No connection could be made, so nothing was sent.
    Refused,
    /// The request was not executed, or is safe to repeat, and may succeed later. Some conditions take long (TableBeingDeleted: at least 40
    /// s).
    Transient {
        /// The minimum wait before a repetition.
        retry_after: Option<Duration>,
    },
    /// The request was sent, and it is unknown whether it was executed (timeout, reset, 500, truncated answer).
    Ambiguous,
    /// Every repetition will fail too (400, 501, 505, a limit, an invalid name).
    Permanent,
    /// The credentials were refused (401, 403), or this resource is forbidden.
    Unauthorised,
    TooLarge,
}

/// Reason why a request was not sent. It says nothing about the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld {
    /// The partition, queue or container throttles and is paused.
    Paused,
    /// The circuit breaker of the service is open.
    CircuitOpen,
    /// The database table does not exist or lacks columns, until `evenkeel migrate up` creates them.
    TableMissing,
    /// Earlier requests of the same batch took too long.
    BatchTimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The table, queue, container or collection.
    Container,
    /// The entity, message or blob.
    Item,
}

impl ErrorClass {
    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::Conflict => "conflict",
            Self::Precondition => "precondition",
            Self::LeaseLost => "lease_lost",
            Self::Throttled { .. } => "throttled",
            Self::Refused => "refused",
            Self::Transient { .. } => "transient",
            Self::Ambiguous => "ambiguous",
            Self::Permanent => "permanent",
            Self::Unauthorised => "unauthorised",
            Self::TooLarge => "too_large",
        }
    }

    /// The wait that the service asked for.
    pub const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after } | Self::Transient { retry_after } => retry_after,
            _ => None,
        }
    }

    /// The wait if only the subject is slow and the store is healthy: its name is still being deleted (409 TableBeingDeleted,
    /// QueueBeingDeleted, ContainerBeingDeleted).
    pub const fn slow_subject_wait(self) -> Option<Duration> {
        if matches!(self, Self::Transient { .. }) {
            self.retry_after()
        } else {
            None
        }
    }

    /// Whether the store is at fault, not the request, so that a later try may succeed.
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Throttled { .. } | Self::Refused | Self::Transient { .. } | Self::Ambiguous
        )
    }
}

/// A service of a storage account, or a search service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    Table,
    Queue,
    Blob,
    Search,
}

impl Service {
    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
            Self::Blob => "blob",
            Self::Search => "search",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The name of the account or sink in the configuration.
    pub account: AccountName,
    pub resource: Resource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// The service as a whole, for a listing or a probe.
    Service(Service),
    Table(TableName),
    Partition(TableName, Key),
    Entity(TableName, EntityKey),
    Queue(QueueName),
    /// A message, by its id.
    Message(QueueName, String),
    Container(ContainerName),
    Blob(ContainerName, BlobName),
    /// A file in a shared folder.
    File(String, BlobName),
    Collection(CollectionName),
    Document(CollectionName, DocumentKey),
}

impl Resource {
    /// The service of the subject. Files count as blobs.
    pub const fn service(&self) -> Service {
        match self {
            Self::Service(service) => *service,
            Self::Table(_) | Self::Partition(..) | Self::Entity(..) => Service::Table,
            Self::Queue(_) | Self::Message(..) => Service::Queue,
            Self::Container(_) | Self::Blob(..) | Self::File(..) => Service::Blob,
            Self::Collection(_) | Self::Document(..) => Service::Search,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.resource {
            Resource::Service(service) => write!(f, "({} service", service.name())?,
            Resource::Table(table) => write!(f, "(table {table}")?,
            Resource::Partition(table, pk) => write!(f, "(table {table}, partition {pk:?}")?,
            Resource::Entity(table, key) => write!(
                f,
                "(table {table}, PartitionKey {:?}, RowKey {:?}",
                key.pk, key.rk
            )?,
            Resource::Queue(queue) => write!(f, "(queue {queue}")?,
            Resource::Message(queue, id) => write!(f, "(queue {queue}, message {id}")?,
            Resource::Container(container) => write!(f, "(container {container}")?,
            Resource::Blob(container, blob) => write!(f, "(blob {container}/{blob}")?,
            Resource::File(dir, name) => return write!(f, "(file {dir}/{name})"),
            Resource::Collection(collection) => {
                return write!(f, "(index {collection}, sink {})", self.account);
            }
            Resource::Document(collection, key) => {
                return write!(
                    f,
                    "(index {collection}, document {key}, sink {})",
                    self.account
                );
            }
        }
        write!(f, ", account {})", self.account)
    }
}

impl StoreError {
    pub fn new(
        class: ErrorClass,
        operation: &'static str,
        subject: Subject,
        message: impl Into<String>,
    ) -> Self {
        Self {
            class,
            operation,
            subject: Box::new(subject),
            status: None,
            code: None,
            index: None,
            withheld: None,
            message: message.into().into_boxed_str(),
            cause: None,
        }
    }

    #[must_use]
    pub fn with_status(mut self, status: u16, code: Option<String>) -> Self {
        self.status = Some(status);
        self.code = code.map(String::into_boxed_str);
        self
    }

    #[must_use]
    pub const fn with_index(mut self, index: Option<usize>) -> Self {
        self.index = index;
        self
    }

    /// Marks a request that was not sent. `code` names the reason in logs.
    #[must_use]
    pub fn not_sent(mut self, withheld: Withheld, code: &'static str) -> Self {
        self.withheld = Some(withheld);
        self.code = Some(code.into());
        self
    }

    /// Adds the cause, which must not contain secrets.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Cause>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Whether the entity, message or blob does not exist, although its table, queue or container does.
    pub const fn is_missing_item(&self) -> bool {
        matches!(self.class, ErrorClass::NotFound(Missing::Item))
    }

    /// Whether a conditional write lost: the subject exists, does not exist, or has another ETag.
    pub const fn is_lost_race(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::Conflict | ErrorClass::Precondition | ErrorClass::NotFound(Missing::Item)
        )
    }

    /// Whether a conditional write lost or has an unknown outcome, so that the target must be read again.
    pub const fn may_have_lost(&self) -> bool {
        self.is_lost_race() || matches!(self.class, ErrorClass::Ambiguous)
    }
}
