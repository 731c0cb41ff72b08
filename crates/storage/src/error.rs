//! The one error of every storage port: the operation, its subject, the message and the class.

use std::fmt;
use std::time::Duration;

use evenkeel_model::{
    AccountName, BlobName, CollectionName, ContainerName, DocumentKey, EntityKey, Key, QueueName,
    TableName,
};

/// A boxed cause.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A failed storage operation.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {subject}: {message}{}", StatusDetail(*.status, .code.as_deref()))]
pub struct StoreError {
    /// Class of the error: how a caller may react.
    pub class: ErrorClass,
    /// The operation, in the service's words ("Insert Entity", "Get Messages").
    pub operation: &'static str,
    /// Subject of the operation. Boxed to keep `Result`s small.
    pub subject: Box<Subject>,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// The service's error code ("EntityAlreadyExists"), where one was sent.
    pub code: Option<Box<str>>,
    /// The zero-based index of the operation of an entity group transaction that failed.
    pub index: Option<usize>,
    /// Why the request was not carried out, whatever it was about; absent where it was, or may have been.
    pub withheld: Option<Withheld>,
    /// Description in words, without secrets.
    pub message: Box<str>,
    /// The cause below, scrubbed of secrets.
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

/// Class of an error: how a caller may react. Matched without a wildcard in every decision that depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The thing does not exist.
    NotFound(Missing),
    /// The thing exists already (409).
    Conflict,
    /// The ETag given is not the current one (412).
    Precondition,
    /// The pop receipt is no longer valid, or the message is gone: another receiver may have it.
    LeaseLost,
    /// The service is busy (503, 429). It did not execute the request.
    Throttled {
        /// How long the service asked to wait, where it said so.
        retry_after: Option<Duration>,
    },
    /// No connection could be made: nothing was sent.
    Refused,
    /// Not executed, or safe to repeat; may well succeed later. Carries a wait for conditions that take long
    /// (TableBeingDeleted: at least 40 s).
    Transient {
        /// How long a repetition should wait at least.
        retry_after: Option<Duration>,
    },
    /// Sent, and unknown whether it was executed (timeout, reset, 500, truncated answer).
    Ambiguous,
    /// Will fail again however often it is tried (400, 501, 505, a limit, a malformed name).
    Permanent,
    /// The credentials were refused (401, 403), or this one resource is forbidden.
    Unauthorised,
    /// Over a size limit.
    TooLarge,
}

/// Why a request was not sent, or undone: it says nothing about the thing that it was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld {
    /// Its partition, queue or container throttles, and is left alone for a while.
    Held,
    /// The circuit of its service is open.
    CircuitOpen,
    /// The table of a database that it is about is not, or not in all its columns, as `evenkeel migrate up` makes it.
    Unprepared,
    /// Others that went with it took too long, and it was not tried.
    Behind,
}

/// The missing thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The table, queue, container or collection itself.
    Container,
    /// The entity, message or blob in it.
    Item,
}

impl ErrorClass {
    /// The class's name in metrics and logs.
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

    /// How long the service asked to wait.
    pub const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after } | Self::Transient { retry_after } => retry_after,
            _ => None,
        }
    }

    /// How long to wait where the thing itself takes its time, and the store is well: a name that is still being deleted
    /// (409 TableBeingDeleted, QueueBeingDeleted, ContainerBeingDeleted).
    pub const fn takes_its_time(self) -> Option<Duration> {
        if matches!(self, Self::Transient { .. }) {
            self.retry_after()
        } else {
            None
        }
    }

    /// Whether the store, and not the request, is at fault: a later try may succeed.
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Throttled { .. } | Self::Refused | Self::Transient { .. } | Self::Ambiguous
        )
    }
}

/// A service of a storage account, or beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Table storage.
    Table,
    /// Queue storage.
    Queue,
    /// Blob storage.
    Blob,
    /// A search service.
    Search,
}

impl Service {
    /// The service's name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
            Self::Blob => "blob",
            Self::Search => "search",
        }
    }
}

/// Subject of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The account, or the sink, as the configuration names it.
    pub account: AccountName,
    /// The thing in it.
    pub what: What,
}

/// A thing in an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A service as a whole (a listing, a probe).
    Service(Service),
    /// A table.
    Table(TableName),
    /// A partition of a table (an entity group transaction).
    Partition(TableName, Key),
    /// An entity.
    Entity(TableName, EntityKey),
    /// A queue.
    Queue(QueueName),
    /// A message, by its id.
    Message(QueueName, String),
    /// A container.
    Container(ContainerName),
    /// A blob.
    Blob(ContainerName, BlobName),
    /// A file in a shared folder.
    File(String, BlobName),
    /// A collection of a sink.
    Collection(CollectionName),
    /// A document of a sink.
    Document(CollectionName, DocumentKey),
}

impl What {
    /// The service it belongs to. Files stand where blobs could stand.
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
        match &self.what {
            What::Service(service) => write!(f, "({} service", service.name())?,
            What::Table(table) => write!(f, "(table {table}")?,
            What::Partition(table, pk) => write!(f, "(table {table}, partition {pk:?}")?,
            What::Entity(table, key) => write!(
                f,
                "(table {table}, PartitionKey {:?}, RowKey {:?}",
                key.pk, key.rk
            )?,
            What::Queue(queue) => write!(f, "(queue {queue}")?,
            What::Message(queue, id) => write!(f, "(queue {queue}, message {id}")?,
            What::Container(container) => write!(f, "(container {container}")?,
            What::Blob(container, blob) => write!(f, "(blob {container}/{blob}")?,
            What::File(dir, name) => return write!(f, "(file {dir}/{name})"),
            What::Collection(collection) => {
                return write!(f, "(index {collection}, sink {})", self.account);
            }
            What::Document(collection, key) => {
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
    /// An error with the parts every error has.
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

    /// With the HTTP status and, where one was sent, the service's code.
    #[must_use]
    pub fn with_status(mut self, status: u16, code: Option<String>) -> Self {
        self.status = Some(status);
        self.code = code.map(String::into_boxed_str);
        self
    }

    /// With the index of the operation that failed.
    #[must_use]
    pub const fn with_index(mut self, index: Option<usize>) -> Self {
        self.index = index;
        self
    }

    /// Of a request that was not sent; `code` names the reason in logs.
    #[must_use]
    pub fn not_sent(mut self, withheld: Withheld, code: &'static str) -> Self {
        self.withheld = Some(withheld);
        self.code = Some(code.into());
        self
    }

    /// With the cause below. It must be scrubbed of secrets.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Cause>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The same error for another caller that shared the request, without its cause.
    #[must_use]
    pub fn told_again(&self) -> Self {
        Self {
            class: self.class,
            operation: self.operation,
            subject: self.subject.clone(),
            status: self.status,
            code: self.code.clone(),
            index: self.index,
            withheld: self.withheld,
            message: self.message.clone(),
            cause: None,
        }
    }

    /// Whether the entity, message or blob does not exist (its table, queue or container does).
    pub const fn is_missing_item(&self) -> bool {
        matches!(self.class, ErrorClass::NotFound(Missing::Item))
    }

    /// Whether a conditional write lost: the thing exists, does not exist, or is at another ETag.
    pub const fn is_lost_race(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::Conflict | ErrorClass::Precondition | ErrorClass::NotFound(Missing::Item)
        )
    }

    /// Whether a conditional write lost, or has an unknown outcome: the target must be read again.
    pub const fn may_have_lost(&self) -> bool {
        self.is_lost_race() || matches!(self.class, ErrorClass::Ambiguous)
    }
}
