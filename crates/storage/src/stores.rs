//! The accounts and sinks that the configuration names, and the folders that workers share.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{BlobStore, FileStore, QueueStore, ServiceClocks, Sink, TableStore, Vault};
use evenkeel_model::AccountName;

/// The three services of one storage account.
#[derive(Clone)]
pub struct Account {
    /// Its tables.
    pub tables: Arc<dyn TableStore>,
    /// Its queues.
    pub queues: Arc<dyn QueueStore>,
    /// Its blobs.
    pub blobs: Arc<dyn BlobStore>,
    /// The services' clock offsets, as learnt from their answers.
    pub clocks: Arc<ServiceClocks>,
}

/// Kind and replication of an account, in the words of Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountFacts {
    /// `StorageV2` for instance.
    pub kind: String,
    /// Performance and replication: `Standard_LRS` for instance.
    pub sku: String,
}

/// All accounts, by the names that the configuration gives them.
#[derive(Clone, Default)]
pub struct Stores {
    accounts: Arc<BTreeMap<AccountName, Account>>,
    sinks: Arc<BTreeMap<AccountName, Arc<dyn Sink>>>,
    files: Option<Arc<dyn FileStore>>,
    vault: Option<Arc<dyn Vault>>,
}

/// An account that the configuration does not name. `config` checks every name, so this is a bug or a
/// footprint that an older catalog wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the account {0:?} is not configured: add [accounts.{0}]")]
pub struct UnknownAccount(pub AccountName);

/// A sink that the configuration does not name: a footprint lists documents in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sink {0:?} is not configured: add [sinks.{0}], and keep it until the documents in it are dropped"
)]
pub struct UnknownSink(pub AccountName);

/// The program was built without access to shared folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this program was put together without files")]
pub struct NoFiles;

/// No key-encryption key is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no key-encryption key is configured here: set the one that [encryption] names, or ask whoever may read encrypted properties"
)]
pub struct NoVault;

impl Stores {
    /// All accounts.
    pub fn new(accounts: BTreeMap<AccountName, Account>) -> Self {
        Self {
            accounts: Arc::new(accounts),
            ..Self::default()
        }
    }

    /// With shared folders beside the accounts.
    #[must_use]
    pub fn with_files(self, files: Arc<dyn FileStore>) -> Self {
        Self {
            files: Some(files),
            ..self
        }
    }

    /// With sinks beside the accounts.
    #[must_use]
    pub fn with_sinks(self, sinks: BTreeMap<AccountName, Arc<dyn Sink>>) -> Self {
        Self {
            sinks: Arc::new(sinks),
            ..self
        }
    }

    /// With key-encryption keys beside the accounts.
    #[must_use]
    pub fn with_vault(self, vault: Option<Arc<dyn Vault>>) -> Self {
        Self { vault, ..self }
    }

    /// The key-encryption keys.
    pub fn vault(&self) -> Result<&dyn Vault, NoVault> {
        self.vault.as_deref().ok_or(NoVault)
    }

    /// One sink.
    pub fn sink(&self, name: &AccountName) -> Result<&dyn Sink, UnknownSink> {
        self.sinks
            .get(name)
            .map(AsRef::as_ref)
            .ok_or_else(|| UnknownSink(name.clone()))
    }

    /// The shared folders.
    pub fn files(&self) -> Result<&dyn FileStore, NoFiles> {
        self.files.as_deref().ok_or(NoFiles)
    }

    /// One account.
    pub fn account(&self, name: &AccountName) -> Result<&Account, UnknownAccount> {
        self.accounts
            .get(name)
            .ok_or_else(|| UnknownAccount(name.clone()))
    }

    /// All accounts, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&AccountName, &Account)> {
        self.accounts.iter()
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.accounts.keys()).finish()
    }
}
