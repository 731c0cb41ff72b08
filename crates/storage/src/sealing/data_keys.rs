//! Data keys: one for each entity, wrapped, in a table of their own.
//!
//! Copies, lists, archives and logs carry sealed values and no key. So a key-encryption key is exchanged by wrapping data keys anew, and
//! no value is written for it; and without its data key nothing that was ever sealed for an entity is read again, wherever it lies.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use super::format::{DataKey, HashKey};
use crate::vault::{Vault, VaultError, WrappedKey};
use crate::{ErrorClass, IfMatch, Missing, StoreError, TableOperation, TableStore};
use evenkeel_model::job::Primary;
use evenkeel_model::names::KEYS;
use evenkeel_model::settled::footprint_key;
use evenkeel_model::stored::{self, FormatError, VERSION_PROPERTY};
use evenkeel_model::{ETag, EdmValue, Entity, EntityKey, Row, TableName};

const OWNER: &str = "Owner";
const KEY: &str = "WrappedKey";
const KEY_ID: &str = "KeyId";
/// The version of a row.
const VERSION: u32 = 1;
/// Times that a row may change while it is renewed.
const RENEWALS: u32 = 5;

/// Why there is no data key.
#[derive(Debug, thiserror::Error)]
pub enum DataKeyError {
    /// The table of data keys.
    #[error("the table {KEYS}")]
    Store(#[from] StoreError),
    /// The key-encryption key.
    #[error("the data key of {owner}")]
    Vault {
        /// The entity, as the row names it.
        owner: String,
        /// Why.
        #[source]
        source: VaultError,
    },
    /// A row of another version.
    #[error(transparent)]
    Version(FormatError),
    /// A row that no worker wrote.
    #[error("the row of {owner} in {KEYS} is not as a worker wrote it")]
    Malformed {
        /// The entity.
        owner: String,
    },
}

/// The data keys of one account.
#[derive(Clone, Copy)]
pub struct DataKeys<'a> {
    /// Its tables.
    pub tables: &'a dyn TableStore,
    /// Wraps and unwraps them.
    pub vault: &'a dyn Vault,
}

/// The data key for the first sealed values of an entity. An erasure that finds the entity absent may delete it until the entity is there and
/// has [kept](DataKeys::keeps) it.
#[derive(Debug, Clone)]
pub struct FirstKey {
    /// The key.
    pub key: DataKey,
    /// Its row as it was written last, where the store told the version.
    row: Option<Row>,
}

impl FirstKey {
    fn new(key: DataKey, entity: Entity, etag: Option<ETag>) -> Self {
        Self {
            key,
            row: etag.map(|etag| Row {
                entity,
                etag,
                timestamp: None,
            }),
        }
    }
}

/// The table of data keys.
pub fn table() -> TableName {
    #[expect(clippy::expect_used, reason = "a constant that a test checks")]
    TableName::new(KEYS).expect("a valid table name")
}

/// The entity that a data key belongs to, as text: authenticated with the key.
fn owner(home: &Primary) -> String {
    json!([
        home.table.as_str().to_ascii_lowercase(),
        home.key.pk,
        home.key.rk
    ])
    .to_string()
}

/// An entity with its table in lower case: a table has one name in any case.
fn folded(home: &Primary) -> Primary {
    let table = TableName::new(home.table.as_str().to_ascii_lowercase())
        .unwrap_or_else(|_| home.table.clone());
    Primary {
        table,
        key: home.key.clone(),
    }
}

