//! Encrypted properties: sealed before a job is sent, opened after a row is read, where the key-encryption keys are here.

use std::collections::BTreeSet;

use futures::stream::{StreamExt as _, TryStreamExt as _, iter};
use serde_json::{Map, Value};

use super::submission::packed;
use super::{Client, ClientError, Prepared};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::model::Row;
use evenkeel_model::model::job::{self, Primary};
use evenkeel_model::ports::vault::VaultError;
use evenkeel_model::sealing::{DataKey, DataKeyError, DataKeys, SealedPlace, UnsealError, is_sealed, plain_entities};

/// Data keys read at once.
const PARALLEL: usize = 16;

/// What became of the sealed values of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenedRows {
    /// The properties that stay sealed in some rows: no key-encryption key for them is here.
    pub sealed: BTreeSet<String>,
    /// Storage requests that it took.
    pub requests: u64,
}

/// Why sealed values are not opened, or plain ones not sealed.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The data key is not to be had.
    #[error(transparent)]
    Key(#[from] DataKeyError),
    /// A value is not opened by its entity's data key.
    #[error(transparent)]
    Open(#[from] UnsealError),
    /// The entity has no data key.
    #[error("{0} has sealed values and no data key: its key was erased, or the values belong to another entity")]
    Erased(Primary),
    /// A value is asked for that stays sealed: the property.
    #[error("{0} stays sealed: this configuration has no key-encryption key for it ([encryption.keys])")]
    Sealed(String),
}

impl Client {
    /// Opens the encrypted properties of rows, each as its own or as its primary's, wherever views and archives have brought it. One
    /// request for each primary. Values stay sealed, as texts that begin with `ek1.`, where this configuration has no key-encryption
    /// key for them.
    ///
    /// # Errors
    ///
    /// [`ClientError::Encryption`] where a value was changed or belongs elsewhere, and where its data key was erased.
    ///
    /// ```
    /// # use evenkeel_client::{Client, ClientError, catalog::TableRef, model::Row};
    /// # async fn example(client: &Client, table: &TableRef, mut rows: Vec<Row>) -> Result<(), ClientError> {
    /// let opened = client.open(table, &mut rows).await?;
    /// assert!(opened.sealed.is_empty(), "no key for {:?}", opened.sealed);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open(&self, table: &TableRef, rows: &mut [Row]) -> Result<OpenedRows, ClientError> {
        if self.catalog.encrypted.is_empty() {
            return Ok(OpenedRows::default());
        }
        let opened = iter(rows.iter_mut()).map(|row| self.open_row(table, row)).buffered(PARALLEL);
        let add = |all: OpenedRows, one: OpenedRows| async move {
            Ok(OpenedRows { sealed: all.sealed.into_iter().chain(one.sealed).collect(), requests: all.requests + one.requests })
        };
        opened.try_fold(OpenedRows::default(), add).await
    }

    async fn open_row(&self, table: &TableRef, row: &mut Row) -> Result<OpenedRows, ClientError> {
        let Some((source, home)) = self.catalog.home_of(table, &row.entity) else { return Ok(OpenedRows::default()) };
        let encrypted = self.catalog.encrypted.get(source).into_iter().flatten();
        let sealed: Vec<&String> = encrypted.filter(|property| row.entity.get(property).is_some_and(is_sealed)).collect();
        if sealed.is_empty() {
            return Ok(OpenedRows::default());
        }
        let Some(key) = self.key_to_open(source, &home).await? else {
            return Ok(OpenedRows { sealed: sealed.into_iter().cloned().collect(), requests: 1 });
        };
        for property in sealed {
            if let Some(value) = row.entity.properties.get_mut(property) {
                let opened = key.open(SealedPlace { home: &home, property }, value.as_str().unwrap_or_default());
                *value = opened.map_err(|error| failed(&home, error.into()))?;
            }
        }
        Ok(OpenedRows { requests: 1, ..OpenedRows::default() })
    }

    /// The data key that opens values of an entity; `None` where no key-encryption key for it is here.
    async fn key_to_open(&self, table: &TableRef, home: &Primary) -> Result<Option<DataKey>, ClientError> {
        let Some(keys) = self.data_keys(table)? else { return Ok(None) };
        match keys.find(home).await {
            Ok(Some(key)) => Ok(Some(key)),
            Ok(None) => Err(failed(home, EncryptionError::Erased(home.clone()))),
            Err(DataKeyError::Vault { source: VaultError::UnknownKey { .. }, .. }) => Ok(None),
            Err(error) => Err(failed(home, error.into())),
        }
    }

    fn data_keys(&self, table: &TableRef) -> Result<Option<DataKeys<'_>>, ClientError> {
        let tables = self.account(&table.account)?.tables.as_ref();
        Ok(self.stores.vault().ok().map(|vault| DataKeys { tables, vault }))
    }

    /// A text as the keyed hash that a table has of it.
    pub(super) async fn hashed(&self, table: &TableRef, name: &str, text: &str) -> Result<String, ClientError> {
        let keys = self
            .data_keys(table)?
            .ok_or_else(|| ClientError::Unknown(format!("{name} is a keyed hash, and this configuration has no [encryption]")))?;
        let key = keys.of_hashes(&table.table).await;
        let key =
            key.map_err(|error| ClientError::Encryption { doing: format!("the keyed hashes of {table}"), source: Box::new(error.into()) })?;
        Ok(key.hash(name, text))
    }

    /// The texts of a message with its encrypted properties sealed: several where what fitted into one message does not, once it is
    /// sealed. `None` where nothing is to be sealed, or no key for it is here: then the worker seals.
    pub(super) async fn sealed_texts(&self, job: &Prepared) -> Result<Option<Vec<String>>, ClientError> {
        if self.catalog.encrypted.is_empty() {
            return Ok(None);
        }
        let Ok(mut message) = job::decode_object(&job.text) else { return Ok(None) };
        let plain = plain_entities(&message, &self.catalog);
        let keys = iter(plain.clone()).map(async |entity| self.key_to_seal(&entity.table, &entity.home).await).buffered(PARALLEL);
        let Some(keys) = keys.try_collect::<Vec<_>>().await?.into_iter().collect::<Option<Vec<DataKey>>>() else { return Ok(None) };
        for (entity, key) in plain.iter().zip(&keys) {
            entity.seal(key, &mut message);
        }
        if plain.is_empty() { Ok(None) } else { texts(message).map(Some).map_err(ClientError::Job) }
    }

    /// The data key to seal values of an entity by; `None` where no key-encryption key for it is here.
    async fn key_to_seal(&self, table: &TableRef, home: &Primary) -> Result<Option<DataKey>, ClientError> {
        let Some(keys) = self.data_keys(table)? else { return Ok(None) };
        match keys.find_or_draw(home).await {
            Ok(key) => Ok(Some(key)),
            Err(DataKeyError::Vault { source: VaultError::UnknownKey { .. }, .. }) => Ok(None),
            Err(error) => Err(failed(home, error.into())),
        }
    }
}

