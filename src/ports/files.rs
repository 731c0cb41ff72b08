//! Files in a folder that every worker shares.

use async_trait::async_trait;
use bytes::Bytes;

use super::{BlobCondition, StoreError};
use crate::model::{BlobName, ETag};

/// Where a file lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePlace {
    /// The shared folder. It is there; its subfolders are created.
    pub dir: String,
    /// The path below it.
    pub name: BlobName,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its bytes.
    pub content: Bytes,
    /// Its version: the same bytes are the same version.
    pub etag: ETag,
}

/// Files that are written whole: a reader sees the old or the new one, and what was answered for is on the disk.
///
/// A folder that is not there is `Transient` (a share that is not mounted must not be taken for an empty one), and so
/// are a full disk and a refused permission: nothing is lost, and a later try may succeed.
#[async_trait]
pub trait FileStore: Send + Sync {
    /// Reads a file. `None` where it does not exist.
    async fn read(&self, place: &FilePlace) -> Result<Option<File>, StoreError>;

    /// Writes a file. `Conflict` where `Absent` was asked for and one exists; `Precondition` where it is at another
    /// version, or absent.
    async fn write(&self, place: &FilePlace, content: Bytes, condition: &BlobCondition) -> Result<ETag, StoreError>;

    /// Deletes a file at a version. `false` where it does not exist; `Precondition` where it is at another one.
    async fn delete(&self, place: &FilePlace, if_match: &ETag) -> Result<bool, StoreError>;
}
