//! Finding an entity that may be under way between its table and its archive.
//!
//! Archiving writes the copy before it deletes the source, and restoring the source before it deletes the copy: at every
//! moment the entity is in one of the two, or in both. A look in the source, then in the archive, then in the source
//! once more therefore finds it, in whichever direction it moved meanwhile. (Unless it went both ways between two of the looks.)

use bytes::Bytes;

use super::{Client, ClientError, OpenedRows};
use evenkeel_model::catalog::{Archive, ArchiveTarget};
use evenkeel_model::document::{DocumentError, DocumentPath};
use evenkeel_model::planted::{Bug, planted};
use evenkeel_model::{BlobName, ETag, EntityKey, Row, ViewName};
use evenkeel_storage::FilePlace;

/// Where an entity was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// In its own table.
    Source,
    /// In the archive.
    Archive,
}

/// An entity, and where it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The entity. Out of a document or file it has no Timestamp.
    pub row: Row,
    /// Where it was found.
    pub at: Whereabouts,
}

impl Client {
    /// Finds an entity in the source of an archive or in the archive itself. `None` where it is in neither. An archive that is a
    /// log cannot be asked for one entity.
    ///
    /// One to three requests, and one more for each time that an entity of several rows is met. Large values are pointers to their blobs;
    /// [`get`](Client::get) has their contents.
    ///
    /// ```
    /// # use evenkeel_client::{Client, Whereabouts};
    /// # use evenkeel_model::{EntityKey, ViewName};
    /// # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let key = EntityKey::new("Sales", "000223")?;
    /// if let Some(found) = client.find(&ViewName::new("former_employees")?, &key).await? {
    ///     let works_here = found.at == Whereabouts::Source;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn find(
        &self,
        archive: &ViewName,
        key: &EntityKey,
    ) -> Result<Option<Found>, ClientError> {
        let archive = self.archive(archive)?;
        if let ArchiveTarget::Log(_) = archive.target {
            let name = &archive.name;
            return Err(ClientError::Unknown(format!(
                "[archives.{name}] is a log, in which no entity is looked up: read it with `evenkeel logs {name}`"
            )));
        }
        if let (Some(row), _) = self.read(&archive.source, key).await? {
            return Ok(Some(Found {
                row,
                at: Whereabouts::Source,
            }));
        }
        if let (Some(row), _) = self.in_archive(archive, key).await? {
            return Ok(Some(Found {
                row,
                at: Whereabouts::Archive,
            }));
        }
        if planted(Bug::FindLooksOnce) {
            return Ok(None);
        }
        let (back, _) = self.read(&archive.source, key).await?;
        Ok(back.map(|row| Found {
            row,
            at: Whereabouts::Source,
        }))
    }

    /// Opens the encrypted properties of an entity that was found, as [`open`](Client::open) does.
    pub async fn open_found(
        &self,
        archive: &ViewName,
        at: Whereabouts,
        row: &mut Row,
    ) -> Result<OpenedRows, ClientError> {
        let archive = self.archive(archive)?;
        let table = match at {
            Whereabouts::Source => &archive.source,
            Whereabouts::Archive => archive.target.table().unwrap_or(&archive.source),
        };
        self.open(table, std::slice::from_mut(row)).await
    }

    /// One entity of an archive that is no log, whole, and the requests that it took.
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
        let doing = || format!("reading {key} in archive {}", archive.name);
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

    /// A file of a shared folder, with its version.
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
