//! Creates the three ports of an account from its settings.

use std::sync::Arc;

use azure_core::{
    ClientOptions, HttpClient, Policy, RetryOptions, TelemetryOptions, TransportOptions,
};
use azure_data_tables::clients::TableServiceClientBuilder;
use azure_storage::{CloudLocation, StorageCredentials};
use azure_storage_blobs::prelude::ClientBuilder;
use azure_storage_queues::QueueServiceClientBuilder;
use url::Url;

use super::amend::Amend;
use super::ascii::Encoding;
use super::blobs::AzureBlobs;
use super::call::Caller;
use super::queues::AzureQueues;
use super::settings::{AzureAccount, Credential};
use super::tables::AzureTables;
use super::transport::Transport;
use crate::cloud::{Cloud, STORAGE_SCOPE};
use crate::identity::TokenCache;
use evenkeel_storage::{Account, Service};

/// Log targets of libraries that log requests at DEBUG, including the Authorization header. They must stay at INFO.
pub const CHATTY_LOG_TARGETS: [&str; 10] = [
    "azure_core",
    "azure_identity",
    "azure_storage",
    "azure_data_tables",
    "azure_storage_queues",
    "azure_storage_blobs",
    "typespec_client_core",
    "reqwest",
    "hyper",
    "hyper_util",
];

#[derive(Debug, thiserror::Error)]
pub enum AzureConnectError {
    /// Setting up TLS with this machine's certificates failed.
    #[error("the HTTP client could not be set up")]
    Client(#[source] reqwest::Error),
}

/// Creates the stores of an account. Nothing is sent, so a wrong key shows at the first request.
pub fn connect(account: &AzureAccount) -> Result<Account, AzureConnectError> {
    let tokens = match &account.credential {
        Credential::Secrets(_) => None,
        Credential::Entra(identity) => {
            let cloud = Cloud::or_public(&account.endpoints.table);
            let tokens = TokenCache::of(
                identity,
                cloud,
                STORAGE_SCOPE,
                format!("[accounts.{}]", account.account),
            );
            Some(tokens.map_err(AzureConnectError::Client)?)
        }
    };
    connect_with(account, tokens)
}

/// Like [`connect`], with the given tokens.
pub(crate) fn connect_with(
    account: &AzureAccount,
    tokens: Option<Arc<TokenCache>>,
) -> Result<Account, AzureConnectError> {
    let transport = Transport::new(account, tokens).map_err(AzureConnectError::Client)?;
    let options = |service| {
        let amend: Vec<Arc<dyn Policy>> = vec![Arc::new(Amend)];
        ClientOptions::default()
            .transport(TransportOptions::new(
                Arc::new(transport.to(service)) as Arc<dyn HttpClient>
            ))
            .telemetry(
                TelemetryOptions::default()
                    .application_id(concat!("evenkeel/", env!("CARGO_PKG_VERSION")).to_owned()),
            )
            .retry(RetryOptions::none())
            .per_call_policies(amend)
    };
    // The library does not sign. The transport does, with the secret or token that is current when it sends a request.
    let credentials = StorageCredentials::anonymous();
    let location = |endpoint: &Url| CloudLocation::Custom {
        account: account.name.clone(),
        // `Url` adds a slash to a bare host, which the library would turn into an empty segment.
        uri: endpoint.as_str().trim_end_matches('/').to_owned(),
    };
    let wire = if account.endpoints.are_azure() {
        Encoding::Utf8
    } else {
        Encoding::Ascii
    };
    let caller = Caller::new(account);
    let tables = TableServiceClientBuilder::with_location(
        location(&account.endpoints.table),
        credentials.clone(),
    )
    .client_options(options(Service::Table))
    .build();
    let queues = QueueServiceClientBuilder::with_location(
        location(&account.endpoints.queue),
        credentials.clone(),
    )
    .client_options(options(Service::Queue))
    .build();
    let blobs = ClientBuilder::with_location(location(&account.endpoints.blob), credentials)
        .client_options(options(Service::Blob))
        .blob_service_client();
    Ok(Account {
        tables: Arc::new(AzureTables::new(caller.clone(), tables, wire)),
        queues: Arc::new(AzureQueues::new(caller.clone(), queues, wire)),
        blobs: Arc::new(AzureBlobs::new(caller, blobs)),
        clocks: transport.clocks(),
    })
}
