//! A client for applications, put together as the program puts its own.

use std::error::Error;
use std::sync::Arc;

use super::stores;
use crate::adapters::system::{SystemChance, SystemClock};
use crate::client::Client;
use crate::config::{self, ConfigErrors, Request};
use crate::migrations::{Consent, Migrator};
use crate::ports::{Chance, Clock};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum AppConnectError {
    /// The configuration has mistakes.
    #[error(transparent)]
    Configuration(#[from] ConfigErrors),
    /// An account that cannot be opened.
    #[error("the accounts of the configuration cannot be opened")]
    Accounts(#[source] Box<dyn Error + Send + Sync>),
    /// The store lacks tables, queues or containers of the catalog.
    #[error("the store cannot be brought up to date")]
    Migration(#[source] Box<dyn Error + Send + Sync>),
}

/// Reads a configuration and opens its accounts, with retries and pacing as the worker has them. Nothing is sent yet: a wrong
/// key shows at the first request. The embedded store blocks for the disk here.
///
/// The catalog's tables, queues and containers are created by `evenkeel migrate up`, by a worker, or by
/// [`prepare_store`].
pub fn connect(request: &Request) -> Result<Client, AppConnectError> {
    open(request).map(|(client, _)| client)
}

/// Creates the missing tables, queues and containers of the catalog, as a worker does at its start (a view is not
/// retired or replaced by it): for tests of applications, which have an embedded store of their own. Does nothing where
/// all is there.
pub async fn prepare_store(request: &Request) -> Result<(), AppConnectError> {
    let (_, migrator) = open(request)?;
    migrator
        .up(Consent::Additions, |_| {})
        .await
        .map_err(|error| AppConnectError::Migration(error.into()))
}

fn open(request: &Request) -> Result<(Client, Migrator), AppConnectError> {
    let loaded = config::load(request)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let chance: Arc<dyn Chance> = Arc::new(SystemChance::new());
    let opened = stores::open(&loaded.settings, &clock, &chance)
        .map_err(|error| AppConnectError::Accounts(error.into()))?;
    let catalog = Arc::new(loaded.catalog);
    let migrator = Migrator::new(
        opened.stores.clone(),
        &loaded.settings,
        Arc::clone(&catalog),
        clock,
    );
    let migrator = migrator.map_err(|error| AppConnectError::Migration(error.into()))?;
    Ok((
        Client::new(opened.stores, catalog, loaded.settings.queues),
        migrator,
    ))
}
