//! Blob storage.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _};

use evenkeel_model::{BlobName, ContainerName, ETag};
use evenkeel_storage::check::blobs as check;
use evenkeel_storage::{
    Blob, BlobCondition, BlobCopy, BlobItem, BlobPage, BlobProperties, BlobStore, BlobUpload,
    BlockId, ErrorClass, Missing, Resource, StoreError,
};

use super::blocks;
use super::contents::{self, Header};
use super::fault::Fault;
use super::reclaim::DroppedKind;
use super::stamp;
use super::store::EmbeddedStore;
use super::writer::WriteContext;

/// Maximum number of blobs on one page of a listing (Azure, "List Blobs": 5,000).
const PAGE_BLOBS: usize = 5_000;

#[async_trait]
impl BlobStore for EmbeddedStore {
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let what = || Resource::Container(container.clone());
        let sql = "INSERT INTO containers (name) VALUES (?1) ON CONFLICT DO NOTHING";
        self.create("Create Container", what, sql, [container.to_string()])
            .await
    }

    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let what = || Resource::Container(container.clone());
        let sql = "DELETE FROM containers WHERE name = ?1 RETURNING id";
        let name = container.to_string();
        self.delete_with_contents("Delete Container", what, DroppedKind::Container, sql, name)
            .await
    }

    async fn put(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Put Blob";
        let what = || Resource::Blob(container.clone(), name.clone());
        check::upload(&content, upload).map_err(|fault| self.error(NAME, what(), fault))?;
        let header = header_of(upload);
        let (place, condition) = (BlobAddress::of(container, name), upload.condition.clone());
        self.write(NAME, what, move |writing| {
            let slot = place.slot(writing.connection)?;
            slot.admits(&condition)?;
            let stamp = writing.stamp();
            contents::write(writing.connection, stamp, &header, &content)?;
            slot.set(writing, stamp, content.len() as u64, false)
        })
        .await
    }

    async fn create_append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Put Append Blob";
        let what = || Resource::Blob(container.clone(), name.clone());
        check::upload(&[], upload).map_err(|fault| self.error(NAME, what(), fault))?;
        let header = header_of(upload);
        let (place, condition) = (BlobAddress::of(container, name), upload.condition.clone());
        self.write(NAME, what, move |writing| {
            let slot = place.slot(writing.connection)?;
            slot.admits(&condition)?;
            let stamp = writing.stamp();
            contents::write(writing.connection, stamp, &header, &Bytes::new())?;
            slot.set(writing, stamp, 0, true)
        })
        .await
    }

    async fn append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        position: u64,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Append Block";
        let what = || Resource::Blob(container.clone(), name.clone());
        check::append(&content).map_err(|fault| self.error(NAME, what(), fault))?;
        let place = BlobAddress::of(container, name);
        self.write(NAME, what, move |writing| {
            let slot = place.slot(writing.connection)?;
            let version = slot.version.ok_or_else(|| {
                Fault::new(
                    ErrorClass::NotFound(Missing::Item),
                    "the blob does not exist",
                )
            })?;
            if !version.append {
                return Err(Fault::permanent("the blob is not an append blob"));
            }
            if version.length != position {
                return Err(Fault::new(
                    ErrorClass::Precondition,
                    "the blob has another length",
                ));
            }
            let stamp = writing.stamp();
            contents::extend(
                writing.connection,
                version.stamp,
                stamp,
                version.length,
                &content,
            )?;
            slot.renewed(writing, stamp, version.length + content.len() as u64)
        })
        .await
    }

    async fn put_block(
        &self,
        container: &ContainerName,
        name: &BlobName,
        block: BlockId,
        content: Bytes,
    ) -> Result<(), StoreError> {
        const NAME: &str = "Put Block";
        let what = || Resource::Blob(container.clone(), name.clone());
        check::block(&content).map_err(|fault| self.error(NAME, what(), fault))?;
        let place = BlobAddress::of(container, name);
        self.write(NAME, what, move |writing| {
            blocks::put_uncommitted(writing, &place, block, &content)
        })
        .await
    }

    async fn put_block_list(
        &self,
        container: &ContainerName,
        name: &BlobName,
        blocks: &[BlockId],
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Put Block List";
        let what = || Resource::Blob(container.clone(), name.clone());
        check::block_list(blocks, upload).map_err(|fault| self.error(NAME, what(), fault))?;
        let header = header_of(upload);
        let (place, blocks, upload) = (
            BlobAddress::of(container, name),
            blocks.to_vec(),
            upload.clone(),
        );
        self.write(NAME, what, move |writing| {
            blocks::commit(writing, &place, &blocks, &upload, &header)
        })
        .await
    }

    async fn set_metadata(
        &self,
        container: &ContainerName,
        name: &BlobName,
        metadata: &BTreeMap<String, String>,
        if_match: &ETag,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Set Blob Metadata";
        let what = || Resource::Blob(container.clone(), name.clone());
        check::metadata(metadata).map_err(|fault| self.error(NAME, what(), fault))?;
        let metadata = lower_case(metadata);
        let (place, condition) = (
            BlobAddress::of(container, name),
            BlobCondition::Matches(if_match.clone()),
        );
        self.write(NAME, what, move |writing| {
            let slot = place.slot(writing.connection)?;
            slot.admits(&condition)?;
            let version = slot
                .version
                .ok_or_else(|| Fault::new(ErrorClass::Precondition, "the blob does not exist"))?;
            let stamp = writing.stamp();
            contents::set_metadata(writing.connection, version.stamp, stamp, &metadata)?;
            slot.renewed(writing, stamp, version.length)
        })
        .await
    }

    async fn get(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Blob>, StoreError> {
        let place = BlobAddress::of(container, name);
        self.read(
            "Get Blob",
            || Resource::Blob(container.clone(), name.clone()),
            move |connection| {
                let Some(version) = place.slot(connection)?.version else {
                    return Ok(None);
                };
                let content = contents::read(connection, version.stamp, version.length, range)?;
                Ok(Some(Blob {
                    content,
                    properties: contents::properties(connection, version.stamp, version.length)?,
                }))
            },
        )
        .await
    }

    async fn get_at(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Range<u64>,
        etag: &ETag,
    ) -> Result<Bytes, StoreError> {
        let (place, condition) = (
            BlobAddress::of(container, name),
            BlobCondition::Matches(etag.clone()),
        );
        self.read(
            "Get Blob",
            || Resource::Blob(container.clone(), name.clone()),
            move |connection| {
                let slot = place.slot(connection)?;
                slot.admits(&condition)?;
                let version = slot.version.ok_or_else(|| {
                    Fault::new(ErrorClass::Precondition, "the blob does not exist")
                })?;
                contents::read(connection, version.stamp, version.length, Some(range))
            },
        )
        .await
    }

    async fn properties(
        &self,
        container: &ContainerName,
        name: &BlobName,
    ) -> Result<Option<BlobProperties>, StoreError> {
        let place = BlobAddress::of(container, name);
        self.read(
            "Get Blob Properties",
            || Resource::Blob(container.clone(), name.clone()),
            move |connection| {
                let version = place.slot(connection)?.version;
                version
                    .map(|version| contents::properties(connection, version.stamp, version.length))
                    .transpose()
            },
        )
        .await
    }

    async fn delete(
        &self,
        container: &ContainerName,
        name: &BlobName,
        if_match: Option<&ETag>,
    ) -> Result<bool, StoreError> {
        let (place, condition) = (
            BlobAddress::of(container, name),
            if_match
                .cloned()
                .map_or(BlobCondition::None, BlobCondition::Matches),
        );
        self.write(
            "Delete Blob",
            || Resource::Blob(container.clone(), name.clone()),
            move |writing| {
                let slot = place.slot(writing.connection)?;
                let Some(version) = slot.version else {
                    return Ok(false);
                };
                slot.admits(&condition)?;
                contents::remove(writing.connection, version.stamp)?;
                blocks::delete_uncommitted(writing.connection, slot.container, slot.name)?;
                let sql = "DELETE FROM blobs WHERE container_id = ?1 AND name = ?2";
                writing
                    .connection
                    .prepare_cached(sql)?
                    .execute((slot.container, slot.name))?;
                Ok(true)
            },
        )
        .await
    }

    async fn copy(
        &self,
        from: (&ContainerName, &BlobName),
        to: (&ContainerName, &BlobName),
        copying: &BlobCopy,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Copy Blob";
        let what = || Resource::Blob(from.0.clone(), from.1.clone());
        let metadata = copying.metadata.as_ref();
        metadata
            .map_or(Ok(()), check::metadata)
            .map_err(|fault| self.error(NAME, what(), fault))?;
        let metadata = metadata.map(lower_case);
        let (source, target, condition) = (
            BlobAddress::of(from.0, from.1),
            BlobAddress::of(to.0, to.1),
            copying.condition.clone(),
        );
        self.write(NAME, what, move |writing| {
            let version = source.slot(writing.connection)?.version;
            let version = version.ok_or_else(|| {
                Fault::new(
                    ErrorClass::NotFound(Missing::Item),
                    "the blob to copy does not exist",
                )
            })?;
            let slot = target.slot(writing.connection)?;
            slot.admits(&condition)?;
            let stamp = writing.stamp();
            contents::copy(writing.connection, version.stamp, stamp)?;
            if let Some(metadata) = &metadata {
                contents::write_metadata(writing.connection, stamp, metadata)?;
            }
            slot.set(writing, stamp, version.length, version.append)
        })
        .await
    }

    async fn list(
        &self,
        container: &ContainerName,
        prefix: &str,
        marker: Option<&str>,
    ) -> Result<BlobPage, StoreError> {
        let (name, prefix, from) = (
            container.clone(),
            prefix.to_owned(),
            marker.unwrap_or_default().max(prefix).to_owned(),
        );
        let limit = self.page_limit(PAGE_BLOBS);
        self.read(
            "List Blobs",
            || Resource::Container(container.clone()),
            move |connection| {
                let id = container_id(connection, &name)?;
                let sql = "SELECT name, stamp, length FROM blobs WHERE container_id = ?1 AND name >= ?2 ORDER BY name";
                let mut statement = connection.prepare_cached(sql)?;
                let mut rows = statement.query((id, from))?;
                let mut page = BlobPage { blobs: Vec::new(), marker: None };
                while let Some(row) = rows.next()? {
                    let name: String = row.get(0)?;
                    // Names are sorted, so the names with the prefix are adjacent.
                    if !name.starts_with(&prefix) {
                        break;
                    }
                    if page.blobs.len() >= limit {
                        page.marker = Some(name);
                        break;
                    }
                    let name = BlobName::new(name).map_err(Fault::corrupt)?;
                    page.blobs.push(BlobItem { name, etag: stamp::blob_etag(row.get(1)?)?, length: row.get::<_, i64>(2)?.cast_unsigned() });
                }
                Ok(page)
            },
        )
        .await
    }
}

