//! Items that are files: large values beside the document of their entity, in a folder that every worker shares.
//!
//! What lies in the folder of an entity's values is its own, since the name of its document is: a file says nothing of its owner.

use super::execute::Failure;
use super::failure::{permanent, storage};
use super::items::Deed;
use super::pass::Pass;
use super::plan::Look;
use crate::model::{ETag, ItemAddress};
use crate::patterns::Content;
use crate::ports::{FilePlace, FileStore, StoreError};

impl<'e> Pass<'e> {
    pub(super) fn files(&self) -> Result<&'e dyn FileStore, Failure> {
        let files = self.engine.stores.files();
        files.map_err(|error| permanent(format!("finding the folder of {}", self.primary), error))
    }

    /// Makes a file where none is, gives the one that is known a new mark, or removes it at its mark. A write returns the new mark.
    pub(super) async fn request_file(&self, deed: Deed<'_>, place: FilePlace) -> Result<Result<Option<ETag>, StoreError>, Failure> {
        let files = self.files()?;
        let write = match deed {
            Deed::Drop(_, mark) => return Ok(files.remove(&place, mark).await.map(|_| None)),
            Deed::Write(write) => write,
        };
        if !matches!(write.content, Content::Value(_)) {
            return Err(permanent(format!("writing {}", write.address), "what its view derives is no file"));
        }
        if let Some(mark) = &write.over {
            // Its content is what its name says. A new mark keeps whoever meant to drop it from doing so.
            return Ok(files.renew(&place, mark).await.map(Some));
        }
        Ok(self.bring_into_file(&write.address, &place).await?.map(Some))
    }

    /// Looks whether a file is there.
    pub(super) async fn look_at_file(&self, place: FilePlace, addresses: Vec<&ItemAddress>) -> Result<Vec<(ItemAddress, Look)>, Failure> {
        let found = self.files()?.find(&place).await;
        let found = found.map_err(|error| storage(format!("looking at {}/{}", place.dir, place.name), error))?;
        let look = found.map_or(Look::Absent, |found| Look::Ours(found.mark));
        Ok(addresses.into_iter().map(|address| (address.clone(), look.clone())).collect())
    }
}