/// The texts of a message, halved until each fits.
fn texts(mut message: Map<String, Value>) -> Result<Vec<String>, String> {
    let refused = match packed(&Value::Object(message.clone()).to_string()) {
        Ok(text) => return Ok(vec![text]),
        Err(refused) => refused,
    };
    let Some(entities) = message.get_mut("entities").and_then(Value::as_array_mut).filter(|entities| entities.len() > 1) else {
        return Err(refused);
    };
    let rest = entities.split_off(entities.len() / 2);
    let mut second = message.clone();
    second.insert("entities".to_owned(), Value::Array(rest));
    Ok([texts(message)?, texts(second)?].concat())
}

pub(super) fn failed(home: &Primary, source: EncryptionError) -> ClientError {
    ClientError::Encryption { doing: format!("encrypted properties of {home}"), source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::model::body;
    use serde_json::json;

    #[test]
    fn a_batch_that_does_not_fit_once_it_is_sealed_goes_in_several_messages_and_loses_nothing() {
        // As incompressible as sealed text is.
        let noise = |seed: u64| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut digit = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[usize::try_from(state % 64).unwrap()])
            };
            (0..200).map(|_| digit()).collect::<String>()
        };
        let entity = |number: u64| json!({"PartitionKey": "p", "RowKey": number.to_string(), "Ssn": noise(number + 1)});
        let all: Vec<Value> = (0..700).map(entity).collect();
        let message = json!({"op": "put", "table": "Employees", "mode": "merge", "entities": all});
        let texts = texts(message.as_object().unwrap().clone()).unwrap();
        assert!((3..=8).contains(&texts.len()), "{}", texts.len());
        let decoded: Vec<Value> = texts.iter().map(|text| serde_json::from_str(&body::decode(text).unwrap().text).unwrap()).collect();
        assert!(decoded.iter().all(|message| message["mode"] == "merge"));
        let sent: Vec<Value> = decoded.iter().flat_map(|message| message["entities"].as_array().unwrap().clone()).collect();
        assert_eq!(sent, all);
        let one = json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "p", "RowKey": "1", "Ssn": (0..400).map(noise).collect::<String>()}});
        assert!(super::texts(one.as_object().unwrap().clone()).unwrap_err().contains("a message carries"));
    }
}
