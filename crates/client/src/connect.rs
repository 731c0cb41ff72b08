//! A client of the accounts that a configuration names.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_azure::AzureAccount;
use evenkeel_azure::files::SharedFiles;
use evenkeel_azure::settings::SettingsError;
use evenkeel_azure::vault::{self, VaultOpenError};
use evenkeel_config::{ConfigErrors, Request};
use evenkeel_layers::retry;
use evenkeel_model::AccountName;
use evenkeel_model::settings::{AccountKind, AccountSettings, RetryPolicy, SinkKind, SinkSettings};
use evenkeel_sinks::SinkOpenError;
use evenkeel_storage::system::{SystemChance, SystemClock};
use evenkeel_storage::{Account, Chance, Clock, Stores};

use crate::Client;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration has mistakes.
    #[error(transparent)]
    Configuration(#[from] ConfigErrors),
    /// An account in the embedded store, which this library does not link.
    #[error(
        "[accounts.{0}] is an embedded store, which this library cannot open: name an account of Azure Storage or Azurite"
    )]
    Embedded(AccountName),
    /// Settings that make no Azure account.
    #[error("[accounts.{account}] cannot be used")]
    Settings {
        /// The account.
        account: AccountName,
        /// Why.
        #[source]
        source: SettingsError,
    },
    /// The HTTP client of an account.
    #[error("[accounts.{account}] cannot be connected to")]
    Connect {
        /// The account.
        account: AccountName,
        /// Why.
        #[source]
        source: evenkeel_azure::AzureConnectError,
    },
    /// Key-encryption keys.
    #[error("[encryption] cannot be used")]
    Encryption(#[from] VaultOpenError),
    /// A search service.
    #[error("[sinks.{sink}] cannot be connected to")]
    Search {
        /// The sink.
        sink: AccountName,
        /// Why.
        #[source]
        source: SinkOpenError,
    },
}

/// Reads a configuration and opens its accounts, with retries as `worker.storage_retry` has them. Nothing is sent yet: a wrong key shows
/// at the first request. The catalog's tables, queues and containers are created by `evenkeel migrate up`, or by a worker.
pub fn connect(request: &Request) -> Result<Client, ConnectError> {
    let loaded = evenkeel_config::load(request)?;
    let settings = loaded.settings;
    let chance: Arc<dyn Chance> = Arc::new(SystemChance::new());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let retries = settings.worker.storage_retry;
    let accounts = settings
        .accounts
        .iter()
        .map(|account| Ok((account.name.clone(), open(account, retries, &chance)?)));
    let accounts: BTreeMap<_, _> = accounts.collect::<Result<_, ConnectError>>()?;
    let mut sinks = BTreeMap::new();
    for SinkSettings { name, kind } in settings.sinks {
        match kind {
            SinkKind::Search(_) => {}
            // Drivers of databases are not linked: a lookup there says that it has no such sink. Events cannot be read.
            SinkKind::Sql(_) | SinkKind::Webhook(_) => continue,
        }
        let opened = evenkeel_sinks::open(&name, kind, &clock);
        let opened = opened.map_err(|source| ConnectError::Search {
            sink: name.clone(),
            source,
        })?;
        sinks.insert(name, opened.sink);
    }
    let stores = Stores::new(accounts)
        .with_sinks(sinks)
        .with_files(Arc::new(SharedFiles))
        .with_vault(vault::open(&settings.encryption)?);
    Ok(Client::new(
        stores,
        Arc::new(loaded.catalog),
        settings.queues,
    ))
}

fn open(
    account: &AccountSettings,
    retries: RetryPolicy,
    chance: &Arc<dyn Chance>,
) -> Result<Account, ConnectError> {
    let name = || account.name.clone();
    let AccountKind::Azure(auth) = &account.kind else {
        return Err(ConnectError::Embedded(name()));
    };
    let azure = AzureAccount::of(name(), auth).map_err(|source| ConnectError::Settings {
        account: name(),
        source,
    })?;
    let bare = evenkeel_azure::connect(&azure).map_err(|source| ConnectError::Connect {
        account: name(),
        source,
    })?;
    Ok(retry::around(&bare, retries, chance))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(account: &[&str]) -> Request {
        Request {
            overrides: account.iter().map(|&text| text.to_owned()).collect(),
            ..Request::default()
        }
    }

    #[test]
    fn an_account_of_azure_is_opened_and_nothing_is_sent() {
        let client = connect(&request(&[
            "accounts.main.kind=azure",
            "accounts.main.connection_string=UseDevelopmentStorage=true",
        ]));
        assert!(client.is_ok(), "{}", client.unwrap_err());
    }

    #[test]
    fn an_account_is_opened_by_an_identity_and_no_token_is_requested() {
        let keys = [
            "kind=azure",
            "auth=entra",
            "name=contoso",
            "credential=managed_identity",
        ]
        .map(|key| format!("accounts.main.{key}"));
        let client = connect(&request(&keys.each_ref().map(String::as_str)));
        assert!(client.is_ok(), "{}", client.unwrap_err());
    }

    #[test]
    fn an_embedded_store_is_refused_by_its_name() {
        let error = connect(&request(&[])).unwrap_err();
        assert!(
            matches!(error, ConnectError::Embedded(ref name) if *name == AccountName::main()),
            "{error}"
        );
    }
}
