//! Encrypts properties before a job is sent, and decrypts properties after a row is read. Properties are encrypted and decrypted only if
//! the configuration has the key-encryption keys.

use std::borrow::Cow;
use std::collections::BTreeSet;

use futures::stream::{StreamExt as _, TryStreamExt as _, iter};
use serde_json::{Map, Value};

use super::submission::packed;
use super::{Client, ClientError, PreparedMessage, WholeEntity};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::{self, Primary};
use evenkeel_model::large::Pointer;
use evenkeel_model::patterns::has_copy_at;
use evenkeel_model::{Entity, Row};
use evenkeel_storage::encryption::{
    DataKey, DataKeyError, DataKeys, DecryptError, PropertyAddress, is_encrypted, plain_entities,
};
use evenkeel_storage::vault::VaultError;

/// Maximum number of data keys read concurrently.
const PARALLEL: usize = 16;

/// The result of decrypting rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DecryptedRows {
    /// Properties that are still encrypted in some rows, because the key-encryption key for them is not available.
    pub still_encrypted: BTreeSet<String>,
    /// Storage requests sent.
    pub requests: u64,
}

/// The primary that a row was copied from. If the row is not a copy, the origin is the row itself.
pub(super) struct Origin<'e> {
    pub(super) table: TableRef,
    pub(super) entity: Cow<'e, Entity>,
}

/// Why properties could not be decrypted or encrypted.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The data key could not be read or created.
    #[error(transparent)]
    Key(#[from] DataKeyError),
    /// A value could not be decrypted with the data key of its entity.
    #[error(transparent)]
    Decrypt(#[from] DecryptError),
    /// The entity has no data key.
    #[error(
        "{0} has encrypted values but no data key: the key was erased, or the values belong to another entity"
    )]
    Erased(Primary),
    /// The requested property could not be decrypted, since no key-encryption key for it is available.
    #[error(
        "could not decrypt {0}: [encryption.keys] has no key for it, or the row is not a copy of the primary that it names"
    )]
    Encrypted(String),
    /// The property is stored in plain text although the catalog declares it as encrypted.
    #[error(
        "{0} is stored in plain text but must be encrypted. Encrypt older values with `evenkeel keys encrypt`, or read them with --allow-plain (Client::allowing_plain)"
    )]
    Plain(String),
}

