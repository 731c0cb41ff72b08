//! Data keys: one per entity, wrapped, in a table of their own.
//!
//! Copies, lists, archives and logs contain encrypted values but no keys. So a key-encryption key is replaced by rewrapping data keys,
//! without writing any value. And once the data key of an entity is deleted, no encrypted value of that entity can be read anywhere.

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
/// Format version of a row.
const VERSION: u32 = 1;
/// Maximum number of retries if a row changes while it is renewed.
const RENEWALS: u32 = 5;

#[derive(Debug, thiserror::Error)]
pub enum DataKeyError {
    #[error("cannot access table {KEYS}")]
    Store(#[from] StoreError),
    #[error("cannot use the data key of {owner}")]
    Vault {
        /// The owner in the row.
        owner: String,
        #[source]
        source: VaultError,
    },
    /// The row has another format version.
    #[error(transparent)]
    Version(FormatError),
    /// No worker wrote the row like this.
    #[error("the row of {owner} in {KEYS} is not as evenkeel writes it")]
    Malformed { owner: String },
}

#[derive(Clone, Copy)]
pub struct DataKeys<'a> {
    pub tables: &'a dyn TableStore,
    pub vault: &'a dyn Vault,
}

/// The data key for the first encrypted values of an entity. Until the entity exists and the key is [confirmed](DataKeys::confirm), an
/// erasure that finds the entity absent may delete the key.
#[derive(Debug, Clone)]
pub struct FirstKey {
    pub key: DataKey,
    /// The row of the key as it was last written, if the store returned the version.
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

pub fn table() -> TableName {
    #[expect(clippy::expect_used, reason = "a constant that a test checks")]
    TableName::new(KEYS).expect("a valid table name")
}

/// The entity to which a data key belongs, as text. This text is authenticated with the key.
fn owner(home: &Primary) -> String {
    json!([
        home.table.as_str().to_ascii_lowercase(),
        home.key.pk,
        home.key.rk
    ])
    .to_string()
}

/// The entity with its table name in lower case, because table names are case-insensitive.
fn lowercase_table(home: &Primary) -> Primary {
    let table = TableName::new(home.table.as_str().to_ascii_lowercase())
        .unwrap_or_else(|_| home.table.clone());
    Primary {
        table,
        key: home.key.clone(),
    }
}

impl DataKeys<'_> {
    /// Returns the data key of an entity, if it has one. One request.
    pub async fn find(&self, home: &Primary) -> Result<Option<DataKey>, DataKeyError> {
        self.find_at(&footprint_key(&lowercase_table(home)), owner(home))
            .await
    }

    /// Returns the data key of an entity, or creates one. One request, or two for a new one.
    pub async fn find_or_draw(&self, home: &Primary) -> Result<DataKey, DataKeyError> {
        self.find_or_draw_at(footprint_key(&lowercase_table(home)), owner(home))
            .await
    }

    /// Creates the data key for the first encrypted values of an entity, or [renews](Self::renew) the existing one. One request, or three
    /// if the entity has a key already, which is rare.
    pub async fn draw_or_renew(&self, home: &Primary) -> Result<FirstKey, DataKeyError> {
        match self
            .draw_at(&footprint_key(&lowercase_table(home)), &owner(home))
            .await?
        {
            Ok(drawn) => Ok(drawn),
            Err(lost) => self.renew(home).await?.ok_or(DataKeyError::Store(lost)),
        }
    }

    /// Checks that an existing entity still has this data key, by [renewing](Self::renew) its row. One request, or three if the row was
    /// written in the meantime.
    pub async fn confirm(&self, home: &Primary, first: &FirstKey) -> Result<bool, DataKeyError> {
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

    /// Writes the row of an entity's data key again, unchanged, so that no late deletion of an earlier version can remove it. Returns
    /// `None` if the entity has no data key. Two requests.
    pub async fn renew(&self, home: &Primary) -> Result<Option<FirstKey>, DataKeyError> {
        let (key, owner) = (footprint_key(&lowercase_table(home)), owner(home));
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

    /// Returns the key of a table's hashes, or creates it. One request, or two for a new one.
    pub async fn of_hashes(&self, of: &TableName) -> Result<HashKey, DataKeyError> {
        let lowercase = of.as_str().to_ascii_lowercase();
        // Cannot be the key of an entity, which has a "~" after the table.
        #[expect(clippy::expect_used, reason = "letters and digits, at most 63")]
        let key = EntityKey::new(lowercase.as_str(), "hash").expect("a key");
        self.find_or_draw_at(key, json!([lowercase]).to_string())
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

    /// Unwraps the data key in a row. A row that was moved has another owner, so its authentication fails.
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

    /// Creates a data key. Returns the store's error if another run was faster, or if this request succeeded but its answer was lost.
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

    /// Returns the version of an entity's data key, if it has one. One request.
    pub async fn version(&self, home: &Primary) -> Result<Option<ETag>, DataKeyError> {
        Ok(self
            .row(&footprint_key(&lowercase_table(home)))
            .await?
            .map(|row| row.etag))
    }

    /// Deletes this version of an entity's data key, and returns whether it existed. A late deletion does not delete another version of the
    /// key, because that version may belong to an entity that was put again.
    pub async fn erase(&self, home: &Primary, version: ETag) -> Result<bool, DataKeyError> {
        let key = footprint_key(&lowercase_table(home));
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

    /// Wraps the data key of a row with the current key-encryption key, if another one wraps it, and returns whether it did. A row that was
    /// written or deleted in the meantime is skipped.
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
        assert_eq!(
            lowercase_table(&home("EMPLOYEES")),
            lowercase_table(&home("Employees"))
        );
    }
}
