//! From settings to stores: the adapter of each account, in its decorator stack.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;

use super::meter::{Meter, Metered};
use crate::cli::{AbsentStore, DirectAccess, UsageError};
use evenkeel_azure::files::SharedFiles;
use evenkeel_azure::keyring::Keyring;
use evenkeel_azure::{
    self, AzureAccount, AzureConnectError, SettingsError, sas,
    vault::{self, VaultOpenError},
};
use evenkeel_config::Folder;
use evenkeel_layers::circuit::{Circuit, Circuits};
use evenkeel_layers::stack::{Grouping, decorate_sink, decorate_within};
use evenkeel_model::AccountName;
use evenkeel_model::settings::{
    AccountKind, AccountSettings, AzureAuth, IssuedSas, PacedAccounts, RetryPolicy, SasGrant,
    Settings, SinkSettings,
};
use evenkeel_sinks::{OpenedSink, SinkOpenError};
#[cfg(feature = "sqlite")]
use evenkeel_sqlite::{EmbeddedStore, OpenError};
use evenkeel_storage::{Account, AccountFacts, Chance, Clock, Service, Stores};
use evenkeel_telemetry::announce_account;

/// The service of a sink.
const SINK: [Service; 1] = [Service::Search];
/// The services of an account.
const ACCOUNT: [Service; 3] = [Service::Table, Service::Queue, Service::Blob];

/// All accounts, opened.
pub(super) struct OpenedStores {
    /// The stores, as the rest of the program sees them.
    pub(super) stores: Stores,
    /// The same accounts, without retries, grouping and pace.
    observed: Stores,
    pub(super) circuits: Arc<Circuits>,
    /// The circuits of sinks, which hold up nothing but their own jobs.
    sinks: Vec<Arc<Circuit>>,
    /// Handles on the layers of each.
    metered: Vec<Metered>,
    /// How each tries requests again.
    retries: Vec<Arc<ArcSwap<RetryPolicy>>>,
    /// The secrets of those that have any.
    keyrings: Vec<Arc<Keyring>>,
    /// Where each stores, for people and without secrets.
    pub(super) places: BTreeMap<AccountName, String>,
}

impl OpenedStores {
    /// The figures of the stores, for a board.
    pub(super) fn meter(&self) -> Meter {
        Meter(self.metered.clone())
    }

    /// The accounts as measurements use them.
    pub(super) fn direct(&self) -> DirectAccess {
        DirectAccess {
            stores: self.observed.clone(),
            meter: Arc::new(self.meter()),
        }
    }

    /// Tries requests again in another way from now on.
    pub(super) fn retry(&self, policy: RetryPolicy) {
        for retry in &self.retries {
            retry.store(Arc::new(policy));
        }
    }

    /// Closes circuits of sinks that nobody needs any more, after each wait; never returns.
    pub(super) async fn lapse(&self, wait: impl Fn() -> Duration) {
        loop {
            tokio::time::sleep(wait()).await;
            for circuit in &self.sinks {
                circuit.lapse();
            }
        }
    }

    /// Reads the files of all secrets again.
    pub(super) async fn read_secrets_again(&self) {
        futures::future::join_all(self.keyrings.iter().map(Keyring::read_again)).await;
    }

    /// Storage requests sent so far, to all accounts.
    pub(super) fn requests(&self) -> u64 {
        self.metered
            .iter()
            .map(|metered| metered.counts.snapshot().transactions())
            .sum()
    }
}

