//! Encrypted properties: sealed before a job is sent, opened after a row is read, where the key-encryption keys are here.

use std::borrow::Cow;
use std::collections::BTreeSet;

use futures::stream::{StreamExt as _, TryStreamExt as _, iter};
use serde_json::{Map, Value};

use super::submission::packed;
use super::{Client, ClientError, Prepared, Whole};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::{self, Primary};
use evenkeel_model::large::Pointer;
use evenkeel_model::patterns::has_copy_at;
use evenkeel_model::{Entity, Row};
use evenkeel_storage::sealing::{
    DataKey, DataKeyError, DataKeys, SealedPlace, UnsealError, is_sealed, plain_entities,
};
use evenkeel_storage::vault::VaultError;

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

/// The entity that a row is, or is a copy of.
pub(super) struct Origin<'e> {
    pub(super) table: TableRef,
    pub(super) entity: Cow<'e, Entity>,
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
    #[error(
        "{0} has sealed values and no data key: its key was erased, or the values belong to another entity"
    )]
    Erased(Primary),
    /// A value is asked for that stays sealed: the property.
    #[error(
        "{0} stays sealed: this configuration has no key-encryption key for it ([encryption.keys]), or the row is no copy of the primary that it names"
    )]
    Sealed(String),
    /// A value lies in clear: the property.
    #[error(
        "{0} is to be sealed, and lies in clear: it is older than `encrypt`, or somebody else has written it. `evenkeel keys seal` seals what is older; --allow-plain (Client::allowing_plain) reads it"
    )]
    Plain(String),
}

