//! Encrypted properties. Their values are encrypted before a job writes them, and again when an entity gets another
//! `PartitionKey`, `RowKey` or table.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::Recheck;
use crate::env::Env;
use crate::execute::{Failure, FailureClass};
use crate::failure::{GONE, permanent, storage};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::event::ForeignEvent;
use evenkeel_model::job::{self, Batch, JobRequest, Primary, Put, PutMode, RECHECK, kept_object};
use evenkeel_model::large::{self, Pointer};
use evenkeel_model::template::Template;
use evenkeel_model::{ETag, EdmValue, Entity, EntityKey, TableName, limits};
use evenkeel_storage::encryption::{
    DataKey, DataKeyError, DataKeys, FirstKey, HashKey, PropertyAddress, encrypt_entity, hashes,
    is_encrypted, plain_entities, redacted, withheld_text, withhold,
};
use evenkeel_storage::vault::VaultError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum EncryptError {
    #[error(
        "{property:?} is encrypted in {table}, but is plain text in the staged blob. Send it in \"entity\", or let a client encrypt it"
    )]
    Staged { property: String, table: TableName },
    #[error(
        "{property:?} is a keyed hash, which {table} computes from an encrypted property. Send that property instead"
    )]
    Hash { property: String, table: TableName },
    #[error(
        "\"newer_by\" names {property:?}, which is encrypted in {table}. Encrypted values have no order"
    )]
    Ordered { property: String, table: TableName },
    #[error(
        "{property:?} has {characters} characters when encrypted; at most 32,768 (64 KiB) are allowed. Shorten it, or declare a large_entity view that moves it to a blob"
    )]
    TooLong { property: String, characters: usize },
    #[error(
        "{property:?} is encrypted in {from}, but not in {to}: expected encrypt = [{property:?}] in [tables.{to}]"
    )]
    Uncovered {
        property: String,
        from: TableName,
        to: TableName,
    },
    #[error(
        "{property:?} is encrypted in a blob, and blobs are not encrypted again. The entity must keep its table, PartitionKey and RowKey"
    )]
    InBlob { property: String },
    #[error(
        "{0} has encrypted values but no data key: the key was erased, or the values belong to another entity"
    )]
    Erased(Primary),
}

pub(crate) struct EncryptedEntity {
    pub(crate) entity: Entity,
    /// The data key, if the stored entity has no encrypted values yet. An erasure may still delete this key, until
    /// `keeps_data_key` has renewed it.
    pub(crate) first: Option<FirstKey>,
}

#[derive(Clone, Copy)]
pub(crate) struct Encryption<'e> {
    pub(crate) env: &'e Env,
    pub(crate) hash_keys: &'e Mutex<BTreeMap<TableRef, HashKey>>,
}

