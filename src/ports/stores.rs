//! The accounts that the configuration names.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{BlobStore, QueueStore, TableStore};
use crate::model::AccountName;

/// The three services of one storage account.
#[derive(Clone)]
pub struct Account {
    /// Its tables.
    pub tables: Arc<dyn TableStore>,
    /// Its queues.
    pub queues: Arc<dyn QueueStore>,
    /// Its blobs.
    pub blobs: Arc<dyn BlobStore>,
}

/// All accounts, by the names that the configuration gives them.
#[derive(Clone, Default)]
pub struct Stores {
    accounts: Arc<BTreeMap<AccountName, Account>>,
}

/// An account that the configuration does not name. `config` checks every name, so this is a bug or a
/// footprint that an older catalog wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the account {0:?} is not configured: add [accounts.{0}]")]
pub struct UnknownAccount(pub AccountName);

impl Stores {
    /// All accounts.
    pub fn new(accounts: BTreeMap<AccountName, Account>) -> Self {
        Self { accounts: Arc::new(accounts) }
    }

    /// One account.
    pub fn account(&self, name: &AccountName) -> Result<&Account, UnknownAccount> {
        self.accounts.get(name).ok_or_else(|| UnknownAccount(name.clone()))
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
