//! The blob port.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use azure_core::prelude::{IfMatchCondition, NextMarker};
use azure_storage_blobs::blob::{self as library, BlobBlockType};
use azure_storage_blobs::prelude::{
    BlobClient, BlobContentType, BlobServiceClient, ConditionAppendPosition, Hash,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use md5::{Digest as _, Md5};

use super::amend::Amendment;
use super::blob_copy::{COPY, CopyStatus, copy_status};
use super::blob_headers::{condition, content_range, context_of, headers_of, metadata_of};
use super::call::{CallFailure, Caller};
use super::classify::{Absent, CallKind};
use super::listing;
use super::transport::{self, HttpAnswer};
use evenkeel_model::{BlobName, ContainerName, ETag};
use evenkeel_storage::check::blobs as check;
use evenkeel_storage::{
    Blob, BlobCondition, BlobCopy, BlobPage, BlobProperties, BlobStore, BlobUpload, BlockId,
    ErrorClass, Missing, Resource, StoreError,
};

const CREATE: CallKind = CallKind::write("Create Container", Absent::Container);
const DELETE_CONTAINER: CallKind = CallKind::write("Delete Container", Absent::Container);
const PUT: CallKind = CallKind::write("Put Blob", Absent::Container);
const GET: CallKind = CallKind::read("Get Blob", Absent::Item);
pub(super) const PROPERTIES: CallKind = CallKind::read("Get Blob Properties", Absent::Item);
pub(super) const DELETE: CallKind = CallKind::write("Delete Blob", Absent::Item);
const CREATE_APPEND: CallKind = CallKind::write("Put Append Blob", Absent::Container);
const APPEND: CallKind = CallKind::write("Append Block", Absent::Item);
const PUT_BLOCK: CallKind = CallKind::write("Put Block", Absent::Container);
const PUT_BLOCK_LIST: CallKind = CallKind::write("Put Block List", Absent::Container);
const SET_METADATA: CallKind = CallKind::write("Set Blob Metadata", Absent::Item);
const LIST: CallKind = CallKind::read("List Blobs", Absent::Container);

/// Maximum bytes of one read: few enough to arrive within a request timeout on a slow connection.
const CHUNK_BYTES: u64 = 8 << 20;
const READ_ATTEMPTS: usize = 4;
pub(super) struct AzureBlobs {
    pub(super) caller: Caller,
    service: BlobServiceClient,
}

pub(super) type Address<'a> = (&'a ContainerName, &'a BlobName);

enum Chunk {
    /// The bytes of the range, and the properties of the whole blob.
    Bytes(Bytes, BlobProperties),
    PastTheEnd,
    Changed,
    Absent,
}

impl AzureBlobs {
    pub(super) const fn new(caller: Caller, service: BlobServiceClient) -> Self {
        Self { caller, service }
    }

    pub(super) fn blob(&self, (container, name): Address<'_>) -> BlobClient {
        self.service
            .container_client(container.as_str())
            .blob_client(name.as_str())
    }

    fn describe(
        &self,
        operation: CallKind,
        what: impl FnOnce() -> Resource,
        answer: &HttpAnswer,
        length: Option<u64>,
    ) -> Result<BlobProperties, StoreError> {
        // The content of an unfinished copy is incomplete whatever length is stated.
        let unfinished = match copy_status(answer) {
            CopyStatus::None | CopyStatus::Done => None,
            CopyStatus::Pending => Some((
                ErrorClass::Transient { retry_after: None },
                "a copy onto the blob is still pending",
            )),
            CopyStatus::Failed => Some((
                ErrorClass::Permanent,
                "a copy onto the blob failed and left it empty. Delete the blob",
            )),
        };
        if let Some((class, message)) = unfinished {
            return Err(self.caller.error(class, operation, what(), message));
        }
        let header_length = || {
            answer
                .header("content-length")
                .and_then(|length| length.trim().parse().ok())
        };
        let etag = answer.header("etag").and_then(|text| ETag::new(text).ok());
        match (etag, length.or_else(header_length)) {
            (Some(etag), Some(length)) => Ok(BlobProperties {
                etag,
                length,
                content_type: answer
                    .header("content-type")
                    .unwrap_or("application/octet-stream")
                    .to_owned(),
                cache_control: answer.header("cache-control").map(str::to_owned),
                metadata: metadata_of(answer),
            }),
            _ => Err(self.caller.unusable(
                operation,
                what(),
                answer,
                "the answer lacks the ETag or the length",
            )),
        }
    }

    /// Reads at most [`CHUNK_BYTES`] from `start`, and nothing beyond `end` or the end of the blob. Reads the version
    /// `etag` if given, otherwise the current one.
    async fn chunk(
        &self,
        blob: Address<'_>,
        start: u64,
        end: u64,
        etag: Option<&ETag>,
    ) -> Result<Chunk, StoreError> {
        let what = || Resource::Blob(blob.0.clone(), blob.1.clone());
        let end = end.min(start.saturating_add(CHUNK_BYTES));
        // Some services reject the checksums that the library requests for small ranges.
        let context = Amendment::default()
            .without("x-ms-range-get-content-crc64")
            .without("x-ms-range-get-content-md5")
            .context();
        let mut call = self
            .blob(blob)
            .get()
            .range(start..end)
            .chunk_size(CHUNK_BYTES)
            .context(context);
        if let Some(etag) = etag {
            call = call.if_match(IfMatchCondition::Match(etag.as_str().to_owned()));
        }
        let answer = match self
            .caller
            .try_run(transport::first(call.into_stream()))
            .await
        {
            Ok(answer) => answer,
            Err(CallFailure::Refusal(refusal))
                if refusal.status == 416 && refusal.is_of_the_service() =>
            {
                return Ok(Chunk::PastTheEnd);
            }
            Err(failure) => match self.caller.failed(GET, what(), failure) {
                error if error.is_missing_item() => return Ok(Chunk::Absent),
                error if error.class == ErrorClass::Precondition && etag.is_some() => {
                    return Ok(Chunk::Changed);
                }
                error => return Err(error),
            },
        };
        // 206 states the range and the total length; 200 contains the whole blob, whatever range was requested.
        let (from, length) = match answer.header("content-range") {
            Some(range) => match content_range(range) {
                Some((from, length)) => (from, Some(length)),
                None => {
                    return Err(self.caller.unusable(
                        GET,
                        what(),
                        &answer,
                        "the answer's Content-Range header is invalid",
                    ));
                }
            },
            None => (0, Some(answer.body.len() as u64)),
        };
        let skip = usize::try_from(start.saturating_sub(from))
            .unwrap_or(usize::MAX)
            .min(answer.body.len());
        let bytes = answer.body.slice(skip..);
        if from > start {
            return Err(self.caller.unusable(
                GET,
                what(),
                &answer,
                "the answer contains a different range than requested",
            ));
        }
        Ok(Chunk::Bytes(
            bytes,
            self.describe(GET, what, &answer, length)?,
        ))
    }

    /// Reads one version of the blob from `start` to `end`. Returns `None` if the blob changed in between.
    async fn read(
        &self,
        blob: Address<'_>,
        start: u64,
        end: u64,
    ) -> Result<Option<Option<Blob>>, StoreError> {
        let (first, properties) = match self.chunk(blob, start, end, None).await? {
            Chunk::Bytes(bytes, properties) => (bytes, properties),
            Chunk::Absent => return Ok(Some(None)),
            Chunk::Changed => return Ok(None),
            // An empty blob has no valid range, so its properties are read instead.
            Chunk::PastTheEnd => {
                let properties = self.properties(blob.0, blob.1).await?;
                return Ok(match properties {
                    None => Some(None),
                    Some(properties) if properties.length <= start => Some(Some(Blob {
                        content: Bytes::new(),
                        properties,
                    })),
                    Some(_) => None,
                });
            }
        };
        let end = end.min(properties.length);
        let wanted = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        if first.len() >= wanted {
            return Ok(Some(Some(Blob {
                content: first.slice(..wanted),
                properties,
            })));
        }
        let mut content = BytesMut::from(first);
        while content.len() < wanted {
            let at = start + content.len() as u64;
            match self.chunk(blob, at, end, Some(&properties.etag)).await? {
                Chunk::Bytes(bytes, now) if now.etag == properties.etag && !bytes.is_empty() => {
                    content.extend_from_slice(&bytes);
                }
                Chunk::Bytes(..) | Chunk::Changed | Chunk::Absent | Chunk::PastTheEnd => {
                    return Ok(None);
                }
            }
        }
        content.truncate(wanted);
        Ok(Some(Some(Blob {
            content: content.freeze(),
            properties,
        })))
    }
}

/// Adds the headers of an upload to a call. It is a macro because each kind of upload has its own builder type.
macro_rules! uploading {
    ($call:expr, $upload:expr) => {{
        let mut call = $call;
        if let Some(content_type) = &$upload.content_type {
            call = call.content_type(BlobContentType::from(content_type.clone()));
        }
        if !$upload.metadata.is_empty() {
            call = call.metadata(headers_of(&$upload.metadata));
        }
        match condition(&$upload.condition) {
            Some(condition) => call.if_match(condition),
            None => call,
        }
    }};
}

#[async_trait]
impl BlobStore for AzureBlobs {
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let call = self.service.container_client(container.as_str()).create();
        match self
            .caller
            .run(
                CREATE,
                || Resource::Container(container.clone()),
                call.into_future(),
            )
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.class == ErrorClass::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let call = self.service.container_client(container.as_str()).delete();
        match self.caller.try_run(call.into_future()).await {
            Ok(_) => Ok(true),
            Err(CallFailure::Refusal(refusal)) if refusal.is("ContainerBeingDeleted") => Ok(false),
            Err(failure) => match self.caller.failed(
                DELETE_CONTAINER,
                Resource::Container(container.clone()),
                failure,
            ) {
                error if error.class == ErrorClass::NotFound(Missing::Container) => Ok(false),
                error => Err(error),
            },
        }
    }

    async fn put(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        let what = || Resource::Blob(container.clone(), name.clone());
        self.caller
            .checked(PUT, what, check::upload(&content, upload))?;
        let hash = Hash::MD5(Md5::digest(&content).into());
        let call = self
            .blob((container, name))
            .put_block_blob(content)
            .hash(hash)
            .context(context_of(upload));
        let call = uploading!(call, upload);
        let answer = self.caller.run(PUT, what, call.into_future()).await?;
        self.caller.etag(PUT, what, &answer)
    }

    async fn create_append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        let what = || Resource::Blob(container.clone(), name.clone());
        self.caller
            .checked(CREATE_APPEND, what, check::upload(&[], upload))?;
        let call = self
            .blob((container, name))
            .put_append_blob()
            .context(context_of(upload));
        let call = uploading!(call, upload);
        let answer = self
            .caller
            .run(CREATE_APPEND, what, call.into_future())
            .await?;
        self.caller.etag(CREATE_APPEND, what, &answer)
    }

    async fn append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        position: u64,
    ) -> Result<ETag, StoreError> {
        let what = || Resource::Blob(container.clone(), name.clone());
        self.caller.checked(APPEND, what, check::append(&content))?;
        let hash = Hash::MD5(Md5::digest(&content).into());
        let call = self
            .blob((container, name))
            .append_block(content)
            .hash(hash);
        let call = call.condition_append_position(ConditionAppendPosition::new(position));
        let answer = self.caller.run(APPEND, what, call.into_future()).await?;
        self.caller.etag(APPEND, what, &answer)
    }

    async fn put_block(
        &self,
        container: &ContainerName,
        name: &BlobName,
        block: BlockId,
        content: Bytes,
    ) -> Result<(), StoreError> {
        let what = || Resource::Blob(container.clone(), name.clone());
        self.caller
            .checked(PUT_BLOCK, what, check::block(&content))?;
        // The library accepts a hash but does not send it.
        let context = Amendment::default()
            .header("content-md5", BASE64.encode(Md5::digest(&content)))
            .context();
        let call = self
            .blob((container, name))
            .put_block(block.0.to_vec(), content)
            .context(context);
        self.caller
            .run(PUT_BLOCK, what, call.into_future())
            .await
            .map(drop)
    }

    async fn put_block_list(
        &self,
        container: &ContainerName,
        name: &BlobName,
        blocks: &[BlockId],
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        let what = || Resource::Blob(container.clone(), name.clone());
        let checked = check::block_list(blocks, upload);
        self.caller.checked(PUT_BLOCK_LIST, what, checked)?;
        let blocks = library::BlockList {
            blocks: blocks
                .iter()
                .map(|id| BlobBlockType::new_latest(id.0.to_vec()))
                .collect(),
        };
        let call = self
            .blob((container, name))
            .put_block_list(blocks)
            .context(context_of(upload));
        let call = uploading!(call, upload);
        let answer = self
            .caller
            .run(PUT_BLOCK_LIST, what, call.into_future())
            .await?;
        self.caller.etag(PUT_BLOCK_LIST, what, &answer)
    }

    async fn set_metadata(
        &self,
        container: &ContainerName,
        name: &BlobName,
        metadata: &BTreeMap<String, String>,
        if_match: &ETag,
    ) -> Result<ETag, StoreError> {
        let what = || Resource::Blob(container.clone(), name.clone());
        self.caller
            .checked(SET_METADATA, what, check::metadata(metadata))?;
        let call = self
            .blob((container, name))
            .set_metadata()
            .metadata(headers_of(metadata));
        let call = call.if_match(IfMatchCondition::Match(if_match.as_str().to_owned()));
        let answer = self
            .caller
            .run(SET_METADATA, what, call.into_future())
            .await?;
        self.caller.etag(SET_METADATA, what, &answer)
    }

    async fn get(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Blob>, StoreError> {
        let blob = (container, name);
        let Range { start, end } = range.unwrap_or(0..u64::MAX);
        if start >= end {
            let properties = self.properties(container, name).await?;
            return Ok(properties.map(|properties| Blob {
                content: Bytes::new(),
                properties,
            }));
        }
        for _ in 0..READ_ATTEMPTS {
            if let Some(read) = self.read(blob, start, end).await? {
                return Ok(read);
            }
        }
        let what = Resource::Blob(container.clone(), name.clone());
        let class = ErrorClass::Transient { retry_after: None };
        Err(self.caller.error(
            class,
            GET,
            what,
            "the blob was overwritten during each attempt to read it",
        ))
    }

    async fn get_at(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Range<u64>,
        etag: &ETag,
    ) -> Result<Bytes, StoreError> {
        let changed = || {
            let what = Resource::Blob(container.clone(), name.clone());
            self.caller.error(
                ErrorClass::Precondition,
                GET,
                what,
                "the blob has a different ETag or does not exist",
            )
        };
        let mut content = BytesMut::new();
        while range.start + (content.len() as u64) < range.end {
            match self
                .chunk(
                    (container, name),
                    range.start + content.len() as u64,
                    range.end,
                    Some(etag),
                )
                .await?
            {
                Chunk::Bytes(bytes, now) if now.etag == *etag => {
                    let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX)
                        - content.len();
                    content.extend_from_slice(&bytes[..bytes.len().min(wanted)]);
                    if range.start + content.len() as u64 >= now.length {
                        break;
                    }
                    if bytes.is_empty() {
                        return Err(changed());
                    }
                }
                Chunk::PastTheEnd => break,
                Chunk::Bytes(..) | Chunk::Changed | Chunk::Absent => return Err(changed()),
            }
        }
        Ok(content.freeze())
    }

    async fn properties(
        &self,
        container: &ContainerName,
        name: &BlobName,
    ) -> Result<Option<BlobProperties>, StoreError> {
        let what = || Resource::Blob(container.clone(), name.clone());
        match self
            .caller
            .run(
                PROPERTIES,
                what,
                self.blob((container, name)).get_properties().into_future(),
            )
            .await
        {
            Ok(answer) => self.describe(PROPERTIES, what, &answer, None).map(Some),
            Err(error) if error.is_missing_item() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn delete(
        &self,
        container: &ContainerName,
        name: &BlobName,
        if_match: Option<&ETag>,
    ) -> Result<bool, StoreError> {
        let what = || Resource::Blob(container.clone(), name.clone());
        let mut call = self.blob((container, name)).delete();
        if let Some(etag) = if_match {
            call = call.if_match(IfMatchCondition::Match(etag.as_str().to_owned()));
        }
        match self.caller.run(DELETE, what, call.into_future()).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_missing_item() => Ok(false),
            // The service answers 412 for a missing blob, too.
            Err(error) if error.class == ErrorClass::Precondition => {
                match self.properties(container, name).await? {
                    None => Ok(false),
                    Some(_) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    async fn copy(
        &self,
        from: (&ContainerName, &BlobName),
        to: (&ContainerName, &BlobName),
        copying: &BlobCopy,
    ) -> Result<ETag, StoreError> {
        let what = || Resource::Blob(to.0.clone(), to.1.clone());
        let metadata = copying.metadata.clone().unwrap_or_default();
        self.caller
            .checked(COPY, what, check::metadata(&metadata))?;
        // The library accepts a condition but does not send it.
        let amendment = match &copying.condition {
            BlobCondition::None => Amendment::default(),
            BlobCondition::Absent => Amendment::default().header("if-none-match", "*"),
            BlobCondition::Matches(etag) => Amendment::default().header("if-match", etag.as_str()),
        };
        let call = async {
            let call = self
                .blob(to)
                .copy(self.blob(from).url()?)
                .context(amendment.context());
            if metadata.is_empty() {
                call.await
            } else {
                call.metadata(headers_of(&metadata)).await
            }
        };
        let answer = match self.caller.run(COPY, what, call).await {
            // Copy Blob has one error code for all unmet conditions on its target.
            Err(mut error)
                if copying.condition == BlobCondition::Absent
                    && error.class == ErrorClass::Precondition =>
            {
                error.class = ErrorClass::Conflict;
                return Err(error);
            }
            answer => answer?,
        };
        match copy_status(&answer) {
            CopyStatus::None | CopyStatus::Done => self.caller.etag(COPY, what, &answer),
            CopyStatus::Pending | CopyStatus::Failed => {
                self.finished_copy(to, answer.header("x-ms-copy-id"), what)
                    .await
            }
        }
    }

    async fn list(
        &self,
        container: &ContainerName,
        prefix: &str,
        marker: Option<&str>,
    ) -> Result<BlobPage, StoreError> {
        let what = || Resource::Container(container.clone());
        let mut call = self
            .service
            .container_client(container.as_str())
            .list_blobs();
        if !prefix.is_empty() {
            call = call.prefix(prefix.to_owned());
        }
        if let Some(marker) = marker {
            call = call.marker(NextMarker::new(marker.to_owned()));
        }
        let answer = self
            .caller
            .run(LIST, what, transport::first(call.into_stream()))
            .await?;
        listing::read(&answer.body).ok_or_else(|| {
            self.caller.unusable(
                LIST,
                what(),
                &answer,
                "the answer is truncated or not a list of blobs",
            )
        })
    }
}
