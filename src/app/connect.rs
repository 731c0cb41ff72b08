//! Opens a client for applications, with the same layers as the program's own client.

use std::error::Error;
use std::sync::Arc;

use super::stores;
use evenkeel_client::Client;
use evenkeel_config::{ConfigErrors, Request};
use evenkeel_rollout::migrations::{Consent, Migrator};
use evenkeel_storage::system::{SystemClock, SystemRng};
use evenkeel_storage::{Clock, Rng};

#[derive(Debug, thiserror::Error)]
pub enum AppConnectError {
    #[error(transparent)]
    Configuration(#[from] ConfigErrors),
    #[error("could not open the accounts of the configuration")]
    Accounts(#[source] Box<dyn Error + Send + Sync>),
    #[error("could not migrate the stores")]
    Migration(#[source] Box<dyn Error + Send + Sync>),
}

/// Reads a configuration and opens its accounts, with the retries and pacing of a worker. Opening
/// sends no request, so a wrong key is only noticed by the first request. Opening an embedded store
/// blocks the thread while it reads the disk.
///
/// `evenkeel migrate up`, a worker or [`prepare_store`] creates the catalog's tables, queues and containers.
///
/// # Example
///
/// ```
/// use evenkeel_config::{Folder, Request};
/// use evenkeel_model::{EntityKey, TableName, ViewName};
///
/// # async fn example(request: Request) -> Result<(), Box<dyn std::error::Error>> {
/// evenkeel::app::prepare_store(&request).await?;
/// let client = evenkeel::app::connect(&request)?;
///
/// let sent = client.submit(r#"{"op": "sync", "table": "Employees", "pk": "Sales", "rk": "000223"}"#).await?;
/// assert_eq!(sent.op, "sync");
/// let key = EntityKey::new("Sales", "000223")?;
/// let employee = client.get(&TableName::new("Employees")?, &key).await?;
/// assert!(employee.is_none(), "nobody has written it");
/// let by_email = ViewName::new("employees_by_email")?;
/// let found = client.lookup(&by_email, &["PartitionKey=Sales", "Email=jun.cao@contoso.com"])?.run().await?;
/// assert_eq!((found.rows.len(), found.requests), (0, 1));
/// # Ok(())
/// # }
/// # let folder = tempfile::tempdir()?;
/// # let default = include_str!("../../config/default.toml").replace("data/evenkeel.db", folder.path().join("store.db").to_str().unwrap());
/// # std::fs::write(folder.path().join("default.toml"), default)?;
/// # let request = Request { folder: Folder::Named(folder.path().to_owned()), ..Request::default() };
/// # tokio::runtime::Runtime::new()?.block_on(example(request))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn connect(request: &Request) -> Result<Client, AppConnectError> {
    open(request).map(|(client, _)| client)
}

/// Creates the missing tables, queues and containers of the catalog, as a starting worker does.
/// Does not retire or replace views. Intended for tests of applications that use an embedded store.
pub async fn prepare_store(request: &Request) -> Result<(), AppConnectError> {
    let (_, migrator) = open(request)?;
    migrator
        .up(Consent::Additions, |_| {})
        .await
        .map_err(|error| AppConnectError::Migration(error.into()))
}

fn open(request: &Request) -> Result<(Client, Migrator), AppConnectError> {
    let loaded = evenkeel_config::load(request)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let rng: Arc<dyn Rng> = Arc::new(SystemRng::new());
    let opened = stores::open(&loaded.settings, &clock, &rng)
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
