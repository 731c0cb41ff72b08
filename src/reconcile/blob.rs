//! Items that are whole blobs: written, dropped and looked at, each under its condition.

use super::execute::Failure;
use super::failure::{permanent, storage};
use super::items::Deed;
use super::pass::Pass;
use super::plan::{self, Look};
use crate::model::item::{self, source_text};
use crate::model::{AccountName, BlobName, ContainerName, ETag, ItemAddress};
use crate::patterns::Content;
use crate::planted::{Bug, planted};
use crate::ports::{BlobCondition, BlobUpload, StoreError};

impl Pass<'_> {
    /// Writes a blob where none is, or over the version that is known, or deletes it at its version. A write returns the
    /// new ETag.
    pub(super) async fn request_blob(
        &self,
        deed: Deed<'_>,
        (container, name): (&ContainerName, &BlobName),
    ) -> Result<Result<Option<ETag>, StoreError>, Failure> {
        let blobs = &self.target(&deed.address().account)?.blobs;
        Ok(match deed {
            Deed::Drop(_, etag) => blobs.delete(container, name, Some(etag)).await.map(|_| None),
            Deed::Write(write) => {
                let Content::Blob(blob) = &write.content else {
                    return Err(permanent(format!("writing {}", write.address), "what its view derives is no blob"));
                };
                let condition = match &write.over {
                    _ if planted(Bug::UnconditionalWrite) => BlobCondition::None,
                    Some(etag) => BlobCondition::Matches(etag.clone()),
                    None => BlobCondition::Absent,
                };
                let upload = BlobUpload {
                    condition,
                    content_type: blob.content_type.clone(),
                    cache_control: blob.cache_control.clone(),
                    metadata: item::metadata(&source_text(&self.primary), &write.address.view),
                };
                blobs.put(container, name, blob.content.clone(), &upload).await.map(Some)
            }
        })
    }

    /// Looks whose a blob is.
    pub(super) async fn look_at_blob(
        &self,
        account: &AccountName,
        (container, name): (&ContainerName, &BlobName),
        addresses: Vec<&ItemAddress>,
    ) -> Result<Vec<(ItemAddress, Look)>, Failure> {
        let step = || format!("looking at {container}/{name}");
        let found = self.target(account)?.blobs.properties(container, name).await;
        let found = found.map_err(|error| storage(step(), error))?;
        let look = |address: &ItemAddress| (address.clone(), plan::look_at_blob(address, &self.primary, found.clone()));
        Ok(addresses.into_iter().map(look).collect())
    }
}
