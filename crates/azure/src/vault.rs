//! Key-encryption keys from the configuration or unwrapped by a key vault, used with AES-256-GCM (256 bits).
//!
//! ```text
//!   wrapped data key   nonce (12 random bytes) ‖ AES-256-GCM(key, nonce, data key, associated data)
//!   associated data    "evenkeel/1 key" ‖ 0x00 ‖ name of the key ‖ 0x00 ‖ owner
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use tokio::sync::OnceCell;

use crate::key_vault::VaultKeyClient;
use evenkeel_model::KeyBytes;
use evenkeel_model::settings::{EncryptionSettings, KeySource, VaultKey, WrappedText};
use evenkeel_storage::vault::{Vault, VaultError, WrappedKey};

/// Key-encryption keys in memory. Some are unwrapped by a key vault on first use.
pub struct LocalVault {
    current: String,
    keys: BTreeMap<String, KeyState>,
}

enum KeyState {
    Plain(LessSafeKey),
    Wrapped {
        by: Box<VaultKeyClient>,
        wrapped: WrappedText,
        unwrapped: OnceCell<LessSafeKey>,
    },
}

/// Opens the configured keys. Returns `None` without `[encryption]`. Nothing is sent yet.
pub fn open(settings: &EncryptionSettings) -> Result<Option<Arc<dyn Vault>>, VaultOpenError> {
    let Some(current) = settings.current.clone() else {
        return Ok(None);
    };
    let held = |(name, source): (&String, &KeySource)| {
        let held = match source {
            KeySource::Here(key) => KeyState::Plain(usable(key).ok_or(VaultOpenError::Unusable)?),
            KeySource::Wrapped { by, wrapped } => KeyState::Wrapped {
                by: Box::new(VaultKeyClient::new(name, by).map_err(VaultOpenError::Client)?),
                wrapped: wrapped.clone(),
                unwrapped: OnceCell::new(),
            },
        };
        Ok((name.clone(), held))
    };
    let keys = settings
        .keys
        .iter()
        .map(held)
        .collect::<Result<_, VaultOpenError>>()?;
    Ok(Some(Arc::new(LocalVault { current, keys })))
}

/// Generates a key-encryption key and returns it wrapped by a vault, as the value of `wrapped_key`. The plain key is discarded.
pub async fn draw(name: &str, by: &VaultKey) -> Result<WrappedText, DrawError> {
    let mut key = KeyBytes([0; 32]);
    rand::fill(&mut key.0).map_err(|_| VaultOpenError::Unusable)?;
    let client = VaultKeyClient::new(name, by).map_err(VaultOpenError::Client)?;
    Ok(client.wrap(&key).await?)
}

#[derive(Debug, thiserror::Error)]
pub enum VaultOpenError {
    /// Setting up TLS with this machine's certificates failed.
    #[error("the HTTP client could not be set up")]
    Client(#[source] reqwest::Error),
    #[error("the cryptographic library lacks AES-256-GCM or random numbers")]
    Unusable,
}

#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    #[error(transparent)]
    Open(#[from] VaultOpenError),
    #[error(transparent)]
    Vault(#[from] VaultError),
}

fn usable(key: &KeyBytes) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, &key.0)
        .ok()
        .map(LessSafeKey::new)
}

impl LocalVault {
    /// Takes the keys by name. `current` wraps new data keys.
    pub fn new(current: &str, keys: impl IntoIterator<Item = (String, KeyBytes)>) -> Self {
        let held = |(name, key): (String, KeyBytes)| Some((name, KeyState::Plain(usable(&key)?)));
        Self {
            current: current.to_owned(),
            keys: keys.into_iter().filter_map(held).collect(),
        }
    }

    async fn key(&self, key_id: &str) -> Result<&LessSafeKey, VaultError> {
        let known = || match self.keys.keys().map(String::as_str).collect::<Vec<_>>() {
            names if names.is_empty() => "none".to_owned(),
            names => names.join(", "),
        };
        match self.keys.get(key_id) {
            Some(KeyState::Plain(key)) => Ok(key),
            // Concurrent callers share one request. A failure is not cached.
            Some(KeyState::Wrapped {
                by,
                wrapped,
                unwrapped,
            }) => {
                let unwrap = async || {
                    usable(&by.unwrap(wrapped).await?)
                        .ok_or_else(|| VaultError::Refused(key_id.to_owned()))
                };
                unwrapped.get_or_try_init(unwrap).await
            }
            None => Err(VaultError::UnknownKey {
                key_id: key_id.to_owned(),
                known: known(),
            }),
        }
    }
}

impl std::fmt::Debug for LocalVault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalVault({:?})", self.keys.keys())
    }
}

fn associated(key_id: &str, owner: &[u8]) -> Aad<Vec<u8>> {
    Aad::from([b"evenkeel/1 key", key_id.as_bytes(), owner].join(&0))
}

