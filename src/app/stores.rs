//! Opens the accounts and sinks of the settings: an adapter for each, with its layers.

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
use evenkeel_storage::{Account, AccountFacts, Clock, Rng, Service, Stores};
use evenkeel_telemetry::announce_account;

const SINK: [Service; 1] = [Service::Search];
const ACCOUNT: [Service; 3] = [Service::Table, Service::Queue, Service::Blob];

pub(super) struct OpenedStores {
    /// The stores with all layers.
    pub(super) stores: Stores,
    /// The same accounts without retries, grouping and pacing.
    observed: Stores,
    pub(super) circuits: Arc<Circuits>,
    /// Circuits of the sinks. If one is open, only the jobs that write to its sink are stopped.
    sinks: Vec<Arc<Circuit>>,
    metered: Vec<Metered>,
    retries: Vec<Arc<ArcSwap<RetryPolicy>>>,
    /// Keyrings of the accounts and sinks that have secrets.
    keyrings: Vec<Arc<Keyring>>,
    /// Descriptions of the accounts' locations, without secrets.
    pub(super) places: BTreeMap<AccountName, String>,
}

impl OpenedStores {
    pub(super) fn meter(&self) -> Meter {
        Meter(self.metered.clone())
    }

    pub(super) fn direct(&self) -> DirectAccess {
        DirectAccess {
            stores: self.observed.clone(),
            meter: Arc::new(self.meter()),
        }
    }

    pub(super) fn retry(&self, policy: RetryPolicy) {
        for retry in &self.retries {
            retry.store(Arc::new(policy));
        }
    }

    /// Periodically closes circuits of sinks that are no longer used; never returns.
    pub(super) async fn lapse(&self, wait: impl Fn() -> Duration) {
        loop {
            tokio::time::sleep(wait()).await;
            for circuit in &self.sinks {
                circuit.lapse();
            }
        }
    }

    pub(super) async fn read_secrets_again(&self) {
        futures::future::join_all(self.keyrings.iter().map(Keyring::read_again)).await;
    }

    pub(super) fn requests(&self) -> u64 {
        self.metered
            .iter()
            .map(|metered| metered.counts.snapshot().transactions())
            .sum()
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum StoreOpenError {
    #[cfg(not(feature = "sqlite"))]
    #[error(
        "[accounts.{0}] is an embedded store, which this build does not support. Use an Azure Storage account, or build with the feature \"sqlite\""
    )]
    NoEmbedded(AccountName),
    #[cfg(feature = "sqlite")]
    #[error("could not open [accounts.{account}]")]
    Embedded {
        account: AccountName,
        #[source]
        source: OpenError,
    },
    #[error("[accounts.{account}] cannot be used")]
    Settings {
        account: AccountName,
        #[source]
        source: SettingsError,
    },
    #[error("[sinks.{sink}] cannot be used")]
    Sink {
        sink: AccountName,
        #[source]
        source: SinkOpenError,
    },
    #[error("[encryption] cannot be used")]
    Encryption(#[from] VaultOpenError),
    #[error("could not connect to [accounts.{account}]")]
    Connect {
        account: AccountName,
        #[source]
        source: AzureConnectError,
    },
}

/// Opens every account and sink. Opening sends no request to Azure, so a wrong key or address is
/// only noticed by the first request. Opening an embedded store blocks the thread while it reads
/// the disk.
pub(super) fn open(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> Result<OpenedStores, StoreOpenError> {
    let (mut accounts, mut observed) = (BTreeMap::new(), BTreeMap::new());
    let (mut circuits, mut metered, mut places) = (Vec::new(), Vec::new(), BTreeMap::new());
    let (mut retries, mut keyrings) = (Vec::new(), Vec::new());
    for account in &settings.accounts {
        let UndecoratedAccount {
            account: undecorated,
            place,
            keyring,
            grouping,
            at_azure,
        } = undecorated(account, clock)?;
        keyrings.extend(keyring);
        let paced = match settings.pace.accounts {
            PacedAccounts::Azure => at_azure,
            PacedAccounts::All => true,
            PacedAccounts::None => false,
        };
        let ceilings = paced.then_some(settings.pace.ceilings);
        let decorated = decorate_within(
            &account.name,
            &undecorated,
            grouping,
            ceilings,
            settings.worker.storage_retry,
            clock,
            rng,
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
        let decorated = decorate_sink(&name, sink, settings.worker.storage_retry, clock, rng);
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

/// An account without layers.
struct UndecoratedAccount {
    account: Account,
    /// Description of the account's location, without secrets.
    place: String,
    keyring: Option<Arc<Keyring>>,
    grouping: Grouping,
    /// Whether Azure's published limits apply.
    at_azure: bool,
}

fn undecorated(
    account: &AccountSettings,
    clock: &Arc<dyn Clock>,
) -> Result<UndecoratedAccount, StoreOpenError> {
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
            Ok(UndecoratedAccount {
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
            Ok(UndecoratedAccount {
                account,
                place,
                keyring,
                grouping: Grouping::Together,
                at_azure: azure.is_at_azure(),
            })
        }
    }
}

/// Returns an error if an embedded store does not exist. Must be called before the stores are
/// opened, because opening creates them.
pub(super) fn refuse_missing_stores(settings: &Settings, folder: &Folder) -> anyhow::Result<()> {
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
        if let Some(absent) = folder.missing_default() {
            return Err(UsageError::new(format!(
                "neither the configuration folder {} nor the store {path} of the built-in defaults exists; nothing was created. Change to the folder with your configuration, or name it with --config",
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

/// Signs a shared access signature with the credential of the account that it is for.
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
            "[accounts.{account}] is an embedded store, which has no shared access signatures. Use an Azure Storage account"
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
                anyhow::Error::new(error).context(format!("could not sign [sas.{}]", grant.name))
            }
            error => UsageError::new(format!("[sas.{}]: {error}", grant.name)).into(),
        })
}

/// Kind and replication of the Azure accounts. Accounts that do not report them are left out.
pub(super) async fn facts(settings: &Settings, now: Timestamp) -> Vec<(AccountName, AccountFacts)> {
    let requests = settings
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
    futures::future::join_all(requests)
        .await
        .into_iter()
        .flatten()
        .collect()
}

/// Checks the settings of an account without sending a request.
pub(super) fn check(name: &AccountName, auth: &AzureAuth) -> Result<(), String> {
    AzureAccount::of(name.clone(), auth)
        .map(drop)
        .map_err(|error| error.to_string())
}
