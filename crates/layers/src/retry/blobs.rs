//! Implements the blob port with retries.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::Retry;
use super::rules::Unanswered;
use crate::layer::Op;
use evenkeel_model::{BlobName, ContainerName, ETag};
use evenkeel_storage::{
    Blob, BlobCopy, BlobPage, BlobProperties, BlobStore, BlobUpload, BlockId, StoreError,
};

#[async_trait]
impl BlobStore for Retry<dyn BlobStore> {
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        self.request(Op::CreateContainer, || {
            self.inner.create_container(container)
        })
        .await
        .done()
    }

    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        self.request(Op::DeleteContainer, || {
            self.inner.delete_container(container)
        })
        .await
        .done()
    }

    async fn put(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        let rule = Unanswered::of_upload(&upload.condition);
        self.attempts(Op::PutBlob, rule, || {
            self.inner.put(container, name, content.clone(), upload)
        })
        .await
        .result
    }

    async fn get(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Blob>, StoreError> {
        self.request(Op::GetBlob, || {
            self.inner.get(container, name, range.clone())
        })
        .await
        .result
    }

    async fn get_at(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Range<u64>,
        etag: &ETag,
    ) -> Result<Bytes, StoreError> {
        self.request(Op::GetBlob, || {
            self.inner.get_at(container, name, range.clone(), etag)
        })
        .await
        .result
    }

    async fn properties(
        &self,
        container: &ContainerName,
        name: &BlobName,
    ) -> Result<Option<BlobProperties>, StoreError> {
        self.request(Op::GetBlobProperties, || {
            self.inner.properties(container, name)
        })
        .await
        .result
    }

    async fn delete(
        &self,
        container: &ContainerName,
        name: &BlobName,
        if_match: Option<&ETag>,
    ) -> Result<bool, StoreError> {
        let rule = Unanswered::of_blob_deletion(if_match);
        self.attempts(Op::DeleteBlob, rule, || {
            self.inner.delete(container, name, if_match)
        })
        .await
        .done()
    }

    async fn create_append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        let rule = Unanswered::of_upload(&upload.condition);
        self.attempts(Op::CreateAppendBlob, rule, || {
            self.inner.create_append(container, name, upload)
        })
        .await
        .result
    }

    async fn append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        position: u64,
    ) -> Result<ETag, StoreError> {
        self.request(Op::AppendBlock, || {
            self.inner
                .append(container, name, content.clone(), position)
        })
        .await
        .result
    }

    async fn put_block(
        &self,
        container: &ContainerName,
        name: &BlobName,
        block: BlockId,
        content: Bytes,
    ) -> Result<(), StoreError> {
        self.request(Op::PutBlock, || {
            self.inner
                .put_block(container, name, block, content.clone())
        })
        .await
        .result
    }

    async fn put_block_list(
        &self,
        container: &ContainerName,
        name: &BlobName,
        blocks: &[BlockId],
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        let rule = Unanswered::of_upload(&upload.condition);
        self.attempts(Op::PutBlockList, rule, || {
            self.inner.put_block_list(container, name, blocks, upload)
        })
        .await
        .result
    }

    async fn set_metadata(
        &self,
        container: &ContainerName,
        name: &BlobName,
        metadata: &BTreeMap<String, String>,
        if_match: &ETag,
    ) -> Result<ETag, StoreError> {
        self.request(Op::SetBlobMetadata, || {
            self.inner.set_metadata(container, name, metadata, if_match)
        })
        .await
        .result
    }

    async fn copy(
        &self,
        from: (&ContainerName, &BlobName),
        to: (&ContainerName, &BlobName),
        copying: &BlobCopy,
    ) -> Result<ETag, StoreError> {
        let rule = Unanswered::of_upload(&copying.condition);
        self.attempts(Op::CopyBlob, rule, || self.inner.copy(from, to, copying))
            .await
            .result
    }

    async fn list(
        &self,
        container: &ContainerName,
        prefix: &str,
        marker: Option<&str>,
    ) -> Result<BlobPage, StoreError> {
        self.request(Op::ListBlobs, || self.inner.list(container, prefix, marker))
            .await
            .result
    }
}