impl Encryption<'_> {
    fn encrypted(&self, table: &TableRef) -> Option<&BTreeSet<String>> {
        self.env.catalog.encrypted.get(table)
    }

    fn data_keys(&self, table: &TableRef) -> Result<DataKeys<'_>, Failure> {
        let vault = self
            .env
            .stores
            .vault()
            .map_err(|error| permanent("finding the key-encryption keys", error))?;
        Ok(DataKeys {
            tables: self.env.account(table)?.tables.as_ref(),
            vault,
        })
    }

    pub(crate) async fn data_key_version(
        &self,
        table: &TableRef,
        home: &Primary,
    ) -> Result<Option<ETag>, Failure> {
        if self.encrypted(table).is_none() {
            return Ok(None);
        }
        let version = self.data_keys(table)?.version(home).await;
        version.map_err(|error| key_failure(format!("finding the data key of {home}"), error))
    }

    /// Deletes the data key of an entity if the key is at `version`, and returns whether a key existed. At another
    /// version, it fails with a transient failure.
    pub(crate) async fn erase_data_key(
        &self,
        table: &TableRef,
        home: &Primary,
        version: ETag,
    ) -> Result<bool, Failure> {
        let erased = self.data_keys(table)?.erase(home, version).await;
        erased.map_err(|error| key_failure(format!("erasing the data key of {home}"), error))
    }

    /// Returns the entity of a `put` with its values encrypted, or `None` if it has no encrypted properties. If the
    /// table encrypts only under a condition, values are encrypted if the condition holds for the result of the write
    /// over `stored`.
    pub(crate) async fn encrypted_put(
        &self,
        put: &Put,
        stored: Option<&Entity>,
    ) -> Result<Option<EncryptedEntity>, Failure> {
        let table = self.env.table(&put.table)?;
        let Some(encrypted) = self.encrypted(table) else {
            return Ok(None);
        };
        let home = Primary {
            table: table.table.clone(),
            key: put.entity.key.clone(),
        };
        let refused = |error| Err(permanent(format!("putting {home}"), error));
        if let Some(property) = put
            .staged_values
            .keys()
            .find(|property| encrypted.contains(*property))
        {
            return refused(EncryptError::Staged {
                property: property.clone(),
                table: home.table.clone(),
            });
        }
        let is_hash_alone = |(name, template): &(&String, &Template)| {
            put.entity.get(name).is_some()
                && !template
                    .properties()
                    .iter()
                    .any(|property| put.entity.get(property).is_some())
        };
        if let Some((property, _)) = self
            .env
            .catalog
            .hashed
            .get(table)
            .into_iter()
            .flatten()
            .find(is_hash_alone)
        {
            return refused(EncryptError::Hash {
                property: property.clone(),
                table: home.table.clone(),
            });
        }
        if let Some(property) = &put.condition.newer_by {
            self.refuse_encrypted_order(table, &home, property)?;
        }
        let mut entity = Cow::Borrowed(&put.entity);
        let mut encrypts = true;
        if let Some(when) = self.env.catalog.encrypted_when.get(table) {
            let kept = stored.filter(|_| put.mode == PutMode::Merge);
            let merged = kept.map(|stored| stored.clone().merged(&put.entity));
            encrypts = when.holds(merged.as_ref().unwrap_or(&put.entity));
            // This merge may make the condition true. `stored` may then have unencrypted values of properties that the
            // `put` does not contain. These values are added to the entity, so that they are encrypted, too.
            for (name, value) in kept.into_iter().flat_map(|stored| &stored.properties) {
                if encrypts
                    && encrypted.contains(name)
                    && !is_encrypted(value)
                    && !put.entity.properties.contains_key(name)
                {
                    entity
                        .to_mut()
                        .properties
                        .insert(name.clone(), value.clone());
                }
            }
        }
        let in_use = stored.is_some_and(|stored| {
            encrypted
                .iter()
                .any(|property| stored.get(property).is_some_and(is_stored_encrypted))
        });
        self.with_encrypted(table, &home, in_use, &entity, |_| encrypts)
            .await
    }

    pub(crate) fn refuse_encrypted_order(
        &self,
        table: &TableRef,
        home: &Primary,
        property: &str,
    ) -> Result<(), Failure> {
        if self
            .encrypted(table)
            .is_none_or(|encrypted| !encrypted.contains(property))
        {
            return Ok(());
        }
        let error = EncryptError::Ordered {
            property: property.to_owned(),
            table: home.table.clone(),
        };
        Err(permanent(format!("comparing {home}"), error))
    }

    /// Renews the data key of an entity, after the first encrypted values of the entity have been stored. Returns
    /// `false` if the key was erased meanwhile. After `true`, an erasure that found the entity absent can no longer
    /// delete the key, because the key has another version.
    pub(crate) async fn keeps_data_key(
        &self,
        table: &TableRef,
        home: &Primary,
        first: &FirstKey,
    ) -> Result<bool, Failure> {
        let kept = self.data_keys(table)?.confirm(home, first).await;
        kept.map_err(|error| key_failure(format!("renewing the data key of {home}"), error))
    }

    /// Encrypts properties of a `put` again, with the entity's present data key, if their values in `stored` are
    /// encrypted by a former data key, which was erased meanwhile. `None` if there are no such properties.
    pub(crate) async fn encrypted_again(
        &self,
        put: &Put,
        stored: &Entity,
    ) -> Result<Option<Entity>, Failure> {
        let table = self.env.table(&put.table)?;
        let home = Primary {
            table: table.table.clone(),
            key: put.entity.key.clone(),
        };
        let marked = self
            .encrypted(table)
            .into_iter()
            .flatten()
            .filter(|property| stored.get(property).is_some_and(is_stored_encrypted));
        let marked: BTreeMap<String, EdmValue> = marked
            .filter_map(|property| put.entity.properties.get_key_value(property))
            .map(owned)
            .collect();
        if marked.is_empty() {
            return Ok(None);
        }
        let step = || format!("encrypting properties of {home}");
        let keys = self.data_keys(table)?;
        let key = match keys
            .renew(&home)
            .await
            .map_err(|error| key_failure(step(), error))?
        {
            Some(renewed) => renewed.key,
            None => keys
                .find_or_draw(&home)
                .await
                .map_err(|error| key_failure(step(), error))?,
        };
        let mut encrypted = Entity {
            key: home.key.clone(),
            properties: marked.clone(),
        };
        encrypt_entity(&key, &home, marked.keys(), &mut encrypted)
            .map_err(|error| permanent(step(), error))?;
        Ok(encrypted_by_another_key(&key, &home, stored, encrypted))
    }

    /// Returns those properties that are encrypted by `key` in `copy`, but by another data key in `stored`, which was
    /// erased meanwhile. `None` if there are none.
    pub(crate) fn encrypted_otherwise(
        &self,
        table: &TableRef,
        key: &DataKey,
        stored: &Entity,
        copy: &Entity,
    ) -> Option<Entity> {
        let home = Primary {
            table: table.table.clone(),
            key: copy.key.clone(),
        };
        let marked = self.encrypted(table).into_iter().flatten();
        let encrypted = marked
            .filter_map(|property| copy.properties.get_key_value(property))
            .map(owned)
            .collect();
        encrypted_by_another_key(
            key,
            &home,
            stored,
            Entity {
                key: home.key.clone(),
                properties: encrypted,
            },
        )
    }

    /// Adds keyed hashes to an entity, and encrypts those of the table's encrypted properties for which `encrypts`
    /// returns `true`. `None` if the entity has no encrypted properties. A value that is already encrypted stays as it
    /// is, but decrypting it must succeed. `in_use` is `false` if the stored entity has no encrypted values. Most
    /// likely, the entity then has no data key either, and one is created.
    async fn with_encrypted(
        &self,
        table: &TableRef,
        home: &Primary,
        in_use: bool,
        entity: &Entity,
        encrypts: impl Fn(&str) -> bool + Send,
    ) -> Result<Option<EncryptedEntity>, Failure> {
        let mut marked: BTreeMap<&String, &EdmValue> = BTreeMap::new();
        for property in self.encrypted(table).into_iter().flatten() {
            marked.extend(entity.properties.get_key_value(property));
        }
        if marked.is_empty() {
            return Ok(None);
        }
        let step = || format!("encrypting properties of {home}");
        let (encrypted, clear): (BTreeMap<_, _>, _) = marked
            .into_iter()
            .partition(|(name, value)| encrypts(name) || is_encrypted(value));
        let mut plain = Entity {
            key: home.key.clone(),
            properties: clear.into_iter().map(owned).collect(),
        };
        let (mut entity, mut first) = (entity.clone(), None);
        if !encrypted.is_empty() {
            let keys = self.data_keys(table)?;
            let key = if in_use {
                keys.find_or_draw(home).await
            } else {
                keys.draw_or_renew(home)
                    .await
                    .map(|found| first.insert(found).key.clone())
            };
            let key = key.map_err(|error| key_failure(step(), error))?;
            let originals = encrypt_entity(&key, home, encrypted.keys().copied(), &mut entity)
                .map_err(|error| permanent(step(), error))?;
            plain.properties.extend(originals.properties);
        }
        if let Some(hashed) = self.env.catalog.hashed.get(table) {
            entity
                .properties
                .extend(hashes(&self.hash_key(table).await?, hashed, &plain));
        }
        let large_properties = self
            .env
            .catalog
            .large_values_of(table)
            .map(|(_, large)| &large.properties);
        for property in encrypted
            .into_keys()
            .filter(|property| large_properties.is_none_or(|large| !large.contains(*property)))
        {
            let characters = entity.text(property).unwrap_or_default().len();
            if characters > limits::STRING_UTF16_UNITS {
                return Err(permanent(
                    step(),
                    EncryptError::TooLong {
                        property: property.clone(),
                        characters,
                    },
                ));
            }
        }
        Ok(Some(EncryptedEntity { entity, first }))
    }

    /// The key of a table's keyed hashes. A process reads the key once, because it never changes.
    async fn hash_key(&self, table: &TableRef) -> Result<HashKey, Failure> {
        // Poisoning is ignored, because the lock is held only for plain assignments, which cannot panic halfway.
        let cached = || {
            self.hash_keys
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(key) = cached().get(table) {
            return Ok(key.clone());
        }
        let step = || format!("finding the hash key of {table}");
        let key = self
            .data_keys(table)?
            .of_hashes(&table.table)
            .await
            .map_err(|error| key_failure(step(), error))?;
        cached().insert(table.clone(), key.clone());
        Ok(key)
    }

    /// Prepares a row for a move to another table or key. Its encrypted values are decrypted with the data key of the
    /// source, and encrypted with the data key of the target.
    pub(crate) async fn encrypted_for_move(
        &self,
        source: &TableRef,
        from: &Entity,
        target: &TableRef,
        to: &EntityKey,
        entity: Entity,
    ) -> Result<EncryptedEntity, Failure> {
        let (decrypted, were_encrypted) = self.decrypted(source, from, target, entity).await?;
        let home = Primary {
            table: target.table.clone(),
            key: to.clone(),
        };
        let all = self.env.catalog.encrypts(
            target,
            &Entity {
                key: to.clone(),
                properties: decrypted.properties.clone(),
            },
        );
        let encrypted = self
            .with_encrypted(target, &home, false, &decrypted, |name| {
                all || were_encrypted.contains(name)
            })
            .await?;
        Ok(encrypted.unwrap_or(EncryptedEntity {
            entity: decrypted,
            first: None,
        }))
    }

    async fn decrypted(
        &self,
        source: &TableRef,
        from: &Entity,
        target: &TableRef,
        mut entity: Entity,
    ) -> Result<(Entity, BTreeSet<&str>), Failure> {
        let Some((table, home)) = self.env.catalog.encryption_owner(source, &from.key) else {
            return Ok((entity, BTreeSet::new()));
        };
        let marked = self.encrypted(table).into_iter().flatten();
        let in_blob = |value: &EdmValue| Pointer::of(value).is_some();
        let encrypted: Vec<&String> = marked
            .filter(|property| entity.get(property).is_some_and(is_stored_encrypted))
            .collect();
        let refused = |error| permanent(format!("moving {home}"), error);
        for property in &encrypted {
            if entity.get(property).is_some_and(in_blob) {
                return Err(refused(EncryptError::InBlob {
                    property: (*property).clone(),
                }));
            }
            if self
                .encrypted(target)
                .is_none_or(|encrypted| !encrypted.contains(*property))
            {
                let (from, to) = (home.table.clone(), target.table.clone());
                return Err(refused(EncryptError::Uncovered {
                    property: (*property).clone(),
                    from,
                    to,
                }));
            }
        }
        if encrypted.is_empty() {
            return Ok((entity, BTreeSet::new()));
        }
        let key = self.data_key(table, &home).await?;
        for &property in &encrypted {
            if let Some(value) = entity.properties.get_mut(property) {
                let decrypted = key.decrypt(
                    PropertyAddress {
                        home: &home,
                        property,
                    },
                    value.as_str().unwrap_or_default(),
                );
                *value = decrypted.map_err(|error| permanent(format!("moving {home}"), error))?;
            }
        }
        Ok((entity, encrypted.into_iter().map(String::as_str).collect()))
    }

    async fn data_key(&self, table: &TableRef, home: &Primary) -> Result<DataKey, Failure> {
        let step = || format!("finding the data key of {home}");
        let key = self
            .data_keys(table)?
            .find(home)
            .await
            .map_err(|error| key_failure(step(), error))?;
        key.ok_or_else(|| permanent(step(), EncryptError::Erased(home.clone())))
    }

    /// Returns the body of a message in a form that people may read: plain values of encrypted properties are
    /// encrypted. If it is unknown to which entity a value belongs, the value is withheld. `None` if the body has no
    /// such values.
    pub(crate) async fn encrypted_body(&self, body: &str) -> Result<Option<String>, Failure> {
        if self.env.catalog.encrypted.is_empty() {
            return Ok(None);
        }
        let Ok(mut object) = kept_object(body) else {
            return Ok(Some(withheld_text(body)));
        };
        let Some(unknown) = fields_unknown(&object) else {
            return Ok(Some(Value::Object(redacted(object)).to_string()));
        };
        let plain = plain_entities(&object, &self.env.catalog);
        for entity in &plain {
            let key = self
                .data_keys(&entity.table)?
                .find_or_draw(&entity.home)
                .await;
            let step = || format!("encrypting the body of a message about {}", entity.home);
            entity.encrypt(
                &key.map_err(|error| key_failure(step(), error))?,
                &mut object,
            );
        }
        let withheld = withhold(&mut object, &unknown, &self.env.catalog);
        Ok((withheld || !plain.is_empty()).then(|| Value::Object(object).to_string()))
    }
}

