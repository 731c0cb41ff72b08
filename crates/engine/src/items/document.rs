//! Entities stored as JSON documents: blobs in a container, or files in a folder that all workers share.
//!
//! Like a row, a document is written and deleted on conditions. The service gives each blob an ETag. The ETag of a file
//! is computed from its content.
//!
//! If the large values of an entity are stored next to its document, the entity is a primary with a footprint. A pass
//! over it reads the document instead of a row. Other documents have no footprint.

use bytes::Bytes;

use crate::env::Env;
use crate::env::memory::{MemoryBudget, MemoryGrant, MemoryShare};
use crate::execute::Failure;
use crate::failure::{ROUNDS, lost_race, permanent, storage};
use crate::protocol::change::{Change, Commit};
use evenkeel_model::catalog::{Archive, ArchiveTarget, BlobTarget, Catalog, FileTarget};
use evenkeel_model::document::{self, DocumentError, PlaceError};
use evenkeel_model::large::{self, ValueFolder};
use evenkeel_model::{BlobName, ETag, Entity, EntityKey, Row, ViewName, limits};
use evenkeel_storage::{
    BlobCondition, BlobStore, BlobUpload, ErrorClass, FilePlace, FileStore, StoreError,
};

/// Number of bytes that the first request reads. Nearly every document fits.
const BEGINNING: u64 = 1 << 20;
const CONTENT_TYPE: &str = "application/json";
/// Number of copies of a document in memory: as bytes, as JSON and as an entity.
const COPIES: u64 = 3;

pub(crate) struct ArchiveDocument<'e> {
    catalog: &'e Catalog,
    archive: &'e Archive,
    memory: &'e MemoryBudget,
    key: EntityKey,
    sink: DocumentSink<'e>,
    rounds: u32,
}

enum DocumentSink<'e> {
    Blob {
        blobs: &'e dyn BlobStore,
        target: &'e BlobTarget,
        name: BlobName,
    },
    File {
        files: &'e dyn FileStore,
        place: FilePlace,
    },
}

pub(crate) enum Filed {
    /// Contains the new version after a write, and `None` after a deletion.
    Done(Option<ETag>),
    Lost,
    Unanswered,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "property {property:?} is a large value, but the archive's source table has no large_entity view any more. Declare the view again"
)]
struct UncarriedValues {
    property: String,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "it has {bytes} bytes, but a document has at most {}",
    limits::ARCHIVED_BYTES
)]
struct DocumentTooLarge {
    bytes: u64,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "its metadata has {bytes} bytes (names and values), at most 8,192 are allowed. Shorten `metadata` of [archives.{archive}]"
)]
struct MetadataTooLarge {
    archive: ViewName,
    bytes: usize,
}

impl<'e> ArchiveDocument<'e> {
    pub(crate) fn filed(
        env: &'e Env,
        archive: &'e Archive,
        key: &EntityKey,
    ) -> Result<Self, Failure> {
        match &archive.target {
            ArchiveTarget::Blob(target) => Self::blob(env, archive, target, key),
            ArchiveTarget::File(target) => Self::file(env, archive, target, key),
            ArchiveTarget::Table(_) | ArchiveTarget::Log(_) => Err(permanent(
                format!("finding the place of {key} in archive {}", archive.name),
                "the archive does not store documents",
            )),
        }
    }

    pub(crate) fn blob(
        env: &'e Env,
        archive: &'e Archive,
        target: &'e BlobTarget,
        key: &EntityKey,
    ) -> Result<Self, Failure> {
        let name = target
            .path
            .of(key)
            .map_err(|error| misplaced(archive, key, error))?;
        let account = env
            .stores
            .account(&target.account)
            .map_err(|error| permanent("finding the account of the archive", error))?;
        let sink = DocumentSink::Blob {
            blobs: account.blobs.as_ref(),
            target,
            name,
        };
        Ok(Self {
            catalog: &env.catalog,
            archive,
            memory: &env.memory,
            key: key.clone(),
            sink,
            rounds: 0,
        })
    }

