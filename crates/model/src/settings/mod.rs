//! The configuration, as values that cannot be invalid.
//!
//! `config` reads files, the environment and flags into these values, and the rest of the program
//! sees only the values. There is no I/O here, no text format, and no secret in `Debug`.

mod backoff;
pub mod connection_string;
mod encryption;
mod http;
mod identity;
mod sas;
mod secret;
mod webhook;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::allowed::JobAllowance;
use crate::event::EventMappings;
use crate::{AccountName, CatalogOwner, QueueName, TableName};

pub use backoff::{Backoff, MAX_LISTED_WAITS, RetryPolicy, WaitPolicy, WaitSequence};
pub use connection_string::{ConnectionString, ConnectionStringError};
pub use encryption::{EncryptionSettings, KeySource, VAULT_DOMAINS, VaultKey, WrappedText};
pub use http::{HttpRole, HttpSettings, HttpToken};
pub use identity::{Application, EntraCredential, Identity};
pub use sas::{IssuedSas, SasGrant, SasRefusal, SasRequest, SasRows, SasTarget, sorts_before};
pub use secret::{ConfiguredSecret, ReadSecret, SecretFile};
pub use webhook::{WebhookKeyError, WebhookSettings, webhook_key};

/// All settings besides the catalog.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[accounts.*]`, at least `main`.
    pub accounts: Vec<AccountSettings>,
    /// `[worker]`
    pub worker: WorkerSettings,
    /// `[sinks.*]`
    pub sinks: Vec<SinkSettings>,
    /// `[[queues]]`
    pub queues: Vec<QueueSettings>,
    /// `[http]`
    pub http: HttpSettings,
    /// `[migrate]`
    pub migrate: MigrateSettings,
    /// `[log]`
    pub log: LogSettings,
    /// `[traces]`
    pub traces: TraceSettings,
    /// `[pace]`
    pub pace: PaceSettings,
    /// `[sas.*]`
    pub sas: Vec<SasGrant>,
    /// `[encryption]`
    pub encryption: EncryptionSettings,
    /// `[events.*]`
    pub events: Arc<EventMappings>,
}

impl Default for Settings {
    /// The settings as shipped: the embedded store, without queues.
    fn default() -> Self {
        Self {
            accounts: vec![AccountSettings {
                name: AccountName::main(),
                kind: AccountKind::Embedded {
                    path: "data/evenkeel.db".into(),
                },
            }],
            worker: WorkerSettings::default(),
            sinks: Vec::new(),
            queues: Vec::new(),
            http: HttpSettings::open(SocketAddr::from(([127, 0, 0, 1], 9464))),
            migrate: MigrateSettings::default(),
            log: LogSettings::default(),
            traces: TraceSettings::default(),
            pace: PaceSettings::default(),
            sas: Vec::new(),
            encryption: EncryptionSettings::default(),
            events: Arc::default(),
        }
    }
}

/// `[accounts.NAME]`
#[derive(Debug, Clone)]
pub struct AccountSettings {
    /// The name that the catalog uses.
    pub name: AccountName,
    /// Where the account is stored.
    pub kind: AccountKind,
}

/// `[sinks.NAME]`: another store as a target.
#[derive(Debug, Clone)]
pub struct SinkSettings {
    /// The name that the catalog uses.
    pub name: AccountName,
    /// The kind of the sink.
    pub kind: SinkKind,
}

/// The kinds of sinks. Each kind has a variant here, a reader in `config/sinks`, and a line in the
/// code that opens sinks.
#[derive(Debug, Clone)]
pub enum SinkKind {
    /// Azure AI Search.
    Search(SearchSettings),
    /// A database.
    Sql(SqlSettings),
    /// A receiver of events.
    Webhook(WebhookSettings),
}

/// `kind = "search"`
#[derive(Debug, Clone)]
pub struct SearchSettings {
    /// The address of the service, such as `https://contoso.search.windows.net`.
    pub endpoint: Url,
    /// How to sign in to the service.
    pub auth: SinkAuth,
}