/// Why an account cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreOpenError {
    /// An embedded store, without the code for it.
    #[cfg(not(feature = "sqlite"))]
    #[error(
        "[accounts.{0}] is an embedded store, and this program was built without it: name an account of Azure Storage, or build it with the feature \"sqlite\""
    )]
    NoEmbedded(AccountName),
    /// The file of an embedded store.
    #[cfg(feature = "sqlite")]
    #[error("[accounts.{account}] cannot be opened")]
    Embedded {
        account: AccountName,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// Settings that make no Azure account.
    #[error("[accounts.{account}] cannot be used")]
    Settings {
        account: AccountName,
        /// Why.
        #[source]
        source: SettingsError,
    },
    /// A sink.
    #[error("[sinks.{sink}] cannot be used")]
    Sink {
        sink: AccountName,
        /// Why.
        #[source]
        source: SinkOpenError,
    },
    /// Key-encryption keys.
    #[error("[encryption] cannot be used")]
    Encryption(#[from] VaultOpenError),
    /// The HTTP client.
    #[error("[accounts.{account}] cannot be connected to")]
    Connect {
        account: AccountName,
        /// Why.
        #[source]
        source: AzureConnectError,
    },
}

/// Opens every account and sink. Nothing is sent to Azure yet: a wrong key or an address where nothing listens shows at
/// the first request. The embedded store blocks for the disk here.
pub(super) fn open(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    chance: &Arc<dyn Chance>,
) -> Result<OpenedStores, StoreOpenError> {
    let (mut accounts, mut observed) = (BTreeMap::new(), BTreeMap::new());
    let (mut circuits, mut metered, mut places) = (Vec::new(), Vec::new(), BTreeMap::new());
    let (mut retries, mut keyrings) = (Vec::new(), Vec::new());
    for account in &settings.accounts {
        let Bare {
            account: bare,
            place,
            keyring,
            grouping,
            at_azure,
        } = bare(account, clock)?;
        keyrings.extend(keyring);
        let paced = match settings.pace.accounts {
            PacedAccounts::Azure => at_azure,
            PacedAccounts::All => true,
            PacedAccounts::None => false,
        };
        let ceilings = paced.then_some(settings.pace.ceilings);
        let decorated = decorate_within(
            &account.name,
            &bare,
            (grouping, ceilings),
            settings.worker.storage_retry,
            clock,
            chance,
        );
        accounts.insert(account.name.clone(), decorated.account);
        observed.insert(account.name.clone(), decorated.observed);
        announce_account(account.name.as_str());
        circuits.push(decorated.circuit);
        retries.push(decorated.retry);
        metered.push(Metered {
            account: account.name.clone(),
            services: &ACCOUNT,
            counts: decorated.counts,
            pace: decorated.pace,
        });
        places.insert(account.name.clone(), place);
    }
    let (mut sinks, mut sink_circuits) = (BTreeMap::new(), Vec::new());
    for SinkSettings { name, kind } in settings.sinks.clone() {
        let opened = evenkeel_sinks::open(&name, kind, clock);
        let OpenedSink { sink, keyring } = opened.map_err(|source| StoreOpenError::Sink {
            sink: name.clone(),
            source,
        })?;
        keyrings.extend(keyring);
        let decorated = decorate_sink(&name, sink, settings.worker.storage_retry, clock, chance);
        sink_circuits.push(decorated.circuit);
        retries.push(decorated.retry);
        metered.push(Metered {
            account: name.clone(),
            services: &SINK,
            counts: decorated.counts,
            pace: decorated.pace,
        });
        sinks.insert(name, decorated.sink);
    }
    Ok(OpenedStores {
        observed: Stores::new(observed).with_sinks(sinks.clone()),
        stores: Stores::new(accounts)
            .with_sinks(sinks)
            .with_files(Arc::new(SharedFiles))
            .with_vault(vault::open(&settings.encryption)?),
        circuits: Arc::new(Circuits::new(circuits)),
        sinks: sink_circuits,
        metered,
        retries,
        keyrings,
        places,
    })
}

/// An account without decorators.
struct Bare {
    account: Account,
    /// Where it stores, for people.
    place: String,
    keyring: Option<Arc<Keyring>>,
    grouping: Grouping,
    /// Whether Azure's published targets are about it.
    at_azure: bool,
}

fn bare(account: &AccountSettings, clock: &Arc<dyn Clock>) -> Result<Bare, StoreOpenError> {
    let name = || account.name.clone();
    match &account.kind {
        #[cfg(not(feature = "sqlite"))]
        AccountKind::Embedded { .. } => {
            let _ = clock;
            Err(StoreOpenError::NoEmbedded(name()))
        }
        #[cfg(feature = "sqlite")]
        AccountKind::Embedded { path } => {
            let store = EmbeddedStore::open(path, name(), Arc::clone(clock)).map_err(|source| {
                StoreOpenError::Embedded {
                    account: name(),
                    source,
                }
            })?;
            let shown = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
            let place = format!("the embedded store {}", shown.display());
            Ok(Bare {
                account: store,
                place,
                keyring: None,
                grouping: Grouping::Apart,
                at_azure: false,
            })
        }
        AccountKind::Azure(auth) => {
            let azure =
                AzureAccount::of(name(), auth).map_err(|source| StoreOpenError::Settings {
                    account: name(),
                    source,
                })?;
            let place = format!(
                "the storage account {} at {}",
                azure.name,
                azure.endpoints.table.host_str().unwrap_or_default()
            );
            let keyring = azure.keyring();
            let account =
                evenkeel_azure::connect(&azure).map_err(|source| StoreOpenError::Connect {
                    account: name(),
                    source,
                })?;
            Ok(Bare {
                account,
                place,
                keyring,
                grouping: Grouping::Together,
                at_azure: azure.is_at_azure(),
            })
        }
    }
}

/// Refuses embedded stores that do not exist, before opening would create them.
pub(super) fn must_exist(settings: &Settings, folder: &Folder) -> anyhow::Result<()> {
    for AccountSettings { name, kind } in &settings.accounts {
        let path = match kind {
            AccountKind::Embedded { path } => path,
            AccountKind::Azure(_) => continue,
        };
        if path.exists() {
            continue;
        }
        let path = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
        let path = path.display();
        if let Some(absent) = folder.absent() {
            return Err(UsageError::new(format!(
                "there is neither a configuration folder {} nor the store {path} of the built-in defaults, and nothing was created: go to the folder that your configuration is in, or name it with --config",
                absent.display()
            ))
            .into());
        }
        return Err(AbsentStore {
            account: name.clone(),
            path: path.to_string(),
        }
        .into());
    }
    Ok(())
}

/// Signs a shared access signature by the key of its account.
pub(super) async fn issue(
    settings: &Settings,
    grant: &SasGrant,
    now: Timestamp,
    expires: Timestamp,
) -> anyhow::Result<IssuedSas> {
    let account = settings
        .accounts
        .iter()
        .find(|account| account.name == grant.account);
    let Some(AccountSettings {
        name,
        kind: AccountKind::Azure(auth),
    }) = account
    else {
        let account = &grant.account;
        return Err(UsageError::new(format!(
            "[accounts.{account}] is an embedded store, which knows no signatures: name an account of Azure Storage"
        ))
        .into());
    };
    let account =
        AzureAccount::of(name.clone(), auth).map_err(|source| StoreOpenError::Settings {
            account: name.clone(),
            source,
        })?;
    sas::issue(&account, grant, now, expires)
        .await
        .map_err(|error| match error {
            sas::SasError::Store(error) => {
                anyhow::Error::new(error).context(format!("signing [sas.{}]", grant.name))
            }
            error => UsageError::new(format!("[sas.{}]: {error}", grant.name)).into(),
        })
}

/// Kind and replication of the accounts of Azure that tell them.
pub(super) async fn facts(settings: &Settings, now: Timestamp) -> Vec<(AccountName, AccountFacts)> {
    let asked = settings
        .accounts
        .iter()
        .map(async |AccountSettings { name, kind }| {
            let AccountKind::Azure(auth) = kind else {
                return None;
            };
            let account = AzureAccount::of(name.clone(), auth).ok()?;
            Some((
                name.clone(),
                evenkeel_azure::account_facts(&account, now).await?,
            ))
        });
    futures::future::join_all(asked)
        .await
        .into_iter()
        .flatten()
        .collect()
}

/// Whether an account can be opened, as far as can be said without asking the service.
pub(super) fn check(name: &AccountName, auth: &AzureAuth) -> Result<(), String> {
    AzureAccount::of(name.clone(), auth)
        .map(drop)
        .map_err(|error| error.to_string())
}
