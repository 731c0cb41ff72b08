//! Implements the blob port with a layer around it.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Layer, Layered, Op, Request, Target};
use crate::retry::Unanswered;
use evenkeel_model::{BlobName, ContainerName, ETag};
use evenkeel_storage::{
    Blob, BlobCopy, BlobPage, BlobProperties, BlobStore, BlobUpload, BlockId, StoreError,
};

#[async_trait]
impl<L: Layer> BlobStore for Layered<dyn BlobStore, L> {
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let request = Request::new(Op::CreateContainer, Target::Container(container));
        self.change(request, || self.inner.create_container(container))
            .await
    }

    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let request = Request::new(Op::DeleteContainer, Target::Container(container));
        self.change(request, || self.inner.delete_container(container))
            .await
    }

    async fn put(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        let request = Request::new(Op::PutBlob, Target::Blob(container, name))
            .if_unanswered(Unanswered::of_upload(&upload.condition));
        self.layer
            .call(request, || {
                self.inner.put(container, name, content.clone(), upload)
            })
            .await
    }

    async fn get(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Blob>, StoreError> {
        let request = Request::new(Op::GetBlob, Target::Blob(container, name));
        self.layer
            .call(request, || self.inner.get(container, name, range.clone()))
            .await
    }

    async fn get_at(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Range<u64>,
        etag: &ETag,
    ) -> Result<Bytes, StoreError> {
        let request = Request::new(Op::GetBlob, Target::Blob(container, name));
        self.layer
            .call(request, || {
                self.inner.get_at(container, name, range.clone(), etag)
            })
            .await
    }

    async fn properties(
        &self,
        container: &ContainerName,
        name: &BlobName,
    ) -> Result<Option<BlobProperties>, StoreError> {
        let request = Request::new(Op::GetBlobProperties, Target::Blob(container, name));
        self.layer
            .call(request, || self.inner.properties(container, name))
            .await
    }

    async fn delete(
        &self,
        container: &ContainerName,
        name: &BlobName,
        if_match: Option<&ETag>,
    ) -> Result<bool, StoreError> {
        let request = Request::new(Op::DeleteBlob, Target::Blob(container, name))
            .if_unanswered(Unanswered::of_blob_deletion(if_match));
        self.change(request, || self.inner.delete(container, name, if_match))
            .await
    }

    async fn create_append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        let request = Request::new(Op::CreateAppendBlob, Target::Blob(container, name))
            .if_unanswered(Unanswered::of_upload(&upload.condition));
        self.layer
            .call(request, || {
                self.inner.create_append(container, name, upload)
            })
            .await
    }

    async fn append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        position: u64,
    ) -> Result<ETag, StoreError> {
        let request = Request::new(Op::AppendBlock, Target::Blob(container, name));
        self.layer
            .call(request, || {
                self.inner
                    .append(container, name, content.clone(), position)
            })
            .await
    }

    async fn put_block(
        &self,
        container: &ContainerName,
        name: &BlobName,
        block: BlockId,
        content: Bytes,
    ) -> Result<(), StoreError> {
        let request = Request::new(Op::PutBlock, Target::Blob(container, name));
        self.layer
            .call(request, || {
                self.inner
                    .put_block(container, name, block, content.clone())
            })
            .await
    }

    async fn put_block_list(
        &self,
        container: &ContainerName,
        name: &BlobName,
        blocks: &[BlockId],
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        let request = Request::new(Op::PutBlockList, Target::Blob(container, name))
            .if_unanswered(Unanswered::of_upload(&upload.condition));
        self.layer
            .call(request, || {
                self.inner.put_block_list(container, name, blocks, upload)
            })
            .await
    }

    async fn set_metadata(
        &self,
        container: &ContainerName,
        name: &BlobName,
        metadata: &BTreeMap<String, String>,
        if_match: &ETag,
    ) -> Result<ETag, StoreError> {
        let request = Request::new(Op::SetBlobMetadata, Target::Blob(container, name));
        self.layer
            .call(request, || {
                self.inner.set_metadata(container, name, metadata, if_match)
            })
            .await
    }

    async fn copy(
        &self,
        from: (&ContainerName, &BlobName),
        to: (&ContainerName, &BlobName),
        copying: &BlobCopy,
    ) -> Result<ETag, StoreError> {
        let request = Request::new(Op::CopyBlob, Target::Blob(to.0, to.1))
            .if_unanswered(Unanswered::of_upload(&copying.condition));
        self.layer
            .call(request, || self.inner.copy(from, to, copying))
            .await
    }

    async fn list(
        &self,
        container: &ContainerName,
        prefix: &str,
        marker: Option<&str>,
    ) -> Result<BlobPage, StoreError> {
        let request = Request::new(Op::ListBlobs, Target::Container(container));
        self.layer
            .call(request, || self.inner.list(container, prefix, marker))
            .await
    }
}