/// A database as a sink.
#[derive(Debug, Clone)]
pub enum SqlSettings {
    /// `kind = "sqlite"`: one file, whose folder is created.
    Sqlite {
        /// The file.
        path: PathBuf,
    },
    /// `kind = "postgresql"`
    Postgres(Box<PostgresSettings>),
}

/// A database of a PostgreSQL server.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// The server's name, or the folder of its socket.
    pub host: String,
    /// The server's port, which is also part of the socket's file name.
    pub port: u16,
    /// The name of the database.
    pub database: String,
    /// The role to sign in as.
    pub user: String,
    /// The role's password; `None` if the server does not require one.
    pub password: Option<ConfiguredSecret>,
    /// Encryption of the connection.
    pub tls: SqlTls,
}

/// Encryption of a connection to a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqlTls {
    /// The connection is not encrypted. Only for a server on this machine.
    Off,
    /// TLS. The server's certificate is checked.
    Verify {
        /// The certificate authorities, in PEM; those of the system if absent.
        ca_file: Option<PathBuf>,
    },
}

/// How to sign in to a search service.
#[derive(Debug, Clone)]
pub enum SinkAuth {
    /// One of the service's admin keys.
    Key(ConfiguredSecret),
    /// An identity of Entra ID.
    Entra(Arc<Identity>),
}

/// Where an account is stored.
#[derive(Debug, Clone)]
pub enum AccountKind {
    /// One SQLite file, for development, tests and small installations.
    Embedded {
        /// The database file; its folder is created.
        path: PathBuf,
    },
    /// Azure Storage, or Azurite.
    Azure(AzureAuth),
}

/// How to sign in to Azure Storage.
#[derive(Debug, Clone)]
pub enum AzureAuth {
    /// A connection string (`UseDevelopmentStorage=true` works).
    ConnectionString(ConfiguredSecret),
    /// The account's name and one of its keys.
    Key {
        /// The storage account's own name.
        account: String,
        /// The key, in Base64.
        key: ConfiguredSecret,
        /// Endpoints other than Azure's public ones.
        endpoints: Endpoints,
    },
    /// The account's name and an account SAS.
    Sas {
        /// The storage account's own name.
        account: String,
        /// The token, with or without a leading `?`.
        token: ConfiguredSecret,
        /// Endpoints other than Azure's public ones.
        endpoints: Endpoints,
    },
    /// The account's name and an identity of Entra ID.
    Entra {
        /// The storage account's own name.
        account: String,
        /// The identity.
        identity: Arc<Identity>,
        /// Endpoints other than Azure's public ones.
        endpoints: Endpoints,
    },
}

/// Endpoints other than `https://<account>.<service>.core.windows.net`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Table storage.
    pub table: Option<String>,
    /// Queue storage.
    pub queue: Option<String>,
    /// Blob storage.
    pub blob: Option<String>,
}

/// Default memory limit of all jobs in flight. With this default, and with the program's own 30
/// MiB, a process stays within 256 MiB. The example deployment allows 512 MiB.
pub const DEFAULT_MEMORY: u64 = 128 << 20;

/// `[worker]`
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSettings {
    /// Visibility timeout of a message while its job runs, renewed at half its length. 10 s to 7
    /// days.
    pub lease: Duration,
    /// Number of attempts after which a message is poisoned.
    pub max_dequeue_count: u32,
    /// How long a failed job waits before its next attempt.
    pub retry_delay: Backoff,
    /// Maximum duration of a run. A run that takes longer is cancelled and released.
    pub job_timeout: Duration,
    /// Time from a disturbed pass until the items that the pass dropped are checked again. At least
    /// `job_timeout` + 15 minutes, because the service accepts a request for 15 minutes after the
    /// request was signed.
    pub recheck_after: Duration,
    /// A message is poisoned when its job has failed for this long since its first transient
    /// failure, and at least `max_dequeue_count` times.
    pub give_up_after: Duration,
    /// How long running jobs may take to end after SIGTERM before they are released.
    pub drain: Duration,
    /// How often an empty queue is polled.
    pub poll: PollInterval,
    /// How one storage request is retried.
    pub storage_retry: RetryPolicy,
    /// Bytes that all jobs in flight may hold in memory together.
    pub memory: u64,
}

