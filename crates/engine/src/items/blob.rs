use async_trait::async_trait;

use crate::execute::Failure;
use crate::failure::{permanent, storage};
use crate::items::ItemOperation;
use crate::items::LookContext;
use crate::items::WholeItem;
use crate::items::WriteContext;
use crate::protocol::observed_item::{self, ObservedItem};
use crate::protocol::scope::Scope;
use crate::protocol::steps::Write;
use evenkeel_model::item::{self, source_text};
use evenkeel_model::patterns::Content;
use evenkeel_model::{AccountName, BlobName, ContainerName, ETag, ItemAddress};
use evenkeel_storage::{BlobCondition, BlobUpload, StoreError};

pub(super) struct ValueBlob<'a> {
    pub(super) account: &'a AccountName,
    pub(super) container: &'a ContainerName,
    pub(super) name: &'a BlobName,
}

#[async_trait]
impl WholeItem for ValueBlob<'_> {
    async fn look(
        &self,
        from: &LookContext<'_, '_>,
        addresses: &[&ItemAddress],
    ) -> Result<Vec<ObservedItem>, Failure> {
        let found = from
            .scope
            .target(self.account)?
            .blobs
            .properties(self.container, self.name)
            .await;
        let found = found
            .map_err(|error| storage(format!("reading {}/{}", self.container, self.name), error))?;
        Ok(vec![
            observed_item::of_blob(&from.scope.primary, found);
            addresses.len()
        ])
    }

    /// Creates the blob if it does not exist, gives an existing blob a new version, or deletes the blob at its version.
    /// A write returns the new ETag.
    async fn request(
        &self,
        by: &WriteContext<'_, '_>,
        operation: ItemOperation<'_>,
    ) -> Result<Result<Option<ETag>, StoreError>, Failure> {
        let blobs = &by.scope.target(self.account)?.blobs;
        let write = match operation {
            ItemOperation::Drop(_, etag) => {
                return Ok(blobs
                    .delete(self.container, self.name, Some(etag))
                    .await
                    .map(|_| None));
            }
            ItemOperation::Write(write) => write,
        };
        if !matches!(write.content, Content::Value(_)) {
            return Err(permanent(
                format!("writing {}", write.address),
                "expected a blob from its view",
            ));
        }
        let metadata = item::metadata(&source_text(&by.scope.primary), &write.address.view);
        if let Some(etag) = &write.over {
            // The name of the blob contains the hash of its content, so the content is right and only the version
            // changes. A late request that deletes the old version then fails its condition.
            return Ok(blobs
                .set_metadata(self.container, self.name, &metadata, etag)
                .await
                .map(Some));
        }
        let upload = BlobUpload {
            condition: BlobCondition::Absent,
            metadata,
            ..BlobUpload::default()
        };
        Ok(by
            .values
            .upload(
                by.scope,
                &write.address,
                (self.container, self.name),
                upload,
            )
            .await?
            .map(Some))
    }

    /// Compares the ETag that was read with the ETag in the footprint. The content is not read, because each write of a
    /// blob changes its ETag.
    async fn differs(
        &self,
        _: &Scope<'_>,
        write: &Write,
        listed: Option<&ETag>,
    ) -> Result<bool, Failure> {
        Ok(write.over.as_ref() != listed)
    }
}
