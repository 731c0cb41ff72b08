//! Checks of an encrypted property, which a quarter of the seeds of `company` and 30 % of the seeds of `patterns` have.
//! The value of a put must be stored encrypted, must decrypt to the same value, and must not be stored anywhere in
//! plain text.

use evenkeel_account::company::SSN;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_model::job::Primary;
use evenkeel_model::{EdmValue, KeyBytes};
use evenkeel_storage::encryption::{DataKeys, PREFIX, PropertyAddress};
use evenkeel_storage::vault::{Vault, VaultError, WrappedKey};
use sha2::{Digest as _, Sha256};

use super::client::EMPLOYEES;
use super::history::{SOURCE, TARGET, VERSION};
use super::oracle::Tables;
use evenkeel_account::company::table;

/// Every plain-text value of the property contains this word. Nothing else does.
const CANARY: &str = "canary";
const KEY_ID: &str = "k1";

pub(super) fn plain(version: i64) -> String {
    format!("{CANARY} {version}")
}

/// Replaces encrypted values and plain values by the same text, so that encryption does not matter when contents are
/// compared. Encryption is checked separately.
pub(super) fn compared(value: &EdmValue) -> EdmValue {
    let text = value.as_str().unwrap_or_default();
    if text.starts_with(PREFIX) || text.starts_with(CANARY) {
        EdmValue::from(CANARY)
    } else {
        value.clone()
    }
}

pub(super) fn is_in_clear(text: &str) -> bool {
    text.contains(CANARY)
}

pub(super) fn check(execution: &Execution<'_>) -> Result<(), String> {
    let told = execution.changes.iter().find(|change| match change {
        ObservedChange::Row { row: Some(row), .. } => row
            .entity
            .properties
            .values()
            .filter_map(EdmValue::as_str)
            .any(is_in_clear),
        ObservedChange::Blob {
            blob: Some(blob), ..
        } => is_in_clear(&String::from_utf8_lossy(&blob.content)),
        _ => false,
    });
    told.map_or(Ok(()), |change| {
        Err(format!(
            "a value that must be encrypted is stored in plain text: {change:?}"
        ))
    })
}

pub(super) async fn judge(tables: &Tables, keys: DataKeys<'_>) -> Result<(), String> {
    let rows = [SOURCE, TARGET]
        .into_iter()
        .filter_map(|name| tables.get(name))
        .flatten();
    let primaries = rows.filter(|row| row.entity.text("ek_view").is_none());
    for (entity, ciphertext) in
        primaries.filter_map(|row| Some((&row.entity, row.entity.text(SSN)?)))
    {
        let home = Primary {
            table: table(EMPLOYEES),
            key: entity.key.clone(),
        };
        let key = keys
            .find(&home)
            .await
            .map_err(|error| format!("{home}: {error}"))?;
        let key = key.ok_or_else(|| format!("{home} has an encrypted value but no data key"))?;
        let decrypted = key
            .decrypt(
                PropertyAddress {
                    home: &home,
                    property: SSN,
                },
                ciphertext,
            )
            .map_err(|error| format!("{home}: {error}"))?;
        let expected = match entity.get(VERSION) {
            Some(EdmValue::Int64(version)) => plain(*version),
            other => {
                return Err(format!(
                    "{home} has an encrypted value, but its version {other:?} is not an Int64"
                ));
            }
        };
        if decrypted.as_str() != Some(&expected) {
            return Err(format!(
                "the encrypted value of {home} decrypts to {decrypted:?}, expected {expected:?}"
            ));
        }
    }
    Ok(())
}

/// A vault that derives its keys from the number of the request, so that equal seeds give equal keys.
#[derive(Debug, Default)]
pub(super) struct SimulatedVault(AtomicU64);

impl SimulatedVault {
    /// A key is wrapped by XOR with a pad of its owner. So a key that is unwrapped for another owner is a different
    /// key.
    fn pad(owner: &[u8]) -> [u8; 32] {
        Sha256::digest(owner).into()
    }

    fn padded(bytes: &[u8], owner: &[u8]) -> Vec<u8> {
        bytes
            .iter()
            .zip(Self::pad(owner))
            .map(|(byte, pad)| byte ^ pad)
            .collect()
    }
}

#[async_trait]
impl Vault for SimulatedVault {
    fn current(&self) -> &str {
        KEY_ID
    }

    async fn generate(&self, owner: &[u8]) -> Result<(KeyBytes, WrappedKey), VaultError> {
        let drawn = self.0.fetch_add(1, Ordering::Relaxed);
        let key = KeyBytes(Sha256::digest([owner, &drawn.to_be_bytes()].concat()).into());
        let wrapped = self.wrap(&key, owner).await?;
        Ok((key, wrapped))
    }

    async fn wrap(&self, key: &KeyBytes, owner: &[u8]) -> Result<WrappedKey, VaultError> {
        Ok(WrappedKey {
            key_id: KEY_ID.to_owned(),
            bytes: Self::padded(&key.0, owner),
        })
    }

    async fn unwrap(&self, wrapped: &WrappedKey, owner: &[u8]) -> Result<KeyBytes, VaultError> {
        let bytes = Self::padded(&wrapped.bytes, owner).try_into();
        bytes
            .map(KeyBytes)
            .map_err(|_| VaultError::Refused(wrapped.key_id.clone()))
    }
}
