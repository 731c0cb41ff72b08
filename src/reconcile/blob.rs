//! Items that are whole blobs: made, kept, dropped and looked at, each under its condition.

use super::execute::Failure;
use super::failure::{permanent, storage};
use super::items::Deed;
use super::look::{self, Look};
use super::pass::Pass;
use crate::model::item::{self, source_text};
use crate::model::{AccountName, BlobName, ContainerName, ETag, ItemAddress};
use crate::patterns::Content;
use crate::planted::{Bug, planted};
use crate::ports::{BlobCondition, BlobUpload, StoreError};

impl Pass<'_> {
    /// Makes a blob where none is, gives the one that is known a new version, or deletes it at its version. A write returns
    /// the new ETag.
    pub(super) async fn request_blob(
        &self,
        deed: Deed<'_>,
        (container, name): (&ContainerName, &BlobName),
    ) -> Result<Result<Option<ETag>, StoreError>, Failure> {
        let blobs = &self.target(&deed.address().account)?.blobs;
        let write = match deed {
            Deed::Drop(_, etag) => return Ok(blobs.delete(container, name, Some(etag)).await.map(|_| None)),
            Deed::Write(write) => write,
        };
        if !matches!(write.content, Content::Value(_)) {
            return Err(permanent(format!("writing {}", write.address), "what its view derives is no blob"));
        }
        let metadata = item::metadata(&source_text(&self.primary), &write.address.view);
        if let Some(etag) = &write.over {
            // Its content is given by its name. A new version makes a pending drop of the old one fail its condition.
            return Ok(blobs.set_metadata(container, name, &metadata, etag).await.map(Some));
        }
        let condition = if planted(Bug::UnconditionalWrite) { BlobCondition::None } else { BlobCondition::Absent };
        let upload = BlobUpload { condition, metadata, ..BlobUpload::default() };
        Ok(self.upload(&write.address, (container, name), upload).await?.map(Some))
    }

    /// Determines the owner of a blob.
    pub(super) async fn look_at_blob(
        &self,
        account: &AccountName,
        (container, name): (&ContainerName, &BlobName),
        addresses: Vec<&ItemAddress>,
    ) -> Result<Vec<(ItemAddress, Look)>, Failure> {
        let step = || format!("looking at {container}/{name}");
        let found = self.target(account)?.blobs.properties(container, name).await;
        let found = found.map_err(|error| storage(step(), error))?;
        let look = |address: &ItemAddress| (address.clone(), look::look_at_blob(&self.primary, found.clone()));
        Ok(addresses.into_iter().map(look).collect())
    }
}
