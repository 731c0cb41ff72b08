//! Finds an entity that may be moving between its table and its archive.
//!
//! An `archive` job writes the copy before it deletes the source, and a `restore` job writes the source before it
//! deletes the copy. Therefore the entity is in the source table, in the archive, or in both at any time. The source is
//! read first, then the archive, then the source again. These reads miss only an entity that is restored between the
//! first two reads and archived again before the third.

use bytes::Bytes;

use super::{Client, ClientError, DecryptedRows};
use evenkeel_model::catalog::{Archive, ArchiveTarget};
use evenkeel_model::document::{DocumentError, DocumentPath};
use evenkeel_model::{BlobName, ETag, EntityKey, Row, ViewName};
use evenkeel_storage::FilePlace;

/// Whether an entity was found in its own table or in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntityLocation {
    /// In the source table of the archive.
    Source,
    /// In the archive.
    Archive,
}

/// A found entity and its location.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundEntity {
    /// The entity. Its row has no Timestamp if the archive stores documents or files.
    pub row: Row,
    /// Whether the entity was found in its own table or in the archive.
    pub at: EntityLocation,
}

impl Client {
    /// Finds an entity in the source of an archive or in the archive itself. Returns `None` if the entity is in neither of them. Log
    /// archives cannot be searched.
    ///
    /// This takes one to three requests, and one more for each read of an entity with several rows. Large values are returned as
    /// pointers to their blobs. [`get`](Client::get) returns the content of the blobs instead.
    ///
    /// ```
    /// # use evenkeel_client::{Client, EntityLocation};
    /// # use evenkeel_model::{EntityKey, ViewName};
    /// # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let key = EntityKey::new("Sales", "000223")?;
    /// if let Some(found) = client.find(&ViewName::new("former_employees")?, &key).await? {
    ///     let works_here = found.at == EntityLocation::Source;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn find(
        &self,
        archive: &ViewName,
        key: &EntityKey,
    ) -> Result<Option<FoundEntity>, ClientError> {
        let archive = self.archive(archive)?;
        if let ArchiveTarget::Log(_) = archive.target {
            let name = &archive.name;
            return Err(ClientError::Unknown(format!(
                "cannot look up entities in log archive {name}. Read it with `evenkeel logs {name}`"
            )));
        }
        if let (Some(row), _) = self.read(&archive.source, key).await? {
            return Ok(Some(FoundEntity {
                row,
                at: EntityLocation::Source,
            }));
        }
        if let (Some(row), _) = self.in_archive(archive, key).await? {
            return Ok(Some(FoundEntity {
                row,
                at: EntityLocation::Archive,
            }));
        }
        let (back, _) = self.read(&archive.source, key).await?;
        Ok(back.map(|row| FoundEntity {
            row,
            at: EntityLocation::Source,
        }))
    }

    /// Decrypts the properties of a found entity, like [`decrypt`](Client::decrypt).
    pub async fn decrypt_found(
        &self,
        archive: &ViewName,
        at: EntityLocation,
        row: &mut Row,
    ) -> Result<DecryptedRows, ClientError> {
        let archive = self.archive(archive)?;
        let table = match at {
            EntityLocation::Source => &archive.source,
            EntityLocation::Archive => archive.target.table().unwrap_or(&archive.source),
        };
        self.decrypt(table, std::slice::from_mut(row)).await
    }

    /// Reads one entity of an archive and returns the number of requests sent. The archive must not be a log.
    pub(super) async fn in_archive(
        &self,
        archive: &Archive,
        key: &EntityKey,
    ) -> Result<(Option<Row>, u64), ClientError> {
        if let ArchiveTarget::Table(table) = &archive.target {
            return self.read(table, key).await;
        }
        Ok((self.document(archive, key).await?, 1))
    }

    async fn document(
        &self,
        archive: &Archive,
        key: &EntityKey,
    ) -> Result<Option<Row>, ClientError> {
        let doing = || format!("could not read {key} in archive {}", archive.name);
        let found = match &archive.target {
            ArchiveTarget::Table(_) | ArchiveTarget::Log(_) => None,
            ArchiveTarget::Blob(target) => {
                let blobs = &self.account(&target.account)?.blobs;
                let blob = blobs
                    .get(&target.container, &place(&target.path, key)?, None)
                    .await;
                blob.map_err(ClientError::store(doing()))?
                    .map(|blob| (blob.content, blob.properties.etag))
            }
            ArchiveTarget::File(target) => {
                self.file(&target.dir, place(&target.path, key)?, &doing())
                    .await?
            }
        };
        let broken = |error: DocumentError| ClientError::Broken(format!("{}: {error}", doing()));
        let Some((content, etag)) = found else {
            return Ok(None);
        };
        let entity = self
            .catalog
            .archived(archive, &content, key)
            .map_err(broken)?;
        Ok(Some(Row {
            entity,
            etag,
            timestamp: None,
        }))
    }

    async fn file(
        &self,
        dir: &str,
        name: BlobName,
        doing: &str,
    ) -> Result<Option<(Bytes, ETag)>, ClientError> {
        let files = self
            .stores
            .files()
            .map_err(|error| ClientError::Unknown(error.to_string()))?;
        let file = files
            .read(&FilePlace {
                dir: dir.to_owned(),
                name,
            })
            .await;
        Ok(file
            .map_err(ClientError::store(doing))?
            .map(|file| (file.content, file.etag)))
    }
}

fn place(path: &DocumentPath, key: &EntityKey) -> Result<BlobName, ClientError> {
    path.of(key)
        .map_err(|error| ClientError::Unknown(error.to_string()))
}