impl DataKeys<'_> {
    /// The data key of an entity; `None` where it has none. One request.
    pub async fn find(&self, home: &Primary) -> Result<Option<DataKey>, DataKeyError> {
        self.find_at(&footprint_key(&folded(home)), owner(home))
            .await
    }

    /// The data key of an entity, drawn where it has none. One request, two for a new one.
    pub async fn find_or_draw(&self, home: &Primary) -> Result<DataKey, DataKeyError> {
        self.find_or_draw_at(footprint_key(&folded(home)), owner(home))
            .await
    }

    /// The data key for the first sealed values of an entity, which has none most likely: drawn, or [renewed](Self::renew) where it has one.
    /// One request, three where it has one.
    pub async fn draw_or_renew(&self, home: &Primary) -> Result<FirstKey, DataKeyError> {
        match self
            .draw_at(&footprint_key(&folded(home)), &owner(home))
            .await?
        {
            Ok(drawn) => Ok(drawn),
            Err(lost) => self.renew(home).await?.ok_or(DataKeyError::Store(lost)),
        }
    }

    /// Whether an entity has this data key still, now that it is there: its row is [renewed](Self::renew). One request, three where the row was
    /// written meanwhile.
    pub async fn keeps(&self, home: &Primary, first: &FirstKey) -> Result<bool, DataKeyError> {
        if let Some(Row { entity, etag, .. }) = first.row.clone() {
            match self
                .tables
                .apply(
                    &table(),
                    &TableOperation::Replace(entity, IfMatch::Matches(etag)),
                )
                .await
            {
                Ok(_) => return Ok(true),
                Err(error)
                    if error.is_lost_race() || matches!(error.class, ErrorClass::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self
            .renew(home)
            .await?
            .is_some_and(|renewed| renewed.key.is(&first.key)))
    }

    /// The data key of an entity, its row written once more as it is: no deletion of an earlier version takes it from then on. `None` where
    /// it has none. Two requests.
    pub async fn renew(&self, home: &Primary) -> Result<Option<FirstKey>, DataKeyError> {
        let (key, owner) = (footprint_key(&folded(home)), owner(home));
        let mut left = RENEWALS;
        loop {
            let Some(row) = self.row(&key).await? else {
                return Ok(None);
            };
            let found = self.unwrapped(&row, owner.clone()).await?;
            match self
                .tables
                .apply(
                    &table(),
                    &TableOperation::Replace(row.entity.clone(), IfMatch::Matches(row.etag)),
                )
                .await
            {
                Ok(etag) => return Ok(Some(FirstKey::new(found, row.entity, etag))),
                Err(error) if error.is_lost_race() && left > 0 => left -= 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The key of a table's hashes, drawn where it has none. One request, two for a new one.
    pub async fn of_hashes(&self, of: &TableName) -> Result<HashKey, DataKeyError> {
        let folded = of.as_str().to_ascii_lowercase();
        // No entity's: theirs have a "~" after the table.
        #[expect(clippy::expect_used, reason = "letters and digits, at most 63")]
        let key = EntityKey::new(folded.as_str(), "hash").expect("a key");
        self.find_or_draw_at(key, json!([folded]).to_string())
            .await
            .map(HashKey::new)
    }

    async fn row(&self, key: &EntityKey) -> Result<Option<Row>, DataKeyError> {
        match self.tables.get(&table(), key, None).await {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => Ok(None),
            row => Ok(row?),
        }
    }

    async fn find_at(
        &self,
        key: &EntityKey,
        owner: String,
    ) -> Result<Option<DataKey>, DataKeyError> {
        let Some(row) = self.row(key).await? else {
            return Ok(None);
        };
        self.unwrapped(&row, owner).await.map(Some)
    }

    /// The data key in a row. Another row in its place has another owner, which is authenticated.
    async fn unwrapped(&self, row: &Row, owner: String) -> Result<DataKey, DataKeyError> {
        let wrapped = wrapped(&row.entity, &owner)?;
        let key = self.vault.unwrap(&wrapped, owner.as_bytes()).await;
        key.map(DataKey::new)
            .map_err(|source| DataKeyError::Vault { owner, source })
    }

    async fn find_or_draw_at(
        &self,
        key: EntityKey,
        owner: String,
    ) -> Result<DataKey, DataKeyError> {
        if let Some(found) = self.find_at(&key, owner.clone()).await? {
            return Ok(found);
        }
        match self.draw_at(&key, &owner).await? {
            Ok(drawn) => Ok(drawn.key),
            Err(lost) => self
                .find_at(&key, owner)
                .await?
                .ok_or(DataKeyError::Store(lost)),
        }
    }

    /// A new data key; the error of the store where another run was faster, or this request was and its answer is lost.
    async fn draw_at(
        &self,
        key: &EntityKey,
        owner: &str,
    ) -> Result<Result<FirstKey, StoreError>, DataKeyError> {
        let drawn = self.vault.generate(owner.as_bytes()).await;
        let (bytes, wrapped) = drawn.map_err(|source| DataKeyError::Vault {
            owner: owner.to_owned(),
            source,
        })?;
        let entity = written(Entity::new(key.clone()), &wrapped).with(OWNER, owner);
        match self.insert(&TableOperation::Insert(entity.clone())).await {
            Ok(etag) => Ok(Ok(FirstKey::new(DataKey::new(bytes), entity, etag))),
            Err(error) if error.may_have_lost() => Ok(Err(error)),
            Err(error) => Err(error.into()),
        }
    }

    async fn insert(&self, operation: &TableOperation) -> Result<Option<ETag>, StoreError> {
        match self.tables.apply(&table(), operation).await {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
                self.tables.create_table(&table()).await?;
                self.tables.apply(&table(), operation).await
            }
            applied => applied,
        }
    }

    /// The version of an entity's data key; `None` where it has none. One request.
    pub async fn version(&self, home: &Primary) -> Result<Option<ETag>, DataKeyError> {
        Ok(self
            .row(&footprint_key(&folded(home)))
            .await?
            .map(|row| row.etag))
    }

    /// Deletes the data key of an entity at this version; whether it was there. Another version may belong to an entity put anew: a late
    /// deletion leaves it.
    pub async fn erase(&self, home: &Primary, version: ETag) -> Result<bool, DataKeyError> {
        let key = footprint_key(&folded(home));
        match self
            .tables
            .apply(
                &table(),
                &TableOperation::Delete(key, IfMatch::Matches(version)),
            )
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Wraps the data key in a row by the current key-encryption key, where another one has wrapped it; whether it did. A row that was
    /// written or deleted meanwhile is left to the next time.
    pub async fn rewrap(&self, row: &Row) -> Result<bool, DataKeyError> {
        let owner = row.entity.text(OWNER).unwrap_or_default().to_owned();
        let wrapped = wrapped(&row.entity, &owner)?;
        if wrapped.key_id == self.vault.current() {
            return Ok(false);
        }
        let failed = |source| DataKeyError::Vault {
            owner: owner.clone(),
            source,
        };
        let key = self
            .vault
            .unwrap(&wrapped, owner.as_bytes())
            .await
            .map_err(failed)?;
        let again = self
            .vault
            .wrap(&key, owner.as_bytes())
            .await
            .map_err(failed)?;
        let entity = written(row.entity.clone(), &again);
        match self
            .tables
            .apply(
                &table(),
                &TableOperation::Replace(entity, IfMatch::Matches(row.etag.clone())),
            )
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.may_have_lost() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn written(row: Entity, wrapped: &WrappedKey) -> Entity {
    row.with(VERSION_PROPERTY, VERSION.cast_signed())
        .with(KEY, BASE64.encode(&wrapped.bytes))
        .with(KEY_ID, wrapped.key_id.as_str())
}

/// Reads the row of an owner.
fn wrapped(row: &Entity, owner: &str) -> Result<WrappedKey, DataKeyError> {
    let malformed = || DataKeyError::Malformed {
        owner: owner.to_owned(),
    };
    let thing = || format!("the data key of {owner}");
    stored::check(row, VERSION, thing).map_err(|error| {
        if error.is_of_version() {
            DataKeyError::Version(error)
        } else {
            malformed()
        }
    })?;
    let key = || BASE64.decode(row.text(KEY)?).ok();
    Ok(WrappedKey {
        key_id: row.text(KEY_ID).ok_or_else(malformed)?.to_owned(),
        bytes: key().ok_or_else(malformed)?,
    })
}

/// The name of the key-encryption key that wraps a row's data key.
pub fn key_id(row: &Row) -> Option<&str> {
    row.entity.get(KEY_ID).and_then(EdmValue::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written_and_a_newer_one_is_refused() {
        let (key, owner) = (EntityKey::new("employees~Sales", "7").unwrap(), "[]");
        let bytes = vec![1, 2, 3];
        let row = written(
            Entity::new(key.clone()),
            &WrappedKey {
                key_id: "k1".to_owned(),
                bytes: bytes.clone(),
            },
        );
        let literal = Entity::new(key)
            .with("Version", 1)
            .with("KeyId", "k1")
            .with("WrappedKey", "AQID");
        assert_eq!(row, literal);
        assert_eq!(wrapped(&row, owner).unwrap().bytes, bytes);
        let newer = wrapped(&row.clone().with("Version", 2), owner)
            .unwrap_err()
            .to_string();
        assert_eq!(
            newer,
            "the data key of [] has format version 2, but this program reads version 1. Update this program, or use the one that wrote the data"
        );
        for broken in ["Version", "KeyId", "WrappedKey"] {
            let mut row = row.clone();
            row.properties.remove(broken);
            let error = wrapped(&row, owner).unwrap_err();
            assert!(matches!(error, DataKeyError::Malformed { .. }), "{error}");
        }
    }

    #[test]
    fn an_entity_has_one_data_key_however_its_table_is_spelled() {
        let home = |table: &str| Primary {
            table: TableName::new(table).unwrap(),
            key: EntityKey::new("Sales", "7").unwrap(),
        };
        assert_eq!(table().as_str(), KEYS);
        assert_eq!(owner(&home("Employees")), r#"["employees","Sales","7"]"#);
        assert_eq!(folded(&home("EMPLOYEES")), folded(&home("Employees")));
    }
}
