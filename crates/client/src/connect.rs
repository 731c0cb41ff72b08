//! Opens a client for the accounts of a configuration.

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
use evenkeel_storage::system::{SystemClock, SystemRng};
use evenkeel_storage::{Account, Clock, Rng, Stores};

use crate::Client;

/// Why a client could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration is invalid.
    #[error(transparent)]
    Configuration(#[from] ConfigErrors),
    /// The account is an embedded store, which this library does not support.
    #[error(
        "cannot open [accounts.{0}]: this library supports Azure Storage and Azurite, not the embedded store"
    )]
    Embedded(AccountName),
    /// The settings of an account are invalid.
    #[error("invalid settings in [accounts.{account}]")]
    Settings {
        /// The account.
        account: AccountName,
        /// The cause.
        #[source]
        source: SettingsError,
    },
    /// The HTTP client of an account could not be created.
    #[error("could not create an HTTP client for [accounts.{account}]")]
    Connect {
        /// The account.
        account: AccountName,
        /// The cause.
        #[source]
        source: evenkeel_azure::AzureConnectError,
    },
    /// The key vault with the key-encryption keys could not be opened.
    #[error("could not open the key vault of [encryption]")]
    Encryption(#[from] VaultOpenError),
    /// The client of a search service could not be created.
    #[error("could not create a client for [sinks.{sink}]")]
    Search {
        /// The sink.
        sink: AccountName,
        /// The cause.
        #[source]
        source: SinkOpenError,
    },
}

/// Reads a configuration and opens its accounts. Requests are retried as configured in `worker.storage_retry`. Opening
/// sends no request, so a wrong account key is reported only by the client's first request. Tables, queues and
/// containers of the catalog must already exist: `evenkeel migrate up` or a worker creates them.
pub fn connect(request: &Request) -> Result<Client, ConnectError> {
    let loaded = evenkeel_config::load(request)?;
    let settings = loaded.settings;
    let rng: Arc<dyn Rng> = Arc::new(SystemRng::new());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let retries = settings.worker.storage_retry;
    let accounts = settings
        .accounts
        .iter()
        .map(|account| Ok((account.name.clone(), open(account, retries, &rng)?)));
    let accounts: BTreeMap<_, _> = accounts.collect::<Result<_, ConnectError>>()?;
    let mut sinks = BTreeMap::new();
    for SinkSettings { name, kind } in settings.sinks {
        match kind {
            SinkKind::Search(_) => {}
            // This library contains no database drivers, so a lookup reports the sink as unknown. Events that were sent
            // to a webhook cannot be read.
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
    rng: &Arc<dyn Rng>,
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
    Ok(retry::around(&bare, retries, rng))
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
    fn opening_an_azure_account_sends_nothing() {
        let client = connect(&request(&[
            "accounts.main.kind=azure",
            "accounts.main.connection_string=UseDevelopmentStorage=true",
        ]));
        assert!(client.is_ok(), "{}", client.unwrap_err());
    }

    #[test]
    fn opening_an_account_with_an_identity_requests_no_token() {
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