impl Client {
    /// Opens the encrypted properties of rows: those of a primary or an archived entity as its own, by the key that it lies under, and those of
    /// a copy as those of the primary that has its copy there. One request for each entity, and one more for the primary of each copy.
    ///
    /// Values stay sealed, as texts that begin with `ek1.`, where this configuration has no key-encryption key for them, and where a row says
    /// to be the copy of a primary that has none under its key: an old one, or one that somebody else has written.
    ///
    /// # Errors
    ///
    /// [`ClientError::Encryption`] where a value was changed or belongs elsewhere, where its data key was erased, and where it lies in clear,
    /// unless the client is [`allowing_plain`](Self::allowing_plain). A sealed value that the same property of the same entity had before is
    /// opened: nothing tells it from the present one.
    ///
    /// ```
    /// # use evenkeel_client::{Client, ClientError};
    /// # use evenkeel_model::{Row, catalog::TableRef};
    /// # async fn example(client: &Client, table: &TableRef, mut rows: Vec<Row>) -> Result<(), ClientError> {
    /// let opened = client.open(table, &mut rows).await?;
    /// assert!(opened.sealed.is_empty(), "no key for {:?}", opened.sealed);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open(
        &self,
        table: &TableRef,
        rows: &mut [Row],
    ) -> Result<OpenedRows, ClientError> {
        if self.catalog.encrypted.is_empty() {
            return Ok(OpenedRows::default());
        }
        let opened = iter(rows.iter_mut())
            .map(|row| self.open_row(table, row))
            .buffered(PARALLEL);
        let add = |all: OpenedRows, one: OpenedRows| async move {
            Ok(OpenedRows {
                sealed: all.sealed.into_iter().chain(one.sealed).collect(),
                requests: all.requests + one.requests,
            })
        };
        opened.try_fold(OpenedRows::default(), add).await
    }

    /// Whether a property is encrypted in the rows of a table.
    pub(super) fn is_encrypted(&self, table: &TableRef, property: &str) -> bool {
        self.encrypted
            .get(&table.table)
            .is_some_and(|encrypted| encrypted.contains(property))
    }

    async fn open_row(&self, table: &TableRef, row: &mut Row) -> Result<OpenedRows, ClientError> {
        let encrypted = self.encrypted.get(&table.table).into_iter().flatten();
        // What a pointer leads to is not here.
        let present = encrypted.filter(|property| {
            row.entity
                .get(property)
                .is_some_and(|value| Pointer::of(value).is_none())
        });
        let (sealed, plain): (Vec<&String>, Vec<&String>) =
            present.partition(|property| row.entity.get(property).is_some_and(is_sealed));
        if sealed.is_empty() && (plain.is_empty() || self.allows_plain) {
            return Ok(OpenedRows::default());
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
        let names = || sealed.iter().copied().cloned().collect();
        let Some((source, home)) = origin
            .as_ref()
            .and_then(|origin| self.catalog.home_of(&origin.table, &origin.entity.key))
        else {
            return Ok(OpenedRows {
                sealed: names(),
                requests,
            });
        };
        if sealed.is_empty() {
            return Ok(OpenedRows {
                requests,
                ..OpenedRows::default()
            });
        }
        requests += 1;
        let Some(key) = self.key_to_open(source, &home).await? else {
            return Ok(OpenedRows {
                sealed: names(),
                requests,
            });
        };
        for property in sealed {
            if let Some(value) = row.entity.properties.get_mut(property) {
                let opened = key.open(
                    SealedPlace {
                        home: &home,
                        property,
                    },
                    value.as_str().unwrap_or_default(),
                );
                *value = opened.map_err(|error| failed(&home, error.into()))?;
            }
        }
        Ok(OpenedRows {
            requests,
            ..OpenedRows::default()
        })
    }

    /// Whether a property of the rows that come from here is sealed: its table's condition holds, where it has one.
    fn is_due(&self, origin: &Origin<'_>, property: &str) -> bool {
        let home = self.catalog.home_of(&origin.table, &origin.entity.key);
        self.is_encrypted(&origin.table, property)
            && home.is_none_or(|(source, _)| self.catalog.seals(source, &origin.entity))
    }

    /// What a row is a copy of, through as many views as there are: itself where no view has brought it. `None` where a primary that it names
    /// has no such copy now. And the requests that it took.
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
        // A chain of views is no longer, since views make no circle.
        for _ in 0..=self.catalog.views.len() {
            let Some((view, primary)) = self.catalog.said_copy(&origin.table, &origin.entity)
            else {
                return Ok((Some(origin), requests));
            };
            let whole = self.whole(&view.source, &primary.key).await?;
            requests += whole.as_ref().map_or(1, |whole| whole.requests);
            let Some(Whole { row: found, .. }) = whole else {
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

    /// The data key that opens values of an entity; `None` where no key-encryption key for it is here.
    async fn key_to_open(
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

    /// A text as the keyed hash that a table has of it.
    pub(super) async fn hashed(
        &self,
        table: &TableRef,
        name: &str,
        text: &str,
    ) -> Result<String, ClientError> {
        let keys = self.data_keys(table)?.ok_or_else(|| {
            ClientError::Unknown(format!(
                "{name} is a keyed hash, and this configuration has no [encryption]"
            ))
        })?;
        let key = keys.of_hashes(&table.table).await;
        let key = key.map_err(|error| ClientError::Encryption {
            doing: format!("the keyed hashes of {table}"),
            source: Box::new(error.into()),
        })?;
        Ok(key.hash(name, text))
    }

    /// The texts of a message with its encrypted properties sealed: several where what fitted into one message does not, once it is
    /// sealed. `None` where nothing is to be sealed, or no key for it is here: then the worker seals.
    pub(super) async fn sealed_texts(
        &self,
        job: &Prepared,
    ) -> Result<Option<Vec<String>>, ClientError> {
        if self.catalog.encrypted.is_empty() {
            return Ok(None);
        }
        let Ok(mut message) = job::decode_object(&job.text) else {
            return Ok(None);
        };
        let plain = plain_entities(&message, &self.catalog);
        let keys = iter(plain.clone())
            .map(async |entity| self.key_to_seal(&entity.table, &entity.home).await)
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
            entity.seal(key, &mut message);
        }
        if plain.is_empty() {
            Ok(None)
        } else {
            texts(message).map(Some).map_err(ClientError::Job)
        }
    }

    /// The data key to seal values of an entity by; `None` where no key-encryption key for it is here.
    async fn key_to_seal(
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
        doing: format!("encrypted properties of {home}"),
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::body;
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
                .contains("a message carries")
        );
    }
}
