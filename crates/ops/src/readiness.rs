//! Whether the program does its work, and why not.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use evenkeel_model::{AccountName, QueueName, TableName};

/// Whether the program does its work now.
pub trait Readiness: Send + Sync {
    /// Why it does not; nothing where it does. Must not wait: it is asked by probes.
    fn reasons(&self) -> Vec<NotReady>;
}

impl<F: Fn() -> Vec<NotReady> + Send + Sync> Readiness for F {
    fn reasons(&self) -> Vec<NotReady> {
        self()
    }
}

/// Why the program does not do its work now. Probes ask without a token, so nothing here may be a secret or
/// user data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotReady {
    /// Not everything is set up yet.
    Starting,
    /// A store does not answer yet, or refuses the credentials, so that nothing could be started. It is asked again and
    /// again.
    WaitingForStore {
        /// The account.
        account: AccountName,
        /// The service (`table`, `queue`, `blob`).
        service: &'static str,
        /// The class of its answer (`refused`, `unauthorised`, `throttled`, …).
        answer: &'static str,
    },
    /// The store is older than the program: `evenkeel migrate up` is needed.
    MigrationsPending {
        /// How many.
        pending: usize,
    },
    /// A store refuses as a whole.
    CircuitOpen {
        /// The account.
        account: AccountName,
        /// The service (`table`, `queue`, `blob`).
        service: &'static str,
        /// Since when.
        since: Timestamp,
    },
    /// A queue has not answered for longer than it should.
    NoSuccessfulPoll {
        /// The queue.
        queue: QueueName,
        /// When it last answered; absent for never.
        #[serde(skip_serializing_if = "Option::is_none")]
        last: Option<Timestamp>,
    },
    /// The catalog in the store is newer than this program's: it receives nothing until it is restarted with it.
    OutdatedCatalog {
        /// The generation recorded in the store, where it was read; absent where the data itself said so.
        #[serde(skip_serializing_if = "Option::is_none")]
        generation: Option<u32>,
    },
    /// A declared table is gone: jobs that need it wait.
    MissingTable {
        /// The account.
        account: AccountName,
        /// The table.
        table: TableName,
    },
    /// The program is ending: it receives nothing more.
    Draining,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::MigrationsPending { pending } => write!(
                f,
                "{pending} migrations are pending: run evenkeel migrate up"
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
            } => write!(f, "the queue {queue} last answered at {last}"),
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
                    "the catalog is older than generation {generation}, which is recorded in the store: deploy the new one"
                )
            }
            Self::OutdatedCatalog { generation: None } => {
                f.write_str("the catalog is older than the data in the store: deploy the new one")
            }
            Self::MissingTable { account, table } => {
                write!(
                    f,
                    "the table {table} of the account {account} does not exist: its jobs wait; evenkeel migrate up makes it anew, empty"
                )
            }
            Self::Draining => f.write_str("ending: nothing more is received"),
        }
    }
}