    pub(crate) fn file(
        env: &'e Env,
        archive: &'e Archive,
        target: &'e FileTarget,
        key: &EntityKey,
    ) -> Result<Self, Failure> {
        let name = target
            .path
            .of(key)
            .map_err(|error| misplaced(archive, key, error))?;
        let files = env
            .stores
            .files()
            .map_err(|error| permanent("finding the folder of the archive", error))?;
        let sink = DocumentSink::File {
            files,
            place: FilePlace {
                dir: target.dir.clone(),
                name,
            },
        };
        Ok(Self {
            catalog: &env.catalog,
            archive,
            memory: &env.memory,
            key: key.clone(),
            sink,
            rounds: 0,
        })
    }

    pub(crate) fn dir(&self) -> Option<&str> {
        match &self.sink {
            DocumentSink::File { place, .. } => Some(&place.dir),
            DocumentSink::Blob { .. } => None,
        }
    }

    pub(crate) fn folder(&self) -> ValueFolder {
        ValueFolder::beside(match &self.sink {
            DocumentSink::Blob { name, .. } => name,
            DocumentSink::File { place, .. } => &place.name,
        })
    }

    /// Rejects an entity with large values, because a restore of the document alone does not copy them.
    pub(crate) fn refuse_values(&self, entity: &Entity) -> Result<(), Failure> {
        large::known_pointers(entity).map_err(|error| permanent(self.doing("restoring"), error))?;
        match large::pointers(&self.folder(), entity).next() {
            Some((property, _)) => Err(permanent(
                self.doing("restoring"),
                UncarriedValues {
                    property: property.to_owned(),
                },
            )),
            None => Ok(()),
        }
    }

    pub(crate) fn count_round(&mut self) -> Result<(), Failure> {
        self.rounds += 1;
        if self.rounds > ROUNDS {
            Err(lost_race(
                format!("restoring the document of {}", self.key),
                ROUNDS,
            ))
        } else {
            Ok(())
        }
    }

    fn doing(&self, what: &str) -> String {
        format!(
            "{what} the document of {} in archive {}",
            self.key, self.archive.name
        )
    }

    pub(crate) async fn read(&self) -> Result<Option<Row>, Failure> {
        let failed = |error| storage(self.doing("reading"), error);
        match &self.sink {
            DocumentSink::Blob {
                blobs,
                target,
                name,
            } => {
                let Some(blob) = blobs
                    .get(&target.container, name, Some(0..BEGINNING))
                    .await
                    .map_err(failed)?
                else {
                    return Ok(None);
                };
                let (length, etag) = (blob.properties.length, blob.properties.etag);
                let _memory = self.hold(length).await?;
                let mut content = blob.content;
                if length > BEGINNING {
                    drop(content);
                    content = match blobs
                        .get_at(&target.container, name, 0..length, &etag)
                        .await
                    {
                        Err(error) if error.class == ErrorClass::Precondition => {
                            return Err(lost_race(self.doing("reading"), 1));
                        }
                        read => read.map_err(failed)?,
                    };
                }
                self.row(&content, etag).map(Some)
            }
            DocumentSink::File { files, place } => {
                let Some(found) = files.find(place).await.map_err(failed)? else {
                    return Ok(None);
                };
                let _memory = self.hold(found.length).await?;
                let file = files.read(place).await.map_err(failed)?;
                file.map(|file| self.row(&file.content, file.etag))
                    .transpose()
            }
        }
    }

    async fn hold(&self, bytes: u64) -> Result<MemoryGrant, Failure> {
        if bytes > limits::ARCHIVED_BYTES {
            return Err(permanent(self.doing("reading"), DocumentTooLarge { bytes }));
        }
        Ok(self
            .memory
            .take(MemoryShare::Documents, bytes * COPIES)
            .await)
    }

    fn row(&self, content: &[u8], etag: ETag) -> Result<Row, Failure> {
        let entity = self
            .catalog
            .archived(self.archive, content, &self.key)
            .map_err(|error| permanent(self.doing("reading"), error))?;
        Ok(Row {
            entity,
            etag,
            timestamp: None,
        })
    }

