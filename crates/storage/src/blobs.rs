use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::StoreError;
use evenkeel_model::{BlobName, ContainerName, ETag};

/// The blobs of one account.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Returns `false` if the container exists already.
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError>;

    /// Deletes a container with its blobs. Returns `false` if it does not exist.
    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError>;

    /// Writes a block blob in one request. `Conflict` if the condition is `Absent` and the blob exists; `Precondition` if the blob has
    /// another ETag or does not exist.
    async fn put(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError>;

    /// Reads a blob, or a range of its bytes. The range may end beyond the blob. The content is never a mixture of two versions. `None` if
    /// the blob does not exist.
    async fn get(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Blob>, StoreError>;

    /// Reads a range of one version, for content that is too large to be read at once. `Precondition` if the blob has another ETag or does
    /// not exist.
    async fn get_at(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Range<u64>,
        etag: &ETag,
    ) -> Result<Bytes, StoreError>;

    /// Reads a blob's properties and metadata; `None` if it does not exist.
    async fn properties(
        &self,
        container: &ContainerName,
        name: &BlobName,
    ) -> Result<Option<BlobProperties>, StoreError>;

    /// Deletes a blob with its snapshots, at an ETag or unconditionally. Returns `false` if it does not exist.
    async fn delete(
        &self,
        container: &ContainerName,
        name: &BlobName,
        if_match: Option<&ETag>,
    ) -> Result<bool, StoreError>;

    /// Creates an empty append blob. Conditions as in [`put`](Self::put).
    async fn create_append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError>;

    /// Appends at a position, which must be the blob's length. `Precondition` if the length differs, `NotFound(Item)` if the blob does not
    /// exist, `Permanent` if it is of another kind, and `TooLarge` if the bytes (4 MiB) or the blocks (50,000) would exceed the limit.
    async fn append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        position: u64,
    ) -> Result<ETag, StoreError>;

    /// Uploads a block for a later [`put_block_list`](Self::put_block_list). The block replaces an uncommitted block with the same id. The
    /// service drops a block that is not committed within a week. Whether another write of the blob drops the block depends on the service.
    /// `Permanent` if the block is empty or the blob is of another kind, `TooLarge` over 100 MiB.
    async fn put_block(
        &self,
        container: &ContainerName,
        name: &BlobName,
        block: BlockId,
        content: Bytes,
    ) -> Result<(), StoreError>;

    /// Commits at most 50,000 blocks as a block blob, in this order. An uncommitted block takes precedence over a committed block with the
    /// same id. Conditions as in [`put`](Self::put). `Precondition` also if a block does not exist. This happens if another writer commits
    /// first, because a commit drops all uncommitted blocks.
    async fn put_block_list(
        &self,
        container: &ContainerName,
        name: &BlobName,
        blocks: &[BlockId],
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError>;

    /// Replaces the metadata of a blob that has this ETag. Returns the new ETag. `Precondition` if the blob has another ETag. If the blob
    /// does not exist, `Precondition` or `NotFound(Item)`, depending on the service.
    async fn set_metadata(
        &self,
        container: &ContainerName,
        name: &BlobName,
        metadata: &BTreeMap<String, String>,
        if_match: &ETag,
    ) -> Result<ETag, StoreError>;

    /// Copies a blob within the account, with content type, cache control and metadata, and waits for the end. The conditions apply to the
    /// target, as in [`put`](Self::put).
    async fn copy(
        &self,
        from: (&ContainerName, &BlobName),
        to: (&ContainerName, &BlobName),
        copying: &BlobCopy,
    ) -> Result<ETag, StoreError>;

    /// Lists one page of the blobs whose names start with `prefix`, sorted by name.
    async fn list(
        &self,
        container: &ContainerName,
        prefix: &str,
        marker: Option<&str>,
    ) -> Result<BlobPage, StoreError>;
}

/// Lists all blobs whose names start with `prefix`, sorted by name.
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

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobUpload {
    pub condition: BlobCondition,
    /// Default: `application/octet-stream`.
    pub content_type: Option<String>,
    pub cache_control: Option<String>,
    /// Names must be C# identifiers, and values printable ASCII without outer blanks; 8 KiB in total.
    pub metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobCopy {
    /// The condition on the target.
    pub condition: BlobCondition,
    /// Metadata of the copy, at least one entry; `None` to keep the source's.
    pub metadata: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BlobCondition {
    #[default]
    None,
    /// The blob must not exist (`If-None-Match: *`).
    Absent,
    /// The blob must have this ETag.
    Matches(ETag),
}

/// A blob's content, or a range of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub content: Bytes,
    /// The properties of the version that was read.
    pub properties: BlobProperties,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobProperties {
    pub etag: ETag,
    /// Length of the whole blob in bytes.
    pub length: u64,
    pub content_type: String,
    pub cache_control: Option<String>,
    /// Names are in lower case, because services return them in different case.
    pub metadata: BTreeMap<String, String>,
}

/// A block of a blob, identified by 16 bytes that the writer chooses, such as the start of a hash. (The service accepts up to 64 bytes, of
/// equal length within a blob.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub [u8; 16]);

impl BlockId {
    /// The id of a block in a blob that is written from start to end.
    pub const fn numbered(number: u128) -> Self {
        Self(number.to_be_bytes())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobItem {
    /// Names that this program would not write are left out of listings.
    pub name: BlobName,
    pub etag: ETag,
    /// Length in bytes.
    pub length: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobPage {
    /// Sorted by name.
    pub blobs: Vec<BlobItem>,
    /// The start of the next page; `None` on the last one.
    pub marker: Option<String>,
}
