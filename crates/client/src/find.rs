//! Finding an entity that may be under way between its table and its archive.
//!
//! Archiving writes the copy before it deletes the source, and restoring the source before it deletes the copy: at every
//! moment the entity is in one of the two, or in both. A look in the source, then in the archive, then in the source
//! once more therefore finds it, in whichever direction it moved meanwhile. (Unless it went both ways between two of the looks.)

use bytes::Bytes;

use super::resolve::{ValuePlace, rejoined_from, with_spilled};
use super::{Client, ClientError, OpenedRows, Whole};
use evenkeel_model::catalog::{Archive, ArchiveTarget, TableRef};
use evenkeel_model::model::document::{DocumentError, DocumentPath};
use evenkeel_model::model::large::{Pointer, SPILLED, ValueFolder};
use evenkeel_model::model::{BlobName, ETag, EntityKey, Row, ViewName};
use evenkeel_model::planted::{Bug, planted};
use evenkeel_model::ports::FilePlace;

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
    /// One to three requests, and one more for each time that an entity of several rows is met, and two that one is whose properties have
    /// left its row. Large values are pointers to their blobs; [`get`](Client::get) has their contents.
    ///
    /// ```
    /// # use evenkeel::client::{Client, Whereabouts};
    /// # use evenkeel::model::{EntityKey, ViewName};
    /// # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let key = EntityKey::new("Sales", "000223")?;
    /// if let Some(found) = client.find(&ViewName::new("former_employees")?, &key).await? {
    ///     let works_here = found.at == Whereabouts::Source;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn find(&self, archive: &ViewName, key: &EntityKey) -> Result<Option<Found>, ClientError> {
        let archive = self.archive(archive)?;
        if let ArchiveTarget::Log(_) = archive.target {
            let name = &archive.name;
            return Err(ClientError::Unknown(format!(
                "[archives.{name}] is a log, in which no entity is looked up: read it with `evenkeel logs {name}`"
            )));
        }
        if let (Some(row), _) = self.in_source(&archive.source, key).await? {
            return Ok(Some(Found { row, at: Whereabouts::Source }));
        }
        if let (Some(row), _) = self.in_archive(archive, key).await? {
            return Ok(Some(Found { row, at: Whereabouts::Archive }));
        }
        if planted(Bug::FindLooksOnce) {
            return Ok(None);
        }
        let (back, _) = self.in_source(&archive.source, key).await?;
        Ok(back.map(|row| Found { row, at: Whereabouts::Source }))
    }

    /// Opens the encrypted properties of an entity that was found, as [`open`](Client::open) does.
    pub async fn open_found(&self, archive: &ViewName, at: Whereabouts, row: &mut Row) -> Result<OpenedRows, ClientError> {
        let archive = self.archive(archive)?;
        let table = match at {
            Whereabouts::Source => &archive.source,
            Whereabouts::Archive => archive.target.table().unwrap_or(&archive.source),
        };
        self.open(table, std::slice::from_mut(row)).await
    }

    /// One entity of a table, whole, and the requests that it took.
    async fn in_source(&self, source: &TableRef, key: &EntityKey) -> Result<(Option<Row>, u64), ClientError> {
        let Some(Whole { row, requests }) = self.whole(source, key).await? else { return Ok((None, 1)) };
        let (row, more) = self.rejoined(source, row).await?;
        Ok((row, requests + more))
    }

    /// One entity of an archive that is no log, whole, and the requests that it took.
    pub(super) async fn in_archive(&self, archive: &Archive, key: &EntityKey) -> Result<(Option<Row>, u64), ClientError> {
        if let ArchiveTarget::Table(table) = &archive.target {
            return self.in_source(table, key).await;
        }
        let (mut broken_at, mut requests) = (None, 0);
        loop {
            requests += 1;
            let Some(row) = self.document(archive, key).await? else { return Ok((None, requests)) };
            let etag = row.etag.clone();
            match self.rejoined_document(archive, row).await {
                // Its values go with a version of it: it is read again.
                Err(ClientError::Broken(_)) if broken_at.as_ref() != Some(&etag) => broken_at = Some(etag),
                ended => return ended.map(|(row, took)| (Some(row), requests + took)),
            }
        }
    }

    async fn document(&self, archive: &Archive, key: &EntityKey) -> Result<Option<Row>, ClientError> {
        let doing = || format!("reading {key} in archive {}", archive.name);
        let found = match &archive.target {
            ArchiveTarget::Table(_) | ArchiveTarget::Log(_) => None,
            ArchiveTarget::Blob(target) => {
                let blobs = &self.account(&target.account)?.blobs;
                let blob = blobs.get(&target.container, &place(&target.path, key)?, None).await;
                blob.map_err(ClientError::store(doing()))?.map(|blob| (blob.content, blob.properties.etag))
            }
            ArchiveTarget::File(target) => self.file(&target.dir, place(&target.path, key)?, &doing()).await?,
        };
        let broken = |error: DocumentError| ClientError::Broken(format!("{}: {error}", doing()));
        let Some((content, etag)) = found else { return Ok(None) };
        let entity = self.catalog.archived(archive, &content, key).map_err(broken)?;
        Ok(Some(Row { entity, etag, timestamp: None }))
    }

    /// A document's entity with the properties that had left its row before, and the requests that it took.
    async fn rejoined_document(&self, archive: &Archive, row: Row) -> Result<(Row, u64), ClientError> {
        let path = match &archive.target {
            ArchiveTarget::Table(_) | ArchiveTarget::Log(_) => None,
            ArchiveTarget::Blob(target) => Some(&target.path),
            ArchiveTarget::File(target) => Some(&target.path),
        };
        let folder = path.map(|path| place(path, &row.entity.key)).transpose()?.map(|name| ValueFolder::beside(&name));
        let shelf = self.catalog.filing_of(&archive.name).map(|filing| filing.shelf.clone());
        let values = shelf.zip(folder).map(|(shelf, folder)| ValuePlace { shelf, folder });
        let beside = row.entity.get(SPILLED).and_then(Pointer::of).filter(|pointer| pointer.container.is_none());
        let (entity, requests) = match (beside, &archive.target) {
            (Some(pointer), ArchiveTarget::File(target)) => {
                let broken = |what| ClientError::Broken(format!("property {SPILLED} points to {}, {what}", pointer.name));
                if !values.is_some_and(|values| pointer.is_of(&values.folder)) {
                    return Err(broken("which does not lie beside its document"));
                }
                let file = self.file(&target.dir, pointer.name.clone(), &format!("reading {}", pointer.name)).await?;
                let (content, _) = file.ok_or_else(|| broken("which does not exist"))?;
                (with_spilled(row.entity, &pointer, &content)?, 1)
            }
            _ => rejoined_from(self, values.as_ref(), row.entity).await?,
        };
        Ok((Row { entity, ..row }, requests))
    }

    /// A file of a shared folder, with its version.
    async fn file(&self, dir: &str, name: BlobName, doing: &str) -> Result<Option<(Bytes, ETag)>, ClientError> {
        let files = self.stores.files().map_err(|error| ClientError::Unknown(error.to_string()))?;
        let file = files.read(&FilePlace { dir: dir.to_owned(), name }).await;
        Ok(file.map_err(ClientError::store(doing))?.map(|file| (file.content, file.etag)))
    }
}

fn place(path: &DocumentPath, key: &EntityKey) -> Result<BlobName, ClientError> {
    path.of(key).map_err(|error| ClientError::Unknown(error.to_string()))
}
