//! Files in a folder that every worker shares.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use sha2::{Digest as _, Sha256};

use super::{BlobCondition, StoreError};
use evenkeel_model::{BlobName, ETag};

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

/// A file that may be too large to be read at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// Mark that differs from that of any file under the same name before or afterwards, and is known without reading
    /// the content. Not the version of [`File`].
    pub mark: ETag,
    /// Its length in bytes.
    pub length: u64,
}

/// The bytes of a file, in their order.
pub type Pieces<'a> = BoxStream<'a, Result<Bytes, StoreError>>;

/// Files that are written whole: a reader sees the old or the new one, and an acknowledged write is on the disk.
///
/// A folder that is not there is `Transient` (a share that is not mounted must not be taken for an empty one), and so
/// are a full disk and a refused permission: nothing is lost, and a later try may succeed. A change whose call failed otherwise, as over a
/// network, or that could not be flushed to the disk, is `Ambiguous`.
#[async_trait]
pub trait FileStore: Send + Sync {
    /// Reads a file. `None` where it does not exist.
    async fn read(&self, place: &FilePlace) -> Result<Option<File>, StoreError>;

    /// Writes a file. `Conflict` where `Absent` was asked for and one exists; `Precondition` where it is at another
    /// version, or absent.
    async fn write(
        &self,
        place: &FilePlace,
        content: Bytes,
        condition: &BlobCondition,
    ) -> Result<ETag, StoreError>;

    /// Deletes a file at a version. `false` where it does not exist; `Precondition` where it is at another one.
    async fn delete(&self, place: &FilePlace, if_match: &ETag) -> Result<bool, StoreError>;

    /// Finds a file without reading it. `None` where it does not exist.
    async fn find(&self, place: &FilePlace) -> Result<Option<FoundFile>, StoreError>;

    /// Reads a range of a file, cut at its end. `Precondition` where it is at another mark, or absent.
    async fn read_at(
        &self,
        place: &FilePlace,
        range: Range<u64>,
        mark: &ETag,
    ) -> Result<Bytes, StoreError>;

    /// Writes a file piece by piece, one of which is in memory. `Conflict` where one exists. An error of the pieces ends it, and leaves no
    /// file.
    async fn write_pieces(&self, place: &FilePlace, pieces: Pieces<'_>)
    -> Result<ETag, StoreError>;

    /// Gives a file another mark. `Precondition` where it is at another one, or absent.
    async fn renew(&self, place: &FilePlace, mark: &ETag) -> Result<ETag, StoreError>;

    /// Deletes a file at a mark, and its folder where that is empty then. `false` where it does not exist; `Precondition` where it is at
    /// another one.
    async fn remove(&self, place: &FilePlace, mark: &ETag) -> Result<bool, StoreError>;
}

/// The version of a file's content.
pub fn version(content: &[u8]) -> ETag {
    let text = format!("\"sha256-{}\"", hex::encode(Sha256::digest(content)));
    #[expect(clippy::expect_used, reason = "a quoted hash is an ETag")]
    ETag::new(text).expect("an ETag")
}