fn container_id(connection: &Connection, container: &ContainerName) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached("SELECT id FROM containers WHERE name = ?1")?;
    statement
        .query_row([container.as_str()], |row| row.get(0))
        .optional()?
        .ok_or_else(|| Fault::no_container("container"))
}

pub(super) struct BlobAddress {
    container: ContainerName,
    name: BlobName,
}

/// The row of a blob, which need not exist.
pub(super) struct BlobSlot<'a> {
    pub(super) container: i64,
    pub(super) name: &'a str,
    pub(super) version: Option<Version>,
}

#[derive(Clone, Copy)]
pub(super) struct Version {
    pub(super) stamp: i64,
    pub(super) length: u64,
    /// Whether it is an append blob.
    append: bool,
}

impl BlobAddress {
    fn of(container: &ContainerName, name: &BlobName) -> Self {
        Self {
            container: container.clone(),
            name: name.clone(),
        }
    }

    pub(super) fn slot(&self, connection: &Connection) -> Result<BlobSlot<'_>, Fault> {
        let container = container_id(connection, &self.container)?;
        let mut statement = connection.prepare_cached(
            "SELECT stamp, length, append FROM blobs WHERE container_id = ?1 AND name = ?2",
        )?;
        let version = statement
            .query_row((container, self.name.as_str()), |row| {
                Ok(Version {
                    stamp: row.get(0)?,
                    length: row.get::<_, i64>(1)?.cast_unsigned(),
                    append: row.get(2)?,
                })
            })
            .optional()?;
        Ok(BlobSlot {
            container,
            name: self.name.as_str(),
            version,
        })
    }
}

