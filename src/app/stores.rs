//! From settings to stores: the adapter of each account, with everything it wears.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::meter::Meter;
use crate::adapters::azure::{self, AzureAccount, ConnectError, EndpointOverrides, SettingsError};
use crate::adapters::circuit::Circuits;
use crate::adapters::embedded::{EmbeddedStore, OpenError};
use crate::adapters::files::SharedFiles;
use crate::adapters::observe::RequestCounts;
use crate::adapters::wear::wear;
use crate::model::AccountName;
use crate::ports::{Account, Chance, Clock, Stores};
use crate::settings::{AccountKind, AccountSettings, AzureAuth, Endpoints, Settings};

/// All accounts, opened.
pub(super) struct Opened {
    /// The stores, as the rest of the program sees them.
    pub(super) stores: Stores,
    /// Their circuits.
    pub(super) circuits: Arc<Circuits>,
    /// What was sent to each.
    counts: Vec<(AccountName, Arc<RequestCounts>)>,
    /// Where each stores, for people and without secrets.
    pub(super) places: BTreeMap<AccountName, String>,
}

impl Opened {
    /// What the stores answer, for a board.
    pub(super) fn meter(&self) -> Meter {
        Meter(self.counts.clone())
    }

    /// Storage requests sent so far, to all accounts.
    pub(super) fn requests(&self) -> u64 {
        self.counts.iter().map(|(_, counts)| counts.snapshot().transactions()).sum()
    }
}

/// Why an account cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreOpenError {
    /// The file of an embedded store.
    #[error("[accounts.{account}] cannot be opened")]
    Embedded {
        /// The account.
        account: AccountName,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// Settings that make no Azure account.
    #[error("[accounts.{account}] cannot be used")]
    Settings {
        /// The account.
        account: AccountName,
        /// Why.
        #[source]
        source: SettingsError,
    },
    /// The HTTP client.
    #[error("[accounts.{account}] cannot be connected to")]
    Connect {
        /// The account.
        account: AccountName,
        /// Why.
        #[source]
        source: ConnectError,
    },
}

/// Opens every account. Nothing is sent to Azure yet: a wrong key or an address where nothing listens shows at
/// the first request. The embedded store blocks for the disk here.
pub(super) fn open(settings: &Settings, clock: &Arc<dyn Clock>, chance: &Arc<dyn Chance>) -> Result<Opened, StoreOpenError> {
    let mut accounts = BTreeMap::new();
    let (mut circuits, mut counts, mut places) = (Vec::new(), Vec::new(), BTreeMap::new());
    for account in &settings.accounts {
        let (bare, place) = bare(account, clock)?;
        let worn = wear(&account.name, &bare, settings.worker.storage_retry, clock, chance);
        accounts.insert(account.name.clone(), worn.account);
        circuits.push(worn.circuit);
        counts.push((account.name.clone(), worn.counts));
        places.insert(account.name.clone(), place);
    }
    Ok(Opened {
        stores: Stores::new(accounts).with_files(Arc::new(SharedFiles)),
        circuits: Arc::new(Circuits::new(circuits)),
        counts,
        places,
    })
}

fn bare(account: &AccountSettings, clock: &Arc<dyn Clock>) -> Result<(Account, String), StoreOpenError> {
    let name = || account.name.clone();
    match &account.kind {
        AccountKind::Embedded { path } => {
            let store = EmbeddedStore::open(path, name(), Arc::clone(clock))
                .map_err(|source| StoreOpenError::Embedded { account: name(), source })?;
            let shown = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
            Ok((store, format!("the embedded store {}", shown.display())))
        }
        AccountKind::Azure(auth) => {
            let azure = azure_account(name(), auth).map_err(|source| StoreOpenError::Settings { account: name(), source })?;
            let place = format!("the storage account {} at {}", azure.name, azure.endpoints.table.host_str().unwrap_or_default());
            Ok((azure::connect(azure).map_err(|source| StoreOpenError::Connect { account: name(), source })?, place))
        }
    }
}

fn azure_account(name: AccountName, auth: &AzureAuth) -> Result<AzureAccount, SettingsError> {
    match auth {
        AzureAuth::ConnectionString(text) => AzureAccount::from_connection_string(name, text),
        AzureAuth::Key { account, key, endpoints } => AzureAccount::with_key(name, account, key, &overrides(endpoints)),
        AzureAuth::Sas { account, token, endpoints } => AzureAccount::with_sas(name, account, token, &overrides(endpoints)),
    }
}

fn overrides(endpoints: &Endpoints) -> EndpointOverrides {
    let Endpoints { table, queue, blob } = endpoints.clone();
    EndpointOverrides { table, queue, blob, suffix: None }
}
