//! The port of key-encryption keys, which wrap and unwrap the data keys of entities.

use async_trait::async_trait;

use evenkeel_model::KeyBytes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    /// The name of the key-encryption key.
    pub key_id: String,
    /// The encrypted data key.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    #[error(
        "key-encryption key {key_id:?} is not configured; configured are {known}. Add [encryption.keys.{key_id}], and keep it until `evenkeel keys rewrap` no longer finds it"
    )]
    UnknownKey { key_id: String, known: String },
    /// The name stands for another key now, or the wrapped key was changed or belongs to another owner.
    #[error(
        "key-encryption key {0:?} cannot unwrap this data key: the configured key is another one, or the row was changed"
    )]
    Refused(String),
    #[error("key vault {vault} does not answer: {problem}")]
    Away { vault: String, problem: String },
    #[error("key vault {vault} refuses this identity: {problem}")]
    Forbidden { vault: String, problem: String },
    /// The key vault has no such key or version, or the key does not allow the operation.
    #[error("key vault {vault} rejects the request: {problem}")]
    Rejected { vault: String, problem: String },
}

impl VaultError {
    /// Whether every entity that needs this key will fail until an operator acts.
    pub const fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::UnknownKey { .. } | Self::Forbidden { .. } | Self::Rejected { .. }
        )
    }
}

/// Key-encryption keys. `owner` is authenticated with each data key, so a data key that was moved to another owner cannot be unwrapped.
#[async_trait]
pub trait Vault: Send + Sync {
    /// The name of the key that wraps new data keys.
    fn current(&self) -> &str;

    /// Creates a data key, in plain text and wrapped by the current key.
    async fn generate(&self, owner: &[u8]) -> Result<(KeyBytes, WrappedKey), VaultError>;

    /// Wraps a data key with the current key.
    async fn wrap(&self, key: &KeyBytes, owner: &[u8]) -> Result<WrappedKey, VaultError>;

    async fn unwrap(&self, wrapped: &WrappedKey, owner: &[u8]) -> Result<KeyBytes, VaultError>;
}