impl BlobSlot<'_> {
    /// Checks the condition of a write.
    pub(super) fn admits(&self, condition: &BlobCondition) -> Result<(), Fault> {
        match (condition, self.version) {
            (BlobCondition::Absent, Some(_)) => {
                Err(Fault::new(ErrorClass::Conflict, "the blob already exists"))
            }
            (BlobCondition::Matches(_), None) => Err(Fault::new(
                ErrorClass::Precondition,
                "the blob does not exist",
            )),
            (BlobCondition::Matches(etag), Some(version))
                if stamp::blob_etag(version.stamp)? != *etag =>
            {
                Err(Fault::new(
                    ErrorClass::Precondition,
                    "the blob has another ETag",
                ))
            }
            (BlobCondition::None | BlobCondition::Absent | BlobCondition::Matches(_), _) => Ok(()),
        }
    }

    /// Refuses an append blob.
    pub(super) fn needs_blocks(&self) -> Result<(), Fault> {
        if self.version.is_some_and(|version| version.append) {
            Err(Fault::permanent("the blob is not a block blob"))
        } else {
            Ok(())
        }
    }

    /// Replaces the current version.
    pub(super) fn set(
        &self,
        writing: &WriteContext<'_>,
        stamp: i64,
        length: u64,
        append: bool,
    ) -> Result<ETag, Fault> {
        if let Some(old) = self.version {
            contents::remove(writing.connection, old.stamp)?;
        }
        blocks::delete_uncommitted(writing.connection, self.container, self.name)?;
        let sql = "INSERT INTO blobs (container_id, name, stamp, length, append) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT \
                   (container_id, name) DO UPDATE SET stamp = excluded.stamp, length = excluded.length, append = excluded.append";
        writing.connection.prepare_cached(sql)?.execute((
            self.container,
            self.name,
            stamp,
            length.cast_signed(),
            append,
        ))?;
        stamp::blob_etag(stamp)
    }

    /// Records that the current version has a new stamp.
    fn renewed(&self, writing: &WriteContext<'_>, stamp: i64, length: u64) -> Result<ETag, Fault> {
        let sql = "UPDATE blobs SET stamp = ?3, length = ?4 WHERE container_id = ?1 AND name = ?2";
        writing.connection.prepare_cached(sql)?.execute((
            self.container,
            self.name,
            stamp,
            length.cast_signed(),
        ))?;
        stamp::blob_etag(stamp)
    }
}

fn header_of(upload: &BlobUpload) -> Header {
    Header {
        content_type: upload
            .content_type
            .clone()
            .unwrap_or_else(|| "application/octet-stream".to_owned()),
        cache_control: upload.cache_control.clone(),
        metadata: lower_case(&upload.metadata),
    }
}

/// The metadata as the service returns it, with names in lower case.
fn lower_case(metadata: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let lower = |(name, value): (&String, &String)| (name.to_ascii_lowercase(), value.clone());
    metadata.iter().map(lower).collect()
}
