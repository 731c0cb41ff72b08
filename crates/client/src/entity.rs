//! Reading one entity.

use std::collections::BTreeSet;

use super::encryption::{self, EncryptionError};
use super::resolve::{self, joined, resolve};
use super::{Client, ClientError};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::entity::RESERVED_PREFIX;
use evenkeel_model::job::Primary;
use evenkeel_model::large::Pointer;
use evenkeel_model::{ETag, EdmValue, EntityKey, Row, TableName};
use evenkeel_storage::wide::{self, ReadError};

/// Maximum number of attempts to resolve an entity that changes while its blobs are read.
const ROUNDS: u32 = 5;

/// An entity with all its rows.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeEntity {
    /// The entity, at the version of its first row.
    pub row: Row,
    /// Storage requests sent.
    pub requests: u64,
}

impl Client {
    /// Reads one entity of a table of the catalog and resolves it: the rows of a wide entity are joined, pointers are replaced by the
    /// content of their blobs, properties are decrypted if the key-encryption keys are available, and the pieces of a list are joined.
    /// Returns `None` if the entity does not exist.
    ///
    /// This takes one request, one more if the entity has several rows, and two more for each blob. If the entity is a copy with blobs,
    /// one more request reads its primary. Encrypted properties take the requests of [`decrypt`](Self::decrypt) as well. If the entity
    /// changes, one of its blobs may be deleted before it is read. The entity is then read again.
    ///
    /// A pointer is followed only to a blob in the container that the catalog declares for large values of the table, and only if the
    /// blob belongs to this entity. The blobs of a copy belong to its primary, and the container is that of the primary's table. Any
    /// other pointer is an error, because anyone who can write the row can put any pointer into it.
    ///
    /// ```
    /// # use evenkeel_client::{Client, ClientError};
    /// # use evenkeel_model::{EntityKey, TableName};
    /// # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let survey = client.get(&TableName::new("Surveys")?, &EntityKey::new("2026", "000101")?).await?;
    /// let answers = survey.map_or(0, |row| row.entity.user_properties().count());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
    ) -> Result<Option<Row>, ClientError> {
        self.get_in(&self.target(table)?.at(&key.pk), key).await
    }

    /// Like [`get`](Self::get), for any table of any account, even if the table is not in the catalog.
    pub async fn get_in(
        &self,
        table: &TableRef,
        key: &EntityKey,
    ) -> Result<Option<Row>, ClientError> {
        let (mut found, _) = self.cached(table, key).await?;
        let mut rounds = ROUNDS;
        while let Some(row) = found {
            let etag = row.etag.clone();
            rounds -= 1;
            match self.resolved(table, row).await {
                Err(broken @ ClientError::Broken(_)) if rounds > 0 => {
                    found = self.newer(table, key, &etag, broken).await?;
                }
                ended => return ended.map(Some),
            }
        }
        Ok(None)
    }

    async fn resolved(&self, table: &TableRef, mut row: Row) -> Result<Row, ClientError> {
        resolve(self, table, &mut row).await?;
        self.decrypt(table, std::slice::from_mut(&mut row)).await?;
        row.entity = joined(table, row.entity)?;
        Ok(row)
    }

    /// Reads the entity again after one of its blobs could not be read. A write deletes the blobs of the version that
    /// it replaces, so the blob may belong to an older version. If the entity still has the version at `etag`, returns
    /// the error `broken`.
    async fn newer(
        &self,
        table: &TableRef,
        key: &EntityKey,
        etag: &ETag,
        broken: ClientError,
    ) -> Result<Option<Row>, ClientError> {
        let row = self.whole(table, key).await?.map(|whole| whole.row);
        if row.as_ref().is_some_and(|row| row.etag == *etag) {
            Err(broken)
        } else {
            Ok(row)
        }
    }

    /// Reads the value of one property in parts of at most 4 MiB, because a blob may be too large for memory. Each part is passed to
    /// `take`; text is passed as UTF-8. Returns the number of bytes; `None` if the entity does not exist or has no string or binary
    /// property of this name.
    ///
    /// The hash of the whole content is verified before the first part is passed on, so a blob above 4 MiB is read twice.
    ///
    /// # Errors
    ///
    /// [`ClientError::Encryption`] if an encrypted property cannot be decrypted (see [`decrypt`](Self::decrypt)) or its
    /// key-encryption key is not available. No bytes have been passed on then.
    pub async fn read_value(
        &self,
        table: &TableRef,
        key: &EntityKey,
        property: &str,
        mut take: impl FnMut(&[u8]) -> std::io::Result<()> + Send,
    ) -> Result<Option<u64>, ClientError> {
        let mut found = self.whole(table, key).await?.map(|whole| whole.row);
        let (mut rounds, mut is_begun) = (ROUNDS, false);
        while let Some(row) = found {
            let etag = row.etag.clone();
            rounds -= 1;
            let mut take = |part: &[u8]| {
                is_begun = true;
                take(part)
            };
            match self.read_value_of(table, row, property, &mut take).await {
                Err(broken @ ClientError::Broken(_)) if rounds > 0 && !is_begun => {
                    found = self.newer(table, key, &etag, broken).await?;
                }
                ended => return ended,
            }
        }
        Ok(None)
    }

    async fn read_value_of(
        &self,
        table: &TableRef,
        mut row: Row,
        property: &str,
        mut take: impl FnMut(&[u8]) -> std::io::Result<()> + Send,
    ) -> Result<Option<u64>, ClientError> {
        if self.is_encrypted(table, property) {
            // An encrypted value can be decrypted only as a whole. The row also keeps the properties that encryption conditions compare:
            // they determine whether the value has to be encrypted.
            let needed: BTreeSet<String> = self
                .catalog
                .encryption_conditions()
                .map(str::to_owned)
                .collect();
            row.entity.properties.retain(|name, _| {
                name == property || needed.contains(name) || name.starts_with(RESERVED_PREFIX)
            });
            resolve(self, table, &mut row).await?;
            if self
                .decrypt(table, std::slice::from_mut(&mut row))
                .await?
                .still_encrypted
                .contains(property)
            {
                let home = Primary {
                    table: table.table.clone(),
                    key: row.entity.key,
                };
                return Err(encryption::failed(
                    &home,
                    EncryptionError::Encrypted(property.to_owned()),
                ));
            }
        }
        if let Some(pointer) = row.entity.get(property).and_then(Pointer::of) {
            return resolve::read(self, table, &row.entity, property, &pointer, take)
                .await
                .map(Some);
        }
        let content: &[u8] = match row.entity.get(property) {
            Some(EdmValue::String(text)) => text.as_bytes(),
            Some(EdmValue::Binary(bytes)) => bytes,
            Some(_) | None => return Ok(None),
        };
        take(content).map_err(ClientError::Output)?;
        Ok(Some(content.len() as u64))
    }

    /// Reads one entity with all its rows, without following pointers or joining lists.
    pub async fn whole(
        &self,
        table: &TableRef,
        key: &EntityKey,
    ) -> Result<Option<WholeEntity>, ClientError> {
        let tables = self.account(&table.account)?.tables.as_ref();
        let doing = || format!("could not read {table}{key}");
        if !self.catalog.wide.contains(table) {
            let row = tables
                .get(&table.table, key, None)
                .await
                .map_err(ClientError::store(doing()))?;
            return Ok(row.map(|row| WholeEntity { row, requests: 1 }));
        }
        let rows =
            wide::read(tables, &table.table, key, false)
                .await
                .map_err(|error| match error {
                    ReadError::Store(error) => ClientError::store(doing())(error),
                    error @ ReadError::Busy => ClientError::Read {
                        doing: doing(),
                        source: Box::new(error),
                    },
                })?;
        Ok(rows.joined().map(|row| WholeEntity {
            row,
            requests: rows.requests(),
        }))
    }
}
