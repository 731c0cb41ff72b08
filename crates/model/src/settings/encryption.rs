//! `[encryption]`: the key-encryption keys of encrypted properties.

use std::collections::BTreeMap;
use std::sync::Arc;

use url::Url;

use super::Identity;
use crate::KeyBytes;

/// Key-encryption keys by name. `Debug` prints none of them.
#[derive(Debug, Clone, Default)]
pub struct EncryptionSettings {
    /// The name of the key that wraps new data keys; `None` if no table has `encrypt`.
    pub current: Option<String>,
    /// Keys whose secrets are configured here, in plain or wrapped form.
    pub keys: BTreeMap<String, KeySource>,
    /// Vault keys that have not wrapped a key-encryption key yet.
    pub unused: BTreeMap<String, VaultKey>,
}

/// Where a key-encryption key comes from.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// The configuration contains the secret itself.
    Here(KeyBytes),
    /// The configuration contains the secret in wrapped form. A vault key unwraps the secret once
    /// per process.
    Wrapped {
        /// The vault key.
        by: VaultKey,
        /// The wrapped key, with the version of the vault key.
        wrapped: WrappedText,
    },
}

/// Host suffixes of Azure Key Vault in its clouds.
pub const VAULT_DOMAINS: [&str; 3] = [
    ".vault.azure.net",
    ".vault.azure.cn",
    ".vault.usgovcloudapi.net",
];

/// A key of an Azure Key Vault.
#[derive(Debug, Clone)]
pub struct VaultKey {
    /// The address of the key without a version: `https://contoso.vault.azure.net/keys/evenkeel`.
    pub address: Url,
    /// The identity that may wrap and unwrap with the key.
    pub identity: Arc<Identity>,
}

/// A key-encryption key as a vault wrapped it: `VERSION.BASE64URL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedText {
    /// The version of the vault's key.
    pub version: String,
    /// The wrapped key, in base64url.
    pub value: String,
}

impl EncryptionSettings {
    /// The name of the current key, if the key is declared without its secret.
    pub fn missing(&self) -> Option<&str> {
        self.current
            .as_deref()
            .filter(|current| !self.keys.contains_key(*current))
    }
}

impl WrappedText {
    /// Parses a text of the form `VERSION.BASE64URL`.
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