impl Client {
    /// Decrypts properties of rows in place. The data key of a primary is selected by its table and key. An archived entity keeps the
    /// data key that it had in the source table. A copy has the data key of its primary. For each row with encrypted values, one
    /// request reads the data key. For a copy, at least one more request reads the primary.
    ///
    /// A value stays encrypted, as a text that begins with `ek1.`, if the configuration has no key-encryption key for it. It also stays
    /// encrypted if the row names a primary that no longer has this copy, because the row is then outdated or was written by another
    /// program.
    ///
    /// # Errors
    ///
    /// [`ClientError::Encryption`] if a value was modified, or moved from another property or entity; if its data key was erased; or if
    /// it is stored in plain text and the client is not [`allowing_plain`](Self::allowing_plain). An earlier encrypted value of the same
    /// property of the same entity is accepted, because it cannot be distinguished from the present value.
    ///
    /// ```
    /// # use evenkeel_client::{Client, ClientError};
    /// # use evenkeel_model::{Row, catalog::TableRef};
    /// # async fn example(client: &Client, table: &TableRef, mut rows: Vec<Row>) -> Result<(), ClientError> {
    /// let decrypted = client.decrypt(table, &mut rows).await?;
    /// assert!(decrypted.still_encrypted.is_empty(), "no key for {:?}", decrypted.still_encrypted);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn decrypt(
        &self,
        table: &TableRef,
        rows: &mut [Row],
    ) -> Result<DecryptedRows, ClientError> {
        if self.catalog.encrypted.is_empty() {
            return Ok(DecryptedRows::default());
        }
        let decrypted = iter(rows.iter_mut())
            .map(|row| self.decrypt_row(table, row))
            .buffered(PARALLEL);
        let add = |all: DecryptedRows, one: DecryptedRows| async move {
            Ok(DecryptedRows {
                still_encrypted: all
                    .still_encrypted
                    .into_iter()
                    .chain(one.still_encrypted)
                    .collect(),
                requests: all.requests + one.requests,
            })
        };
        decrypted.try_fold(DecryptedRows::default(), add).await
    }

    pub(super) fn is_encrypted(&self, table: &TableRef, property: &str) -> bool {
        self.encrypted
            .get(&table.table)
            .is_some_and(|encrypted| encrypted.contains(property))
    }

    async fn decrypt_row(
        &self,
        table: &TableRef,
        row: &mut Row,
    ) -> Result<DecryptedRows, ClientError> {
        let encrypted = self.encrypted.get(&table.table).into_iter().flatten();
        // A pointer itself is not encrypted, only the value in its blob is.
        let present = encrypted.filter(|property| {
            row.entity
                .get(property)
                .is_some_and(|value| Pointer::of(value).is_none())
        });
        let (encrypted, plain): (Vec<&String>, Vec<&String>) =
            present.partition(|property| row.entity.get(property).is_some_and(is_encrypted));
        if encrypted.is_empty() && (plain.is_empty() || self.allows_plain) {
            return Ok(DecryptedRows::default());
        }
        let (origin, mut requests) = self.origin(table, &row.entity).await?;
        let is_due = |property: &&&String| {
            origin
                .as_ref()
                .is_none_or(|origin| self.is_due(origin, property))
        };
        if let Some(property) = plain.iter().find(is_due).filter(|_| !self.allows_plain) {
            let itself = Primary {
                table: table.table.clone(),
                key: row.entity.key.clone(),
            };
            return Err(failed(&itself, EncryptionError::Plain((*property).clone())));
        }
        let names = || encrypted.iter().copied().cloned().collect();
        let Some((source, home)) = origin.as_ref().and_then(|origin| {
            self.catalog
                .encryption_owner(&origin.table, &origin.entity.key)
        }) else {
            return Ok(DecryptedRows {
                still_encrypted: names(),
                requests,
            });
        };
        if encrypted.is_empty() {
            return Ok(DecryptedRows {
                requests,
                ..DecryptedRows::default()
            });
        }
        requests += 1;
        let Some(key) = self.key_to_decrypt(source, &home).await? else {
            return Ok(DecryptedRows {
                still_encrypted: names(),
                requests,
            });
        };
        for property in encrypted {
            if let Some(value) = row.entity.properties.get_mut(property) {
                let decrypted = key.decrypt(
                    PropertyAddress {
                        home: &home,
                        property,
                    },
                    value.as_str().unwrap_or_default(),
                );
                *value = decrypted.map_err(|error| failed(&home, error.into()))?;
            }
        }
        Ok(DecryptedRows {
            requests,
            ..DecryptedRows::default()
        })
    }

    /// Whether the catalog requires that a property of this origin is encrypted. If the table has a condition for
    /// encryption, only entities that satisfy the condition are encrypted.
    fn is_due(&self, origin: &Origin<'_>, property: &str) -> bool {
        let home = self
            .catalog
            .encryption_owner(&origin.table, &origin.entity.key);
        self.is_encrypted(&origin.table, property)
            && home.is_none_or(|(source, _)| self.catalog.encrypts(source, &origin.entity))
    }

    /// Returns the primary that a row comes from, and the number of requests sent. If the row is a copy, its primary is read; if the
    /// primary is a copy as well, its own primary is read, and so on. A row that no view wrote is its own origin. The origin is `None` if
    /// one of these primaries does not exist, or no longer has this copy.
    pub(super) async fn origin<'e>(
        &self,
        table: &TableRef,
        row: &'e Entity,
    ) -> Result<(Option<Origin<'e>>, u64), ClientError> {
        let (mut origin, mut requests) = (
            Origin {
                table: table.clone(),
                entity: Cow::Borrowed(row),
            },
            0,
        );
        // Views form no cycle, so a chain of copies has at most as many steps as there are views.
        for _ in 0..=self.catalog.views.len() {
            let Some((view, primary)) = self.catalog.claimed_copy(&origin.table, &origin.entity)
            else {
                return Ok((Some(origin), requests));
            };
            let whole = self.whole(&view.source, &primary.key).await?;
            requests += whole.as_ref().map_or(1, |whole| whole.requests);
            let Some(WholeEntity { row: found, .. }) = whole else {
                break;
            };
            if !has_copy_at(view, &primary, &found.entity, &origin.entity.key) {
                break;
            }
            origin = Origin {
                table: view.source.clone(),
                entity: Cow::Owned(found.entity),
            };
        }
        Ok((None, requests))
    }

    /// Returns the data key of an entity; `None` if the key-encryption key that wraps it is not available.
    async fn key_to_decrypt(
        &self,
        table: &TableRef,
        home: &Primary,
    ) -> Result<Option<DataKey>, ClientError> {
        let Some(keys) = self.data_keys(table)? else {
            return Ok(None);
        };
        match keys.find(home).await {
            Ok(Some(key)) => Ok(Some(key)),
            Ok(None) => Err(failed(home, EncryptionError::Erased(home.clone()))),
            Err(DataKeyError::Vault {
                source: VaultError::UnknownKey { .. },
                ..
            }) => Ok(None),
            Err(error) => Err(failed(home, error.into())),
        }
    }

    fn data_keys(&self, table: &TableRef) -> Result<Option<DataKeys<'_>>, ClientError> {
        let tables = self.account(&table.account)?.tables.as_ref();
        Ok(self
            .stores
            .vault()
            .ok()
            .map(|vault| DataKeys { tables, vault }))
    }

    /// Returns the keyed hash of a text, with the hash key of a table.
    pub(super) async fn hashed(
        &self,
        table: &TableRef,
        name: &str,
        text: &str,
    ) -> Result<String, ClientError> {
        let keys = self.data_keys(table)?.ok_or_else(|| {
            ClientError::Unknown(format!(
                "cannot compute the keyed hash {name}: the configuration has no [encryption]"
            ))
        })?;
        let key = keys.of_hashes(&table.table).await;
        let key = key.map_err(|error| ClientError::Encryption {
            doing: format!("could not read the hash key of {table}"),
            source: Box::new(error.into()),
        })?;
        Ok(key.hash(name, text))
    }

    /// Encrypts the properties in a message. Because encryption makes a batch larger, the result may consist of several
    /// messages. Returns `None` if nothing has to be encrypted. Also returns `None` if a key-encryption key is not
    /// available, because the worker then encrypts the properties.
    pub(super) async fn encrypted_texts(
        &self,
        job: &PreparedMessage,
    ) -> Result<Option<Vec<String>>, ClientError> {
        if self.catalog.encrypted.is_empty() {
            return Ok(None);
        }
        let Ok(mut message) = job::decode_object(&job.text) else {
            return Ok(None);
        };
        let plain = plain_entities(&message, &self.catalog);
        let keys = iter(plain.clone())
            .map(async |entity| self.key_to_encrypt(&entity.table, &entity.home).await)
            .buffered(PARALLEL);
        let Some(keys) = keys
            .try_collect::<Vec<_>>()
            .await?
            .into_iter()
            .collect::<Option<Vec<DataKey>>>()
        else {
            return Ok(None);
        };
        for (entity, key) in plain.iter().zip(&keys) {
            entity.encrypt(key, &mut message);
        }
        if plain.is_empty() {
            Ok(None)
        } else {
            texts(message).map(Some).map_err(ClientError::Job)
        }
    }

    /// Returns the data key of an entity, and creates it if it does not exist; `None` if no key-encryption key is
    /// available.
    async fn key_to_encrypt(
        &self,
        table: &TableRef,
        home: &Primary,
    ) -> Result<Option<DataKey>, ClientError> {
        let Some(keys) = self.data_keys(table)? else {
            return Ok(None);
        };
        match keys.find_or_draw(home).await {
            Ok(key) => Ok(Some(key)),
            Err(DataKeyError::Vault {
                source: VaultError::UnknownKey { .. },
                ..
            }) => Ok(None),
            Err(error) => Err(ClientError::Encryption {
                doing: format!("could not encrypt properties of {home}"),
                source: Box::new(error.into()),
            }),
        }
    }
}