    pub(crate) async fn write_or_delete(&self, change: &Change) -> Result<Commit, Failure> {
        Ok(match self.carry_out(change).await? {
            Filed::Done(_) => Commit::Closed,
            Filed::Lost => Commit::Lost,
            Filed::Unanswered => Commit::Unanswered,
        })
    }

    pub(crate) async fn carry_out(&self, change: &Change) -> Result<Filed, Failure> {
        let ended = match change {
            Change::Insert(entity) => self.write(entity, BlobCondition::Absent).await?,
            Change::Replace(entity, etag)
            | Change::Merge {
                merged: entity,
                etag,
                ..
            } => {
                self.write(entity, BlobCondition::Matches(etag.clone()))
                    .await?
            }
            Change::Delete(_, etag) => self.delete(etag).await,
        };
        match ended {
            Ok(filed) => Ok(filed),
            Err(error) if error.is_lost_race() => Ok(Filed::Lost),
            Err(error) if error.class == ErrorClass::Ambiguous => Ok(Filed::Unanswered),
            Err(error) => Err(storage(self.doing("writing"), error)),
        }
    }

    async fn write(
        &self,
        entity: &Entity,
        condition: BlobCondition,
    ) -> Result<Result<Filed, StoreError>, Failure> {
        let content = document::encode(entity);
        let written = match &self.sink {
            DocumentSink::Blob {
                blobs,
                target,
                name,
            } => {
                let upload = self.upload(target, entity, condition)?;
                blobs.put(&target.container, name, content, &upload).await
            }
            DocumentSink::File { files, place } => {
                files.write(place, Bytes::clone(&content), &condition).await
            }
        };
        Ok(written.map(|etag| Filed::Done(Some(etag))))
    }

    async fn delete(&self, etag: &ETag) -> Result<Filed, StoreError> {
        let deleted = match &self.sink {
            DocumentSink::Blob {
                blobs,
                target,
                name,
            } => blobs.delete(&target.container, name, Some(etag)).await?,
            DocumentSink::File { files, place } => {
                let deleted = files.delete(place, etag).await?;
                if deleted {
                    tracing::info!(archive = %self.archive.name, dir = place.dir, file = %place.name, "deleted file {}: its entity is no longer in the archive", place.name);
                }
                deleted
            }
        };
        Ok(if deleted {
            Filed::Done(None)
        } else {
            Filed::Lost
        })
    }

    fn upload(
        &self,
        target: &BlobTarget,
        entity: &Entity,
        condition: BlobCondition,
    ) -> Result<BlobUpload, Failure> {
        let mut upload = BlobUpload {
            condition,
            content_type: Some(CONTENT_TYPE.to_owned()),
            cache_control: None,
            ..BlobUpload::default()
        };
        let mut bytes = 0;
        for (name, template) in &target.metadata {
            let value = document::metadata(template, entity);
            let value = value.map_err(|error| {
                permanent(
                    self.doing(&format!("rendering the metadata {name:?} of")),
                    error,
                )
            })?;
            if let Some(value) = value {
                bytes += name.len() + value.len();
                upload.metadata.insert(name.clone(), value);
            }
        }
        if bytes > limits::METADATA_BYTES {
            return Err(permanent(
                self.doing("writing"),
                MetadataTooLarge {
                    archive: self.archive.name.clone(),
                    bytes,
                },
            ));
        }
        Ok(upload)
    }
}

/// Returns `true` if a document could not be read because it belongs to an entity of another archive, which uses the
/// same location.
pub(crate) fn is_anothers(failure: &Failure) -> bool {
    matches!(
        failure.cause.downcast_ref::<DocumentError>(),
        Some(DocumentError::Table { .. })
    )
}

fn misplaced(archive: &Archive, key: &EntityKey, error: PlaceError) -> Failure {
    permanent(
        format!("finding the place of {key} in archive {}", archive.name),
        error,
    )
}
