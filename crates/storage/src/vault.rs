//! The port of key-encryption keys: whoever holds them wraps and unwraps the data keys of entities.

use async_trait::async_trait;

use evenkeel_model::KeyBytes;

/// A data key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    /// The name of the key-encryption key.
    pub key_id: String,
    /// The encrypted data key.
    pub bytes: Vec<u8>,
}

/// Why a vault did not answer with a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// It has no key-encryption key of this name.
    #[error(
        "the key-encryption key {key_id:?} is not configured: add [encryption.keys.{key_id}], and keep it until `evenkeel keys rewrap` says that nothing is wrapped by it; configured are {known}"
    )]
    UnknownKey {
        /// The name.
        key_id: String,
        /// Known names.
        known: String,
    },
    /// The key of this name is another one, or the wrapped key was changed, or belongs to another owner.
    #[error(
        "the key-encryption key {0:?} does not unwrap this data key: another key has that name here, or the row was changed"
    )]
    Refused(String),
    /// The key vault does not answer now.
    #[error("the key vault of {vault} does not answer: {problem}")]
    Away {
        /// The address of its key.
        vault: String,
        /// The problem.
        problem: String,
    },
    /// The key vault refuses the identity.
    #[error("the key vault of {vault} refuses this identity: {problem}")]
    Forbidden {
        /// The address of its key.
        vault: String,
        /// The problem.
        problem: String,
    },
    /// The key vault has no such key or version, or cannot do with it what was asked for.
    #[error("the key vault of {vault} rejects the request: {problem}")]
    Rejected {
        /// The address of its key.
        vault: String,
        /// The problem.
        problem: String,
    },
}

impl VaultError {
    /// Whether every entity that needs this key fails alike, until an operator acts.
    pub const fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::UnknownKey { .. } | Self::Forbidden { .. } | Self::Rejected { .. }
        )
    }
}

/// Key-encryption keys. `owner` is authenticated with each data key: one that is moved to another owner is not unwrapped.
#[async_trait]
pub trait Vault: Send + Sync {
    /// The name of the key that wraps new data keys.
    fn current(&self) -> &str;

    /// A new data key, in clear and wrapped by the current key.
    async fn generate(&self, owner: &[u8]) -> Result<(KeyBytes, WrappedKey), VaultError>;

    /// Wraps a data key by the current key.
    async fn wrap(&self, key: &KeyBytes, owner: &[u8]) -> Result<WrappedKey, VaultError>;

    /// The data key in clear.
    async fn unwrap(&self, wrapped: &WrappedKey, owner: &[u8]) -> Result<KeyBytes, VaultError>;
}
