//! Whether the program is working, and why not.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use evenkeel_model::{AccountName, QueueName, TableName};

pub trait Readiness: Send + Sync {
    /// Returns the reasons why the program is not working; the list is empty if it is working. The function must not
    /// block, because probes call it.
    fn reasons(&self) -> Vec<NotReady>;
}

impl<F: Fn() -> Vec<NotReady> + Send + Sync> Readiness for F {
    fn reasons(&self) -> Vec<NotReady> {
        self()
    }
}

/// Why the program is not working. Probes have no token, so a reason must not contain secrets or user data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotReady {
    Starting,
    /// A store does not answer or rejects the credentials. The program retries, and starts nothing before the store
    /// accepts them.
    WaitingForStore {
        account: AccountName,
        /// `table`, `queue` or `blob`.
        service: &'static str,
        /// Class of the error (`refused`, `unauthorised`, `throttled`, …).
        answer: &'static str,
    },
    /// The store is older than the program and needs `evenkeel migrate up`.
    MigrationsPending {
        pending: usize,
    },
    /// A circuit breaker is open.
    CircuitOpen {
        account: AccountName,
        /// `table`, `queue` or `blob`.
        service: &'static str,
        since: Timestamp,
    },
    NoSuccessfulPoll {
        queue: QueueName,
        /// `None` if the queue has never answered.
        #[serde(skip_serializing_if = "Option::is_none")]
        last: Option<Timestamp>,
    },
    /// The catalog in the store is newer than the program's. The worker receives nothing until it is restarted with the
    /// newer catalog.
    OutdatedCatalog {
        /// The generation recorded in the store; `None` if only the stored data is newer.
        #[serde(skip_serializing_if = "Option::is_none")]
        generation: Option<u32>,
    },
    /// A declared table does not exist, and the jobs that need it wait.
    MissingTable {
        account: AccountName,
        table: TableName,
    },
    /// The program is shutting down and receives no more messages.
    Draining,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::MigrationsPending { pending } => write!(
                f,
                "pending migrations: {pending}. Run evenkeel migrate up"
            ),
            Self::CircuitOpen {
                account,
                service,
                since,
            } => {
                write!(
                    f,
                    "the {service} service of the account {account} has not answered since {since}"
                )
            }
            Self::NoSuccessfulPoll {
                queue,
                last: Some(last),
            } => write!(f, "the queue {queue} has not answered since {last}"),
            Self::NoSuccessfulPoll { queue, last: None } => {
                write!(f, "the queue {queue} has not answered yet")
            }
            Self::WaitingForStore {
                account,
                service,
                answer,
            } => {
                write!(
                    f,
                    "waiting for the {service} service of the account {account} ({answer})"
                )
            }
            Self::OutdatedCatalog {
                generation: Some(generation),
            } => {
                write!(
                    f,
                    "the configured catalog is older than the recorded one (generation {generation}). Deploy the new catalog"
                )
            }
            Self::OutdatedCatalog { generation: None } => f.write_str(
                "the configured catalog is older than the data in the store. Deploy the new catalog",
            ),
            Self::MissingTable { account, table } => {
                write!(
                    f,
                    "the table {table} of the account {account} does not exist; its jobs wait. evenkeel migrate up creates it, empty"
                )
            }
            Self::Draining => f.write_str("stopping: no more messages are received"),
        }
    }
}