impl Default for WorkerSettings {
    /// The settings as shipped. A test of the configuration compares these with
    /// `config/default.toml`.
    fn default() -> Self {
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        Self {
            lease: minute,
            max_dequeue_count: 5,
            retry_delay: Backoff {
                min: 2 * second,
                base: 2 * second,
                max: 10 * minute,
            },
            job_timeout: 10 * minute,
            recheck_after: 26 * minute,
            give_up_after: Duration::from_hours(6),
            drain: 25 * second,
            poll: PollInterval {
                min: Duration::from_millis(100),
                max: Duration::from_millis(1_500),
            },
            storage_retry: RetryPolicy::growing(
                Backoff {
                    min: Duration::from_millis(50),
                    base: Duration::from_millis(100),
                    max: 5 * second,
                },
                6,
            ),
            memory: DEFAULT_MEMORY,
        }
    }
}

/// The interval at which an empty queue is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollInterval {
    /// The interval right after work.
    pub min: Duration,
    /// The interval after a long time without work.
    pub max: Duration,
}

/// Idle recheck queues are polled this many times less often.
pub const RECHECK_POLL_FACTOR: u32 = 8;
/// Maximum poll interval of recheck queues. A queue that has not answered for 30 seconds makes the
/// worker unready. The interval is shorter, so that one failed request can be repeated before that.
const RECHECK_POLL_MAX: Duration = Duration::from_secs(20);

/// `[[queues]]`
#[derive(Debug, Clone)]
pub struct QueueSettings {
    /// The queue's name. Its poison queue is `<name>-poison`, its recheck queue `<name>-recheck`.
    pub name: QueueName,
    /// The account of the queue.
    pub account: AccountName,
    /// The number of jobs in flight from this queue.
    pub concurrency: Concurrency,
    /// The number of queues that share the jobs: 1 for the queue itself, or 2 to 100 for
    /// `<name>-00`, `<name>-01` and so on.
    pub shards: u32,
    /// Limits on the jobs of this queue.
    pub allowed: JobAllowance,
}

/// How many jobs of a queue may be in flight in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// The worker raises the number as long as that increases the throughput.
    Auto,
    /// A fixed number.
    Fixed(usize),
}

impl From<usize> for Concurrency {
    fn from(jobs: usize) -> Self {
        Self::Fixed(jobs)
    }
}

impl std::fmt::Display for Concurrency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(jobs) => jobs.fmt(f),
        }
    }
}

/// `[migrate]`
#[derive(Debug, Clone, PartialEq)]
pub struct MigrateSettings {
    /// Whether `run` itself applies pending migrations if the migrations only add and remove nothing.
    pub auto: bool,
    /// The owner of the recorded views. Views of other owners are never retired.
    pub owner: CatalogOwner,
    /// If the catalog of a worker is not the recorded one, the worker waits this long for its
    /// catalog to be recorded. Then it exits.
    pub outdated_exit_after: Duration,
}

impl Default for MigrateSettings {
    fn default() -> Self {
        Self {
            auto: true,
            owner: CatalogOwner::default(),
            outdated_exit_after: Duration::from_mins(1),
        }
    }
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// Log level, if neither flags nor the environment set one: a level, or levels by module.
    pub level: String,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
        }
    }
}

/// `[traces]`
#[derive(Debug, Clone)]
pub struct TraceSettings {
    /// The endpoint to which spans are sent; absent to send none.
    pub endpoint: Option<String>,
    /// Headers for the endpoint, as `name=value,…`. The headers may contain a secret.
    pub headers: Option<SecretString>,
    /// The percentage of traces beginning in this process that are sent.
    pub sample_percent: u32,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            headers: None,
            sample_percent: 100,
        }
    }
}