/// Splits a message into halves until each part fits into a queue message.
fn texts(mut message: Map<String, Value>) -> Result<Vec<String>, String> {
    let refused = match packed(&Value::Object(message.clone()).to_string()) {
        Ok(text) => return Ok(vec![text]),
        Err(refused) => refused,
    };
    let Some(entities) = message
        .get_mut("entities")
        .and_then(Value::as_array_mut)
        .filter(|entities| entities.len() > 1)
    else {
        return Err(refused);
    };
    let rest = entities.split_off(entities.len() / 2);
    let mut second = message.clone();
    second.insert("entities".to_owned(), Value::Array(rest));
    Ok([texts(message)?, texts(second)?].concat())
}

pub(super) fn failed(home: &Primary, source: EncryptionError) -> ClientError {
    ClientError::Encryption {
        doing: format!("could not decrypt properties of {home}"),
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::body;
    use serde_json::json;

    #[test]
    fn a_batch_that_is_too_large_after_encryption_is_split_without_loss() {
        // Random text, because encrypted text cannot be compressed either.
        let noise = |seed: u64| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut digit = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                char::from(
                    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
                        [usize::try_from(state % 64).unwrap()],
                )
            };
            (0..200).map(|_| digit()).collect::<String>()
        };
        let entity = |number: u64| json!({"PartitionKey": "p", "RowKey": number.to_string(), "Ssn": noise(number + 1)});
        let all: Vec<Value> = (0..700).map(entity).collect();
        let message = json!({"op": "put", "table": "Employees", "mode": "merge", "entities": all});
        let texts = texts(message.as_object().unwrap().clone()).unwrap();
        assert!((3..=8).contains(&texts.len()), "{}", texts.len());
        let decoded: Vec<Value> = texts
            .iter()
            .map(|text| serde_json::from_str(&body::decode(text).unwrap().text).unwrap())
            .collect();
        assert!(decoded.iter().all(|message| message["mode"] == "merge"));
        let sent: Vec<Value> = decoded
            .iter()
            .flat_map(|message| message["entities"].as_array().unwrap().clone())
            .collect();
        assert_eq!(sent, all);
        let one = json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "p", "RowKey": "1", "Ssn": (0..400).map(noise).collect::<String>()}});
        assert!(
            super::texts(one.as_object().unwrap().clone())
                .unwrap_err()
                .contains("a message holds")
        );
    }
}
