//! An entity kept as a document: in a container, or in a folder that every worker shares.
//!
//! It is written and deleted under conditions, as a row is: a blob's ETag is the service's, a file's is that of its
//! content. Nothing is derived from a document, so it has no footprint.

use bytes::Bytes;

use super::commit::{Change, Commit};
use super::engine::Engine;
use super::execute::Failure;
use super::failure::{lost_race, permanent, storage};
use super::observation::Observation;
use super::pass::ROUNDS;
use crate::catalog::{Archive, BlobTarget, FileTarget};
use crate::model::document::{self, PlaceError};
use crate::model::{BlobName, ETag, Entity, EntityKey, Row, ViewName, limits};
use crate::ports::{BlobCondition, BlobStore, BlobUpload, ErrorClass, FilePlace, FileStore, StoreError};

/// The document of one entity.
pub(super) struct Document<'e> {
    archive: &'e ViewName,
    key: &'e EntityKey,
    sink: Sink<'e>,
    rounds: u32,
}

enum Sink<'e> {
    Blob { blobs: &'e dyn BlobStore, target: &'e BlobTarget, name: BlobName },
    File { files: &'e dyn FileStore, place: FilePlace },
}

/// The metadata of a document is more than a blob can have.
#[derive(Debug, thiserror::Error)]
#[error(
    "its metadata has {bytes} bytes, names and values together; Azure Blob storage allows 8,192 (8 KiB): shorten what [archives.{archive}] puts into `metadata`"
)]
struct MetadataTooLarge {
    archive: ViewName,
    bytes: usize,
}

impl<'e> Document<'e> {
    /// In a container.
    pub(super) fn blob(engine: &'e Engine, archive: &'e Archive, target: &'e BlobTarget, key: &'e EntityKey) -> Result<Self, Failure> {
        let name = target.path.of(key).map_err(|error| misplaced(archive, key, error))?;
        let account = engine.stores.account(&target.account).map_err(|error| permanent("finding the account of the archive", error))?;
        Ok(Self { archive: &archive.name, key, sink: Sink::Blob { blobs: account.blobs.as_ref(), target, name }, rounds: 0 })
    }

    /// In a shared folder.
    pub(super) fn file(engine: &'e Engine, archive: &'e Archive, target: &'e FileTarget, key: &'e EntityKey) -> Result<Self, Failure> {
        let name = target.path.of(key).map_err(|error| misplaced(archive, key, error))?;
        let files = engine.stores.files().map_err(|error| permanent("finding the folder of the archive", error))?;
        Ok(Self { archive: &archive.name, key, sink: Sink::File { files, place: FilePlace { dir: target.dir.clone(), name } }, rounds: 0 })
    }

    /// Counts a round.
    pub(super) fn next_round(&mut self) -> Result<(), Failure> {
        self.rounds += 1;
        if self.rounds > ROUNDS { Err(lost_race(format!("bringing back the document of {}", self.key), ROUNDS)) } else { Ok(()) }
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} the document of {} in archive {}", self.key, self.archive)
    }

    /// Reads the document.
    pub(super) async fn observe(&self) -> Result<Observation, Failure> {
        let found = match &self.sink {
            Sink::Blob { blobs, target, name } => {
                let blob = blobs.get(&target.container, name, None).await;
                blob.map(|blob| blob.map(|blob| (blob.content, blob.properties.etag)))
            }
            Sink::File { files, place } => files.read(place).await.map(|file| file.map(|file| (file.content, file.etag))),
        };
        let found = found.map_err(|error| storage(self.doing("reading"), error))?;
        let row = found.map(|(content, etag)| self.row(&content, etag)).transpose()?;
        Ok(Observation { row, ..Observation::blank() })
    }

    fn row(&self, content: &[u8], etag: ETag) -> Result<Row, Failure> {
        let entity = document::decode(content, self.key).map_err(|error| permanent(self.doing("reading"), error))?;
        Ok(Row { entity, etag, timestamp: None })
    }

    /// Writes or deletes the document.
    pub(super) async fn commit(&self, change: &Change) -> Result<Commit, Failure> {
        let ended = match change {
            Change::Insert(entity) => self.write(entity, BlobCondition::Absent).await?,
            Change::Replace(entity, etag) | Change::Merge { merged: entity, etag, .. } => {
                self.write(entity, BlobCondition::Matches(etag.clone())).await?
            }
            Change::Delete(_, etag) => self.delete(etag).await,
        };
        match ended {
            Ok(true) => Ok(Commit::Closed),
            Ok(false) => Ok(Commit::Lost),
            Err(error) if error.is_lost_race() => Ok(Commit::Lost),
            Err(error) if error.class == ErrorClass::Ambiguous => Ok(Commit::Unanswered),
            Err(error) => Err(storage(self.doing("writing"), error)),
        }
    }

    async fn write(&self, entity: &Entity, condition: BlobCondition) -> Result<Result<bool, StoreError>, Failure> {
        let content = document::encode(entity);
        Ok(match &self.sink {
            Sink::Blob { blobs, target, name } => {
                let upload = self.upload(target, entity, condition)?;
                blobs.put(&target.container, name, content, &upload).await.map(|_| true)
            }
            Sink::File { files, place } => files.write(place, Bytes::clone(&content), &condition).await.map(|_| true),
        })
    }

    async fn delete(&self, etag: &ETag) -> Result<bool, StoreError> {
        match &self.sink {
            Sink::Blob { blobs, target, name } => blobs.delete(&target.container, name, Some(etag)).await,
            Sink::File { files, place } => files.delete(place, etag).await,
        }
    }

    fn upload(&self, target: &BlobTarget, entity: &Entity, condition: BlobCondition) -> Result<BlobUpload, Failure> {
        let mut upload =
            BlobUpload { condition, content_type: Some(target.content_type.clone()), cache_control: None, ..BlobUpload::default() };
        let mut bytes = 0;
        for (name, template) in &target.metadata {
            let value = document::metadata(template, entity);
            let value = value.map_err(|error| permanent(self.doing(&format!("rendering the metadata {name:?} of")), error))?;
            if let Some(value) = value {
                bytes += name.len() + value.len();
                upload.metadata.insert(name.clone(), value);
            }
        }
        if bytes > limits::METADATA_BYTES {
            return Err(permanent(self.doing("writing"), MetadataTooLarge { archive: self.archive.clone(), bytes }));
        }
        Ok(upload)
    }
}

fn misplaced(archive: &Archive, key: &EntityKey, error: PlaceError) -> Failure {
    permanent(format!("finding the place of {key} in archive {}", archive.name), error)
}