/// `[pace]`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaceSettings {
    /// Which accounts are paced.
    pub accounts: PacedAccounts,
    /// The rate ceilings of each account.
    pub ceilings: PaceCeilings,
}

impl Default for PaceSettings {
    fn default() -> Self {
        Self {
            accounts: PacedAccounts::Azure,
            ceilings: PaceCeilings::AZURE,
        }
    }
}

/// Which accounts are paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacedAccounts {
    /// Only accounts at Azure's own endpoints are paced. Azure's published targets do not apply to
    /// emulators and embedded stores.
    Azure,
    /// All accounts are paced.
    All,
    /// No account is paced.
    None,
}

/// Maximum rate of one process at an account, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaceCeilings {
    /// Entities of one partition.
    pub partition: f64,
    /// Messages of one queue.
    pub queue: f64,
    /// Requests to one blob.
    pub blob: f64,
    /// Requests to the account.
    pub account: f64,
    /// The rate at which a partition, queue, blob or account starts, as a share of its ceiling. A
    /// table starts like a partition.
    pub start: f64,
}

impl PaceCeilings {
    /// Azure's published targets.
    pub const AZURE: Self = Self {
        partition: 2_000.0,
        queue: 2_000.0,
        blob: 500.0,
        account: 20_000.0,
        start: 0.1,
    };
}

impl PollInterval {
    /// Returns the interval for recheck queues. Their messages are late by design, and no caller
    /// waits for them. The longest interval becomes eight times as long, but at most 20 s.
    #[must_use]
    pub fn for_rechecks(self) -> Self {
        Self {
            max: self
                .max
                .saturating_mul(RECHECK_POLL_FACTOR)
                .min(RECHECK_POLL_MAX)
                .max(self.max),
            ..self
        }
    }
}

impl QueueSettings {
    /// The settings of a queue of the account `main` that accepts every operation, one job at a
    /// time.
    pub fn plain(name: QueueName) -> Self {
        Self {
            name,
            account: AccountName::main(),
            concurrency: Concurrency::Fixed(1),
            shards: 1,
            allowed: JobAllowance::default(),
        }
    }

    /// Whether the queue accepts an operation.
    pub fn allows_op(&self, op: &str) -> bool {
        self.allowed.refuses_op(op).is_none()
    }

    /// Whether jobs of the queue may be about these tables.
    pub fn allows_tables<'t>(&self, tables: impl IntoIterator<Item = &'t TableName>) -> bool {
        self.allowed
            .tables
            .as_ref()
            .is_none_or(|allowed| allowed.refuse(tables).is_none())
    }

    /// The queue for follow-up jobs of an operation: this queue if it accepts the operation for
    /// every table, otherwise the recheck queue, to which only workers write.
    pub fn follow_up_queue<'q>(
        &self,
        op: &str,
        own: &'q QueueName,
        recheck: &'q QueueName,
    ) -> &'q QueueName {
        if self.allows_op(op) && self.allowed.tables.is_none() {
            own
        } else {
            recheck
        }
    }

    /// The number of queue polls per longest interval while all queues are empty: one for each
    /// shard, and an eighth for the recheck queue.
    pub fn idle_polls(&self) -> f64 {
        f64::from(self.shards.max(1)) + 1.0 / f64::from(RECHECK_POLL_FACTOR)
    }

    /// The queues with this queue's jobs: the queue itself, or its shards `<name>-00`, `<name>-01`,
    /// …
    pub fn shard_names(&self) -> Vec<QueueName> {
        if self.shards <= 1 {
            return vec![self.name.clone()];
        }
        (0..self.shards)
            .filter_map(|shard| self.name.with_suffix(&format!("-{shard:02}")).ok())
            .collect()
    }
}