/// Returns those fields of a message that the operation of the message does not define. `None` if the message is
/// neither a job nor a recheck nor an event.
fn fields_unknown(object: &Map<String, Value>) -> Option<Vec<String>> {
    if let Some(event) = ForeignEvent::of(object) {
        return event.is_ok().then(Vec::new);
    }
    if object.get("op").and_then(Value::as_str) == Some(RECHECK) {
        let mut rechecks = object.clone();
        let several = matches!(Batch::of_rechecks(&mut rechecks), Ok(Some(_)));
        return (several || Recheck::of_object(rechecks).is_ok()).then(Vec::new);
    }
    match job::decode_request(object.clone()).ok()? {
        JobRequest::Job(envelope) => Some(envelope.unknown_fields),
        JobRequest::Batch(batch) => batch.sample().ok().map(|sample| sample.unknown_fields),
    }
}

/// Whether the stored value of an encrypted property is encrypted, either as text or in a blob.
fn is_stored_encrypted(value: &EdmValue) -> bool {
    is_encrypted(value) || Pointer::of(value).is_some()
}

/// Keeps a property of `encrypted` if its value in `stored` is encrypted, but not by `key`. `None` if no property is
/// kept.
fn encrypted_by_another_key(
    key: &DataKey,
    home: &Primary,
    stored: &Entity,
    mut encrypted: Entity,
) -> Option<Entity> {
    let differs = |property: &str, anew: &EdmValue| {
        stored.get(property).is_some_and(|stored| {
            is_stored_encrypted(stored) && !is_encrypted_by(key, home, property, stored, anew)
        })
    };
    encrypted
        .properties
        .retain(|property, anew| differs(property, anew));
    (!encrypted.properties.is_empty()).then_some(encrypted)
}

