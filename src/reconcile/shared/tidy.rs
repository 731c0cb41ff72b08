//! Blobs left over by moves of a list between its row and a blob: found by their names, and deleted.
//!
//! ```text
//!   list   the blobs under the row's prefix
//!   fence  the row gets a new ETag, where one of them was made for the present one: its move comes too late from then on
//!   sweep  those that the row does not name are deleted
//! ```
//!
//! A pass tidies up where an earlier one, or a request of its own without an answer, may have left a blob, and so does its recheck, when no
//! request can arrive any more. A move tidies up after itself, without the fence: another move of the same row may be under way. A pass goes on
//! where tidying up fails; its recheck alone fails by that, once its items are in step.

use super::blob::Wrote;
use super::spilled::saying;
use super::write::{SharedEntity, store_error};
use crate::model::{ContainerName, ViewName};
use crate::ports::{BlobItem, ErrorClass, Missing, StoreError, all_blobs};
use crate::reconcile::execute::Failure;
use crate::reconcile::failure::{lost_race, permanent, storage};
use crate::shared::spilled;

/// Times that a row or a blob may change meanwhile.
const ROUNDS: u32 = 10;

impl SharedEntity<'_> {
    /// Deletes every blob that a move of the row's list of this view has left, or is about to: its row write comes too late.
    pub(in crate::reconcile) async fn tidy(&self, view: &ViewName) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            let blobs = self.blobs(view).await?;
            if blobs.is_empty() {
                return Ok(());
            }
            self.fence(&blobs).await?;
            if self.sweep(blobs).await? {
                return Ok(());
            }
        }
        Err(lost_race(self.tidying(), ROUNDS))
    }

    /// Deletes blobs of other moves than those of the row as it is. `false` where one of them may still be there.
    pub(super) async fn tidied(&self, view: &ViewName) -> Result<bool, Failure> {
        let blobs = self.blobs(view).await?;
        self.sweep(blobs).await
    }

    fn tidying(&self) -> String {
        format!("tidying up after {}", self.site)
    }

    fn container(&self) -> Result<ContainerName, Failure> {
        ContainerName::new(spilled::CONTAINER).map_err(|error| permanent(self.tidying(), error))
    }

    /// The blobs made for moves of the row's list. They are listed before the row is read.
    async fn blobs(&self, view: &ViewName) -> Result<Vec<BlobItem>, Failure> {
        let prefix = spilled::prefix(self.catalog, view, &self.site);
        match all_blobs(self.target.blobs.as_ref(), &self.container()?, &prefix).await {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => Ok(Vec::new()),
            listed => listed.map_err(|error| storage(self.tidying(), error)),
        }
    }

    /// Sees to it that the row will name none of these blobs that it does not name already.
    async fn fence(&self, blobs: &[BlobItem]) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            let Some(row) = self.row().await? else { return Ok(()) };
            let named = self.elsewhere(&row)?.map(|elsewhere| elsewhere.name);
            let may_be_named = |blob: &BlobItem| named.as_ref() != Some(&blob.name) && spilled::may_be_named(&blob.name, &row.etag);
            if !blobs.iter().any(may_be_named) {
                return Ok(());
            }
            // However that ends, the row is looked at again.
            self.apply(Some(&saying(row.entity.clone(), &row))).await?;
        }
        Err(lost_race(self.tidying(), ROUNDS))
    }

    /// Deletes those of these blobs that the row will never name. `false` where one of them may still be there.
    async fn sweep(&self, blobs: Vec<BlobItem>) -> Result<bool, Failure> {
        if blobs.is_empty() {
            return Ok(true);
        }
        let row = self.row().await?;
        let named = match &row {
            Some(row) => self.elsewhere(row)?,
            None => None,
        };
        let (named, etag) = (named.map(|elsewhere| elsewhere.name), row.as_ref().map(|row| &row.etag));
        let mut gone = true;
        for blob in blobs.into_iter().filter(|blob| spilled::is_left_over(&blob.name, named.as_ref(), etag)) {
            match self.place_of(self.container()?, blob.name).delete(&blob.etag).await {
                // Another writer may be tidying up as well.
                Ok(wrote) => gone &= matches!(wrote, Wrote::Done),
                Err(failure) if is_refused(&failure) => {
                    tracing::warn!(list = %self.site, error = failure.chain(), "a blob that no row names may not be deleted, and stays");
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(gone)
    }
}

/// Whether a deletion is refused until an operator acts: a legal hold, an immutable container, no permission to delete.
fn is_refused(failure: &Failure) -> bool {
    let is_final = |error: &StoreError| matches!(error.class, ErrorClass::Permanent | ErrorClass::Unauthorised);
    store_error(failure).is_some_and(|error| error.withheld.is_none() && is_final(error))
}
