//! `[encryption]`: the key-encryption keys of encrypted properties.

use std::collections::BTreeMap;
use std::sync::Arc;

use url::Url;

use super::Identity;
use crate::KeyBytes;

/// Key-encryption keys by name. `Debug` prints none of them.
#[derive(Debug, Clone, Default)]
pub struct EncryptionSettings {
    /// The name of the key that wraps new data keys; nothing where no table says `encrypt`.
    pub current: Option<String>,
    /// Those whose secrets are set here, or lie wrapped here.
    pub keys: BTreeMap<String, KeySource>,
    /// Keys of a vault that no key-encryption key is wrapped by yet.
    pub unused: BTreeMap<String, VaultKey>,
}

/// Where a key-encryption key comes from.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// Its secret is set here.
    Here(KeyBytes),
    /// It is wrapped by a key of a vault, which unwraps it once in a process.
    Wrapped {
        /// The key of the vault.
        by: VaultKey,
        /// The version of it that has wrapped, and what it answered.
        wrapped: WrappedText,
    },
}

/// Endings of the hosts of Azure's key vaults, in its clouds.
pub const VAULT_DOMAINS: [&str; 3] = [
    ".vault.azure.net",
    ".vault.azure.cn",
    ".vault.usgovcloudapi.net",
];

/// A key of an Azure Key Vault.
#[derive(Debug, Clone)]
pub struct VaultKey {
    /// Its address without a version: `https://contoso.vault.azure.net/keys/evenkeel`.
    pub address: Url,
    /// The identity that may wrap and unwrap with it.
    pub identity: Arc<Identity>,
}

/// A key-encryption key as a vault wrapped it: `VERSION.BASE64URL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedText {
    /// The version of the vault's key.
    pub version: String,
    /// What it answered, in base64url.
    pub value: String,
}

impl EncryptionSettings {
    /// The current key, where it is declared and its secret is not set here.
    pub fn missing(&self) -> Option<&str> {
        self.current
            .as_deref()
            .filter(|current| !self.keys.contains_key(*current))
    }
}

impl WrappedText {
    /// Reads it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let word = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        match text.trim().split_once('.') {
            Some((version, value)) if word(version) && word(value) => Ok(Self {
                version: version.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err("expected what `evenkeel keys new` prints: VERSION.BASE64URL".to_owned()),
        }
    }
}

impl std::fmt::Display for WrappedText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.version, self.value)
    }
}
