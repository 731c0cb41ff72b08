//! Blob storage.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::StoreError;
use evenkeel_model::{BlobName, ContainerName, ETag};

/// The blobs of one account.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Creates a container. `false` where it exists already.
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError>;

    /// Deletes a container and all in it. `false` where it does not exist.
    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError>;

    /// Writes a block blob in one request. `Conflict` where `Absent` was asked for and one exists;
    /// `Precondition` where it is at another ETag, or absent.
    async fn put(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError>;

    /// Reads a blob, whole or a range of its bytes (cut at its end). Never a mixture of two versions.
    /// `None` where the blob does not exist.
    async fn get(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Blob>, StoreError>;

    /// Reads a range of one version, cut at its end: for content too large to be read at once. `Precondition` where the blob
    /// is at another ETag, or absent.
    async fn get_at(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Range<u64>,
        etag: &ETag,
    ) -> Result<Bytes, StoreError>;

    /// Reads a blob's properties and metadata. `None` where it does not exist.
    async fn properties(
        &self,
        container: &ContainerName,
        name: &BlobName,
    ) -> Result<Option<BlobProperties>, StoreError>;

    /// Deletes a blob with its snapshots, at an ETag or unconditionally. `false` where it does not exist.
    async fn delete(
        &self,
        container: &ContainerName,
        name: &BlobName,
        if_match: Option<&ETag>,
    ) -> Result<bool, StoreError>;

    /// Creates an empty append blob. Conditions as of [`put`](Self::put).
    async fn create_append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError>;

    /// Appends to an append blob, at a position: its length. `Precondition` where it has another length,
    /// `NotFound(Item)` where it does not exist, `Permanent` where it is of another kind, `TooLarge` where the bytes
    /// (4 MiB) or its blocks (50,000) would be over the limit.
    async fn append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        position: u64,
    ) -> Result<ETag, StoreError>;

    /// Keeps a block for a blob until [`put_block_list`](Self::put_block_list) makes it a part of it; one of the same id
    /// that still waits is replaced. A block not used within a week is dropped; whether it outlives another write of the
    /// blob differs by service. `Permanent` without a byte, `TooLarge` over 100 MiB, `Permanent` where the blob is of another kind.
    async fn put_block(
        &self,
        container: &ContainerName,
        name: &BlobName,
        block: BlockId,
        content: Bytes,
    ) -> Result<(), StoreError>;

    /// Makes a block blob of blocks, in this order: those that wait, otherwise those that the blob has already.
    /// Conditions as of [`put`](Self::put). `Precondition` too where there is no such block: a commit drops the blocks
    /// that other writers left waiting. At most 50,000 blocks.
    async fn put_block_list(
        &self,
        container: &ContainerName,
        name: &BlobName,
        blocks: &[BlockId],
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError>;

    /// Replaces a blob's metadata at an ETag, and gives it a new one. A lost race where it is at another ETag, or absent.
    async fn set_metadata(
        &self,
        container: &ContainerName,
        name: &BlobName,
        metadata: &BTreeMap<String, String>,
        if_match: &ETag,
    ) -> Result<ETag, StoreError>;

    /// Copies a blob inside the account, with content type, cache control and metadata, and waits for the end. Conditions as
    /// of [`put`](Self::put), on the target.
    async fn copy(
        &self,
        from: (&ContainerName, &BlobName),
        to: (&ContainerName, &BlobName),
        copying: &BlobCopy,
    ) -> Result<ETag, StoreError>;

    /// Reads one page of the blobs with names that start with `prefix`, in order of their names.
    async fn list(
        &self,
        container: &ContainerName,
        prefix: &str,
        marker: Option<&str>,
    ) -> Result<BlobPage, StoreError>;
}

/// All blobs of a container with names that start with `prefix`, in order of their names.
pub async fn all_blobs(
    store: &dyn BlobStore,
    container: &ContainerName,
    prefix: &str,
) -> Result<Vec<BlobItem>, StoreError> {
    let (mut blobs, mut marker) = (Vec::new(), None);
    loop {
        let page = store.list(container, prefix, marker.as_deref()).await?;
        blobs.extend(page.blobs);
        marker = page.marker;
        if marker.is_none() {
            return Ok(blobs);
        }
    }
}

/// Conditions, properties and metadata of a blob to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobUpload {
    /// Under which condition.
    pub condition: BlobCondition,
    /// `Content-Type`; `application/octet-stream` where absent.
    pub content_type: Option<String>,
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// Metadata: names are C# identifiers, values printable ASCII without outer blanks, 8 KiB together.
    pub metadata: BTreeMap<String, String>,
}

/// How a blob is copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobCopy {
    /// Under which condition on the target.
    pub condition: BlobCondition,
    /// Metadata of the copy; the source's where absent. At least one entry.
    pub metadata: Option<BTreeMap<String, String>>,
}

/// Under which condition a blob is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BlobCondition {
    /// Unconditional.
    #[default]
    None,
    /// Only where no blob is (`If-None-Match: *`).
    Absent,
    /// Only over this version.
    Matches(ETag),
}

/// A blob's content, or a range of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// The bytes.
    pub content: Bytes,
    /// The properties and metadata read with them.
    pub properties: BlobProperties,
}

/// Properties and metadata of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobProperties {
    /// Its version.
    pub etag: ETag,
    /// Its whole length in bytes.
    pub length: u64,
    /// `Content-Type`.
    pub content_type: String,
    /// `Cache-Control`, where it has one.
    pub cache_control: Option<String>,
    /// Metadata; names in lower case, since services differ in the case that they return.
    pub metadata: BTreeMap<String, String>,
}

/// A block of a blob: 16 bytes of the writer's choosing, such as the beginning of a hash. (The service takes names of up
/// to 64 bytes, all of one length in one blob.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub [u8; 16]);

impl BlockId {
    /// The block with this number in a blob that is written from its beginning to its end.
    pub const fn numbered(number: u128) -> Self {
        Self(number.to_be_bytes())
    }
}

/// A blob in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobItem {
    /// Its name. A name that this program would refuse to write is left out of listings.
    pub name: BlobName,
    /// Its version.
    pub etag: ETag,
    /// Its length in bytes.
    pub length: u64,
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobPage {
    /// The blobs, in order of their names.
    pub blobs: Vec<BlobItem>,
    /// Where to go on; `None` at the end.
    pub marker: Option<String>,
}
