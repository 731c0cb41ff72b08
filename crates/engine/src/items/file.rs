//! Items that are files: large values stored next to the document of their entity, in a folder that all workers share.
//!
//! A file does not record its owner. It belongs to an entity if it is in the folder of the entity's archive and its
//! name begins with the name of the entity's document. Other files are never read, written or removed. The version of a
//! file is its *mark*, which is known without reading the content.

use async_trait::async_trait;

use crate::execute::Failure;
use crate::failure::{permanent, storage};
use crate::items::ItemOperation;
use crate::items::LookContext;
use crate::items::WholeItem;
use crate::items::WriteContext;
use crate::items::value::own_files;
use crate::protocol::observed_item::ObservedItem;
use crate::protocol::scope::Scope;
use crate::protocol::steps::Write;
use evenkeel_model::patterns::Content;
use evenkeel_model::{ETag, ItemAddress};
use evenkeel_storage::{FilePlace, StoreError};

pub(super) struct ValueFile {
    pub(super) place: FilePlace,
}

#[async_trait]
impl WholeItem for ValueFile {
    async fn look(
        &self,
        from: &LookContext<'_, '_>,
        addresses: &[&ItemAddress],
    ) -> Result<Vec<ObservedItem>, Failure> {
        let found = own_files(from.scope, &self.place)?.find(&self.place).await;
        let found = found.map_err(|error| {
            storage(
                format!("reading {}/{}", self.place.dir, self.place.name),
                error,
            )
        })?;
        Ok(vec![
            found.map_or(ObservedItem::Absent, |found| {
                ObservedItem::Owned(found.mark)
            });
            addresses.len()
        ])
    }

    /// Creates the file if it does not exist, gives an existing file a new mark, or removes a file with this mark. A
    /// write returns the new mark, which the footprint lists as the ETag of the item.
    async fn request(
        &self,
        by: &WriteContext<'_, '_>,
        operation: ItemOperation<'_>,
    ) -> Result<Result<Option<ETag>, StoreError>, Failure> {
        let (files, place) = (own_files(by.scope, &self.place)?, &self.place);
        let write = match operation {
            ItemOperation::Drop(_, mark) => {
                let removed = files.remove(place, mark).await;
                if matches!(removed, Ok(true)) {
                    tracing::info!(primary = %by.scope.primary, dir = place.dir, file = %place.name, "deleted file {}: its entity no longer points to it", place.name);
                }
                return Ok(removed.map(|_| None));
            }
            ItemOperation::Write(write) => write,
        };
        if !matches!(write.content, Content::Value(_)) {
            return Err(permanent(
                format!("writing {}", write.address),
                "expected a file from its view",
            ));
        }
        if let Some(mark) = &write.over {
            // The name of the file contains the hash of its content, so the content is right and only the mark changes.
            // A late removal of the file at its old mark then fails its condition.
            return Ok(files.renew(place, mark).await.map(Some));
        }
        Ok(by
            .values
            .bring_into_file(by.scope, &write.address, place)
            .await?
            .map(Some))
    }

    /// Compares the mark that was read with the mark in the footprint. The content is not read, because each write of a
    /// file changes its mark.
    async fn differs(
        &self,
        _: &Scope<'_>,
        write: &Write,
        listed: Option<&ETag>,
    ) -> Result<bool, Failure> {
        Ok(write.over.as_ref() != listed)
    }
}