/// Whether `key` has encrypted the stored value. If the value is a text, `key` must be able to decrypt it. If the value
/// is in a blob, its hash must equal the hash of `anew`: the same value, newly encrypted by `key`.
fn is_encrypted_by(
    key: &DataKey,
    home: &Primary,
    property: &str,
    stored: &EdmValue,
    anew: &EdmValue,
) -> bool {
    match Pointer::of(stored) {
        Some(pointer) => anew
            .as_str()
            .is_some_and(|anew| large::hash(anew.as_bytes()) == pointer.sha256),
        None => stored.as_str().is_some_and(|stored| {
            key.decrypt(PropertyAddress { home, property }, stored)
                .is_ok()
        }),
    }
}

fn owned((name, value): (&String, &EdmValue)) -> (String, EdmValue) {
    (name.clone(), value.clone())
}

fn key_failure(step: String, error: DataKeyError) -> Failure {
    match error {
        DataKeyError::Store(error) => storage(step, error),
        // If the vault is misconfigured, every job fails alike, and the backlog must not be moved to the poison queue.
        DataKeyError::Vault { ref source, .. } if source.is_configuration() => Failure::new(
            FailureClass::Withheld {
                retry_after: Some(GONE),
            },
            step,
            error,
        ),
        DataKeyError::Vault {
            source: VaultError::Away { .. },
            ..
        } => Failure::new(FailureClass::Transient { retry_after: None }, step, error),
        DataKeyError::Vault { .. } | DataKeyError::Version(_) | DataKeyError::Malformed { .. } => {
            permanent(step, error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_fields_are_found_in_single_and_in_batch_messages() {
        for (subject, about) in [("rk", json!("1")), ("rks", json!(["1", "2"]))] {
            let message = json!({"op": "sync", "table": "Employees", "pk": "Sales", subject: about, "color": "red"});
            assert_eq!(
                fields_unknown(message.as_object().unwrap()),
                Some(vec!["color".to_owned()]),
                "{subject}"
            );
        }
    }

    #[test]
    fn key_failures_of_every_job_wait_and_those_of_one_job_are_permanent() {
        let (vault, problem) = (
            "https://contoso.vault.azure.net/keys/evenkeel".to_owned(),
            "no reason".to_owned(),
        );
        let class = |source| {
            key_failure(
                "encrypting".to_owned(),
                DataKeyError::Vault {
                    owner: "[]".to_owned(),
                    source,
                },
            )
            .class
        };
        let waits = [
            VaultError::UnknownKey {
                key_id: "k".to_owned(),
                known: "none".to_owned(),
            },
            VaultError::Forbidden {
                vault: vault.clone(),
                problem: problem.clone(),
            },
            VaultError::Rejected {
                vault: vault.clone(),
                problem: problem.clone(),
            },
        ];
        for source in waits {
            assert_eq!(
                class(source),
                FailureClass::Withheld {
                    retry_after: Some(GONE)
                }
            );
        }
        assert_eq!(
            class(VaultError::Away { vault, problem }),
            FailureClass::Transient { retry_after: None }
        );
        assert_eq!(
            class(VaultError::Refused("k".to_owned())),
            FailureClass::Permanent
        );
    }
}
