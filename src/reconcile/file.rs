//! Items that are files: large values beside the document of their entity, in a folder that every worker shares.
//!
//! A file says nothing of its owner. It is an entity's own where its name is: in the folder of the entity's archive, beside the
//! entity's document. No other file is looked at, written or removed, and no folder is made for one.

use super::execute::Failure;
use super::failure::{permanent, storage};
use super::items::Deed;
use super::look::Look;
use super::pass::Pass;
use crate::catalog::Shelf;
use crate::model::job::Primary;
use crate::model::{ETag, ItemAddress};
use crate::patterns::Content;
use crate::ports::{FilePlace, FileStore, StoreError};

/// A file that is none of the values of this entity.
#[derive(Debug, thiserror::Error)]
#[error("{}/{} is no large value of {primary}: it lies outside the folder that its archive keeps them in", .place.dir, .place.name)]
struct ForeignFile {
    place: FilePlace,
    primary: Primary,
}

impl<'e> Pass<'e> {
    /// The file store, for access to this entity's values.
    pub(super) fn files(&self, place: &FilePlace) -> Result<&'e dyn FileStore, Failure> {
        let step = || format!("finding the folder of {}", self.primary);
        if !self.owns_file(place) {
            return Err(permanent(step(), ForeignFile { place: place.clone(), primary: self.primary.clone() }));
        }
        self.engine.stores.files().map_err(|error| permanent(step(), error))
    }

    fn owns_file(&self, place: &FilePlace) -> bool {
        let filing = self.engine.catalog.filing(self.source);
        let shelf = filing.is_some_and(|filing| matches!(&filing.shelf, Shelf::Files { dir, .. } if *dir == place.dir));
        shelf && self.folder.has(&place.name)
    }

    /// Makes a file where none is, gives the one that is known a new mark, or removes it at its mark. A write returns the new mark.
    pub(super) async fn request_file(&self, deed: Deed<'_>, place: FilePlace) -> Result<Result<Option<ETag>, StoreError>, Failure> {
        let files = self.files(&place)?;
        let write = match deed {
            Deed::Drop(_, mark) => {
                let removed = files.remove(&place, mark).await;
                if matches!(removed, Ok(true)) {
                    tracing::info!(primary = %self.primary, dir = place.dir, file = %place.name, "file deleted: its entity has another value");
                }
                return Ok(removed.map(|_| None));
            }
            Deed::Write(write) => write,
        };
        if !matches!(write.content, Content::Value(_)) {
            return Err(permanent(format!("writing {}", write.address), "what its view derives is no file"));
        }
        if let Some(mark) = &write.over {
            // Its content is given by its name. A new mark makes a pending drop of it fail its condition.
            return Ok(files.renew(&place, mark).await.map(Some));
        }
        Ok(self.bring_into_file(&write.address, &place).await?.map(Some))
    }

    /// Looks whether a file is there.
    pub(super) async fn look_at_file(&self, place: FilePlace, addresses: Vec<&ItemAddress>) -> Result<Vec<(ItemAddress, Look)>, Failure> {
        let found = self.files(&place)?.find(&place).await;
        let found = found.map_err(|error| storage(format!("looking at {}/{}", place.dir, place.name), error))?;
        let look = found.map_or(Look::Absent, |found| Look::Ours(found.mark));
        Ok(addresses.into_iter().map(|address| (address.clone(), look.clone())).collect())
    }
}
