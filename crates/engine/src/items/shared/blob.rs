//! A list in a blob. The list is read and written as a whole, and each write is conditional on its ETag.

use crate::env::memory::{MemoryBudget, MemoryGrant, MemoryShare};
use crate::execute::Failure;
use crate::failure::{lost_race, permanent, storage};
use evenkeel_model::item::{self, Owner, VIEW_PROPERTY, shared_source_text};
use evenkeel_model::shared::{BlobList, UnreadableDocument};
use evenkeel_model::{BlobName, ContainerName, ETag, Site, limits};
use evenkeel_storage::{Blob, BlobCondition, BlobStore, BlobUpload, ErrorClass, StoreError};

/// Number of bytes that the first request reads. A list of a thousand members fits. These bytes are not counted in the
/// memory budget.
const BEGINNING: u64 = 64 << 10;
/// Number of copies of a longer list in memory: as read, as changed, and as sent.
const COPIES: u64 = 3;
const ROUNDS: u32 = 10;
const CONTENT_TYPE: &str = "application/x-ndjson";
const COUNT: &str = "ek_count";

pub(super) struct ListBlob<'e> {
    pub(super) blobs: &'e dyn BlobStore,
    pub(super) container: &'e ContainerName,
    pub(super) name: &'e BlobName,
    pub(super) memory: &'e MemoryBudget,
}

pub(super) enum BlobContent {
    Absent,
    /// A blob that is not a list of evenkeel, and its owner if the metadata names one.
    Foreign(Option<Owner>),
    List(StoredList),
}

pub(super) struct StoredList {
    pub(super) list: BlobList,
    pub(super) etag: ETag,
    pub(super) grant: Option<MemoryGrant>,
}

pub(super) enum WriteResult {
    Done,
    Lost,
    Unanswered,
}

impl ListBlob<'_> {
    fn step(&self, doing: &str) -> String {
        format!("{doing} {}/{}", self.container, self.name)
    }

    fn unreadable(&self, problem: String) -> Failure {
        let site = Site::Blob {
            container: self.container.clone(),
            name: self.name.clone(),
        };
        permanent(
            self.step("reading"),
            UnreadableDocument::Edited { site, problem },
        )
    }

    async fn get(&self, bytes: u64) -> Result<Option<Blob>, Failure> {
        let blob = self
            .blobs
            .get(self.container, self.name, Some(0..bytes))
            .await;
        blob.map_err(|error| storage(self.step("reading"), error))
    }

    pub(super) async fn read(&self) -> Result<BlobContent, Failure> {
        let (mut bytes, mut grant) = (BEGINNING, None);
        for _ in 0..ROUNDS {
            let Some(blob) = self.get(bytes).await? else {
                return Ok(BlobContent::Absent);
            };
            let owner = Owner::of_blob(&blob.properties.metadata);
            let Some(view) = blob
                .properties
                .metadata
                .get(VIEW_PROPERTY)
                .filter(|_| owner.is_none())
            else {
                return Ok(BlobContent::Foreign(owner));
            };
            let length = blob.properties.length;
            if length > limits::LIST_BLOB_BYTES {
                return Err(self.unreadable(format!(
                    "the list has {length} bytes, at most {} are allowed",
                    limits::LIST_BLOB_BYTES
                )));
            }
            if length > bytes {
                // The grant is returned before a larger one is requested. Otherwise two runs could each keep a grant of
                // the same share, and wait for the grant of the other.
                drop((blob, grant.take()));
                grant = Some(
                    self.memory
                        .take(MemoryShare::Documents, length * COPIES)
                        .await,
                );
                bytes = length;
                continue;
            }
            let list =
                BlobList::parse(&blob.content).map_err(|problem| self.unreadable(problem))?;
            if list.view().as_str() != view {
                return Err(self.unreadable(format!(
                    "its metadata names view {view}, but its first line (the head) names view {}",
                    list.view()
                )));
            }
            return Ok(BlobContent::List(StoredList {
                list,
                etag: blob.properties.etag,
                grant,
            }));
        }
        Err(lost_race(self.step("reading"), ROUNDS))
    }

    pub(super) async fn write(
        &self,
        list: &BlobList,
        content: Vec<u8>,
        condition: BlobCondition,
    ) -> Result<WriteResult, Failure> {
        let mut metadata = item::metadata(&shared_source_text(list.source()), list.view());
        metadata.insert(COUNT.to_owned(), list.count().to_string());
        let upload = BlobUpload {
            condition,
            content_type: Some(CONTENT_TYPE.to_owned()),
            cache_control: None,
            metadata,
        };
        let result = self
            .blobs
            .put(self.container, self.name, content.into(), &upload)
            .await;
        self.wrote(result.map(drop))
    }

    /// Deletes the blob at an ETag. An absent blob is no error.
    pub(super) async fn delete(&self, etag: &ETag) -> Result<WriteResult, Failure> {
        match self
            .blobs
            .delete(self.container, self.name, Some(etag))
            .await
        {
            Err(error) if error.is_missing_item() => Ok(WriteResult::Done),
            result => self.wrote(result.map(drop)),
        }
    }

    fn wrote(&self, result: Result<(), StoreError>) -> Result<WriteResult, Failure> {
        match result {
            Ok(()) => Ok(WriteResult::Done),
            Err(error) if error.is_lost_race() => Ok(WriteResult::Lost),
            Err(error) if error.class == ErrorClass::Ambiguous => Ok(WriteResult::Unanswered),
            Err(error) => Err(storage(self.step("writing"), error)),
        }
    }
}
