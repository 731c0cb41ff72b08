use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use sha2::{Digest as _, Sha256};

use super::{BlobCondition, StoreError};
use evenkeel_model::{BlobName, ETag};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePlace {
    /// The shared folder, which must exist. Its subfolders are created.
    pub dir: String,
    /// The path in the folder.
    pub name: BlobName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub content: Bytes,
    /// The version. Equal bytes have equal versions.
    pub etag: ETag,
}

/// A file whose content was not read, because it may be too large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// A mark that is known without reading the content. No earlier or later file with the same name has the same mark. It is not the
    /// version of [`File`].
    pub mark: ETag,
    /// Length in bytes.
    pub length: u64,
}

/// The bytes of a file, in order.
pub type Pieces<'a> = BoxStream<'a, Result<Bytes, StoreError>>;

/// Files that are written as a whole: a reader sees the old or the new one, and an acknowledged write is on the disk.
///
/// A missing folder is `Transient`, because an unmounted share must not be taken for an empty one. A full disk and a refused permission are
/// `Transient` too, since nothing is lost and a later try may succeed.
/// A change is `Ambiguous` if its call failed in another way, for example over a network, or if it could not be flushed to the disk.
#[async_trait]
pub trait FileStore: Send + Sync {
    /// Returns `None` if the file does not exist.
    async fn read(&self, place: &FilePlace) -> Result<Option<File>, StoreError>;

    /// Writes a file. `Conflict` if the condition is `Absent` and the file exists; `Precondition` if the file has another version or does
    /// not exist.
    async fn write(
        &self,
        place: &FilePlace,
        content: Bytes,
        condition: &BlobCondition,
    ) -> Result<ETag, StoreError>;

    /// Deletes a version of a file. Returns `false` if the file does not exist; `Precondition` if it has another version.
    async fn delete(&self, place: &FilePlace, if_match: &ETag) -> Result<bool, StoreError>;

    /// Finds a file without reading it; `None` if it does not exist.
    async fn find(&self, place: &FilePlace) -> Result<Option<FileInfo>, StoreError>;

    /// Reads a range of a file, which may end beyond it. `Precondition` if the file has another mark or does not exist.
    async fn read_at(
        &self,
        place: &FilePlace,
        range: Range<u64>,
        mark: &ETag,
    ) -> Result<Bytes, StoreError>;

    /// Writes a file piece by piece, with one piece in memory at a time. `Conflict` if the file exists. If a piece is an error, no file
    /// remains.
    async fn write_pieces(&self, place: &FilePlace, pieces: Pieces<'_>)
    -> Result<ETag, StoreError>;

    /// Gives a file a new mark. `Precondition` if the file has another mark or does not exist.
    async fn renew(&self, place: &FilePlace, mark: &ETag) -> Result<ETag, StoreError>;

    /// Deletes a file with this mark, and its folder if that becomes empty. Returns `false` if the file does not exist; `Precondition` if
    /// it has another mark.
    async fn remove(&self, place: &FilePlace, mark: &ETag) -> Result<bool, StoreError>;
}

/// The version of a content.
pub fn version(content: &[u8]) -> ETag {
    let text = format!("\"sha256-{}\"", hex::encode(Sha256::digest(content)));
    #[expect(clippy::expect_used, reason = "a quoted hash is an ETag")]
    ETag::new(text).expect("an ETag")
}