#[async_trait]
impl Vault for LocalVault {
    fn current(&self) -> &str {
        &self.current
    }

    async fn generate(&self, owner: &[u8]) -> Result<(KeyBytes, WrappedKey), VaultError> {
        let mut key = KeyBytes([0; 32]);
        rand::fill(&mut key.0).map_err(|_| VaultError::Refused(self.current.clone()))?;
        let wrapped = self.wrap(&key, owner).await?;
        Ok((key, wrapped))
    }

    async fn wrap(&self, key: &KeyBytes, owner: &[u8]) -> Result<WrappedKey, VaultError> {
        let refused = |_| VaultError::Refused(self.current.clone());
        let (mut nonce, mut bytes) = ([0; NONCE_LEN], key.0.to_vec());
        rand::fill(&mut nonce).map_err(refused)?;
        let wrapping = self.key(&self.current).await?;
        let encrypted = wrapping.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            associated(&self.current, owner),
            &mut bytes,
        );
        encrypted.map_err(refused)?;
        Ok(WrappedKey {
            key_id: self.current.clone(),
            bytes: [&nonce[..], &bytes].concat(),
        })
    }

    async fn unwrap(&self, wrapped: &WrappedKey, owner: &[u8]) -> Result<KeyBytes, VaultError> {
        let refused = || VaultError::Refused(wrapped.key_id.clone());
        let wrapping = self.key(&wrapped.key_id).await?;
        let (nonce, encrypted) = wrapped
            .bytes
            .split_first_chunk::<NONCE_LEN>()
            .ok_or_else(refused)?;
        let mut bytes = encrypted.to_vec();
        let opened = wrapping.open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            associated(&wrapped.key_id, owner),
            &mut bytes,
        );
        let opened = opened.map_err(|_| refused())?;
        <[u8; 32]>::try_from(&*opened)
            .map(KeyBytes)
            .map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    fn vault(current: &str, names: &[(&str, u8)]) -> LocalVault {
        LocalVault::new(
            current,
            names
                .iter()
                .map(|(name, byte)| ((*name).to_owned(), KeyBytes([*byte; 32]))),
        )
    }

    #[tokio::test]
    async fn a_data_key_is_unwrapped_by_the_key_that_wrapped_it_and_for_its_owner_alone() {
        let old = vault("a", &[("a", 1)]);
        let (key, wrapped) = old.generate(b"owner").await.unwrap();
        let both = vault("b", &[("a", 1), ("b", 2)]);
        assert_eq!(both.unwrap(&wrapped, b"owner").await, Ok(key.clone()));
        assert_eq!(
            both.unwrap(&wrapped, b"another").await,
            Err(VaultError::Refused("a".to_owned()))
        );
        let again = both.wrap(&key, b"owner").await.unwrap();
        assert_eq!(again.key_id, "b");
        assert_eq!(
            vault("b", &[("b", 2)]).unwrap(&again, b"owner").await,
            Ok(key.clone())
        );
        assert!(matches!(
            vault("b", &[("b", 2)]).unwrap(&wrapped, b"owner").await,
            Err(VaultError::UnknownKey { .. })
        ));
        assert_eq!(
            vault("a", &[("a", 9)]).unwrap(&wrapped, b"owner").await,
            Err(VaultError::Refused("a".to_owned()))
        );
        for length in 0..wrapped.bytes.len() {
            let cut = WrappedKey {
                bytes: wrapped.bytes[..length].to_vec(),
                ..wrapped.clone()
            };
            assert!(both.unwrap(&cut, b"owner").await.is_err());
        }
        assert_ne!(
            old.generate(b"owner").await.unwrap().0,
            key,
            "each data key is drawn"
        );
        assert_eq!(format!("{key:?}"), "KeyBytes(…)");
    }

    /// The vectors of docs/encryption.md, which the Python and Node.js samples also check.
    #[tokio::test]
    async fn the_documented_vectors_hold() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../../docs/encryption.vectors.json")).unwrap();
        let vectors = vectors["keys"].as_array().unwrap();
        assert!(!vectors.is_empty());
        for vector in vectors {
            let text = |name: &str| vector[name].as_str().unwrap();
            let key = KeyBytes(
                BASE64
                    .decode(text("key_encryption_key"))
                    .unwrap()
                    .try_into()
                    .unwrap(),
            );
            let vault = LocalVault::new(text("key_id"), [(text("key_id").to_owned(), key)]);
            let wrapped = WrappedKey {
                key_id: text("key_id").to_owned(),
                bytes: BASE64.decode(text("wrapped_key")).unwrap(),
            };
            let owner = serde_json::json!([text("table").to_lowercase(), text("pk"), text("rk")])
                .to_string();
            let unwrapped = vault.unwrap(&wrapped, owner.as_bytes()).await.unwrap();
            assert_eq!(hex::encode(unwrapped.0), text("data_key"));
        }
    }
}
