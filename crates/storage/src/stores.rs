//! The configured accounts and sinks, and the shared folders.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{BlobStore, FileStore, QueueStore, ServiceClocks, Sink, TableStore, Vault};
use evenkeel_model::AccountName;

#[derive(Clone)]
pub struct Account {
    pub tables: Arc<dyn TableStore>,
    pub queues: Arc<dyn QueueStore>,
    pub blobs: Arc<dyn BlobStore>,
    /// The clocks of the services, estimated from their answers.
    pub clocks: Arc<ServiceClocks>,
}

/// Kind and replication of an account, in Azure's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountFacts {
    /// Such as `StorageV2`.
    pub kind: String,
    /// Performance and replication, such as `Standard_LRS`.
    pub sku: String,
}

#[derive(Clone, Default)]
pub struct Stores {
    accounts: Arc<BTreeMap<AccountName, Account>>,
    sinks: Arc<BTreeMap<AccountName, Arc<dyn Sink>>>,
    files: Option<Arc<dyn FileStore>>,
    vault: Option<Arc<dyn Vault>>,
}

/// An account that is not configured. Either a footprint of an older catalog names the account, or this is a bug, because `config` checks
/// every name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("account {0:?} is not configured; add [accounts.{0}]")]
pub struct UnknownAccount(pub AccountName);

/// A sink that is not configured, although a footprint lists documents in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "sink {0:?} is not configured; add [sinks.{0}], and keep it until its documents are dropped"
)]
pub struct UnknownSink(pub AccountName);

/// The program was built without access to shared folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this program was built without access to shared folders")]
pub struct NoFiles;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no key-encryption key is configured. Add the secret of the key that [encryption] names, or ask someone who has it"
)]
pub struct NoVault;

impl Stores {
    pub fn new(accounts: BTreeMap<AccountName, Account>) -> Self {
        Self {
            accounts: Arc::new(accounts),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn with_files(self, files: Arc<dyn FileStore>) -> Self {
        Self {
            files: Some(files),
            ..self
        }
    }

    #[must_use]
    pub fn with_sinks(self, sinks: BTreeMap<AccountName, Arc<dyn Sink>>) -> Self {
        Self {
            sinks: Arc::new(sinks),
            ..self
        }
    }

    #[must_use]
    pub fn with_vault(self, vault: Option<Arc<dyn Vault>>) -> Self {
        Self { vault, ..self }
    }

    pub fn vault(&self) -> Result<&dyn Vault, NoVault> {
        self.vault.as_deref().ok_or(NoVault)
    }

    pub fn sink(&self, name: &AccountName) -> Result<&dyn Sink, UnknownSink> {
        self.sinks
            .get(name)
            .map(AsRef::as_ref)
            .ok_or_else(|| UnknownSink(name.clone()))
    }

    pub fn files(&self) -> Result<&dyn FileStore, NoFiles> {
        self.files.as_deref().ok_or(NoFiles)
    }

    pub fn account(&self, name: &AccountName) -> Result<&Account, UnknownAccount> {
        self.accounts
            .get(name)
            .ok_or_else(|| UnknownAccount(name.clone()))
    }

    /// All accounts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&AccountName, &Account)> {
        self.accounts.iter()
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.accounts.keys()).finish()
    }
}
